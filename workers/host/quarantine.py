"""Inputs whose job became a dead letter for ending runners: jobs with them are refused for an hour.

Kept in KV ``poison`` under model, version and hash of the input, so that every worker knows, and sending the same bytes
again ends no other runner; another version may be able to run them. As long as a model has no such input, nothing is
hashed.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Final

from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put
from signalbox.jobs import joblog
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.wire import names
from signalbox.wire.messages import Job
from signalbox.wire.names import Bucket, token
from signalbox.wire.poison import Poison

QUARANTINE_S: Final = 3600
LARGE_BYTES: Final = 256 * 1024
"""Above this a frame is hashed in a thread."""


class Quarantine:
    """The quarantined inputs of all models, kept current. clock: UTC seconds."""

    def __init__(self, bus: Bus, *, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._clock = clock
        self._table = Table(bus, Bucket.POISON, Poison)
        self._models: frozenset[str] = frozenset()
        self._table.on_change(lambda *_: self._changed())

    async def start(self) -> None:
        """Read them; returns when they are current. Raises :class:`Unavailable`."""
        await self._table.start()

    async def close(self) -> None:
        """Stop following."""
        await self._table.close()

    def concerns(self, model: str) -> bool:
        """Whether any input of the model is quarantined: only then is :meth:`holds` worth asking."""
        return token(model) in self._models

    async def holds(self, job: Job, frame: bytes) -> bool:
        """Whether this job's input may not run. What a person redrove may: its mark is lifted, here perhaps later."""
        if job.redrive_of or not self.concerns(job.model):
            return False
        found = self._table.get(names.poison(job.model, job.version, await _digest(job, frame)))
        return found is not None and self._clock() - found.since < QUARANTINE_S

    async def add(self, job: Job, frame: bytes, error: SignalboxError) -> None:
        """Quarantine a job's input. Best effort: what cannot be written is found again by its next strikes."""
        digest = await _digest(job, frame)
        doc = Poison(
            model=job.model, version=job.version, sha256=digest, job=job.id, error=error.code, since=self._clock()
        )
        try:
            await put(self._bus, Bucket.POISON, names.poison(job.model, job.version, digest), doc, ttl_s=QUARANTINE_S)
        except SignalboxError as failure:
            log.warning("quarantine.write_failed", **joblog.ids(job), why=str(failure))
        else:
            log.warning("input.quarantined", model=job.model, **joblog.ids(job), sha256=digest)

    def _changed(self) -> None:
        self._models = frozenset(key.partition(".")[0] for key in self._table.items())


async def _digest(job: Job, frame: bytes) -> str:
    if job.ref is not None:
        return job.ref.sha256
    if len(frame) < LARGE_BYTES:
        return hashlib.sha256(frame).hexdigest()
    return await asyncio.to_thread(lambda: hashlib.sha256(frame).hexdigest())
