"""Inputs stored in ``INPUTS``: their owners and sizes, and their removal once their jobs have ended.

The subject of an input holds account, job and size, so one request for subjects tells what an account holds.
"""

import asyncio
from collections.abc import Iterable, Mapping

from signalbox.bus.client import Bus
from signalbox.jobs.payloads import CHUNK_BYTES, StoredInput
from signalbox.wire import names
from signalbox.wire.messages import Record, encode
from signalbox.wire.names import Stream
from signalbox.wire.refused import RefusedInput


def of_record(record: Record) -> str:
    """The subject of a job's input in ``INPUTS``; empty where it lies in the job's message."""
    return record.input.subject if record.input is not None else ""


def held(subjects: Mapping[str, int]) -> int:
    """Bytes of the inputs under these subjects of ``INPUTS``, each with the number of its chunks.

    An input that was stored twice, by a caller who tried again after minutes, counts twice.
    """
    total = 0
    for subject, chunks in subjects.items():
        size = names.size_of_input(subject)
        total += size * -(-chunks // max(1, -(-size // CHUNK_BYTES)))
    return total


def tell_refused(bus: Bus, stored: StoredInput) -> None:
    """Ask the worker that reconciles to remove an input whose job ``JOBS`` refused. If no worker receives it, the input
    is removed after an hour (:mod:`workers.recovery.inputs`)."""
    reported = RefusedInput(subject=stored.ref.subject, last_seq=stored.last_seq)
    if bus.is_connected:
        bus.send(names.INPUT_REFUSED, b"", b"", encode(reported))


async def remove(bus: Bus, subjects: Iterable[str]) -> None:
    """Remove the inputs of jobs that have ended. Idempotent. Raises as :meth:`Bus.request_json`."""
    await asyncio.gather(*(purge(bus, subject) for subject in subjects))


async def purge(bus: Bus, subject: str, *, below: int = 0) -> None:
    """Remove one input, or only those of its chunks below a sequence."""
    which = {"filter": subject} | ({"seq": below} if below else {})
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.INPUTS}", which)
