"""What is told of the most rows in one run is true of every version and shape that the series stands for."""

from collections.abc import Iterator

import pytest

from signalbox.program import metrics
from workers.host import gauges
from workers.statistics.batchlimits import BatchLimits


@pytest.fixture
def limits() -> Iterator[BatchLimits]:
    gauges.CEILING.clear()
    yield BatchLimits()
    gauges.CEILING.clear()


def failed(limits: BatchLimits, model: str, shape: str, rows: int) -> None:
    limits.failed((model, 1, shape), rows)
    gauges.show_ceiling(model, limits.lowest())


def told(model: str) -> float | None:
    return metrics.REGISTRY.get_sample_value("signalbox_worker_batch_ceiling_rows", {"model": model})


def test_of_the_shapes_of_a_model_the_least_is_told(limits: BatchLimits) -> None:
    failed(limits, "a", "large rows", 8)
    failed(limits, "a", "small rows", 64)
    failed(limits, "b", "large rows", 2)
    assert (told("a"), told("b")) == (4.0, 1.0)


def test_of_models_that_share_one_series_the_least_is_told(
    limits: BatchLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges.CEILING, "is_joined", True)
    failed(limits, "a", "rows", 8)
    failed(limits, "b", "rows", 64)
    assert (told(metrics.ALL_MODELS), told("a"), told("b")) == (4.0, None, None)


def test_a_run_of_one_row_sets_no_limit_and_none_is_told(limits: BatchLimits) -> None:
    failed(limits, "a", "rows", 1)
    assert told("a") is None
