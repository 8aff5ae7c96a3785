"""The reconciler: every accepted job ends, also one that its queue lost or that no worker attends to.

One worker does it for all (:mod:`signalbox.bus.leader`). Every three seconds it

1. reads on in ``STATE``: records that are not terminal are remembered as open;
2. erases what deleted jobs held (:mod:`workers.recovery.erasure`), and removes messages and inputs of jobs that have
   ended (:mod:`workers.recovery.removal`);
3. asks for jobs that no worker was given (:mod:`workers.recovery.undelivered`), every half minute only where very many
   wait, as each is then asked for by itself;

and every half minute it also

4. removes records of jobs that ended long enough ago (:mod:`workers.recovery.records`,
   :mod:`workers.recovery.shortlived`),
   before it writes any: a full ``STATE`` takes no ends;
5. reads on in ``JOBS``: what waits beyond its deadline is ended (``expired``), or of a model that was removed from the
   catalog (``not_found``; also at once when that happens), and taken out of the queue;
6. looks again at open records that are a minute old: one that its worker still runs is left alone, the others are put
   right (:mod:`signalbox.jobs.repair`);
7. removes inputs that were refused, or whose jobs' ends it has not read (:mod:`workers.recovery.inputs`).

Beside these turns it queues delayed jobs when their time has come (:mod:`workers.recovery.delayed`).

Each turn's work is bounded; what is left over is the next turn's. Two reconcilers at once harm no job.
Results above the inline limit need no collector: ``PAYLOADS`` drops every chunk after 24 hours.
"""

import asyncio
import contextlib
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from signalbox.bus.client import Bus, Delivery, Stored
from signalbox.bus.leader import LeaderLease
from signalbox.jobs import inputs, repair
from signalbox.jobs.message import remove
from signalbox.jobs.records import Found, Records
from signalbox.jobs.repair import GRACE_S, Fate
from signalbox.program import log
from signalbox.program.errors import InputLost, NewerVersion, NotFound, SignalboxError
from signalbox.program.tasks import TaskGroup
from signalbox.wire import names
from signalbox.wire.duties import ReconcilerPosition
from signalbox.wire.messages import Job, Record, State, decode, encode
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import POSITION, RECONCILER, Bucket, Header, Stream, token
from signalbox.wire.workerdocs import Worker
from workers.host import gauges
from workers.recovery.delayed import DelayedJobs, Released
from workers.recovery.erasure import Erasure
from workers.recovery.heldends import HeldEnds
from workers.recovery.inputs import InputRemoval
from workers.recovery.queued import is_deep, walk_jobs
from workers.recovery.records import RecordRetention
from workers.recovery.removal import JobRemoval
from workers.recovery.shortlived import ShortLivedRecords
from workers.recovery.undelivered import UndeliveredJobs
from workers.recovery.walk import walk

PERIOD_S: Final = 30.0
REMOVAL_S: Final = 3.0
"""From one removal of ended jobs to the next."""
RELEASE_S: Final = 0.5
"""From one look for delayed jobs that are due to the next."""
SETTLED_S: Final = 60.0
"""A record younger than this is its worker's business."""
BELIEVED_S: Final = 3600.0
"""A run is believed to go on so long after its claim and its model's limit, if its worker still holds that lease."""
MAX_READ: Final = 20_000
"""Headers read of each stream in one turn."""
MAX_CHECKED: Final = 500
"""Records looked up in one turn, for each of its steps."""
MAX_KNOWN: Final = 100_000
"""Open records and ended jobs remembered; then reading on waits."""
_RUNNING: Final = '"state":"running"'
_QUEUED: Final = '"state":"queued"'
_CANCELLED: Final = '"state":"cancelled"'
_CLAIMED: Final = '"attempt":'
"""A record that was cancelled and has none was never claimed."""
_STORED: Final = '"input":{'
_DELETED: Final = '"deleted_at":'
"""Of the others only these are read whole: where a job's input was stored, and tombstones."""


class JobReconciler:
    """One worker's part. workers, models: presence and catalog as known here. clock: UTC seconds.

    is_removed: whether a model was taken out of the catalog.
    held_s: how long records wait for the outbound program (:mod:`workers.recovery.heldends`).
    outlives_s: how much longer a record stays than its job's message (:mod:`workers.recovery.endedmessages`).
    """

    def __init__(
        self,
        bus: Bus,
        records: Records,
        *,
        workers: Callable[[], Iterable[Worker]],
        models: Callable[[], Mapping[str, Model]],
        is_removed: Callable[[str], bool] = lambda _: False,
        worker: str,
        boot: str,
        period_s: float = PERIOD_S,
        settled_s: float = SETTLED_S,
        kept_s: float = 86_400.0,
        least_kept_s: float = 600.0,
        sync_kept_s: float = 600.0,
        held_s: float = 86_400.0,
        outlives_s: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._records = records
        self._workers = workers
        self._models = models
        self._is_removed = is_removed
        self._has_removed = False
        self._period_s = period_s
        self._settled_s = settled_s
        self._clock = clock
        self._removal_s = min(REMOVAL_S, period_s)
        self._leadership = LeaderLease(
            bus, RECONCILER, owner=worker, boot=boot, ttl_s=max(1, int(5 * self._removal_s)), clock=clock
        )
        self._ends = HeldEnds(bus, held_s=held_s, clock=clock)
        self._retention = RecordRetention(
            bus, kept_s=kept_s, least_s=least_kept_s, outlives_s=outlives_s, ends=self._ends, clock=clock
        )
        self._slots = ShortLivedRecords(bus, kept_s=sync_kept_s, outlives_s=outlives_s, ends=self._ends, clock=clock)
        self._foreign: list[int] = []
        self._is_behind = False
        self._removal = JobRemoval(bus, clock=clock)
        self._erasure = Erasure(bus, clock=clock)
        self._undelivered = UndeliveredJobs(bus, records, workers, clock=clock)
        self._inputs = InputRemoval(bus, records, clock=clock)
        self._delayed = DelayedJobs(bus, records, clock=clock)
        self._position: ReconcilerPosition | None = None
        """Where we read on; None: where the one before us left off, or the duty is another's."""
        self._is_doubted = False
        self._read_to = self._known_to = 0
        self._deadlines = (math.inf, math.inf)
        """The first deadline of what waits in ``JOBS``: as it was read last, and as far as it is being read."""
        self._positions: deque[tuple[float, int]] = deque()
        """When STATE had been read up to where. A server that crashes may lose its last messages and give their numbers
        again: after a reconnect reading goes back to where it was before what may have been lost."""
        self._open: dict[str, tuple[int, float]] = {}
        """Jobs whose records are not terminal: sequence of the record, and when it was stored."""
        self._waiting: set[str] = set()
        """Those of them that nobody has claimed yet: they wait in the queue, as jobs without a record do."""

    async def keep(self) -> None:
        """Until cancelled: turn after turn, with jitter, so that workers ask one after the other; and releases."""
        self._bus.on_reconnect(self._doubt)
        async with TaskGroup() as group:
            group.create_task(self._turn_by_turn())
            group.create_task(self._release_often())

    async def _turn_by_turn(self) -> None:
        loop = asyncio.get_running_loop()
        whole_at = loop.time() + self._period_s
        pause_s = self._removal_s
        while True:
            await asyncio.sleep(pause_s * (0.8 + 0.4 * random.random()))  # noqa: S311  no secret: spreads load
            pause_s = self._removal_s
            # The first one too, where this worker was started for a deadline.
            is_whole = loop.time() >= whole_at or self._has_removed or self._position is None
            if is_whole:
                whole_at, self._has_removed = loop.time() + self._period_s, False
            try:
                while await self.turn(is_whole=is_whole) and self._is_behind:
                    pass
                if self._removal.has_more or self._erasure.has_more:
                    pause_s /= 10  # what goes singly went for seconds
            except SignalboxError as error:
                gauges.RECONCILED.labels("failed").inc()
                log.warning("reconciler.turn_failed", why=str(error), code=error.code)
            except Exception:  # noqa: BLE001  the edge of a task
                gauges.RECONCILED.labels("failed").inc()
                log.exception("reconciler.turn_failed")

    async def _release_often(self) -> None:
        while True:
            await asyncio.sleep(RELEASE_S)
            try:
                await self.release()
            except SignalboxError as error:
                log.warning("reconciler.release_failed", why=str(error), code=error.code)
            except Exception:  # noqa: BLE001  the edge of a task
                log.exception("reconciler.release_failed")

    def model_removed(self) -> None:
        """Have jobs of a model that was just removed ended with the next turn."""
        self._has_removed = True

    async def close(self) -> None:
        """Give the duty up for another to take at once."""
        self._bus.forget_reconnect(self._doubt)
        await self._inputs.rest()
        await self._delayed.rest()
        if self._position is not None:
            with contextlib.suppress(SignalboxError):  # an older one is there
                await self._keep(self._position)
            await self._leadership.give_up()

    async def turn(self, *, is_whole: bool = True) -> bool:
        """Do the duty once, if it is ours. is_whole: False = only remove what belongs to jobs that have ended.

        Raises :class:`Unavailable` and others where NATS is away.
        """
        if self._is_doubted:
            self._is_doubted, self._position = False, None
        if not await self._leadership.take():
            self._position = None
            self._begin(0)
            await self._inputs.rest()
            await self._delayed.rest()
            gauges.RECONCILER_OPEN.set(0)
            gauges.RECONCILED.labels("not ours").inc()
            return False
        jobs, state = await self._stream(Stream.JOBS), await self._stream(Stream.STATE)
        created = f"{jobs['created']} {state['created']}"
        position = self._position or await self._kept()
        if position.created != created or position.state_seq > state["state"]["last_seq"] + 1:
            # Of other streams, or of a STATE that has lost its end: from their beginning.
            position, self._position = ReconcilerPosition(created=created), None
        if self._position is None:
            self._begin(position.state_seq)
        self._position = position
        await self._delayed.listen()
        if not jobs["state"]["messages"]:
            self._deadlines = (math.inf, math.inf)
        self._read_to = await self._read_records(self._read_to, state["state"])
        # The last records may be gone: what is behind the last one that is there was read too.
        self._known_to = self._read_to if self._is_behind else max(self._read_to, state["state"]["last_seq"] + 1)
        self._positions.append((self._clock(), self._read_to))
        while len(self._positions) > 1 and self._positions[1][0] <= self._clock() - self._settled_s:
            self._positions.popleft()
        await self._erasure.turn()
        await self._removal.turn(jobs)
        if jobs["state"]["messages"] and not self._is_behind and (is_whole or not is_deep(jobs)):
            await self._undelivered.turn(jobs, self._is_known)
        if is_whole:
            await self._drop_foreign()
            held = await self._ends.look(state)
            crowded_below = await self._retention.turn(self._lowest(), state, held)
            if await self._slots.turn(self._open, self._foreign, state["state"]["first_seq"], held):
                self._is_behind = True
            await self._ends.tell()
            self._position = replace(position, jobs_seq=await self._read_jobs(position.jobs_seq, jobs))
            await self._check_open(crowded_below)
            await self._delayed.renew(crowded_below)
            await self._inputs.turn()
            gauges.RECONCILER_OPEN.set(len(self._open))
            await self._keep(self._position)
            gauges.RECONCILED.labels("done").inc()
        return True

    async def release(self) -> None:
        """Queue the delayed jobs that are due, if the duty is ours. Raises as :meth:`DelayedJobs.release`."""
        if self._position is None or not self._delayed.is_due:
            return
        await self._delayed.release(self._released)

    def _released(self, released: Released) -> None:
        done, revision = released
        if done.fate is Fate.ENDED:
            self._count(done.record)
            return
        if done.fate is Fate.REQUEUED:
            gauges.RELEASED.labels(done.record.model).inc()
        # A newer record of it may have been read meanwhile.
        self._open.setdefault(done.record.id, (revision, self._clock()))

    def _is_known(self, job_id: str) -> bool:
        """Whether a record was read that tells of a job's delivery; one that only waits in the queue has none."""
        return (job_id in self._open and job_id not in self._waiting) or self._removal.has_ended(job_id)

    def _doubt(self) -> None:
        """Begin anew at the next turn, at the position that is kept. A turn that is under way goes on as it is."""
        self._is_doubted = True

    def _begin(self, state_seq: int) -> None:
        """Forget what was read, and read ``STATE`` from there on."""
        self._positions.clear()
        self._positions.append((self._clock(), state_seq))
        self._open.clear()
        self._waiting.clear()
        self._foreign.clear()
        self._retention.begin()
        self._slots.begin()
        self._removal.begin()
        self._erasure.begin()
        self._undelivered.begin()
        self._read_to = state_seq
        self._deadlines = (math.inf, math.inf)

    async def _kept(self) -> ReconcilerPosition:
        """Where the last reconciler left off, as far as is known."""
        stored = await self._bus.leader_get(Bucket.DUTIES.stream, names.key(Bucket.DUTIES, POSITION))
        try:
            return decode(ReconcilerPosition, stored.data) if stored is not None else ReconcilerPosition()
        except msgspec.MsgspecError:  # a newer program's
            return ReconcilerPosition()

    async def _keep(self, position: ReconcilerPosition) -> None:
        """Keep from where the next reconciler reads ``STATE``.

        It is the oldest record that has not settled, is open, short-lived, of a deleted job, or of an ended one whose
        message may still be there.
        """
        low = min([self._positions[0][1], *(seq for seq, _ in self._open.values())])
        low = min(low, self._slots.lowest(low), self._removal.lowest(low), self._delayed.lowest(low))
        low = self._erasure.lowest(low)
        due_at = min(self._delayed.next_at, *(at + GRACE_S for at in self._deadlines))
        kept = replace(position, state_seq=low, read_to=self._known_to, due_at=due_at if math.isfinite(due_at) else 0.0)
        await self._bus.write(names.key(Bucket.DUTIES, POSITION), encode(kept))

    def _lowest(self) -> int:
        """Below this every record is of a job that has ended, and none is a newer program's."""
        low = min([self._read_to, *(seq for seq, _ in self._open.values()), *self._foreign])
        return self._delayed.lowest(low)

    async def _stream(self, stream: Stream) -> dict[str, Any]:
        return await self._bus.request_json(f"$JS.API.STREAM.INFO.{stream}")

    # ------------------------------------------------------------------------------ the queue

    async def _read_jobs(self, seq: int, jobs: Mapping[str, Any]) -> int:
        """End what waits beyond its deadline, or for a model that was removed.

        Returns where to read on; 0 after the last message.
        """
        if not jobs["state"]["messages"]:
            return 0
        first_at = self._deadlines[1] if seq else math.inf
        over: list[tuple[int, Job]] = []
        before = self._clock() - GRACE_S

        def visit(message: Delivery | Stored) -> bool:
            nonlocal first_at
            if len(over) >= MAX_CHECKED:
                return False
            try:
                job = message.job
            except (KeyError, ValueError, msgspec.MsgspecError):
                return True
            if job.deadline_at < before or self._is_removed(job.model):
                over.append((message.seq, job))
            else:
                first_at = min(first_at, job.deadline_at)
            return True

        after = await walk_jobs(self._bus, jobs, seq, MAX_READ, visit)
        for job_seq, job in over:
            await self._end_queued(job_seq, job)
        following = await self._bus.leader_next(Stream.JOBS, after)
        self._deadlines = (self._deadlines[0] if following is not None else first_at, first_at)
        return following.seq if following is not None else 0

    async def _end_queued(self, seq: int, job: Job) -> None:
        try:
            found = await self._records.read(job.id)
        except NewerVersion:
            return
        if found is not None and found[0].state is State.RUNNING:
            return  # an open record: judged as one
        if found is None or not found[0].state.is_terminal:
            waiting = Found(*found) if found is not None else Found.unclaimed(job)
            is_overdue = waiting.record.deadline_at < self._clock() - GRACE_S
            if not is_overdue and not self._is_removed(job.model):
                return  # its owner has moved the deadline
            end = repair.expire if is_overdue else repair.fail_removed
            ended = await end(self._bus, self._records, waiting, now=self._clock(), job=job)
            if ended is None:
                return
            self._count(ended.record)
        await self._remove(seq)

    async def _remove(self, seq: int) -> None:
        """Its end is durable: out of the queue."""
        try:
            await remove(self._bus, seq)
        except SignalboxError as error:  # the next turn's
            log.warning("reconciler.not_removed", seq=seq, why=str(error))

    # ------------------------------------------------------------------------------ records

    async def _read_records(self, seq: int, state: Mapping[str, Any]) -> int:
        """Remember what is open and what has ended among the next records. Returns where to read on."""
        self._is_behind = False
        if not state["messages"] or seq > state["last_seq"]:
            return seq
        room = MAX_KNOWN - len(self._open) - len(self._removal) - len(self._erasure)
        read = 0

        def visit(delivery: Delivery) -> bool:
            nonlocal read
            if read >= room:
                return False
            read += 1
            self._slots.saw(delivery.subject, delivery.seq, delivery.time)
            job_id, text = names.job_of(delivery.subject), delivery.headers.get(Header.RECORD, "")
            is_open = _RUNNING in text or _QUEUED in text
            stored_input = ""
            is_waiting = is_delayed = False
            if is_open or _STORED in text or _DELETED in text:
                try:
                    record = decode(Record, text)
                except msgspec.MsgspecError:
                    self._foreign.append(delivery.seq)
                    return True
                stored_input = inputs.of_record(record)
                is_waiting = record.state is State.QUEUED and not record.attempt
                is_delayed = is_open and self._delayed.saw(record, delivery.seq, delivery.time)
                if record.deleted_at:
                    self._erasure.deleted(record, delivery.seq)
            (self._waiting.add if is_waiting else self._waiting.discard)(job_id)
            if is_delayed:
                self._open.pop(job_id, None)
            elif is_open:
                self._open[job_id] = (delivery.seq, delivery.time)
            else:
                self._open.pop(job_id, None)
                self._delayed.forget(job_id)
                is_withdrawn = _CANCELLED in text and _CLAIMED not in text
                self._removal.ended(job_id, delivery.seq, stored_input, is_withdrawn=is_withdrawn)
            return True

        after = await walk(self._bus, Stream.STATE, seq, MAX_READ, visit)
        self._is_behind = read >= MAX_READ
        return after

    async def _drop_foreign(self) -> None:
        """Forget the oldest records of a newer program that were written again or removed since."""
        self._foreign = sorted(set(self._foreign))
        for seq in self._foreign[:MAX_CHECKED]:
            try:
                await self._bus.request_json(f"$JS.API.STREAM.MSG.GET.{Stream.STATE}", {"seq": seq})
            except NotFound:
                self._foreign.remove(seq)
            else:
                return

    async def _check_open(self, crowded_below: int) -> None:
        """Judge open records that have settled, those not looked at for the longest first.

        crowded_below: of the retention's turn.
        """
        before = self._clock() - self._settled_s
        settled = [(job_id, seq, at) for job_id, (seq, at) in self._open.items() if at <= before]
        for job_id, seq, at in settled[:MAX_CHECKED]:
            record = await self._check_again(job_id, seq)
            if record is not None and seq < crowded_below and not self._runs(record):
                # It kept all records above its place. That of a running job is its worker's to move.
                await repair.move_up(self._records, record, seq)
                record = None  # it is read again in its turn, from its new place
            del self._open[job_id]  # not sooner: where that fails it stays open
            if record is not None:
                self._open[job_id] = (seq, at)

    async def _check_again(self, job_id: str, seq: int) -> Record | None:
        """Judge one record; returns it while it is open."""
        try:
            found = await self._records.read(job_id)
        except NewerVersion:
            self._foreign.append(seq)
            return None
        if found is None or found[1] != seq or found[0].state.is_terminal:
            return None  # it has ended, or lives: a newer record of it is read in its turn
        return await self._repaired(found[0], seq)

    async def _repaired(self, record: Record, revision: int) -> Record | None:
        """Do what an open record needs; returns it while it is open."""
        if self._runs(record):
            return record
        done = await repair.repair(self._bus, self._records, record, revision, now=self._clock())
        if done.fate is Fate.REQUEUED:
            gauges.REQUEUED.labels(record.model).inc()
        elif done.fate is Fate.OPEN and record.attempt and record.retry_at <= self._clock():
            await self._undelivered.ask_redelivery(record.model)
        elif done.fate is Fate.ENDED:
            self._count(done.record)
            if done.seq:
                await self._remove(done.seq)
        return record if done.fate is Fate.OPEN else None

    @staticmethod
    def _count(ended: Record) -> None:
        gauges.RECONCILER_ENDED.labels(ended.model, ended.state.value).inc()
        if ended.error is not None and ended.error.code == InputLost.code:
            gauges.RECONCILER_LOST.labels(ended.model).inc()

    def _runs(self, record: Record) -> bool:
        """Whether the worker that claimed it still holds the lease it claimed it under."""
        if record.state is not State.RUNNING:
            return False
        model = self._models().get(token(record.model))
        limit_s = BELIEVED_S + (model.limits.timeout_s if model is not None else 0.0)
        if self._clock() - (record.claimed_at or 0.0) > limit_s:
            return False
        return any(worker.id == record.worker and worker.token == record.token for worker in self._workers())
