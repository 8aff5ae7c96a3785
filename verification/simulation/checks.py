"""The laws: pure functions over what an oracle wrote down. Times are true seconds."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from signalbox.jobs.repair import NOBODY_LEFT
from signalbox.program.errors import InputLost
from signalbox.wire.messages import Record, State
from signalbox.wire.workerdocs import Lease
from verification.simulation.runner import Stay

if TYPE_CHECKING:
    from verification.simulation.clients import Entry
    from verification.simulation.world import World


_REACTION_S: Final = 0.05
"""From a timer to the signal, with every message on the way."""
_DEADLINE_SLACK_S: Final = 1.5
"""Of a minute by clocks that are wrong by 1 %, each its own way: NATS's, a gateway's and a worker's."""
_DESERVED: Final[Mapping[str, tuple[str, ...]]] = {
    "refused": ("invalid_input", "model_error"),
    "crash": ("poison",),
    "hang": ("deadline_exceeded",),
}
"""Codes that a job ends with for what it does; one that does well never fails."""
_WELCOME: Final = frozenset({"fine", "alone"})


LAPSING: Final = frozenset({"step_nats_clock", "delete_lease", "lose_tail", "roll_back_leases", "late_markers"})
"""What takes a record away before its time (a late marker takes the one that was written meanwhile)."""


UNDOING: Final = frozenset({"lose_tail", "roll_back_leases"})
"""What brings a lease back that was gone."""
FORGETTING: Final = frozenset({"elect", "lose_tail", "stale_reads"})
"""What has a job delivered as if for the first time, or an end not be seen at once."""


class Stored(NamedTuple):
    """One write of a job's record."""

    at: float
    seq: int
    record: Record
    body: bytes


class Delivered(NamedTuple):
    """One delivery of a job: when, to whom, and the sequence of its message."""

    at: float
    to: str
    seq: int


class LeaseWrite(NamedTuple):
    """One write of a lease; None: it expired or was deleted."""

    at: float
    seq: int
    lease: Lease | None


class TicketWrite(NamedTuple):
    """One write of a ticket; number 0: it is gone."""

    at: float
    worker: str
    number: int


def transitions(history: Sequence[Stored]) -> Iterator[str]:
    """S7, S9: the first terminal record stays, and each step is one that its writer was entitled to."""
    before: Record | None = None
    for stored in history:
        record = stored.record
        if (why := _illegal(before, record)) is not None:
            yield f"{_words(before)} -> {_words(record)} at {stored.at:.3f}: {why}"
        is_whole = record.state is State.SUCCEEDED and record.ref is None and not record.deleted_at
        if is_whole and stored.body != record.id.encode():
            yield f"succeeded with the result {stored.body!r}"
        before = record


def _illegal(before: Record | None, record: Record) -> str | None:
    attempt = before.attempt if before is not None else 0
    if record == before:
        return None  # only moved
    if before is not None and before.state.is_terminal:
        is_deletion = record.deleted_at and not before.deleted_at and record.state is before.state
        return None if is_deletion else "it had ended"
    if record.deleted_at:
        return "it had not ended"
    if record.state is State.QUEUED and record.attempt == attempt and (before is None or before.state is State.QUEUED):
        is_change = before is None or replace(record, priority=before.priority) == before
        return None if is_change else "it waits, and more than its class changed"
    if before is not None and before.state is State.RUNNING and record.attempt == attempt:
        if (record.worker, record.gpu, record.token) != (before.worker, before.gpu, before.token):
            return "another's attempt"
        return None
    if record.attempt == attempt and record.state in {State.CANCELLED, State.EXPIRED, State.FAILED}:
        return None
    if record.attempt != attempt + 1:
        return "not the next attempt"
    if before is not None and record.gpu == before.gpu and record.token < before.token:
        return "an earlier holder of the device took it"
    return None


def _words(record: Record | None) -> str:
    if record is None:
        return "nothing"
    return f"{record.state.value}#{record.attempt}({record.worker}, {record.token})"


def reported(seen: Sequence[tuple[float, State]], history: Sequence[Stored]) -> Iterator[str]:
    """S11: a job ended as its caller was told."""
    last = history[-1].record.state if history else None
    for at, state in seen:
        if state.is_terminal and state is not last:
            yield f"the caller was told {state.value} at {at:.3f}, it ended as {last}"


def fate(
    entry: "Entry", last: Stored, *, deadline_s: float, done: Collection[str], served_by: float, is_apart: bool = False
) -> Iterator[str]:
    """S6, V4: a job ends by what it does itself, whatever faults happen around it. done: the faults.

    An input in its message may be lost with its queue, and the job then ends so; an input stored apart is never lost.
    Otherwise only its owner, its deadline and the job itself make it end badly. is_apart: whether inputs are stored
    apart. served_by: when the faults have been over for so long that every job still waiting should have run.
    """
    state, error = last.record.state, last.record.error
    is_left = error is not None and error.message == NOBODY_LEFT
    if state is State.EXPIRED or is_left:
        is_time_true = "step_nats_clock" not in done
        ends_at = entry.begun_at + entry.delay_s + deadline_s - _DEADLINE_SLACK_S
        if is_time_true and last.at < ends_at:
            yield f"out of time {last.at - entry.begun_at:.3f} s after it was made, {deadline_s} s were given"
        elif is_time_true and entry.task.does in _WELCOME and ends_at > served_by:
            yield f"out of time, and all had been well for {last.at - served_by:.3f} s more than it takes"
        return
    if state is State.CANCELLED:
        if not entry.may_be_cancelled:
            yield "cancelled without a request to cancel"
        return
    if state is State.FAILED and error is not None and (is_apart or error.code != InputLost.code):
        if error.code not in _DESERVED.get(entry.task.does, ()):
            yield f"{entry.task.does}, and failed with {error.code}: {error.message}"
    elif state is State.SUCCEEDED and entry.task.does in _DESERVED:
        yield f"{entry.task.does}, and succeeded"


def once(jobs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """S10: one idempotency key, one job. jobs: key and id of each that was ever stored."""
    by_key: dict[str, str] = {}
    for key, job_id in jobs:
        if key and by_key.setdefault(key, job_id) != job_id:
            yield f"{key} made two jobs, {by_key[key]} and {job_id}"


def tokens(stays: Sequence[Stay]) -> Iterator[str]:
    """S2: a later stay has a greater token; a new runner of the same holder has the same one."""
    for before, after in pairwise(stays):
        if after.token < before.token or (after.token == before.token and after.boot != before.boot):
            yield (f"{after.boot} was let in with token {after.token} after {before.boot} with {before.token}")


def fenced(
    stays: Sequence[Stay], confirmed: Mapping[str, Sequence[tuple[float, float]]], world: "World"
) -> Iterator[str]:
    """S3: no runner is inside later than F + K after the send time of its last confirmed heartbeat.

    K is what a process takes to die here, which is less than the K that is promised: so a deadline that is
    counted from the wrong moment is not hidden by it. What is suspended meanwhile dies as it wakes, and what entered
    by an old word, as its guard woke too late for the deadline, dies by that guard's timer.
    """
    fence_s = world.shape.rules.fence_s
    for stay in stays:
        if stay.is_excused:
            continue
        left = world.loop.now if stay.left is None else stay.left
        pairs = sorted(confirmed.get(stay.boot, ()))
        last = max((sent for received, sent in pairs if received <= stay.came), default=stay.came)
        for received, sent in pairs:
            if stay.came < received <= _must_be_out_at(stay, last, fence_s):
                last = max(last, sent)
        if left > _must_be_out_at(stay, last, fence_s):
            yield (f"{stay.boot} was inside until {left:.3f}, its last confirmed heartbeat was sent at {last:.3f}")


def _must_be_out_at(stay: Stay, last: float, fence_s: float) -> float:
    machine = stay.machine
    deadline = last + fence_s / machine.clock.rate
    dying_s = machine.dying_s + _REACTION_S
    end = max(deadline, stay.guard_woke_at) + dying_s
    for nap in machine.naps:
        if nap.began < end and nap.ended > deadline:
            end = max(end, nap.ended + dying_s)
    return end


def outlived(leases: Sequence[LeaseWrite], stays: Sequence[Stay]) -> Iterator[str]:
    """The margin: no record lapses before the runner that entered under it is out, unless that could not run."""
    boot = ""
    for write in leases:
        if write.lease is not None:
            boot = write.lease.boot if write.lease.state == "HELD" else ""
            continue
        for stay in stays:
            is_in = stay.came <= write.at and (stay.left is None or stay.left > write.at)
            dying_s = stay.machine.dying_s + _REACTION_S
            was_asleep = any(n.began <= write.at <= n.ended + dying_s for n in stay.machine.naps)
            if stay.boot == boot and is_in and not stay.is_excused and not was_asleep:
                yield f"{boot} was inside when its record lapsed at {write.at:.3f}"
        boot = ""


def overtaken(
    leases: Sequence[LeaseWrite], tickets: Sequence[TicketWrite], disturbed: Mapping[str, Sequence[float]]
) -> Iterator[str]:
    """V2: no worker that waits undisturbed is overtaken more than once by a later ticket."""
    waiting: dict[str, tuple[int, float]] = {}
    counts: dict[str, int] = {}
    holder = ""
    events: list[LeaseWrite | TicketWrite] = [*leases, *tickets]
    events.sort(key=lambda write: write.at)
    for event in events:
        if isinstance(event, TicketWrite):
            if not event.number:
                waiting.pop(event.worker, None)
                counts.pop(event.worker, None)
            elif event.worker not in waiting:
                waiting[event.worker] = (event.number, event.at)
            continue
        lease = event.lease
        boot = lease.boot if lease is not None and lease.state == "HELD" else ""
        if boot and boot != holder:
            owner = lease.owner if lease is not None else ""
            mine = waiting.get(owner)
            for worker, (number, since) in waiting.items():
                is_calm = not any(since - 10.0 <= at <= event.at for at in disturbed.get(worker, ()))
                if worker != owner and is_calm and (mine is None or mine[0] > number):
                    counts[worker] = counts.get(worker, 0) + 1
                    if counts[worker] > 1:
                        yield f"{worker} with ticket {number} was overtaken by {owner} at {event.at:.3f}"
            waiting.pop(owner, None)
            counts.pop(owner, None)
        holder = boot
