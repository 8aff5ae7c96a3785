"""The job list and a job's page: filters, pages, timeline, cancel."""

import html
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from msgspec.structs import replace

from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.jobs import acts, fresh, groups, hints, listing, query, retention, standing, timeline
from console.jobs.fold import JobMessage
from console.jobs.models import Job, JobEvent, JobTag
from console.keys.models import Account, ApiKey
from console.outbox.models import OutboxEntry
from console.projector import store
from gateway_plugin.api.answers import job_headers
from gateway_plugin.service import descriptions
from signalbox.jobs import life, times
from signalbox.jobs.penalty import Penalty
from signalbox.program.errors import Conflict, InvalidRequest, NotFound
from signalbox.wire.messages import ErrorInfo, Record
from tests.console.conftest import in_thread, submit
from tests.console.test_projector import accepted

Browser = Callable[[str], Client]
START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
NOW = START + timedelta(hours=3)


def make(number: int, **changes: Any) -> Job:
    """A row, a minute after the one before."""
    at = START + timedelta(minutes=number)
    fields = {
        "id": f"00000000-0000-4000-8000-{number:012x}",
        "model": "digits",
        "version": 1,
        "state": "succeeded",
        "account_id": "shop",
        "key_id": "key1",
        "created_at": at,
        "updated_at": at,
        "worker": "w1",
        "gpu": "g1",
        "phases": {"claimed": 10.0, "started": 12.0, "done": 20.0},
    }
    job = Job.objects.create(**(fields | changes))
    JobTag.objects.bulk_create(tags_of([job]))
    return job


def tags_of(jobs: Iterable[Job]) -> list[JobTag]:
    """Their rows, not saved."""
    return [
        JobTag(job_id=job.pk, tag=tag, account_id=job.account_id, created_at=job.created_at)
        for job in jobs
        for tag in job.tags
    ]


@pytest.fixture
def some(db: None) -> list[Job]:
    """Six jobs of different kinds."""
    for pk, name in (("shop", "The shop"), ("ward", "Warehouse"), ("old", "ward")):
        Account.objects.create(pk=pk, name=name)
    ApiKey.objects.create(pk="key1", name="ci", account_id="shop")
    return [
        make(1),
        make(
            2,
            state="failed",
            error_code="model_error",
            error_message="Out of memory.",
            error_group="123456789abc",
            tags=["nightly", "run/7"],
        ),
        make(3, state="running", model="slow", tags=["nightly"]),
        make(4, state="queued", account_id="ward", key_id="key2", worker="", gpu=""),
        make(5, version=2, worker="w2", phases={"claimed": 10.0, "done": 9000.0}),
        make(6, state="cancelled", token=7),
    ]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", [6, 5, 4, 3, 2, 1]),
        ("state:failed", [2]),
        ("state:queued,running", [4, 3]),
        ("model:slow", [3]),
        ("slow", [3]),
        ("account:ward", [4]),
        ("key:key2", [4]),
        ("account:shop key:key2", []),
        ("worker:w2", [5]),
        ("gpu:g1 state:failed", [2]),
        ("version:2", [5]),
        ("token:7", [6]),
        ("error:model_error", [2]),
        ("tag:nightly", [3, 2]),
        ("tag:nightly state:failed", [2]),
        ("tag:nightly tag:run/7", [2]),
        ("tag:nightly created:<177m", [3]),
        ("tag:night", []),
        ("tag:a,b", None),
        ("id:00000000-0000-4000-8000-000000000003", [3]),
        ("00000000-0000-4000-8000-000000000003", [3]),
        ("created:>2h56m", None),
        ("created:>176m", [3, 2, 1]),
        ("created:<175m", [6, 5]),
        ("took:>5s", [5]),
        ("took:<100ms", [6, 4, 3, 2, 1]),
        ("model:digits,slow state:queued,running", [4, 3]),
        ("model:digits,slow state:queued,running token:7", []),
        ("state:failed,cancelled error:model_error,cancelled", [2]),
        ("id:00000000-0000-4000-8000-00000000000", [6, 5, 4, 3, 2, 1]),
        ("id:0000", [6, 5, 4, 3, 2, 1]),
        ("id:0001", []),
        ("id:%", []),
        ("priority:hi", []),
        ("took:>5s version:2", [5]),
        ("error:x,y", []),
        ("nonsense:1", None),
        ("owner:ward", None),
        ("nightly", [3, 2]),
        ("model_error", [2]),
        ("-state:succeeded", [6, 4, 3, 2]),
        ("-state:succeeded,failed -state:running", [6, 4]),
        ("-model:digits", [3]),
        ("-tag:nightly -version:2 state:succeeded,failed", [1]),
        ("-slow", [6, 5, 4, 2, 1]),
        ("-nightly state:running,failed,queued", [4]),
        ("-error:model_error", [6, 5, 4, 3, 1]),
        ("-error~memory state:failed", []),
        ("-id:00000000-0000-4000-8000-000000000003 -took:>5s", [6, 4, 2, 1]),
        ("-created:<2h", None),
        ('error:"OUT OF memory"', [2]),
        ('"of memory"', [2]),
        ("error~memory", [2]),
        ("error~100%", []),
        ("error~memory tag:run/7", [2]),
        ('error:"out of memory" -nightly', []),
        ('error:"out of memory', None),
        ("error~", None),
        ("eror:x", None),
        ("group:123456789abc", [2]),
        ("group:x", []),
        ("account:warehouse", [4]),
        ('account:"THE shop"', [6, 5, 3, 2, 1]),
        ("account:warehouse,shop", [6, 5, 4, 3, 2, 1]),
        ("key:CI", [6, 5, 3, 2, 1]),
        ("-key:ci", [4]),
        ("created:2026-11-21", [6, 5, 4, 3, 2, 1]),
        ("created:yesterday", []),
        ("created:today -created:2026-11-21", None),
        ("created:today", [6, 5, 4, 3, 2, 1]),
        ("created:>2026-11-21", []),
        ("created:<2026-11-21", []),
        ("created:>2026-11-21T08:03", [6, 5, 4, 3]),
        ("created:<2026-11-21T08:03", [2, 1]),
        ("created:2026-11-21T08:03", [3]),
        ("created:2026-11-21T08:03:00Z", [3]),
        ("created:2026-11-21T10:03+02:00", [3]),
        ("created:2026-11-20..2026-11-21", [6, 5, 4, 3, 2, 1]),
        ("created:2026-11-21T08:02..2026-11-21T08:04", [4, 3, 2]),
        ("created:..2026-11-21T08:02 model:digits", [2, 1]),
        ("created:2026-11-21T08:05.. -model:slow", [6, 5]),
        ("created:..", None),
        ("created:2026-02-30", None),
        ("created:9999-12-31", None),
        ("created:tomorrow", None),
        ("token:99999999999999999999", None),
        ("model:a,b,c,d,e,f,g,h,i,j,k", None),
        ("x " * 30, None),
        ("state:happy", None),
        ("version:one", None),
        ("model:", None),
    ],
)
def test_filters_find_exactly_what_they_say_or_say_what_is_wrong(
    some: list[Job], text: str, numbers: list[int] | None
) -> None:
    if numbers is None:
        with pytest.raises(InvalidRequest):
            query.parse(text, NOW)
        return
    page = listing.page(query.parse(text, NOW))
    assert [int(job.pk[-4:], 16) for job in page.jobs] == numbers


def test_pages_follow_one_another_from_the_oldest_too(some: list[Job]) -> None:
    at = some[0].created_at
    for number in range(10, 15):
        make(number, created_at=at + timedelta(minutes=number % 2), tags=["slow"])
    for text in ("", "version:1", "slow", "tag:slow", "-state:failed"):
        asked = query.parse(text, NOW)
        newest = [job.pk for job in listing.page(asked).jobs]
        found: list[str] = []
        before = ""
        while True:
            page = listing.page(asked, before=before, size=2, scan=3, is_oldest_first=True)
            found += [job.pk for job in page.jobs]
            if page.older is None:
                break
            before = page.older
        assert found == newest[::-1], text


def test_pages_follow_one_another_though_new_jobs_come_in_between(db: None) -> None:
    for number in range(1, 8):
        make(number)
    everything = query.parse("", NOW)
    first = listing.page(everything, size=3)
    make(99)
    assert first.older is not None
    second = listing.page(everything, before=first.older, size=3)
    third = listing.page(everything, before=second.older or "", size=3)
    found = [int(job.pk[-4:], 16) for page in (first, second, third) for job in page.jobs]
    assert found == [7, 6, 5, 4, 3, 2, 1]
    assert third.older is None


@pytest.mark.parametrize("before", ["nonsense", "1e99_x", "_", "nan_x"])
def test_a_damaged_page_link_is_a_400_and_no_crash(browser: Browser, some: list[Job], before: str) -> None:
    assert browser("viewer").get("/jobs", {"before": before}).status_code == 400


def test_the_list_counts_states_keeps_the_filter_and_shows_mistakes(browser: Browser, some: list[Job]) -> None:
    client = browser("viewer")
    page = client.get("/jobs", {"q": "model:digits", "state": "failed"}).content.decode()
    assert page.count("/jobs/00000000") == 1
    assert "q=model%3Adigits&amp;state=queued" in page
    wrong = client.get("/jobs", {"q": "colour:red"})
    assert wrong.status_code == 400
    assert b"Unknown filter colour:" in wrong.content


def test_the_list_can_begin_with_the_oldest_and_with_the_longest_wait(browser: Browser, some: list[Job]) -> None:
    make(7, state="queued", worker="", phases={})
    client = browser("viewer")

    def listed(url: str) -> list[int]:
        return [
            int(found, 16)
            for found in re.findall(r'href="/jobs/[0-9-]+([0-9a-f]{2})"', client.get(url).content.decode())
        ]

    assert listed("/jobs?sort=oldest&q=model:digits") == [1, 2, 4, 5, 6, 7]
    page = client.get("/jobs?q=model:digits").content.decode()
    assert 'aria-sort="descending"><a class="sort" href="?q=model%3Adigits&amp;sort=oldest"' in page
    assert "?q=model%3Adigits&amp;state=queued&amp;sort=oldest" in page
    assert listed("/jobs?state=queued&sort=oldest") == [4, 7]
    assert client.get("/jobs/-/longest-waiting/digits").headers["Location"] == f"/jobs/{some[3].pk}"
    assert client.get("/jobs/-/longest-waiting/slow").headers["Location"] == "/jobs?q=model%3Aslow&state=queued"


def test_a_filter_that_finds_nothing_says_what_would(browser: Browser, some: list[Job]) -> None:
    named = hints.of("model:digits created:<1h", "failed", NOW)
    assert [(hint.jobs, hint.left_out, hint.instead) for hint in named] == [
        ("1", "created:<1h", "created:today"),
        ("1", "created:<1h", "created:<7d"),
        ("1", "created:<1h", ""),
    ]
    page = browser("viewer").get("/jobs", {"q": "model:slow", "state": "failed"}).content.decode()
    assert '<a href="?q=model%3Aslow">1 job</a> without <code>state:failed</code>' in page
    assert '<a href="?q=&amp;state=failed">1 job</a> without <code>model:slow</code>' in page


def test_failures_that_are_alike_are_one_line_with_a_way_to_each_of_them(
    browser: Browser, some: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20, 25):
        message = f"Shape [{number}, 28] does not fit."
        group = groups.fingerprint("model_error", message)
        make(number, state="failed", error_code="model_error", error_message=message, error_group=group)
    client = browser("viewer")
    page = client.get("/jobs", {"group": "error"}).content.decode()
    assert page.count('data-label="Error"') == 2
    line = page.split('data-label="Error"')[1]
    assert "Shape [24, 28] does not fit." in line
    assert 'data-label="Jobs" class="num">5<' in line
    href = html.unescape(line.split('href="')[1].split('"')[0])
    assert client.get(f"/jobs{href}").content.decode().count('class="row-link mono nowrap"') == 5
    over_rest = client.get("/api/jobs/-/errors").json()
    assert [(one["count"], one["code"]) for one in over_rest["groups"]] == [(5, "model_error"), (1, "model_error")]
    assert client.get("/api/jobs", {"q": over_rest["groups"][0]["q"], "size": 9}).json()["older"] is None
    assert client.get("/jobs", {"group": "error", "q": "created:<1s"}).content.count(b"No such job has an error") == 1
    assert client.get("/jobs", {"group": "error", "q": "colour:red"}).status_code == 400
    monkeypatch.setattr(groups, "GROUPED", 3)
    cut = groups.by_error(query.parse("state:failed", NOW))
    assert [group.count for group in cut.groups] == [3]
    assert cut.searched_to == Job.objects.get(pk__endswith="16").created_at


def test_what_jobs_carry_is_shown_as_text(browser: Browser, db: None) -> None:
    job = make(1, state="failed", error_code="model_error", error_message="<img src=x onerror=alert(1)>")
    client = browser("viewer")
    for url in ("/jobs", f"/jobs/{job.pk}"):
        assert b"<img src=x" not in client.get(url).content


def test_a_job_names_its_account_and_the_key_it_was_submitted_with(browser: Browser, db: None) -> None:
    Account.objects.create(id="shop", name="Blue Ltd", created_by="test")
    for kid, name in (("shop", "first key"), ("key1", "till 7")):
        ApiKey.objects.create(id=kid, account_id="shop", name=name, created_by="test")
    job, orphan = make(1), make(2, account_id="gone", key_id="lost")
    client = browser("viewer")
    page, strange = (client.get(f"/jobs/{one.pk}").content.decode() for one in (job, orphan))
    assert "account Blue Ltd, priority" in page
    assert '<a href="/keys/key1">till 7</a>' in page
    assert "account gone, priority" in strange
    assert '<dt>Key</dt><dd><span class="mono">lost</span></dd>' in strange
    listed = client.get("/jobs").content.decode()
    for account, name in (("Blue Ltd", "till 7"), ("gone", "lost")):
        assert f'<div class="clip">{account}</div><div class="small muted clip">{name}</div>' in listed
    for text in (page, listed):
        assert "first key" not in text, "an account's id is that of its first key"
    found = client.get("/jobs?q=key:key1").content.decode()
    assert job.pk in found
    assert orphan.pk not in found


def test_a_job_s_page_shows_its_tags_and_leads_to_the_jobs_that_share_one(browser: Browser, db: None) -> None:
    viewer, job = browser("viewer"), make(1, tags=["run/7", "nightly"])
    other = make(2, tags=["run/8"])
    shown = viewer.get(f"/jobs/{job.pk}").content.decode()
    assert '<a class="mono" href="/jobs?q=tag:run%2F7">run/7</a>' in shown
    found = viewer.get("/jobs?q=tag:run%2F7").content.decode()
    assert (job.pk in found, other.pk in found) == (True, False)


def test_a_job_s_page_tells_its_story(browser: Browser, db: None) -> None:
    job = make(1, attempt=2, phases={"claimed": 500.0, "loading": 510.0, "started": 900.0, "done": 1000.0})

    def event(seq: int, ms: int, state: str, attempt: int, **more: Any) -> None:
        at = job.created_at + timedelta(milliseconds=ms)
        JobEvent.objects.create(seq=seq, job_id=job.pk, at=at, state=state, attempt=attempt, **more)

    event(3, 0, "queued", 0)
    event(4, 100, "running", 1, worker="w1", gpu="g1", token=5)
    event(5, 300, "queued", 1, error_code="runner_crashed", error_message="It died.")
    event(6, 500, "running", 2, worker="w2", gpu="g1", token=9)
    event(7, 1000, "succeeded", 2, phases=job.phases)
    steps = timeline.steps(job, list(JobEvent.objects.all()))
    assert [(step.what, step.at) for step in steps] == [
        ("Accepted and queued", "+0.0 ms"),
        ("Attempt 1 on w1", "+100.0 ms"),
        ("Attempt 1 given up; queued again", "+300.0 ms"),
        ("Attempt 2 on w2", "+500.0 ms"),
        ("Model load began", "+510.0 ms"),
        ("Run began", "+900.0 ms"),
        ("Succeeded", "+1.00 s"),
    ]
    assert "token 9" in steps[3].more
    page = browser("viewer").get(f"/jobs/{job.pk}").content.decode()
    assert "runner_crashed: It died." in page


def test_a_claim_that_was_overwritten_before_it_was_read_is_told_from_the_end(db: None) -> None:
    job = make(1, attempt=1, phases={"claimed": 500.0, "started": 900.0, "done": 1000.0})
    end = JobEvent(
        seq=9,
        job_id=job.pk,
        at=job.created_at + timedelta(seconds=1),
        state="cancelled",
        attempt=1,
        worker="w1",
        gpu="g1",
        token=5,
        phases=job.phases,
        is_cancel_asked=True,
    )
    assert [(step.what, step.at) for step in timeline.steps(job, [end])] == [
        ("Accepted and queued", "+0.0 ms"),
        ("Attempt 1 on w1", "+500.0 ms"),
        ("Run began", "+900.0 ms"),
        ("Cancellation asked for", "+1.00 s"),
        ("Cancelled", "+1.00 s"),
    ]


def test_a_story_stands_in_order_of_time_though_the_claim_was_written_after_the_run_began(db: None) -> None:
    phases = {"pulled": 2.0, "started": 3.0, "claimed": 4.5, "computed": 5.0, "done": 5.5}
    job = make(1, attempt=1, phases=phases)
    claim, end = (
        JobEvent(
            seq=seq,
            job_id=job.pk,
            at=job.created_at + timedelta(milliseconds=ms),
            state=state,
            attempt=1,
            worker="w1",
            gpu="g1",
            token=5,
            phases=known,
        )
        for seq, ms, state, known in ((8, 4.8, "running", {"claimed": 4.5}), (9, 5.2, "succeeded", phases))
    )
    assert [(step.what, step.at) for step in timeline.steps(job, [claim, end])] == [
        ("Accepted and queued", "+0.0 ms"),
        ("Attempt 1 on w1", "+2.0 ms"),
        ("Run began", "+3.0 ms"),
        ("Run ended", "+5.0 ms"),
        ("Succeeded", "+5.5 ms"),
    ]


def retried() -> Record:
    """Two attempts that took the runner down, one that was lost, and one that ran."""
    job = accepted(1)
    record = None
    died = ErrorInfo(code="runner_crashed", message="The process died.")
    at = job.created_at
    for _ in range(2):
        ran = [("run", at + 14), ("runner", at + 24), ("commit", at + 27)]
        stages = [("other-model", at + 1), ("batch", at + 14), *ran]
        record = life.claimed(job, record, worker="w1", gpu="g1", token=5, now=at + 14, stages=stages[:3])
        record = life.requeued(record, died, now=at + 27, stages=stages, penalty=Penalty.STRIKE, retry_at=at + 28)
        at += 28
    record = life.claimed(job, record, worker="w2", gpu="g2", token=6, now=at + 1, stages=[("run", at + 1)])
    stages = [("load", at + 20), ("run", at + 25), ("commit", at + 26)]
    record = life.claimed(job, record, worker="w3", gpu="g3", token=7, now=at + 25, stages=stages[:2])
    return life.succeeded(record, now=at + 27, stages=stages, batch=1, size_bytes=1)


def test_page_list_header_and_api_tell_the_same_parts_of_each_attempt(browser: Browser, db: None) -> None:
    record = retried()
    store.write([JobMessage(record.created_at, 9, record)])
    job = Job.objects.get(pk=record.id)
    said = [
        ("Attempt 1", "runner_crashed, a strike", {"queue": 1e3, "other-model": 13e3, "run": 1e4, "runner": 3e3}),
        (
            "Attempt 2",
            "runner_crashed, a strike",
            {"retry": 1e3, "queue": 1e3, "other-model": 13e3, "run": 1e4, "runner": 3e3},
        ),
        ("Attempt 3", "lost with its worker", {"retry": 1e3, "queue": 1e3, "unknown": 19e3}),
        ("Attempt 4", "succeeded", {"load": 5e3, "run": 1e3, "commit": 1e3}),
    ]
    lines = timeline.lines(job)
    assert [(one.what, one.how, {part.name: part.ms for part in one.parts}) for one in lines] == said
    assert sum(part.percent for one in lines for part in one.parts) == pytest.approx(100, abs=0.05)
    described = descriptions.attempts(record)
    reported = [{part["part"]: part["ms"] for part in one["parts"] if part["ms"]} for one in described]
    assert reported == [parts for _, _, parts in said]
    assert [(one["ended"], one["counts_as"]) for one in described] == [
        ("runner_crashed", "strike"),
        ("runner_crashed", "strike"),
        ("lost", None),
        ("succeeded", None),
    ]
    header = [part.split(";") for part in job_headers(record)["Server-Timing"].split(", ")]
    timed: list[dict[str, float]] = [{}, {}, {}, {}]
    for name, lasted, attempt in header:
        if ms := float(lasted.removeprefix("dur=")):
            timed[int(attempt.removeprefix('desc="attempt ').removesuffix('"')) - 1][name] = ms
    assert timed == reported
    page = browser("viewer").get(f"/jobs/{job.pk}").content.decode()
    assert 'aria-label="Attempt 3: retry 1.00 s, queue 1.00 s, unknown 19.00 s"' in page
    assert "lost with its worker" in page
    assert standing.spent(job) == times.split(record) == (42_000.0, 21_000.0, 83_000.0)
    listed = browser("viewer").get("/jobs").content.decode()
    assert re.search(r'data-label="Waited"[^>]*>42.00 s<.*data-label="Ran"[^>]*>21.00 s<', listed, re.DOTALL)


def test_attempts_that_a_record_no_longer_keeps_are_counted(browser: Browser, db: None) -> None:
    record = retried()
    newest = record.attempts[1:]
    store.write([JobMessage(record.created_at, 9, replace(record, attempts=newest))])
    page = browser("viewer").get(f"/jobs/{record.id}").content.decode()
    assert "1 older attempt not kept" in page
    assert 'aria-label="Attempt 1:' not in page


def test_a_job_whose_times_are_not_known_has_no_lines(db: None) -> None:
    assert timeline.lines(Job(phases={}, parts={}, ended_attempts=[])) == []


def test_cancelling_posts_once_is_audited_and_refuses_what_has_ended(
    browser: Browser, admin: Actor, some: list[Job]
) -> None:
    running = some[2]
    assert submit(browser("operator"), f"/jobs/{running.pk}/cancel", {"reason": "stuck"}).status_code == 302
    assert OutboxEntry.objects.get(kind="cancel").key == running.pk
    assert b"Cancellation is asked for" in browser("viewer").get(f"/jobs/{running.pk}").content
    with pytest.raises(Conflict):
        acts.cancel(admin, some[0].pk)
    assert submit(browser("operator"), "/jobs/unknown/cancel").status_code == 404


def test_nats_is_asked_for_a_job_without_a_row_before_the_act_writes(
    db: None, admin: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = len(connection.atomic_blocks)
    depths: list[int] = []
    find = fresh.find

    def noting(job_id: str) -> Job | None:
        depths.append(len(connection.atomic_blocks) - outside)
        return find(job_id)

    monkeypatch.setattr(fresh, "find", noting)
    with pytest.raises(NotFound):
        acts.cancel(admin, "00000000-0000-4000-8000-000000000001")
    assert depths == [0]
    assert AuditEntry.objects.get().result == AuditEntry.FAILED


def test_rows_to_forget_are_found_through_an_index_before_anything_is_locked(some: list[Job]) -> None:
    with CaptureQueriesContext(connection) as received:
        assert retention.delete_oldest(NOW, 500) == 4
    reported = [query["sql"] for query in received.captured_queries]
    locked = next(n for n, sql in enumerate(reported) if sql.startswith(("SAVEPOINT", "BEGIN")))
    chosen = [sql for sql in reported if sql.startswith("SELECT") and "created_at" in sql]
    assert chosen == reported[:locked]
    for sql in chosen if connection.vendor == "sqlite" else ():  # so few rows PostgreSQL reads as they lie
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            assert "job_by_state" in str(cursor.fetchall())


def test_what_no_index_serves_is_looked_for_a_bounded_number_of_rows_at_a_time(
    db: None, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SCAN", 4)
    for number in range(1, 16):
        state = "failed" if number % 3 == 0 else "succeeded"
        make(number, state=state, version=2 if number in {2, 3} else 1)
    asked = query.parse("version:2 state:failed,succeeded", NOW)
    found, before, looks = [], "", 0
    while True:
        page = listing.page(asked, before=before, size=3)
        found += [int(job.pk[-4:], 16) for job in page.jobs]
        looks += 1
        if page.older is None:
            break
        assert page.searched_to is not None
        before = page.older
    assert found == [3, 2]
    assert looks > 2
    failed = listing.page(query.parse("model:digits account:shop state:failed", NOW))
    assert [int(job.pk[-4:], 16) for job in failed.jobs] == [15, 12, 9, 6]  # few fail: they are looked through
    shown = browser("viewer").get("/jobs", {"q": "version:2"}).content.decode()
    assert "Search further back" in shown


def test_counts_say_where_they_stopped(db: None, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "COUNTED", 3)
    for number in range(1, 7):
        make(number, state="failed" if number == 1 else "succeeded")
    counted = listing.counts(query.parse("", NOW))
    assert (counted["all"], counted["succeeded"], counted["failed"]) == ("4+", "3+", "1")
    counted = listing.counts(query.parse("model:digits", NOW))
    assert (counted["all"], counted["succeeded"], counted["failed"]) == ("3+", "3+", "0+")
    counted = listing.counts(query.parse("id:00000000-0000-4000-8000-000000000001", NOW))
    assert (counted["all"], counted["failed"], counted["succeeded"]) == ("1", "1", "0")
    assert '<span class="count">3+</span>' in browser("viewer").get("/jobs").content.decode()


FILTERS = (
    "",
    "state:failed",
    "state:queued,running",
    "model:digits",
    "account:shop",
    "key:key1",
    "worker:w1,w2",
    "gpu:g1",
    "error:model_error",
    "error:a,b model:digits",
    "tag:t1",
    "tag:t1 tag:t2 created:<2h",
    "tag:t1 state:failed",
    "token:7",
    "version:2",
    "priority:hi",
    "took:>5s",
    "created:<2h",
    "created:>2h version:2",
    "id:00000000-0000-4000-8000-000000000003",
    "id:00000000-0000",
    "id:00",
    "-state:succeeded",
    "-model:digits -tag:t1",
    "error~memory",
    'error:"out of memory" model:m1',
    "group:123456789abc",
    "created:2026-11-01..2026-11-30 state:failed",
    "0000000a",
    "account:shop -key:key1",
    "model:digits took:>5s state:failed worker:w1",
    "no_such_model",
)


def test_every_search_is_served_by_an_index_and_bounded(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the table holds: no statement reads all of it, nor sorts more than what an index and a bound leave."""
    monkeypatch.setattr(listing, "SCAN", 500)
    monkeypatch.setattr(listing, "COUNTED", 500)
    jobs = Job.objects.bulk_create(_many(3000))
    JobTag.objects.bulk_create(tags_of(jobs))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
        if connection.vendor == "postgresql":  # of three thousand rows it would rather read all
            cursor.execute("SET LOCAL enable_seqscan = off")
    for text in FILTERS:
        with CaptureQueriesContext(connection) as asked:
            filter_ = query.parse(text, NOW)
            listing.counts(filter_)
            page = listing.page(filter_, size=5)
            listing.page(filter_, before=page.older or "", size=5)
            listing.page(filter_, size=5, is_oldest_first=True)
        assert len(asked) <= 36, text
        for entry in asked.captured_queries:
            if "jobs_job" not in entry["sql"]:
                continue  # names of accounts and keys, of which there are few
            with connection.cursor() as cursor:
                prefix = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
                cursor.execute(f"{prefix} {entry['sql']}")
                plan = "\n".join(str(row) for row in cursor.fetchall())
            assert "Seq Scan" not in plan, f"{entry['sql']}\n{plan}"
            # Only in the order of the list, and then no further than a page; or the few with an error, up to a bound.
            if "SCAN jobs_job" in plan and "INDEX job_with_error" not in plan:
                assert re.search(r"SCAN jobs_job USING (COVERING )?INDEX job_newest", plan), plan
                assert "LIMIT" in entry["sql"], entry["sql"]
            # Jobs of one instant are put in order as they come ("LAST TERM").
            assert "TEMP B-TREE FOR ORDER BY" not in plan or re.search("id|0000", text), f"{entry['sql']}\n{plan}"


def _many(count: int) -> list[Job]:
    """Rows as a service has them: nearly all succeeded."""
    return [
        Job(
            id=f"{number:08x}-0000-4000-8000-000000000000",
            model=f"m{number % 3}",
            version=1,
            state="failed" if number % 50 == 0 else "succeeded",
            account_id=f"key{number % 5}",
            error_code="model_error" if number % 50 == 0 else "",
            worker=f"w{number % 2}",
            gpu="g1",
            created_at=START + timedelta(seconds=number),
            updated_at=START,
            phases={"done": 20.0},
            tags=["t1", "t2"] if number % 2 else [],
        )
        for number in range(count)
    ]


async def test_old_rows_are_deleted_oldest_first_and_a_few_at_a_time(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "CHUNK", 4)
    monkeypatch.setattr(retention, "PAUSE_S", 0.0)
    left: list[list[int]] = []
    delete = retention.delete_oldest

    def noting(before: datetime, limit: int) -> int:
        done = delete(before, limit)
        left.append(sorted(int(pk[-4:], 16) for pk in Job.objects.values_list("pk", flat=True)))
        return done

    monkeypatch.setattr(retention, "delete_oldest", noting)

    def fill() -> None:
        for number in range(1, 13):
            make(number, state="running" if number == 2 else "succeeded")
            pk = f"00000000-0000-4000-8000-{number:012x}"
            JobEvent.objects.create(seq=number, job_id=pk, at=START, state="running")

    await in_thread(fill)
    assert await retention.RowRetention(days=0, rows=0).tidy() == 0
    assert await retention.RowRetention(days=36_500, rows=12).tidy() == 0
    assert await retention.RowRetention(days=36_500, rows=5).tidy() == 6
    # An open job stays, however old; the newest five stay.
    assert left[-2:] == [[2, 6, 7, 8, 9, 10, 11, 12], [2, 8, 9, 10, 11, 12]]
    events = await in_thread(lambda: list(JobEvent.objects.values_list("seq", flat=True)))
    assert events == left[-1]
    assert await retention.RowRetention(days=0.01, rows=0).tidy() == 5
    assert await in_thread(lambda: Job.objects.get().state) == "running"


async def test_settled_postings_and_ended_logins_go_and_what_is_compared_stays(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "CHUNK", 2)
    monkeypatch.setattr(retention, "PAUSE_S", 0.0)
    now = timezone.now()
    old, recent = now - timedelta(days=40), now - timedelta(days=20)

    def fill() -> None:
        for body, at in (("first", old), ("second", old), ("newest", old)):
            OutboxEntry.objects.create(kind="document", bucket="keys", key="k", body=body, published_at=at)
        OutboxEntry.objects.create(kind="document", bucket="keys", key="other", published_at=old)
        OutboxEntry.objects.create(kind="cancel", key="job", body="waits")
        for settled_at in (old, old, recent):
            OutboxEntry.objects.create(kind="cancel", key="job", body=f"{settled_at}", published_at=settled_at)
        for key, ends in (("ended", old), ("lives", now + timedelta(hours=1))):
            Session.objects.create(session_key=key, session_data="", expire_date=ends)

    await in_thread(fill)
    assert await retention.RowRetention(days=0, rows=0).tidy_others() == 1  # the login, whatever the days
    assert await retention.RowRetention(days=30, rows=0).tidy_others() == 4
    assert await retention.RowRetention(days=30, rows=0).tidy_others() == 0
    left = await in_thread(lambda: list(OutboxEntry.objects.values_list("body", flat=True)))
    assert left == ["newest", "", "waits", f"{recent}"]
    assert await in_thread(lambda: Session.objects.get().pk) == "lives"


def test_the_end_of_the_list_says_which_jobs_are_no_longer_there(some: list[Job], browser: Browser) -> None:
    page = browser("viewer").get("/jobs").content.decode()
    assert "older than 30 days or not among the newest 1 000 000 are no longer listed" in page
    assert retention.in_words(days=0, rows=0) == ""


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_job_an_operator_cancelled_says_so_by_name_and_not_as_an_error(browser: Browser, state: str) -> None:
    job = make(1, state=state)
    submit(browser("operator"), f"/jobs/{job.pk}/cancel", {"reason": "wrong input"})
    Job.objects.update(state="cancelled", error_code="cancelled", error_message="Cancelled by an operator.")
    page = browser("viewer").get(f"/jobs/{job.pk}").content.decode()
    assert "Cancelled by an operator. Asked for by operator, “wrong input”" in page
    assert "message-error" not in page
    assert "message-neutral" in page


def test_a_job_its_owner_cancelled_names_no_operator_who_asked_later(browser: Browser) -> None:
    job = make(1, state="running")
    submit(browser("operator"), f"/jobs/{job.pk}/cancel", {"reason": "too late"})
    Job.objects.update(state="cancelled", error_code="cancelled", error_message="Cancelled by its owner.")
    page = browser("viewer").get(f"/jobs/{job.pk}").content.decode()
    assert "Cancelled by its owner." in page
    assert "Asked for by" not in page
    assert "message-error" not in page
