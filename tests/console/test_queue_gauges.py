"""The queues as Prometheus sees them: depth and oldest age by model, bounded."""

from collections.abc import Iterator

import pytest

from console.board.rows import Queue
from console.feed import queuegauges
from console.feed.queuegauges import QueueGauges
from console.scaling.loads import Loads
from signalbox.bus.client import Bus
from signalbox.program.metrics import REGISTRY
from signalbox.program.settings import Wire

NAMES = ("queue_jobs", "queue_running_jobs", "queue_oldest_seconds")


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    yield
    for gauge in (queuegauges.WAITING, queuegauges.RUNNING, queuegauges.OLDEST):
        gauge.clear()


def shown(model: str) -> list[float | None]:
    return [REGISTRY.get_sample_value(f"signalbox_{name}", {"model": model}) for name in NAMES]


def test_depth_and_oldest_age_of_each_model_are_shown_while_it_is_called() -> None:
    gauges = QueueGauges()
    gauges.show({"long": Queue(waiting=9, running=1, oldest_at=70.0), "none": Queue(oldest_at=1.0)}, 100.0)
    assert shown("long") == [9, 1, 30]
    assert shown("none") == [0, 0, 0]
    gauges.show({"long": Queue()}, 101.0)
    assert (shown("long"), shown("none")) == ([0, 0, 0], [None, None, None])


async def test_a_controller_that_reads_no_more_shows_no_figures() -> None:
    loads = Loads(Bus(Wire(), "console"))
    loads._watched._metrics.show({"long": Queue(waiting=9, oldest_at=70.0)}, 100.0)
    await loads.close()
    assert shown("long") == [None, None, None]


def test_of_many_models_the_longest_queues_are_shown_and_the_others_together() -> None:
    queues = {f"m{waiting}": Queue(waiting=waiting, running=1, oldest_at=100.0 - waiting) for waiting in range(1, 8)}
    gauges = QueueGauges(most=2)
    gauges.show(queues, 100.0)
    assert (shown("m7"), shown("m6"), shown("m5")) == ([7, 1, 7], [6, 1, 6], [None, None, None])
    assert shown("all_models") == [15, 5, 5]
    gauges.show({"m7": queues["m7"]}, 100.0)
    assert shown("all_models") == [None, None, None]
