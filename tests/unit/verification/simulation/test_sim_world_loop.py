"""The virtual-time loop itself."""

import asyncio
import time

import pytest

from verification.simulation.loop import EPOCH, Clock, Program, running


def test_a_day_passes_in_no_time_and_clocks_agree_with_it() -> None:
    with running(1) as loop:

        async def sleep() -> tuple[float, float]:
            await asyncio.sleep(86_400)
            return loop.now, time.time()

        assert loop.run_until_complete(sleep()) == (86_400, EPOCH + 86_400)


def test_clocks_of_a_program_drift_and_step_and_its_timers_follow_them() -> None:
    with running(1) as loop:
        fast = Program("fast", Clock(rate=1.01, wall=3600.0))

        async def sleep() -> tuple[float, float]:
            before = time.clock_gettime(time.CLOCK_BOOTTIME)
            await asyncio.sleep(101)
            return time.clock_gettime(time.CLOCK_BOOTTIME) - before, time.time()

        counted, utc = loop.run_until_complete(loop.spawn(fast, sleep()))
        assert counted == pytest.approx(101)
        assert loop.now == pytest.approx(100)
        assert utc == pytest.approx(EPOCH + 101 + 3600)


def test_suspended_machine_counts_boottime_only_and_its_timers_wait() -> None:
    with running(1) as loop:
        laptop, desk = Program("laptop", Clock(rate=1.01)), Program("desk", Clock())

        async def sleep() -> tuple[float, float]:
            await asyncio.sleep(10.1)
            slept_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
            return loop.now, slept_s

        sleeping, other = loop.spawn(laptop, sleep()), loop.spawn(desk, sleep())
        loop.call_at(5.0, loop.suspend, laptop.clock)
        loop.call_at(65.0, loop.wake, laptop.clock, [laptop])
        assert loop.run_until_complete(sleeping) == pytest.approx((70, 60.6))
        assert other.result() == pytest.approx((10.1, 0))


def test_suspended_program_receives_what_came_when_it_wakes_unless_it_is_stopped() -> None:
    with running(1) as loop:
        clock = Clock()
        received: list[tuple[str, float]] = []
        awake, stopped = Program("awake", clock), Program("stopped", clock)
        loop.freeze(stopped)
        loop.call_at(1.0, loop.suspend, clock)
        for each in (awake, stopped):
            loop.call_at(2.0, loop.post, each, lambda name: received.append((name, loop.now)), each.name)
        loop.call_at(60.0, loop.wake, clock, [awake, stopped])
        loop.call_at(70.0, loop.thaw, stopped)
        loop.run_until_complete(asyncio.sleep(80))
        assert [name for name, _ in received] == ["awake", "stopped"]
        assert [at for _, at in received] == pytest.approx([60, 70])


def test_frozen_program_goes_on_when_it_thaws_and_a_killed_one_never() -> None:
    with running(1) as loop:
        received: list[tuple[str, float]] = []

        async def tick(name: str) -> None:
            for _ in range(3):
                await asyncio.sleep(1)
                received.append((name, loop.now))

        frozen, killed = Program("frozen", Clock()), Program("killed", Clock())
        loop.spawn(frozen, tick("frozen"))
        loop.spawn(killed, tick("killed"))
        loop.call_at(1.5, loop.freeze, frozen)
        loop.call_at(9.5, loop.thaw, frozen)
        loop.call_at(1.5, loop.kill, killed)
        loop.run_until_complete(asyncio.sleep(20))
        mine = [at for name, at in received if name == "frozen"]
        assert mine == pytest.approx([1.0, 9.5, 10.5])
        assert len(received) == 4
