"""Builds the rows of the model queues from gauges, accepted jobs and records: one per model. Pure; time is passed in.

What waits at NATS and how long comes from *gauges* (what the queues' consumers say or, where those may count a job
twice, the jobs' records), what workers have of it from their presence, so both are right whenever this process started.
Rates and percentiles come from events. While those are not followed, the series goes by what presence and the queue
count: of jobs that were cancelled or expired it then knows nothing.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from console.board import conditions
from console.board.counts import JobTime, ModelActivity
from console.board.protocol import Topic
from console.board.rows import Queue, Sample
from signalbox.jobs import times
from signalbox.jobs.fetches import fetch_of
from signalbox.wire.messages import Record, State
from signalbox.wire.modeldocs import Model
from signalbox.wire.signatures import can_be_run
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Run, Worker

STEP_S: Final = 15.0
_BEST: Final = ("ready", "loading", "fetching", "failed")
BUCKET_S: Final = 5
SERIES_S: Final = 900


class Gauge(NamedTuple):
    """What NATS says of one model. waiting: not delivered, or to no worker that is there. oldest_at: when the first of
    those was accepted; deadline_at: until when it may begin, 0 = not known. lost: begun on a worker that is gone.

    is_whole: waiting and running are all, also those that a worker has pulled; else presence tells of the latter."""

    waiting: int
    oldest_at: float | None
    running: int = 0
    lost: int = 0
    deadline_at: float = 0.0
    is_whole: bool = False


_EMPTY: Final = Gauge(0, None)


def _called(row: Queue) -> Queue:
    """The row with its condition in words."""
    return replace(row, **conditions.of(row)._asdict())


@lru_cache(maxsize=256)
def _quiet(**settings: Any) -> Queue:
    """The row of a model that nobody calls: the same object for the same settings, and nearly all have the defaults."""
    return _called(Queue(**settings))


_UNKNOWN: Final = _called(Queue(is_enabled=False, is_known=False))


class QueueRows:
    """Builds the rows of the topics ``queues`` and ``throughput``. is_counting: events are told."""

    def __init__(self, topic: Topic, series: Topic, now: float) -> None:
        self.is_counting = False
        self._topic = topic
        self._series = series
        self._registered: dict[str, Queue] = {}
        """The row that a model has while nobody calls it."""
        self._paused: dict[str, Desired] = {}
        self._gauges: dict[str, Gauge] = {}
        """Of the models of which jobs wait."""
        self._active: dict[str, ModelActivity] = {}
        """Of the models that somebody calls. The rows of the others change with their documents only."""
        self._since = now
        self._workers: dict[str, Worker] = {}
        self._items: dict[str, int] = {}
        """Of the models for which items wait in queues."""

    def model(self, name: str, document: Model | None, now: float) -> None:
        """What the console decided about a model; None when it was removed."""
        if document is None:
            self._registered.pop(name, None)
        else:
            self._registered[name] = _quiet(
                is_enabled=document.is_enabled,
                replicas=document.replicas,
                max_queue=document.limits.max_queue,
                is_runnable=_is_runnable(document),
            )
        self._show(name, now)
        self._drop_idle(name)

    def desired(self, name: str, desired: Desired | None, now: float) -> None:
        """Whether an operator paused the queue."""
        if desired is not None and desired.is_paused:
            self._paused[name] = desired
        else:
            self._paused.pop(name, None)
        self._show(name, now)

    def presence(self, worker_id: str, worker: Worker | None, now: float) -> set[str]:
        """Where models are resident, which jobs a worker has, and how many have ended there.

        Returns the models that it alone began or ceased to name: what NATS says of them is to be read again.
        """
        before = self._workers.pop(worker_id, None)
        if worker is not None:
            self._workers[worker_id] = worker
            if before is not None and before.boot == worker.boot and not self.is_counting:
                self._count(now, succeeded=worker.done - before.done, failed=worker.failed - before.failed)
        named = _named(before), _named(worker)
        for name in named[0] | named[1]:
            if name in self._registered or name in self._topic.rows or name in self._active:
                self._show(name, now)
        moved = named[0] ^ named[1]
        others = [one for key, one in self._workers.items() if key != worker_id] if moved else []
        return moved - set().union(*map(_named, others))

    def gauge(self, name: str, gauge: Gauge, now: float) -> None:
        """What the queue's consumers say."""
        if not (gauge.waiting or gauge.running or gauge.lost):
            self._gauges.pop(name, None)
        else:
            self._gauges[name] = gauge
        self._show(name, now)
        self._drop_idle(name)

    def items(self, counts: Mapping[str, int], now: float) -> None:
        """How many items wait for each model in queues of which it is a service."""
        before, self._items = self._items, dict(counts)
        for name in {name for name, _ in before.items() ^ self._items.items()}:
            self._show(name, now)
            self._drop_idle(name)

    def count(self, now: float) -> None:
        """From now on events are told: rates begin anew."""
        self.is_counting = True
        self._since = now
        for activity in self._active.values():
            activity.count_anew()

    def arrived(self, count: int, now: float) -> None:
        """How many jobs of all models were accepted that no event told of."""
        self._count(now, arrived=count)

    def accepted(self, model: str, now: float) -> None:
        """A job was accepted. The row follows with the next gauge."""
        self._activity(model).arrived.add(now)
        self._count(now, arrived=1)

    def record(self, record: Record, now: float) -> None:
        """A job came into a state. The row follows with the next gauge."""
        activity = self._activity(record.model)
        if record.state is State.QUEUED:
            self._count(now, retried=1)
        elif record.state is State.SUCCEEDED:
            activity.done.add(now)
            self._count(now, succeeded=1)
            spent = times.split(record)
            if spent.wait_ms is not None and spent.run_ms is not None:
                activity.spent.append(JobTime(now, spent.wait_ms / 1000, spent.run_ms / 1000))
        elif record.state is State.FAILED:
            activity.failed.add(now)
            self._count(now, failed=1)
        elif record.state.is_terminal:
            activity.cancelled.add(now)
            self._count(now, cancelled=1)

    def age(self, now: float) -> None:
        """Called every second: rates fall, the series moves on."""
        for model, activity in list(self._active.items()):
            self._show(model, now)
            if activity.is_quiet(now):
                self._drop_idle(model)
        bucket = int(now) // BUCKET_S * BUCKET_S
        if str(bucket) not in self._series.rows:
            self._series.set(str(bucket), Sample(float(bucket)))
            for key in [k for k in self._series.rows if int(k) <= bucket - SERIES_S]:
                self._series.remove(key)

    def busy(self) -> set[str]:
        """Models of which jobs wait, or workers have some."""
        return {*self._gauges}.union(*(worker.in_flight for worker in self._workers.values()))

    def is_attended(self, model: str) -> bool:
        """Whether a worker that is present says anything of a model."""
        return any(model in _named(worker) for worker in self._workers.values())

    def is_paused(self, model: str) -> bool:
        """Whether an operator paused the queue."""
        return model in self._paused

    def waiting(self, model: str) -> int:
        """Jobs of a model that have not begun."""
        row = self._topic.rows.get(model)
        return row.waiting if isinstance(row, Queue) else 0

    def workers(self) -> list[Worker]:
        """Those that are present."""
        return list(self._workers.values())

    @property
    def registered(self) -> Collection[str]:
        """The models that there are: a live view."""
        return self._registered.keys()

    def called(self) -> dict[str, Queue]:
        """The queues of the models that somebody calls, as last shown: no job of another one waits."""
        rows = ((model, self._topic.rows.get(model)) for model in self._active)
        return {model: row for model, row in rows if isinstance(row, Queue)}

    def _activity(self, model: str) -> ModelActivity:
        activity = self._active.get(model)
        if activity is None:
            activity = self._active[model] = ModelActivity()
        return activity

    def _drop_idle(self, model: str) -> None:
        """A model that is not registered counts as long as its row is shown: there are jobs of it."""
        if model not in self._registered and model not in self._topic.rows:
            self._active.pop(model, None)

    def _count(self, now: float, **counted: int) -> None:
        at = int(now) // BUCKET_S * BUCKET_S
        old = self._series.rows.get(str(at))
        if not isinstance(old, Sample):
            old = Sample(float(at))
        self._series.set(str(at), replace(old, **{name: getattr(old, name) + n for name, n in counted.items()}))

    def _in_flight(self, model: str) -> int:
        """Jobs that workers have pulled and not ended."""
        return sum(worker.in_flight.get(model, 0) for worker in self._workers.values())

    def _prefetched(self, model: str) -> int:
        """Those of them that have not begun."""
        return sum(worker.waiting.get(model, 0) for worker in self._workers.values())

    def _oldest_at(self, model: str, gauge: Gauge) -> float | None:
        """When the first job that waits was accepted, at NATS or pulled by a worker."""
        pulled = [at for worker in self._workers.values() if (at := worker.oldest.get(model)) is not None]
        return min(pulled if gauge.oldest_at is None else [*pulled, gauge.oldest_at], default=None)

    def _behind(self, model: str) -> Run | None:
        """What a worker does that has jobs of this model: the run or load of another model."""
        runs = [
            worker.run
            for worker in self._workers.values()
            if worker.waiting.get(model) and worker.run is not None and worker.run.model != model
        ]
        return min(runs, key=lambda run: run.since, default=None)

    def _show(self, model: str, now: float) -> None:
        quiet, paused = self._registered.get(model, _UNKNOWN), self._paused.get(model)
        gauge = self._gauges.get(model, _EMPTY)
        in_flight, prefetched, items = self._in_flight(model), self._prefetched(model), self._items.get(model, 0)
        if not quiet.is_known and gauge == _EMPTY and not in_flight and not items:
            self._topic.remove(model)
            return
        if gauge.is_whole:
            waiting, running = gauge.waiting, gauge.running
            prefetched = min(prefetched, waiting)
        else:
            waiting, running = gauge.waiting + prefetched, max(0, in_flight - prefetched)
        is_called = waiting or running or gauge.lost or items
        activity = self._activity(model) if is_called else self._active.get(model)
        row = replace(
            quiet,
            waiting=waiting,
            prefetched=prefetched,
            running=running,
            lost=gauge.lost,
            items=items,
            oldest_at=gauge.oldest_at if gauge.is_whole else self._oldest_at(model, gauge),
            deadline_at=gauge.deadline_at,
            is_paused=paused is not None,
            paused_by=paused.actor if paused else "",
            paused_reason=paused.reason if paused else "",
            **self._resident(model),
        )
        if activity is not None:
            row = replace(row, **self._moving(model, activity, row, now))
            if activity.is_over(now):
                del self._active[model]
        row = _called(row)
        self._topic.set(model, row if row != quiet else quiet)

    def _moving(self, model: str, activity: ModelActivity, row: Queue, now: float) -> dict[str, Any]:
        """The fields of a row that change while somebody calls the model."""
        arrived = activity.arrived.per_s(now, self._since)
        done, failed, cancelled = (
            counts.per_s(now, self._since) for counts in (activity.done, activity.failed, activity.cancelled)
        )
        waiting = row.waiting + row.items
        if now >= activity.stepped_at + STEP_S:
            activity.stepped_at = now
            activity.history.append(waiting)
        else:
            activity.history[-1] = max(activity.history[-1], waiting)
        behind = self._behind(model) if row.prefetched and not row.running else None
        shrink = done + failed + cancelled - arrived
        return {
            "behind": f"{behind.model}:{behind.version}" if behind else "",
            "behind_since": behind.since if behind else 0.0,
            "arrived_per_s": arrived,
            "ended_per_s": round(done + failed + cancelled, 2),
            "drain_s": 0.0 if not row.waiting else round(row.waiting / shrink, 1) if shrink > 0 else None,
            **activity.percentiles(now),
            "history": tuple(activity.history),
        }

    def _resident(self, model: str) -> dict[str, Any]:
        """On how many GPUs the model is in memory, is loaded, or could not be: one counts once, by its best version."""
        best: dict[str, int] = {}
        coming: set[int] = set()
        load_fault = ""
        for worker in self._workers.values():
            for resident in worker.models:
                if resident.model != model or resident.state not in _BEST:
                    continue
                if worker.token or resident.state == "fetching":  # without its GPU it serves nothing
                    rank = _BEST.index(resident.state)
                    best[worker.device.id] = min(rank, best.get(worker.device.id, rank))
                if resident.state == "fetching":
                    coming.add(resident.version)
                elif resident.state == "failed" and worker.token:
                    load_fault = resident.error
        found = Counter(_BEST[rank] for rank in best.values())
        fetch = fetch_of(model, max(coming), self._workers.values()) if coming else None
        return {state: found[state] for state in _BEST} | {
            "fetch_fault": fetch.fault if fetch is not None else "",
            "fetched": fetch.words if fetch is not None else "",
            "load_fault": load_fault,
        }


def _is_runnable(document: Model) -> bool:
    """Whether a signature of any version can be run; true where none is known."""
    offered = [
        signature
        for version in document.versions
        for name, signature in version.signatures.items()
        if not name.startswith("__")
    ]
    return not offered or any(can_be_run(signature) for signature in offered)


def _named(worker: Worker | None) -> set[str]:
    """The models that a worker's presence says something of."""
    if worker is None:
        return set()
    return {*worker.in_flight, *worker.waiting, *(resident.model for resident in worker.models)}
