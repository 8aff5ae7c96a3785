"""Messages and inputs of ended jobs leave ``JOBS`` and ``INPUTS``, a slot at a time, and nothing else does."""

import asyncio
import time
import uuid
from collections.abc import Iterable
from typing import Any

import pytest

from signalbox.bus.client import Bus
from signalbox.jobs import delivery, payloads
from signalbox.jobs.message import remove, submit
from signalbox.jobs.records import Records
from signalbox.wire import jobids, names
from signalbox.wire.messages import Job
from signalbox.wire.names import Priority, Stream
from tests.rigs.submit import Ledger, floats
from workers.recovery import queued
from workers.recovery import removal as module
from workers.recovery.removal import MANY, PAUSE_S, SETTLED_S, SINGLY_S, SMALL, JobRemoval

THEN = 1_790_000_000.0
"""The slots of this second, and of the one after it, are used."""


class Rig:
    """Jobs of one second, and the removal of those that have ended."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.ledger = Ledger(bus)
        self.now = THEN + 4
        self.removal = JobRemoval(bus, clock=lambda: self.now)

    async def queued(self, model: str = "one", priority: Priority = "mid", at: float = THEN, job_id: str = "") -> Job:
        job_id = job_id or jobids.new_job_id(at, uuid.uuid4().int)
        job = self.ledger.job(model, floats(1.0), id=job_id, priority=priority)
        await submit(self.bus, job, floats(1.0))
        return job

    def ended(self, *jobs: Job, is_withdrawn: bool = False) -> None:
        for seq, job in enumerate(jobs, start=1):
            self.removal.ended(job.id, seq, is_withdrawn=is_withdrawn)

    async def turn(self, last_seq: int = 0) -> None:
        info = await self.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
        state = info["state"]
        await self.removal.turn({"state": {**state, "last_seq": last_seq or state["last_seq"]}})

    async def left(self) -> list[str]:
        """Ids of the jobs in ``JOBS``, in order."""
        return [names.job_of(stored.subject) for stored in await self.bus.list_latest(Stream.JOBS, ["jobs.>"])]


def forbid(monkeypatch: pytest.MonkeyPatch, name: str, why: str) -> None:
    """A way to remove messages that must not be taken."""

    async def taken(*_: object) -> None:
        raise AssertionError(why)

    monkeypatch.setattr(JobRemoval, name, taken)


@pytest.fixture
async def rig(bus: Bus) -> Rig:
    return Rig(bus)


def ids(jobs: Iterable[Job]) -> list[str]:
    return [job.id for job in jobs]


async def test_a_slot_whose_jobs_have_all_ended_goes_whatever_models_they_are_of(rig: Rig) -> None:
    jobs = [await rig.queued("one"), await rig.queued("two", "hi"), await rig.queued("three", "lo")]
    later = await rig.queued(at=THEN + 2)
    rig.ended(*jobs)
    await rig.turn()
    assert await rig.left() == [later.id]
    assert len(rig.removal) == 0


async def test_a_slot_is_left_alone_until_nothing_more_is_accepted_into_it(rig: Rig) -> None:
    job = await rig.queued()
    rig.ended(job)
    rig.now = THEN
    await rig.turn()
    assert await rig.left() == [job.id]
    assert rig.removal.lowest(9) == 1
    rig.now += 4
    await rig.turn()
    assert await rig.left() == []
    assert rig.removal.lowest(9) == 9


async def test_where_a_job_waits_the_other_classes_of_its_slot_go_and_its_own_after_ten_minutes(rig: Rig) -> None:
    waiting, ended = await rig.queued(), await rig.queued()
    other, high = await rig.queued("two"), await rig.queued("one", "hi")
    rig.ended(ended, other, high)
    await rig.turn()
    assert await rig.left() == ids([waiting, ended])
    assert len(rig.removal) == 1
    rig.now += SINGLY_S
    await rig.turn()
    assert await rig.left() == [waiting.id]
    assert len(rig.removal) == 0
    rig.ended(waiting)
    await rig.turn()
    assert await rig.left() == []


async def test_what_was_cancelled_before_any_claim_goes_at_once_where_others_of_its_class_wait(rig: Rig) -> None:
    waiting, ended = await rig.queued(), await rig.queued()
    withdrawn = [await rig.queued() for _ in range(MANY)]
    await rig.queued(priority="hi", job_id=withdrawn[0].id)  # it was raised
    rig.ended(ended)
    rig.ended(*withdrawn, is_withdrawn=True)
    await rig.turn()
    assert await rig.left() == ids([waiting, ended])
    assert len(rig.removal) == 1


async def test_a_slot_that_is_looked_at_less_often_is_due_when_a_waiting_job_of_it_is_cancelled(rig: Rig) -> None:
    waiting, ended, withdrawn, other = [await rig.queued() for _ in range(4)]
    rig.ended(ended)
    for _ in range(100):
        rig.now += 1
        await rig.turn()
    rig.ended(withdrawn, is_withdrawn=True)
    await rig.turn()
    assert await rig.left() == ids([waiting, ended, other])
    rig.ended(waiting, other)
    await rig.turn()
    assert await rig.left() == [], "it is known how many were left"
    assert len(rig.removal) == 0


async def test_of_very_many_classes_with_few_jobs_few_go_at_a_check(rig: Rig) -> None:
    waiting = await rig.queued()
    ended = [await rig.queued(f"m{number}") for number in range(SMALL + 2)]
    rig.ended(*ended)
    await rig.turn()
    assert len(await rig.left()) == 3
    rig.now += PAUSE_S
    await rig.turn()
    assert await rig.left() == [waiting.id]


async def test_what_comes_into_a_slot_after_the_question_stays(rig: Rig) -> None:
    """A gateway repeats a write whose answer was lost: it may arrive when its job has ended and left."""
    job, late = await rig.queued(), await rig.queued()
    info = await rig.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
    rig.ended(job, late)
    await rig.turn(info["state"]["last_seq"] - 1)
    assert await rig.left() == [late.id]


async def test_stored_inputs_of_ended_jobs_go_and_others_stay(rig: Rig) -> None:
    jobs = [await rig.queued() for _ in range(3)]
    refs = [(await payloads.store_input(rig.bus, job, floats(1.0))).ref for job in jobs]
    for seq, (job, ref) in enumerate(list(zip(jobs, refs, strict=True))[:2], start=1):
        rig.removal.ended(job.id, seq, ref.subject)
    await rig.turn()
    assert [found.subject for found in await rig.bus.list_latest(Stream.INPUTS, ["in.>"])] == [refs[2].subject]


async def test_a_slot_that_some_jobs_wait_in_is_asked_for_less_and_less_often(rig: Rig) -> None:
    waiting, ended = await rig.queued(), await rig.queued()
    rig.ended(ended)
    await rig.turn()
    asked = 0
    counts, inner = [], rig.bus.request_json

    async def counting(subject: str, *more: object) -> object:
        nonlocal asked
        asked += subject.endswith("INFO.JOBS") and bool(more)
        return await inner(subject, *more)

    rig.bus.request_json = counting  # type: ignore[method-assign,assignment]
    for _ in range(3):
        asked = 0
        for _ in range(100):
            rig.now += 1
            await rig.turn()
        counts.append(asked)
    assert counts[0] > counts[1] >= counts[2] > 0
    assert await rig.left() == ids([waiting, ended])


async def test_a_message_that_is_gone_is_removed_without_complaint(bus: Bus) -> None:
    rig = Rig(bus)
    first, second = await rig.queued(), await rig.queued()
    records = Records(bus)
    seqs = [found.seq for job in (first, second) if (found := await records.queued(job.id)) is not None]
    for seq in (*seqs, *seqs, seqs[0] - 1):
        await remove(bus, seq)
    assert await rig.left() == []


async def test_ids_and_slots_tell_the_same_time() -> None:
    for at in (THEN, THEN + 0.5, time.time()):
        slot = jobids.slot_of(jobids.new_job_id(at, 0))
        assert 0 <= at - jobids.time_of_slot(slot) < 1.025


async def test_a_slot_goes_as_soon_as_what_was_left_in_it_has_ended(rig: Rig) -> None:
    jobs = [await rig.queued() for _ in range(2)]
    rig.ended(jobs[0])
    await rig.turn()
    assert await rig.left() == ids(jobs)
    rig.ended(jobs[1])
    await rig.turn()
    assert await rig.left() == [], "without a pause"


@pytest.fixture
def deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four messages are very many, and a half of all is a part. A purge costs as much as a message of its own."""
    monkeypatch.setattr(queued, "DEEP", 4)
    monkeypatch.setattr(module, "PART", 2)
    monkeypatch.setattr(module, "SINGLY_PART", 4)
    monkeypatch.setattr(module, "MANY", 2)


@pytest.mark.usefixtures("deep")
async def test_where_very_many_wait_only_slots_go_in_which_all_have_ended(rig: Rig) -> None:
    jobs = [await rig.queued() for _ in range(3)]
    mixed = [await rig.queued("two", at=THEN + 2) for _ in range(2)]
    others = [await rig.queued(at=THEN + 2) for _ in range(4)]
    rig.now += 2
    rig.ended(*jobs)
    await rig.turn()
    assert await rig.left() == ids([*mixed, *others])
    rig.ended(*mixed)
    await rig.turn()
    assert await rig.left() == ids([*mixed, *others])
    rig.ended(*mixed, others[0])
    await rig.turn()
    assert await rig.left() == ids(others), "a half of all: by class, where some have not"
    rig.ended(*others)
    await rig.turn()
    assert await rig.left() == []
    assert len(rig.removal) == 0


@pytest.mark.usefixtures("deep")
async def test_where_very_many_wait_a_slot_is_asked_for_again_when_as_many_have_ended_as_were_in_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [await rig.queued() for _ in range(3)]
    for _ in range(6):
        await rig.queued(at=THEN + 60)
    asked: list[str] = []
    request_json = Bus.request_json

    async def counted(bus: Bus, subject: str, data: Any = None, **options: Any) -> Any:
        asked.append(subject)
        return await request_json(bus, subject, data, **options)

    monkeypatch.setattr(Bus, "request_json", counted)
    numbers = []
    for job in jobs:
        rig.ended(job)
        asked.clear()
        await rig.turn()
        numbers.append(len(asked) - 1)
    assert numbers == [1, 0, 2], "the question, nothing, the question and the purge"
    assert len(await rig.left()) == 6


@pytest.mark.usefixtures("deep")
async def test_where_very_many_wait_what_was_cancelled_before_any_claim_goes_and_nothing_else(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SINGLY", 2)
    jobs = [await rig.queued() for _ in range(10)]
    ended, withdrawn, waiting = jobs[0], jobs[1:4], jobs[4:]
    rig.ended(ended)
    rig.ended(*withdrawn, is_withdrawn=True)
    await rig.turn()
    assert (len(await rig.left()), rig.removal.has_more) == (8, True)
    await rig.turn()
    assert (await rig.left(), rig.removal.has_more) == (ids([ended, *waiting]), False), "without a pause"
    forbid(monkeypatch, "_check", "nothing else was cancelled")
    await rig.turn()
    monkeypatch.undo()
    rig.ended(*waiting)
    await rig.turn()
    assert await rig.left() == []


@pytest.mark.usefixtures("deep")
async def test_where_very_many_wait_few_messages_go_singly(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch, "_purge", "counts all that wait")
    monkeypatch.setattr(module, "MOST_SINGLY", 1)
    few = [await rig.queued() for _ in range(2)]
    waiting = [await rig.queued(at=THEN + 60) for _ in range(12)]
    rig.ended(*few)
    await rig.turn()
    assert len(await rig.left()) == 1 + len(waiting)
    rig.now += PAUSE_S
    await rig.turn()
    assert await rig.left() == ids(waiting)


async def test_where_there_are_many_consumers_all_messages_go_singly_and_at_once(
    bus: Bus, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, "_purge", "counts what each consumer has left")
    monkeypatch.setattr(module, "MANY_CONSUMERS", 2)
    await delivery.find_all(bus, "one", 0)
    waiting = await rig.queued("one")
    mixed = [await rig.queued("one") for _ in range(SMALL)]
    others = [await rig.queued(f"m{number}", at=THEN + 2) for number in range(3)]
    rig.now += 2
    rig.ended(*mixed, *others)
    await rig.turn()
    assert await rig.left() == [waiting.id]
    assert len(rig.removal) == 0


async def test_where_there_are_many_consumers_a_slot_with_far_more_messages_goes_by_a_purge_if_removal_is_behind(
    bus: Bus, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, "_remove_singly", "does not keep up")
    monkeypatch.setattr(module, "MANY_CONSUMERS", 2)
    consumers = len(await delivery.find_all(bus, "one", 0))
    monkeypatch.setattr(module, "BEHIND", 2 * consumers - 1)
    rig.ended(*[await rig.queued("one") for _ in range(2 * consumers)])
    await rig.turn()
    assert await rig.left() == []


async def test_what_is_left_of_what_goes_singly_goes_soon(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY_CONSUMERS", -1)
    monkeypatch.setattr(module, "MOST_SINGLY", 2)
    rig.ended(*[await rig.queued("one") for _ in range(3)])
    await rig.turn()
    assert (len(await rig.left()), rig.removal.has_more) == (1, True)
    rig.now += PAUSE_S
    await rig.turn()
    assert (await rig.left(), rig.removal.has_more) == ([], False)


@pytest.mark.usefixtures("deep")
async def test_where_very_many_wait_acceptances_have_as_long_between_two_purges_as_one_took(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [await rig.queued(at=at) for at in (THEN, THEN + 2) for _ in range(2)]
    rig.ended(*jobs)
    times: list[float] = []
    request_json = Bus.request_json

    async def slow(bus: Bus, subject: str, data: Any = None, **options: Any) -> Any:
        is_purge = ".PURGE." in subject
        if is_purge:
            times.append(time.monotonic())
            await asyncio.sleep(0.1)
        answer = await request_json(bus, subject, data, **options)
        if is_purge:
            times.append(time.monotonic())
        return answer

    monkeypatch.setattr(Bus, "request_json", slow)
    await rig.turn()
    assert await rig.left() == []
    began, ended, next_began, _ = times
    assert next_began - ended >= ended - began


async def test_where_very_many_wait_a_slot_is_looked_at_when_it_is_over(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobids, "MANY_QUEUED", 2)
    slot_s = jobids.slot_s(5)
    assert slot_s == 4.096
    begin = THEN - THEN % slot_s
    jobs = [await rig.queued(at=begin, job_id=jobids.new_job_id(begin + 1.1 * n, n, queued=5)) for n in range(5)]
    assert {jobids.time_of_slot(jobids.slot_of(job.id)) for job in jobs[:4]} == {begin}
    rig.ended(*jobs)
    rig.now = begin + slot_s
    await rig.turn()
    assert await rig.left() == ids(jobs)
    rig.now += SETTLED_S
    await rig.turn()
    assert await rig.left() == [jobs[4].id]
