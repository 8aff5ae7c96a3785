"""The supply of jobs: how many of each model are asked for, and of which none while a long run keeps them waiting."""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from signalbox.program import log
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Priority
from workers.queue import prefetch
from workers.queue.intake import JobIntake
from workers.residency.versions import ResidentVersions
from workers.serving.batchrun import BatchRun
from workers.serving.deliveries import Deliveries
from workers.serving.unexamined import UnexaminedJobs
from workers.settings import WorkerSettings
from workers.statistics.worker import Statistics

LONG_RUN_S: Final = 0.25
"""Other workers get the jobs that come after so long a run; at once where long runs are usual."""
EXAMINED_BESIDE: Final = 256
"""Jobs of a class that may be examined beside those that wait."""
UNKNOWN_BYTES: Final = 65_536
"""Taken for the inputs of a job of a model none of which has come yet."""
SHORT_AT_ONCE: Final = 16
"""Models that are asked for again at a time when there is room again."""


class Supply:
    """What one session asks of the queues."""

    def __init__(
        self,
        intake: JobIntake,
        residency: ResidentVersions,
        deliveries: Deliveries,
        statistics: Statistics,
        *,
        settings: WorkerSettings,
    ) -> None:
        self._intake = intake
        self._residency = residency
        self._deliveries = deliveries
        self._statistics = statistics
        self._most_bytes = settings.in_flight_bytes
        self._timeout_s = settings.request_timeout_s
        self._long_runs: set[BatchRun] = set()
        self._is_closing = False
        self._asked: dict[str, int] = {}
        """By model, bytes of what was asked for and has not come."""
        self._asked_bytes = 0
        self.short_of_room: dict[str, None] = {}
        """Models of which fewer jobs were asked for than usual, as there was no room."""

    def ask(
        self, model: Model, waiting: Mapping[Priority, int], unexamined: UnexaminedJobs, *, is_running: bool
    ) -> None:
        """Ask for as many jobs of a model as there is room for. waiting: those that wait for a batch."""
        name = model.name
        self._asked_bytes -= self._asked.pop(name, 0)
        if not self._intake.is_asking(name):
            return
        if not self._residency.may_serve(model):
            self._await_files(model)
            return
        ready_bytes = self._deliveries.ready_bytes
        room_bytes = max(1, self._most_bytes - ready_bytes - self._asked_bytes)
        mean_bytes = self._statistics.mean_bytes.get(name) or UNKNOWN_BYTES
        wanted = prefetch.depth(
            model.batching.max_size if self._statistics.joinings.joins(model) else 1,
            self._statistics.run_s.get(name),
            is_running=is_running,
            mean_bytes=mean_bytes,
            room_bytes=room_bytes,
        )
        if (wanted + 1) * mean_bytes > room_bytes:
            self.short_of_room[name] = None
        if unexamined:  # few of them may run: some are asked for beside them
            beside = EXAMINED_BESIDE if ready_bytes < self._most_bytes // 2 else 0
            waiting = {p: n + max(0, unexamined.count(name, p) - beside) for p, n in waiting.items()}
        self._asked[name] = asked_bytes = int(self._intake.ask(name, wanted, waiting) * mean_bytes)
        self._asked_bytes += asked_bytes

    def _await_files(self, model: Model) -> None:
        """Have the files fetched of a model that cannot be served now, if they are not here and a job of it waits."""
        if not self._residency.lacks_files(model):
            return
        if self._intake.has_waiting(model.name):
            self._residency.fetch(model)
        else:
            self._intake.doze(model.name)

    def forget(self, name: str) -> None:
        """Count no more what was asked for of a model."""
        self._asked_bytes -= self._asked.pop(name, 0)

    def take_short(self) -> list[str]:
        """Some of the models that were short of room, where there is room again."""
        if self._deliveries.ready_bytes + self._asked_bytes > self._most_bytes * 7 // 8:
            return []
        some = list(islice(self.short_of_room, SHORT_AT_ONCE))
        for name in some:
            del self.short_of_room[name]
        return some

    # ------------------------------------------------------------------------------ left to others

    def begin(self, batch_run: BatchRun) -> asyncio.TimerHandle:
        """A batch begins; once it is long, new jobs are left to the other workers. Cancel what is returned at its end.

        Where long runs are usual that is at once.
        """
        run_s = self._statistics.run_s.get(batch_run.model, 0.0)
        after_s = 0.0 if run_s > prefetch.SLOW_RUN_S else LONG_RUN_S
        return asyncio.get_running_loop().call_later(after_s, self._leave_shared, batch_run)

    def end(self, batch_run: BatchRun) -> None:
        """Its run is over."""
        if batch_run in self._long_runs:
            self._long_runs.discard(batch_run)
            if not self._long_runs and not self._is_closing:
                self._intake.take_shared()

    def _leave_shared(self, batch_run: BatchRun) -> None:
        if not batch_run.over.is_set() and not self._is_closing:
            batch_run.is_long = True
            self._long_runs.add(batch_run)
            self._intake.leave_shared()

    # ------------------------------------------------------------------------------ ending

    def stop(self) -> None:
        """Ask for nothing more."""
        self._is_closing = True

    async def close(self) -> None:
        """Pull no more; what was on its way has been passed on when this returns."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._intake.close()
        except (TimeoutError, Unavailable):
            log.warning("intake.close_failed")

    async def give_back(self, models: Iterable[str]) -> None:
        """Have these models' queues read anew: jobs of them were let go."""
        reported = list(models)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._intake.give_back(reported)
        except (TimeoutError, SignalboxError):
            log.warning("session.not_given_back", models=len(reported))  # the next holder looks, and the reconciler
