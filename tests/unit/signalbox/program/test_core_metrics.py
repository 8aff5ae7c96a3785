"""Metrics whose series are bounded, however many models there are."""

import json

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from signalbox.program import log, metrics
from signalbox.program.metrics import Models


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> CollectorRegistry:
    """Metrics made from now on are here, and two models have series of their own."""
    registry = CollectorRegistry()
    monkeypatch.setattr(metrics, "REGISTRY", registry)
    monkeypatch.setattr(metrics, "MODELS", Models(2))
    return registry


def series(registry: CollectorRegistry, *names: str) -> list[str]:
    """The samples of these names, as Prometheus reads them."""
    return [line for line in generate_latest(registry).decode().splitlines() if line.startswith(names)]


def test_above_so_many_models_every_label_becomes_all_models(
    registry: CollectorRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    log.configure("INFO", program="worker")
    hits = metrics.counter("hits", "Hits.", "model", "reason")
    seconds = metrics.histogram("load_seconds", "Loads.", "model", buckets=(1.0,))
    rows = metrics.gauge("rows", "Rows.", "model")
    theirs = metrics.counter("tfservingcache_cache", "Jobs.", "model", "version")
    others = metrics.counter("others", "No model's.", "reason")
    for name in ("a", "b"):
        hits.labels(name, "room").inc(2)
        seconds.labels(name).observe(0.5)
        theirs.labels(name, 3).inc()
    assert series(registry, "signalbox_hits_total") == [
        'signalbox_hits_total{model="a",reason="room"} 2.0',
        'signalbox_hits_total{model="b",reason="room"} 2.0',
    ]
    assert series(registry, "tfservingcache_cache_total")[0] == 'tfservingcache_cache_total{model="a",version="3"} 1.0'
    rows.labels("c").set(7)
    others.labels("x").inc()
    for name in ("a", "d"):
        hits.labels(name, "disk").inc()
        seconds.labels(name).observe(0.5)
        theirs.labels(name, 4).inc()
    assert series(registry, "signalbox_hits_total", "signalbox_rows", "signalbox_load_seconds_count") == [
        'signalbox_hits_total{model="all_models",reason="disk"} 2.0',
        'signalbox_load_seconds_count{model="all_models"} 2.0',
        'signalbox_rows{model="all_models"} 7.0',
    ]
    assert series(registry, "tfservingcache_cache_total") == [
        'tfservingcache_cache_total{model="all_models",version="-1"} 2.0'
    ]
    assert series(registry, "signalbox_others_total") == ['signalbox_others_total{reason="x"} 1.0']
    (line,) = capsys.readouterr().err.splitlines()
    assert {"event": "metrics.models_joined", "models": 3, "label": "all_models"}.items() <= json.loads(line).items()


def test_versions_are_bounded_too(registry: CollectorRegistry) -> None:
    theirs = metrics.counter("tfservingcache_cache", "Jobs.", "model", "version")
    for version in range(20):
        theirs.labels("a", version).inc()
    assert len(series(registry, "tfservingcache_cache_total")) == 1
