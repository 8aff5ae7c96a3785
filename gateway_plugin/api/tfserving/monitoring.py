"""TensorFlow Serving's Prometheus page: the requests of one account that this process answered, by model.

Names, labels and buckets are TensorFlow Serving's own, so that its dashboards go on. Source: its ``util.cc`` and
``prometheus_exporter.cc``.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from time import perf_counter
from typing import Final

from gateway_plugin.jsonresponses import JsonResponse
from signalbox.program.errors import SignalboxError, meaning
from signalbox.wire.keydocs import ApiKey

REST: Final = "REST"
GRPC: Final = "GRPC"
BUCKETS_US: Final = tuple(10 * 1.8**power for power in range(33))
"""Upper bounds of the latency's buckets, in microseconds."""
_COUNT: Final = ":tensorflow:serving:request_count"
_LATENCY: Final = ":tensorflow:serving:request_latency"
_MOST_KEPT: Final = 4096
"""Most pairs of account and model that are counted; the one not used for longest is forgotten."""
_TEXT: Final = {"Content-Type": "text/plain"}


class _Counts:
    """Of one account and model: requests by status, and latencies of answered ones by API and entry point."""

    __slots__ = ("latencies", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[str, int] = {}
        self.latencies: dict[tuple[str, str], _Latency] = {}


class _Latency:
    __slots__ = ("buckets", "sum_us")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS_US) + 1)
        self.sum_us = 0.0


class RequestCounts:
    """Counts requests under TensorFlow Serving's paths."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, str], _Counts] = OrderedDict()

    @contextmanager
    def counting(self, key: ApiKey, model: str, api: str, entrypoint: str) -> Iterator[None]:
        """Count a request about a model that there is."""
        account, began = key.account_id, perf_counter()
        try:
            yield
        except SignalboxError as error:
            self.refused(account, model, error)
            raise
        self.answered(account, model, api, perf_counter() - began, entrypoint)

    def answered(self, account: str, model: str, api: str, seconds: float, entrypoint: str = REST) -> None:
        """Count a request that got its answer. api: empty for status and metadata."""
        counts = self._of(account, model)
        counts.statuses["OK"] = counts.statuses.get("OK", 0) + 1
        latency = counts.latencies.get((api, entrypoint))
        if latency is None:
            latency = counts.latencies[api, entrypoint] = _Latency()
        latency.buckets[bisect_left(BUCKETS_US, seconds * 1e6)] += 1
        latency.sum_us += seconds * 1e6

    def refused(self, account: str, model: str, error: SignalboxError) -> None:
        """Count a request that got an error."""
        statuses = self._of(account, model).statuses
        name = meaning(error.code).grpc
        statuses[name] = statuses.get(name, 0) + 1

    def page(self, account: str) -> JsonResponse:
        """What was counted for an account, in Prometheus' text format."""
        own = {model: counts for (owner, model), counts in self._counts.items() if owner == account}
        return JsonResponse(200, "".join(f"{line}\n" for line in _lines(own)).encode(), _TEXT)

    def _of(self, account: str, model: str) -> _Counts:
        key = (account, model)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = _Counts()
            if len(self._counts) > _MOST_KEPT:
                self._counts.popitem(last=False)
        else:
            self._counts.move_to_end(key)
        return counts


def _lines(own: Mapping[str, _Counts]) -> Iterator[str]:
    yield f"# TYPE {_COUNT} counter"
    for model, counts in own.items():
        for status, count in counts.statuses.items():
            yield f'{_COUNT}{{model_name="{_escaped(model)}",status="{status}"}} {count}'
    yield f"# TYPE {_LATENCY} histogram"
    for model, counts in own.items():
        for (api, entrypoint), latency in counts.latencies.items():
            labels = f'model_name="{_escaped(model)}",API="{api}",entrypoint="{entrypoint}"'
            bounds = [*(f"{bound:g}" for bound in BUCKETS_US), "+Inf"]
            totals = list(accumulate(latency.buckets))
            for bound, total in zip(bounds, totals, strict=True):
                yield f'{_LATENCY}_bucket{{{labels},le="{bound}"}} {total}'
            yield f"{_LATENCY}_sum{{{labels}}} {latency.sum_us:.17g}"
            yield f"{_LATENCY}_count{{{labels}}} {totals[-1]}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
