"""Many jobs of a file of JSON lines, submitted a few hundred a call."""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from signalbox.client import Client, Job, Submission
from signalbox.ops import output
from signalbox.ops.calls import inputs
from signalbox.program.errors import InvalidInput, Misconfigured, SignalboxError

MOST_JOBS: Final = 500
MOST_BYTES: Final = 8 * 1024 * 1024
"""Of one call, which the front takes as a whole or not at all."""
_FIELDS: Final = frozenset({"model", "version", "label", "priority", "deadline_s", "tags", "not_before", "webhook"})


def submit(client: Client, path: str, options: dict[str, Any], arguments: argparse.Namespace) -> tuple[list[Job], int]:
    """Submit every line, and print what became of each; the jobs that were accepted, and how many were not.

    Raises :class:`InvalidInput` for a line that cannot be read, before anything of its call is sent.
    """
    base = Submission(arguments.model, **options)
    accepted: list[Job] = []
    refused = number = 0
    with _lines(path) as (file, total), output.Progress("submitted", total) as progress:
        for call, chunk in enumerate(_chunks(file, base)):
            key = f"{arguments.idempotency_key}-{call}" if arguments.idempotency_key else None
            try:
                answers = client.submit_many(chunk, idempotency_key=key)
            except SignalboxError:
                output.note(f"{len(accepted)} are accepted; from job {number + 1} on, none is.")
                raise
            for answer in answers:
                number += 1
                if isinstance(answer, Job):
                    accepted.append(answer)
                else:
                    refused += 1
                _tell(number, answer, is_json=arguments.json)
            progress.advance(len(chunk))
    return accepted, refused


def _tell(number: int, answer: Job | SignalboxError, *, is_json: bool) -> None:
    if isinstance(answer, Job):
        if is_json:
            output.emit_line({"job": number, "id": answer.id, "state": answer.state})
        else:
            print(answer.id, flush=True)
    elif is_json:
        output.emit_line({"job": number, "error": {"code": answer.code, "detail": answer.public_message}})
    else:
        print("-", flush=True)
        output.note(f"job {number} was refused: {answer.public_message}")


@contextmanager
def _lines(path: str) -> Iterator[tuple[IO[bytes], int]]:
    """The file, and how many jobs it has; 0 where that cannot be known before it is read."""
    if path == "-":
        yield sys.stdin.buffer, 0
        return
    try:
        with Path(path).open("rb") as file:
            total = sum(1 for line in file if line.strip()) if file.seekable() else 0
            if file.seekable():
                file.seek(0)
            yield file, total
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror or error}.") from error


def _chunks(file: IO[bytes], base: Submission) -> Iterator[list[Submission]]:
    chunk: list[Submission] = []
    size = 0
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        if chunk and (len(chunk) == MOST_JOBS or size + len(line) > MOST_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(_submission(line, number, base))
        size += len(line)
    if chunk:
        yield chunk


def _submission(line: bytes, number: int, base: Submission) -> Submission:
    try:
        doc = json.loads(line)
        own = {name: doc.pop(name) for name in _FIELDS & doc.keys()} if isinstance(doc, dict) else {}
        given = inputs.of_line(doc)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"Line {number} is no JSON: {error}.") from error
    except InvalidInput as error:
        raise InvalidInput(f"Line {number}: {error.public_message}") from error
    if own.keys() & {"version", "label"}:
        own = {"version": None, "label": None, **own}
    if given.signature:
        own["signature"] = given.signature
    return replace(base, inputs=given.inputs, instances=given.instances, **own)
