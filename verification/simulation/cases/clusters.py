"""What only a cluster does: writes in flight, replicas that lag, elections."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pytest
from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.bus.writes import GroupWriter
from signalbox.jobs import delivery
from signalbox.jobs.records import Records
from signalbox.program.errors import Ambiguous, SignalboxError, StaleRevision, Unavailable
from signalbox.wire.messages import Record, State
from signalbox.wire.names import Bucket, Stream
from verification.simulation.cases.rig import Case, CaseRig, get, pulling, until

T = TypeVar("T")
LEASES = Bucket.LEASES.stream
CLUSTER_CASES: list[Case] = []


def clustered(run: Callable[[CaseRig], Awaitable[None]]) -> Callable[[CaseRig], Awaitable[None]]:
    """A case for three servers, or the model of them."""
    CLUSTER_CASES.append(Case(run.__name__, run, is_own=True))
    return run


async def patiently(act: Callable[[], Awaitable[T]]) -> T:
    """Repeat what is safe to repeat, while the cluster elects."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await act()
            except Unavailable:
                await asyncio.sleep(0.1)


@clustered
async def of_many_at_once_one_wins_whatever_the_losers_are_told(rig: CaseRig) -> None:
    buses = [await rig.bus() for _ in range(4)]

    async def contend(number: int, subject: str) -> bool:
        try:
            await buses[number % 4].write(subject, b"%d" % number, expect=0)
        except StaleRevision:  # with the real sequence (10071), or without one (10164): one is in flight
            return False
        return True

    for round_ in range(20):
        subject = rig.lease(str(round_))
        won = await asyncio.gather(*(contend(number, subject) for number in range(16)))
        assert sum(won) == 1
        assert won[int((await get(buses[0], LEASES, subject)).data)]


@clustered
async def the_leader_knows_what_it_acknowledged(rig: CaseRig) -> None:
    bus, other = await rig.bus(), await rig.bus()
    revision = 0
    for number in range(50):
        revision = await bus.write(rig.st(), b"%d" % number, expect=revision)
        assert (await get(other, Stream.STATE, rig.st())).seq == revision


@clustered
async def a_replica_may_lag_and_catches_up(rig: CaseRig) -> None:
    bus, other = await rig.bus(), await rig.bus()
    last = 0
    for number in range(50):
        before, last = last, await bus.write(rig.st(), b"%d" % number)
        found = await other.direct_get(Stream.STATE, rig.st())
        assert (found.seq if found is not None else 0) <= last
        assert before <= last

    async def is_current() -> bool:
        found = await other.direct_get(Stream.STATE, rig.st())
        return found is not None and found.seq == last

    await until(is_current)


@clustered
async def a_message_id_in_flight_is_stored_once(rig: CaseRig) -> None:
    bus = await rig.bus()
    subject = f"pl.a.{rig.id}.in"

    async def store(name: str) -> int | SignalboxError:
        try:
            return await bus.write(subject, b"x", msg_id=name)
        except Ambiguous as error:  # the other one is on its way
            return error

    for round_ in range(20):
        outcomes = await asyncio.gather(*(store(f"{rig.id}-{round_}") for _ in range(6)))
        seqs = {outcome for outcome in outcomes if isinstance(outcome, int)}
        assert len(seqs) == 1
        assert await bus.write(subject, b"x", msg_id=f"{rig.id}-{round_}") in seqs


@clustered
async def a_cluster_finds_a_duplicate_before_it_finds_it_stale(rig: CaseRig) -> None:
    bus = await rig.bus()
    first = await bus.write(rig.st(), b"1", expect=0, msg_id=f"{rig.id}-once")
    assert await bus.write(rig.st(), b"1", expect=0, msg_id=f"{rig.id}-once") == first
    with pytest.raises(StaleRevision):
        await bus.write(rig.st(), b"1", expect=0, msg_id=f"{rig.id}-twice")


@clustered
async def a_group_that_meets_writes_in_flight_loses_nothing(rig: CaseRig) -> None:
    bus, other = await rig.bus(), await rig.bus()
    mine, theirs = bus.grouped(Stream.STATE), other.grouped(Stream.STATE)

    async def claim(writer: GroupWriter, subject: str, body: bytes) -> bool:
        try:
            await writer.write(subject, body, expect=0)
        except StaleRevision:
            return False
        return True

    subjects = [rig.st(str(number)) for number in range(40)]
    outcomes = await asyncio.gather(
        *(claim(mine, subject, b"mine") for subject in subjects),
        *(claim(theirs, subject, b"theirs") for subject in subjects),
    )
    for place, subject in enumerate(subjects):
        is_mine, is_theirs = outcomes[place], outcomes[place + 40]
        assert is_mine + is_theirs == 1
        assert (await get(bus, Stream.STATE, subject)).data == (b"mine" if is_mine else b"theirs")


@clustered
async def what_was_acknowledged_outlives_its_leader(rig: CaseRig) -> None:
    bus = await rig.bus()
    seqs = {rig.st(str(n)): await bus.write(rig.st(str(n)), b"x", expect=0) for n in range(20)}
    held = await bus.write(rig.lease(), b"held", expect=0, ttl_s=60)
    await bus.write(rig.job(), b"x")
    _, taken = await pulling(bus, (await delivery.find(bus, rig.id, "hi", 0)).name)
    await taken.until(1)
    await rig.lose_leader(Stream.STATE)
    bus = await rig.bus(request_timeout_s=3.0)
    writing = [_settled(bus, rig.st(f"new{n}")) for n in range(10)]
    written = await asyncio.gather(*writing)
    assert len(set(written)) == 10
    for subject, seq in seqs.items():
        found = await patiently(partial(bus.leader_get, Stream.STATE, subject))
        assert found is not None
        assert found.seq == seq
    renewed = await patiently(lambda: _renew(bus, rig.lease(), held))
    assert renewed > held

    # Who had waited may be cut off from the consumer, and its name is taken then: one of another name is free.
    again = await patiently(lambda: delivery.find(bus, rig.id, "hi", 1))
    _, later = await pulling(bus, again.name, 1)
    assert (await later.until(1))[0].subject == rig.job()


async def _settled(bus: Bus, subject: str) -> int:
    """A compare-and-set, repeated until its outcome is known."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await bus.write(subject, b"new", expect=0)
            except StaleRevision:
                found = await patiently(lambda: bus.leader_get(Stream.STATE, subject))
                if found is not None:
                    return found.seq
            except Unavailable:
                pass
            await asyncio.sleep(0.1)


async def _renew(bus: Bus, subject: str, revision: int) -> int:
    """A heartbeat: an earlier one, unanswered, may have been stored."""
    try:
        return await bus.write(subject, b"held", expect=revision, ttl_s=60)
    except StaleRevision as error:
        found = await bus.leader_get(LEASES, subject)
        if found is None or found.data != b"held":
            raise AssertionError("The lease was lost.") from error
        return found.seq


@clustered
async def a_record_is_settled_over_an_election(rig: CaseRig) -> None:
    bus = await rig.bus()
    records = Records(bus, patience_s=60)
    job_id = f"{rig.id}-job"
    record = Record(
        id=job_id,
        model="m",
        version=1,
        signature="s",
        account_id="k",
        state=State.RUNNING,
        attempt=1,
        worker="w",
        token=1,
        created_at=0.0,
        deadline_at=1.0,
    )
    first = await patiently(lambda: records.write(record, expect=0))
    await rig.lose_leader(Stream.STATE)
    records = Records(await rig.bus(request_timeout_s=3.0), patience_s=60)
    done = replace(record, state=State.SUCCEEDED)

    async def finish() -> int:
        try:
            return await records.write(done, b"result", expect=first)
        except StaleRevision:
            found = await records.read(job_id)
            assert found is not None
            assert found[0].state is State.SUCCEEDED
            return found[1]

    assert await patiently(finish) > first
    with pytest.raises(StaleRevision):
        await patiently(lambda: records.write(record, expect=first))
