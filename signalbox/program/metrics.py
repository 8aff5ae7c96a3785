"""Prometheus metrics, all named ``signalbox_*``. Labels are bounded: a model is one, a job never is.

A label ``model`` comes first. Above :data:`MOST_MODELS` models all of them share one series, and above
:data:`MOST_BYTES` those of the metric that has the most to tell do, so that a scrape stays below 1 MB.

``JOBS = metrics.counter("jobs_accepted", "Jobs accepted.", "model")`` once, ``JOBS.labels(m).inc()`` where it happens.
Counting costs about a microsecond; nothing is served until :func:`serve`.
"""

import collections
import socket
import threading
from bisect import bisect_left
from collections.abc import Sequence
from socketserver import ThreadingMixIn
from typing import Any, Final, Self, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    make_wsgi_app,
)
from prometheus_client.metrics import MetricWrapperBase

from signalbox.program import health
from signalbox.program.errors import Misconfigured

PREFIX: Final = "signalbox_"
COMPATIBLE: Final = "tfservingcache_"
"""Metrics of TFServingCache that are served under their own names."""
MODEL: Final = "model"
VERSION: Final = "version"
MOST_MODELS: Final = 500
"""Models that have series of their own in one program."""
MOST_BYTES: Final = 800_000
"""Of a scrape that series of single models may take; what has no label ``model`` takes some 30 KB."""
_VALUE_BYTES: Final = 24
"""Most of a sample's value and line feed."""
_BOUND_BYTES: Final = len('_bucket,le="300.0"')
ALL_MODELS: Final = "all_models"
ALL_VERSIONS: Final = "-1"
REGISTRY: Final = CollectorRegistry()
LATENCY_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds, from a lone prediction to a long queue."""
_ASKED: Final = {"/readyz": ("ready", health.READY.faults), "/livez": ("alive", health.ALIVE.faults)}
"""Paths beside the metrics: what is answered where there is no fault, and what tells them."""
M = TypeVar("M", bound=MetricWrapperBase)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a line for each series, which no rule of ours reads


def full_name(name: str) -> str:
    """A metric's name as Prometheus has it, without ``_total``; one that stands in for TFServingCache's is as given."""
    return name if name.startswith(COMPATIBLE) else PREFIX + name


def counter(name: str, meaning: str, *labels: str) -> Counter:
    """A value that only rises; shown as ``signalbox_<name>_total``."""
    return _made(_Counter if labels[:1] == (MODEL,) else Counter, name, meaning, labels)


def gauge(name: str, meaning: str, *labels: str) -> Gauge:
    """A value that rises and falls."""
    return _made(_Gauge if labels[:1] == (MODEL,) else Gauge, name, meaning, labels)


def histogram(name: str, meaning: str, *labels: str, buckets: Sequence[float] = LATENCY_BUCKETS) -> Histogram:
    """A distribution; the name ends with its unit (``_seconds``, ``_bytes``)."""
    return _made(_Histogram if labels[:1] == (MODEL,) else Histogram, name, meaning, labels, buckets=buckets)


class Models:
    """Which values labels ``model`` have: the model's name, until there are too many; then all share one.

    most: models of this process that have series of their own, and four times as many versions. most_bytes: of a scrape
    that all these series take together.
    """

    def __init__(self, most: int = MOST_MODELS, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._known: set[str] = set()
        self._versions: set[tuple[str, str]] = set()
        self._metrics: list[_PerModel] = []
        self.are_joined = False

    def follow(self, metric: "_PerModel") -> None:
        """Bound the series of a metric whose first label is ``model``."""
        self._metrics.append(metric)

    def shown(self, metric: "_PerModel", values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values of labels of a metric's series. The first model too many ends the series of all others, and the
        first byte too many those of the metric that takes the most."""
        if not (self.are_joined or metric.is_joined):
            if metric.has(values):
                return values
            self._known.add(values[0])
            if metric.has_version:
                self._versions.add((values[0], str(values[1])))
            if len(self._known) > self._most or len(self._versions) > 4 * self._most:
                self._join_all()
            else:
                metric.grow(values)
                self._shrink()
        if not (self.are_joined or metric.is_joined):
            return values
        return (ALL_MODELS, ALL_VERSIONS, *values[2:]) if metric.has_version else (ALL_MODELS, *values[1:])

    def _join_all(self) -> None:
        from signalbox.program import log  # which counts itself

        self.are_joined = True
        log.warning("metrics.models_joined", models=len(self._known), label=ALL_MODELS)
        self._known.clear()
        self._versions.clear()
        for metric in self._metrics:
            metric.join()

    def _shrink(self) -> None:
        from signalbox.program import log  # which counts itself

        while sum(metric.size_bytes for metric in self._metrics) > self._most_bytes:
            largest = max(self._metrics, key=lambda metric: metric.size_bytes)
            log.warning("metrics.models_joined", metric=largest.full_name, bytes=largest.size_bytes, label=ALL_MODELS)
            largest.join()


MODELS: Final = Models()


class _PerModel(MetricWrapperBase):
    """A metric whose first label is ``model``, and whose second may be ``version``.

    size_bytes: what its series of single models take of a scrape. is_joined: there are none, and will not be.
    """

    size_bytes = 0
    is_joined = False
    lines = 1
    """Of one series."""

    def labels(self, *values: Any, **named: Any) -> Self:
        """The series of these values, given by their places: of the model, or of all together."""
        known: Any = self._metrics.get(values)  # by texts; each job asks for several
        return known if known is not None else super().labels(*MODELS.shown(self, values), **named)

    @property
    def full_name(self) -> str:
        """The name that Prometheus has for it, without what its samples add."""
        return str(self._name)

    @property
    def has_version(self) -> bool:
        """Whether the second label is ``version``."""
        return bool(self._labelnames[1:2] == (VERSION,))

    def has(self, values: tuple[Any, ...]) -> bool:
        """Whether there is such a series."""
        return tuple(map(str, values)) in self._metrics

    def grow(self, values: tuple[Any, ...]) -> None:
        """Take in that there is one more series."""
        self.size_bytes += self._bytes_of(values)

    def join(self) -> None:
        """End the series of single models."""
        self.is_joined = True
        self.clear()

    def clear(self) -> None:
        """End all series."""
        super().clear()
        self.size_bytes = 0

    def remove(self, *values: Any) -> None:
        """End one series, which there need not be."""
        if self.has(values):
            super().remove(*values)
            self.size_bytes -= self._bytes_of(values)

    def _bytes_of(self, values: tuple[Any, ...]) -> int:
        labels = sum(len(name) + len(str(value)) + 4 for name, value in zip(self._labelnames, values, strict=True))
        return self.lines * (len(self._name) + _BOUND_BYTES + labels + _VALUE_BYTES)


def is_joined(metric: MetricWrapperBase) -> bool:
    """Whether a metric has one series for all models together; a gauge's is then its maker's to sum up."""
    return MODELS.are_joined or (isinstance(metric, _PerModel) and metric.is_joined)


class _Counter(_PerModel, Counter):
    pass


class _Gauge(_PerModel, Gauge):
    pass


class _Histogram(_PerModel, Histogram):
    pass


def _made(kind: type[M], name: str, meaning: str, labels: tuple[str, ...], **more: Any) -> M:
    made = kind(full_name(name), meaning, labels, registry=REGISTRY, **more)
    if isinstance(made, _PerModel):
        made.lines = len(more["buckets"]) + 3 if "buckets" in more else 1
        MODELS.follow(made)
    return made


def observe_many(series: Histogram, values: Sequence[float]) -> None:
    """Observe several values at once: each bucket is locked once, where :meth:`Histogram.observe` locks two a value."""
    made: Any = series
    for place, count in collections.Counter(bisect_left(made._upper_bounds, value) for value in values).items():  # noqa: SLF001  the client has no public way
        made._buckets[place].inc(count)  # noqa: SLF001  likewise
    made._sum.inc(sum(values))  # noqa: SLF001  likewise


def serve(port: int, *, host: str = "127.0.0.1") -> int:
    """Serve ``/metrics``, ``/readyz`` and ``/livez`` from a thread of its own; returns the port.

    0 does nothing, as ``metrics_port`` means it. Raises :class:`Misconfigured` when the port is taken.
    """
    if port == 0:
        return 0
    shown = make_wsgi_app(REGISTRY)

    def app(environ: Any, start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        if path not in _ASKED:
            return shown(environ, start_response)
        word, ask = _ASKED[path]
        faults = ask()
        status = "503 Service Unavailable" if faults else "200 OK"
        body = "\n".join([*(faults or [word]), ""]).encode()
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
        start_response(status, headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    try:
        server = make_server(host, port, app, _server(host, port), _SilentHandler)
    except OSError as error:
        raise Misconfigured(f"Metrics port {port} cannot be opened: {error.strerror}.") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_port)


class _SilentHandler(WSGIRequestHandler):
    """Logs no request."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name of the overridden one
        pass


def _server(host: str, port: int) -> type[WSGIServer]:
    """Not the client's own: that answers every path, ``/readyz`` too, with metrics until it is told otherwise."""

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True
        address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]

    return Server
