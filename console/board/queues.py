"""Builds the rows of the model queues from gauges, accepted jobs and records: one per model. Pure; time is passed in.

What waits at NATS and how long comes from *gauges* (what the queues' consumers say), what workers have of it from
their presence, so both are right whenever this process started. Rates and percentiles come from events. While those
are not followed, the series goes by what presence and the queue count.
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
    """Sums over the consumers of one model. waiting: not delivered. oldest_at: when the first of those was accepted."""

    waiting: int
    oldest_at: float | None


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
    """What is known of one model's queue. held_since: since when workers have had jobs of it and have run none."""

    def __init__(self, model: str, now: float) -> None:
        self.model = model
        self.document: Model | None = None
        self.desired: Desired | None = None
        self.gauge = Gauge(0, None)
        self.held_since: float | None = None
        self.count_from(now)
        self.waits: deque[float] = deque(maxlen=SAMPLES)
        self.runs: deque[float] = deque(maxlen=SAMPLES)
        self.history: deque[int] = deque(maxlen=STEPS)
        self.stepped_at = float("-inf")

    def count_from(self, now: float) -> None:
        """Begin the rates."""
        self.since = now
        self.arrived, self.done, self.failed = _Counts(), _Counts(), _Counts()


class QueueRows:
    """Builds the rows of the topics ``queues`` and ``throughput``. is_counting: events are told."""

    def __init__(self, topic: Topic, series: Topic) -> None:
        self.is_counting = False
        self._topic = topic
        self._series = series
        self._lines: dict[str, _Line] = {}
        self._workers: dict[str, Worker] = {}

    def model(self, name: str, document: Model | None, now: float) -> None:
        """What the console decided about a model; None when it was removed."""
        line = self._line(name, now)
        line.document = document
        self._show(line, now)
        self._drop_idle(line)

    def desired(self, name: str, desired: Desired | None, now: float) -> None:
        """Whether an operator paused the queue."""
        line = self._line(name, now)
        line.desired = desired
        self._show(line, now)

    def presence(self, worker_id: str, worker: Worker | None, now: float) -> None:
        """Where models are resident, which jobs a worker has, and how many have ended there."""
        before = self._workers.pop(worker_id, None)
        if worker is not None:
            self._workers[worker_id] = worker
            if before is not None and before.boot == worker.boot and not self.is_counting:
                self._count(now, succeeded=worker.done - before.done, failed=worker.failed - before.failed)
        for line in self._lines.values():
            self._show(line, now)

    def gauge(self, name: str, gauge: Gauge, now: float) -> None:
        """What the queue's consumers say."""
        line = self._line(name, now)
        line.gauge = gauge
        self._show(line, now)
        self._drop_idle(line)

    def count(self, now: float) -> None:
        """From now on events are told: rates begin anew."""
        self.is_counting = True
        for line in self._lines.values():
            line.count_from(now)

    def arrived(self, count: int, now: float) -> None:
        """How many jobs of all models were accepted that no event told of."""
        self._count(now, arrived=count)

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

    def busy(self) -> set[str]:
        """Models of which jobs wait, or workers have some."""
        waiting = {line.model for line in self._lines.values() if line.gauge.waiting}
        return waiting.union(*(worker.in_flight for worker in self._workers.values()))

    def workers(self) -> list[Worker]:
        """Those that are present."""
        return list(self._workers.values())

    def rows(self) -> list[Queue]:
        """Every queue as last shown."""
        return [row for row in self._topic.rows.values() if isinstance(row, Queue)]

    def _line(self, model: str, now: float) -> _Line:
        line = self._lines.get(model)
        if line is None:
            line = self._lines[model] = _Line(model, now)
        return line

    def _drop_idle(self, line: _Line) -> None:
        """A model that is not registered counts as long as its row is shown: there are jobs of it."""
        if line.document is None and line.model not in self._topic.rows:
            del self._lines[line.model]

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

    def _in_flight(self, model: str) -> int:
        """Jobs that workers have pulled and not ended."""
        return sum(worker.in_flight.get(model, 0) for worker in self._workers.values())

    def _prefetched(self, model: str) -> int:
        """Those of them that have not begun."""
        return sum(worker.waiting.get(model, 0) for worker in self._workers.values())

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
        in_flight = self._in_flight(line.model)
        if document is None and not gauge.waiting and not in_flight:
            self._topic.remove(line.model)
            return
        arrived = line.arrived.per_s(now, line.since)
        ended = line.done.per_s(now, line.since)
        failed = line.failed.per_s(now, line.since)
        prefetched = self._prefetched(line.model)
        running = max(0, in_flight - prefetched)
        waiting = gauge.waiting + prefetched
        if not prefetched or running:
            line.held_since = None
        elif line.held_since is None:
            line.held_since = now
        if now >= line.stepped_at + STEP_S:
            line.stepped_at = now
            line.history.append(waiting)
        else:
            line.history[-1] = max(line.history[-1], waiting)
        oldest = [at for at in (gauge.oldest_at, line.held_since) if at is not None]
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
                oldest_at=min(oldest, default=None),
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


def _percentile(samples: deque[float], percent: int) -> float | None:
    """Nearest rank, in seconds to the tenth of a millisecond."""
    if not samples:
        return None
    ordered = sorted(samples)
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 4)
