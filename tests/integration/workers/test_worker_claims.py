"""Claims and ends as compare-and-sets, against a real nats-server, without a runner."""

import asyncio
import time
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from signalbox.bus.client import Bus, Delivery
from signalbox.bus.writes import Group, GroupedWrite
from signalbox.jobs import deadletters, deletion, life
from signalbox.jobs.changes import WriteOutcome
from signalbox.jobs.commits import Commits
from signalbox.jobs.penalty import Penalty
from signalbox.jobs.records import Records
from signalbox.program.errors import NotFound, QueueFull, Unavailable
from signalbox.wire import names
from signalbox.wire.messages import ErrorInfo, Job, Record, State, encode, header
from signalbox.wire.names import Bucket, Header, Stream, token
from signalbox.wire.workerdocs import Lease
from tests.rigs.streams import last_sequence
from tests.rigs.submit import Ledger, floats
from workers.serving.inflight import InFlightJob

GPU = "CPU-test-0"


def commits(bus: Bus, worker: str, token: int, gpu: str = GPU) -> Commits:
    return Commits(bus, Records(bus), worker=worker, gpu=gpu, token=token, inline_limit_bytes=262_144, clock=time.time)


def held(job: Job) -> InFlightJob:
    reply = b"$JS.ACK.JOBS.half_mid.1.1.1.0.0"
    head = f"NATS/1.0\r\n{Header.JOB}: {header(job)}\r\n\r\n".encode()
    delivery = Delivery(names.job(job.model, job.priority, job.account_id, job.id), reply, head, floats(1.0))
    return InFlightJob(delivery, job, now_s=0.0)


@pytest.fixture
def job(bus: Bus) -> Job:
    return Ledger(bus).job("half", floats(1.0))


async def test_claim_and_end_are_two_writes_of_one_attempt(bus: Bus, job: Job) -> None:
    mine, one = commits(bus, "w1", 5), held(job)
    assert await mine.claim([one], Group()) == {one: WriteOutcome.OURS}
    change = await mine.success(one, b"frame", batch=1)
    await mine.apply([change])
    found = await Records(bus).read(job.id)
    assert found is not None
    assert (found[0].state, found[0].attempt, found[0].token, found[2]) == (State.SUCCEEDED, 1, 5, b"frame")


async def test_a_claim_left_to_the_end_is_one_write_with_the_same_facts(bus: Bus, job: Job) -> None:
    before = await last_sequence(bus, Stream.STATE)
    mine, one = commits(bus, "w1", 5), held(job)
    assert mine.claim_with_the_end([one]) == {one: WriteOutcome.UNWRITTEN}
    await mine.apply([await mine.success(one, b"frame", batch=1)])
    found = await Records(bus).read(job.id)
    assert found is not None
    record = found[0]
    assert (record.state, record.attempt, record.worker, record.token) == (State.SUCCEEDED, 1, "w1", 5)
    assert record.claimed_at is not None
    assert "claimed" in record.phases
    assert await last_sequence(bus, Stream.STATE) == before + 1


async def test_of_two_that_end_without_a_claim_one_wins(bus: Bus, job: Job) -> None:
    first, second = commits(bus, "w1", 5), commits(bus, "w2", 6)
    one, two = held(job), held(job)
    first.claim_with_the_end([one])
    second.claim_with_the_end([two])
    won = await second.success(two, b"second", batch=1)
    late = await first.success(one, b"first", batch=1)
    await second.apply([won])
    await first.apply([late])
    assert (won.outcome, late.outcome) == (WriteOutcome.OURS, WriteOutcome.OVER)
    found = await Records(bus).read(job.id)
    assert found is not None
    assert found[2] == b"second"


async def test_who_is_stopped_gives_up_what_it_claimed_and_leaves_the_rest_alone(bus: Bus) -> None:
    """Found by a world (109530): a job that waited for its next attempt was put back again, under the old one."""
    ledger = Ledger(bus)
    running, waiting, others = (held(ledger.job("half", floats(1.0))) for _ in range(3))
    elsewhere, earlier, mine = (commits(bus, "w2", 9, "CPU-test-1"), commits(bus, "w1", 4), commits(bus, "w1", 5))
    await earlier.claim([waiting], Group())
    await earlier.give_up([waiting])
    await elsewhere.claim([others], Group())
    await mine.claim([running], Group())
    for one in (waiting, others):
        await mine.refresh(one)
    before = await last_sequence(bus, Stream.STATE)
    await mine.give_up([running, waiting, others])
    found = [await Records(bus).read(one.job.id) for one in (running, waiting, others)]
    assert [(one[0].state, one[0].token) for one in found if one] == [
        (State.QUEUED, 5),
        (State.QUEUED, 4),
        (State.RUNNING, 9),
    ]
    assert await last_sequence(bus, Stream.STATE) == before + 1


async def test_a_late_end_of_an_older_token_is_refused(bus: Bus, job: Job) -> None:
    old, new = commits(bus, "w1", 5), commits(bus, "w2", 6)
    one, two = held(job), held(job)
    assert await old.claim([one], Group()) == {one: WriteOutcome.OURS}
    await new.refresh(two)
    assert await new.claim([two], Group()) == {two: WriteOutcome.OURS}
    late = await old.success(one, b"late", batch=1)
    await old.apply([late])
    assert late.outcome is WriteOutcome.LOST
    found = await Records(bus).read(job.id)
    assert found is not None
    assert (found[0].state, found[0].attempt, found[0].worker) == (State.RUNNING, 2, "w2")


async def test_a_late_unclaimed_end_of_an_older_token_is_refused_too(bus: Bus, job: Job) -> None:
    old, new = commits(bus, "w1", 5), commits(bus, "w2", 6)
    one, two = held(job), held(job)
    old.claim_with_the_end([one])
    assert await new.claim([two], Group()) == {two: WriteOutcome.OURS}
    late = await old.success(one, b"late", batch=1)
    await old.apply([late])
    assert late.outcome is WriteOutcome.LOST


async def test_a_stale_running_record_of_an_older_token_is_taken_over_by_the_end(bus: Bus, job: Job) -> None:
    old, new = commits(bus, "w1", 5), commits(bus, "w2", 6)
    one, two = held(job), held(job)
    new.claim_with_the_end([two])
    assert await old.claim([one], Group()) == {one: WriteOutcome.OURS}
    change = await new.success(two, b"frame", batch=1)
    await new.apply([change])
    assert change.outcome is WriteOutcome.OURS
    found = await Records(bus).read(job.id)
    assert found is not None
    assert (found[0].state, found[0].attempt, found[0].worker) == (State.SUCCEEDED, 2, "w2")


async def test_another_gpus_running_attempt_is_left_alone_while_its_lease_is_there(bus: Bus, job: Job) -> None:
    lease = names.key(Bucket.LEASES, token("CPU-other-0"))
    held_at = await bus.write(lease, encode(Lease(state="HELD", gpu="CPU-other-0", owner="w1")))
    theirs, mine = commits(bus, "w1", held_at, gpu="CPU-other-0"), commits(bus, "w2", 6)
    one, two = held(job), held(job)
    assert await theirs.claim([one], Group()) == {one: WriteOutcome.OURS}
    assert await mine.claim([two], Group()) == {two: WriteOutcome.LOST}
    await bus.write(lease, encode(Lease(state="HELD", gpu="CPU-other-0", owner="w3")))
    assert await mine.claim([two], Group()) == {two: WriteOutcome.OURS}, "another hold: the claimant's is over"


async def test_a_job_cancelled_in_the_queue_is_over_for_claim_and_end(bus: Bus, job: Job) -> None:
    record = life.cancelled(life.first_record(job, State.QUEUED), now=time.time())
    await Records(bus).write(record, expect=0)
    mine, one, two = commits(bus, "w1", 5), held(job), held(job)
    assert await mine.claim([one], Group()) == {one: WriteOutcome.OVER}
    mine.claim_with_the_end([two])
    change = await mine.success(two, b"frame", batch=1)
    await mine.apply([change])
    assert change.outcome is WriteOutcome.OVER


@pytest.mark.parametrize("is_success", [True, False])
async def test_a_request_to_cancel_wins_over_a_result_and_over_a_failure(
    bus: Bus, job: Job, *, is_success: bool
) -> None:
    mine, one = commits(bus, "w1", 5), held(job)
    await mine.claim([one], Group())
    records = Records(bus)
    found = await records.read(job.id)
    assert found is not None
    await records.write(life.cancel_asked(found[0]), expect=found[1])
    if is_success:
        change = await mine.success(one, b"frame", batch=1)
    else:
        change = mine.failure(one, ErrorInfo(code="model_error", message="no"))
    await mine.apply([change])
    found = await records.read(job.id)
    assert found is not None
    assert (found[0].state, found[2]) == (State.CANCELLED, b"")


async def test_a_request_to_cancel_adopted_while_the_end_is_written_wins_too(bus: Bus, job: Job) -> None:
    mine, one = commits(bus, "w1", 5), held(job)
    await mine.claim([one], Group())
    records = Records(bus)
    found = await records.read(job.id)
    assert found is not None
    change = await mine.success(one, b"frame", batch=1)
    asked = life.cancel_asked(found[0])
    revision = await records.write(asked, expect=found[1])
    writing = asyncio.create_task(mine.apply([change]))
    await asyncio.sleep(0)  # it is on its way with the old revision when the worker learns of the request
    one.record, one.revision, one.is_cancelled = asked, revision, True
    await writing
    found = await records.read(job.id)
    assert found is not None
    assert (found[0].state, found[2]) == (State.CANCELLED, b"")


async def test_an_end_learned_of_while_nats_was_away_is_not_written_over(
    bus: Bus, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by simulated seed 8425: the claim was repeated as it was, from the revision of the end."""
    mine, other = commits(bus, "w1", 5), commits(bus, "w2", 6)
    one, two = held(job), held(job)
    await other.claim([two], Group())
    await mine.refresh(one)
    await other.apply([await other.success(two, b"frame", batch=1)])
    found = await Records(bus).read(job.id)
    assert found is not None

    async def away(writes: Sequence[GroupedWrite], _: Group | None) -> list[Unavailable]:
        monkeypatch.undo()
        one.record, one.revision = found[:2]
        return [Unavailable("NATS is away.") for _ in writes]

    monkeypatch.setattr(bus.grouped(Stream.STATE), "write_all", away)
    assert await mine.claim([one], Group()) == {one: WriteOutcome.OVER}
    assert await Records(bus).read(job.id) == found


async def test_claims_that_wait_for_the_disk_can_be_taken_back(bus: Bus) -> None:
    ledger = Ledger(bus)
    mine = commits(bus, "w1", 5)
    first = [held(ledger.job("half", floats(1.0))) for _ in range(20)]
    second = [held(ledger.job("half", floats(1.0))) for _ in range(20)]
    group = Group()
    writing = asyncio.create_task(mine.claim(first, Group()))
    waiting = asyncio.create_task(mine.claim(second, group))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert group.withdraw()
    assert set((await waiting).values()) == {WriteOutcome.UNWRITTEN}
    assert set((await writing).values()) == {WriteOutcome.OURS}
    assert not group.withdraw()
    changes = [await mine.success(one, b"frame", batch=20) for one in second]
    await mine.apply(changes)
    assert {change.outcome for change in changes} == {WriteOutcome.OURS}


async def test_an_attempt_that_ended_without_a_word_is_counted_and_no_strike(bus: Bus, job: Job) -> None:
    seen: list[tuple[int, int, bool]] = []
    for fence in (5, 6, 7):
        mine, one = commits(bus, f"w{fence}", fence), held(job)
        await mine.refresh(one)
        assert await mine.claim([one], Group()) == {one: WriteOutcome.OURS}
        assert one.record is not None
        seen.append((one.record.vanished, one.record.strikes, one.is_alone))
    assert seen == [(0, 0, False), (1, 0, False), (2, 0, True)]


async def test_a_record_only_a_newer_program_understands_is_not_ours_to_write(bus: Bus, job: Job) -> None:
    newer = replace(life.first_record(job, State.QUEUED), v=2)
    revision = await bus.write(names.state(job.id), headers={Header.RECORD: header(newer)})
    mine, one = commits(bus, "w1", 5), held(job)
    mine.claim_with_the_end([one])
    change = await mine.success(one, b"frame", batch=1)
    await mine.apply([change])
    assert change.outcome is WriteOutcome.LOST
    found = await bus.leader_get(Stream.STATE, names.state(job.id))
    assert found is not None
    assert found.seq == revision


async def test_fields_a_newer_program_added_are_read_past(bus: Bus, job: Job) -> None:
    text = header(life.first_record(job, State.QUEUED)).replace("{", '{"colour":"blue",', 1)
    revision = await bus.write(names.state(job.id), headers={Header.RECORD: text})
    mine, one = commits(bus, "w1", 5), held(job)
    await mine.refresh(one)
    assert (one.revision, await mine.claim([one], Group())) == (revision, {one: WriteOutcome.OURS})


@pytest.mark.parametrize("number", [1, 12])
async def test_ends_that_find_no_room_for_records_are_written_when_there_is(bus: Bus, number: int) -> None:
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.STATE}")

    async def resize(max_bytes: int) -> None:
        config = info["config"] | {"max_bytes": max_bytes}
        await bus.request_json(f"$JS.API.STREAM.UPDATE.{Stream.STATE}", config)

    ledger = Ledger(bus)
    batch = [held(ledger.job("half", floats(1.0))) for _ in range(number)]
    mine = commits(bus, "w1", 5)
    await mine.claim(batch, Group())
    await resize(30_000)
    changes = [await mine.success(one, bytes(40_000), batch=1) for one in batch]
    refused = asyncio.Event()
    writer = bus.grouped(Stream.STATE)
    write_all = writer.write_all

    async def watched(writes: Sequence[GroupedWrite], group: Group | None = None) -> Sequence[object]:
        outcomes = await write_all(writes, group)
        if any(isinstance(outcome, QueueFull) for outcome in outcomes):
            refused.set()
        return outcomes

    writer.write_all = watched  # type: ignore[method-assign, assignment]  # only listens
    ending = asyncio.create_task(mine.apply(changes))
    async with asyncio.timeout(60):
        await refused.wait()
        await resize(info["config"]["max_bytes"])
        await ending
    assert {change.outcome for change in changes} == {WriteOutcome.OURS}


async def test_a_delivery_kept_for_long_is_not_claimed_once_its_job_has_ended_and_is_forgotten(bus: Bus) -> None:
    """Neither record nor message is left. While the message is there, nobody has forgotten anything."""
    ended, waiting = [await submitted(bus) for _ in range(2)]
    mine, kept = commits(bus, "w1", 5), {job.id: held(job) for job in (ended, waiting)}
    others = held(ended)
    theirs = commits(bus, "w2", 6, "CPU-test-1")
    await theirs.claim([others], Group())
    await theirs.apply([await theirs.success(others, b"frame", batch=1)])
    await forget(bus, ended)
    for one in kept.values():
        one.known_at -= 3600.0
    written = await mine.claim(list(kept.values()), Group())
    assert written == {kept[ended.id]: WriteOutcome.LOST, kept[waiting.id]: WriteOutcome.OURS}
    assert await Records(bus).read(ended.id) is None


async def test_a_record_that_was_seen_and_has_gone_since_is_not_written_anew(bus: Bus) -> None:
    job = await submitted(bus)
    mine, one = commits(bus, "w1", 5), held(job)
    await Records(bus).write(life.first_record(job, State.QUEUED), expect=0)
    assert await mine.refresh(one)
    await forget(bus, job)
    one.known_at -= 3600.0
    assert await mine.claim([one], Group()) == {one: WriteOutcome.LOST}
    assert not await mine.refresh(one)
    assert await Records(bus).read(job.id) is None


async def submitted(bus: Bus) -> Job:
    ledger = Ledger(bus)
    job = ledger.job("half", floats(1.0))
    await ledger.submit("half", floats(1.0), id=job.id)
    return job


async def forget(bus: Bus, job: Job) -> None:
    """As the reconciler does it: the message, and later the record."""
    for stream, subject in (
        (Stream.JOBS, names.job(job.model, job.priority, job.account_id, job.id)),
        (Stream.STATE, names.state(job.id)),
    ):
        await bus.request_json(f"$JS.API.STREAM.PURGE.{stream}", {"filter": subject})


async def test_the_end_of_a_job_is_written_though_its_record_was_written_again(bus: Bus, job: Job) -> None:
    """As it was, by its own worker or by the reconciler, so that no older record keeps those of others."""
    mine, one = commits(bus, "w1", 5), held(job)
    await mine.claim([one], Group())
    change = await mine.success(one, b"frame", batch=1)
    record, revision, _ = await stored(bus, job)
    await Records(bus).write(record, expect=revision)
    await mine.apply([change])
    assert change.outcome is WriteOutcome.OURS
    record, _, frame = await stored(bus, job)
    assert (record.state, frame) == (State.SUCCEEDED, b"frame")


async def test_a_long_run_s_claim_is_written_again_and_changes_nothing(bus: Bus, job: Job) -> None:
    mine, one, waiting = (commits(bus, "w1", 5), held(job), held(Ledger(bus).job("half", b"")))
    await mine.claim([one], Group())
    before, revision, _ = await stored(bus, job)
    await bus.write(names.state("another"), expect=0)
    assert mine.old_claims([one, waiting], 60.0) == []
    assert mine.old_claims([one, waiting], 0.0) == [one]
    await mine.renew(one)
    after, moved, _ = await stored(bus, job)
    assert (after, moved) == (before, revision + 2)
    change = await mine.success(one, b"frame", batch=1)
    await mine.apply([change])
    assert change.outcome is WriteOutcome.OURS


async def test_no_claim_is_written_again_over_a_request_to_cancel_or_an_end(bus: Bus, job: Job) -> None:
    mine, one = commits(bus, "w1", 5), held(job)
    await mine.claim([one], Group())
    record, revision, _ = await stored(bus, job)
    revision = await Records(bus).write(life.cancel_asked(record), expect=revision)
    await mine.renew(one)
    assert (await stored(bus, job))[:2] == (life.cancel_asked(record), revision)
    change = await mine.success(one, b"frame", batch=1)
    await mine.apply([change])
    ended = await stored(bus, job)
    assert ended[0].state is State.CANCELLED
    await mine.renew(one)
    assert await stored(bus, job) == ended


async def test_a_superseded_attempt_writes_neither_its_claim_again_nor_its_end(bus: Bus, job: Job) -> None:
    mine, one = commits(bus, "w1", 5), held(job)
    await mine.claim([one], Group())
    later, same = commits(bus, "w2", 6), held(job)
    await later.refresh(same)
    await later.claim([same], Group())
    theirs = await stored(bus, job)
    await mine.renew(one)
    change = await mine.success(one, b"frame", batch=1)
    await mine.apply([change])
    assert change.outcome is WriteOutcome.LOST
    assert await stored(bus, job) == theirs


async def stored(bus: Bus, job: Job) -> tuple[Record, int, bytes]:
    """The job's record, its revision and body."""
    found = await Records(bus).read(job.id)
    assert found is not None
    return found


async def test_an_attempt_that_lost_its_job_keeps_no_letter_once_the_job_has_ended(bus: Bus, job: Job) -> None:
    """Its owner may have deleted it, and whoever erases has looked already."""
    mine, one = commits(bus, "w1", 5), held(job)
    await mine.claim([one], Group())
    later, same = commits(bus, "w2", 6), held(job)
    await later.refresh(same)
    await later.claim([same], Group())
    why = ErrorInfo(code="worker_crashed", message="It ended the runner.")
    await mine.dead_letter(one, one.delivery.data, why, penalty=Penalty.STRIKE)
    assert (await deadletters.find(bus, job.id)).id == job.id, "it may yet be the only one"
    await deadletters.discard(bus, job.id)
    await later.apply([later.failure(same, why)])
    found = await Records(bus).find(job.id)
    assert found is not None
    await deletion.delete(Records(bus), found, clock=time.time)
    await mine.dead_letter(one, one.delivery.data, why, penalty=Penalty.STRIKE)
    with pytest.raises(NotFound):
        await deadletters.find(bus, job.id)
