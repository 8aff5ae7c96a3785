"""The reconciler against a real nats-server: what it ends, what it queues again, what it leaves alone."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.jobs import deadletters, deletion, life, payloads
from signalbox.jobs.records import Records
from signalbox.program.errors import Bug, NotFound, RunnerCrashed, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire import jobids, names
from signalbox.wire.duties import ReconcilerPosition
from signalbox.wire.messages import DeadLetter, ErrorInfo, Job, Record, State, decode, encode, header
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Bucket, Header, Stream
from signalbox.wire.roles import ROLES
from signalbox.wire.workerdocs import Device, Worker
from tests.rigs.natsserver import NatsServer
from tests.rigs.submit import Ledger, floats
from workers.host.quarantine import Quarantine
from workers.recovery import queued, undelivered
from workers.recovery import reconciler as reconcile
from workers.recovery.inputs import ORPHANED_S
from workers.recovery.reconciler import JobReconciler
from workers.recovery.walk import walk

GPU = "CPU-test-0"


def worker(worker_id: str, token: int) -> Worker:
    return Worker(
        id=worker_id,
        boot="b",
        host="h",
        pid=1,
        state="ready",
        started_at=0.0,
        beat_at=0.0,
        device=Device(id=GPU, kind="cpu", name="cpu"),
        token=token,
    )


class Rig:
    """A ledger, the records, and as many reconcilers as a test asks for."""

    def __init__(self, bus: Bus, ledger: Ledger) -> None:
        self.bus, self.ledger, self.records = bus, ledger, Records(bus)
        self.present: list[Worker] = []

    def reconciler(self, name: str = "w1", **more: Any) -> JobReconciler:
        settings: dict[str, Any] = {"settled_s": -60.0} | more
        return JobReconciler(
            self.bus, self.records, workers=lambda: self.present, models=dict, worker=name, boot=name, **settings
        )

    async def queue(self, *, late: bool = False, **more: Any) -> Job:
        now = time.time()
        job = self.ledger.job("half", floats(1.0), deadline_at=now - 60 if late else now + 900, **more)
        await self.bus.write(
            names.job("half", "mid", job.account_id, job.id),
            floats(1.0) if job.ref is None else b"",
            headers={Header.JOB: header(job)},
            expect=0,
        )
        return job

    async def claim(self, job: Job, worker_id: str = "gone", token: int = 7) -> int:
        record = life.claimed(job, None, worker=worker_id, gpu=GPU, token=token, now=time.time())
        return await self.records.write(record, expect=0)

    async def drop(self, job: Job) -> None:
        """The queue loses a job."""
        found = await self.records.queued(job.id)
        assert found is not None
        await self.bus.request_json(f"$JS.API.STREAM.MSG.DELETE.{Stream.JOBS}", {"seq": found.seq, "no_erase": True})

    async def record(self, job: Job) -> Record | None:
        found = await self.records.read(job.id)
        return found[0] if found is not None else None

    async def is_queued(self, job: Job) -> bool:
        return await self.records.queued(job.id) is not None


@pytest.fixture
async def rig(bus: Bus) -> Rig:
    return Rig(bus, await Ledger(bus).start())


async def test_a_job_beyond_its_deadline_ends_without_any_worker(rig: Rig) -> None:
    late, early = await rig.queue(late=True), await rig.queue()
    assert await rig.reconciler().turn()
    record = await rig.record(late)
    assert record is not None
    assert (record.state, record.attempt) == (State.EXPIRED, 0)
    assert not await rig.is_queued(late)
    assert await rig.record(early) is None
    assert await rig.is_queued(early)
    await rig.ledger.until(lambda: late.id in rig.ledger.reported)


async def test_a_queued_job_of_a_model_that_was_removed_ends_as_not_found_and_tells_its_caller(rig: Rig) -> None:
    gone = await rig.queue()
    assert await rig.reconciler(is_removed=lambda model: model != "half").turn()
    assert await rig.record(gone) is None
    assert await rig.reconciler("w2", is_removed=lambda model: model == "half").turn() is False
    first = rig.reconciler(is_removed=lambda model: model == "half")
    assert await first.turn()
    record = await rig.record(gone)
    assert record is not None
    assert record.error is not None
    assert (record.state, record.error.code) == (State.FAILED, NotFound.code)
    assert "The model half is not in the catalog any more" in record.error.message
    assert not await rig.is_queued(gone)
    await rig.ledger.until(lambda: gone.id in rig.ledger.reported)


async def test_a_job_that_runs_when_its_model_is_removed_is_left_to_its_worker(rig: Rig) -> None:
    job = await rig.queue()
    await rig.claim(job, "w9", 7)
    rig.present = [worker("w9", 7)]
    assert await rig.reconciler(is_removed=lambda _: True).turn()
    record = await rig.record(job)
    assert record is not None
    assert record.state is State.RUNNING
    assert await rig.is_queued(job)


async def test_reading_begins_anew_also_where_the_last_message_is_gone(rig: Rig) -> None:
    ahead_s = 0.0
    waiting, last = await rig.queue(), await rig.queue()
    await rig.drop(last)
    reconciler = rig.reconciler(clock=lambda: time.time() + ahead_s)
    await reconciler.turn()
    assert await rig.record(waiting) is None
    ahead_s = 2000.0
    for _ in range(2):
        await reconciler.turn()
    record = await rig.record(waiting)
    assert record is not None
    assert record.state is State.EXPIRED


async def test_a_job_that_waits_for_another_attempt_ends_at_its_deadline_too(rig: Rig) -> None:
    job = await rig.queue(late=True)
    await rig.records.write(life.first_record(job, State.QUEUED), expect=0)
    await rig.reconciler().turn()
    record = await rig.record(job)
    assert record is not None
    assert record.state is State.EXPIRED


async def test_a_run_nobody_finishes_fails_at_its_deadline(rig: Rig) -> None:
    late, early = await rig.queue(late=True), await rig.queue()
    await rig.claim(late)
    await rig.claim(early)
    await rig.reconciler().turn()
    record = await rig.record(late)
    assert record is not None
    assert record.error is not None
    assert (record.state, record.error.code) == (State.FAILED, "deadline_exceeded")
    assert not await rig.is_queued(late)
    still = await rig.record(early)
    assert still is not None
    assert still.state is State.RUNNING, "its delivery comes again: the queue's business"


async def test_a_run_whose_worker_holds_the_lease_is_left_to_it(rig: Rig) -> None:
    rig.present = [worker("busy", 7)]
    held, lost = await rig.queue(late=True), await rig.queue(late=True)
    await rig.claim(held, "busy", 7)
    await rig.claim(lost, "busy", 6)
    await rig.reconciler().turn()
    records = [await rig.record(job) for job in (held, lost)]
    assert [r.state for r in records if r is not None] == [State.RUNNING, State.FAILED]


async def test_a_cancelled_run_nobody_stops_ends_cancelled(rig: Rig) -> None:
    job = await rig.queue(late=True)
    revision = await rig.claim(job)
    found = await rig.record(job)
    assert found is not None
    await rig.records.write(life.cancel_asked(found), expect=revision)
    await rig.reconciler().turn()
    record = await rig.record(job)
    assert record is not None
    assert record.state is State.CANCELLED


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_job_the_queue_lost_is_queued_again_where_its_input_was_kept(rig: Rig, *, is_running: bool) -> None:
    job = rig.ledger.job("half", floats(1.0), outputs=("y",))
    ref = (await payloads.store_input(rig.bus, job, floats(1.0))).ref
    job = await rig.queue(id=job.id, ref=ref, outputs=("y",))
    if is_running:
        await rig.claim(job)
    else:
        await rig.records.write(life.first_record(job, State.QUEUED), expect=0)
    await rig.drop(job)
    await rig.reconciler().turn()
    record = await rig.record(job)
    assert record is not None
    assert (record.state, record.strikes) == (State.QUEUED, 0)
    assert (record.account_id, record.key_id) == ("test", "test key")
    found = await rig.records.queued(job.id)
    assert found is not None
    again = decode(Job, found.headers[Header.JOB])
    assert (again.account_id, again.key_id) == ("test", "test key")
    assert (again.ref, again.outputs, again.signature) == (ref, ("y",), job.signature)
    assert again.deadline_at == job.deadline_at


async def test_a_job_the_queue_lost_with_its_input_fails_and_says_so(rig: Rig) -> None:
    job = await rig.queue()
    await rig.claim(job)
    await rig.drop(job)
    await rig.reconciler().turn()
    record = await rig.record(job)
    assert record is not None
    assert record.error is not None
    assert (record.state, record.error.code) == (State.FAILED, "input_lost")
    assert "send it again" in record.error.message


async def test_a_whole_lost_queue_leaves_no_job_open(rig: Rig) -> None:
    first = rig.reconciler()
    await first.turn()
    jobs = [await rig.queue() for _ in range(5)]
    for job in jobs:
        await rig.claim(job)
    await rig.bus.request_json(f"$JS.API.STREAM.DELETE.{Stream.JOBS}")
    await topology.apply(rig.bus)
    await first.turn()
    records = [await rig.record(job) for job in jobs]
    assert {r.state for r in records if r is not None} == {State.FAILED}


async def test_a_young_record_is_its_workers_business(rig: Rig) -> None:
    job = await rig.queue()
    await rig.claim(job)
    await rig.drop(job)
    await rig.reconciler(settled_s=60.0).turn()
    record = await rig.record(job)
    assert record is not None
    assert record.state is State.RUNNING


async def test_a_job_that_ends_while_it_is_judged_keeps_its_end(rig: Rig) -> None:
    job = await rig.queue()
    revision = await rig.claim(job)
    await rig.drop(job)
    other = Records(rig.bus)
    queued = rig.records.queued

    async def ends_meanwhile(job_id: str) -> Any:
        found = await other.read(job_id)
        assert found is not None
        done = life.succeeded(found[0], now=time.time(), batch=1, size_bytes=5)
        await other.write(done, b"frame", expect=revision)
        return await queued(job_id)

    rig.records.queued = ends_meanwhile  # type: ignore[method-assign]  # the moment between two reads
    await rig.reconciler().turn()
    record = await rig.record(job)
    assert record is not None
    assert record.state is State.SUCCEEDED


async def test_an_open_record_that_could_not_be_read_stays_open(rig: Rig) -> None:
    job = await rig.queue()
    await rig.claim(job)
    reconciler = rig.reconciler()
    await reconciler.turn()
    read = rig.records.read

    async def fails(job_id: str) -> Any:
        raise Unavailable(f"NATS is away: {job_id}.")

    rig.records.read = fails  # type: ignore[method-assign]  # the moment NATS is away
    with pytest.raises(Unavailable):
        await reconciler.turn()
    rig.records.read = read  # type: ignore[method-assign]
    await rig.drop(job)
    await reconciler.turn()
    record = await rig.record(job)
    assert record is not None
    assert record.state is State.FAILED


async def test_one_does_it_and_who_comes_next_goes_on_where_it_was(rig: Rig) -> None:
    first, second = rig.reconciler("w1"), rig.reconciler("w2")
    job = await rig.queue()
    await rig.claim(job)
    assert await first.turn()
    assert not await second.turn()
    await first.close()
    await rig.drop(job)
    assert await second.turn()  # from the oldest open record, although that was read before
    record = await rig.record(job)
    assert record is not None
    assert record.state is State.FAILED
    assert not await first.turn()


async def test_who_dies_with_the_duty_is_followed_when_its_word_expires(rig: Rig) -> None:
    dead, heir = rig.reconciler("w1", period_s=0.4), rig.reconciler("w2")
    assert await dead.turn()
    async with asyncio.timeout(60):
        while True:
            if await heir.turn():
                break
            await asyncio.sleep(0.1)


async def test_a_turns_work_is_bounded_and_the_next_goes_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "MAX_CHECKED", 3)
    jobs = [await rig.queue(late=True) for _ in range(7)]
    reconciler = rig.reconciler()
    ended: list[int] = []
    for _ in range(3):
        await reconciler.turn()
        ended.append(sum([await rig.record(job) is not None for job in jobs]))
    assert ended == [3, 6, 7]


async def test_the_first_leader_ever_goes_on_where_it_was(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader lease says nothing of the streams before the first whole turn has ended."""
    monkeypatch.setattr(reconcile, "MAX_READ", 3)
    jobs = [await rig.queue() for _ in range(7)]
    for job in jobs:
        await rig.records.write(life.cancelled(life.first_record(job, State.QUEUED), now=time.time()), expect=0)
    ahead_s = 0.0
    reconciler = rig.reconciler(clock=lambda: time.time() + ahead_s)
    for _ in range(3):
        ahead_s += 60.0
        await reconciler.turn(is_whole=False)
    assert [await rig.is_queued(job) for job in jobs] == [False] * 7


async def test_the_next_leader_goes_on_where_the_last_one_was_however_long_there_was_none(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [await rig.queue() for _ in range(2)]
    for job in jobs:
        await rig.records.write(life.cancelled(life.first_record(job, State.QUEUED), now=time.time()), expect=0)
    later = time.time() + 600.0
    first = rig.reconciler(clock=lambda: later)
    await first.turn()
    await first.turn()
    await first.close()
    await rig.bus.request_json(f"$JS.API.STREAM.PURGE.{Bucket.DUTIES.stream}", {"filter": "$KV.duties.reconciler"})
    seen: list[int] = []

    async def watched(bus: Bus, stream: Stream, seq: int, *rest: Any) -> int:
        if stream is Stream.STATE:
            seen.append(seq)
        return await walk(bus, stream, seq, *rest)

    third = await rig.queue()
    last = await rig.records.write(life.cancelled(life.first_record(third, State.QUEUED), now=time.time()), expect=0)
    monkeypatch.setattr(reconcile, "walk", watched)
    await rig.reconciler(clock=lambda: later).turn()
    assert seen == [last]
    kept = await rig.bus.leader_get(Bucket.DUTIES.stream, "$KV.duties.position")
    assert kept is not None
    right = decode(ReconcilerPosition, kept.data)
    assert right.state_seq == last + 1
    for wrong in (replace(right, created="1970"), replace(right, state_seq=last + 2)):
        await rig.bus.write("$KV.duties.position", encode(wrong))
        await rig.reconciler(clock=lambda: later).turn()
    assert seen[1:] == [0, 0], "of other streams, or of one that has lost its end"


async def test_where_very_many_wait_only_whole_turns_look_for_jobs_that_no_worker_was_given(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queued, "DEEP", 2)
    monkeypatch.setattr(undelivered, "WAITED_S", 0.0)
    monkeypatch.setattr(undelivered, "MAX_READ", 1)
    asked: list[str] = []
    await rig.bus.subscribe(names.redeliver("*"), lambda message: asked.append(message.subject))

    async def turns(*, is_whole: bool) -> list[str]:
        asked.clear()
        for _ in range(2):
            assert await reconciler.turn(is_whole=is_whole)
        await rig.bus.flush()
        return asked

    reconciler = rig.reconciler()
    await rig.ledger.submit("half", floats(1.0))
    assert await turns(is_whole=False) == [names.redeliver("half")], "not very many"
    await rig.ledger.submit("other", floats(1.0))
    assert await turns(is_whole=False) == []
    assert set(await turns(is_whole=True)) == {names.redeliver("half"), names.redeliver("other")}, (
        "more of them in one turn"
    )


async def test_a_message_of_an_ended_job_is_removed(rig: Rig) -> None:
    job = await rig.queue()
    record = life.claimed(job, None, worker="w", gpu=GPU, token=1, now=time.time())
    error = ErrorInfo(code="model_error", message="No.")
    await rig.records.write(life.failed(record, error, now=time.time()), expect=0)
    assert await rig.is_queued(job)
    soon = time.time() + 60
    reconciler = JobReconciler(
        rig.bus, rig.records, workers=list, models=dict, worker="w", boot="w", clock=lambda: soon
    )
    await reconciler.turn(is_whole=False)
    assert not await rig.is_queued(job)


async def stored_inputs(rig: Rig) -> set[str]:
    """Ids of the jobs whose inputs are stored."""
    info = await rig.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.INPUTS}", {"subjects_filter": names.job_inputs()})
    return {names.job_of_input(subject) for subject in info["state"].get("subjects") or {}}


async def with_input(rig: Rig) -> Job:
    """A job with a stored input, not yet queued."""
    job = rig.ledger.job("half", floats(1.0))
    stored = await payloads.store_input(rig.bus, job, os.urandom(700_000))
    return replace(job, ref=stored.ref)


async def test_of_jobs_that_are_cancelled_beside_one_that_waits_those_go_that_nobody_had_claimed(rig: Rig) -> None:
    at = time.time()
    waiting, unclaimed, claimed = [await rig.queue(id=jobids.new_job_id(at, number)) for number in range(3)]
    await rig.records.write(life.cancelled(life.first_record(unclaimed, State.QUEUED), now=at), expect=0)
    revision = await rig.claim(claimed)
    running = await rig.record(claimed)
    assert running is not None
    await rig.records.write(life.cancelled(running, now=at), expect=revision)
    await rig.reconciler(clock=lambda: time.time() + 10).turn()
    assert [await rig.is_queued(job) for job in (waiting, unclaimed, claimed)] == [True, False, True]


async def test_inputs_go_with_the_end_of_their_jobs_and_no_sooner(rig: Rig) -> None:
    waiting, running, ended = [
        await rig.queue(id=job.id, ref=job.ref) for job in [await with_input(rig) for _ in range(3)]
    ]
    await rig.claim(running)
    await rig.records.write(life.cancelled(life.first_record(ended, State.QUEUED), now=time.time()), expect=0)
    reconciler = rig.reconciler()
    await reconciler.turn()
    assert await stored_inputs(rig) == {waiting.id, running.id}
    await reconciler.turn()
    assert await stored_inputs(rig) == {waiting.id, running.id}


async def test_an_input_whose_job_was_never_queued_goes_after_an_hour(rig: Rig) -> None:
    orphan = await with_input(rig)
    job = await with_input(rig)
    in_a_week = time.time() + 7 * 86_400
    await rig.ledger.submit("half", b"", id=job.id, ref=job.ref, deadline_at=in_a_week)
    ahead_s = [0.0]
    reconciler = rig.reconciler(clock=lambda: time.time() + ahead_s[0])
    await reconciler.turn()
    ahead_s[0] = ORPHANED_S - 60
    await reconciler.turn()
    assert await stored_inputs(rig) == {orphan.id, job.id}
    ahead_s[0] = ORPHANED_S + 60
    await reconciler.turn()
    assert await stored_inputs(rig) == {job.id}


async def test_an_input_that_a_retry_stored_again_stays(rig: Rig) -> None:
    """The retry's job comes to the queue only after its input was judged an orphan."""
    job = await with_input(rig)
    assert job.ref is not None
    ahead_s = [0.0]
    reconciler = rig.reconciler(clock=lambda: time.time() + ahead_s[0])
    await reconciler.turn()
    more: dict[str, str] = {Header.QUEUED_AS: names.job("half", "mid", job.account_id, job.id)}
    again = await payloads.store_at(rig.bus, job.ref.subject, bytes(job.ref.size), more)
    ahead_s[0] = ORPHANED_S + 60
    await reconciler.turn()
    assert await payloads.fetch(rig.bus, again) == bytes(job.ref.size)
    with pytest.raises((NotFound, Bug)):
        await payloads.fetch(rig.bus, job.ref)


async def test_a_workers_user_may_do_all_that_the_reconciler_does(tmp_path: Path) -> None:
    passwords: dict[str, str] = {role: f"secret of {role}" for role in ROLES}
    async with NatsServer(tmp_path / "nats", users=passwords) as server:
        buses = [
            await Bus.connect(Wire(nats_url=server.url, nats_user=role, nats_password=passwords[role]), role=role)
            for role in ("admin", "worker")
        ]
        await topology.apply(buses[0])
        rig = Rig(buses[0], await Ledger(buses[0]).start())
        kept, job = await with_input(rig), await with_input(rig)
        late, lost = await rig.queue(late=True), await rig.queue(id=kept.id, ref=kept.ref)
        ended = await rig.queue(id=job.id, ref=job.ref)
        await rig.records.write(life.cancelled(life.first_record(ended, State.QUEUED), now=time.time()), expect=0)
        await rig.claim(lost)
        await rig.drop(lost)
        unwanted = await rig.queue()
        cancelled = life.cancelled(life.first_record(unwanted, State.QUEUED), now=time.time())
        revision = await rig.records.write(cancelled, expect=0)
        await rig.records.write(life.deleted(cancelled, now=time.time()), expect=revision)
        why = DeadLetter(error=ErrorInfo(code="model_error", message="no"))
        await deadletters.keep(
            buses[0], replace(unwanted, ref=await payloads.store(buses[0], "test", unwanted.id, "o", b"x")), b"", why
        )
        reconciler = JobReconciler(
            buses[1],
            Records(buses[1]),
            workers=list,
            models=lambda: {"half": Model(name="half")},
            worker="w",
            boot="w",
            settled_s=-60.0,
        )
        assert await reconciler.turn()
        record = await rig.record(late)
        assert record is not None
        assert record.state is State.EXPIRED
        assert not await rig.is_queued(late)
        assert await rig.is_queued(lost)
        assert await stored_inputs(rig) == {lost.id}
        tombstone = await rig.record(unwanted)
        assert tombstone is not None
        assert await deletion.is_gone(buses[1], tombstone)
        quarantine = Quarantine(buses[1])
        await quarantine.start()
        await quarantine.add(lost, b"", RunnerCrashed())
        async with asyncio.timeout(60):
            while True:
                if await quarantine.holds(lost, b""):
                    break
                await asyncio.sleep(0.05)
        await quarantine.close()
        await reconciler.close()
        for bus in buses:
            await bus.close()
