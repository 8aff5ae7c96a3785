"""The deliveries of the jobs in flight: what was decided about a job is done with its delivery here, and only here."""

import asyncio
from collections.abc import Iterable

from signalbox.jobs import joblog
from signalbox.program import log
from signalbox.program.tasks import Background
from workers.device.leased import LeasedDevice
from workers.host import gauges
from workers.serving.committing import Disposition, Done, Retry
from workers.serving.inflight import InFlightJob, InFlightJobs


class Deliveries:
    """The jobs in flight, from their arrival until they leave. ack_wait_s: then the queue delivers a job again."""

    def __init__(self, device: LeasedDevice, tasks: Background, *, ack_wait_s: float) -> None:
        self.in_flight = InFlightJobs()
        self._device = device
        self._tasks = tasks
        self._ack_wait_s = ack_wait_s
        self._loop = asyncio.get_running_loop()

    def take(self, held: InFlightJob) -> None:
        """Take a job that was delivered."""
        if not self.in_flight:
            self._device.busy()
        self.in_flight.take(held)

    def apply(self, dispositions: Iterable[Disposition]) -> None:
        """Do with deliveries what was decided about their jobs. One of a job that has left already does nothing."""
        for disposition in dispositions:
            held = disposition.job
            if not self.in_flight.drop(held):
                continue
            if isinstance(disposition, Done):
                self._acknowledge(held)
            elif isinstance(disposition, Retry):
                self._nak(held, disposition.delay_s)
            if not self.in_flight:
                self._device.idle()

    def retry(self, jobs: Iterable[InFlightJob], delay_s: float = 0.0) -> None:
        """Give jobs back to the queue."""
        self.apply([Retry(held, delay_s) for held in jobs])

    def _acknowledge(self, held: InFlightJob) -> None:
        """Acknowledge a job whose durable end is known, off the critical path; never without one (S8)."""
        if held.record is None or not held.record.state.is_terminal:
            gauges.UNENDED.inc()
            log.error("session.ack_without_end", job=held.job.id)
            return
        if held.cancelled_s:
            gauges.CANCEL_SECONDS.observe(self._loop.time() - held.cancelled_s)
        held.delivery.ack_soon()
        joblog.step("job.acked", held.job)

    def _nak(self, held: InFlightJob, delay_s: float) -> None:
        """Let the queue deliver a job again, to another worker or later to this one.

        Not after so long that it may have been delivered to another worker already.
        """
        joblog.step("job.nak", held.job, delay_s=delay_s)
        if self._loop.time() - held.touched_s < self._ack_wait_s / 2:
            self._tasks.start(held.delivery.nak(delay_s), name="nak a job")
