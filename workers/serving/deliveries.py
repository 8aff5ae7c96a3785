"""The deliveries of the jobs in flight: what was decided about a job is done with its delivery here, and only here.

A job that is to be tried again stays with this worker until its time has come. What does not fit the memory meanwhile,
and what is left when the hold ends, is *let go*: its model's queue is to be read anew, here or elsewhere.
"""

import asyncio
import heapq
import math
from collections.abc import Iterable
from itertools import count

from signalbox.jobs import joblog
from signalbox.program import log
from workers.device.leased import LeasedDevice
from workers.host import gauges
from workers.serving.committing import Disposition, Done, Retry
from workers.serving.inflight import InFlightJob, InFlightJobs


class Deliveries:
    """The jobs in flight, from their arrival until they leave. delayed_bytes: of those that wait to be tried again."""

    def __init__(self, device: LeasedDevice, *, delayed_bytes: int) -> None:
        self.in_flight = InFlightJobs()
        self._device = device
        self._loop = asyncio.get_running_loop()
        self._delayed: dict[InFlightJob, float] = {}
        self._due: list[tuple[float, int, InFlightJob]] = []
        self._number = count()
        self._most_bytes = delayed_bytes
        self._bytes = 0
        self._let_go: dict[str, float] = {}
        """Models of which jobs were let go, and from when on their queue is to be read anew."""
        self.next_s = math.inf
        """When :meth:`due` or :meth:`unread` has something at the earliest, on the loop's clock."""

    @property
    def ready_bytes(self) -> int:
        """Inputs of the jobs that run or may run now."""
        return self.in_flight.bytes - self._bytes

    def take(self, held: InFlightJob) -> None:
        """Take a job that was delivered."""
        self.in_flight.take(held)
        if len(self.in_flight) - len(self._delayed) == 1:
            self._device.busy()

    def apply(self, dispositions: Iterable[Disposition]) -> bool:
        """Do with deliveries what was decided about their jobs. One of a job that has left already does nothing.

        Returns whether one of them waits to be tried again: ``next_s`` may be sooner than it was.
        """
        is_any_delayed = False
        for disposition in dispositions:
            held = disposition.job
            if self.in_flight.get(held.job.id) is not held or held in self._delayed:
                continue
            if isinstance(disposition, Retry):
                self._retry(held, disposition.delay_s)
                is_any_delayed = True
            else:
                self.in_flight.drop(held)
                if held.cancelled_s and isinstance(disposition, Done):
                    gauges.CANCEL_SECONDS.observe(self._loop.time() - held.cancelled_s)
            if len(self.in_flight) == len(self._delayed):
                self._device.idle()
        return is_any_delayed

    def let_go(self, jobs: Iterable[InFlightJob]) -> None:
        """Leave jobs to whoever reads their models' queues anew."""
        for held in list(jobs):
            self.undelay(held)
            if self.in_flight.drop(held):
                joblog.step("job.let_go", held.job)
                self.read_anew(held.job.model)
        if len(self.in_flight) == len(self._delayed):
            self._device.idle()

    def read_anew(self, model: str, delay_s: float = 0.0) -> None:
        """Note that jobs of a model were delivered here which this worker does not have."""
        at_s = self._loop.time() + delay_s
        self._let_go[model] = min(at_s, self._let_go.get(model, at_s))
        self.next_s = min(self.next_s, at_s)

    def hasten(self, model: str) -> None:
        """Take a model's jobs up now that wait to be tried again: whether they may run their records tell."""
        now_s = self._loop.time()
        for held in [held for held in self._delayed if held.job.model == model]:
            self._delayed[held] = now_s
            heapq.heappush(self._due, (now_s, next(self._number), held))
            self.next_s = min(self.next_s, now_s)

    def delayed(self) -> list[InFlightJob]:
        """The jobs that wait to be tried again."""
        return list(self._delayed)

    def undelay(self, held: InFlightJob) -> bool:
        """Take a job back that waits to be tried again. False where it does not."""
        if self._delayed.pop(held, None) is None:
            return False
        self._bytes -= len(held.delivery.data)
        return True

    def due(self, now_s: float) -> list[InFlightJob]:
        """The jobs whose time to be tried again has come."""
        found = []
        while self._due and self._due[0][0] <= now_s:
            at_s, _, held = heapq.heappop(self._due)
            if self._delayed.get(held) == at_s:
                self.undelay(held)
                held.begin_anew(now_s)
                found.append(held)
        if found and len(self.in_flight) - len(self._delayed) == len(found):
            self._device.busy()
        self._set_next()
        return found

    def unread(self, now_s: float) -> list[str]:
        """The models whose queues are to be read anew by now, each once."""
        found = [model for model, at_s in self._let_go.items() if at_s <= now_s]
        for model in found:
            del self._let_go[model]
        self._set_next()
        return found

    def _set_next(self) -> None:
        self.next_s = min([*self._let_go.values(), *(self._due[0][:1] if self._due else ())], default=math.inf)

    def _retry(self, held: InFlightJob, delay_s: float) -> None:
        joblog.step("job.delayed", held.job, delay_s=delay_s)
        size = len(held.delivery.data)
        if self._bytes + size > self._most_bytes:
            self.in_flight.drop(held)
            self.read_anew(held.job.model, delay_s)
            log.warning("session.retry_let_go", **joblog.ids(held.job), model=held.job.model, delay_s=delay_s)
            return
        at_s = self._loop.time() + delay_s
        self._delayed[held] = at_s
        self._bytes += size
        heapq.heappush(self._due, (at_s, next(self._number), held))
        self.next_s = min(self.next_s, at_s)
