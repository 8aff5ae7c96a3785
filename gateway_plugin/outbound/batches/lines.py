"""The lines of a batch's input: read a chunk at a time, each with a number, and a job's id that follows from both."""

import hashlib
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

import msgspec
import orjson

from gateway_plugin.service.files import Files
from signalbox.program.errors import InvalidJson, InvalidRequest, TooLarge
from signalbox.wire import jobids
from signalbox.wire.outbound import Batch, StoredFile

MOST_LINE_BYTES: Final = 4 * 1024 * 1024
"""Longest line of an input."""
_PER_SLOT: Final = 64
"""Jobs of a batch whose messages are removed together (``workers/recovery/removal.py``)."""
_SLOT_S: Final = 1.024
_LONGEST_ID: Final = 512


class Line(NamedTuple):
    """One line. text: empty = it is too long. number: from 0 on; empty lines have none."""

    number: int
    text: bytes


class _Fields(msgspec.Struct):
    custom_id: str
    url: str
    body: msgspec.Raw
    method: str = "POST"


class Asked(NamedTuple):
    """What a line asks. body: of the prediction."""

    custom_id: str
    body: bytes


async def read(files: Files, account: str, found: StoredFile) -> AsyncGenerator[Line, None]:
    """The lines of a file. Raises :class:`NotFound` where it has been removed meanwhile."""
    number, begun, is_long = 0, bytearray(), False
    async for chunk in files.read(account, found):
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            begun += part
            if is_long or begun.strip():
                yield Line(number, b"" if is_long or len(begun) > MOST_LINE_BYTES else bytes(begun))
                number += 1
            begun, is_long = bytearray(), False
        begun += rest
        if len(begun) > MOST_LINE_BYTES:
            begun, is_long = bytearray(), True
    if is_long or begun.strip():
        yield Line(number, b"" if is_long else bytes(begun))


def asked(line: Line, endpoint: str) -> Asked:
    """What a line asks. Raises :class:`TooLarge`, :class:`InvalidJson` and :class:`InvalidRequest`."""
    if not line.text:
        raise TooLarge(f"A line has at most {MOST_LINE_BYTES} bytes.", limit_bytes=MOST_LINE_BYTES)
    try:
        fields = msgspec.json.decode(line.text, type=_Fields)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f'A line has "custom_id", "method", "url" and "body": {error}.') from error
    except RecursionError as error:
        raise InvalidJson("The line is nested too deeply.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidJson(f"The line is no JSON: {error}.") from error
    if not 0 < len(fields.custom_id) <= _LONGEST_ID:
        raise InvalidRequest(f'"custom_id" has 1 to {_LONGEST_ID} characters.', field="custom_id")
    if fields.method != "POST" or fields.url != endpoint:
        raise InvalidRequest(f'"method" must be POST and "url" the batch\'s endpoint, {endpoint}.', field="url")
    return Asked(fields.custom_id, bytes(fields.body))


def custom_id(line: Line) -> str | None:
    """The ``custom_id`` of a line that may be wrong otherwise."""
    try:
        found = orjson.loads(line.text)
    except orjson.JSONDecodeError:
        return None
    given = found.get("custom_id") if isinstance(found, dict) else None
    return given[:_LONGEST_ID] if isinstance(given, str) else None


def job_id(batch: Batch, number: int) -> str:
    """The id of a line's job, the same whenever it is asked for.

    Its time is before the batch's creation, and earlier the further down the line is, so that few jobs share a slot.
    """
    digest = hashlib.sha256(f"{batch.id} {number}".encode()).digest()
    before_s = _SLOT_S * (1 + number // _PER_SLOT)
    return jobids.new_job_id(batch.created_at - before_s, int.from_bytes(digest[:16], "big"))


def answered(job: str, custom: str | None, status: int, body: bytes, error: bytes = b"null") -> bytes:
    """A line of an output. status: 0 = there was no answer. body, error: JSON."""
    # JSON has line ends between values only.
    body = body.replace(b"\n", b" ").replace(b"\r", b" ")
    response = b'{"status_code":%d,"request_id":"%s","body":%s}' % (status, job.encode(), body) if status else b"null"
    named = orjson.dumps(custom)
    return b'{"id":"batch_req_%s","custom_id":%s,"response":%s,"error":%s}\n' % (
        job.replace("-", "").encode(),
        named,
        response,
        error,
    )
