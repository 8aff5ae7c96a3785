"""The live view of one console process: turns events into topics, in memory. Pure; time is passed in.

What it is told, or its lanes, queues and rollouts: leases, tickets, presence, models, desired state, accepted jobs,
records, gauges. What it makes: the topics of :data:`TOPICS`. It knows no NATS and no browser;
:mod:`console.feed.feed` feeds it and :mod:`console.feed.hub` sends what it makes.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from console.board import fetches, workers
from console.board.alarms import find
from console.board.capacity import FleetStanding
from console.board.lanes import Lanes
from console.board.protocol import Frame, Topic, Topics
from console.board.queues import QueueRows
from console.board.queueservice import QueueStanding
from console.board.rollouts import PendingRollouts
from console.board.rows import Alarm, Figure, Transition, WorkerRow
from signalbox.wire.messages import Job, Record, State
from signalbox.wire.modeldocs import Model
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Worker

TOPICS: Final = (
    "lanes",
    "fetches",
    "queues",
    "workers",
    "ticker",
    "throughput",
    "health",
    "alarms",
    "queuestates",
    "scaling",
)
LOST_KEPT_S: Final = 600.0
"""How long a worker whose presence expired stays on the board as ``lost``."""
TICKER_PER_FLUSH: Final = 12


class LiveView:
    """Everything the board shows, now."""

    def __init__(self, epoch: str, now: float) -> None:
        self.topics = Topics(epoch, [Topic(name, is_list=name == "ticker") for name in TOPICS])
        self._topic = self.topics.topics
        self.lanes = Lanes(self._topic["lanes"])
        self.queues = QueueRows(self._topic["queues"], self._topic["throughput"], now)
        self.rollouts = PendingRollouts()
        self.started_at = now
        self._workers: dict[str, Worker] = {}
        self._desired: dict[str, Desired] = {}
        self._lost: dict[str, float] = {}
        self._found: dict[str, Alarm] = {}
        self._found_at = now
        self._is_blind = False
        self._alarm_since: dict[str, float] = {}
        self._news: deque[Transition] = deque(maxlen=TICKER_PER_FLUSH)
        self._news_count = 0
        self._standing: dict[str, dict[str, Alarm]] = {}
        self.wanted: int | None = None
        """Devices that shall have workers; None = each that there is."""
        self.is_starting = False
        """Whether a host's agent starts a worker."""
        self.is_ending: Callable[[str], bool] = lambda _worker_id: False
        """Whether a host's agent ends a worker now."""

    def presence(self, worker_id: str, worker: Worker | None, now: float) -> set[str]:
        """A worker's heartbeat; None when its presence ran out or it said goodbye.

        Returns the models whose queues are to be read again.
        """
        self.lanes.presence(worker_id, worker, now)
        unread = self.queues.presence(worker_id, worker, now)
        if worker is not None:
            self._workers[worker_id] = worker
            self._lost.pop(worker_id, None)
        elif worker_id in self._workers and worker_id not in self._lost:
            self._lost[worker_id] = now
            if self.is_ending(worker_id):
                self.ended([worker_id])
        self._show_worker(worker_id)
        return unread

    def model(self, name: str, document: Model | None, now: float) -> None:
        """What the console decided about a model."""
        self.queues.model(name, document, now)

    def worker_desired(self, worker_id: str, desired: Desired | None) -> None:
        """Whether an operator asked a worker to drain."""
        if desired is None:
            self._desired.pop(worker_id, None)
        else:
            self._desired[worker_id] = desired
        self._show_worker(worker_id)

    def accepted(self, job: Job, at: float, now: float) -> None:
        """A job was accepted."""
        self.queues.accepted(job.model, now)
        self._tell(Transition(at=at, id=job.id, model=job.model, version=job.version, state="queued"))

    def record(self, record: Record, at: float, now: float) -> None:
        """A job's record was written."""
        self.queues.record(record, now)
        self.lanes.record(record, now)
        self._tell(transition(record, at))

    def queue_stands(self, name: str, at: float | None) -> None:
        """A queue of the queue service stands otherwise since an instant; None = it is gone."""
        if at is None:
            self._topic["queuestates"].remove(name)
        else:
            self._topic["queuestates"].set(name, QueueStanding(at))

    def fleet_stands(self, at: float) -> None:
        """What is wanted of the fleet, or what it has, stands otherwise since an instant."""
        self._topic["scaling"].set("fleet", FleetStanding(at))

    def health(self, name: str, row: Figure) -> None:
        """One figure of the health strip."""
        self._topic["health"].set(name, row)

    def stand(self, source: str, alarms: dict[str, Alarm]) -> None:
        """Alarms by key that stand, whether NATS can be reached or not, until ``source`` tells others."""
        self._standing[source] = alarms

    def forget_health(self, kept: str) -> None:
        """What all figures but one say is not known now."""
        for name, row in list(self._topic["health"].rows.items()):
            if name != kept and isinstance(row, Figure):
                self.health(name, Figure(row.name, "unknown", "?", href=row.href))

    def reported(self, key: str, text: str) -> None:
        """The one alarm of a source, as long as ``text`` is not empty."""
        self.stand(key, {key: Alarm("error", text, href="/")} if text else {})

    def earlier(self, transitions: list[Transition]) -> None:
        """What happened while this process did not watch, oldest first. What is shown already is not repeated."""
        ticker = self._topic["ticker"]
        shown = {_step(entry) for entry in (*ticker.entries, *self._news)}
        for entry in transitions:
            if _step(entry) not in shown:
                ticker.append(entry)

    def age(self, now: float, *, is_blind: bool) -> None:
        """Called every second: apply what changes with time. is_blind: NATS is away, and nothing of it known now."""
        if is_blind != self._is_blind:
            self._is_blind = is_blind
            for worker_id in self._workers:
                self._show_worker(worker_id)
        self.lanes.age(now, is_blind=is_blind)
        self.queues.age(now)
        if not is_blind:
            self._show_fetches()
        self._forget([w for w, at in self._lost.items() if now - at > LOST_KEPT_S])
        self._show_alarms(now, is_blind=is_blind)

    def flush(self, now: float, *, is_watched: bool = True) -> list[Frame]:
        """The deltas since the last flush, one a topic at most; none where nobody watches."""
        skipped = self._news_count - len(self._news)
        for entry in sorted(self._news, key=lambda entry: entry.at):
            self._topic["ticker"].append(replace(entry, skipped=skipped))
            skipped = 0
        self._news.clear()
        self._news_count = 0
        if is_watched:
            return self.topics.flush(now)
        self.topics.skip()
        return []

    def ended(self, worker_ids: Iterable[str]) -> None:
        """Workers that their hosts' agents have ended: none of them is lost."""
        self._forget([worker_id for worker_id in worker_ids if worker_id in self._lost])

    def workers(self) -> list[WorkerRow]:
        """Every worker as last shown."""
        return [row for row in self._topic["workers"].rows.values() if isinstance(row, WorkerRow)]

    def _forget(self, worker_ids: Iterable[str]) -> None:
        for worker_id in worker_ids:
            del self._lost[worker_id], self._workers[worker_id]
            self._topic["workers"].remove(worker_id)

    def _tell(self, entry: Transition) -> None:
        self._news.append(entry)
        self._news_count += 1

    def _show_worker(self, worker_id: str) -> None:
        worker = self._workers.get(worker_id)
        if worker is None:
            return
        state = "drained" if worker.is_drained else worker.state
        if worker_id in self._lost:
            state = "lost"
        elif self._is_blind:
            state = "unknown"
        row = workers.row(worker, self._desired.get(worker_id), state, self.lanes.use_by(worker))
        self._topic["workers"].set(worker_id, row)

    def _show_fetches(self) -> None:
        topic = self._topic["fetches"]
        shown = fetches.rows(self.queues.workers(), self.queues.waiting)
        for key in [key for key in topic.rows if key not in shown]:
            topic.remove(key)
        for key, row in shown.items():
            topic.set(key, row)

    def _show_alarms(self, now: float, *, is_blind: bool) -> None:
        topic = self._topic["alarms"]
        if not is_blind:
            held_back, rolled_back = self.rollouts.held_back(), self.rollouts.rolled_back()
            self._found = find(
                self.lanes.rows(),
                self.queues.called(),
                self.workers(),
                now,
                held_back,
                rolled_back,
                self.rollouts.unlike(),
                wanted=self.wanted,
                is_starting=self.is_starting,
            )
            self._found_at = now
        as_of = self._found_at if is_blind else 0.0
        found = {key: replace(alarm, as_of=as_of) for key, alarm in self._found.items()}
        for alarms in self._standing.values():
            found |= alarms
        for key in [k for k in topic.rows if k not in found]:
            topic.remove(key)
            self._alarm_since.pop(key, None)
        for key, alarm in found.items():
            topic.set(key, replace(alarm, since=alarm.since or self._alarm_since.setdefault(key, now)))


def transition(record: Record, at: float) -> Transition:
    """The ticker entry of a record written at ``at``."""
    is_retry = record.state is State.QUEUED
    return Transition(
        at=at,
        id=record.id,
        model=record.model,
        version=record.version,
        state="retrying" if is_retry else record.state.value,
        attempt=record.attempt,
        worker=record.worker,
        gpu=record.gpu,
        token=record.token,
        after_s=round(max(0.0, at - record.created_at), 4),
        batch=record.batch,
        error=record.error.message if record.error and record.state is not State.RUNNING else "",
    )


def _step(entry: msgspec.Struct) -> tuple[str, int, str]:
    """Which step of which job an entry of the ticker tells."""
    assert isinstance(entry, Transition)
    return entry.id, entry.attempt, entry.state
