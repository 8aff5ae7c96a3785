"""Records: the first terminal write wins, and a lost answer is settled by reading."""

import asyncio

import pytest
from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.bus.transport.connection import Connection
from signalbox.jobs import delivery, life
from signalbox.jobs.message import submit
from signalbox.jobs.queues import Position, Queues
from signalbox.jobs.records import Found, Records
from signalbox.program.errors import NewerVersion, StaleRevision
from signalbox.program.settings import Wire
from signalbox.wire.messages import VERSION, Job, Record, State, header
from signalbox.wire.names import Header, Stream
from signalbox.wire.names import job as job_subject
from tests.rigs.presence import presence
from tests.rigs.streams import counted, last_sequence

ID = "00000000-0000-4000-8000-000000000002"
SUBJECT = job_subject("m", "hi", "k", ID)


def a_job(job_id: str = ID) -> Job:
    return Job(id=job_id, model="m", version=1, signature="s", account_id="k", created_at=100.0, deadline_at=200.0)


def claimed(worker: str = "w", token: int = 7) -> Record:
    return life.claimed(a_job(), None, worker=worker, gpu="g", token=token, now=101.0)


async def test_a_record_is_written_by_compare_and_set_and_read_back(bus: Bus) -> None:
    records = Records(bus)
    assert await records.read(ID) is None
    first = await records.write(claimed(), expect=0)
    done = life.succeeded(claimed(), now=102.0, batch=1, size_bytes=3)
    second = await records.write(done, b"out", expect=first)
    assert await records.read(ID) == (done, second, b"out")
    with pytest.raises(StaleRevision) as stale:
        await records.write(life.cancelled(claimed(), now=103.0), expect=first)
    assert stale.value.last == second


async def test_a_queued_job_is_found_by_its_id_alone(bus: Bus) -> None:
    records = Records(bus)
    assert await records.queued(ID) is None
    await bus.write(SUBJECT, b"in", headers={Header.JOB.value: header(a_job())}, expect=0)
    found = await records.queued(ID)
    assert found is not None
    assert (found.subject, found.data) == (SUBJECT, b"in")


async def test_a_job_is_found_by_its_record_or_else_by_its_message(bus: Bus) -> None:
    records = Records(bus)
    assert await records.find(ID) is None
    seq = await bus.write(SUBJECT, headers={Header.JOB.value: header(a_job())}, expect=0)
    assert await records.find(ID) == Found(life.first_record(a_job(), State.QUEUED), 0, b"", seq)
    revision = await records.write(claimed(), expect=0)
    assert await records.find(ID) == Found(claimed(), revision)


async def test_a_job_of_a_newer_program_is_not_taken_for_none(bus: Bus) -> None:
    newer = header(replace(a_job(), v=VERSION + 1))
    await bus.write(SUBJECT, headers={Header.JOB.value: newer}, expect=0)
    with pytest.raises(NewerVersion):
        await Records(bus).find(ID)


async def test_a_job_is_submitted_once_however_often_it_is_tried(bus: Bus) -> None:
    seq, is_new = await submit(bus, a_job(), b"in")
    assert is_new
    assert await submit(bus, a_job(), b"in") == (seq, False)
    found = await Records(bus).queued(ID)
    assert found is not None
    assert (found.seq, found.data) == (seq, b"in")


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "not stored"])
async def test_a_lost_answer_is_settled(wire: Wire, bus: Bus, monkeypatch: pytest.MonkeyPatch, is_stored: bool) -> None:
    mine = await Bus.connect(Wire(nats_url=wire.nats_url, request_timeout_s=0.3), role="worker")
    records = Records(mine)
    original = Connection.send
    lost = 0

    def lose_the_first(self: Connection, *parts: bytes) -> None:
        nonlocal lost
        if self is mine.connection and lost == 0 and parts[0].startswith(b"HPUB st."):
            lost += 1
            if is_stored:  # to an inbox without a listener
                lost_inbox = parts[0].replace(mine._inbox, b"_INBOX_worker.lost.")
                original(self, lost_inbox, *parts[1:])
            return
        original(self, *parts)

    before = await last_sequence(bus, Stream.STATE)
    monkeypatch.setattr(Connection, "send", lose_the_first)
    revision = await records.write(claimed(), expect=0)
    assert lost == 1
    stored = await bus.leader_get(Stream.STATE, f"st.{ID}")
    assert stored is not None
    assert stored.seq == revision == before + 1
    await mine.close()


async def test_a_lost_answer_of_a_lost_race_is_stale(wire: Wire, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = await Bus.connect(Wire(nats_url=wire.nats_url, request_timeout_s=0.3), role="worker")
    records = Records(mine)
    original = Connection.send
    lost = asyncio.Event()

    def lose_the_first(self: Connection, *parts: bytes) -> None:
        if self is mine.connection and not lost.is_set() and parts[0].startswith(b"HPUB st."):
            lost.set()
            return
        original(self, *parts)

    monkeypatch.setattr(Connection, "send", lose_the_first)
    writing = asyncio.create_task(records.write(claimed(), expect=0))
    await lost.wait()
    other = await Records(bus).write(claimed("other", 9), expect=0)
    with pytest.raises(StaleRevision) as stale:
        await writing
    assert stale.value.last == other
    await mine.close()


async def test_positions_follow_the_queue(bus: Bus) -> None:
    seqs = [await bus.write(f"jobs.m.mid.t.s.{n}", expect=0) for n in range(10)]
    asked = Queues(bus, tuple)
    assert await asked.position("m", "mid", seqs[0]) == Position(0)
    assert await asked.position("m", "mid", seqs[9]) == Position(9)
    await bus.write("jobs.m.hi.t.s.x", expect=0)
    puller = await bus.pull((await delivery.find(bus, "m", "mid", 3)).name, lambda _delivery: None)
    puller.ask(4)
    await counted(bus, "m", "mid", waiting=6, generation=3)
    fresh = Queues(bus, lambda: [presence("w1", generation=3), presence("w2")])
    assert await fresh.position("m", "mid", seqs[3]) == Position(None)
    behind = (await fresh.position("m", "mid", seqs[9])).ahead
    assert behind is not None
    assert 5 <= behind <= 6  # five of its own, one of a higher priority, interpolated
    await puller.close()


async def test_to_read_a_queue_makes_nothing_and_counts_what_waits(bus: Bus) -> None:
    for n in range(10):
        await bus.write(f"jobs.m.mid.t.s.{n}", expect=0)
    found = await delivery.states(bus, "m", 0)
    assert {priority: info.num_pending for priority, info in found.items()} == {"hi": 0, "mid": 10, "lo": 0}
    assert await bus.listed("$JS.API.CONSUMER.NAMES.JOBS", "consumers") == []
