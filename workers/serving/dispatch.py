"""Which batch leaves next, for which slot of the runner, and of which models more jobs are asked. No I/O.

Only models whose queue or credits have changed are looked at; what is due, and what is due later, lies in two heaps.
"""

import heapq
import math
from collections.abc import Mapping
from typing import Final

from signalbox.jobs.times import BATCH, LEASE, OTHER_MODEL
from signalbox.wire.messages import Model
from signalbox.wire.names import PRIORITIES, Priority
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

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._queues: dict[str, BatchQueue[InFlightJob]] = {}
        self._running: list[BatchRun] = []
        self._unsorted: set[str] = set()
        """Models whose queue has changed since it was put in order."""
        self._unasked: set[str] = set()
        """Models whose queue or credits have changed since jobs of theirs were asked for."""
        self._occupancy = Occupancy()
        self._due = _Order()
        self._later = _Order()

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
        held.seen_s = self._occupancy.others_s(model, held.arrived_s)
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
            batch_run = BatchRun(self._queues[model].take())
            is_behind = bool(self._running) and self._running[0].model != model
            if is_behind or any(now_s - held.arrived_s > _MOMENT_S for held in batch_run.jobs):
                self._note_waits(batch_run.jobs, now_s, is_behind=is_behind)
            if not self._running:
                self._occupancy.passes(model, now_s)
            self._running.append(batch_run)
            self._unsorted.add(model)
            self._unasked.add(model)
            begun.append(batch_run)
        return begun

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
    def has_slot(self) -> bool:
        """Whether another batch may be given to the runner now."""
        if not self._running:
            return True
        if len(self._running) > 1:
            return False
        running = self._running[0]
        run_s = self._statistics.run_s.get(running.model)
        return run_s is not None and run_s < QUICK_RUN_S and not running.is_long

    def _note_waits(self, jobs: list[InFlightJob], now_s: float, *, is_behind: bool = False) -> None:
        """Write down what jobs of one model have waited for since they were queued.

        is_behind: from now on they wait in the runner, behind a batch of another model.
        """
        others_s, lease_s = self._occupancy.others_s(jobs[0].job.model, now_s)
        for held in jobs:
            pulled_at = at = held.stages.pop()[1]
            for stage, lasted_s in ((LEASE, lease_s - held.seen_s[1]), (OTHER_MODEL, others_s - held.seen_s[0])):
                if lasted_s > _MOMENT_S:
                    held.stages.append((stage, at))
                    at += lasted_s
            held.stages.append((BATCH, at))
            if is_behind:
                held.stages.append((OTHER_MODEL, pulled_at + now_s - held.arrived_s))

    # ------------------------------------------------------------------------------ order

    def _sort(self, now_s: float) -> None:
        """Put the models whose queue has changed in order, and those whose time has come."""
        while self._later.ranks and (first := self._later.first()) is not None and first[0][0] <= now_s:
            del self._later.ranks[first[1]]
            self._unsorted.add(first[1])
        for model in self._unsorted:
            queue = self._queues.get(model)
            found = queue.head(now_s) if queue is not None else None
            if found is not None and found[1] == 0.0:
                head = found[0]
                self._due.put(model, (PRIORITIES.index(head.job.priority), head.arrived_s))
            else:
                self._due.ranks.pop(model, None)
            if found is not None and found[1] > 0.0:
                self._later.put(model, (now_s + found[1], 0.0))
            else:
                self._later.ranks.pop(model, None)
        self._unsorted.clear()
