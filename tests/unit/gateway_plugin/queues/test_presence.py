"""What plugins tell each other of their watches."""

from collections.abc import Callable
from typing import Any

import pytest

from gateway_plugin.queues.watching import presence
from gateway_plugin.queues.watching.presence import Presence, identity_of
from signalbox.bus.client import Message
from signalbox.wire import queuenames
from signalbox.wire.messages import decode, encode
from signalbox.wire.queues import Watching, WatchState


class Wire:
    """What plugins' connections have in common."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Message], Any]] = []
        self.sizes: list[int] = []


class Connection:
    """One plugin's."""

    def __init__(self, wire: Wire, instance: str) -> None:
        self.wire = wire
        self.instance = instance

    async def subscribe(self, _: str, heard: Callable[[Message], Any]) -> "Connection":
        self.wire.listeners.append(heard)
        return self

    async def publish(self, subject: str, data: bytes) -> None:
        self.wire.sizes.append(len(data))
        for listener in self.wire.listeners:
            listener(Message(subject, "", b"", data))

    async def close(self) -> None:
        pass


async def plugins(*instances: str) -> tuple[Wire, list[Presence]]:
    wire = Wire()
    made = [Presence(Connection(wire, one), clock=lambda: 100.0) for one in instances]  # type: ignore[arg-type]
    for each in made:
        await each.start()
    return wire, made


def state(uid: str, since: float = 1.0, **fields: Any) -> WatchState:
    return WatchState(queue="q", side="source", group="eas", uid=uid, since=since, **fields)


async def test_all_plugins_know_of_all_watches_of_a_side() -> None:
    _, (one, two) = await plugins("one", "two")
    heard: list[tuple[str, list[str]]] = []
    two.on_heard = lambda instance, states: heard.append((instance, [each.uid for each in states]))
    await one.tell([state("b"), WatchState(queue="q", side="sink", group="eas", uid="x")])
    await two.tell([state("a")])
    for each in (one, two):
        assert [found.uid for found in each.of("q", "source")] == ["a", "b"]
    assert heard == [("one", ["b", "x"])], "of what others tell"
    assert one.holders(identity_of(state("a"))) == ["two"]
    assert one.holders(identity_of(state("b"))) == [], "its own"
    await two.tell([])
    assert [found.uid for found in one.of("q", "source")] == ["b"]


async def test_who_is_not_heard_of_for_long_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (one, two) = await plugins("one", "two")
    await two.tell([state("a")])
    assert one.of("q", "source")
    monkeypatch.setattr(presence, "FORGET_S", -1.0)
    assert not one.of("q", "source")
    assert two.of("q", "source"), "its own"


async def test_a_watch_that_is_opened_later_is_the_later_one_whatever_the_clocks_say() -> None:
    _, (one, two) = await plugins("one", "two")
    identity = identity_of(state("a"))
    assert one.since(identity) == 100.0
    await two.tell([state("a", since=500.0)])
    assert one.since(identity) > 500.0
    await one.tell([state("a", since=600.0)])
    assert one.holders(identity) == ["two"]
    assert two.since(identity) > 600.0


async def test_very_many_watches_are_told_of_without_their_tags() -> None:
    wire, (one, two) = await plugins("one", "two")
    tags = {f"key{number}": "v" * 250 for number in range(32)}
    await one.tell([state(str(number), tags=tags) for number in range(200)])
    assert wire.sizes[0] < presence._MOST_BYTES
    assert len(two.of("q", "source")) == 200


async def test_what_cannot_be_read_is_let_go() -> None:
    wire, (one, _) = await plugins("one", "two")
    wire.listeners[0](Message(queuenames.watching("three"), "", b"", b"{"))
    assert one.of("q", "source") == []


def test_a_reader_ignores_fields_that_it_does_not_know() -> None:
    data = encode(Watching(watches=(state("a"),))).replace(b'"uid"', b'"new":1,"uid"')
    assert decode(Watching, data).watches == (state("a"),)
