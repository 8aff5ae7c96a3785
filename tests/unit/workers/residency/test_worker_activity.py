"""What a runner does now, as its worker tells it, in virtual time."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from signalbox.wire.workerdocs import Run
from verification.simulation.loop import EPOCH, running
from workers.residency.activity import SOON_S, Activity
from workers.statistics.worker import Statistics

KEY = ("digits", 3)


def in_virtual_time(test: Callable[[Activity, Statistics, list[float]], Coroutine[Any, Any, None]]) -> None:
    """Run ``test`` with an activity, what it has measured, and the instants at which others should learn of it."""
    with running(1) as loop:

        async def run() -> None:
            statistics, reported = Statistics(), list[float]()
            changed = asyncio.Event()
            changed.set = lambda: reported.append(round(loop.now, 3))  # type: ignore[method-assign]
            activity = Activity(statistics, time.time, changed)
            await test(activity, statistics, reported)

        loop.run_until_complete(run())


def run(activity: str, *jobs: str, since: float, expected_s: float = 0.0, is_beside: bool = False) -> Run:
    return Run(
        activity=activity,
        model=KEY[0],
        version=KEY[1],
        jobs=jobs,
        since=EPOCH + since,
        expected_s=expected_s,
        is_beside=is_beside,
    )


def test_a_long_run_is_told_soon_and_so_is_its_end() -> None:
    async def test(activity: Activity, statistics: Statistics, reported: list[float]) -> None:
        assert activity.now() is None
        statistics.ran(KEY[0], jobs=2, seconds=4.0, size_bytes=1)
        with activity.computing(KEY, ("a", "b")):
            await asyncio.sleep(3.0)
            assert activity.now() == run("computing", "a", "b", since=0.0, expected_s=4.0)
        assert activity.now() is None, "what was told as running is not left standing"
        assert reported == [SOON_S, 3.0]

    in_virtual_time(test)


def test_a_steady_load_of_short_runs_has_used_what_the_runs_took_and_tells_nothing_in_between() -> None:
    async def test(activity: Activity, statistics: Statistics, reported: list[float]) -> None:
        for i in range(100):
            with activity.computing(KEY, (f"job{i}",)):
                await asyncio.sleep(0.003)
                assert activity.now() == run("computing", f"job{i}", since=round(i * 0.203, 3))
            await asyncio.sleep(0.2)
            assert activity.now() is None, "a pause is no run"
        assert statistics.used_s == {"computing": pytest.approx(0.3)}
        assert not reported

    in_virtual_time(test)


def test_what_is_under_way_is_used_time_and_of_requests_behind_one_another_each_second_counts_once() -> None:
    async def test(activity: Activity, statistics: Statistics, _: list[float]) -> None:
        with activity.computing(KEY, ("first",)), activity.computing(KEY, ("second",)):
            await asyncio.sleep(2.0)
            assert dict(activity.under_way()) == {"computing": pytest.approx(2.0)}
            assert not statistics.used_s
        with activity.loading(KEY, is_beside=True), activity.computing(KEY, ("third",)):
            await asyncio.sleep(1.0)
            assert dict(activity.under_way()) == pytest.approx({"computing": 1.0, "loading": 1.0})
        assert statistics.used_s == pytest.approx({"computing": 3.0, "loading": 1.0})
        assert not dict(activity.under_way())

    in_virtual_time(test)


def test_of_two_batches_with_the_runner_the_first_is_what_it_does() -> None:
    async def test(activity: Activity, _: Statistics, reported: list[float]) -> None:
        turns: list[float] = []
        with activity.computing(KEY, ("first",)):
            await asyncio.sleep(1.0)
            second = activity.computing(KEY, ("second",), lambda: turns.append(time.time() - EPOCH))
            second.__enter__()
            await asyncio.sleep(1.0)
            assert activity.now() == run("computing", "first", since=0.0)
            assert not turns
        assert activity.now() == run("computing", "second", since=2.0), "its turn came now"
        assert turns == [2.0]
        await asyncio.sleep(SOON_S / 2)
        second.__exit__(None, None, None)
        assert reported == [SOON_S, 2.0]

    in_virtual_time(test)


def test_a_run_whose_answer_is_read_with_the_one_before_it_has_lasted_what_the_runner_says() -> None:
    async def test(activity: Activity, _: Statistics, __: list[float]) -> None:
        with activity.computing(KEY, ("first",)):
            behind = activity.computing(KEY, ("second",))
            second = behind.__enter__()
            await asyncio.sleep(3.0)
        behind.__exit__(None, None, None)
        assert second.lasted_s(1.0) == 1.0
        assert second.lasted_s(100.0) == 3.0, "no longer than it had the request"
        assert second.lasted_s(float("nan")) == 3.0
        assert second.lasted_s(-1.0) == 0.0

    in_virtual_time(test)


def test_a_load_is_told_at_once_and_what_it_took_is_expected_of_the_next() -> None:
    async def test(activity: Activity, statistics: Statistics, reported: list[float]) -> None:
        with activity.loading(KEY):
            await asyncio.sleep(2.0)
            assert activity.now() == run("loading", since=0.0)
        assert statistics.load_s[KEY[0]] == 2.0
        assert reported == [0.0, 2.0]
        with activity.loading(KEY):
            assert activity.now() == run("loading", since=2.0, expected_s=2.0)

    in_virtual_time(test)


def test_a_load_ahead_of_need_delays_no_turn_and_is_told_while_nothing_runs() -> None:
    async def test(activity: Activity, statistics: Statistics, reported: list[float]) -> None:
        turns: list[float] = []
        with activity.loading(KEY, is_beside=True):
            assert activity.now() == run("loading", since=0.0, is_beside=True)
            await asyncio.sleep(1.0)
            with activity.computing(KEY, ("a",), lambda: turns.append(time.time() - EPOCH)):
                assert activity.now() == run("computing", "a", since=1.0)
                await asyncio.sleep(0.1)
            assert activity.now() == run("loading", since=0.0, is_beside=True)
        assert turns == [1.0], "it did not wait for the load"
        assert reported == [0.0, 1.1]
        assert statistics.load_s[KEY[0]] == 1.1

    in_virtual_time(test)


def test_a_run_knows_of_a_load_ahead_beside_it_whichever_began_first() -> None:
    async def test(activity: Activity, _: Statistics, __: list[float]) -> None:
        with activity.computing(KEY, ("alone",)) as alone:
            await asyncio.sleep(1.0)
        with activity.computing(KEY, ("a",)) as before:
            with activity.loading(KEY, is_beside=True), activity.computing(KEY, ("b",)) as during:
                await asyncio.sleep(1.0)
            with activity.computing(KEY, ("c",)) as after:
                await asyncio.sleep(1.0)
        assert [r.is_beside_load for r in (alone, before, during, after)] == [False, True, True, False]

    in_virtual_time(test)


def test_a_load_that_fails_says_nothing_of_how_long_loads_take() -> None:
    async def test(activity: Activity, statistics: Statistics, _: list[float]) -> None:
        try:
            with activity.loading(KEY):
                await asyncio.sleep(2.0)
                raise MemoryError
        except MemoryError:
            pass
        assert KEY[0] not in statistics.load_s
        assert activity.now() is None

    in_virtual_time(test)


def test_at_most_32_jobs_are_named() -> None:
    async def test(activity: Activity, _: Statistics, __: list[float]) -> None:
        with activity.computing(KEY, tuple(map(str, range(100)))):
            found = activity.now()
            assert found is not None
            assert found.jobs == tuple(map(str, range(32)))

    in_virtual_time(test)
