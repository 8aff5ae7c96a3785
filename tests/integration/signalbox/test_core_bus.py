"""The bus against a real server: writes that say whether they are stored, reads, pulls, and outages."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from signalbox.bus import pull
from signalbox.bus.client import Bus, Delivery, Message
from signalbox.jobs import delivery
from signalbox.program import log
from signalbox.program.errors import Ambiguous, Misconfigured, NotFound, QueueFull, StaleRevision, TooLarge, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire.names import Bucket, Stream, consumer
from tests.rigs.natsserver import NatsServer

HI = consumer("m", "hi", 0)


@asynccontextmanager
async def connected(server: NatsServer, request_timeout_s: float = 2.0) -> AsyncIterator[Bus]:
    wire = Wire(nats_url=server.url, request_timeout_s=request_timeout_s)
    bus = await Bus.connect(wire, role="admin")
    try:
        yield bus
    finally:
        await bus.close()


class Inbox:
    """Collects deliveries and lets a test wait for a number of them."""

    def __init__(self) -> None:
        self.all: list[Delivery] = []
        self._more = asyncio.Event()

    def take(self, delivery: Delivery) -> None:
        self.all.append(delivery)
        self._more.set()

    async def until(self, count: int, limit_s: float = 10) -> list[Delivery]:
        async with asyncio.timeout(limit_s):
            while len(self.all) < count:
                self._more.clear()
                await self._more.wait()
        return self.all


# ------------------------------------------------------------------------------------- writing


async def test_a_compare_and_set_tells_the_real_last_sequence(bus: Bus) -> None:
    first = await bus.write("st.a", b"1", expect=0)
    second = await bus.write("st.a", b"2", expect=first)
    with pytest.raises(StaleRevision) as stale:
        await bus.write("st.a", b"3", expect=first)
    assert stale.value.last == second
    stored = await bus.leader_get(Stream.STATE, "st.a")
    assert stored is not None
    assert (stored.seq, stored.data) == (second, b"2")


async def test_headers_arrive_as_they_were_sent(bus: Bus) -> None:
    await bus.write("st.a", b"body", headers={"Sb-Record": '{"a":1}', "X-Empty": ""})
    for stored in (
        await bus.leader_get(Stream.STATE, "st.a"),
        await bus.direct_get(Stream.STATE, "st.a"),
        (await bus.list_latest(Stream.STATE, ["st.*"]))[0],
    ):
        assert stored is not None
        assert stored.headers["Sb-Record"] == '{"a":1}'
        assert stored.headers["X-Empty"] == ""
        assert (stored.subject, stored.data) == ("st.a", b"body")
        assert abs(stored.time - asyncio.get_running_loop().time()) > 0


async def test_a_message_id_is_stored_once(bus: Bus) -> None:
    first = await bus.write("pl.a.j.in", b"x", msg_id="one")
    assert await bus.write("pl.a.j.in", b"x", msg_id="one") == first


async def test_a_full_queue_refuses_and_stores_nothing(bus: Bus) -> None:
    config = (await bus.request_json("$JS.API.STREAM.INFO.JOBS"))["config"]
    await bus.request_json("$JS.API.STREAM.UPDATE.JOBS", config | {"max_msgs": 2})
    await bus.write("jobs.m.hi.t.s.1")
    await bus.write("jobs.m.hi.t.s.2")
    with pytest.raises(QueueFull):
        await bus.write("jobs.m.hi.t.s.3")
    assert await bus.leader_get(Stream.JOBS, "jobs.m.hi.t.s.3") is None


async def test_what_a_stream_or_the_server_cannot_hold_is_too_large(bus: Bus) -> None:
    with pytest.raises(TooLarge):
        await bus.write("st.a", b"x" * (1024 * 1024 + 1))
    with pytest.raises(TooLarge):
        await bus.write("st.a", b"x" * (2 * 1024 * 1024 + 1))
    assert bus.is_connected


async def test_a_subject_without_a_stream_is_unavailable_at_once(bus: Bus) -> None:
    with pytest.raises(Unavailable) as error:
        await bus.write("nowhere.at.all", b"x")
    assert not isinstance(error.value, Ambiguous)


async def test_what_is_not_there_is_none(bus: Bus) -> None:
    assert await bus.leader_get(Stream.STATE, "st.none") is None
    assert await bus.direct_get(Stream.STATE, "st.none") is None
    assert await bus.list_latest(Stream.STATE, ["st.none"]) == []
    assert await bus.list_latest(Bucket.LEASES.stream, ["$KV.leases.>"]) == []
    with pytest.raises(NotFound):
        await bus.consumer_info("nobody")


async def test_a_list_from_the_leader_holds_every_key(bus: Bus) -> None:
    for number in range(5):
        await bus.write(f"$KV.leases.g{number}", b"%d" % number, expect=0)
    found = await bus.list_latest(Bucket.LEASES.stream, ["$KV.leases.>"])
    assert [stored.data for stored in found] == [b"0", b"1", b"2", b"3", b"4"]


# ------------------------------------------------------------------------------------- core messages


async def test_callbacks_of_both_kinds_get_every_message_in_order(bus: Bus) -> None:
    plain: list[bytes] = []
    slow: list[bytes] = []
    both = asyncio.Event()

    def keep(message: Message) -> None:
        plain.append(message.data)

    async def keep_slowly(message: Message) -> None:
        await asyncio.sleep(0)
        slow.append(message.data)
        if len(slow) == 50:
            both.set()

    one = await bus.subscribe("progress.*", keep)
    other = await bus.subscribe("progress.*", keep_slowly)
    for number in range(50):
        await bus.publish("progress.j", b"%d" % number, headers={"A": "b"})
    async with asyncio.timeout(60):
        await both.wait()
    assert plain == slow == [b"%d" % number for number in range(50)]
    await one.close()
    await other.close()
    await bus.publish("progress.j", b"late")
    await bus.flush()
    assert len(plain) == 50


@pytest.mark.parametrize("event", ["bus.handler_failed", "bus.callback_failed"])
async def test_a_callback_that_fails_does_not_end_the_others_and_is_counted(bus: Bus, event: str) -> None:
    seen: list[bytes] = []
    failed, counter = asyncio.Event(), log.UNFORESEEN.labels(event)
    before, failures = counter._value.get(), iter([False, True])

    def fail(message: Message) -> None:
        if next(failures):
            failed.set()
        raise ValueError(message.subject)

    async def fail_in_a_task(message: Message) -> None:
        fail(message)

    bad = await bus.subscribe("progress.a", fail if event == "bus.handler_failed" else fail_in_a_task)
    good = await bus.subscribe("progress.a", lambda message: seen.append(message.data))
    await bus.publish("progress.a", b"1")
    await bus.flush()
    await bus.publish("progress.a", b"2")
    await bus.flush()
    assert seen == [b"1", b"2"]
    async with asyncio.timeout(60):
        await failed.wait()
    await bad.close()
    await good.close()
    assert counter._value.get() == before + 2


async def test_a_large_body_in_many_pieces_arrives_whole(bus: Bus) -> None:
    body = os.urandom(1_900_000)
    seen: list[Message] = []
    listening = await bus.subscribe("progress.big", seen.append)
    await bus.publish("progress.big", body, headers={"H": "v"})
    await bus.publish("progress.big", b"after")
    await bus.flush()
    assert [message.data for message in seen] == [body, b"after"]
    assert seen[0].headers == {"H": "v"}
    await listening.close()


# ------------------------------------------------------------------------------------- pulling


async def test_deliveries_come_once_asked_for_and_are_counted(bus: Bus) -> None:
    await delivery.find(bus, "m", "hi", 0)
    inbox = Inbox()
    puller = await bus.pull(HI, inbox.take)
    for number in range(5):
        await bus.write(f"jobs.m.hi.t.s.{number}", b"%d" % number)
    await bus.flush()
    assert inbox.all == []
    puller.ask(3)
    assert puller.outstanding == 3
    await inbox.until(3)
    assert puller.outstanding == 0
    puller.ask(10)
    await inbox.until(5)
    assert puller.outstanding == 8
    assert [taken.data for taken in inbox.all] == [b"0", b"1", b"2", b"3", b"4"]
    assert [(taken.seq, taken.number) for taken in inbox.all] == [(n, n) for n in range(1, 6)]
    info = await bus.consumer_info(HI)
    assert (info.num_pending, info.delivered_stream_seq) == (0, 5)
    await puller.close()


async def test_a_request_that_does_not_wait_is_not_given_up_while_the_server_looks(
    own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where other queues are deep it reads past all of their jobs first."""
    monkeypatch.setattr(pull, "_GRACE_S", 0.1)
    async with connected(own_nats, request_timeout_s=60.0) as bus:
        await delivery.find(bus, "m", "hi", 0)
        idle = asyncio.Event()
        puller = bus.puller(HI, lambda _: None)
        puller.on_idle = idle.set
        puller.ask(1, expires_s=0.02, is_one_shot=True)
        os.kill(own_nats.pid, signal.SIGSTOP)
        await asyncio.sleep(0.5)
        os.kill(own_nats.pid, signal.SIGCONT)
        async with asyncio.timeout(60):
            await idle.wait()
        assert not puller.is_unanswered
        await puller.close()


async def test_credit_adds_up_over_requests_that_overlap(bus: Bus) -> None:
    """The server serves parked requests in turn; whichever a delivery answered, the sum must be right."""
    await delivery.find(bus, "m", "hi", 0)
    inbox = Inbox()
    puller = await bus.pull(HI, inbox.take)
    expired = 0
    done = asyncio.Event()

    def count() -> None:
        nonlocal expired
        expired += 1
        if expired == 3:
            done.set()

    puller.on_idle = count
    for size, expires_s in ((5, 1.0), (7, 1.1), (9, 1.2)):
        puller.ask(size, expires_s=expires_s)
    for number in range(8):
        await bus.write(f"jobs.m.hi.t.s.{number}")
    await inbox.until(8)
    assert expired or puller.outstanding == 21 - 8  # on a slow machine requests expire before all have come
    async with asyncio.timeout(60):
        await done.wait()
    assert puller.outstanding == 0
    await puller.close()


async def test_asking_a_consumer_that_is_not_there_does_not_spin(bus: Bus) -> None:
    puller = await bus.pull("nobody", lambda _delivery: None)
    times: list[float] = []
    enough = asyncio.Event()

    def again() -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 6:
            enough.set()
        puller.ask(1)

    puller.on_idle = again
    puller.ask(1)
    async with asyncio.timeout(60):
        await enough.wait()
    await puller.close()
    assert puller.last_refusal.startswith("503")
    assert times[5] - times[0] > 0.25


# ------------------------------------------------------------------------------------- outages


async def test_no_server_is_unavailable_and_names_the_address() -> None:
    with pytest.raises(Unavailable, match=r"nats://127\.0\.0\.1:1"):
        await Bus.connect(Wire(nats_url="nats://127.0.0.1:1", connect_timeout_s=0.3), role="admin")


async def test_subscriptions_and_pulls_go_on_after_a_crash_of_the_server(own_nats: NatsServer) -> None:
    async with connected(own_nats) as bus:
        await delivery.find(bus, "m", "hi", 0)
        inbox = Inbox()
        events: list[str] = []
        listening = await bus.subscribe("evt.jobs.>", lambda message: events.append(message.subject))
        puller = await bus.pull(HI, inbox.take)
        idle = asyncio.Event()
        puller.on_idle = idle.set
        puller.ask(4, expires_s=30)
        await own_nats.kill()
        await own_nats.start()
        async with asyncio.timeout(60):
            await idle.wait()
        assert puller.outstanding == 0
        await delivery.find(bus, "m", "hi", 0)  # it was in the server's memory
        puller.ask(4)
        await bus.write("jobs.m.hi.t.s.1", expect=0)
        await inbox.until(1)
        await bus.flush()
        assert events == ["evt.jobs.m.hi.t.s.1"]
        await puller.close()
        await listening.close()


# ------------------------------------------------------------------------------------- roles


async def test_wrong_credentials_are_named(tmp_path: object) -> None:
    async with NatsServer(f"{tmp_path}/n", users={"gateway": "right"}) as server:
        wire = Wire(nats_url=server.url, nats_user="gateway", nats_password="wrong")
        with pytest.raises(Misconfigured, match="NATS refuses user 'gateway'"):
            await Bus.connect(wire, role="gateway")


async def test_a_connection_that_is_lost_as_it_is_closed_is_closed_all_the_same(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose() -> None:
        raise ConnectionResetError("Connection lost")

    bus = await Bus.connect(Wire(nats_url=nats.url), role="admin")
    connection: Any = bus.connection
    socket = connection._transport
    monkeypatch.setattr(socket, "drain", lose)
    connection._pending, connection._pending_data_size = [b"PING\r\n"], 6
    await bus.close()
    assert connection.is_closed
    assert socket._io_writer.transport.is_closing()
    assert not connection._subs
