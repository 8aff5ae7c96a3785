"""Removes inputs whose jobs' ends the reconciler did not read, or whose jobs were never run or never queued.

A part of the reconciler's turn. It asks which inputs are stored, by their subjects, and for the record of each job. An
input goes where the record says that the job has ended. It also goes where for an hour there was no record, and then no
message in ``JOBS`` either: its acceptance never came to an end. Only the chunks that were there when the hour began go,
so that a caller who tries the same submission again meanwhile loses nothing. No chunk is read but for that question.

A gateway whose job ``JOBS`` refused tells of its input, as it may not remove any. Such an input goes with the next
turn, once the same questions have been asked: who tells may be wrong, and can harm no accepted job.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from signalbox.bus.client import Bus, Message, Subscription
from signalbox.jobs import inputs, joblog
from signalbox.jobs.records import Records
from signalbox.program import log
from signalbox.program.errors import NewerVersion
from signalbox.wire import names
from signalbox.wire.messages import Record, decode
from signalbox.wire.names import Header, Stream
from signalbox.wire.refused import RefusedInput
from workers.host import gauges

ORPHANED_S: Final = 3600.0
"""Without a job for so long, an input belongs to none. A gateway queues a job within seconds of storing its input."""
MAX_CHECKED: Final = 500
"""Inputs whose jobs are looked up in one turn."""
MAX_REFUSED: Final = 1_000
"""Refused inputs remembered until the next turn; more go after an hour."""
_MAX_REPORT_BYTES: Final = 1_024


class _Recordless(NamedTuple):
    """An input whose job has no record. since: when that was first seen. last_seq: of the stream then."""

    since: float
    last_seq: int


class InputRemoval:
    """What the reconciler knows of ``INPUTS``. clock: UTC seconds."""

    def __init__(self, bus: Bus, records: Records, *, clock: Callable[[], float]) -> None:
        self._bus = bus
        self._records = records
        self._clock = clock
        self._round: list[str] = []
        self._recordless: dict[str, _Recordless] = {}
        self._refused: dict[str, int] = {}
        self._received: Subscription | None = None

    async def rest(self) -> None:
        """Receive and remember nothing, for another worker does it now. Idempotent."""
        received, self._received = self._received, None
        self._refused.clear()
        if received is not None:
            await received.close()

    async def turn(self) -> None:
        """Look at what was refused and at the next inputs, in a circle. Raises as :meth:`Bus.request_json`."""
        if self._received is None:
            self._received = await self._bus.subscribe(names.INPUT_REFUSED, self._receive)
        refused, self._refused = self._refused, {}
        for subject, last_seq in refused.items():
            await self._remove_orphan(subject, last_seq)
        info = await self._bus.request_json(
            f"$JS.API.STREAM.INFO.{Stream.INPUTS}", {"subjects_filter": names.job_inputs()}
        )
        stored = info["state"].get("subjects") or {}
        for subject in self._recordless.keys() - stored.keys():
            del self._recordless[subject]
        if not self._round:
            self._round = list(stored)
        group, self._round = self._round[:MAX_CHECKED], self._round[MAX_CHECKED:]
        for subject in group:
            if subject in stored:
                await self._check(subject, info["state"]["last_seq"])

    async def _check(self, subject: str, last_seq: int) -> None:
        try:
            record = await self._record(subject)
            if record is not None:
                self._recordless.pop(subject, None)
                if record.state.is_terminal:
                    await inputs.purge(self._bus, subject)
                    gauges.INPUTS_REMOVED.inc()
                return
            now = self._clock()
            known = self._recordless.setdefault(subject, _Recordless(now, last_seq))
            if now - known.since <= ORPHANED_S:
                return
            del self._recordless[subject]
        except NewerVersion:
            return
        if await self._remove_orphan(subject, known.last_seq):
            log.warning("reconciler.input_without_job", **joblog.only_id(names.job_of_input(subject)))

    def _receive(self, message: Message) -> None:
        try:
            if len(message.data) > _MAX_REPORT_BYTES:
                raise msgspec.ValidationError("too long")
            reported = decode(RefusedInput, message.data)
            if not names.is_input(reported.subject):
                raise msgspec.ValidationError("no input")
        except msgspec.MsgspecError as error:
            log.warning("reconciler.unreadable_refusal", reason=str(error))
            return
        if len(self._refused) < MAX_REFUSED:
            self._refused[reported.subject] = max(reported.last_seq, self._refused.get(reported.subject, 0))

    async def _remove_orphan(self, subject: str, last_seq: int) -> bool:
        """Remove what of an input lies at ``last_seq`` or below, if it has no job. Returns whether it did."""
        try:
            if not await self._is_orphan(subject):
                return False
        except NewerVersion:
            return False
        await inputs.purge(self._bus, subject, below=last_seq + 1)
        gauges.INPUTS_REMOVED.inc()
        return True

    async def _record(self, subject: str) -> Record | None:
        found = await self._records.read(names.job_of_input(subject))
        return found[0] if found is not None else None

    async def _is_orphan(self, subject: str) -> bool:
        """Whether its job is not queued, and was not claimed and removed since its record was asked for."""
        chunk = await self._bus.direct_get(Stream.INPUTS, subject)
        if chunk is None:
            return False
        queued = await self._bus.leader_get(Stream.JOBS, chunk.headers[Header.QUEUED_AS])
        return queued is None and await self._record(subject) is None
