"""The owners of tasks: nothing they run outlives them, and no failure goes unseen."""

import asyncio
import contextlib
from typing import NoReturn

import pytest

from signalbox.program import log
from signalbox.program.errors import Unavailable
from signalbox.program.tasks import Background, SingleFlight, TaskGroup, end


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    monkeypatch.setattr(log, "warning", lambda event, **fields: lines.append((event, fields["reason"])))
    monkeypatch.setattr(log, "exception", lambda event, **fields: lines.append((event, repr(fields["error"]))))
    return lines


async def test_cancelled_tasks_have_ended_when_cancel_returns() -> None:
    ends: list[str] = []

    async def run(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append(name)

    background = Background()
    for name in ("a", "b"):
        background.start(run(name), name=name)
    await asyncio.sleep(0)
    await background.cancel()
    assert sorted(ends) == ["a", "b"]
    await background.cancel()


async def test_a_task_that_fails_is_logged_and_the_others_run_on(logged: list[tuple[str, str]]) -> None:
    async def fail(error: Exception) -> NoReturn:
        raise error

    background, gate = Background(), asyncio.Event()
    background.start(gate.wait(), name="runs on")
    background.start(fail(Unavailable("NATS is away")), name="ours")
    background.start(fail(ValueError("unforeseen")), name="a bug")
    for _ in range(3):
        await asyncio.sleep(0)
    assert logged == [("task.failed", "NATS is away"), ("task.failed", "ValueError('unforeseen')")]
    gate.set()
    await background.finish()


async def test_callers_who_need_the_same_answer_share_one_call() -> None:
    calls: list[str] = []
    gate = asyncio.Event()

    async def call() -> str:
        calls.append("a")
        await gate.wait()
        return "answer"

    flight: SingleFlight[str, str] = SingleFlight()
    asking = [asyncio.create_task(flight.ask("k", call)) for _ in range(3)]
    await asyncio.sleep(0)
    assert "k" in flight
    asking[0].cancel()
    gate.set()
    assert await asyncio.gather(*asking[1:]) == ["answer"] * 2
    assert calls == ["a"]
    assert "k" not in flight
    assert await flight.ask("k", call) == "answer"
    assert calls == ["a", "a"]


async def test_the_failure_of_a_call_whose_callers_have_all_left_is_not_left_unread() -> None:
    gate = asyncio.Event()
    unread: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context))

    async def call() -> None:
        await gate.wait()
        raise Unavailable("away")

    flight: SingleFlight[str, None] = SingleFlight()
    caller = asyncio.create_task(flight.ask("k", call))
    await asyncio.sleep(0)
    caller.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await caller
    gate.set()
    await flight.close()
    assert "k" not in flight
    assert unread == []


async def _fail() -> NoReturn:
    await asyncio.sleep(0)
    raise ValueError("unforeseen")


async def test_a_timeout_after_a_group_that_failed_is_a_timeout() -> None:
    async def work() -> None:
        with contextlib.suppress(ExceptionGroup):
            async with TaskGroup() as group:
                group.create_task(_fail())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await task
    assert not task.cancelling()


async def test_who_waits_for_a_group_that_fails_may_be_cancelled_meanwhile() -> None:
    async def work() -> None:
        async with TaskGroup() as group:
            group.create_task(_fail())
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


async def test_a_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    lost = 0

    async def stubborn() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if lost:
                    raise
                lost += 1

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await end([task])
    assert lost == 1
    assert task.cancelled()
