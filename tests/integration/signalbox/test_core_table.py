"""A table follows its bucket through writes, removals, expiry, gaps and restarts of the server."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus, Stored
from signalbox.bus.table import _AFTER_LIMIT, Table, put, remove
from signalbox.ops.ports import free_port
from signalbox.program.errors import Unavailable
from signalbox.program.settings import Wire
from signalbox.wire import messages
from signalbox.wire.names import Bucket
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Ticket
from tests.rigs.natsserver import NatsServer


class Watch:
    """Waits until what a table holds satisfies a condition."""

    def __init__(self, table: Table[Desired] | Table[Ticket]) -> None:
        self._changed = asyncio.Event()
        table.on_change(lambda _key, _doc, _revision: self._changed.set())

    async def until(self, condition: Callable[[], bool], limit_s: float = 10) -> None:
        async with asyncio.timeout(limit_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


async def test_what_was_there_and_what_comes_are_both_seen(bus: Bus) -> None:
    before = await put(bus, Bucket.DESIRED, "worker.a", Desired(is_draining=True))
    table = Table(bus, Bucket.DESIRED, Desired)
    watch = Watch(table)
    await table.start()
    assert table.get("worker.a") == Desired(is_draining=True)
    assert table.revision("worker.a") == before
    after = await put(bus, Bucket.DESIRED, "model.b", Desired(is_paused=True), expect=0)
    await watch.until(lambda: table.get("model.b") is not None)
    assert table.revision("model.b") == after
    assert set(table.items()) == {"worker.a", "model.b"}
    assert table.synced_age_s < 60
    await table.close()


async def test_a_removed_key_is_gone_and_stays_gone(bus: Bus) -> None:
    table = Table(bus, Bucket.DESIRED, Desired)
    watch = Watch(table)
    await table.start()
    revision = await put(bus, Bucket.DESIRED, "worker.a", Desired())
    await watch.until(lambda: "worker.a" in table.items())
    marker = await remove(bus, Bucket.DESIRED, "worker.a", expect=revision)
    await watch.until(lambda: "worker.a" not in table.items())
    assert table.revision("worker.a") == marker
    late = Table(bus, Bucket.DESIRED, Desired)
    await late.start()
    assert not late.items()
    await late.close()
    await table.close()


async def test_an_expired_key_disappears(bus: Bus) -> None:
    table = Table(bus, Bucket.WAITERS, Ticket)
    watch = Watch(table)
    await table.start()
    await put(bus, Bucket.WAITERS, "g.w", Ticket(gpu="g", worker="w", boot="b"), ttl_s=1)
    await watch.until(lambda: "g.w" in table.items())
    await watch.until(lambda: "g.w" not in table.items())
    await table.close()


async def test_an_unreadable_document_counts_as_absent(bus: Bus) -> None:
    table = Table(bus, Bucket.DESIRED, Desired)
    watch = Watch(table)
    await table.start()
    await put(bus, Bucket.DESIRED, "worker.a", Desired())
    await watch.until(lambda: "worker.a" in table.items())
    newer = messages.encode(Desired(v=messages.VERSION + 1))
    await bus.write("$KV.desired.worker.a", newer)
    await watch.until(lambda: "worker.a" not in table.items())
    await table.close()


async def test_more_keys_than_one_batch_are_all_read(bus: Bus) -> None:
    count = 1500
    for start in range(0, count, 50):
        await asyncio.gather(
            *(
                put(bus, Bucket.DESIRED, f"worker.{number}", Desired(actor=str(number)))
                for number in range(start, start + 50)
            )
        )
    table = Table(bus, Bucket.DESIRED, Desired)
    await table.start()
    assert len(table.items()) == count
    assert table.items()["worker.1499"].actor == "1499"
    await table.close()


async def test_what_changed_while_the_server_was_away_is_seen_after_it_is_back(own_nats: NatsServer) -> None:
    mine = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    table = Table(mine, Bucket.DESIRED, Desired)
    watch = Watch(table)
    await table.start()
    await put(mine, Bucket.DESIRED, "worker.a", Desired())
    await watch.until(lambda: "worker.a" in table.items())
    lost = asyncio.Event()
    mine.on_disconnect(lost.set)
    await own_nats.kill()
    async with asyncio.timeout(60):
        await lost.wait()
    # Cut our own way back until the other one has written: the events in between are missed for good.
    port, own_nats.port = own_nats.port, free_port()
    await own_nats.start()
    other = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    await remove(other, Bucket.DESIRED, "worker.a")
    await put(other, Bucket.DESIRED, "worker.b", Desired())
    await other.close()
    own_nats.port = port
    await own_nats.restart()
    await watch.until(lambda: set(table.items()) == {"worker.b"}, limit_s=60)
    await table.close()
    await mine.close()


async def test_a_table_of_a_stopped_server_grows_old(own_nats: NatsServer) -> None:
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="gateway")
    table = Table(bus, Bucket.DESIRED, Desired)
    await table.start()
    fresh = table.synced_age_s
    await own_nats.stop()
    loop = asyncio.get_running_loop()
    aged = asyncio.Event()
    loop.call_later(0.5, aged.set)
    await aged.wait()
    assert table.synced_age_s >= fresh + 0.5
    await table.close()
    await bus.close()


async def test_a_table_that_asks_the_leader_notices_that_its_subscription_died(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signalbox.bus.table._PROOF_S", 0.05)
    table = Table(bus, Bucket.DESIRED, Desired, asks_leader=True)
    watch = Watch(table)
    await table.start()
    assert table._subscription is not None
    await table._subscription.close()  # the connection lives: a ping alone would prove nothing
    await put(bus, Bucket.DESIRED, "worker.a", Desired(is_draining=True))
    await watch.until(lambda: "worker.a" in table.items(), 60)
    await remove(bus, Bucket.DESIRED, "worker.a")
    await watch.until(lambda: "worker.a" not in table.items(), 60)
    await table.close()


async def test_without_the_leader_s_word_a_table_is_not_proven_though_our_server_answers(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signalbox.bus.table._PROOF_S", 0.01)
    monkeypatch.setattr("signalbox.bus.table._RETRY_S", 0.01)
    table = Table(bus, Bucket.DESIRED, Desired, asks_leader=True)
    await table.start()
    asked = asyncio.Semaphore(0)

    async def cut_off(subject: str, doc: object | None = None) -> dict[str, Any]:
        asked.release()
        raise Unavailable

    monkeypatch.setattr(bus, "request_json", cut_off)
    await asyncio.wait_for(asked.acquire(), 60)
    proven_at = table._proven_at
    for _ in range(3):
        await asyncio.wait_for(asked.acquire(), 60)
    assert table._proven_at == proven_at
    monkeypatch.undo()
    await table.close()


async def test_a_bucket_put_back_to_an_earlier_day_is_read_as_it_is_now(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signalbox.bus.table._PROOF_S", 0.05)
    table = Table(bus, Bucket.DESIRED, Desired, asks_leader=True)
    watch = Watch(table)
    for _ in range(3):
        await put(bus, Bucket.DESIRED, "worker.a", Desired())
    await table.start()
    assert table._subscription is not None
    await table._subscription.close()
    stream = Bucket.DESIRED.stream
    config = (await bus.request_json(f"$JS.API.STREAM.INFO.{stream}"))["config"]
    await bus.request_json(f"$JS.API.STREAM.DELETE.{stream}")
    await bus.request_json(f"$JS.API.STREAM.CREATE.{stream}", config)
    await put(bus, Bucket.DESIRED, "worker.a", Desired(is_draining=True))
    await watch.until(lambda: table.get("worker.a") == Desired(is_draining=True), 60)
    await table.close()


async def test_a_bucket_that_nobody_has_written_to_is_known_to_be_empty(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signalbox.bus.table._PROOF_S", 0.05)
    stream = Bucket.DESIRED.stream
    config = (await bus.request_json(f"$JS.API.STREAM.INFO.{stream}"))["config"]
    await bus.request_json(f"$JS.API.STREAM.DELETE.{stream}")
    made = {**config, "first_seq": topology.numbers_from(time.time())}
    await bus.request_json(f"$JS.API.STREAM.CREATE.{stream}", made)
    table = Table(bus, Bucket.DESIRED, Desired, asks_leader=True)
    watch = Watch(table)
    await table.start()
    assert table.synced_age_s < 60
    reads: list[int] = []
    read = bus.list_pages

    async def list_pages(stream: str, subjects: Sequence[str]) -> AsyncIterator[list[Stored]]:
        async for found in read(stream, subjects):
            reads.append(len(found))
            yield found

    monkeypatch.setattr(bus, "list_pages", list_pages)
    proven_at = table._proven_at
    table._stale.set()  # as after a reconnect
    async with asyncio.timeout(60):
        while table._proven_at == proven_at:  # noqa: ASYNC110  a table sends no event when it is proven
            await asyncio.sleep(0.01)
    assert reads == [0], "it is read once, not again and again as a replica that is behind"
    await put(bus, Bucket.DESIRED, "worker.a", Desired(is_draining=True))
    await watch.until(lambda: "worker.a" in table.items(), 60)
    await table.close()


async def test_a_replica_that_is_behind_takes_nothing_away(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(bus, Bucket.DESIRED, Desired)
    watch = Watch(table)
    await table.start()
    first = await put(bus, Bucket.DESIRED, "model.a", Desired(is_paused=True))
    await watch.until(lambda: "model.a" in table.items())
    gone: list[str] = []
    table.on_change(lambda key, doc, _revision: gone.append(key) if doc is None else None)
    old: list[list[Stored]] = [[], []]  # answers of a replica that has learned of nothing yet
    current, is_current = bus.list_pages, asyncio.Event()

    async def list_pages(stream: str, subjects: Sequence[str]) -> AsyncIterator[list[Stored]]:
        if old:
            yield old.pop()
            return
        is_current.set()
        async for found in current(stream, subjects):
            yield found

    monkeypatch.setattr(bus, "list_pages", list_pages)
    table._stale.set()  # as after a reconnect, or a hole
    await asyncio.wait_for(is_current.wait(), 90)
    await put(bus, Bucket.DESIRED, "model.b", Desired())
    await watch.until(lambda: "model.b" in table.items())
    assert gone == []
    assert table.revision("model.a") == first
    assert set(table.items()) == {"model.a", "model.b"}
    await table.close()


class Requests:
    """What a table asks NATS for, and how many messages it is given."""

    def __init__(self, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
        self.subjects: list[str] = []
        self.messages = 0
        self._changed = asyncio.Event()
        request_json, collect = bus.request_json, bus.collect

        async def noted_request(subject: str, doc: object | None = None) -> dict[str, Any]:
            answer = await request_json(subject, doc)
            self._note(subject)
            return answer

        async def noted_collect(subject: str, doc: object, on_message: Callable[[bytes, bytes], None]) -> Any:
            def noted(head: bytes, body: bytes) -> None:
                self.messages += 1
                on_message(head, body)

            self._note(subject)
            return await collect(subject, doc, noted)

        monkeypatch.setattr(bus, "request_json", noted_request)
        monkeypatch.setattr(bus, "collect", noted_collect)

    def _note(self, subject: str) -> None:
        self.subjects.append(subject.removeprefix("$JS.API."))
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def quick(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> Table[Desired]:
    """A table of 1 500 documents that compares itself with the leader all the time."""
    for start in range(0, 1500, 50):
        await asyncio.gather(*(put(bus, Bucket.DESIRED, f"model.{n}", Desired()) for n in range(start, start + 50)))
    monkeypatch.setattr("signalbox.bus.table._PROOF_S", 0.01)
    monkeypatch.setattr("signalbox.bus.table._COMPARE_S", 0.0)
    table = Table(bus, Bucket.DESIRED, Desired)
    await table.start()
    return table


async def test_a_bucket_that_stands_still_costs_one_request_whatever_it_holds(
    bus: Bus, quick: Table[Desired], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Requests(bus, monkeypatch)
    await asked.until(lambda: len(asked.subjects) >= 5)
    await quick.close()
    assert set(asked.subjects) == {"STREAM.INFO.KV_desired"}
    assert asked.messages == 0


async def test_of_a_bucket_whose_changes_were_not_received_only_those_are_read(
    bus: Bus, quick: Table[Desired], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, asked = Watch(quick), Requests(bus, monkeypatch)
    assert quick._subscription is not None
    await quick._subscription.close()
    await put(bus, Bucket.DESIRED, "model.7", Desired(is_paused=True))
    await remove(bus, Bucket.DESIRED, "model.8")
    await watch.until(lambda: "model.8" not in quick.items() and quick.items()["model.7"].is_paused)
    for start in range(0, _AFTER_LIMIT + 1, 50):
        keys = [f"model.{number}" for number in range(start, min(start + 50, _AFTER_LIMIT + 1))]
        await asyncio.gather(*(put(bus, Bucket.DESIRED, key, Desired(actor="last")) for key in keys))
    await watch.until(lambda: sum(doc.actor == "last" for doc in quick.items().values()) == _AFTER_LIMIT + 1)
    await quick.close()
    assert asked.messages <= 2 + _AFTER_LIMIT + 1
    assert set(asked.subjects) == {"STREAM.INFO.KV_desired", "DIRECT.GET.KV_desired"}


async def test_what_lies_in_a_hole_is_read_though_what_came_after_it_was_received(
    bus: Bus, quick: Table[Desired], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, asked = Watch(quick), Requests(bus, monkeypatch)
    receive = quick._receive
    quick._compare_at = float("inf")
    assert quick._subscription is not None
    quick._subscription._on_message = lambda message: None if message.subject.endswith(".7") else receive(message)
    await put(bus, Bucket.DESIRED, "model.7", Desired(is_paused=True))
    await put(bus, Bucket.DESIRED, "model.8", Desired(is_paused=True))
    await watch.until(lambda: quick.items()["model.7"].is_paused)
    await quick.close()
    assert asked.messages <= 2


async def test_a_packed_table_reads_and_follows_as_any_other(bus: Bus) -> None:
    await put(bus, Bucket.DESIRED, "model.a", Desired(is_paused=True, reason="heat"))
    table = Table(bus, Bucket.DESIRED, Desired, is_packed=True)
    watch = Watch(table)
    await table.start()
    assert table.get("model.a") == table.items()["model.a"] == Desired(is_paused=True, reason="heat")
    assert table.get("model.b") is None
    await put(bus, Bucket.DESIRED, "model.b", Desired(updated_at=1.5))
    await watch.until(lambda: table.get("model.b") == Desired(updated_at=1.5))
    await remove(bus, Bucket.DESIRED, "model.a")
    await watch.until(lambda: set(table.items()) == {"model.b"})
    await table.close()
