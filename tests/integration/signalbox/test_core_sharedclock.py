"""The clock that all programs share is NATS', whatever this machine takes for UTC."""

import asyncio
import time
from typing import Any

import pytest

from signalbox.bus.client import Bus
from signalbox.bus.sharedclock import SharedClock
from signalbox.program.errors import Unavailable

HOUR_S = 3600.0


def true_time() -> float:
    return time.clock_gettime(time.CLOCK_REALTIME)


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
async def test_a_machine_whose_clock_is_wrong_goes_by_that_of_nats_and_says_so(
    bus: Bus, by_s: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time, "time", lambda: true_time() + by_s)
    clock = SharedClock(bus)
    assert abs(clock.now() - true_time() - by_s) < 1.0, "before NATS was asked there is nothing better"
    await clock.start()
    assert abs(clock.now() - true_time()) < 1.0
    await clock.close()
    assert "clock.wrong" in capsys.readouterr().err


async def test_a_clock_that_is_set_meanwhile_changes_nothing(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SharedClock(bus)
    await clock.start()
    monkeypatch.setattr(time, "time", lambda: true_time() + HOUR_S)
    assert abs(clock.now() - true_time()) < 1.0
    await clock.close()


async def test_an_answer_that_comes_late_moves_nothing(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_ones: list[float] = []
    is_used = asyncio.Event()
    ask = bus.request_json

    async def request(subject: str) -> Any:
        if slow_ones:
            is_used.set()
        answer = await ask(subject)
        if is_started.is_set():
            slow_ones.append(clock.now())
            await asyncio.sleep(0.4)
        return answer

    is_started = asyncio.Event()
    monkeypatch.setattr("signalbox.bus.sharedclock.PERIOD_S", 0.01)
    monkeypatch.setattr(bus, "request_json", request)
    clock = SharedClock(bus)
    await clock.start()
    is_started.set()
    await is_used.wait()
    assert abs(clock.now() - true_time()) < 0.1, "the middle of what the answer took is 0.2 s off"
    await clock.close()


async def test_without_nats_it_does_not_start(bus: Bus) -> None:
    await bus.close()
    with pytest.raises(Unavailable):
        await SharedClock(bus).start()
