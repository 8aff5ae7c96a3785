"""Jobs are added up by the minute in which they ended, each once, whatever is read again."""

import asyncio
import math
from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from console.jobs import retention
from console.jobs.fold import JobMessage
from console.projector import store
from console.rollups import adding, buckets, reading
from console.rollups.models import HOUR_S, MINUTE_S, Minute
from signalbox.bus.client import Bus
from signalbox.jobs import deletion, life
from signalbox.jobs.records import Records
from signalbox.program.errors import InvalidRequest
from signalbox.wire.messages import ErrorInfo, Record, State
from tests.console.conftest import in_thread
from tests.console.test_projector import NOW, accept, accepted, projecting, run_job, states, until

pytestmark = pytest.mark.django_db(transaction=True)
BEGAN = 1_795_000_000 // HOUR_S * HOUR_S


def ended(number: int, state: State = State.SUCCEEDED, **changes: object) -> Record:
    """A job of a test that has ended."""
    record = life.first_record(accepted(number, created_at=BEGAN), state)
    facts: dict[str, object] = {"attempt": 1, "batch": 4, "parts": {"queue": 40.0, "run": 20.0, "commit": 3.0}}
    return replace(record, size_bytes=16, finished_at=BEGAN + 1.0, **(facts | changes))


def message(record: Record, seq: int, at: float = BEGAN + 1.0) -> JobMessage:
    """It, as STATE has it."""
    return JobMessage(at, seq, record)


def instant(at: float) -> datetime:
    """A UTC second, as the readers take it."""
    return datetime.fromtimestamp(at, UTC)


@pytest.fixture(autouse=True)
def then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs ended a moment ago."""
    monkeypatch.setattr(store, "_clock", lambda: BEGAN + 90.0)


def failure(number: int) -> Record:
    """A job that failed in its second attempt."""
    error = ErrorInfo(code="model_error", message="No.")
    return ended(number, State.FAILED, attempt=2, error=error, parts={"load": 500.0, "run": 8.0}, batch=1)


def test_every_column_is_the_sum_of_the_jobs_of_its_minute_model_version_and_account() -> None:
    store.apply([message(ended(1), 1), message(ended(2), 2), message(failure(3), 3)], 3)
    store.apply([message(ended(4, version=4), 4), message(ended(5), 5, BEGAN + 61.0)], 5)
    row = Minute.objects.get(minute=BEGAN, version=3)
    assert (row.model, row.account_id, row.span_s) == ("digits", "shop", MINUTE_S)
    assert (row.succeeded, row.failed, row.cancelled, row.expired, row.retried) == (2, 1, 0, 0, 1)
    assert (row.bytes_in, row.bytes_out, row.device_ms) == (192, 48, 20 / 4 * 2 + 8)
    assert row.parts == {"queue": 80.0, "run": 48.0, "commit": 6.0, "load": 500.0}
    assert row.waits == {str(buckets.bucket(40.0)): 2, str(buckets.bucket(500.0)): 1}
    assert row.runs == {str(buckets.bucket(20.0)): 2, str(buckets.bucket(8.0)): 1}
    assert sorted(Minute.objects.values_list("minute", "version")) == [(BEGAN, 3), (BEGAN, 4), (BEGAN + 60, 3)]


def test_later_batches_of_a_minute_are_added_to_its_row() -> None:
    for seq in range(1, 6):
        store.apply([message(ended(seq), seq)], seq)
    row = Minute.objects.get()
    assert (row.succeeded, row.waits) == (5, {str(buckets.bucket(40.0)): 5})


def test_records_that_another_projector_has_read_are_added_up_once() -> None:
    batch = [message(ended(1), 1), message(ended(2), 2)]
    assert store.apply(batch, 2) == 2
    assert store.apply([*batch, message(ended(3), 3)], 3) == 1
    assert Minute.objects.get().succeeded == 3


def test_open_jobs_are_not_added_up_and_a_batch_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store.apply([message(ended(1, State.RUNNING), 1), JobMessage.accepted(accepted(2), BEGAN)], 1)
    assert not Minute.objects.exists()

    def failing(*_: object) -> None:
        raise DatabaseError("full")

    monkeypatch.setattr(store, "_add", failing)
    with pytest.raises(DatabaseError, match="full"):
        store.apply([message(ended(1), 2)], 2)
    assert (store.read_cursor().seq, states()) == (1, {ended(1).id: "running", ended(2).id: "queued"})


def test_a_stream_that_is_read_from_its_beginning_adds_up_only_what_had_not_ended() -> None:
    store.begin("one", 0)
    store.apply([message(ended(1), 1), message(ended(2, State.RUNNING), 2), message(ended(3), 3)], 3)
    store.begin("another", 4)
    again = [message(ended(1), 1), message(ended(2), 2), message(ended(3), 3), message(ended(4), 4)]
    store.apply(again[:2], 2)
    store.begin("another", 4)  # it was interrupted
    store.apply(again, 4)
    store.apply([message(ended(5), 5)], 5)
    assert Minute.objects.get().succeeded == 5


def test_a_job_whose_row_was_deleted_as_too_old_is_not_added_up_again() -> None:
    store.begin("one", 0)
    old = ended(1, created_at=BEGAN - 100.0)
    store.apply([message(old, 1), message(ended(2), 2)], 2)
    retention.delete([old.id])
    store.begin("another", 2)
    store.apply([message(old, 1), message(ended(2), 2)], 2)
    assert Minute.objects.get().succeeded == 2


def test_a_first_start_adds_up_all_that_ended_of_late_and_nothing_of_long_ago() -> None:
    store.begin("one", 3)
    long_ago = BEGAN - adding.HOURS_KEPT_S - HOUR_S
    days_ago = BEGAN - adding.MINUTES_KEPT_S - HOUR_S
    store.apply([message(ended(1), 1, long_ago), message(ended(2), 2, days_ago + 130), message(ended(3), 3)], 3)
    assert sorted(Minute.objects.values_list("minute", "span_s")) == [(days_ago, HOUR_S), (BEGAN, MINUTE_S)]


async def test_a_job_that_its_owner_deletes_stays_added_up_once(bus: Bus) -> None:
    job, records = accepted(1), Records(bus)
    async with projecting(bus):
        await accept(bus, job)
        await run_job(bus, job)
        await until(lambda: states() == {job.id: "succeeded"})
        found = await records.find(job.id)
        assert found is not None
        await deletion.delete(records, found, clock=lambda: NOW + 9)
        await until(lambda: not states())
    assert await in_thread(lambda: [row.succeeded for row in Minute.objects.all()]) == [1]


async def test_two_projectors_at_once_add_each_job_up_once(bus: Bus, wire: object) -> None:
    other = await Bus.connect(wire, role="console")  # type: ignore[arg-type]
    jobs = [accepted(number) for number in range(1, 61)]
    try:
        async with projecting(bus, batch=3), projecting(other, batch=3):
            for job in jobs:
                await accept(bus, job)
                await run_job(bus, job)
                await asyncio.sleep(0.01)  # spreads the records over sweeps of both
            await until(lambda: list(states().values()) == ["succeeded"] * 60)
    finally:
        await other.close()
    assert await in_thread(lambda: sum(row.succeeded for row in Minute.objects.all())) == 60


def test_minutes_become_hours_and_hours_go_and_nothing_is_lost_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "CHUNK", 4)
    batch = [message(ended(seq), seq, BEGAN + 60.0 * seq) for seq in range(1, 11)]
    store.apply(batch, 10)
    assert store.tidy() == 0
    later = BEGAN + HOUR_S + adding.MINUTES_KEPT_S + 1.0
    monkeypatch.setattr(store, "_clock", lambda: later)
    store.apply([message(ended(11), 11, BEGAN + 5.0)], 11)  # late: added to the hour at once
    assert [store.tidy() for _ in range(4)] == [4, 4, 2, 0]
    row = Minute.objects.get()
    assert (row.minute, row.span_s, row.succeeded) == (BEGAN, HOUR_S, 11)
    assert row.waits == {str(buckets.bucket(40.0)): 11}
    monkeypatch.setattr(store, "_clock", lambda: BEGAN + adding.HOURS_KEPT_S + 1.0)
    assert store.tidy() == 1
    assert not Minute.objects.exists()


def test_versions_are_read_with_rates_percentiles_and_every_step() -> None:
    fast = [message(ended(n, parts={"queue": 1.0, "run": 10.0}), n) for n in range(1, 99)]
    slow = [message(ended(n, parts={"queue": 1.0, "run": 1000.0}), n, BEGAN + 65.0) for n in range(99, 101)]
    store.apply([*fast, *slow, message(ended(101, version=4), 101)], 101)
    newest, older = reading.versions("digits", instant(BEGAN), instant(BEGAN + 120))
    assert (newest.version, older.version, newest.jobs, older.jobs) == (4, 3, 1, 100)
    assert [point.jobs for point in older.points] == [98, 2]
    p50, p99 = older.run_ms
    assert p50 == pytest.approx(10, rel=0.1)
    assert p99 == pytest.approx(1000, rel=0.1)
    assert older.per_s == pytest.approx(100 / 120)
    assert list(older.parts) == ["queue", "run"]
    assert reading.versions("other", instant(BEGAN), instant(BEGAN + 120)) == []


def test_the_use_of_an_account_has_every_step_and_that_of_all_is_a_table() -> None:
    theirs = ended(3, account_id="lab", batch=1)
    store.apply([message(ended(1), 1), message(failure(2), 2, BEGAN + 70.0), message(theirs, 3)], 3)
    first, second, third = reading.account("shop", instant(BEGAN), instant(BEGAN + 180), 60)
    assert (first.at, first.jobs, first.failed, first.bytes_in) == (instant(BEGAN), 1, 0, 64)
    assert (second.jobs, second.failed, second.device_s, third.jobs) == (1, 1, 0.008, 0)
    assert [one.jobs for one in reading.account("shop", instant(BEGAN), instant(BEGAN + HOUR_S), HOUR_S)] == [2]
    everyone = reading.accounts(instant(BEGAN), instant(BEGAN + 180))
    assert [(name, use.jobs) for name, use in everyone.items()] == [("lab", 1), ("shop", 2)]
    with pytest.raises(InvalidRequest, match="longer steps"):
        reading.account("shop", instant(BEGAN), instant(BEGAN) + timedelta(days=30), 60)


@given(st.lists(st.floats(0.2, 1e8), min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_of_merged_histograms_is_near_that_of_all_values(values: list[float], share: float) -> None:
    merged: buckets.Histogram = {}
    for value in values:
        buckets.merge(merged, {str(buckets.bucket(value)): 1})
    exact = sorted(values)[math.ceil(share * len(values)) - 1]
    [found] = buckets.percentiles(merged, [share])
    assert found == pytest.approx(exact, rel=0.1)


def test_what_is_in_no_bucket_of_its_own_is_in_the_nearest() -> None:
    assert [buckets.bucket(ms) for ms in (-1.0, 0.0, 0.125, 1e300)] == [0, 0, 0, buckets.LAST]
    assert buckets.percentiles({}, [0.5]) == [None]
