"""Fuzzes the Open Inference Protocol's calls: malformed JSON, bytes and messages, through the real plugin.

The first byte of an input chooses one of :data:`CALLS`, the rest is the body. Whatever comes is accepted as one job,
shown, or refused in the protocol's shape with a status of the caller's, and then no worker learns of it.
"""

import json
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Final

from gateway_plugin.api.calls import GrpcCall
from gateway_plugin.api.oip.grpc import SERVICE
from gateway_plugin.codec.oip.request import HEADER
from gateway_plugin.request import Request
from signalbox.program.errors import DeadlineExceeded, SignalboxError, Unimplemented, meaning
from signalbox.wire.keydocs import ApiKey
from verification.fuzz.dispatch import KID, Plugin, plugin
from verification.fuzz.json_bodies import TOKENS as BODY_TOKENS

SEEDS: Final = Path(__file__).parent / "corpus" / "oip"
SHARE: Final = 40_000
_WORDS: Final = (
    '"name"',
    '"shape"',
    '"datatype"',
    '"data"',
    '"parameters"',
    '"outputs"',
    '"id"',
    '"binary_data_size"',
    '"binary_data"',
    '"binary_data_output"',
    '"signature_name": "mixed"',
    '"signature_name": "classify"',
    '"priority": 2',
    '"timeout": 1',
    '"sequence_id"',
    '"shared_memory_region"',
    '"FP32"',
    '"INT32"',
    '"BYTES"',
    '"BOOL"',
    '"FP16"',
    "[2]",
    "[2, 2]",
    "[-1]",
    "18446744073709551616",
)
CALLS: Final = {
    "j": "half/infer",
    "b": "half/infer *",
    "v": "half/versions/1/infer *",
    "d": "half/infer * deflate",
    "r": "half/infer 0",
    "n": "nobody/infer",
    "p": "",
    "g": "grpc ModelInfer",
    "m": "grpc ModelMetadata",
    "i": "grpc RepositoryIndex",
}
"""What follows ``/v2/models/``, the length of the JSON and the encoding; or a gRPC method.

``*``: the JSON ends before the first byte 0xFE, which is left out. Nothing: all of it is the first line of the body.
"""
TOKENS: Final = (*BODY_TOKENS, *(word.encode() for word in _WORDS), b"\xfe", b"\x2a\x00", b"\x3a\x04\x00\x00\x80\x3f")
_REFUSED: Final = frozenset({400, 403, 404, 405, 413, 415})
_GRPC: Final = "grpc "
_SEPARATOR: Final = b"\xfe"
_OF_PATHS: Final = frozenset({"not_found", "method_not_allowed"})
_VARYING: Final = re.compile(r"""["'].*["']|\d+|\[[^\]]*\]""", re.DOTALL)


def request_of(line: str, body: bytes) -> Request:
    """The request of a first line and a body."""
    call, _, rest = line.partition(" ")
    length, _, encoding = rest.partition(" ")
    headers = {}
    if length == "*":
        text, _, tail = body.partition(_SEPARATOR)
        headers[HEADER], body = str(len(text)), text + tail
    elif length:
        headers[HEADER] = length
    if body[:2] == b"\x1f\x8b" or encoding:
        headers["Content-Encoding"] = encoding or "gzip"
    return Request("POST", f"/v2/models/{call}", headers, body)


def one(data: bytes) -> Hashable:
    """Raises AssertionError where a promise is broken, or what the plugin raised."""
    calls = list(CALLS.values())
    line, body = CALLS.get(chr(data[0]), calls[data[0] % len(calls)]) if data else "", data[1:]
    if not line:
        head, _, body = body.partition(b"\n")
        line = head.decode(errors="replace")
    under_test = plugin()
    under_test.reset()
    if line.startswith(_GRPC):
        error = under_test.loop.run_until_complete(_called(under_test, line.removeprefix(_GRPC), body))
    else:
        error = under_test.loop.run_until_complete(_asked(under_test, request_of(line, body)))
    jobs = [subject for subject in under_test.bus.written if subject.startswith("jobs.")]
    if isinstance(error, DeadlineExceeded):  # accepted; nobody runs it
        assert len(jobs) == 1
        return "accepted"
    assert not under_test.bus.written
    if error is None or isinstance(error, Unimplemented):
        return "shown"
    assert meaning(error.code).http in _REFUSED, f"{error.code}: {error.public_message}"
    assert 0 < len(error.public_message) < 4_000
    return error.code, "" if error.code in _OF_PATHS else _VARYING.sub("", error.public_message)[:80]


async def _asked(under_test: Plugin, request: Request) -> SignalboxError | None:
    """The error of a request, once its answer has the protocol's shape; None where it is no error."""
    rest = under_test.gateway.open_inference.rest
    try:
        await rest.answer(request, _key(under_test))
    except SignalboxError as error:
        refused = error
    else:
        return None
    given = rest.refusal(refused)
    assert given.status == meaning(refused.code).http
    assert given.headers["Content-Type"] == "application/json"
    assert list(json.loads(given.body)) == ["error"]
    return refused


async def _called(under_test: Plugin, method: str, body: bytes) -> SignalboxError | None:
    methods = under_test.gateway.open_inference.grpc.methods()
    if (answer := methods.get(SERVICE + method)) is None:
        return None
    try:
        await answer(GrpcCall(_key(under_test), {}, body))
    except SignalboxError as error:
        return error
    return None


def _key(under_test: Plugin) -> ApiKey:
    return under_test.gateway.keyring.by_id(KID)
