"""Each panel of each dashboard shows something of a loaded stack, and no alert fires without a cause."""

import shutil
import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.e2e.observed import observed
from tests.rigs.objectstore import ObjectStoreServer
from tests.rigs.prometheus import Prometheus, dashboards, expressions

SHOWN_S: Final = 240.0

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def prometheus(object_store: ObjectStoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    with observed(tmp_path_factory.mktemp("observed"), object_store) as made:
        yield made


@pytest.mark.slow
def test_every_panel_of_every_dashboard_shows_something_of_a_loaded_stack(prometheus: Prometheus) -> None:
    left = {
        (dashboard["uid"], title, legend): expr
        for dashboard in dashboards()
        for title, legend, expr in expressions(dashboard)
    }
    assert len(left) > 60
    deadline = time.monotonic() + SHOWN_S
    while left and time.monotonic() < deadline:
        left = {name: expr for name, expr in left.items() if not _has_values(prometheus, expr)}
    assert left == {}


@pytest.mark.slow
def test_every_program_is_scraped_and_no_scrape_is_long(prometheus: Prometheus) -> None:
    jobs = {each["metric"]["job"] for each in prometheus.query("up == 1")}
    assert jobs == {"gateway", "worker", "console", "controller", "projector", "outbound"}
    assert prometheus.query("up == 0") == []
    assert prometheus.query("max(scrape_samples_scraped) > 5000") == []


@pytest.mark.slow
def test_no_alert_has_fired_on_a_stack_that_is_well(prometheus: Prometheus) -> None:
    assert prometheus.query('count({__name__=~"signalbox_.*"}) > 100') != []
    assert [each["metric"] for each in prometheus.query('max_over_time(ALERTS{alertstate="firing"}[1h])')] == []


def _has_values(prometheus: Prometheus, expr: str) -> bool:
    """Whether there is a number: a quantile of nothing is none."""
    return any(each["value"][1] != "NaN" for each in prometheus.query(expr))
