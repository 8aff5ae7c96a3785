"""Builds one row per GPU lane from leases, tickets, presence and records. Pure; time is passed in."""

from collections import defaultdict, deque
from typing import Final

from msgspec.structs import replace

from console.board.protocol import Topic
from console.board.rows import LaneRow, RunningJob, StripInterval, Waiter
from console.board.use import DeviceUse
from signalbox.wire.messages import Record, State
from signalbox.wire.workerdocs import Device, Lease, Ticket, Worker

STRIP_S: Final = 600.0
"""How far back the strip of a lane reaches."""
STRIP_LIMIT: Final = 600
"""Intervals of a strip: two in each two seconds of a GPU that is handed over at its quantum's shortest."""
UNREPORTED: Final = "unreported"
"""Of a lane that is held: its holder has not said what it does."""
JOBS_SHOWN: Final = 6
JOBS_KEPT: Final = 1024
_WORKER_LISTS: Final = 32
"""A worker names at most this many jobs in its presence."""
BUSY: Final = 0.5
"""A GPU that is in use for a greater share of the time counts as busy."""
IN_USE: Final = 0.005
"""One that is in use for a smaller one counts as idle."""
_BEAT_S: Final = 3.0
_LOST_S: Final = 600.0
"""A GPU without any event for this long leaves the board."""


class _GpuState:
    """State of one GPU as received so far."""

    def __init__(self, gpu: str, now: float) -> None:
        self.gpu = gpu
        self.device: Device | None = None
        self.host = ""
        self.lease: Lease | None = None
        self.token = 0
        self.renewed_at = 0.0
        self.ttl_s = 0.0
        self.is_vanished = False
        self.tickets: dict[str, Waiter] = {}
        self.workers: dict[str, Worker] = {}
        self.jobs: dict[str, RunningJob] = {}
        self.reported: set[str] = set()
        self.strip: deque[StripInterval] = deque(maxlen=STRIP_LIMIT)
        self.use = DeviceUse()
        self.seen_at = now

    def state(self, now: float) -> str:
        """``held``, ``handover``, ``expired`` or ``idle``."""
        if self.lease is not None and self.lease.state == "HELD":
            is_over = self.is_vanished or (self.ttl_s and now > self.renewed_at + self.ttl_s)
            return "expired" if is_over else "held"
        return "handover" if self.tickets or (self.lease and self.lease.next) else "idle"


class Lanes:
    """Builds the rows of the topic ``lanes``; every method keeps the row of its GPU current."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._lanes: dict[str, _GpuState] = {}
        self._gpu_of: dict[str, str] = {}
        self._is_blind = False

    def lease(self, gpu: str, lease: Lease | None, *, revision: int, at: float, ttl_s: float, now: float) -> None:
        """The lease as written at ``at`` to live ``ttl_s``; None when it ran out or was removed."""
        lane = self._lane(gpu, now)
        if lease is None:
            lane.is_vanished = True
        else:
            token = lease.token or revision if lease.state == "HELD" else 0
            if token != lane.token:
                lane.jobs = {i: job for i, job in lane.jobs.items() if job.token == token}
            lane.lease, lane.token, lane.is_vanished = lease, token, False
            lane.renewed_at, lane.ttl_s = at, ttl_s
            lane.host = lease.host or lane.host
        self._show(lane, now, at=at)

    def ticket(self, gpu: str, worker: str, ticket: Ticket | None, *, revision: int, now: float) -> None:
        """A place in the line, or its end (None)."""
        lane = self._lane(gpu, now)
        if ticket is None:
            lane.tickets.pop(worker, None)
        else:
            known = lane.tickets.get(worker)
            number = ticket.number or (known.number if known else revision)
            lane.tickets[worker] = Waiter(worker, ticket.since, number)
        self._show(lane, now)

    def presence(self, worker_id: str, worker: Worker | None, now: float) -> None:
        """A worker's heartbeat, or its absence (None)."""
        before = self._gpu_of.pop(worker_id, "")
        if before and (worker is None or worker.device.id != before):
            lane = self._lanes[before]
            lane.workers.pop(worker_id, None)
            lane.tickets.pop(worker_id, None)
            lane.use.leave(worker_id)
            lane.jobs = {i: job for i, job in lane.jobs.items() if job.worker != worker_id}
            self._show(lane, now)
        if worker is None:
            return
        lane = self._lane(worker.device.id, now)
        self._gpu_of[worker_id] = lane.gpu
        lane.device = worker.device
        lane.host = worker.host
        lane.workers[worker_id] = worker
        lane.use.tell(worker)
        self._reconcile(lane, worker)
        self._show(lane, now)

    def record(self, record: Record, now: float) -> None:
        """A job came into a state: its holder has it, or no longer."""
        if not record.gpu:
            return
        lane = self._lane(record.gpu, now)
        if record.state is State.RUNNING:
            if len(lane.jobs) >= JOBS_KEPT:
                lane.jobs.pop(next(iter(lane.jobs)))
            lane.jobs[record.id] = RunningJob(
                record.id, record.model, record.version, record.worker, record.token, record.claimed_at or now
            )
        elif lane.jobs.pop(record.id, None) is None:
            return
        self._show(lane, now)

    def age(self, now: float, *, is_blind: bool) -> None:
        """Called every second: leases run out, strips move on, silent GPUs leave. is_blind: NATS is away."""
        turned = is_blind != self._is_blind
        self._is_blind = is_blind
        for lane in list(self._lanes.values()):
            has_any = lane.workers or lane.tickets or (lane.lease and not lane.is_vanished)
            if has_any and not is_blind:
                lane.seen_at = now
            if now - lane.seen_at > _LOST_S and not is_blind:
                del self._lanes[lane.gpu]
                self._topic.remove(lane.gpu)
                continue
            shown = self._topic.rows.get(lane.gpu)
            if turned or (isinstance(shown, LaneRow) and shown.state != self._state(lane, now)):
                self._show(lane, now)

    def use_by(self, worker: Worker) -> float | None:
        """The share of the last seconds in which a worker that holds its GPU has used it; None = not known."""
        lane = self._lanes.get(worker.device.id)
        return lane.use.recent(worker.beat_at) if lane is not None and worker.token else None

    def rows(self) -> list[LaneRow]:
        """Every lane as last shown."""
        return [row for row in self._topic.rows.values() if isinstance(row, LaneRow)]

    def seed(self, gpu: str, intervals: list[StripInterval], now: float) -> None:
        """History of a lane from before this process started, oldest first. Shown with what comes next."""
        lane = self._lane(gpu, now)
        newer = [s for s in lane.strip if not intervals or s.at > intervals[-1].at]
        lane.strip.clear()
        for interval in [*intervals, *newer]:
            _extend(lane.strip, interval)

    def _lane(self, gpu: str, now: float) -> _GpuState:
        lane = self._lanes.get(gpu)
        if lane is None:
            lane = self._lanes[gpu] = _GpuState(gpu, now)
        lane.seen_at = now
        return lane

    def _state(self, lane: _GpuState, now: float) -> str:
        return "unknown" if self._is_blind else lane.state(now)

    @staticmethod
    def _reconcile(lane: _GpuState, worker: Worker) -> None:
        """Correct the lane's jobs by presence: add those whose begin was missed, drop those that ended long ago."""
        if not worker.token:
            lane.jobs = {i: job for i, job in lane.jobs.items() if job.worker != worker.id}
            return
        lane.reported &= lane.jobs.keys()  # known from presence alone
        run = worker.run
        for job_id in run.jobs if run is not None else ():
            if run is not None and job_id not in lane.jobs:
                lane.jobs[job_id] = RunningJob(job_id, run.model, run.version, worker.id, worker.token, run.since)
                lane.reported.add(job_id)
        if len(worker.running) < _WORKER_LISTS:
            lane.jobs = {
                i: job
                for i, job in lane.jobs.items()
                if job.worker != worker.id
                or i in worker.running
                or (i not in lane.reported and job.since > worker.beat_at - _BEAT_S)
            }

    def _show(self, lane: _GpuState, now: float, *, at: float | None = None) -> None:
        state = self._state(lane, now)
        lease = lane.lease
        holder = lease.owner if lease and state in {"held", "expired", "unknown"} else ""
        worker = lane.workers.get(holder)
        activity = _activity(worker, lane.token) if state == "held" else ""
        use = lane.use.recent(now) if activity else None
        stretch = "restarting" if activity == "restarting" else state
        _extend(lane.strip, StripInterval(at or now, stretch, holder, lane.token))
        while len(lane.strip) > 1 and lane.strip[1].at < now - STRIP_S:
            lane.strip.popleft()
        device = lane.device
        jobs = [job for job in lane.jobs.values() if job.worker == holder] if holder else []
        self._topic.set(
            lane.gpu,
            LaneRow(
                gpu=lane.gpu,
                name=device.name if device else lane.gpu,
                kind=device.kind if device else "",
                host=lane.host,
                state=state,
                holder=holder,
                token=lane.token,
                since=lease.since if lease and holder else 0.0,
                renewed_at=lane.renewed_at,
                expires_at=lane.renewed_at + lane.ttl_s if holder and lane.ttl_s else 0.0,
                ttl_s=lane.ttl_s,
                renewals=lease.beats if lease and holder else 0,
                next=lease.next if lease and not holder else "",
                may_release=state == "held" and worker is not None,
                activity=activity,
                use=use,
                word=word(state, activity, use),
                idle_since=max(lease.since, lane.use.used_at) if lease and activity == "idle" else 0.0,
                run=replace(worker.run, jobs=()) if activity and worker and worker.run else None,
                waiters=tuple(sorted(lane.tickets.values(), key=lambda w: (w.number, w.worker))),
                jobs=tuple(jobs[:JOBS_SHOWN]),
                job_count=len(jobs),
                models=_loaded(worker),
                workers=tuple(sorted(lane.workers)),
                strip=tuple(lane.strip),
                used=lane.use.shares(now),
            ),
        )


def history(leases: list[tuple[float, str, Lease | None, int]]) -> dict[str, list[StripInterval]]:
    """Strips from stored lease events ``(at, gpu, lease or None, revision)``, oldest first."""
    strips: defaultdict[str, deque[StripInterval]] = defaultdict(lambda: deque(maxlen=STRIP_LIMIT))
    for at, gpu, lease, revision in leases:
        if lease is None:
            _extend(strips[gpu], StripInterval(at, "expired", "", 0))
        elif lease.state == "HELD":
            _extend(strips[gpu], StripInterval(at, "held", lease.owner, lease.token or revision))
        else:
            _extend(strips[gpu], StripInterval(at, "handover" if lease.next else "idle", "", 0))
    return {gpu: list(strip) for gpu, strip in strips.items()}


def _extend(strip: deque[StripInterval], interval: StripInterval) -> None:
    last = strip[-1] if strip else None
    if last is None:
        strip.append(interval)
        return
    is_same_hold = (last.owner, last.token) == (interval.owner, interval.token)
    if is_same_hold and last.state == interval.state:
        return
    at = max(interval.at, last.at)
    strip.append(StripInterval(at, interval.state, interval.owner, interval.token))


def _activity(worker: Worker | None, token: int) -> str:
    """What the holder does with the GPU, empty if it has not said so of this hold."""
    if worker is None or worker.token != token:
        return ""
    if worker.state == "restarting":
        return worker.state
    return worker.run.activity if worker.run is not None else "idle"


def word(state: str, activity: str, use: float | None) -> str:
    """The state of a lease, and while it is held what the holder does; ``partly`` = in use, and less than half."""
    if state != "held":
        return state
    if activity not in {"computing", "idle"}:
        return activity or UNREPORTED
    if use is None:
        return "held" if activity == "idle" else activity
    return "computing" if use >= BUSY else "partly" if use >= IN_USE else "held"


def _loaded(worker: Worker | None) -> tuple[str, ...]:
    if worker is None:
        return ()
    return tuple(f"{m.model}:{m.version}" for m in worker.models if m.state == "ready")
