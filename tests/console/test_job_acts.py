"""An operator's acts on one job: on its page, over REST, and done on NATS by the outbox's publisher."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from msgspec.structs import replace

from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.config import ConsoleSettings
from console.jobs import acts, fold, fresh
from console.jobs.fold import JobMessage
from console.outbox.models import OutboxEntry
from console.outbox.publisher import Publisher
from console.projector import store
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.jobs import deadletters, deletion, life
from signalbox.jobs.records import Records
from signalbox.program.errors import Conflict, InvalidRequest
from signalbox.program.settings import Wire
from signalbox.wire import messages
from signalbox.wire.messages import State
from signalbox.wire.modeldocs import Limits, Model
from signalbox.wire.names import Bucket
from tests.console.conftest import in_thread, submit
from tests.console.test_jobs import make
from tests.console.test_projector import accept, accepted, run_job
from tests.integration.signalbox.test_core_deadletters import dead, enable
from tests.rigs.submit import floats

pytestmark = pytest.mark.django_db(transaction=True)
Browse = Callable[..., Any]


@pytest.fixture
async def page(
    cast: dict[str, User], console: ConsoleSettings, settings: Any, wire: Wire, bus: Bus
) -> AsyncIterator[Browse]:
    """Posts forms as an operator, each in a thread of its own, as a server does; with a publisher at work."""
    settings.CONSOLE = replace(console, nats_url=wire.nats_url)
    publishing = asyncio.create_task(Publisher(bus, 60).run())
    client = Client(enforce_csrf_checks=True)
    await in_thread(client.force_login, cast["operator"])

    def post(path: str, form: dict[str, Any] | None = None) -> Any:
        try:
            return submit(client, path, form, follow=True)
        finally:
            connections.close_all()

    try:
        yield lambda *given: asyncio.to_thread(post, *given)
    finally:
        publishing.cancel()
        await asyncio.wait([publishing])


def waiting(number: int, **more: Any) -> messages.Job:
    """A job that was accepted just now."""
    now = time.time()
    return accepted(number, created_at=now, deadline_at=now + 900, **more)


async def project(job: messages.Job, record: messages.Record | None = None) -> None:
    """Its row."""
    told = JobMessage.accepted(job, job.created_at)
    rows = [told] if record is None else [told, JobMessage(job.created_at, 9, record)]
    await in_thread(store.write, rows)


async def test_a_waiting_job_is_raised_and_its_deadline_moved(page: Browse, bus: Bus) -> None:
    job = waiting(1)
    await accept(bus, job)
    await project(job)
    answer = await page(f"/jobs/{job.id}/change", {"priority": "hi", "minutes": "60", "reason": "asked for"})
    assert "The job is changed." in answer.content.decode()
    found = await Records(bus).find(job.id)
    assert found is not None
    assert (found.record.priority, round(found.record.deadline_at - time.time(), -2)) == ("hi", 3600)
    assert "undo" in answer.content.decode().lower()
    put_back = {"deadline_at": datetime.fromtimestamp(job.deadline_at, UTC).isoformat()}
    assert (await page(f"/jobs/{job.id}/change", put_back)).status_code == 200
    found = await Records(bus).find(job.id)
    assert found is not None
    assert (found.record.priority, round(found.record.deadline_at)) == ("hi", round(job.deadline_at))
    assert (await page(f"/jobs/{job.id}/change", {"deadline_at": "soon"})).status_code == 400
    entry = await in_thread(lambda: AuditEntry.objects.order_by("pk")[0])
    assert (entry.act, entry.result, entry.reason) == ("jobs.change", "done", "asked for")
    assert (entry.before["priority"], entry.after["priority"]) == ("mid", "hi")


async def test_a_full_queue_takes_no_raised_job_and_the_answer_says_so(page: Browse, bus: Bus) -> None:
    await put(bus, Bucket.MODELS, "digits", Model(name="digits", limits=Limits(max_queue=1)))
    job = waiting(1)
    await accept(bus, job)
    await project(job)
    answer = await page(f"/jobs/{job.id}/change", {"priority": "hi"})
    assert answer.status_code == 409
    assert "is full" in answer.content.decode()
    assert (await Records(bus).find(job.id)).record.priority == "mid"  # type: ignore[union-attr]


async def test_what_changed_since_the_row_was_written_is_refused_by_nats_in_words(page: Browse, bus: Bus) -> None:
    job = waiting(1)
    await accept(bus, job)
    await project(job)
    await run_job(bus, job)
    answer = await page(f"/jobs/{job.id}/change", {"priority": "hi"})
    assert answer.status_code == 409
    assert "already ended" in answer.content.decode()


async def test_an_ended_job_is_deleted_whatever_is_left_of_it(page: Browse, bus: Bus) -> None:
    kept, gone = waiting(1), waiting(2)
    await accept(bus, kept)
    await project(kept, await run_job(bus, kept))
    failed = life.failed(life.first_record(gone, State.QUEUED), messages.ErrorInfo(code="x", message="X."), now=1.0)
    await project(gone, failed)  # NATS has nothing of it any more
    for job in (kept, gone):
        assert "is deleted" in (await page(f"/jobs/{job.id}/delete", {"reason": "asked for"})).content.decode()
        found = await Records(bus).find(job.id)
        assert found is not None
        assert found.record.deleted_at
        assert (found.record.account_id, found.record.state) == (
            job.account_id,
            State.SUCCEEDED if job is kept else State.FAILED,
        )
        assert "owner" not in deletion.refusal(found.record).public_message, "it was not the owner"


async def test_a_job_that_was_given_up_runs_again_and_the_page_leads_on(page: Browse, bus: Bus) -> None:
    await enable(bus)
    old = await dead(bus, floats(1.0))
    await in_thread(make, 1, id=old.id, model="half", state="failed", account_id="shop")
    answer = await page(f"/jobs/{old.id}/retry")
    first = deadletters.redriven_id(await deadletters.find(bus, old.id))
    assert answer.redirect_chain[-1][0] == f"/jobs/{first}"
    again = await page(f"/jobs/{old.id}/retry")
    assert again.redirect_chain[-1][0] == f"/jobs/{first}", "a second click makes no second job"
    once_more = await page(f"/jobs/{old.id}/retry", {"after": first})
    assert once_more.redirect_chain[-1][0] not in {f"/jobs/{first}", f"/jobs/{old.id}"}
    results = await in_thread(lambda: list(AuditEntry.objects.filter(target=old.id).values_list("act", "result")))
    assert sorted(results) == [("jobs.redrive", "done")] * 3


async def test_a_job_whose_row_is_late_is_run_again_and_deleted_as_nats_has_it(
    page: Browse, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enable(bus)
    old = await dead(bus, floats(1.0))
    await in_thread(make, 1, id=old.id, model="half", state="running", account_id="shop")
    error = messages.ErrorInfo(code="x", message="X.")
    ended = life.failed(life.first_record(old, State.QUEUED), error, now=old.created_at + 1)
    monkeypatch.setattr(fresh, "find", lambda _id: fresh._unsaved(fold.row_of_record(ended, 1, time.time())))
    answer = await page(f"/jobs/{old.id}/retry")
    again = deadletters.redriven_id(await deadletters.find(bus, old.id))
    assert answer.redirect_chain[-1][0] == f"/jobs/{again}"
    assert "is deleted" in (await page(f"/jobs/{old.id}/delete", {"reason": "asked for"})).content.decode()


async def test_a_job_without_a_dead_letter_says_since_when_its_input_is_gone(page: Browse, bus: Bus) -> None:
    at = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
    job = await in_thread(make, 1, state="failed", error_code="cancelled", finished_at=at)
    answer = await page(f"/jobs/{job.pk}/retry")
    assert answer.status_code == 409
    assert "input was not kept" in answer.content.decode()
    assert "2026-11-20 08:00:00 UTC" in answer.content.decode()
    running = await in_thread(make, 2, state="running")
    assert "has not ended" in (await page(f"/jobs/{running.pk}/retry")).content.decode()
    results = await in_thread(lambda: list(AuditEntry.objects.values_list("target", "result")))
    assert sorted(results) == [(job.pk, "failed"), (running.pk, "failed")]


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = {
    "nothing": ({}, {}, InvalidRequest, "what is to be changed"),
    "lower": ({}, {"priority": "lo"}, Conflict, "not lowered"),
    "begun before": ({"attempt": 1}, {"priority": "hi"}, Conflict, "had the job already"),
    "running": ({"state": "running"}, {"priority": "hi"}, Conflict, "has the job already"),
    "ended": ({"state": "expired"}, {"priority": "hi"}, Conflict, "already ended"),
    "past": ({}, {"deadline_at": datetime(2026, 1, 1, tzinfo=UTC)}, InvalidRequest, "is past"),
    "too far": ({}, {"deadline_at": datetime(2126, 1, 1, tzinfo=UTC)}, InvalidRequest, "at most 7 days"),
}


@pytest.mark.parametrize("why", WRONG)
def test_a_change_that_cannot_be_is_refused_at_once(admin: Actor, why: str) -> None:
    state, wanted, error, said = WRONG[why]
    job = make(1, **({"state": "queued", "priority": "mid"} | state))
    with pytest.raises(error, match=said):
        acts.change(admin, job.pk, **wanted)
    assert AuditEntry.objects.get().result == AuditEntry.FAILED
    assert not OutboxEntry.objects.exists()


def test_an_open_job_is_not_deleted(admin: Actor) -> None:
    with pytest.raises(Conflict, match="cancel it first"):
        acts.delete(admin, make(1, state="queued").pk)


def test_rest_says_what_waits_for_nats(call: Callable[[str], Any], admin: Actor) -> None:
    job = make(1, state="queued", created_at=datetime.now(UTC))
    at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    answer = call("operator")("post", f"jobs/{job.pk}/change", {"deadline_at": at, "reason": "later"})
    assert (answer.status_code, answer.json()) == (202, {"job": job.pk, "is_done": False, "reason": ""})
    ended = make(2, state="failed")
    assert call("operator")("post", f"jobs/{ended.pk}/delete", {}).status_code == 202
    assert call("viewer")("post", f"jobs/{ended.pk}/delete", {}).status_code == 403
    assert call("operator")("post", f"jobs/{job.pk}/change", {"priority": "urgent"}).status_code == 400


def test_the_page_of_a_job_offers_what_can_be_done_to_it(browser: Callable[[str], Client], db: None) -> None:
    offered = {
        "queued": {"cancel", "change"},
        "running": {"cancel"},
        "failed": {"retry", "delete"},
        "succeeded": {"delete"},
    }
    for number, (state, wanted) in enumerate(offered.items(), start=1):
        job = make(number, state=state)
        pages = {role: browser(role).get(f"/jobs/{job.pk}").content.decode() for role in ("operator", "viewer")}
        found = {role: set(re.findall(rf'action="/jobs/{job.pk}/(\w+)"', page)) for role, page in pages.items()}
        assert found == {"operator": wanted, "viewer": set()}
