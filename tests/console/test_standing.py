"""How an open job stands now, in the list, on its page and over REST: as presence and the clock have it."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from console.feed.feed import Feed
from console.feed.running import running
from console.jobs.models import Job
from signalbox.program.settings import Wire
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import token
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Residency
from tests.console.test_jobs import make
from tests.console.test_live_view import T0, worker

Browser = Callable[[str], Client]


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """The live feed of this process, which receives NATS: w1 holds its GPU under token 41."""
    feed = Feed(Wire())
    feed.view.presence("w1", worker("w1", token=41), T0)
    monkeypatch.setattr(running, "feed", feed)
    monkeypatch.setattr(Feed, "is_blind", False)
    return feed


def publish(feed: Feed, model: Model) -> None:
    """What the console decided about the only model."""
    feed.tables._models = {token(model.name): model}.get


def said(client: Client, job: Job) -> tuple[str, str]:
    """What list and page show as the job's state, and what REST says of how it stands: alike everywhere."""
    page, listed = (client.get(url).content.decode() for url in (f"/jobs/{job.pk}", "/jobs"))
    states = [text.split('class="state" data-state="')[1].split("</span>")[0] for text in (page, listed)]
    shown = [state.replace('<span class="clip">', "") for state in states]
    assert shown[0] == shown[1]
    over_rest = client.get(f"/api/jobs/{job.pk}").json()["job"]["standing"]
    assert client.get("/api/jobs").json()["jobs"][0]["standing"] == over_rest
    assert not over_rest or over_rest[1:].split(",")[0] in page
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


def test_page_list_and_rest_tell_an_open_attempt_s_time_up_to_now(browser: Browser, feed: Feed) -> None:
    accepted_at = timezone.now() - timedelta(seconds=40)
    parts = {"queue": 900.0, "run": 100.0}
    running = make(1, state="running", worker="w1", token=41, created_at=accepted_at, parts=parts, attempt=1)
    waiting = make(2, state="queued", worker="", created_at=accepted_at, attempt=0)
    client = browser("viewer")

    def reported(job: Job) -> tuple[dict[str, float], str, str]:
        page, listed = (client.get(url).content.decode() for url in (f"/jobs/{job.pk}", f"/jobs?q=state:{job.state}"))
        line = page.split('class="shares"')[1]
        over_rest = client.get(f"/api/jobs/{job.pk}").json()["job"]["parts"]
        ran = re.search(r'data-label="Ran"[^>]*>(<time data-elapsed [^>]*>)?([^<]*)<', listed)
        assert ran is not None
        return over_rest, line.split('aria-label="')[1].split('"')[0], ran[2]

    over_rest, line, ran = reported(running)
    assert 39_000 <= over_rest["run"] <= 60_000
    assert re.fullmatch(r"Attempt 1: queue 900 ms, run [3-5]\d\.\d+ s", line)
    assert re.fullmatch(r"[3-5]\d\.\d+ s", ran)
    over_rest, line, _ = reported(waiting)
    assert 40_000 <= over_rest["queue"] <= 60_000
    listed = client.get("/jobs").content.decode()
    counted_on = re.findall(r'data-label="(Waited|Ran)"[^>]*><time data-elapsed', listed)
    assert counted_on == ["Waited", "Ran"], "the queued job waits on, the other one runs on"
    assert re.fullmatch(r"Not begun: queue [4-5]\d\.\d+ s", line)
    feed.view.presence("w1", None, T0 + 20)
    over_rest, line, ran = reported(running)
    assert over_rest | {"unknown": 0} == {**parts, "unknown": 0}
    assert 39_000 <= over_rest["unknown"] <= 60_000
    assert re.fullmatch(r"Attempt 1: queue 900 ms, run 100 ms, unknown [3-5]\d\.\d+ s", line)
    assert ran == "100 ms"
    running.refresh_from_db()
    assert running.parts == parts, "the row stays as it is"


def test_a_queued_job_that_is_past_its_deadline_says_so(browser: Browser, feed: Feed) -> None:
    job = make(1, state="queued", worker="", deadline_at=timezone.now() - timedelta(minutes=1))
    shown, why = said(browser("viewer"), job)
    assert shown == 'late">queued, past its deadline'
    assert "not begun any more" in why


def test_a_delayed_job_says_what_it_waits_for_and_has_not_queued_yet(browser: Browser, feed: Feed) -> None:
    later = timezone.now() + timedelta(hours=1)
    job, client = make(1, state="queued", worker="", attempt=0, not_before=later), browser("viewer")
    shown, why = said(client, job)
    assert shown == 'waiting">queued: delayed'
    assert why == f"waiting until {later:%Y-%m-%dT%H:%M:%S}.{later:%f}"[:-3] + "Z: not before"
    parts = client.get(f"/api/jobs/{job.pk}").json()["job"]["parts"]
    assert parts["delay"] > 0
    assert not parts.get("queue")


def test_a_queued_job_that_no_worker_can_begin_says_why_in_the_job_api_s_words(browser: Browser, feed: Feed) -> None:
    job, client = make(1, state="queued", worker="", attempt=0), browser("viewer")

    def waits(why: str) -> None:
        shown, over_rest = said(client, job)
        assert (shown, over_rest) == (f'waiting">queued: {why.partition(": ")[0]}', f"waiting: {why}")

    waits("there is no model digits")
    publish(feed, Model(name="digits", is_enabled=False))
    waits("the model digits is disabled")
    publish(feed, Model(name="digits", replicas=0))
    waits("the model digits has no replicas")
    publish(feed, Model(name="digits"))
    assert said(client, job) == ('queued">queued', "")
    feed.view.queues.desired("digits", Desired(is_paused=True), T0)
    waits("digits is paused by an operator")
    feed.view.queues.desired("digits", None, T0)
    for state, why in {"failed": "version 1 of digits does not load", "loading": "", "spare": ""}.items():
        loaded = Residency(model="digits", version=1, state=state, error="no such file" if why else "")
        feed.view.presence("w1", worker("w1", token=41, models=(loaded,)), T0)
        if why:
            waits(why)
        else:
            assert said(client, job) == ('queued">queued', "")
    stuck = "cannot be fetched now: the store is away"
    for error, why in {"": "is being fetched", "The store is away.": stuck}.items():
        loaded = Residency(model="digits", version=1, state="fetching", error=error)
        feed.view.presence("w1", worker("w1", token=41, models=(loaded,)), T0)
        waits(f"version 1 of digits {why}")
    for gone in (worker("w1", state="draining"), worker("w1", serves=("other",)), None):
        feed.view.presence("w1", gone, T0)
        waits("no worker serves digits")


def test_without_nats_an_open_job_is_what_was_last_known_and_an_ended_one_has_ended(
    browser: Browser, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Feed, "is_blind", True)
    job = make(1, state="running", worker="w1", token=41)
    client = browser("viewer")
    shown, why = said(client, job)
    assert shown == 'unknown">running when last known'
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
