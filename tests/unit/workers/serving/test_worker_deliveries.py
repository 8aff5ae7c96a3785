"""Jobs in flight: what is tried again, what is let go, and what the device learns of it."""

import asyncio
import math
import time
from typing import Any, cast

import pytest

from signalbox.bus.client import Delivery
from signalbox.wire import jobids, names
from signalbox.wire.messages import Job
from workers.serving.committing import Done, Drop, Retry
from workers.serving.deliveries import Deliveries
from workers.serving.inflight import InFlightJob


class Device:
    """Whether it was busy, each time that it was told."""

    def __init__(self) -> None:
        self.reported: list[bool] = []

    def busy(self) -> None:
        self.reported.append(True)

    def idle(self) -> None:
        self.reported.append(False)


class Rig:
    """Deliveries that may keep two jobs for later."""

    def __init__(self) -> None:
        self.device = Device()
        self.deliveries = Deliveries(cast("Any", self.device), delayed_bytes=20)

    def job(self, number: int, model: str = "half") -> InFlightJob:
        job = Job(
            id=jobids.new_job_id(time.time(), number),
            model=model,
            version=1,
            signature="",
            account_id="k",
            created_at=0.0,
            deadline_at=0.0,
        )
        subject = names.job(job.model, job.priority, "t", job.id)
        delivery = Delivery(subject, b"$JS.ACK.JOBS.half_mid_0.1.%d.1.0.0" % number, b"", bytes(10))
        held = InFlightJob(delivery, job, now_s=0.0)
        self.deliveries.take(held)
        return held

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_the_device_is_busy_while_a_job_runs_or_may_run(rig: Rig) -> None:
    first, second = rig.job(1), rig.job(2)
    rig.deliveries.apply([Done(first), Retry(second, 5.0)])  # a job that is tried again later keeps it from nobody
    assert rig.deliveries.due(rig.now_s + 10.0) == [second]
    rig.deliveries.apply([Drop(second)])
    assert rig.device.reported == [True, False, True, False]
    assert len(rig.deliveries.in_flight) == 0


async def test_a_job_is_due_when_its_time_has_come_and_no_sooner(rig: Rig) -> None:
    held = rig.job(1)
    assert rig.deliveries.next_s == math.inf
    assert rig.deliveries.apply([Retry(held, 5.0)])
    assert rig.deliveries.next_s - rig.now_s == pytest.approx(5.0, abs=0.5)
    assert rig.deliveries.due(rig.now_s) == []
    assert held.job.id in rig.deliveries.in_flight.ids()
    assert rig.deliveries.due(rig.now_s + 5.1) == [held]
    assert rig.deliveries.due(rig.now_s + 5.1) == []
    assert rig.deliveries.next_s == math.inf


async def test_a_job_that_was_taken_back_is_not_due(rig: Rig) -> None:
    held = rig.job(1)
    rig.deliveries.apply([Retry(held, 5.0)])
    assert rig.deliveries.undelay(held)
    assert not rig.deliveries.undelay(held)
    assert rig.deliveries.due(rig.now_s + 10.0) == []


async def test_what_does_not_fit_the_memory_is_let_go_until_its_time_has_come(rig: Rig) -> None:
    jobs = [rig.job(number, f"m{number}") for number in range(3)]
    rig.deliveries.apply([Retry(held, 5.0) for held in jobs])
    assert rig.deliveries.delayed() == jobs[:2]
    assert set(rig.deliveries.in_flight.ids()) == {held.job.id for held in jobs[:2]}
    assert rig.deliveries.unread(rig.now_s) == []
    assert rig.deliveries.unread(rig.now_s + 5.1) == ["m2"]


async def test_the_queue_of_what_was_let_go_is_read_anew_once(rig: Rig) -> None:
    jobs = [rig.job(number) for number in range(3)]
    rig.deliveries.apply([Retry(jobs[0], 5.0)])
    rig.deliveries.let_go(jobs)
    assert (len(rig.deliveries.in_flight), rig.deliveries.ready_bytes, rig.device.reported[-1]) == (0, 0, False)
    assert rig.deliveries.unread(rig.now_s) == ["half"]
    assert rig.deliveries.unread(rig.now_s) == []
    rig.deliveries.apply([Done(held) for held in jobs])  # decided about what has left does nothing
    assert len(rig.deliveries.in_flight) == 0


async def test_a_pulled_job_keeps_its_beginning_and_is_told_soon_where_none_of_its_model_was(rig: Rig) -> None:
    in_flight = rig.deliveries.in_flight
    assert not in_flight.has_unreported()
    first = rig.job(1)
    assert in_flight.has_unreported()
    assert (in_flight.waiting(), in_flight.oldest()) == ({"half": 1}, {"half": 0.0})
    rig.job(2)
    assert not in_flight.has_unreported(), "more of the same waits for the next heartbeat"
    other = rig.job(3, "other")
    assert in_flight.has_unreported()
    for held in (first, other):
        held.is_begun = True
    assert not in_flight.has_unreported()
    assert in_flight.waiting() == {"half": 1}
