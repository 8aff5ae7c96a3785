"""The lease of one GPU as a state machine: events in, effects out, time passed in. No I/O, no clock.

Three things must come together before a runner may use the device, and each is sufficient alone
for some fault (S1 to S3 of docs/guarantees.md): the *record* in NATS, written only by compare-and-set; the *flock*,
which ends only with the last process that could use the device; the *deadline*, which the guard
enforces when this process cannot. ``now`` is CLOCK_BOOTTIME in seconds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from signalbox.wire import workerdocs
from workers.lease import effects, events
from workers.lease.effects import Effect
from workers.lease.events import Event
from workers.lease.rules import Rules
from workers.lease.tickets import WaitQueue

HELD, FREE = "HELD", "FREE"
_RETRY_S: Final = 0.2
_TO_FLOCK_S: Final = 0.5
"""How long a new holder may need from its record to the flock, before the flock proves it dead."""
_NEVER: Final = math.inf


# -- state -------------------------------------------------------------------------------------------


class Flock(StrEnum):
    """What the guard has of the flock. RETURNING: it was told to release the flock and has not answered."""

    NONE = "none"
    ASKED = "asked"
    HELD = "held"
    RETURNING = "returning"


class RunnerPlace(StrEnum):
    """Where the runner is: outside the device, entering it, or inside."""

    OUT = "out"
    ENTERING = "entering"
    IN = "in"


class Op(StrEnum):
    """The kind of the write in flight."""

    ACQUIRE = "acquire"
    BEAT = "beat"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Claimant:
    """How this worker names itself in the record; an equal ``host`` means the same flocks (same machine, same boot)."""

    id: str
    boot: str
    host: str
    pid: int = 0
    pid_start: int = 0


@dataclass(slots=True)
class HeldLease:
    """The lease that this worker holds. acked_at: when the last acknowledged write was sent."""

    token: int
    revision: int
    since: float
    acked_at: float
    next_beat_at: float
    beats: int = 0
    is_token_written: bool = True
    unsure: dict[int, float] = field(default_factory=dict)
    is_resolving: bool = False
    is_releasing: bool = False
    is_yield_asked: bool = False
    is_at_risk: bool = False


class LeaseMachine:
    """The lease of one GPU as one worker sees and changes it.

    ``on`` takes an event and returns effects, to be carried out in order. ``wake_at`` is when to send
    a :class:`events.Tick` if nothing else happens before. At most one write and one read are in flight.
    """

    def __init__(
        self,
        gpu: str,
        me: Claimant,
        rules: Rules,
        waiters: WaitQueue,
        *,
        epoch: float = 0.0,
        jitter: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """``waiters`` is shared and kept by the caller, who sends a Tick when it changes. ``epoch``: unix time
        minus ``now``. ``jitter``: factor around 1 on periods, so that workers do not march in step."""
        self.gpu, self.me, self.rules, self.waiters = gpu, me, rules, waiters
        self.held: HeldLease | None = None
        self.flock, self.place = Flock.NONE, RunnerPlace.OUT
        self.wake_at = 0.0
        self._epoch, self._jitter = epoch, jitter
        self._seen: events.Observed | None = None
        self._seen_at = self._verified_at = -_NEVER
        self._floor, self._locked_at = 0, 0.0
        self._holder, self._taken_at = "", -_NEVER
        self._op: Op | None = None
        self._sent_at, self._sent = 0.0, workerdocs.Lease(state=FREE, gpu=gpu)
        self._is_reading, self._is_runner_ready = False, False
        self._is_wanted, self._is_allowed = False, True
        self._idle_since: float | None = 0.0
        self._stand_back_until = self._retry_at = self._recheck_at = -_NEVER
        self._lapse_at = -_NEVER
        self._is_yield_ordered = False
        self._out: list[Effect] = []

    # -- what others may ask -------------------------------------------------------------------------

    @property
    def token(self) -> int:
        """The fencing token of the lease that this worker holds; 0 without one."""
        return self.held.token if self.held else 0

    @property
    def is_at_risk(self) -> bool:
        """Whether no heartbeat was acknowledged for half of the fence: nothing new is begun."""
        return self.held is not None and self.held.is_at_risk

    def may_begin(self, now: float) -> bool:
        """Whether work may begin under the lease that is held."""
        held = self.held
        return held is not None and not held.is_at_risk and now < held.acked_at + self.rules.fence_s

    @property
    def needs_ticket(self) -> bool:
        """Whether a ticket should be in the wait queue: the lease is wanted and another worker holds it."""
        record = self._seen.record if self._seen else None
        if record is None or record.boot == self.me.boot or self.held is not None:
            return False
        if not self._is_runner_ready:
            return False  # a turn that cannot be used only costs the other waiters its reservation
        return self._is_wanted and self._is_allowed and (record.state == HELD or bool(record.next))

    def slack(self, now: float) -> float:
        """Seconds until the guard would kill the runner; 0 where nothing is held."""
        held = self.held  # once: who asks for figures does so in a thread of its own
        return held.acked_at + self.rules.fence_s - now if held else 0.0

    # -- events --------------------------------------------------------------------------------------

    def busy(self) -> None:
        """Jobs are in flight from now on: no idle hand-over. Nothing has to be done about that, so it is no event."""
        self._idle_since = None

    def on(self, event: Event, now: float) -> list[Effect]:
        """Take ``event`` in and return the effects to carry out."""
        self._out = []
        match event:
            case events.Observed():
                self._on_observed(event, now)
            case events.Written(revision):
                self._on_written(revision, now)
            case events.WriteRefused():
                self._on_refused()
            case events.WriteFailed(is_unsure):
                self._on_failed(is_unsure, now)
            case events.ReadFailed():
                self._is_reading, self._retry_at = False, now + _RETRY_S
            case events.Locked(floor):
                self._on_locked(floor, now)
            case events.Unlocked(is_fenced):
                self._on_unlocked(is_fenced, now)
            case events.Entered(token):
                self._on_entered(token)
            case events.RunnerReady():
                self._is_runner_ready = True
            case events.RunnerDied():
                self._is_runner_ready, self.place = False, RunnerPlace.OUT
            case events.GuardGone():
                self._is_runner_ready, self.place, self.flock = False, RunnerPlace.OUT, Flock.NONE
                if self.held:
                    self._lose("guard_gone")
            case events.DeviceUnusable():
                if self.held:
                    self._stand_back_until = now + self.rules.quarantine_s
                    self.held.is_releasing = True
            case events.Intent():
                self._on_intent(event)
            case events.Idle(since):
                self._idle_since = since
            case events.ReleaseAsked():
                if self.held:
                    self.held.is_releasing = True
            case events.YieldAsked():
                self._is_yield_ordered = self.held is not None
            case events.Tick():
                pass
        self._decide(now)
        return self._out

    def _on_intent(self, intent: events.Intent) -> None:
        if intent.is_wanted is not None:
            self._is_wanted = intent.is_wanted
        if intent.is_allowed is not None:
            self._is_allowed = intent.is_allowed

    def _on_observed(self, seen: events.Observed, now: float) -> None:
        if seen.is_leader:
            self._is_reading = False
            self._verified_at = now
        known = self._seen
        if known is not None and not seen.is_leader and seen.revision <= known.revision:
            return  # a read has overtaken this event
        if known is None or seen.revision != known.revision:
            self._seen_at = now
        holder = seen.record.boot if seen.record is not None and seen.record.state == HELD else ""
        if holder != self._holder:
            self._holder, self._taken_at = holder, now
        self._seen = seen
        held = self.held
        if held is None:
            return
        is_ours = seen.record is not None and seen.record.boot == self.me.boot
        if held.is_resolving and seen.is_leader:
            self._resolve(held, seen, now)
        elif seen.revision > held.revision and not is_ours:
            if self._op is Op.RELEASE:
                # The next holder's event overtook the answer to this worker's release: leave in good order,
                # the flock keeps the next holder out until then.
                self._finish_release()
            else:
                self._lose("taken")

    def _resolve(self, held: HeldLease, seen: events.Observed, now: float) -> None:
        """A write was refused after an ambiguous one: that one may have changed the revision."""
        held.is_resolving = False
        record = seen.record
        if record is not None and (record.boot, record.state) == (self.me.boot, HELD):
            held.revision = seen.revision
            held.acked_at = max(held.acked_at, held.unsure.get(record.beats, held.acked_at))
            held.unsure.clear()
            held.next_beat_at = now
            self._confirm(held)
        elif held.is_releasing and record is not None and record.boot == self.me.boot:
            self._finish_release()
        else:
            self._lose("taken")

    def _on_written(self, revision: int, now: float) -> None:
        op, self._op = self._op, None
        if op is Op.ACQUIRE:
            self._on_acquired(revision, now)
        elif self.held is None:
            self._seen = None  # the lease was lost while the write was in flight: read what it did
        elif op is Op.BEAT:
            held = self.held
            held.revision, held.acked_at = revision, self._sent_at
            held.is_token_written = True
            held.unsure.clear()
            self._confirm(held)
        else:
            self._seen, self._seen_at = events.Observed(self._sent, revision), now
            self._finish_release()

    def _on_acquired(self, revision: int, now: float) -> None:
        token = revision if revision > self._last_token() else self._last_token() + 1
        self.held = HeldLease(
            token=token,
            revision=revision,
            since=now,
            acked_at=self._sent_at,
            next_beat_at=self._sent_at + self.rules.heartbeat_s * self._jitter(),
            is_token_written=token == revision,
        )
        self._is_yield_ordered = False
        self._idle_since = now if self._idle_since is not None else None
        self._raise_token(self.held)

    def _confirm(self, held: HeldLease) -> None:
        if self.flock is Flock.HELD:
            self._out.append(effects.Deadline(held.acked_at + self.rules.fence_s))

    def _on_refused(self) -> None:
        op, self._op = self._op, None
        held = self.held
        if held is None:
            self._seen = None  # another worker was faster: read again
        elif held.unsure:
            held.is_resolving = True
        elif op is Op.RELEASE:
            self._lose("taken")
        else:
            self._lose("heartbeat_refused")

    def _on_failed(self, is_unsure: bool, now: float) -> None:
        op, self._op, self._retry_at = self._op, None, now + _RETRY_S
        held = self.held
        if held is None:
            self._seen = None
            # This NATS node may be cut off from the others: a worker that reaches them needs the flock.
            self._give_back()
            self._lapse_at = now + self.rules.reserved_s
        else:
            if is_unsure:
                held.unsure[held.beats] = self._sent_at
            held.next_beat_at = self._retry_at
            if op is Op.RELEASE:
                self._give_back()  # the device is free before NATS knows it

    def _on_locked(self, floor: int, now: float) -> None:
        if self.flock is not Flock.ASKED:
            return
        self.flock, self._floor, self._locked_at = Flock.HELD, floor, now
        if self.held:
            self._raise_token(self.held)

    def _raise_token(self, held: HeldLease) -> None:
        """Keep the token rising: a stream that was lost and made anew counts from 1, so the host's floor counts on."""
        if self.flock is Flock.HELD and held.token <= self._floor:
            held.token, held.is_token_written = self._floor + 1, False
        if not held.is_token_written:
            held.next_beat_at = -_NEVER

    def _on_unlocked(self, is_fenced: bool, now: float) -> None:
        was = self.flock
        self.flock, self.place = Flock.NONE, RunnerPlace.OUT
        if is_fenced and self.held and was is not Flock.RETURNING:
            self._stand_back_until = now + _RETRY_S
            self._lose("deadline")

    def _on_entered(self, token: int) -> None:
        if self.held and self.held.token == token and not self.held.is_releasing:
            if self.place is RunnerPlace.ENTERING:
                self.place = RunnerPlace.IN
                self._out.append(effects.Gained(token))
        elif self.flock is Flock.HELD:
            self._fence()

    # -- losing and giving up ------------------------------------------------------------------------

    def _lose(self, why: str) -> None:
        """End a lost lease at once: its next holder may already wait for the flock."""
        self.held = None
        self._is_yield_ordered = False
        if why == "heartbeat_refused":
            self._seen = None
        if self.place is not RunnerPlace.OUT:
            self._fence()
        else:
            self._give_back()
        self._out.append(effects.Ended(why))

    def _fence(self) -> None:
        if self.flock in {Flock.HELD, Flock.ASKED}:
            self._out.append(effects.Fence())
            self.flock = Flock.RETURNING
        self.place = RunnerPlace.OUT

    def _give_back(self) -> None:
        if self.flock in {Flock.HELD, Flock.ASKED}:
            is_used = self.place is not RunnerPlace.OUT
            self._out.append(effects.Leave() if is_used else effects.Unlock())
            self.flock, self.place = Flock.RETURNING, RunnerPlace.OUT

    def _finish_release(self) -> None:
        self._give_back()
        self.held = None
        self._is_yield_ordered = False
        self._out.append(effects.Ended(""))

    # -- what to do now ------------------------------------------------------------------------------

    def _decide(self, now: float) -> None:
        self.wake_at = _NEVER
        if self.held and now >= self._end_of(self.held):
            self._lose("deadline")
        if self.held:
            self._decide_inside(self.held, now)
        else:
            self._decide_outside(now)

    def _end_of(self, held: HeldLease) -> float:
        """When the lease ends by itself: at the fence, or, while it is released, when its record expires."""
        limit = self.rules.ttl_s if held.is_releasing else self.rules.fence_s
        return held.acked_at + limit

    def _decide_inside(self, held: HeldLease, now: float) -> None:
        self._wake(self._end_of(held), now)
        self._judge_risk(held, now)
        if not self._is_allowed and self.place is not RunnerPlace.IN:
            held.is_releasing = True
        if held.is_resolving:
            self._read(now)
        elif held.is_releasing:
            if self._op is None and now >= self._retry_at:
                self._write(Op.RELEASE, self._free_record(held), held.revision, None, now)
            self._wake(self._retry_at, now)
        else:
            self._keep(held, now)

    def _judge_risk(self, held: HeldLease, now: float) -> None:
        """Say when half of the fence has passed: what begins then is likely to be killed before its commit."""
        at = held.acked_at + self.rules.fence_s / 2
        self._wake(at, now)
        if held.is_at_risk != (now >= at):
            held.is_at_risk = not held.is_at_risk
            self._out.append(effects.AtRisk() if held.is_at_risk else effects.OutOfRisk())

    def _keep(self, held: HeldLease, now: float) -> None:
        if self._op is None and now >= held.next_beat_at:
            held.beats += 1
            held.next_beat_at = now + self.rules.heartbeat_s * self._jitter()
            record = self._held_record(held.since, last_token=held.token, token=held.token, beats=held.beats)
            self._write(Op.BEAT, record, held.revision, self.rules.ttl_s, now)
        if self._op is None:
            self._wake(held.next_beat_at, now)
        if self.flock is Flock.NONE:
            self._lock()
        if self.flock is not Flock.HELD:
            self._await_flock(held, now)
        elif self.place is RunnerPlace.OUT:
            if self._is_runner_ready and held.is_token_written:
                self.place = RunnerPlace.ENTERING
                self._out.append(effects.Enter(held.token, held.acked_at + self.rules.fence_s))
        elif self.place is RunnerPlace.IN and not held.is_yield_asked:
            self._consider_yield(held, now)

    def _await_flock(self, held: HeldLease, now: float) -> None:
        """Give the lease up if the last holder's runner does not die in time: no worker can use the device."""
        until = held.since + self.rules.lock_wait_s
        if now >= until:
            self._stand_back_until = now + self.rules.quarantine_s
            self._out.append(effects.NoFlock())
            held.is_releasing = True
            self._decide_inside(held, now)
        else:
            self._wake(until, now)

    def _consider_yield(self, held: HeldLease, now: float) -> None:
        due = _NEVER
        if self._is_yield_ordered or not self._is_allowed:
            due = now
            self._stand_back_until = now + self.rules.reserved_s
        elif self.waiters.others(self.me.id):
            due = held.since + self.rules.quantum_s
            if self._idle_since is not None:
                due = min(due, max(self._idle_since, held.since) + self.rules.idle_s)
        if now >= due:
            held.is_yield_asked = True
            self._out.append(effects.AskYield())
        else:
            self._wake(due, now)

    def _decide_outside(self, now: float) -> None:
        if self._op is not None:
            return
        if self._seen is None or now >= self._recheck_at:
            self._read(now)
        self._wake(self._recheck_at, now)
        may_at = self._may_take_at(now)
        if now >= may_at:
            if not self._is_proof_needed() or self._verified_at >= self._locked_at:
                self._acquire(now)
                return
            self._read(now)
        elif self.flock is Flock.HELD and not self._is_reading and self._seen is not None:
            # Another worker's turn: it needs the flock. This worker looks again when that turn has lapsed.
            self._give_back()
            self._lapse_at = may_at if may_at < _NEVER else now + self.rules.reserved_s
        self._wake(may_at, now)
        self._watch_flock(now)

    def _watch_flock(self, now: float) -> None:
        """The first two waiters, or every worker if none waits, wait for the flock: the one that gets it while
        the record names another holder has the proof that the other is dead."""
        is_near = self.waiters.ahead(self.me.id) <= 1
        if self._is_ready(now) and is_near and now >= self._lapse_at:
            if self.flock is Flock.NONE:
                self._lock()
        else:
            if self.flock is Flock.ASKED:
                self._give_back()
            if self._is_ready(now):
                self._wake(self._lapse_at, now)
            else:
                self._wake(self._stand_back_until, now)

    def _is_ready(self, now: float) -> bool:
        return self._is_allowed and self._is_runner_ready and now >= self._stand_back_until

    def _may_take_at(self, now: float) -> float:
        """From when on this worker may try to take the lease, as far as it knows."""
        if not (self._is_allowed and self._is_runner_ready and self._seen):
            return _NEVER
        turn_at = self._turn_at(self._seen.record, now)
        return max(turn_at, self._stand_back_until, self._retry_at)

    def _turn_at(self, record: workerdocs.Lease | None, now: float) -> float:
        me = self.me
        rank = self.waiters.ahead(me.id)
        if record is None:
            return self._seen_at + rank * self.rules.reserved_s
        if record.state == FREE:
            if record.next == me.id:
                return self._seen_at
            if record.next:
                rank = 1 + self.waiters.ahead(me.id, but=record.next)
            return self._seen_at + rank * self.rules.reserved_s
        if record.boot == me.boot:
            return now  # our own record without a lease: a write that arrived late, or a lease that was fenced
        if self.flock is Flock.HELD and record.host == me.host:
            # A new holder may not have reached the flock yet, which this worker got first: no proof of death.
            return max(self._locked_at, self._taken_at + _TO_FLOCK_S) + rank * self.rules.reserved_s
        return _NEVER

    def _is_proof_needed(self) -> bool:
        record = self._seen.record if self._seen else None
        return record is not None and record.state == HELD and record.boot != self.me.boot

    # -- making effects ------------------------------------------------------------------------------

    def _acquire(self, now: float) -> None:
        if self.flock is Flock.NONE:
            self._lock()  # while the write is in flight
        record = self._held_record(now, last_token=self._last_token())
        revision = self._seen.revision if self._seen else 0
        self._write(Op.ACQUIRE, record, revision, self.rules.ttl_s, now)

    def _last_token(self) -> int:
        record = self._seen.record if self._seen else None
        stored = self._floor if self.flock is Flock.HELD else 0
        return max(stored, record.last_token if record else 0, record.token if record else 0)

    def _held_record(self, since: float, *, last_token: int, token: int = 0, beats: int = 0) -> workerdocs.Lease:
        """token: 0 while the lease is being acquired, as its write makes the token."""
        return workerdocs.Lease(
            state=HELD,
            gpu=self.gpu,
            owner=self.me.id,
            boot=self.me.boot,
            host=self.me.host,
            pid=self.me.pid,
            pid_start=self.me.pid_start,
            token=token,
            last_token=last_token,
            since=since + self._epoch,
            beats=beats,
        )

    def _free_record(self, held: HeldLease) -> workerdocs.Lease:
        return workerdocs.Lease(
            state=FREE,
            gpu=self.gpu,
            boot=self.me.boot,
            next=self.waiters.head(but=self.me.id),
            reserved_s=self.rules.reserved_s,
            last_token=held.token,
            since=held.since + self._epoch,
        )

    def _write(self, op: Op, record: workerdocs.Lease, expect: int, ttl_s: int | None, now: float) -> None:
        self._op, self._sent_at, self._sent = op, now, record
        self._out.append(effects.WriteRecord(record, expect, ttl_s))

    def _read(self, now: float) -> None:
        if self._is_reading:
            return
        if now < self._retry_at:
            self._wake(self._retry_at, now)
            return
        self._is_reading = True
        self._recheck_at = now + self.rules.recheck_s * self._jitter()
        self._out.append(effects.ReadLeader())

    def _lock(self) -> None:
        self.flock = Flock.ASKED
        self._out.append(effects.Lock())

    def _wake(self, at: float, now: float) -> None:
        if at > now:  # what is due is done, or waits for an answer that comes as an event
            self.wake_at = min(self.wake_at, at)
