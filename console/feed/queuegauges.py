"""What the board knows of the queues, for Prometheus: how many jobs of each model wait, and how long the oldest has."""

from collections.abc import Mapping
from typing import Final

from console.board.rows import Queue
from signalbox.program import metrics

MOST: Final = 200
"""Models that have series of their own: those of which the most jobs wait. The others are summed up."""
WAITING: Final = metrics.gauge(
    "queue_jobs", "Jobs that wait, pulled by a worker or not; of a model that somebody calls.", "model"
)
RUNNING: Final = metrics.gauge("queue_running_jobs", "Jobs that run; of a model that somebody calls.", "model")
OLDEST: Final = metrics.gauge(
    "queue_oldest_seconds", "Since the oldest job that waits was accepted; 0 where none waits.", "model"
)
_Figures = tuple[int, int, float]


class QueueGauges:
    """Shows the queues of one console. most: see :data:`MOST`."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._shown: set[str] = set()

    def show(self, queues: Mapping[str, Queue], now: float) -> None:
        """Set the figures of the models that somebody calls; the series of the others end. now: UTC seconds."""
        figures = {model: _figures(row, now) for model, row in queues.items()}
        longest = sorted(figures, key=lambda model: (-figures[model][0], model))
        own = 0 if any(map(metrics.is_joined, (WAITING, RUNNING, OLDEST))) else self._most
        shown = {model: figures[model] for model in longest[:own]}
        if rest := [figures[model] for model in longest[own:]]:
            waiting, running, oldest = zip(*rest, strict=True)
            shown[metrics.ALL_MODELS] = sum(waiting), sum(running), max(oldest)
        for model in self._shown - shown.keys():
            for gauge in (WAITING, RUNNING, OLDEST):
                gauge.remove(model)
        self._shown = set(shown)
        for model, (waiting_jobs, running_jobs, oldest_s) in shown.items():
            WAITING.labels(model).set(waiting_jobs)
            RUNNING.labels(model).set(running_jobs)
            OLDEST.labels(model).set(oldest_s)


def _figures(row: Queue, now: float) -> _Figures:
    return row.waiting, row.running, max(0.0, now - row.oldest_at) if row.waiting and row.oldest_at else 0.0
