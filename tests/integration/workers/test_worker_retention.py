"""Records of ended jobs go in time, the oldest first; nothing takes the record of a job that has not ended."""

import asyncio
import contextlib
import time
import uuid
from typing import Any

import pytest

from signalbox.bus.client import Bus
from signalbox.jobs import life
from signalbox.jobs.records import Records
from signalbox.program.errors import QueueFull, Unavailable
from signalbox.wire import jobids, names, outboundnames
from signalbox.wire.messages import Job, State, decode, encode
from signalbox.wire.names import Bucket, Header, Priority, Stream
from signalbox.wire.outbound import EndsLost, FollowerPosition
from tests.rigs.submit import Ledger, floats
from workers.recovery import endedmessages, shortlived, undelivered
from workers.recovery import reconciler as reconcile
from workers.recovery.reconciler import JobReconciler
from workers.recovery.records import CROWDED

DAY_S = 86_400.0
LEAST_S = 600.0
SYNC_S = 300.0
HELD_S = 2 * DAY_S


class Rig:
    """Jobs with records, and a reconciler whose clock is ahead."""

    def __init__(self, bus: Bus) -> None:
        self.bus, self.ledger, self.records = bus, Ledger(bus), Records(bus)

    def reconciler(self, ahead_s: float, outlives_s: float = 0.0) -> JobReconciler:
        return JobReconciler(
            self.bus,
            self.records,
            workers=list,
            models=dict,
            worker="w",
            boot="w",
            clock=lambda: time.time() + ahead_s,
            least_kept_s=LEAST_S,
            sync_kept_s=SYNC_S,
            held_s=HELD_S,
            outlives_s=outlives_s,
        )

    async def turn(self, ahead_s: float) -> None:
        reconciler = self.reconciler(ahead_s)
        assert await reconciler.turn()
        await reconciler.close()

    async def read_through(self) -> None:
        """Have a reconciler read all there is, also for its successor: what lies so long is read no more."""
        reconciler = self.reconciler(60)
        assert await reconciler.turn()
        reconciler._clock = lambda: time.time() + 180
        assert await reconciler.turn()
        await reconciler.close()

    async def accepted(self, *, slot: float = 0.0, priority: Priority = "mid") -> Job:
        """A job that may wait for a week. slot: of a synchronous call that was accepted at that instant."""
        job_id = jobids.new_job_id(slot or time.time(), uuid.uuid4().int, is_short_lived=bool(slot))
        job = self.ledger.job("half", floats(1.0), id=job_id, deadline_at=time.time() + 7 * DAY_S)
        await self.ledger.submit("half", floats(1.0), id=job.id, deadline_at=job.deadline_at, priority=priority)
        return job

    async def again(self, job: Job) -> None:
        """The same job's message, once more."""
        await self.ledger.submit("half", floats(1.0), id=job.id, deadline_at=job.deadline_at)

    async def open(self) -> Job:
        """A job that waits for another attempt."""
        job = await self.accepted()
        await self.records.write(life.first_record(job, State.QUEUED), expect=0)
        return job

    async def left_running(self) -> Job:
        """A job whose worker is gone, in the queue of a model that nobody serves now."""
        job = await self.accepted()
        record = life.claimed(job, None, worker="gone", gpu="g", token=1, now=time.time())
        await self.records.write(record, expect=0)
        return job

    async def ended(self, size: int = 10, job: Job | None = None) -> Job:
        job = job or self.ledger.job("half", b"")
        record = life.claimed(job, None, worker="w", gpu="g", token=1, now=time.time())
        record = life.succeeded(record, now=time.time(), batch=1, size_bytes=size)
        await self.records.write(record, bytes(size), expect=0)
        return job

    async def follower_at(self, seq: int, *, is_watched: bool = True) -> None:
        """Where the follower of ends says that it is."""
        created = (await self.bus.request_json("$JS.API.STREAM.INFO.STATE"))["created"]
        position = FollowerPosition(created=created, state_seq=seq, is_watched=is_watched)
        await self.bus.write(names.key(Bucket.DUTIES, outboundnames.FOLLOWER_POSITION), encode(position))

    async def lost(self) -> int:
        """Records that went unsent, as is told in ``duties``."""
        stored = await self.bus.leader_get(Bucket.DUTIES.stream, names.key(Bucket.DUTIES, outboundnames.ENDS_LOST))
        return decode(EndsLost, stored.data).records if stored is not None else 0

    async def queued(self) -> set[str]:
        """Ids of the jobs in ``JOBS``."""
        found = await self.bus.list_latest(Stream.JOBS, ["jobs.>"])
        return {stored.subject.rpartition(".")[2] for stored in found}

    async def has(self, job: Job) -> bool:
        return await self.records.read(job.id) is not None

    async def fill(self) -> list[Job]:
        """Until not even a small record has room."""
        ended: list[Job] = []
        for size in (70_000, 5_000, 0):
            with contextlib.suppress(Unavailable):
                while True:
                    ended.append(await self.ended(size))
        return ended

    async def fill_up(self) -> None:
        """To the last byte, or nearly."""
        for size in (500, 100, 20, 1):
            with contextlib.suppress(QueueFull):
                while True:
                    await self.bus.write(names.state(uuid.uuid4().hex), bytes(size), expect=0)

    async def shrink(self, **config: Any) -> None:
        found = (await self.bus.request_json("$JS.API.STREAM.INFO.STATE"))["config"]
        await self.bus.request_json("$JS.API.STREAM.UPDATE.STATE", found | config)


@pytest.fixture
async def rig(bus: Bus) -> Rig:
    return Rig(bus)


async def test_a_record_is_kept_a_day_and_then_removed(rig: Rig) -> None:
    job = await rig.ended()
    await rig.turn(DAY_S - 60)
    assert await rig.has(job)
    await rig.turn(DAY_S + 60)
    assert not await rig.has(job)


async def test_no_record_at_or_above_that_of_an_open_job_is_removed(rig: Rig) -> None:
    before, waiting, after = await rig.ended(), await rig.open(), await rig.ended()
    await rig.turn(2 * DAY_S)
    assert [await rig.has(job) for job in (before, waiting, after)] == [False, True, True]


async def test_a_crowded_stream_keeps_results_as_long_as_it_must_and_no_longer(rig: Rig) -> None:
    await rig.shrink(max_bytes=1_000_000)
    jobs = [await rig.ended(70_000) for _ in range(9)]
    await rig.turn(LEAST_S - 60)
    assert all([await rig.has(job) for job in jobs])
    await rig.turn(LEAST_S + 60)
    assert not any([await rig.has(job) for job in jobs])


async def test_a_waiting_job_keeps_nothing_else_in_a_crowded_stream(rig: Rig) -> None:
    await rig.shrink(max_bytes=1_000_000)
    waiting = await rig.open()
    jobs = [await rig.ended(70_000) for _ in range(9)]
    reconciler = rig.reconciler(LEAST_S + 60)
    for _ in range(2):
        await reconciler.turn()
    assert not any([await rig.has(job) for job in jobs])
    found = await rig.records.read(waiting.id)
    assert found is not None
    assert found[0].state is State.QUEUED


async def test_a_dead_worker_s_job_keeps_nothing_else_in_a_crowded_stream(rig: Rig) -> None:
    """It waits in the queue until its deadline, a week away, where its model is paused or has no worker left."""
    await rig.shrink(max_bytes=1_000_000)
    left = await rig.left_running()
    jobs = [await rig.ended(70_000) for _ in range(9)]
    reconciler = rig.reconciler(LEAST_S + 60)
    for _ in range(2):
        await reconciler.turn()
    assert not any([await rig.has(job) for job in jobs])
    found = await rig.records.read(left.id)
    assert found is not None
    assert (found[0].state, found[0].worker, found[0].attempt) == (State.RUNNING, "gone", 1)


async def test_more_open_jobs_than_are_remembered_keep_nothing_else_in_a_crowded_stream(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "MAX_KNOWN", 4)
    await rig.shrink(max_bytes=1_000_000)
    waiting = [await rig.open() for _ in range(5)]
    jobs = [await rig.ended(70_000) for _ in range(12)]
    reconciler = rig.reconciler(LEAST_S + 60)
    for _ in range(8):
        await reconciler.turn()
    assert sum([await rig.has(job) for job in jobs]) * 70_000 < CROWDED * 1_000_000
    assert all([await rig.has(job) for job in waiting])


async def test_a_newer_program_s_record_keeps_what_is_above_it_only_while_it_is_there(rig: Rig) -> None:
    newer = '{"v":99,"state":"running"}'
    revision = await rig.bus.write(names.state("newer"), headers={Header.RECORD: newer}, expect=0)
    job = await rig.ended()
    reconciler = rig.reconciler(2 * DAY_S)
    await reconciler.turn()
    assert await rig.has(job)
    await rig.bus.write(names.state("newer"), headers={Header.RECORD: newer}, expect=revision)
    await reconciler.turn()
    assert not await rig.has(job)


async def test_a_full_stream_refuses_and_drops_nothing(rig: Rig) -> None:
    await rig.shrink(max_bytes=1_000_000)
    waiting = await rig.open()
    ended = [await rig.ended(70_000) for _ in range(10)]
    with pytest.raises(Unavailable, match="no room for records"):
        ended += [await rig.ended(70_000) for _ in range(10)]
    assert await rig.has(waiting)
    assert all([await rig.has(job) for job in ended])


async def test_a_full_stream_gets_room_before_ends_are_written(rig: Rig) -> None:
    await rig.shrink(max_bytes=1_000_000)
    late = await rig.ledger.submit("half", floats(1.0), deadline_at=time.time() - 60)
    ended = await rig.fill()
    await rig.turn(LEAST_S + 60)
    found = await rig.records.read(late)
    assert found is not None
    assert found[0].state is State.EXPIRED
    assert not any([await rig.has(job) for job in ended])


async def test_a_full_stream_gets_room_above_what_waits(rig: Rig) -> None:
    """A record may take the place of one that is no smaller: else nothing above it would ever go."""
    await rig.shrink(max_bytes=1_000_000)
    waiting, left = await rig.open(), await rig.left_running()
    ended = await rig.fill()
    await rig.fill_up()
    reconciler = rig.reconciler(LEAST_S + 60)
    for _ in range(3):
        await reconciler.turn()
    assert not any([await rig.has(job) for job in ended])
    assert all([await rig.has(job) for job in (waiting, left)])


async def test_a_job_cancelled_in_the_queue_leaves_it_before_its_record_goes(rig: Rig) -> None:
    """Else the next worker would find neither record nor end, and run what its owner cancelled."""
    cancelled, waiting = await rig.accepted(), await rig.accepted()
    record = life.cancelled(life.first_record(cancelled, State.QUEUED), now=time.time())
    await rig.records.write(record, expect=0)
    await rig.turn(2 * DAY_S)
    assert not await rig.has(cancelled)
    queued = [stored.subject for stored in await rig.bus.list_latest(Stream.JOBS, ["jobs.>"])]
    assert queued == [names.job("half", "mid", waiting.account_id, waiting.id)]


async def test_a_job_that_ended_leaves_the_queue_before_its_record_goes(rig: Rig) -> None:
    """Its message may have come late, when the end had been read: a repeat of a write whose answer was lost."""
    waiting, ended = await rig.accepted(priority="lo"), await rig.accepted()
    await rig.ended(job=ended)
    await rig.read_through()
    assert await rig.queued() == {waiting.id}
    await rig.again(ended)
    await rig.turn(DAY_S - 60)
    assert await rig.queued() == {waiting.id, ended.id}
    await rig.turn(2 * DAY_S)
    assert not await rig.has(ended)
    assert await rig.queued() == {waiting.id}


async def test_a_record_outlives_its_message_which_a_worker_may_have_by_then(rig: Rig) -> None:
    """It would find no record, and claim and run the job again."""
    short, long = await rig.accepted(slot=time.time()), await rig.accepted()
    for job in (short, long):
        await rig.ended(job=job)
    loop, outlives_s = asyncio.get_running_loop(), 1.0
    reconciler = rig.reconciler(2 * DAY_S, outlives_s)
    began_s = loop.time()
    await reconciler.turn()
    assert await rig.queued() == set()
    async with asyncio.timeout(60):
        while await rig.has(short) or await rig.has(long):
            assert await reconciler.turn()
    assert loop.time() - began_s >= outlives_s


async def test_no_record_goes_before_the_queue_was_looked_through(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endedmessages, "MAX_CHECKED", 2)
    monkeypatch.setattr(undelivered, "MAX_ASKED", 0)  # which looks at the oldest job of a class sooner
    jobs = [*[await rig.accepted(priority="lo") for _ in range(4)], await rig.accepted()]
    await rig.ended(job=jobs[4])
    await rig.read_through()
    await rig.again(jobs[4])
    reconciler = rig.reconciler(2 * DAY_S)
    seen = []
    for _ in range(3):
        await reconciler.turn()
        seen.append((await rig.has(jobs[4]), jobs[4].id in await rig.queued()))
    assert seen == [(True, True), (True, True), (False, False)]


async def test_records_of_synchronous_calls_go_after_their_time_and_others_stay(rig: Rig) -> None:
    """Together with the message that a dead worker left in the queue: nothing else tells that the job has ended."""
    now = time.time()
    asynchronous = await rig.ended()
    synchronous = [await rig.accepted(slot=now + second) for second in (0, 0, 5)]
    for job in synchronous:
        await rig.ended(job=job)
    later = await rig.ended()
    await rig.turn(SYNC_S - 60)
    assert all([await rig.has(job) for job in synchronous])
    await rig.turn(SYNC_S + 60)
    assert not any([await rig.has(job) for job in synchronous])
    assert await rig.queued() == set()
    assert [await rig.has(job) for job in (asynchronous, later)] == [True, True]


async def test_a_slot_stays_while_one_of_its_jobs_has_not_ended(rig: Rig) -> None:
    now = time.time()
    waiting, beside = await rig.accepted(slot=now), await rig.accepted(slot=now)
    revision = await rig.records.write(life.first_record(waiting, State.QUEUED), expect=0)
    await rig.ended(job=beside)
    elsewhere = await rig.accepted(slot=now + 5)
    await rig.ended(job=elsewhere)
    reconciler = rig.reconciler(SYNC_S + 60)
    await reconciler.turn()
    assert [await rig.has(job) for job in (waiting, beside, elsewhere)] == [True, True, False]
    found = await rig.records.read(waiting.id)
    assert found is not None
    assert found[1] == revision


async def test_whoever_takes_the_duty_over_removes_what_its_predecessor_had_read(rig: Rig) -> None:
    job = await rig.accepted(slot=time.time())
    await rig.ended(job=job)
    await rig.turn(SYNC_S - 60)
    info = await rig.bus.request_json("$JS.API.STREAM.INFO.STATE")
    assert info["state"]["messages"] == 1
    await rig.turn(SYNC_S + 60)
    assert not await rig.has(job)


async def test_what_was_written_after_the_check_stays(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of the slot that had waited in the queue, and ended just now."""
    now = time.time()
    early, late = await rig.accepted(slot=now), await rig.accepted(slot=now)
    await rig.ended(job=early)
    purge = shortlived.ShortLivedRecords._purge

    async def late_end(self: shortlived.ShortLivedRecords, name: str, last_seq: int) -> None:
        await rig.ended(job=late)
        await purge(self, name, last_seq)

    monkeypatch.setattr(shortlived.ShortLivedRecords, "_purge", late_end)
    await rig.turn(SYNC_S + 60)
    assert [await rig.has(job) for job in (early, late)] == [False, True]


async def test_records_wait_for_the_follower_of_ends_and_then_go(rig: Rig) -> None:
    """Those of synchronous calls too, which go sooner otherwise."""
    first = await rig.ended()
    found = await rig.records.read(first.id)
    assert found is not None
    synchronous = await rig.accepted(slot=time.time())
    jobs = [first, await rig.ended(job=synchronous), await rig.ended()]
    await rig.follower_at(found[1] + 1)
    await rig.turn(DAY_S + 60)
    assert [await rig.has(job) for job in jobs] == [False, True, True]
    await rig.follower_at(found[1] + 10)
    await rig.turn(DAY_S + 60)
    assert [await rig.has(job) for job in jobs] == [False, False, False]
    assert await rig.lost() == 0


async def test_a_record_waits_for_no_longer_than_is_set_and_its_loss_is_told(rig: Rig) -> None:
    jobs = [await rig.ended(), await rig.ended(job=await rig.accepted(slot=time.time()))]
    await rig.follower_at(1)
    await rig.turn(HELD_S - 60)
    assert [await rig.has(job) for job in jobs] == [True, True]
    await rig.turn(HELD_S + 60)
    assert [await rig.has(job) for job in jobs] == [False, False]
    assert await rig.lost() == 2
    jobs = [await rig.ended()]
    await rig.turn(HELD_S + 60)
    assert await rig.lost() == 3


async def test_no_record_waits_where_nobody_is_subscribed(rig: Rig) -> None:
    job = await rig.ended()
    await rig.follower_at(1, is_watched=False)
    await rig.turn(DAY_S + 60)
    assert not await rig.has(job)
    assert await rig.lost() == 0


async def test_no_record_waits_in_a_stream_that_is_nearly_too_full_to_accept_jobs(rig: Rig) -> None:
    await rig.shrink(max_bytes=1024 * 1024)
    jobs = [await rig.ended(70_000) for _ in range(10)]
    await rig.follower_at(1)
    await rig.turn(LEAST_S + 60)
    assert all([await rig.has(job) for job in jobs])
    jobs.append(await rig.ended(70_000))
    await rig.turn(LEAST_S + 60)
    assert not any([await rig.has(job) for job in jobs])
    assert await rig.lost() == 11
