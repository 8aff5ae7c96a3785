"""Prometheus metrics, all named ``signalbox_*``. Labels are bounded: a model is one, a job never is.

``JOBS = metrics.counter("jobs_accepted", "Jobs accepted.", "model")`` once, ``JOBS.labels(m).inc()`` where it happens.
Counting costs about a microsecond; nothing is served until :func:`serve`.
"""

from collections.abc import Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app, start_http_server

from signalbox.program import readiness
from signalbox.program.errors import Misconfigured

PREFIX: Final = "signalbox_"
REGISTRY: Final = CollectorRegistry()
LATENCY_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds, from a lone prediction to a long queue."""


def counter(name: str, meaning: str, *labels: str) -> Counter:
    """A value that only rises; shown as ``signalbox_<name>_total``."""
    return Counter(PREFIX + name, meaning, labels, registry=REGISTRY)


def gauge(name: str, meaning: str, *labels: str) -> Gauge:
    """A value that rises and falls."""
    return Gauge(PREFIX + name, meaning, labels, registry=REGISTRY)


def histogram(name: str, meaning: str, *labels: str, buckets: Sequence[float] = LATENCY_BUCKETS) -> Histogram:
    """A distribution; the name ends with its unit (``_seconds``, ``_bytes``)."""
    return Histogram(PREFIX + name, meaning, labels, buckets=buckets, registry=REGISTRY)


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
