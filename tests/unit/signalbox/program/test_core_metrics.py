"""Metrics whose series are bounded, however many models there are."""

import json
import subprocess
import sys
from pathlib import Path

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


def test_the_metric_with_the_most_to_tell_is_joined_when_a_scrape_would_be_too_long(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics, "MODELS", Models(100, most_bytes=3000))
    log.configure("INFO", program="worker")
    hits = metrics.counter("hits", "Hits.", "model")
    seconds = metrics.histogram("load_seconds", "Loads.", "model")
    for number in range(10):
        hits.labels(f"m{number}").inc()
        seconds.labels(f"m{number}").observe(0.5)
    assert series(registry, "signalbox_load_seconds_count") == ['signalbox_load_seconds_count{model="all_models"} 8.0']
    assert len(series(registry, "signalbox_hits_total")) == 10
    (line,) = capsys.readouterr().err.splitlines()
    assert {"event": "metrics.models_joined", "metric": "signalbox_load_seconds"}.items() <= json.loads(line).items()


def test_a_series_that_ends_makes_room(registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MODELS", Models(100, most_bytes=300))
    rows = metrics.gauge("rows", "Rows.", "model")
    for number in range(100):
        rows.labels(f"m{number}").set(1)
        rows.remove(f"m{number}")
        rows.remove("never seen")
    assert series(registry, "signalbox_rows") == []
    assert not metrics.is_joined(rows)


def test_values_observed_together_are_in_the_buckets_that_they_would_be_in_alone(registry: CollectorRegistry) -> None:
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 99.0, 0.5]
    alone = metrics.histogram("one_seconds", "Alone.", "model", buckets=(0.5, 1.0, 2.0))
    together = metrics.histogram("two_seconds", "Together.", "model", buckets=(0.5, 1.0, 2.0))
    for value in values:
        alone.labels("m").observe(value)
    metrics.observe_many(together.labels("m"), values)
    metrics.observe_many(together.labels("m"), [])
    first, second = series(registry, "signalbox_one"), series(registry, "signalbox_two")
    assert len(first) == 6
    assert [line.replace("two", "one") for line in second] == first


SCRAPE = """
import runpy, sys
from prometheus_client.exposition import generate_latest
pages = runpy.run_path("docs/generate.py")
pages["_load"]({module for _, module in pages["_metric_makers"]()})
from signalbox.program import metrics
largest = 0
for number in range(int(sys.argv[1])):
    name = f"{'a-model-with-a-long-name':<40}{number}".replace(" ", "-")
    for metric in metrics.MODELS._metrics:
        for other in ("first", "second"):
            child = metric.labels(name, *[other for _ in metric._labelnames[1:]])
            (getattr(child, "inc", None) or child.observe)(1)
    if number in (20, 50, 100, 200, 400, 499) or number % 2000 == 0:
        largest = max(largest, len(generate_latest(metrics.REGISTRY)))
print(largest)
"""


def test_a_scrape_of_all_programs_together_is_below_a_megabyte_with_10_000_models() -> None:
    """More than any program shows: each has its own part of the metrics."""
    root = Path(__file__).resolve().parents[4]
    done = subprocess.run(
        [sys.executable, "-c", SCRAPE, "10000"], cwd=root, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert 100_000 < int(done.stdout) < 1_000_000
