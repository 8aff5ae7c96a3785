"""Pages of workers: who is here, what was asked of it, and a drain with its reason."""

import re
from collections.abc import Callable

import pytest
from django.test import Client

from console.audit.models import AuditEntry
from console.feed.feed import Feed
from console.feed.running import running
from console.fleet.models import DesiredState
from signalbox.program.settings import Wire
from signalbox.wire.messages import Residency
from tests.console.conftest import submit
from tests.console.test_jobs import make
from tests.console.test_live_view import computing, worker

Browser = Callable[[str], Client]


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """The live feed of this process: one worker holds its GPU, one is lost."""
    feed = Feed(Wire())
    held = worker("w1", token=41, models=(Residency(model="digits", version=2, state="ready"),))
    feed.view.presence("w1", held, 1_000_000.0)
    feed.view.presence("w2", worker("w2"), 1_000_000.0)
    feed.view.presence("w2", None, 1_000_010.0)
    monkeypatch.setattr(running, "feed", feed)
    monkeypatch.setattr(Feed, "is_blind", False)
    return feed


def test_the_list_names_every_worker_and_leads_to_its_page(browser: Browser, feed: Feed) -> None:
    client = browser("viewer")
    page = client.get("/workers").content.decode()
    assert page.index('href="/workers/w1"') < page.index('href="/workers/w2"')  # the lost come last
    assert "holds its GPU" in page
    assert ">lost<" in page
    shown = client.get("/workers/w1").content.decode()
    assert 'href="/models/digits"' in shown
    assert "/workers/w1/drain" not in shown  # a viewer may not


def test_a_worker_that_computes_or_loads_is_not_shown_as_one_that_holds_its_gpu_idle(
    browser: Browser, feed: Feed
) -> None:
    client = browser("viewer")
    for activity in ("computing", "loading"):
        run = computing(1_000_000.0, model="digits", activity=activity)
        feed.view.presence("w1", worker("w1", token=41, run=run), 1_000_005.0)
        for url in ("/workers", "/workers/w1"):
            page = client.get(url).content.decode()
            assert f'data-state="{activity}">{activity} digits:1<' in page
            assert 'data-state="held"' not in page
    feed.view.presence("w1", worker("w1", token=41), 1_000_010.0)
    assert 'data-state="held">holds its GPU, idle<' in client.get("/workers").content.decode()


def test_speed_is_of_a_model_and_memory_is_of_all_its_processes(browser: Browser, feed: Feed) -> None:
    busy = worker(
        "w1",
        models=tuple(Residency(model=name, version=1, state="ready") for name in ("half", "digits", "new")),
        rates={"digits": 52.0, "half": 900.0},
        rss_bytes=60 << 20,
        runner_rss_bytes=540 << 20,
    )
    feed.view.presence("w1", busy, 1_000_005.0)
    row = {each.id: each for each in feed.view.workers()}["w1"]
    assert (row.ran, row.jobs_per_s) == ("digits", 52.0), "of the model that ran last, not of all together"
    page = browser("viewer").get("/workers/w1").content.decode()
    speeds = re.findall(r'data-label="Speed" class="num nowrap">([^<]*)<', page)
    assert speeds == ["900/s", "52/s", "–"]
    assert "600.0 MiB" in page


def test_a_worker_is_drained_with_a_reason_and_resumed_on_its_page(browser: Browser, feed: Feed) -> None:
    client = browser("operator")
    assert "Drain w1?" in client.get("/workers/w1").content.decode()
    sent = submit(client, "/workers/w1/drain", {"draining": "1", "reason": "new driver"})
    page = client.get(sent["Location"]).content.decode()
    assert sent["Location"] == "/workers/w1"
    assert "Let w1 take part again?" in page
    assert "new driver" in page
    assert "has not begun it yet" in page
    assert "drain asked by operator" in client.get("/workers").content.decode()
    feed.view.presence("w1", worker("w1", state="draining"), 1_000_020.0)
    assert "has not begun it yet" not in client.get("/workers/w1").content.decode()
    submit(client, "/workers/w1/drain", {"draining": "0"})
    assert not DesiredState.objects.get().is_on
    entry = AuditEntry.objects.filter(act="workers.drain").earliest("pk")
    assert (entry.href, entry.reason) == ("/workers/w1", "new driver")


def test_a_worker_that_has_gone_keeps_its_page_and_one_that_never_was_has_none(
    browser: Browser, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(1, worker="old")
    client = browser("operator")
    assert "sends no heartbeat" in client.get("/workers/old").content.decode()
    assert client.get("/workers/never").status_code == 404
    assert submit(client, "/workers/never/drain", {"draining": "1"}).status_code == 404
    submit(client, "/workers/old/drain", {"draining": "1"})
    assert "Asked to drain, and not here" in client.get("/workers").content.decode()
    monkeypatch.setattr(running, "feed", None)
    assert "Workers are not known now" in client.get("/workers").content.decode()
    assert client.get("/workers/never").status_code == 503
