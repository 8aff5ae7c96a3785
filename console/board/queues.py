"""Builds the rows of the model queues from gauges, accepted jobs and records: one per model. Pure; time is passed in.

Depth and age come from *gauges* (what JetStream's consumers say), so they are right whenever this process
started; of what is delivered, presence says how much has not begun. Rates and percentiles come from events.
"""

from collections import deque
from typing import Final, NamedTuple

from console.board.protocol import Topic
from console.board.rows import Queue, Sample
from signalbox.jobs import times
from signalbox.wire.messages import Desired, Model, Record, Run, State, Worker

RATE_S: Final = 60
SAMPLES: Final = 400
"""Ended jobs per model that percentiles are taken of."""
STEP_S: Final = 15.0
STEPS: Final = 60
BUCKET_S: Final = 5
SERIES_S: Final = 900


class Gauge(NamedTuple):
    """Sums over the consumers of one model. waiting: never delivered. in_flight: delivered and not ended.

    started and ended: counters, for their differences. oldest_in_flight_at: when the first of those was accepted.
    """

    waiting: int
    in_flight: int
    redelivered: int
    oldest_at: float | None
    started: int = 0
    ended: int = 0
    oldest_in_flight_at: float | None = None


class _Counts:
    """Events counted by the second, for a rate over the last minute."""

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()

    def add(self, now: float, count: int = 1) -> None:
        second = int(now)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += count
        else:
            self._seconds.append([second, count])

    def per_s(self, now: float, since: float) -> float:
        oldest = int(now) - RATE_S
        while self._seconds and self._seconds[0][0] < oldest:
            self._seconds.popleft()
        total = sum(count for _, count in self._seconds)
        return round(total / min(RATE_S, max(1.0, now - since)), 2)


class _Line:
    """What is known of one model's queue."""

    def __init__(self, model: str, now: float) -> None:
        self.model = model
        self.document: Model | None = None
        self.desired: Desired | None = None
        self.gauge: Gauge | None = None
        self.since = now
        self.arrived, self.done, self.failed = _Counts(), _Counts(), _Counts()
        self.waits: deque[float] = deque(maxlen=SAMPLES)
        self.runs: deque[float] = deque(maxlen=SAMPLES)
        self.history: deque[int] = deque(maxlen=STEPS)
        self.stepped_at = 0.0


class QueueRows:
    """Builds the rows of the topics ``queues`` and ``throughput``."""

    def __init__(self, topic: Topic, series: Topic) -> None:
        self._topic = topic
        self._series = series
        self._lines: dict[str, _Line] = {}
        self._workers: dict[str, Worker] = {}

    def model(self, name: str, document: Model | None, now: float) -> None:
        """What the console decided about a model; None when it was removed."""
        line = self._line(name, now)
        line.document = document
        if document is None and (line.gauge is None or not _busy(line.gauge)):
            del self._lines[name]
            self._topic.remove(name)
            return
        self._show(line, now)

    def desired(self, name: str, desired: Desired | None, now: float) -> None:
        """Whether an operator paused the queue."""
        line = self._line(name, now)
        line.desired = desired
        self._show(line, now)

    def presence(self, worker_id: str, worker: Worker | None, now: float) -> None:
        """Where models are resident, and which jobs a worker has pulled and not begun."""
        if worker is None:
            self._workers.pop(worker_id, None)
        else:
            self._workers[worker_id] = worker
        for line in self._lines.values():
            self._show(line, now)

    def gauge(self, name: str, gauge: Gauge, now: float, *, is_counting: bool) -> None:
        """What JetStream says. is_counting: events are counted too, so counters are not needed for rates."""
        line = self._line(name, now)
        before, line.gauge = line.gauge, gauge
        if line.document is None and not _busy(gauge):
            del self._lines[name]
            self._topic.remove(name)
            return
        if before is not None and not is_counting:
            started = max(0, gauge.started - before.started)
            arrived = max(0, started + gauge.waiting - before.waiting)
            ended = max(0, gauge.ended - before.ended)
            line.arrived.add(now, arrived)
            line.done.add(now, ended)
            self._count(now, arrived=arrived, succeeded=ended)
        waiting = gauge.waiting + self._prefetched(line)
        if now >= line.stepped_at + STEP_S:
            line.stepped_at = now
            line.history.append(waiting)
        elif line.history:
            line.history[-1] = max(line.history[-1], waiting)
        self._show(line, now)

    def accepted(self, model: str, now: float) -> None:
        """A job was accepted. The row follows with the next gauge."""
        self._line(model, now).arrived.add(now)
        self._count(now, arrived=1)

    def record(self, record: Record, now: float) -> None:
        """A job came into a state. The row follows with the next gauge."""
        line = self._line(record.model, now)
        if record.state is State.QUEUED:
            self._count(now, retried=1)
        elif record.state is State.SUCCEEDED:
            line.done.add(now)
            self._count(now, succeeded=1)
            spent = times.split(record.phases)
            if spent.wait_ms is not None and spent.run_ms is not None:
                line.waits.append(spent.wait_ms / 1000)
                line.runs.append(spent.run_ms / 1000)
        elif record.state.is_terminal:
            line.failed.add(now)
            self._count(now, failed=1)

    def age(self, now: float) -> None:
        """Called every second: rates fall, the series moves on."""
        for line in self._lines.values():
            self._show(line, now)
        bucket = int(now) // BUCKET_S * BUCKET_S
        if str(bucket) not in self._series.rows:
            self._series.set(str(bucket), Sample(float(bucket)))
            for key in [k for k in self._series.rows if int(k) <= bucket - SERIES_S]:
                self._series.remove(key)

    def has_prefetched(self, model: str) -> bool:
        """Whether a worker has jobs of the model that have not begun."""
        return any(worker.waiting.get(model) for worker in self._workers.values())

    def rows(self) -> list[Queue]:
        """Every queue as last shown."""
        return [row for row in self._topic.rows.values() if isinstance(row, Queue)]

    def _line(self, model: str, now: float) -> _Line:
        line = self._lines.get(model)
        if line is None:
            line = self._lines[model] = _Line(model, now)
        return line

    def _count(self, now: float, *, arrived: int = 0, succeeded: int = 0, failed: int = 0, retried: int = 0) -> None:
        at = int(now) // BUCKET_S * BUCKET_S
        old = self._series.rows.get(str(at))
        if not isinstance(old, Sample):
            old = Sample(float(at))
        self._series.set(
            str(at),
            Sample(
                old.at, old.arrived + arrived, old.succeeded + succeeded, old.failed + failed, old.retried + retried
            ),
        )

    def _prefetched(self, line: _Line) -> int:
        """Jobs that workers have pulled and not begun. Presence may be two seconds older than the gauge."""
        if line.gauge is None or not line.gauge.in_flight:
            return 0
        told = sum(worker.waiting.get(line.model, 0) for worker in self._workers.values())
        return min(told, line.gauge.in_flight)

    def _behind(self, line: _Line) -> Run | None:
        """What a worker does that has jobs of this model: the run or load of another model."""
        runs = [
            worker.run
            for worker in self._workers.values()
            if worker.waiting.get(line.model) and worker.run is not None and worker.run.model != line.model
        ]
        return min(runs, key=lambda run: run.since, default=None)

    def _show(self, line: _Line, now: float) -> None:
        document, gauge, desired = line.document, line.gauge, line.desired
        if document is None and (gauge is None or not _busy(gauge)):
            return
        arrived = line.arrived.per_s(now, line.since)
        ended = line.done.per_s(now, line.since)
        failed = line.failed.per_s(now, line.since)
        prefetched = self._prefetched(line)
        running = gauge.in_flight - prefetched if gauge else 0
        waiting = (gauge.waiting if gauge else 0) + prefetched
        behind = self._behind(line) if prefetched and not running else None
        shrink = ended + failed - arrived
        resident = [m.state for w in self._workers.values() for m in w.models if m.model == line.model]
        self._topic.set(
            line.model,
            Queue(
                model=line.model,
                waiting=waiting,
                prefetched=prefetched,
                running=running,
                behind=f"{behind.model}:{behind.version}" if behind else "",
                behind_since=behind.since if behind else 0.0,
                redelivered=gauge.redelivered if gauge else 0,
                oldest_at=_oldest_at(gauge, prefetched, running),
                arrived_per_s=arrived,
                done_per_s=ended,
                failed_per_s=failed,
                drain_s=(0.0 if not waiting else round(waiting / shrink, 1) if shrink > 0 else None),
                wait_p50_s=_percentile(line.waits, 50),
                wait_p99_s=_percentile(line.waits, 99),
                run_p50_s=_percentile(line.runs, 50),
                run_p99_s=_percentile(line.runs, 99),
                history=tuple(line.history),
                is_enabled=document.is_enabled if document else False,
                is_known=document is not None,
                is_paused=bool(desired and desired.is_paused),
                paused_by=desired.actor if desired and desired.is_paused else "",
                paused_reason=desired.reason if desired and desired.is_paused else "",
                paused_at=desired.updated_at if desired and desired.is_paused else 0.0,
                replicas=document.replicas if document else 0,
                ready=resident.count("ready"),
                loading=resident.count("loading"),
                failed=resident.count("failed"),
                max_queue=document.limits.max_queue if document else 0,
            ),
        )


def _oldest_at(gauge: Gauge | None, prefetched: int, running: int) -> float | None:
    """Of the jobs that have not begun. Those in flight are older than those in the queue, but some of them may run."""
    if gauge is None:
        return None
    if prefetched and not running and gauge.oldest_in_flight_at is not None:
        return gauge.oldest_in_flight_at
    return gauge.oldest_at if gauge.waiting else None


def _busy(gauge: Gauge) -> bool:
    return bool(gauge.waiting or gauge.in_flight)


def _percentile(samples: deque[float], percent: int) -> float | None:
    """Nearest rank, in seconds to the tenth of a millisecond."""
    if not samples:
        return None
    ordered = sorted(samples)
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 4)
