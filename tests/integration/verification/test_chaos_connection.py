"""A connection that stops being read is lost and made again, whatever ended its reader. Found by a storm."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

import pytest
import uvloop

from signalbox.bus.client import Bus
from signalbox.bus.transport.connection import Connection
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from verification.chaos.environment.proxy import CALM, Proxy, Weather

NEVER_S = 600.0


@pytest.fixture
async def proxy(nats: NatsServer) -> AsyncIterator[Proxy]:
    async with Proxy((nats.host, nats.port)) as made:
        yield made


@pytest.fixture
async def bus(proxy: Proxy) -> AsyncIterator[Bus]:
    # No ping of nats-py's own may come to the rescue here.
    wire = Wire(nats_url=proxy.url, request_timeout_s=0.5, ping_interval_s=NEVER_S)
    connected = await Bus.connect(wire, role="admin")
    yield connected
    await connected.close()


async def answers(bus: Bus) -> bool:
    try:
        await bus.request_json("$JS.API.STREAM.INFO.STATE")
    except SignalboxError:
        return False
    return True


async def test_a_round_trip_answered_after_its_timeout_does_not_end_the_reader(bus: Bus, proxy: Proxy) -> None:
    proxy.change(Weather(held=frozenset({"down"})))
    with pytest.raises(SignalboxError):
        await bus.flush()
    proxy.change(CALM)
    await becomes(lambda: answers(bus), limit_s=60)
    await bus.flush()
    assert proxy.connections == 1


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ValueError("another")])
async def test_a_reader_that_fails_costs_the_connection_and_not_the_client(
    bus: Bus, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    parser = bus.connection._ps  # type: ignore[attr-defined]
    whole = parser.parse
    failed = asyncio.Event()

    async def fail_once(data: bytes = b"") -> None:
        if not failed.is_set():
            failed.set()
            raise error
        await whole(data)

    monkeypatch.setattr(parser, "parse", fail_once)
    assert not await answers(bus)
    assert failed.is_set()
    await becomes(lambda: answers(bus), limit_s=60)
    assert proxy.connections == 2


async def test_pings_that_cannot_be_sent_cost_the_connection_and_not_the_client(
    nats: NatsServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(nats_url=proxy.url, request_timeout_s=0.5, ping_interval_s=0.1)
    bus = await Bus.connect(wire, role="admin")
    whole = bus.connection._send_ping  # type: ignore[attr-defined]
    failed = asyncio.Event()

    async def fail_once(future: "asyncio.Future[bool] | None" = None) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("the handler is closed")
        await whole(future)

    monkeypatch.setattr(bus.connection, "_send_ping", fail_once)

    async def is_made_again() -> bool:
        return proxy.connections == 2 and await answers(bus)

    await becomes(is_made_again, limit_s=60)
    await bus.close()


@pytest.mark.parametrize("step", ["_connect_command", "_flush_pending"])
@pytest.mark.parametrize("error", [RuntimeError("handler closed"), ConnectionResetError("lost")])
async def test_an_attempt_that_fails_in_its_middle_is_made_again_and_leaves_no_connection_behind(
    bus: Bus, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    """nats-py expects no other than an :class:`OSError`, uvloop has a :class:`RuntimeError` for a write to a socket
    that has closed. After the one it expects nats-py left its socket open, subscribed at the server, and read.
    """
    whole = getattr(bus.connection, step)
    failed = asyncio.Event()

    def fail_once(*args: object, **settings: object) -> object:
        if not failed.is_set():
            failed.set()
            raise error
        return whole(*args, **settings)

    monkeypatch.setattr(bus.connection, step, fail_once)
    proxy.reset()
    await failed.wait()

    async def is_alone() -> bool:
        return len(proxy.links) == 1 and await answers(bus)

    await becomes(is_alone, limit_s=60)
    assert proxy.connections == 3


async def test_an_attempt_that_ends_late_does_not_go_on_beside_the_next(
    bus: Bus, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two connections lost in a row, each before its server has answered the first PING; see Connection."""
    whole = bus.connection.flush  # type: ignore[attr-defined]
    lost, next_is_here = [asyncio.Event(), asyncio.Event()], asyncio.Event()
    monkeypatch.setattr(bus.connection, "_reconnecting", Turns(next_is_here))
    under_way, most_at_once = 0, 0

    async def end_late() -> None:
        nonlocal under_way, most_at_once
        under_way += 1
        most_at_once = max(most_at_once, under_way)
        if under_way > 1:
            next_is_here.set()
        event = next((event for event in lost if not event.is_set()), None)
        try:
            if event is None:
                await whole()
                return
            event.set()
            await asyncio.Event().wait()
        finally:
            if event is lost[0]:  # until the next waits for its turn, or has come as far beside this one
                await next_is_here.wait()
            under_way -= 1

    monkeypatch.setattr(bus.connection, "flush", end_late)
    proxy.reset()
    for event in lost:
        await event.wait()
        proxy.reset()

    async def is_over() -> bool:
        attempts = [task for task in asyncio.all_tasks() if "_attempt_reconnect" in repr(task)]
        return not attempts and await answers(bus)

    await becomes(is_over, limit_s=60)
    assert most_at_once == 1


@pytest.mark.parametrize("end", [Proxy.reset, Proxy.hang_up])
def test_ends_in_the_middle_of_reconnecting_are_outlived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[Proxy], None]
) -> None:
    """On uvloop, as the programs run. One of the first ten resets made the client deaf for ever before; of a hundred
    hang-ups twenty left a socket open, and two attempts shook hands at once on one.
    """
    handshakes = Handshakes(Connection._process_connect_init)
    monkeypatch.setattr(Connection, "_process_connect_init", handshakes.one)

    async def ends() -> None:
        chance = random.Random(1)
        async with NatsServer(tmp_path) as nats, Proxy((nats.host, nats.port)) as proxy:
            wire = Wire(nats_url=proxy.url, request_timeout_s=0.5, reconnect_wait_s=0.01)
            bus = await Bus.connect(wire, role="admin")
            try:
                for _ in range(100):
                    before = proxy.connections
                    end(proxy)
                    async with asyncio.timeout(60):
                        while proxy.connections == before:  # noqa: ASYNC110  a proxy announces nothing
                            await asyncio.sleep(0.000_2)
                    await asyncio.sleep(chance.uniform(0, 0.003))
                async with asyncio.timeout(60):
                    while not bus.is_connected:  # noqa: ASYNC110  nor does a connection
                        await asyncio.sleep(0.01)
                await bus.flush()
                *before_last, last = handshakes.writers
                assert not [writer for writer in before_last if not writer.is_closing()]
                assert not last.is_closing()
            finally:
                await bus.close()

    uvloop.run(ends())
    assert handshakes.most_at_once == 1


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_connection_that_is_closed_while_it_reconnects_stays_closed(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """``asyncio.wait_for`` of Python 3.11 loses a cancellation that comes at once with what it waited for.

    nats-py, told to end, then connected all the same, for ever: a program that had closed its connection did not end.
    """

    async def closes() -> None:
        chance = random.Random(1)
        async with NatsServer(tmp_path) as nats, Proxy((nats.host, nats.port)) as proxy:
            others = asyncio.all_tasks()
            wire = Wire(nats_url=proxy.url, request_timeout_s=0.5, reconnect_wait_s=0.01)
            for _ in range(200):
                bus = await Bus.connect(wire, role="admin")
                before = proxy.connections
                proxy.reset()
                async with asyncio.timeout(60):
                    while proxy.connections == before:  # noqa: ASYNC110  a proxy announces nothing
                        await asyncio.sleep(0.000_2)
                for _ in range(chance.randrange(30)):
                    await asyncio.sleep(0)
                await bus.close()
                assert bus.connection.is_closed  # type: ignore[attr-defined]
                left = [task for task in asyncio.all_tasks() - others if "nats" in repr(task.get_coro())]
                async with asyncio.timeout(60):
                    await asyncio.gather(*left, return_exceptions=True)
                assert bus.connection.is_closed  # type: ignore[attr-defined]

    run(closes())


class Turns(asyncio.Lock):
    """The lock of the attempts to reconnect. is_awaited: set when one waits for the end of another."""

    def __init__(self, is_awaited: asyncio.Event) -> None:
        super().__init__()
        self._is_awaited = is_awaited

    async def acquire(self) -> Literal[True]:
        if self.locked():
            self._is_awaited.set()
        return await super().acquire()


class Handshakes:
    """Counts those under way and keeps the sockets they used. Wraps ``Connection._process_connect_init``."""

    def __init__(self, whole: Callable[[Connection], Awaitable[None]]) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.most_at_once = 0
        self._whole, self._under_way = whole, 0
        self.one = self._wrapped()

    def _wrapped(self) -> Callable[[Connection], Awaitable[None]]:
        async def shake(connection: Connection) -> None:
            self.writers.append(connection._transport._io_writer)  # type: ignore[union-attr]
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
            try:
                await self._whole(connection)
            finally:
                self._under_way -= 1

        return shake
