"""Which batch leaves next, for which slot of the runner; which version is loaded; of which models more jobs are asked.

No I/O.

A batch leaves only when its version is ready. Where it is not, the version is loaded beside the batches of others, one
at a time in the order of their heads, and its jobs wait in their queue meanwhile. A load may begin before the batches
that are before it where nothing has to leave the memory that they need; else it waits for its turn among them.

Only models whose queue, credits or versions have changed are looked at; what is due, what waits for a load, and what is
due later, lies in three heaps.
"""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from signalbox.jobs.times import BATCH, BEFORE_READY, LEASE, LOAD, OTHER_MODEL, Span, split_stages
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import PRIORITIES, Priority
from workers.residency.cache import Key
from workers.serving.batches import BatchQueue
from workers.serving.batchrun import BatchRun
from workers.serving.inflight import InFlightJob
from workers.serving.occupancy import AT_RISK, Occupancy
from workers.statistics.worker import Statistics

QUICK_RUN_S: Final = 0.1
"""Below this the runner is given a second batch before it has finished the first, unless that turns out to be long."""
_MOMENT_S: Final = 0.001
"""Shorter waits are not told from those for its batch."""
_NONE_WAITS: Final = dict.fromkeys(PRIORITIES, 0)

Rank = tuple[float, float]
_NO_RANK: Final = (0.0, 0.0)


class _Order:
    """Models by rank, the lowest first. A model's old ranks stay in the heap until they are at its top."""

    def __init__(self) -> None:
        self.ranks: dict[str, Rank] = {}
        self._heap: list[tuple[Rank, str]] = []

    def put(self, model: str, rank: Rank) -> None:
        if self.ranks.get(model) == rank:
            return
        self.ranks[model] = rank
        heapq.heappush(self._heap, (rank, model))
        if len(self._heap) > 2 * len(self.ranks) + 16:
            self._heap = sorted((rank, model) for model, rank in self.ranks.items())

    def first(self) -> tuple[Rank, str] | None:
        while self._heap:
            rank, model = self._heap[0]
            if self.ranks.get(model) == rank:
                return rank, model
            heapq.heappop(self._heap)
        return None


class Dispatcher:
    """The batch queues of one session, and the batches that are with the runner."""

    def __init__(
        self,
        statistics: Statistics,
        *,
        is_ready: Callable[[Key], bool] = lambda _: True,
        has_room: Callable[[Key], bool] = lambda _: True,
    ) -> None:
        """is_ready: whether a version is in memory. has_room: whether it fits beside what is used or waited for."""
        self._statistics = statistics
        self._is_ready = is_ready
        self._has_room = has_room
        self._queues: dict[str, BatchQueue[InFlightJob]] = {}
        self._running: list[BatchRun] = []
        self._unsorted: set[str] = set()
        """Models whose queue has changed since it was put in order."""
        self._unasked: set[str] = set()
        """Models whose queue or credits have changed since jobs of theirs were asked for."""
        self._occupancy = Occupancy()
        self._due = _Order()
        self._cold = _Order()
        """Models whose next job waits for a load."""
        self._later = _Order()
        self._load: tuple[Key, float] | None = None
        """The version that is loaded for jobs now, and since when, on the loop's clock; never while its turn has not
        come."""

    # ------------------------------------------------------------------------------ changes

    def follow(self, models: Mapping[str, Model]) -> list[InFlightJob]:
        """Keep the queues of these models; returns the jobs of the others."""
        left: list[InFlightJob] = []
        for name in self._queues.keys() - models.keys():
            left += self._queues.pop(name).clear()
            self._unsorted.add(name)
        for name, queue in self._queues.items():
            queue.model = models[name]
            self._unsorted.add(name)
        return left

    def add(self, held: InFlightJob, served: Model) -> None:
        """Let a job wait. served: its model, where none waited before."""
        model = held.job.model
        queue = self._queues.get(model)
        if queue is None:
            known = self._statistics
            queue = BatchQueue(served, known.joinings.may_join, row_limit=known.batch_limits.rows)
            self._queues[model] = queue
        queue.add(held)
        held.seen_s = (held.arrived_s, *self._occupancy.others_s(model, held.arrived_s))
        self._unsorted.add(model)
        self._unasked.add(model)

    def remove(self, held: InFlightJob, now_s: float) -> bool:
        """Take a job out of its queue. False where it does not wait there."""
        model = held.job.model
        queue = self._queues.get(model)
        if queue is None or queue.remove(held.job.id) is None:
            return False
        self._note_waits([held], now_s)
        self._unsorted.add(model)
        self._unasked.add(model)
        return True

    def clear(self) -> list[InFlightJob]:
        """Take all jobs out of their queues."""
        return self.follow({})

    def credits_changed(self, *models: str) -> None:
        """Note that jobs of models that were asked for have come, or will not come, or that more may be asked for."""
        self._unasked.update(models)

    def version_changed(self, model: str) -> None:
        """Note that a version of a model has become ready, or may be loaded."""
        self._unsorted.add(model)

    # ------------------------------------------------------------------------------ what to do

    def begin(self, now_s: float) -> list[BatchRun]:
        """The batches that leave now, most important head first, then the oldest; each has a slot until :meth:`end`."""
        begun: list[BatchRun] = []
        if self._occupancy.holder == AT_RISK:
            self._occupancy.passes("", now_s)
        while self.has_slot:
            self._sort(now_s)
            first = self._due.first() if self._due.ranks else None
            if first is None:
                break
            model = first[1]
            if self._is_cold(self._head_key(model)):  # it has left the memory since
                self._unsorted.add(model)
                continue
            begun.append(self._take(model, now_s))
        return begun

    def load(self, now_s: float) -> Key | None:
        """The version whose load begins now, for the most important job that waits for one; see :meth:`loaded`."""
        if self._unsorted or self._later.ranks:
            self._sort(now_s)
        while self._load is None and self._cold.ranks and (first := self._cold.first()) is not None:
            rank, model = first
            key = self._head_key(model)
            if not self._is_cold(key):
                self._unsorted.add(model)
                self._sort(now_s)
                continue
            due = self._due.first() if self._due.ranks else None
            if due is not None and due[0] < rank and not self._has_room(key):
                return None
            self._load = key, math.inf
            return key
        return None

    def load_begins(self, now_s: float) -> None:
        """Note that the turn of the load has come: there may have been another one before it."""
        if self._load is not None:
            self._load = self._load[0], min(now_s, self._load[1])

    def loaded(
        self, now_s: float, now: float, spans: Sequence[Span] = (), failure: Exception | None = None
    ) -> BatchRun | None:
        """Note that the load has ended. Where it failed, one batch of those that waited for it, to end with that.

        now: UTC seconds. spans: of what the load consisted, also before its turn here had come.
        """
        assert self._load is not None, "called once for each version that load() returns"
        model, version = key = self._load[0]
        queue = self._queues.get(model)
        waiting = queue.of(version) if queue is not None else []
        self._note_waits(waiting, now_s)
        for held in waiting:
            held.stages[-1] = BATCH, now  # the loop's clock may be too coarse for what the load consists of
            held.stages = split_stages(held.stages, BEFORE_READY, spans, now)
        self._load = None
        self._unsorted.add(model)
        if failure is None or queue is None or not len(queue) or self._head_key(model) != key:
            return None
        return self._take(model, now_s, failure)

    def due_s(self) -> float:
        """When another batch may leave, on the loop's clock; never where only a change can bring one."""
        first = self._later.first() if self._later.ranks else None
        return first[0][0] if first is not None and self.has_slot else math.inf

    def changed(self) -> set[str]:
        """The models to ask for more jobs of, since this was last called."""
        unasked, self._unasked = self._unasked, set()
        return unasked

    def waiting(self, model: str) -> Mapping[Priority, int]:
        """Waiting jobs of a model by priority."""
        queue = self._queues.get(model)
        return queue.counts() if queue is not None else _NONE_WAITS

    def is_due(self, model: str) -> bool:
        """Whether a batch of the model waits for nothing but a slot."""
        return model in self._due.ranks

    def is_running(self, model: str) -> bool:
        """Whether a batch of the model is with the runner."""
        return any(batch_run.model == model for batch_run in self._running)

    def run_of(self, held: InFlightJob) -> BatchRun | None:
        """The batch with the runner that the job is in."""
        return next((batch_run for batch_run in self._running if held in batch_run.jobs), None)

    def put_off(self, now_s: float) -> None:
        """Note that nothing may begin from now on, as the lease is at risk. The next :meth:`begin` ends it."""
        if not self._running:
            self._occupancy.passes(AT_RISK, now_s)

    def end(self, batch_run: BatchRun, now_s: float) -> bool:
        """Give a batch's slot back; the batch may still be committing. False where it has none any more."""
        is_running = batch_run in self._running
        if is_running:
            if self._running[0] is batch_run:
                self._occupancy.passes(self._running[1].model if len(self._running) > 1 else "", now_s)
            self._running.remove(batch_run)
            batch_run.over.set()
            model = batch_run.model
            if model in self._queues:
                self._unsorted.add(model)  # the run may have changed the batch limit
            run_s = self._statistics.run_s.get(model)
            if run_s is None or run_s >= QUICK_RUN_S:  # as many are asked for beside a quick run as after it
                self._unasked.add(model)
        return is_running

    @property
    def is_idle(self) -> bool:
        """Whether no batch is with the runner and no job waits, for whatever it is; told after :meth:`begin`."""
        return not (self._running or self._load or self._due.ranks or self._cold.ranks or self._later.ranks)

    @property
    def has_slot(self) -> bool:
        """Whether another batch may be given to the runner now."""
        if not self._running:
            return True
        if len(self._running) > 1:
            return False
        running = self._running[0]
        run_s = self._statistics.run_s.get(running.model)
        return run_s is not None and run_s < QUICK_RUN_S and not running.is_long

    def _take(self, model: str, now_s: float, failure: Exception | None = None) -> BatchRun:
        """Have the next batch of a model leave."""
        batch_run = BatchRun(self._queues[model].take(), failure)
        is_behind = bool(self._running) and self._running[0].model != model
        if is_behind or any(now_s - held.seen_s[0] > _MOMENT_S for held in batch_run.jobs):
            self._note_waits(batch_run.jobs, now_s, is_behind=is_behind)
        if not self._running:
            self._occupancy.passes(model, now_s)
        self._running.append(batch_run)
        self._unsorted.add(model)
        self._unasked.add(model)
        return batch_run

    def _note_waits(self, jobs: list[InFlightJob], now_s: float, *, is_behind: bool = False) -> None:
        """Write down what jobs of one model have waited for since they were queued, or since this was last noted.

        While a version is not ready its jobs wait for its load, and before that for those of other models.
        is_behind: from now on they wait in the runner, behind a batch of another model.
        """
        model = jobs[0].job.model if jobs else ""
        others_s, lease_s = self._occupancy.others_s(model, now_s)
        loading, since_s = self._load or (None, math.inf)
        cold = {key for key in {(model, held.job.version) for held in jobs} if self._is_cold(key)}
        for held in jobs:
            noted_s, others_before_s, lease_before_s = held.seen_s
            held.seen_s = (now_s, others_s, lease_s)
            waits = {LEASE: lease_s - lease_before_s, OTHER_MODEL: others_s - others_before_s}
            key = (model, held.job.version)
            if key in cold:
                waits[OTHER_MODEL] = now_s - noted_s - waits[LEASE]
                if key == loading and since_s <= now_s:
                    waits[LOAD] = now_s - max(noted_s, since_s)
                    waits[OTHER_MODEL] -= waits[LOAD]
            noted_at = at = held.stages.pop()[1]
            for stage, lasted_s in waits.items():
                if lasted_s > _MOMENT_S or stage == LOAD:
                    held.stages.append((stage, at))
                    at += lasted_s
            held.stages.append((BATCH, at))
            if is_behind:
                held.stages.append((OTHER_MODEL, noted_at + now_s - noted_s))

    def _is_cold(self, key: Key) -> bool:
        """Whether jobs of a version wait: it is not ready, or its load has not been noted as ended."""
        return not self._is_ready(key) or (self._load is not None and self._load[0] == key)

    def _head_key(self, model: str) -> Key:
        """The version of a model's next batch."""
        head = self._queues[model].first()
        assert head is not None, "asked only where a job waits"
        return model, head.job.version

    # ------------------------------------------------------------------------------ order

    def _sort(self, now_s: float) -> None:
        """Put the models whose queue has changed in order, and those whose time has come."""
        while self._later.ranks and (first := self._later.first()) is not None and first[0][0] <= now_s:
            del self._later.ranks[first[1]]
            self._unsorted.add(first[1])
        for model in self._unsorted:
            queue = self._queues.get(model)
            found = queue.head(now_s) if queue is not None else None
            order, rank = self._placed(model, *found, now_s) if found is not None else (None, _NO_RANK)
            for other in (self._due, self._cold, self._later):
                if other is not order:
                    other.ranks.pop(model, None)
            if order is not None:
                order.put(model, rank)
        self._unsorted.clear()

    def _placed(self, model: str, head: InFlightJob, left_s: float, now_s: float) -> tuple[_Order, Rank]:
        """Where a model belongs, by its first job and in how many seconds that job's batch may leave."""
        rank = (PRIORITIES.index(head.job.priority), head.arrived_s)
        if self._is_cold((model, head.job.version)):
            return self._cold, rank
        return (self._later, (now_s + left_s, 0.0)) if left_s > 0.0 else (self._due, rank)
