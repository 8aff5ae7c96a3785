"""The projector against a real nats-server: rows follow records, replays and gaps change nothing."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection
from django.test import AsyncClient
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from console.accounts.models import User
from console.accounts.roles import sync_groups
from console.jobs import services, standing, timeline
from console.jobs.fold import JobMessage, fold
from console.jobs.models import Job, JobEvent, JobTag
from console.live.lifespan import lifespan
from console.projector import store
from console.projector.models import Cursor
from console.projector.reader import EVERY_S, Projector
from signalbox.bus.client import Bus
from signalbox.bus.pull import Delivery
from signalbox.jobs import deletion, delivery, life
from signalbox.jobs.cursor import StreamCursor
from signalbox.jobs.penalty import Penalty
from signalbox.jobs.records import Records
from signalbox.program.errors import Conflict, NotFound
from signalbox.program.settings import Wire
from signalbox.wire import messages, names
from signalbox.wire.messages import ErrorInfo, Record
from signalbox.wire.names import Header, Stream
from tests.console.conftest import in_thread
from tests.rigs.natsserver import NatsServer

pytestmark = pytest.mark.django_db(transaction=True)
NOW = 1_800_000_000.0


def accepted(number: int, **changes: Any) -> messages.Job:
    """A job of a test, its id made from a number."""
    job = messages.Job(
        id=f"00000000-0000-4000-8000-{number:012x}",
        model="digits",
        version=3,
        signature="serving_default",
        account_id="shop",
        key_id="key1",
        created_at=NOW,
        deadline_at=NOW + 900,
        size_bytes=64,
    )
    return replace(job, **changes)


async def accept(bus: Bus, job: messages.Job) -> None:
    """What a gateway writes."""
    await bus.write(
        names.job(job.model, job.priority, job.account_id, job.id),
        b"input",
        headers={Header.JOB: messages.header(job)},
        expect=0,
    )


async def run_job(bus: Bus, job: messages.Job) -> Record:
    """What a worker writes: claim, then success."""
    records = Records(bus)
    running = life.claimed(job, None, worker="w1", gpu="GPU-1", token=7, now=NOW + 0.1)
    revision = await records.write(running, expect=0)
    done = life.succeeded(running, now=NOW + 0.5, stages=[("run", NOW + 0.15)], batch=4, size_bytes=16)
    await records.write(done, b"output", expect=revision)
    return done


@contextlib.asynccontextmanager
async def projecting(bus: Bus, batch: int = 100) -> AsyncIterator[Projector]:
    """A running projector."""
    projector = Projector(bus, batch)
    task = asyncio.create_task(projector.run())
    try:
        yield projector
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(condition: Any, *args: Any) -> None:
    """Wait until a database condition holds; bounded by the test's own timeout."""
    async with asyncio.timeout(60):
        while not await in_thread(condition, *args):  # noqa: ASYNC110  a database has no event to wait for
            await asyncio.sleep(0.02)


def states() -> dict[str, str]:
    """Every job row's state."""
    return dict(Job.objects.values_list("pk", "state"))


async def test_a_job_s_whole_life_becomes_one_row_and_a_story(bus: Bus) -> None:
    job = accepted(1)
    async with projecting(bus):
        await accept(bus, job)
        await run_job(bus, job)
        await until(lambda: states() == {job.id: "succeeded"})
    row = await in_thread(Job.objects.get, pk=job.id)
    assert (row.model, row.version, row.worker, row.gpu) == ("digits", 3, "w1", "GPU-1")
    assert (row.account_id, row.key_id) == ("shop", "key1")
    assert (row.attempt, row.token, row.batch, row.size_in, row.size_out) == (1, 7, 4, 64, 16)
    assert standing.spent(row) == (150.0, 350.0, 500.0)
    events = await in_thread(services.events, row)
    assert events[-1].state == "succeeded"
    # Whether the claim was read before the end overwrote it or not.
    assert [step.what for step in timeline.steps(row, events)] == [
        "Accepted and queued",
        "Attempt 1 on w1",
        "Run began",
        "Succeeded",
    ]


async def test_an_owner_s_deletion_takes_the_row_away_also_where_the_projector_was_away(bus: Bus) -> None:
    first, second, records = accepted(1), accepted(2), Records(bus)

    async def delete(job: messages.Job) -> None:
        found = await records.find(job.id)
        assert found is not None
        await deletion.delete(records, found, clock=lambda: NOW + 9)

    async with projecting(bus):
        for job in (first, second):
            await accept(bus, job)
            await run_job(bus, job)
        await until(lambda: states() == {first.id: "succeeded", second.id: "succeeded"})
        await delete(first)
        await until(lambda: states() == {second.id: "succeeded"})
    await delete(second)
    async with projecting(bus):
        await until(lambda: not states())


async def test_a_revision_that_stays_is_kept_as_an_event(bus: Bus) -> None:
    job, records = accepted(1), Records(bus)
    running = life.claimed(job, None, worker="w1", gpu="GPU-1", token=7, now=NOW + 0.1)
    async with projecting(bus):
        await accept(bus, job)
        revision = await records.write(running, expect=0)
        await until(lambda: states() == {job.id: "running"})
        await records.write(life.cancelled(running, now=NOW + 0.5), expect=revision)
        await until(lambda: states() == {job.id: "cancelled"})
    row = await in_thread(Job.objects.get)
    assert [event.state for event in await in_thread(services.events, row)] == ["running", "cancelled"]


async def test_neither_inputs_nor_results_pass_through_the_projector(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []
    take = StreamCursor._take

    def listening(cursor: StreamCursor, delivery: Delivery) -> None:
        taken.append(delivery.data)
        take(cursor, delivery)

    monkeypatch.setattr(StreamCursor, "_take", listening)
    job = accepted(2)
    async with projecting(bus) as projector:
        async with asyncio.timeout(60):
            await projector.caught_up.wait()
        await accept(bus, job)
        await run_job(bus, job)
        await until(lambda: states() == {job.id: "succeeded"})
    assert taken
    assert not any(taken)


async def test_a_projector_that_stopped_goes_on_where_the_tables_end(bus: Bus) -> None:
    first, second = accepted(1), accepted(2)
    async with projecting(bus):
        await accept(bus, first)
        await until(lambda: states() == {first.id: "queued"})
    await run_job(bus, first)
    await accept(bus, second)
    async with projecting(bus):
        await until(lambda: states() == {first.id: "succeeded", second.id: "queued"})
    assert await in_thread(lambda: Cursor.objects.get().resyncs) == 1


async def test_reading_every_record_twice_changes_nothing(bus: Bus) -> None:
    jobs = [accepted(n) for n in range(1, 6)]
    async with projecting(bus, batch=3):
        for job in jobs:
            await accept(bus, job)
            await run_job(bus, job)
        await until(lambda: list(states().values()) == ["succeeded"] * 5)

    def everything() -> list[Any]:
        return [*Job.objects.order_by("pk").values(), *JobEvent.objects.order_by("pk").values()]

    before, end = await in_thread(everything), (await in_thread(store.read_cursor)).seq
    assert end > 0
    await in_thread(lambda: Cursor.objects.update(seq=0))
    async with projecting(bus, batch=2):
        await until(lambda: store.read_cursor().seq == end)
    assert await in_thread(everything) == before


async def test_what_happened_without_a_projector_is_read_when_it_is_back(bus: Bus) -> None:
    first, finished, waiting = accepted(1), accepted(2), accepted(3)
    async with projecting(bus):
        await accept(bus, first)
        await until(lambda: states() == {first.id: "queued"})
    await run_job(bus, first)
    await accept(bus, finished)
    await run_job(bus, finished)
    await accept(bus, waiting)
    async with projecting(bus):
        await until(lambda: states() == {first.id: "succeeded", finished.id: "succeeded", waiting.id: "queued"})
    assert await in_thread(lambda: Cursor.objects.get().resyncs) == 1


async def test_another_stream_of_records_is_read_from_its_beginning(bus: Bus) -> None:
    """As after a STATE made anew, or a cursor that counted in a stream of an earlier version."""
    ended, open_one = accepted(1), accepted(2)
    for job in (ended, open_one):
        await accept(bus, job)
    await run_job(bus, ended)
    async with projecting(bus):
        await until(lambda: states() == {ended.id: "succeeded", open_one.id: "queued"})
    await in_thread(lambda: Cursor.objects.update(stream_created="another", seq=10**9))
    await in_thread(lambda: Job.objects.update(revision=10**9))
    await run_job(bus, open_one)
    async with projecting(bus):
        await until(lambda: states() == {ended.id: "succeeded", open_one.id: "succeeded"})
    assert await in_thread(lambda: Cursor.objects.get().resyncs) == 2
    last = (await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.STATE}"))["state"]["last_seq"]
    assert await in_thread(lambda: Cursor.objects.get().seq) == last
    assert await in_thread(lambda: Job.objects.get(pk=open_one.id).revision) == last


async def test_a_cursor_beyond_the_end_of_its_stream_begins_again(bus: Bus) -> None:
    job = accepted(1)
    async with projecting(bus):
        await accept(bus, job)
        await until(lambda: states() == {job.id: "queued"})
    await in_thread(lambda: Cursor.objects.update(seq=10**9))
    await run_job(bus, job)
    async with projecting(bus):
        await until(lambda: states() == {job.id: "succeeded"})


async def test_records_taken_when_the_database_failed_are_read_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    apply, calls = store.apply, 0

    def failing_first(received: Sequence[JobMessage], *upto: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise DatabaseError
        return apply(received, *upto)

    monkeypatch.setattr(store, "apply", failing_first)
    job = accepted(1)
    await run_job(bus, job)
    async with projecting(bus):
        await until(lambda: states() == {job.id: "succeeded"})
    assert calls > 1


async def test_a_server_that_restarts_costs_nothing_but_the_time(own_nats: NatsServer) -> None:
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    try:
        first, second, third = accepted(1), accepted(2), accepted(3)
        async with projecting(bus):
            await accept(bus, first)
            await accept(bus, second)
            await until(lambda: states() == {first.id: "queued", second.id: "queued"})
            back = asyncio.Event()
            bus.on_reconnect(back.set)
            await own_nats.kill()
            await own_nats.restart()
            async with asyncio.timeout(60):
                await back.wait()
            await run_job(bus, first)
            await until(lambda: states().get(first.id) == "succeeded")
            await accept(bus, third)
            await until(lambda: states() == {first.id: "succeeded", second.id: "queued", third.id: "queued"})
    finally:
        await bus.close()


async def test_every_queued_job_has_a_row_however_long_the_queue_was_without_a_projector(bus: Bus) -> None:
    jobs = [accepted(n) for n in range(1, 8)]
    for job in jobs:
        await accept(bus, job)
    async with projecting(bus, batch=3):
        await until(lambda: states() == {job.id: "queued" for job in jobs})
    assert await in_thread(lambda: {row.size_in for row in Job.objects.all()}) == {64}
    later = accepted(8)
    await accept(bus, later)
    await in_thread(Job.objects.all().delete)
    async with projecting(bus):  # goes on in the queue too, where the tables end
        await until(lambda: states() == {later.id: "queued"})


async def test_rows_are_written_once_a_second_and_a_job_that_ended_meanwhile_once(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[tuple[float, list[str]]] = []
    apply = store.apply

    def noting(received: Sequence[JobMessage], *upto: int) -> int:
        states: list[str] = [one.record.state for one in received]
        writes.append((time.monotonic(), states))
        return apply(received, *upto)

    monkeypatch.setattr(store, "apply", noting)
    async with projecting(bus) as projector:
        async with asyncio.timeout(60):
            await projector.caught_up.wait()
        jobs = [accepted(n) for n in range(1, 21)]
        began = time.monotonic()
        for job in jobs:
            await accept(bus, job)
            await run_job(bus, job)
        await until(lambda: states() == {job.id: "succeeded" for job in jobs})
    # By their number: what is read before a write takes its time, on a busy machine now more and now less.
    assert (len(writes) - 1) * EVERY_S <= writes[-1][0] - began
    assert not await in_thread(JobEvent.objects.filter(state="succeeded").exists)


async def test_two_projectors_at_once_lose_nothing(bus: Bus, wire: Wire) -> None:
    """They read through one name, so that one may be dealt what the other asked for."""
    other = await Bus.connect(wire, role="console")
    jobs = [accepted(n) for n in range(1, 121)]
    try:
        async with projecting(bus, batch=3), projecting(other, batch=3):
            for job in jobs:
                await accept(bus, job)
                await run_job(bus, job)
                await asyncio.sleep(0.02)  # spreads the records over many sweeps of both
            last = (await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.STATE}"))["state"]
            await until(lambda: store.read_cursor().seq == last["last_seq"])
    finally:
        await other.close()
    assert await in_thread(states) == {job.id: "succeeded" for job in jobs}


async def some(cursor: StreamCursor, limit: int) -> list[Delivery]:
    """What the first sweep finds that finds anything: a consumer learns of a message a moment after its writer."""
    async with asyncio.timeout(60):
        while not (found := await cursor.sweep(limit)):
            pass
    return found


@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_delivery_that_another_reader_was_given_refuses_the_sweep(bus: Bus, *, is_watched: bool) -> None:
    mine, other = (StreamCursor(bus, Stream.STATE, names.PROJECTOR, is_watched=is_watched) for _ in range(2))
    try:
        await mine.open(1)
        await run_job(bus, accepted(1))
        assert len(await some(mine, 5)) == 1
        await other.open(1)  # through the same name: mine is gone
        await run_job(bus, accepted(2))
        with pytest.raises(Conflict, match="Another projector"):
            await some(mine, 1)  # number 1 of the other's
        with pytest.raises(Conflict, match="Another projector"):
            await some(other, 5)  # number 2 is its first
    finally:
        await mine.close()
        await other.close()


async def test_records_are_read_where_the_queue_takes_no_more_consumers(own_nats: NatsServer) -> None:
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    try:
        config = (await bus.request_json("$JS.API.STREAM.INFO.JOBS"))["config"]
        await bus.request_json("$JS.API.STREAM.DELETE.JOBS")
        await bus.request_json("$JS.API.STREAM.CREATE.JOBS", config | {"max_consumers": 3})
        await delivery.find_all(bus, "digits", 0)
        job = accepted(1)
        async with projecting(bus):
            await run_job(bus, job)
            await until(lambda: states() == {job.id: "succeeded"})
    finally:
        await bus.close()


async def test_a_job_without_a_row_yet_has_a_page_all_the_same(bus: Bus, nats: NatsServer) -> None:
    queued, ended, unknown = accepted(1), accepted(2), accepted(3)
    await accept(bus, queued)
    await accept(bus, ended)
    done = await run_job(bus, ended)
    await in_thread(sync_groups)
    viewer = await in_thread(lambda: User.objects.create(username="viewer"))
    await in_thread(lambda: viewer.groups.set([Group.objects.get(name="viewer")]))
    feed = await lifespan.start(Wire(nats_url=nats.url))
    try:
        async with asyncio.timeout(60):
            await feed.synced.wait()
        waiting = await in_thread(services.find, queued.id)
        assert (waiting.state, waiting.size_in, waiting.created_at.timestamp()) == ("queued", 64, NOW)
        found = await in_thread(services.find, ended.id)
        assert (found.state, found.phases, found.size_out) == ("succeeded", done.phases, 16)
        assert [e.state for e in await in_thread(services.events, found)] == ["succeeded"]
        client = AsyncClient()
        await client.aforce_login(viewer)
        for job, words in ((queued, b"Accepted and queued"), (ended, b"Attempt 1 on w1")):
            page = await client.get(f"/jobs/{job.id}")
            assert page.status_code == 200
            assert words in page.content
        assert (await client.get(f"/jobs/{unknown.id}")).status_code == 404
        for job_id in (unknown.id, "*", "a.b"):
            with pytest.raises(NotFound, match="neither the job list nor NATS"):
                await in_thread(services.find, job_id)
    finally:
        await lifespan.stop()
    assert not await in_thread(Job.objects.exists)


async def test_a_second_projector_takes_over_and_the_first_goes_on_after_it(bus: Bus) -> None:
    jobs = [accepted(n) for n in range(1, 5)]
    async with projecting(bus) as first:
        async with asyncio.timeout(60):
            await first.caught_up.wait()
        async with projecting(bus):
            for job in jobs[:2]:
                await accept(bus, job)
                await run_job(bus, job)
            await until(lambda: states() == {job.id: "succeeded" for job in jobs[:2]})
        for job in jobs[2:]:
            await accept(bus, job)
            await run_job(bus, job)
        await until(lambda: states() == {job.id: "succeeded" for job in jobs})


async def test_an_acceptance_is_shown_before_anybody_claims_the_job(bus: Bus) -> None:
    job = accepted(1)
    async with projecting(bus) as projector:
        async with asyncio.timeout(60):
            await projector.caught_up.wait()
        await accept(bus, job)
        await until(lambda: states() == {job.id: "queued"})


@given(st.floats(min_value=0, max_value=4e9), st.integers(0, 10**6))
def test_instants_are_written_to_sqlite_as_django_writes_them(at: float, micros: int) -> None:
    for instant in (at, float(int(at)), int(at) + micros / 10**6):
        aware = datetime.fromtimestamp(round(instant * 10**6) / 10**6, tz=UTC)
        ours = store.sqlite_time(instant)
        assert ours == str(aware.replace(tzinfo=None))


def received(record: Record, revision: int) -> JobMessage:
    """A record as it is read."""
    return JobMessage(NOW, revision, record)


def test_an_older_record_never_overwrites_a_newer_one() -> None:
    job = accepted(1)
    running = life.claimed(job, None, worker="w1", gpu="g", token=1, now=NOW)
    done = life.succeeded(running, now=NOW + 1, batch=1, size_bytes=1)
    rows = fold([received(done, 9), received(running, 8), JobMessage.accepted(job, NOW)])
    assert rows.recorded[job.id]["state"] == "succeeded"
    assert rows.recorded[job.id]["size_in"] == 64
    assert not rows.accepted
    assert not rows.events  # the end tells the claim


def test_neither_a_late_record_nor_a_late_acceptance_sets_a_stored_row_back() -> None:
    job = accepted(1)
    running = life.claimed(job, None, worker="w1", gpu="g", token=1, now=NOW)
    done = life.succeeded(running, now=NOW + 1, batch=1, size_bytes=1)
    store.write([received(done, 9)])
    store.write([received(running, 8)])
    store.write([JobMessage.accepted(job, NOW)])
    row = Job.objects.get()
    assert (row.state, row.revision, row.size_in) == ("succeeded", 9, 64)
    assert row.finished_at is not None
    assert row.finished_at.timestamp() == NOW + 1
    again = Job.objects.filter(created_at=row.created_at, phases__done__gte=1)
    assert again.count() == 1


def test_lost_attempts_their_errors_and_requests_to_cancel_are_kept_as_events() -> None:
    job = accepted(1)
    running = life.claimed(job, None, worker="w1", gpu="g", token=1, now=NOW)
    error = ErrorInfo(code="runner_crashed", message="The process died.")
    again = life.requeued(running, error, now=NOW, penalty=Penalty.STRIKE)
    second = life.claimed(job, again, worker="w2", gpu="g", token=2, now=NOW + 1)
    asked = life.cancel_asked(second)
    end = life.cancelled(asked, now=NOW + 2)
    rows = fold([received(r, n) for n, r in enumerate((running, again, second, asked, end), 1)])
    assert rows.recorded[job.id]["strikes"] == 1
    assert [(event["seq"], event["attempt"], event["state"]) for event in rows.events] == [
        (1, 1, "running"),
        (2, 1, "queued"),
        (4, 2, "running"),
    ]
    assert rows.events[1]["error_code"] == "runner_crashed"
    assert rows.events[2]["is_cancel_asked"]


def test_two_projectors_take_turns_and_write_each_record_once() -> None:
    claims = [received(life.claimed(accepted(n), None, worker="w1", gpu="g", token=1, now=NOW), n) for n in range(1, 6)]
    assert store.apply(claims[:4], 4) == 4
    assert store.apply(claims[:4], 4) == 0
    assert store.apply(claims[3:], 5) == 1
    assert JobEvent.objects.count() == 5
    assert store.read_cursor().seq == 5


def test_a_deleted_job_takes_its_row_and_its_events_away_and_does_not_come_back() -> None:
    old, other = accepted(1, tags=("secret",)), accepted(2)
    running = life.claimed(old, None, worker="w1", gpu="g", token=1, now=NOW)
    again = life.requeued(running, ErrorInfo(code="runner_crashed", message="a secret"), now=NOW)
    end = life.failed(again, ErrorInfo(code="model_error", message="a secret"), now=NOW)
    store.apply(
        [JobMessage.accepted(old, NOW), JobMessage.accepted(other, NOW), received(again, 2), received(end, 3)], 3
    )
    assert (JobEvent.objects.count(), JobTag.objects.count()) == (1, 1)
    store.apply([received(life.deleted(end, now=NOW + 9), 4), JobMessage.accepted(old, NOW)], 4)
    assert states() == {other.id: "queued"}
    assert (JobEvent.objects.count(), JobTag.objects.count()) == (0, 0)
    store.write([received(life.deleted(end, now=NOW + 9), 4)])
    assert states() == {other.id: "queued"}
    rows = fold([received(running, 2), received(end, 3), received(life.deleted(end, now=NOW + 9), 4)])
    assert rows == ({}, {}, [], [old.id])


def test_an_acceptance_does_not_move_the_cursor() -> None:
    store.apply([JobMessage.accepted(accepted(1), NOW)], 0)
    store.apply([JobMessage.accepted(accepted(1), NOW)], 0)
    assert states() == {accepted(1).id: "queued"}
    assert store.read_cursor().seq == 0


def test_rows_written_in_one_transaction_with_the_cursor_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = life.claimed(accepted(1), None, worker="w1", gpu="g", token=1, now=NOW)
    broken = store.Statement("INSERT INTO no_such_table VALUES (%s)", "INSERT INTO no_such_table SELECT %s")
    monkeypatch.setattr(store, "_event_statement", lambda: broken)
    with pytest.raises(DatabaseError):
        store.apply([received(claim, 1)], 1)
    assert store.read_cursor().seq == 0
    assert not Job.objects.exists()
    assert connection.in_atomic_block is False
