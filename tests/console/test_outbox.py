"""Decisions reach NATS, in the right order, through outages, with several publishers."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from console.accounts.rights import system_actor
from console.catalog import inspection, lookup, publishing, registration
from console.keys import services as keys
from console.keys.models import ApiKey
from console.outbox.models import OutboxEntry
from console.outbox.publisher import Publisher
from console.outbox.services import post_document, why_waiting
from signalbox.bus.client import Bus
from signalbox.jobs import life
from signalbox.jobs.records import Records
from signalbox.program.errors import Unavailable
from signalbox.program.settings import Wire
from signalbox.wire import keydocs, messages, modeldocs, names, outboundnames, steering
from signalbox.wire.messages import Record, State
from signalbox.wire.names import Bucket, Header
from tests.console.conftest import FOUND, in_thread
from tests.rigs.models import half_plus_two
from tests.rigs.natsserver import NatsServer
from tests.rigs.streams import last_sequence

pytestmark = pytest.mark.django_db(transaction=True)
ME = system_actor("tests")


async def document(bus: Bus, bucket: Bucket, key: str) -> bytes | None:
    """What NATS holds under a key."""
    stored = await bus.leader_get(bucket.stream, names.key(bucket, key))
    return stored.data if stored else None


async def test_a_registered_model_is_published_with_what_it_takes(bus: Bus) -> None:
    await in_thread(registration.register, ME, "half.plus", str(half_plus_two().parent))
    assert await Publisher(bus, 5).publish_due() == 1
    data = await document(bus, Bucket.MODELS, names.token("half.plus"))
    assert data is not None
    model = messages.decode(modeldocs.Model, data)
    assert model.default_version == 1
    assert model.versions[0].signatures["serving_default"].inputs["x"].dtype == "float32"
    assert len(model.versions[0].digest) == 64


async def test_a_revoked_key_is_published_without_waiting_for_the_next_poll(bus: Bus) -> None:
    task = asyncio.create_task(Publisher(bus, 600).run())
    reported: asyncio.Queue[keydocs.ApiKey] = asyncio.Queue()
    subject = names.event_of_key(Bucket.KEYS)
    received = await bus.subscribe(
        subject, lambda message: reported.put_nowait(messages.decode(keydocs.ApiKey, message.data))
    )
    try:
        async with asyncio.timeout(60):
            key, _ = await in_thread(keys.create, ME, keys.KeyGrant(name="a"))
            assert (await reported.get()).revoked_at is None
            await in_thread(keys.revoke, ME, key.id)
        async with asyncio.timeout(60):
            assert (await reported.get()).revoked_at is not None
    finally:
        await received.close()
        task.cancel()
        await asyncio.wait([task])


async def test_only_the_latest_state_of_a_key_is_published_and_all_are_settled(bus: Bus) -> None:
    before = await last_sequence(bus, Bucket.KEYS.stream)
    key, _ = await in_thread(keys.create, ME, keys.KeyGrant(name="a"))
    await in_thread(keys.revoke, ME, key.id)
    assert await Publisher(bus, 5).publish_due() == 2
    stored = await bus.leader_get(Bucket.KEYS.stream, names.key(Bucket.KEYS, key.id))
    assert stored is not None
    assert stored.seq == before + 1
    assert messages.decode(keydocs.ApiKey, stored.data).revoked_at is not None
    assert not await in_thread(OutboxEntry.objects.filter(published_at=None).exists)


async def test_publishers_that_race_never_leave_an_older_state_behind(bus: Bus, wire: Wire) -> None:
    second_bus = await Bus.connect(wire, role="console")
    publishers = [Publisher(bus, 5), Publisher(second_bus, 5)]
    last = 40

    def post(number: int) -> None:
        post_document(Bucket.DESIRED, "model.m", steering.Desired(reason=str(number)))

    async def publish(publisher: Publisher) -> None:
        while await in_thread(OutboxEntry.objects.count) < last:
            await publisher.publish_due()
        await publisher.publish_due()

    async def write() -> None:
        for number in range(1, last + 1):
            await in_thread(post, number)

    try:
        await asyncio.gather(write(), *(publish(publisher) for publisher in publishers))
    finally:
        await second_bus.close()
    data = await document(bus, Bucket.DESIRED, "model.m")
    assert data is not None
    assert messages.decode(steering.Desired, data).reason == str(last)


class Paused(Bus):
    """A connection whose first write goes out when it may: between reading and writing a publisher can be overtaken."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.has_read, self.may_write = asyncio.Event(), asyncio.Event()

    async def write(self, *given: Any, **more: Any) -> int:
        self.has_read.set()
        await self.may_write.wait()
        return await super().write(*given, **more)


async def test_a_publisher_that_was_overtaken_does_not_put_the_older_state_over_the_newer(bus: Bus, wire: Wire) -> None:
    def post(reason: str) -> None:
        post_document(Bucket.DESIRED, "model.m", steering.Desired(reason=reason))

    slow_bus = await Paused.connect(wire, role="console")
    assert isinstance(slow_bus, Paused)
    await in_thread(post, "older")
    overtaken = asyncio.create_task(Publisher(slow_bus, 5).publish_due())
    try:
        async with asyncio.timeout(60):
            await slow_bus.has_read.wait()
            await in_thread(post, "newer")
            await Publisher(bus, 5).publish_due()
            slow_bus.may_write.set()
            await overtaken
    finally:
        overtaken.cancel()
        await asyncio.wait([overtaken])
        await slow_bus.close()
    data = await document(bus, Bucket.DESIRED, "model.m")
    assert data is not None
    assert messages.decode(steering.Desired, data).reason == "newer"


async def test_what_no_stream_keeps_is_not_lost_while_nats_is_away(own_nats: NatsServer) -> None:
    asked = {
        names.ask_release("g1"): OutboxEntry(kind=OutboxEntry.RELEASE, key="g1"),
        names.ask_evict("w1"): OutboxEntry(kind=OutboxEntry.EVICT, key="w1", body="digits"),
        outboundnames.ask_delivery("h1"): OutboxEntry(kind=OutboxEntry.DELIVER, key="h1", body="job"),
    }
    async with await Bus.connect(Wire(nats_url=own_nats.url), role="console") as bus:
        publisher = Publisher(bus, 5)
        for entry in asked.values():
            await in_thread(entry.save)
        gone, back = asyncio.Event(), asyncio.Event()
        bus.on_disconnect(gone.set)
        bus.on_reconnect(back.set)
        await own_nats.kill()
        await gone.wait()
        with pytest.raises(Unavailable):
            await publisher.publish_due()
        assert await in_thread(OutboxEntry.objects.filter(published_at=None).count) == 3
        await own_nats.restart()
        async with asyncio.timeout(60), await Bus.connect(Wire(nats_url=own_nats.url), role="admin") as other:
            heard: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
            for subject in asked:
                await other.subscribe(subject, lambda message: heard.put_nowait((message.subject, message.data)))
            await back.wait()
            assert await publisher.publish_due() == 3
            assert [await heard.get() for _ in asked] == [(name, one.body.encode()) for name, one in asked.items()]


async def test_postings_wait_while_nats_is_away_and_go_out_when_it_is_back(own_nats: NatsServer) -> None:
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="console")
    try:
        await own_nats.kill()
        key, _ = await in_thread(keys.create, ME, keys.KeyGrant(name="a"))
        publisher = Publisher(bus, 0.1)
        with pytest.raises(Unavailable):
            await publisher.publish_due()
        entry = await in_thread(OutboxEntry.objects.get, key=key.id)
        assert entry.published_at is None
        assert entry.last_error
        back = asyncio.Event()
        bus.on_reconnect(back.set)
        await own_nats.restart()
        async with asyncio.timeout(60):
            await back.wait()
        assert await publisher.publish_due() == 1
        assert await document(bus, Bucket.KEYS, key.id)
    finally:
        await bus.close()


async def test_what_waits_says_since_when_so_that_a_page_does_not_tell_it_anew() -> None:
    at = datetime(2026, 11, 23, 10, 2, 3, tzinfo=UTC)
    entry = OutboxEntry(kind=OutboxEntry.CANCEL, key="j", created_at=at)
    assert why_waiting(entry) == "it has waited since 10:02:03 UTC; does the controller run?"


async def test_a_failed_act_posts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "inspect", lambda _: FOUND)
    monkeypatch.setattr(publishing, "post_document", _explode)
    with pytest.raises(RuntimeError):
        await in_thread(registration.register, ME, "m", str(half_plus_two().parent))
    assert not await in_thread(OutboxEntry.objects.exists)
    with pytest.raises(messages_not_found()):
        await in_thread(lookup.find, "m")


def _explode(*_: Any, **__: Any) -> None:
    raise RuntimeError


def messages_not_found() -> type[Exception]:
    """The error for a model that is not there."""
    from signalbox.program.errors import NotFound

    return NotFound


async def queue_job(bus: Bus, model: str = "m") -> messages.Job:
    """One accepted job, as a gateway writes it."""
    job = messages.Job(
        id="00000000-0000-4000-8000-000000000001",
        model=model,
        version=1,
        signature="s",
        account_id="k",
        created_at=1000.0,
        deadline_at=2000.0,
    )
    await bus.write(
        names.job(model, "mid", job.account_id, job.id), b"", headers={Header.JOB: messages.header(job)}, expect=0
    )
    return job


async def test_cancelling_a_queued_job_ends_it_and_a_worker_receives(bus: Bus) -> None:
    from console.outbox.services import post

    job = await queue_job(bus)
    received = asyncio.Event()
    listening = await bus.subscribe(names.cancel(job.id), lambda _: received.set())
    await in_thread(post, OutboxEntry(kind=OutboxEntry.CANCEL, key=job.id))
    await Publisher(bus, 5).publish_due()
    found = await Records(bus).read(job.id)
    assert found is not None
    assert found[0].state is State.CANCELLED
    assert found[0].error is not None
    assert found[0].error.message == "Cancelled by an operator."
    async with asyncio.timeout(60):
        await received.wait()
    await listening.close()


async def test_cancelling_a_running_job_asks_its_holder_and_a_finished_one_stays_as_it_is(bus: Bus) -> None:
    from console.outbox.services import post

    records = Records(bus)
    running = Record(
        id="00000000-0000-4000-8000-000000000002",
        model="m",
        version=1,
        signature="s",
        account_id="k",
        state=State.RUNNING,
        attempt=1,
        created_at=1.0,
        deadline_at=2.0,
    )
    await records.write(running, expect=0)
    await in_thread(post, OutboxEntry(kind=OutboxEntry.CANCEL, key=running.id))
    await Publisher(bus, 5).publish_due()
    found = await records.read(running.id)
    assert found is not None
    assert found[0].cancel_requested
    assert found[0].state is State.RUNNING
    ended = life.cancelled(found[0], now=3.0)  # as its holder ends it
    assert ended.error is not None
    assert ended.error.message == "Cancelled by an operator."
    done = messages.Record(**{f: getattr(running, f) for f in running.__struct_fields__} | {"state": State.SUCCEEDED})
    revision = await records.write(done, b"result", expect=found[1])
    await in_thread(post, OutboxEntry(kind=OutboxEntry.CANCEL, key=running.id))
    await Publisher(bus, 5).publish_due()
    after = await records.read(running.id)
    assert after is not None
    assert (after[0].state, after[1], after[2]) == (State.SUCCEEDED, revision, b"result")
    assert await in_thread(ApiKey.objects.count) == 0
