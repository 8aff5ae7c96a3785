"""How an open job stands now, in the list, on its page and over REST: as presence and the clock have it."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from console.feed.feed import Feed
from console.feed.running import running
from console.jobs.models import Job
from signalbox.program.settings import Wire
from tests.console.test_jobs import make
from tests.console.test_live_view import T0, worker

Browser = Callable[[str], Client]


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """The live feed of this process, which hears NATS: w1 holds its GPU under token 41."""
    feed = Feed(Wire())
    feed.view.presence("w1", worker("w1", token=41), T0)
    monkeypatch.setattr(running, "feed", feed)
    monkeypatch.setattr(Feed, "is_blind", False)
    return feed


def said(client: Client, job: Job) -> tuple[str, str]:
    """What list and page show as the job's state, and what REST says of how it stands: alike everywhere."""
    page, listed = (client.get(url).content.decode() for url in (f"/jobs/{job.pk}", "/jobs"))
    shown = [text.split('class="state" data-state="')[1].split("</span>")[0] for text in (page, listed)]
    assert shown[0] == shown[1]
    over_rest = client.get(f"/api/jobs/{job.pk}").json()["job"]["standing"]
    assert client.get("/api/jobs").json()["jobs"][0]["standing"] == over_rest
    assert not over_rest or over_rest.split(",")[0] in page
    return shown[0], over_rest


def test_a_running_job_whose_worker_is_gone_or_holds_another_lease_says_so(browser: Browser, feed: Feed) -> None:
    job, client = make(1, state="running", worker="w1", token=41), browser("viewer")
    assert said(client, job) == ('running">running', "")
    feed.view.presence("w1", worker("w1", token=42), T0 + 1)
    assert said(client, job)[0] == 'lost">running, worker gone'
    feed.view.presence("w1", worker("w1", token=41), T0 + 2)
    feed.view.presence("w1", None, T0 + 20)
    shown, why = said(client, job)
    assert shown == 'lost">running, worker gone'
    assert "w1" in why


def test_a_claim_that_is_newer_than_its_workers_presence_is_believed(browser: Browser, feed: Feed) -> None:
    feed.view.presence("w1", worker("w1", token=0, beat_at=T0), T0)
    job = make(1, state="running", worker="w1", token=43, claimed_at=timezone.now())
    assert said(browser("viewer"), job) == ('running">running', "")


def test_a_queued_job_that_is_past_its_deadline_says_so(browser: Browser, feed: Feed) -> None:
    job = make(1, state="queued", worker="", deadline_at=timezone.now() - timedelta(minutes=1))
    shown, why = said(browser("viewer"), job)
    assert shown == 'late">queued, past its deadline'
    assert "not begun any more" in why


def test_without_nats_an_open_job_is_what_was_last_heard_and_an_ended_one_has_ended(
    browser: Browser, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Feed, "is_blind", True)
    job = make(1, state="running", worker="w1", token=41)
    client = browser("viewer")
    shown, why = said(client, job)
    assert shown == 'unknown">running when last heard of'
    assert "NATS" in why
    Job.objects.filter(pk=job.pk).update(state="succeeded")
    assert said(client, job) == ('succeeded">succeeded', "")


def test_list_page_and_rest_say_that_the_projector_or_the_controller_has_stopped(
    browser: Browser, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, client = make(1, state="running", worker="w1", token=41), browser("viewer")
    urls = ("/jobs", f"/jobs/{job.pk}")
    assert client.get("/api/jobs").json()["old_rows"] == ""
    assert not any("does not run" in client.get(url).content.decode() for url in (*urls, "/models"))
    silent = {"projector": T0}
    monkeypatch.setattr(feed.programs, "stopped_since", silent.get)
    assert all("projector does not run" in client.get(url).content.decode() for url in urls)
    assert "projector does not run" in client.get("/api/jobs").json()["old_rows"]
    silent["controller"] = T0
    for url in (*urls, "/models", "/workers", "/keys"):
        assert "controller does not run" in client.get(url).content.decode()


def test_no_page_says_that_jobs_go_on_while_nats_is_away(
    browser: Browser, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Feed, "is_blind", True)
    client = browser("viewer")
    for url in ("/jobs", "/models", "/workers", "/keys"):
        page = client.get(url).content.decode()
        assert "not depend on" not in page
        assert "refused with 503" in page
    assert "NATS" in client.get("/api/jobs").json()["old_rows"]
