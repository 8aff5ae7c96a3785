"""Triton's statistics of models: the inferences of one account that this process answered in this protocol.

Durations are nanoseconds. ``queue`` is the time until a run began, ``compute_infer`` the run, ``compute_output`` until
its result was stored: a job's record has no finer parts.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from signalbox.jobs import times
from signalbox.wire.messages import Record

_MOST_KEPT: Final = 4096
"""Most triples of account, model and version that are counted; the one not used for longest is forgotten."""
_MS: Final = 1e6
_S: Final = 1e9
_NONE: Final = {"count": 0, "ns": 0}


class _Counts(msgspec.Struct):
    """Of one account, model and version. runs: each inference counts for its part of a batch. last_ms: UTC."""

    succeeded: int = 0
    succeeded_ns: int = 0
    failed: int = 0
    failed_ns: int = 0
    rows: int = 0
    runs: float = 0.0
    queue_ns: int = 0
    compute_ns: int = 0
    output_ns: int = 0
    last_ms: int = 0


class Statistics:
    """Counts inferences. wall: UTC clock, seconds."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._counts: OrderedDict[tuple[str, str, int], _Counts] = OrderedDict()

    def succeeded(self, account: str, record: Record, rows: int, seconds: float) -> None:
        """Count an inference that got its answer. seconds: as its caller waited."""
        counts = self._of(account, record.model, record.version)
        spent = times.split(record)
        wait_ms, run_ms, total_ms = spent.wait_ms or 0.0, spent.run_ms or 0.0, spent.total_ms or 0.0
        counts.succeeded += 1
        counts.succeeded_ns += round(seconds * _S)
        counts.rows += rows
        counts.runs += 1 / max(1, record.batch)
        counts.queue_ns += round(wait_ms * _MS)
        counts.compute_ns += round(run_ms * _MS)
        counts.output_ns += round(max(0.0, total_ms - wait_ms - run_ms) * _MS)

    def failed(self, account: str, model: str, version: int, seconds: float) -> None:
        """Count an inference that got an error."""
        counts = self._of(account, model, version)
        counts.failed += 1
        counts.failed_ns += round(seconds * _S)

    def counted(self, account: str) -> list[tuple[str, int]]:
        """The models and versions that an account's inferences are counted of."""
        return sorted((model, version) for owner, model, version in self._counts if owner == account)

    def of(self, account: str, asked: Iterable[tuple[str, int]]) -> dict[str, Any]:
        """Triton's statistics of these versions of models."""
        return {"model_stats": [self._one(account, model, version) for model, version in asked]}

    def _one(self, account: str, model: str, version: int) -> dict[str, Any]:
        counts = self._counts.get((account, model, version), _NOTHING)
        count = counts.succeeded
        stats = {
            "success": {"count": count, "ns": counts.succeeded_ns},
            "fail": {"count": counts.failed, "ns": counts.failed_ns},
            "queue": {"count": count, "ns": counts.queue_ns},
            "compute_input": {"count": count, "ns": 0},
            "compute_infer": {"count": count, "ns": counts.compute_ns},
            "compute_output": {"count": count, "ns": counts.output_ns},
            "cache_hit": _NONE,
            "cache_miss": _NONE,
        }
        return {
            "name": model,
            "version": str(version),
            "last_inference": counts.last_ms,
            "inference_count": counts.rows,
            "execution_count": max(round(counts.runs), min(count, 1)),
            "inference_stats": stats,
            "batch_stats": [],
        }

    def _of(self, account: str, model: str, version: int) -> _Counts:
        key = (account, model, version)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = _Counts()
            if len(self._counts) > _MOST_KEPT:
                self._counts.popitem(last=False)
        else:
            self._counts.move_to_end(key)
        counts.last_ms = round(self._wall() * 1000)
        return counts


_NOTHING: Final = _Counts()
