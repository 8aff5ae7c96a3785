"""Claim check: bodies above the inline limit lie as chunks in a stream and travel by reference.

Inputs lie in ``INPUTS`` until their job has ended, results in ``PAYLOADS`` for a day, inputs of dead letters in
``DLQ_PARTS``; a reference's subject says which stream it is.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from signalbox.bus.client import Bus
from signalbox.bus.jetstream import Stored, stored_of
from signalbox.bus.transport.frames import status
from signalbox.program.errors import Ambiguous, Bug, NotFound, SignalboxError, Unavailable
from signalbox.program.tasks import TaskGroup
from signalbox.wire.messages import Job, PayloadRef
from signalbox.wire.names import Header, job_input, payload, stream_of_payload
from signalbox.wire.names import job as queue_subject

INLINE_LIMIT_BYTES: Final = 256 * 1024
"""Bodies above this travel by claim check: gateways and workers must agree, and a message may have a MiB
(:data:`signalbox.wire.assets.JOB_MAX_BYTES`)."""
CHUNK_BYTES: Final = 512 * 1024
_CHUNK_HEADER: Final = "Sb-Chunk"
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_IN_FLIGHT: Final = 8
_TRIES: Final = 3
_STALE_PAUSE_S: Final = 0.1
_THREAD_FROM_BYTES: Final = 1024 * 1024
"""Hashing this much takes about a millisecond; more goes to a thread."""


async def store(bus: Bus, account: str, job_id: str, part: str, data: bytes) -> PayloadRef:
    """Store a result under ``part`` (``out<token>``) of an account's job; durable on return.

    Repeating it is safe while the server remembers message ids (two minutes): no chunk is stored twice. Raises as
    :meth:`Bus.write`.
    """
    return await store_at(bus, payload(account, job_id, part), data)


class StoredInput(NamedTuple):
    """An input that its job may name. last_seq: of the chunk that lies highest."""

    ref: PayloadRef
    last_seq: int


async def store_input(bus: Bus, job: Job, data: bytes) -> StoredInput:
    """Store the input of a job that is about to be queued; it stays until the job has ended.

    Each chunk names the job's message in ``JOBS``, so that inputs of jobs that were never queued can be recognised. A
    second call stores all chunks again: those of an earlier call may be about to be removed. Raises as :func:`store`,
    so :class:`QueueFull` where all room for inputs is taken; what was stored is then the input of a job never queued.
    """
    subject = job_input(job.account_id, job.id, len(data))
    queued_as = queue_subject(job.model, job.priority, job.account_id, job.id)
    headers: dict[str, str] = {Header.QUEUED_AS: queued_as}
    return await _store(bus, subject, data, headers, attempt=secrets.token_hex(8))


async def store_at(bus: Bus, subject: str, data: bytes, headers: Mapping[str, str] = _NO_HEADERS) -> PayloadRef:
    """:meth:`store` under a subject of the caller's. Raises as :meth:`Bus.write`: the error of the first refused chunk.

    headers: of each chunk, beside its number.
    """
    return (await _store(bus, subject, data, headers)).ref


async def _store(bus: Bus, subject: str, data: bytes, headers: Mapping[str, str], *, attempt: str = "") -> StoredInput:
    """attempt: the server tells its chunks from those of others; empty = it stores no chunk of these data twice."""
    digest = await _sha256([data])
    chunks = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)] or [b""]
    room = asyncio.Semaphore(_IN_FLIGHT)
    msg_id = f"{subject}.{digest[:16]}{attempt}"

    async def write(number: int, chunk: bytes) -> int:
        fields = {_CHUNK_HEADER: str(number), **headers}
        async with room:
            return await _write_chunk(bus, subject, chunk, fields, f"{msg_id}.{number}")

    try:
        async with TaskGroup() as group:
            written = [group.create_task(write(n, chunk)) for n, chunk in enumerate(chunks)]
    except ExceptionGroup as errors:
        if not isinstance(errors.exceptions[0], SignalboxError):
            raise
        raise errors.exceptions[0] from None
    # A chunk that an earlier try stored has the sequence of then, so the first chunk need not lie lowest.
    sequences = [task.result() for task in written]
    ref = PayloadRef(subject=subject, size=len(data), chunks=len(chunks), first_seq=min(sequences), sha256=digest)
    return StoredInput(ref, max(sequences))


async def fetch(bus: Bus, ref: PayloadRef) -> bytes:
    """The whole payload behind ``ref``, checked against its digest.

    Raises :class:`NotFound` when it is gone, :class:`Unavailable` while only replicas without it answer, :class:`Bug`
    when it is not what was stored, and as :meth:`Bus.request`.
    """
    found: dict[int, bytes] = {}
    for attempt in range(_TRIES):
        await _read_chunks(bus, ref, found)
        if len(found) == ref.chunks:
            break
        # Any replica answers a direct get, and one may be a moment behind.
        await asyncio.sleep(_STALE_PAUSE_S * (attempt + 1))
    else:
        if await _is_with_the_leader(bus, ref):
            raise Unavailable("A stored payload cannot be read yet.", subject=ref.subject)
        raise NotFound("The payload is no longer stored.", subject=ref.subject)
    parts = [found[number] for number in range(ref.chunks)]
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    if len(data) != ref.size or await _sha256([data]) != ref.sha256:
        raise Bug("A stored payload is damaged.", subject=ref.subject)
    return data


async def _write_chunk(bus: Bus, subject: str, chunk: bytes, headers: Mapping[str, str], msg_id: str) -> int:
    try:
        return await bus.write(subject, chunk, headers=headers, msg_id=msg_id)
    except Ambiguous:
        return await bus.write(subject, chunk, headers=headers, msg_id=msg_id)


async def _read_chunks(bus: Bus, ref: PayloadRef, found: dict[int, bytes]) -> None:
    """Add chunks to ``found``; the server ends a batch early at its own size limit, so this goes on after it."""
    seq = ref.first_seq
    while len(found) < ref.chunks:
        batch: list[Stored] = []
        request = {"seq": seq, "next_by_subj": ref.subject, "batch": ref.chunks + 1}
        head, _ = await bus.collect(
            f"$JS.API.DIRECT.GET.{stream_of_payload(ref.subject)}", request, partial(_keep, batch)
        )
        for stored in batch:
            found[int(stored.headers[_CHUNK_HEADER])] = stored.data
        if status(head) != 204 or not batch:
            return
        seq = batch[-1].seq + 1


async def _is_with_the_leader(bus: Bus, ref: PayloadRef) -> bool:
    """Whether all of it is stored, as the stream's leader knows."""
    info = await bus.request_json(
        f"$JS.API.STREAM.INFO.{stream_of_payload(ref.subject)}", {"subjects_filter": ref.subject}
    )
    subjects = info["state"].get("subjects") or {}
    return bool(subjects.get(ref.subject, 0) >= ref.chunks)


def _keep(batch: list[Stored], head: bytes, body: bytes) -> None:
    batch.append(stored_of(head, body))


async def _sha256(parts: Sequence[bytes]) -> str:
    if sum(map(len, parts)) < _THREAD_FROM_BYTES:
        return _digest(parts)
    return await asyncio.to_thread(_digest, parts)


def _digest(parts: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
