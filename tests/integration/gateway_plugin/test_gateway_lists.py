"""Lists of jobs at the gateway: who may ask, how a page is shown, what is refused here; and tags of submissions.

The console is a script that answers as it is told; what the real one lists is in tests/console/test_job_lists.py.
"""

import asyncio
import contextlib

import pytest

from gateway_plugin.service import console as service
from signalbox.bus.client import Message
from signalbox.jobs.records import Records
from signalbox.wire.asks import ConsoleAnswer, JobPage, JobQuery, ListedJob
from signalbox.wire.names import ask_console
from tests.integration.gateway_plugin.test_gateway_asks import console
from tests.rigs.gateway import Key, Rig, ScriptedWorker, key

BODY = {"model": "half", "input": {"x": [1.0]}}
LISTED = ListedJob(
    id="01976f00-0000-7000-8000-000000000001",
    model="half",
    version=1,
    state="failed",
    attempt=2,
    tags=("nightly",),
    created_at=1_795_928_400.0,
    finished_at=1_795_928_401.5,
    deadline_at=1_795_929_400.0,
    error_code="model_error",
    error_message="No such op.",
)
PAGE = JobPage(jobs=(LISTED,), cursor="1795928400.000000_", as_of=1_795_928_500.0, looked_until=1_795_928_400.0)


async def test_a_page_is_shown_with_the_address_of_the_next_one(front: Rig, mine: Key) -> None:
    async with console(front, ConsoleAnswer(status="ok", page=PAGE)) as asked:
        got = await front.call("GET", "/v1/jobs?state=failed,queued&tag=a&tag=b%2F1&limit=1", key=mine)
        head = await front.call("HEAD", "/v1/jobs", key=mine)
    assert (got.status, head.status) == (200, 200)
    one = await asked.get()
    assert (one.what, one.key_id, one.account) == ("jobs", mine.stored.id, mine.stored.account_id)
    assert one.jobs == JobQuery(states=("failed", "queued"), tags=("a", "b/1"), limit=1)
    assert got.doc == {
        "jobs": [
            {
                "id": LISTED.id,
                "model": "half",
                "version": 1,
                "state": "failed",
                "priority": "mid",
                "attempt": 2,
                "tags": ["nightly"],
                "created_at": "2026-11-29T05:00:00.000Z",
                "finished_at": "2026-11-29T05:00:01.500Z",
                "deadline_at": "2026-11-29T05:16:40.000Z",
                "not_before": None,
                "urls": {
                    name: f"/v1/jobs/{LISTED.id}{below}"
                    for name, below in (
                        ("self", ""),
                        ("result", "/result"),
                        ("events", "/events"),
                        ("cancel", "/cancel"),
                    )
                },
                "error": {"code": "model_error", "message": "No such op."},
            }
        ],
        "cursor": PAGE.cursor,
        "as_of": "2026-11-29T05:01:40.000Z",
        "looked_until": "2026-11-29T05:00:00.000Z",
    }
    link, _, relation = got.headers["Link"].partition("; ")
    assert relation == 'rel="next"'
    async with console(front, ConsoleAnswer(status="ok", page=JobPage(jobs=(), as_of=0.0))) as asked:
        last = await front.call("GET", link.strip("<>"), key=mine)
    assert (await asked.get()).jobs == JobQuery(
        states=("failed", "queued"), tags=("a", "b/1"), limit=1, cursor=PAGE.cursor
    )
    assert (last.doc["cursor"], last.doc["looked_until"], "Link" in last.headers) == (None, None, False)


async def test_without_a_console_lists_alone_are_503_and_jobs_go_on(front: Rig, mine: Key) -> None:
    away = await front.call("GET", "/v1/jobs", key=mine)
    assert (away.status, away.headers["Content-Type"]) == (503, "application/problem+json")
    assert "each can be read by its id" in away.doc["detail"]
    assert away.headers["Retry-After"]
    async with ScriptedWorker(front.bus, "half") as worker:
        got = await front.call("POST", "/v1/jobs", BODY, key=mine)
        await asyncio.wait_for(worker.finished.wait(), 60)
    assert (await front.call("GET", got.headers["Location"], key=mine)).doc["state"] == "succeeded"


async def test_a_list_needs_its_scope_and_known_parameters_before_anything_is_asked(front: Rig, mine: Key) -> None:
    submitter = key(scopes=("jobs:submit", "models:manage"))
    await front.publish(submitter)
    async with console(front) as asked:
        forbidden = await front.call("GET", "/v1/jobs?nonsense=1", key=submitter)
        assert (forbidden.status, forbidden.doc["scope"]) == (403, "jobs:read")
        unknown = await front.call("GET", "/v1/jobs?stat=failed", key=mine)
        assert (unknown.status, unknown.doc["field"], unknown.doc["nearest"]) == (400, "stat", "state")
    assert asked.empty()


@pytest.mark.parametrize(("status", "http"), [("invalid_request", 400), ("unauthorized", 401), ("unavailable", 503)])
async def test_what_the_console_refuses_is_refused_in_its_words(front: Rig, mine: Key, status: str, http: int) -> None:
    async with console(front, ConsoleAnswer(status=status, text="Not so.")):
        got = await front.call("GET", "/v1/jobs?cursor=x", key=mine)
    assert (got.status, got.doc["detail"]) == (http, "Not so.")


async def test_an_answer_of_another_release_is_503(front: Rig, mine: Key) -> None:
    async with console(front):  # it says ok, and has no page
        assert (await front.call("GET", "/v1/jobs", key=mine)).status == 503


async def test_lists_that_wait_are_bounded_for_each_account(
    front: Rig, mine: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LIST_S", 60.0)
    other = key()
    await front.publish(other)
    waiting: asyncio.Queue[Message] = asyncio.Queue()
    subscription = await front.bus.subscribe(ask_console(), waiting.put_nowait)
    share = service.LISTS // 2
    lists = [asyncio.create_task(front.call("GET", "/v1/jobs", key=mine)) for _ in range(share)]
    try:
        async with asyncio.timeout(60):
            for _ in range(share):
                await waiting.get()
            refused = await front.call("GET", "/v1/jobs", key=mine)
            assert (refused.status, refused.doc["bound"]) == (429, "lists")
            lists.append(asyncio.create_task(front.call("GET", "/v1/jobs", key=other)))
            await waiting.get()  # another account's goes on
    finally:
        for one in lists:
            one.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(lists)
        await subscription.close()


async def test_a_job_keeps_the_tags_it_was_submitted_with(front: Rig, mine: Key) -> None:
    tags = ["nightly", "run=7/eu-1:a.b"]
    got = await front.call("POST", "/v1/jobs", {**BODY, "tags": [*tags, "nightly"]}, key=mine)
    assert (got.status, got.doc["tags"]) == (202, tags)
    found = await Records(front.bus).find(got.doc["id"])
    assert found is not None
    assert found.record.tags == tuple(tags)
    async with ScriptedWorker(front.bus, "half") as worker:
        await asyncio.wait_for(worker.finished.wait(), 60)
    done = await front.call("GET", got.headers["Location"], key=mine)
    assert (done.doc["state"], done.doc["tags"]) == ("succeeded", tags)


async def test_tags_that_cannot_be_are_refused_before_anything_is_queued(front: Rig, mine: Key) -> None:
    many = await front.call("POST", "/v1/jobs", {**BODY, "tags": list("abcdefghi")}, key=mine)
    assert (many.status, many.doc["field"], many.doc["limit"]) == (400, "tags", 8)
    bad = await front.call("POST", "/v1/jobs", {**BODY, "tags": ["a b"]}, key=mine)
    assert (bad.status, bad.doc["field"]) == (400, "tags")
    assert await front.queued() == 0
