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

from signalbox.wire import messages
from workers.lease import moves
from workers.lease.moves import Effect, Event
from workers.lease.rules import Rules
from workers.lease.tickets import WaitQueue

HELD, FREE = "HELD", "FREE"
_RETRY_S: Final = 0.2
_TO_FLOCK_S: Final = 0.5
"""How long a new holder may need from its record to the flock, before the flock proves it dead."""
_NEVER: Final = math.inf


# -- state -------------------------------------------------------------------------------------------


class Flock(StrEnum):
    """Of the guard. RETURNING: it was told to give the flock back and has not answered."""

    NONE = "none"
    ASKED = "asked"
    HELD = "held"
    RETURNING = "returning"


class Place(StrEnum):
    """Of the runner."""

    OUT = "out"
    ENTERING = "entering"
    IN = "in"


class Op(StrEnum):
    """A write in flight."""

    ACQUIRE = "acquire"
    BEAT = "beat"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who we are in the record; ``host`` equal means the same flocks (same machine, same boot)."""

    id: str
    boot: str
    host: str
    pid: int = 0
    pid_start: int = 0


@dataclass(slots=True)
class Mine:
    """The lease we hold. acked_at: send time of the last acknowledged write."""

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


class Lease:
    """One worker's view of, and hand on, the lease of one GPU.

    ``on`` takes an event and returns effects, to be carried out in order. ``wake_at`` is when to send
    a :class:`moves.Tick` if nothing else happens before. At most one write and one read are in flight.
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
        self.mine: Mine | None = None
        self.flock, self.place = Flock.NONE, Place.OUT
        self.wake_at = 0.0
        self._epoch, self._jitter = epoch, jitter
        self._seen: moves.Observed | None = None
        self._seen_at = self._verified_at = -_NEVER
        self._floor, self._locked_at = 0, 0.0
        self._holder, self._taken_at = "", -_NEVER
        self._op: Op | None = None
        self._sent_at, self._sent = 0.0, messages.Lease(state=FREE, gpu=gpu)
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
        """Of the stay in progress, 0 where there is none."""
        return self.mine.token if self.mine else 0

    @property
    def is_inside(self) -> bool:
        """Lease, flock and runner are together."""
        return self.mine is not None and self.place is Place.IN

    @property
    def is_at_risk(self) -> bool:
        """No heartbeat was acknowledged for half the time there is: begin nothing new."""
        return self.mine is not None and self.mine.is_at_risk

    @property
    def needs_ticket(self) -> bool:
        """Whether a ticket should be in the wait queue: the lease is wanted and another worker holds it."""
        record = self._seen.record if self._seen else None
        if record is None or record.boot == self.me.boot or self.mine is not None:
            return False
        if not self._is_runner_ready:
            return False  # a turn that cannot be used would only cost the others its reservation
        return self._is_wanted and self._is_allowed and (record.state == HELD or bool(record.next))

    def slack(self, now: float) -> float:
        """Seconds until the guard would kill the runner; 0 where nothing is held."""
        return self.mine.acked_at + self.rules.fence_s - now if self.mine else 0.0

    # -- events --------------------------------------------------------------------------------------

    def on(self, event: Event, now: float) -> list[Effect]:
        """What to do about ``event``."""
        self._out = []
        match event:
            case moves.Observed():
                self._on_observed(event, now)
            case moves.Written(revision):
                self._on_written(revision, now)
            case moves.Refused():
                self._on_refused()
            case moves.Failed(is_unsure):
                self._on_failed(is_unsure, now)
            case moves.Read():
                self._is_reading, self._retry_at = False, now + _RETRY_S
            case moves.Locked(floor):
                self._on_locked(floor, now)
            case moves.Unlocked(is_fenced):
                self._on_unlocked(is_fenced, now)
            case moves.Entered(token):
                self._on_entered(token)
            case moves.RunnerReady():
                self._is_runner_ready = True
            case moves.RunnerDied():
                self._is_runner_ready, self.place = False, Place.OUT
            case moves.GuardGone():
                self._is_runner_ready, self.place, self.flock = False, Place.OUT, Flock.NONE
                if self.mine:
                    self._lose("guard_gone")
            case moves.Dirty():
                if self.mine:
                    self._stand_back_until = now + self.rules.quarantine_s
                    self.mine.is_releasing = True
            case moves.Wish():
                self._on_wish(event, now)
            case moves.ReleaseAsked():
                if self.mine:
                    self.mine.is_releasing = True
            case moves.YieldAsked():
                self._is_yield_ordered = self.mine is not None
            case moves.Tick():
                pass
        self._decide(now)
        return self._out

    def _on_wish(self, wish: moves.Wish, now: float) -> None:
        if wish.is_wanted is not None:
            self._is_wanted = wish.is_wanted
        if wish.is_allowed is not None:
            self._is_allowed = wish.is_allowed
        if wish.is_idle is not None:
            self._idle_since = (self._idle_since or now) if wish.is_idle else None

    def _on_observed(self, seen: moves.Observed, now: float) -> None:
        if seen.is_leader:
            self._is_reading = False
            self._verified_at = now
        known = self._seen
        if known is not None and not seen.is_leader and seen.revision <= known.revision:
            return  # an event that was overtaken by a read
        if known is None or seen.revision != known.revision:
            self._seen_at = now
        holder = seen.record.boot if seen.record is not None and seen.record.state == HELD else ""
        if holder != self._holder:
            self._holder, self._taken_at = holder, now
        self._seen = seen
        mine = self.mine
        if mine is None:
            return
        is_ours = seen.record is not None and seen.record.boot == self.me.boot
        if mine.is_resolving and seen.is_leader:
            self._resolve(mine, seen, now)
        elif seen.revision > mine.revision and not is_ours:
            if self._op is Op.RELEASE:
                # The next holder's event overtook the answer to our release: leave in good order,
                # the flock keeps them out until we have.
                self._finish_release()
            else:
                self._lose("taken")

    def _resolve(self, mine: Mine, seen: moves.Observed, now: float) -> None:
        """A write was refused after one of unknown fate: perhaps it was ours that moved the revision."""
        mine.is_resolving = False
        record = seen.record
        if record is not None and (record.boot, record.state) == (self.me.boot, HELD):
            mine.revision = seen.revision
            mine.acked_at = max(mine.acked_at, mine.unsure.get(record.beats, mine.acked_at))
            mine.unsure.clear()
            mine.next_beat_at = now
            self._confirm(mine)
        elif mine.is_releasing and record is not None and record.boot == self.me.boot:
            self._finish_release()
        else:
            self._lose("taken")

    def _on_written(self, revision: int, now: float) -> None:
        op, self._op = self._op, None
        if op is Op.ACQUIRE:
            self._on_acquired(revision, now)
        elif self.mine is None:
            self._seen = None  # the lease was lost while this was under way: look what it did
        elif op is Op.BEAT:
            mine = self.mine
            mine.revision, mine.acked_at = revision, self._sent_at
            mine.is_token_written = True
            mine.unsure.clear()
            self._confirm(mine)
        else:
            self._seen, self._seen_at = moves.Observed(self._sent, revision), now
            self._finish_release()

    def _on_acquired(self, revision: int, now: float) -> None:
        token = revision if revision > self._last_token() else self._last_token() + 1
        self.mine = Mine(
            token=token,
            revision=revision,
            since=now,
            acked_at=self._sent_at,
            next_beat_at=self._sent_at + self.rules.heartbeat_s * self._jitter(),
            is_token_written=token == revision,
        )
        self._is_yield_ordered = False
        self._idle_since = now if self._idle_since is not None else None
        self._raise_token(self.mine)

    def _confirm(self, mine: Mine) -> None:
        if self.flock is Flock.HELD:
            self._out.append(moves.Deadline(mine.acked_at + self.rules.fence_s))

    def _on_refused(self) -> None:
        op, self._op = self._op, None
        mine = self.mine
        if mine is None:
            self._seen = None  # somebody was faster: look again
        elif mine.unsure:
            mine.is_resolving = True
        elif op is Op.RELEASE:
            self._lose("taken")
        else:
            self._lose("heartbeat_refused")

    def _on_failed(self, is_unsure: bool, now: float) -> None:
        op, self._op, self._retry_at = self._op, None, now + _RETRY_S
        mine = self.mine
        if mine is None:
            self._seen = None
            # Our node of NATS may be cut off from the others: whoever reaches them needs the flock.
            self._give_back()
            self._lapse_at = now + self.rules.reserved_s
        else:
            if is_unsure:
                mine.unsure[mine.beats] = self._sent_at
            mine.next_beat_at = self._retry_at
            if op is Op.RELEASE:
                self._give_back()  # the device need not wait until NATS can be told

    def _on_locked(self, floor: int, now: float) -> None:
        if self.flock is not Flock.ASKED:
            return
        self.flock, self._floor, self._locked_at = Flock.HELD, floor, now
        if self.mine:
            self._raise_token(self.mine)

    def _raise_token(self, mine: Mine) -> None:
        """A stream that was lost and made anew counts from 1 again: go on from what the host remembers."""
        if self.flock is Flock.HELD and mine.token <= self._floor:
            mine.token, mine.is_token_written = self._floor + 1, False
        if not mine.is_token_written:
            mine.next_beat_at = -_NEVER

    def _on_unlocked(self, is_fenced: bool, now: float) -> None:
        was = self.flock
        self.flock, self.place = Flock.NONE, Place.OUT
        if is_fenced and self.mine and was is not Flock.RETURNING:
            self._stand_back_until = now + _RETRY_S
            self._lose("deadline")

    def _on_entered(self, token: int) -> None:
        if self.mine and self.mine.token == token and not self.mine.is_releasing:
            if self.place is Place.ENTERING:
                self.place = Place.IN
                self._out.append(moves.Gained(token))
        elif self.flock is Flock.HELD:
            self._fence()

    # -- losing and giving up ------------------------------------------------------------------------

    def _lose(self, why: str) -> None:
        """No grace: whoever holds the lease now may already be waiting for the flock."""
        self.mine = None
        self._is_yield_ordered = False
        if why == "heartbeat_refused":
            self._seen = None
        if self.place is not Place.OUT:
            self._fence()
        else:
            self._give_back()
        self._out.append(moves.Ended(why))

    def _fence(self) -> None:
        if self.flock in {Flock.HELD, Flock.ASKED}:
            self._out.append(moves.Fence())
            self.flock = Flock.RETURNING
        self.place = Place.OUT

    def _give_back(self) -> None:
        if self.flock in {Flock.HELD, Flock.ASKED}:
            is_used = self.place is not Place.OUT
            self._out.append(moves.Leave() if is_used else moves.Unlock())
            self.flock, self.place = Flock.RETURNING, Place.OUT

    def _finish_release(self) -> None:
        self._give_back()
        self.mine = None
        self._is_yield_ordered = False
        self._out.append(moves.Ended(""))

    # -- what to do now ------------------------------------------------------------------------------

    def _decide(self, now: float) -> None:
        self.wake_at = _NEVER
        if self.mine and now >= self._end_of(self.mine):
            self._lose("deadline")
        if self.mine:
            self._decide_inside(self.mine, now)
        else:
            self._decide_outside(now)

    def _end_of(self, mine: Mine) -> float:
        """The device must be left by the fence; a release may go on until the record dies by itself."""
        limit = self.rules.ttl_s if mine.is_releasing else self.rules.fence_s
        return mine.acked_at + limit

    def _decide_inside(self, mine: Mine, now: float) -> None:
        self._wake(self._end_of(mine), now)
        self._judge_risk(mine, now)
        if not self._is_allowed and self.place is not Place.IN:
            mine.is_releasing = True
        if mine.is_resolving:
            self._read(now)
        elif mine.is_releasing:
            if self._op is None and now >= self._retry_at:
                self._write(Op.RELEASE, self._free_record(mine), mine.revision, None, now)
            self._wake(self._retry_at, now)
        else:
            self._keep(mine, now)

    def _judge_risk(self, mine: Mine, now: float) -> None:
        """What begins with half the time gone would most likely be killed before it could commit."""
        at = mine.acked_at + self.rules.fence_s / 2
        self._wake(at, now)
        if mine.is_at_risk != (now >= at):
            mine.is_at_risk = not mine.is_at_risk
            self._out.append(moves.AtRisk() if mine.is_at_risk else moves.OutOfRisk())

    def _keep(self, mine: Mine, now: float) -> None:
        if self._op is None and now >= mine.next_beat_at:
            mine.beats += 1
            mine.next_beat_at = now + self.rules.heartbeat_s * self._jitter()
            self._write(Op.BEAT, self._held_record(mine), mine.revision, self.rules.ttl_s, now)
        if self._op is None:
            self._wake(mine.next_beat_at, now)
        if self.flock is Flock.NONE:
            self._lock()
        if self.flock is not Flock.HELD:
            self._await_flock(mine, now)
        elif self.place is Place.OUT:
            if self._is_runner_ready and mine.is_token_written:
                self.place = Place.ENTERING
                self._out.append(moves.Enter(mine.token, mine.acked_at + self.rules.fence_s))
        elif self.place is Place.IN and not mine.is_yield_asked:
            self._consider_yield(mine, now)

    def _await_flock(self, mine: Mine, now: float) -> None:
        """The last holder's runner does not die: the device is not ours to use, nor anybody's."""
        until = mine.since + self.rules.lock_wait_s
        if now >= until:
            self._stand_back_until = now + self.rules.quarantine_s
            self._out.append(moves.NoFlock())
            mine.is_releasing = True
            self._decide_inside(mine, now)
        else:
            self._wake(until, now)

    def _consider_yield(self, mine: Mine, now: float) -> None:
        due = _NEVER
        if self._is_yield_ordered or not self._is_allowed:
            due = now
            self._stand_back_until = now + self.rules.reserved_s
        elif self.waiters.others(self.me.id):
            due = mine.since + self.rules.quantum_s
            if self._idle_since is not None:
                due = min(due, max(self._idle_since, mine.since) + self.rules.idle_s)
        if now >= due:
            mine.is_yield_asked = True
            self._out.append(moves.AskYield())
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
            # Not our turn: whoever's it is needs the flock. We look again when that has lapsed.
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
        """From when on we may try to take the lease, as far as we know."""
        if not (self._is_allowed and self._is_runner_ready and self._seen):
            return _NEVER
        turn_at = self._turn_at(self._seen.record, now)
        return max(turn_at, self._stand_back_until, self._retry_at)

    def _turn_at(self, record: messages.Lease | None, now: float) -> float:
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
            return now  # ours, and we do not hold it: a write that arrived late, or a fenced stay
        if self.flock is Flock.HELD and record.host == me.host:
            # A new holder may still be on its way to the flock that we got first: that is no proof yet.
            return max(self._locked_at, self._taken_at + _TO_FLOCK_S) + rank * self.rules.reserved_s
        return _NEVER

    def _is_proof_needed(self) -> bool:
        record = self._seen.record if self._seen else None
        return record is not None and record.state == HELD and record.boot != self.me.boot

    # -- making effects ------------------------------------------------------------------------------

    def _acquire(self, now: float) -> None:
        if self.flock is Flock.NONE:
            self._lock()  # meanwhile
        record = messages.Lease(
            state=HELD,
            gpu=self.gpu,
            owner=self.me.id,
            boot=self.me.boot,
            host=self.me.host,
            pid=self.me.pid,
            pid_start=self.me.pid_start,
            since=now + self._epoch,
            last_token=self._last_token(),
        )
        revision = self._seen.revision if self._seen else 0
        self._write(Op.ACQUIRE, record, revision, self.rules.ttl_s, now)

    def _last_token(self) -> int:
        record = self._seen.record if self._seen else None
        stored = self._floor if self.flock is Flock.HELD else 0
        return max(stored, record.last_token if record else 0, record.token if record else 0)

    def _held_record(self, mine: Mine) -> messages.Lease:
        return messages.Lease(
            state=HELD,
            gpu=self.gpu,
            owner=self.me.id,
            boot=self.me.boot,
            host=self.me.host,
            pid=self.me.pid,
            pid_start=self.me.pid_start,
            token=mine.token,
            last_token=mine.token,
            since=mine.since + self._epoch,
            beats=mine.beats,
        )

    def _free_record(self, mine: Mine) -> messages.Lease:
        return messages.Lease(
            state=FREE,
            gpu=self.gpu,
            boot=self.me.boot,
            next=self.waiters.head(but=self.me.id),
            reserved_s=self.rules.reserved_s,
            last_token=mine.token,
            since=mine.since + self._epoch,
        )

    def _write(self, op: Op, record: messages.Lease, expect: int, ttl_s: int | None, now: float) -> None:
        self._op, self._sent_at, self._sent = op, now, record
        self._out.append(moves.Write(record, expect, ttl_s))

    def _read(self, now: float) -> None:
        if self._is_reading:
            return
        if now < self._retry_at:
            self._wake(self._retry_at, now)
            return
        self._is_reading = True
        self._recheck_at = now + self.rules.recheck_s * self._jitter()
        self._out.append(moves.ReadLeader())

    def _lock(self) -> None:
        self.flock = Flock.ASKED
        self._out.append(moves.Lock())

    def _wake(self, at: float, now: float) -> None:
        if at > now:  # what is due has been done, or waits for an answer that will come as an event
            self.wake_at = min(self.wake_at, at)
