"""Listeners that turn connections away are on the board: gateways that say so, and this console itself."""

import time

import pytest

from console.feed.fronts import KEPT_S, Fronts
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from signalbox.wire.messages import header
from signalbox.wire.names import KEY_USE, Header
from signalbox.wire.refused import RefusedConnections
from tests.console.test_live_feed import watching

FULL = RefusedConnections(name="gw-1", since=5.0, open=4096, bound=4096, refused={"unavailable:connections": 7})


def test_an_alarm_stands_as_long_as_it_is_repeated() -> None:
    fronts = Fronts()
    fronts.receive(FULL, 100.0)
    (alarm,) = fronts.alarms(100.0 + KEPT_S / 2).values()
    assert (alarm.level, alarm.since) == ("error", 5.0)
    assert alarm.text == ("Gateway gw-1 has turned 7 connections away: 4096 of 4096 are open.")
    fronts.receive(FULL, 100.0 + KEPT_S / 2)
    assert fronts.alarms(100.0 + KEPT_S)
    assert not fronts.alarms(100.0 + 2 * KEPT_S)


def test_who_has_them_all_is_named_and_names_are_bounded() -> None:
    own: list[RefusedConnections] = []
    fronts = Fronts(lambda: own[0] if own else None)
    assert not fronts.alarms(1.0)
    own.append(RefusedConnections(since=5.0, open=9, bound=20, refused={"limit_exceeded:x": 1}, address="10.0.0.9"))
    assert fronts.alarms(1.0)["front"].text == (
        "The console has turned 1 connection away: 9 of 20 are open, and 10.0.0.9 has all that one address may."
    )
    for number in range(200):
        fronts.receive(RefusedConnections(name=str(number), since=1.0, open=1, bound=1, refused={}), 1.0)
    assert len(fronts.alarms(1.0)) == 65


@pytest.mark.parametrize("noise", ["{}", "no json", '{"v": 99}'])
async def test_what_a_gateway_says_comes_to_the_board(bus: Bus, wire: Wire, noise: str) -> None:
    async with watching(wire) as (feed, viewer):
        await feed.synced.wait()
        await bus.publish(KEY_USE, b"[]", headers={Header.FRONT: noise})
        await bus.publish(KEY_USE, b'["k"]')
        since = time.time()
        reported = RefusedConnections(name="gw-2", since=since, open=1, bound=1, refused={"x": 1})
        await bus.publish(KEY_USE, b"[]", headers={Header.FRONT: header(reported)})
        await viewer.until(lambda: viewer.row("alarms", "front:gw-2"), timeout_s=60)
        assert viewer.row("alarms", "front:gw-2")["since"] == since
