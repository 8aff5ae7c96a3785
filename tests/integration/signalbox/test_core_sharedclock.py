"""The clock that all programs share is NATS', whatever this machine takes for UTC."""

import time

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


async def test_without_nats_it_does_not_start(bus: Bus) -> None:
    await bus.close()
    with pytest.raises(Unavailable):
        await SharedClock(bus).start()
