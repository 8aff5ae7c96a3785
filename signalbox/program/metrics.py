"""Prometheus metrics, all named ``signalbox_*``. Labels are bounded: a model is one, a job never is.

A label ``model`` comes first. Above :data:`MOST_MODELS` models all of them share one series.

``JOBS = metrics.counter("jobs_accepted", "Jobs accepted.", "model")`` once, ``JOBS.labels(m).inc()`` where it happens.
Counting costs about a microsecond; nothing is served until :func:`serve`.
"""

from collections.abc import Sequence
from typing import Any, Final, Self, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app, start_http_server
from prometheus_client.metrics import MetricWrapperBase

from signalbox.program import readiness
from signalbox.program.errors import Misconfigured

PREFIX: Final = "signalbox_"
COMPATIBLE: Final = "tfservingcache_"
"""Metrics of TFServingCache that are served under their own names."""
MODEL: Final = "model"
VERSION: Final = "version"
MOST_MODELS: Final = 500
"""Models that have series of their own in one program."""
ALL_MODELS: Final = "all_models"
ALL_VERSIONS: Final = "-1"
REGISTRY: Final = CollectorRegistry()
LATENCY_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds, from a lone prediction to a long queue."""
M = TypeVar("M", bound=MetricWrapperBase)


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

    most: models of this process that have series of their own, and four times as many versions.
    """

    def __init__(self, most: int = MOST_MODELS) -> None:
        self._most = most
        self._known: set[str] = set()
        self._versions: set[tuple[str, str]] = set()
        self._metrics: list[_PerModel] = []
        self.are_joined = False

    def follow(self, metric: "_PerModel") -> None:
        """Bound the series of a metric whose first label is ``model``."""
        self._metrics.append(metric)

    def shown(self, names: tuple[str, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values of a series' labels ``names``. The first model too many ends the series of all others."""
        has_version = names[1:2] == (VERSION,)
        if not self.are_joined:
            model = values[0]
            if model in self._known and not has_version:
                return values
            self._known.add(model)
            if has_version:
                self._versions.add((model, str(values[1])))
            if len(self._known) <= self._most and len(self._versions) <= 4 * self._most:
                return values
            self._join()
        return (ALL_MODELS, ALL_VERSIONS, *values[2:]) if has_version else (ALL_MODELS, *values[1:])

    def _join(self) -> None:
        from signalbox.program import log  # which counts itself

        self.are_joined = True
        log.warning("metrics.models_joined", models=len(self._known), label=ALL_MODELS)
        self._known.clear()
        self._versions.clear()
        for metric in self._metrics:
            metric.clear()


MODELS: Final = Models()


class _PerModel(MetricWrapperBase):
    """A metric whose first label is ``model``, and whose second may be ``version``."""

    def labels(self, *values: Any, **named: Any) -> Self:
        """The series of these values, given by their places: of the model, or of all together."""
        known: Any = self._metrics.get(values)  # by texts; each job asks for several
        return known if known is not None else super().labels(*MODELS.shown(self._labelnames, values), **named)


class _Counter(_PerModel, Counter):
    pass


class _Gauge(_PerModel, Gauge):
    pass


class _Histogram(_PerModel, Histogram):
    pass


def _made(kind: type[M], name: str, meaning: str, labels: tuple[str, ...], **more: Any) -> M:
    made = kind(full_name(name), meaning, labels, registry=REGISTRY, **more)
    if isinstance(made, _PerModel):
        MODELS.follow(made)
    return made


def serve(port: int, *, host: str = "127.0.0.1") -> int:
    """Serve ``/metrics`` and ``/readyz`` from a thread of its own; returns the port.

    0 does nothing, as ``metrics_port`` means it. Raises :class:`Misconfigured` when the port is taken.
    """
    if port == 0:
        return 0
    try:
        server, _ = start_http_server(port, addr=host, registry=REGISTRY)
    except OSError as error:
        raise Misconfigured(f"Metrics port {port} cannot be opened: {error.strerror}.") from error
    shown = make_wsgi_app(REGISTRY)

    def app(environ: Any, start_response: Any) -> Any:
        if environ["PATH_INFO"] != "/readyz":
            return shown(environ, start_response)
        faults = readiness.faults()
        status = "503 Service Unavailable" if faults else "200 OK"
        body = "\n".join([*(faults or ["ready"]), ""]).encode()
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
        start_response(status, headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    server.set_app(app)
    return int(server.server_port)
