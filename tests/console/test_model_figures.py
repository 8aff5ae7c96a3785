"""A model's page and the REST API say its versions' rates, waits, runs and errors, and what makes them slow."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.accounts.rights import Actor
from console.catalog import lookup, registration
from console.feed.feed import Feed
from console.feed.running import running
from console.outbox.models import OutboxEntry
from console.projector import store
from console.rollups import causes
from console.rollups.adding import Sums
from console.rollups.reading import VersionFigures
from signalbox.program.settings import Wire
from signalbox.wire.messages import State
from signalbox.wire.workerdocs import Residency
from tests.console.test_live_view import worker
from tests.console.test_rollups import ended, failure, message

pytestmark = pytest.mark.django_db
Call = Callable[..., Any]


@pytest.fixture
def digits(admin: Actor, base: Path) -> str:
    """A registered model."""
    return registration.register(admin, "digits", str(base)).name


def now() -> float:
    """When the jobs of a test end."""
    return store._clock() - 60.0


def text(answer: Any) -> str:
    """A page's words."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def test_the_page_of_a_model_without_calls_says_so(browser: Callable[[str], Client], digits: str) -> None:
    page = browser("viewer").get(f"/models/{digits}")
    assert page.content.decode().count("No job of it ended.") == 2
    assert "Where the time goes" not in text(page)


def test_the_page_has_every_version_of_the_last_hour_and_day_and_says_why_it_is_slow(
    browser: Callable[[str], Client], digits: str
) -> None:
    at = now()
    jobs = [message(ended(n, created_at=at, parts={"queue": 90.0, "run": 10.0}), n, at) for n in range(1, 10)]
    store.apply([*jobs, message(failure(10), 10, at), message(ended(11, version=4), 11, at - 7200.0)], 11)
    page = browser("viewer").get(f"/models/{digits}")
    words = text(page)
    assert "Jobs wait until a worker has a place for them" in words
    assert "So many of the jobs took more than one attempt." in words
    hour, day = words.split("Last hour", 1)[1].split("Last day", 1)
    assert (" 10 %" in hour, "/jobs?q=model:digits+version:3+state:failed" in page.content.decode()) == (True, True)
    assert page.content.decode().count('class="spark-line spark-failed"') == 2
    assert 'aria-label="Calls of version 4' in page.content.decode()
    assert re.search(r"\b4\b", day)


def test_the_figures_are_had_over_rest_too(call: Callable[[str], Call], digits: str) -> None:
    at = now()
    store.apply([message(ended(1), 1, at), message(failure(2), 2, at), message(ended(3, State.CANCELLED), 3, at)], 3)
    [found] = call("viewer")("get", f"models/{digits}/figures").json()["versions"]
    assert (found["version"], found["jobs"], found["failed"], found["failed_share"]) == (3, 3, 1, 0.5)
    assert found["causes"][0]["name"] == "loads"
    assert sum(point["jobs"] for point in found["points"]) == 3
    assert found["run_p50_ms"] == pytest.approx(20, rel=0.1)
    refused = call("viewer")("get", f"models/{digits}/figures?seconds=864000")
    assert refused.status_code == 400
    assert "longer steps" in refused.json()["detail"]
    assert call("viewer")("get", "models/other/figures").status_code == 404


def test_the_list_has_the_last_hour_of_each_model(browser: Callable[[str], Client], digits: str) -> None:
    assert 'data-label="Calls, 1 h" class="num">–<' in browser("viewer").get("/models").content.decode()
    at = now()
    store.apply([message(ended(1), 1, at), message(failure(2), 2, at), message(ended(3, version=4), 3, at)], 3)
    page = browser("viewer").get("/models").content.decode()
    assert 'data-label="Calls, 1 h" class="num">3<' in page
    assert 'data-label="Errors" class="num">1<' in page


def test_a_cause_is_what_took_a_tenth_of_the_time() -> None:
    sums = Sums(succeeded=100, parts={"delay": 1e9, "queue": 500.0, "fetch": 30.0, "load": 80.0, "run": 390.0})
    found = causes.of(VersionFigures(1, 3600, sums))
    assert [(one.name, round(one.share, 2)) for one in found] == [("queue", 0.5), ("run", 0.39), ("loads", 0.11)]
    assert causes.of(VersionFigures(1, 3600, Sums())) == []


def test_list_page_and_rest_say_how_many_replicas_are_ready_and_that_no_device_is_there(
    browser: Callable[[str], Client], call: Callable[[str], Call], digits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    OutboxEntry.objects.update(published_at=timezone.now())
    feed = Feed(Wire())
    monkeypatch.setattr(running, "feed", feed)
    monkeypatch.setattr(Feed, "is_blind", False)
    feed.view.model(digits, lookup.find(digits).document(), 1.0)
    for path in ("/models", f"/models/{digits}"):
        words = text(browser("viewer").get(path))
        assert "no device" in words
        assert "0 of 1" in words
    feed.view.presence("w1", worker("w1", token=7, models=(Residency(model=digits, version=1, state="ready"),)), 2.0)
    for path in ("/models", f"/models/{digits}"):
        words = text(browser("viewer").get(path))
        assert "1 of 1" in words
        assert "no device" not in words
    shown = call("viewer")("get", f"models/{digits}").json()
    assert (shown["ready_replicas"], shown["condition"]) == (1, "ready")
