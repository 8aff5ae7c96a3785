"""Acts on many jobs: frozen, shown, run in the background, stopped, and told job by job."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.accounts.models import User
from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.jobs.fold import JobMessage
from console.jobs.models import Job
from console.operators import services as operators
from console.projector import store
from console.selections import retention, services
from console.selections.models import Selection, SelectionItem
from console.selections.runner import Item, SelectionRunner
from signalbox.bus.client import Bus
from signalbox.jobs import deadletters, life
from signalbox.jobs.cancel import OWNER, cancel
from signalbox.jobs.records import Records
from signalbox.program.errors import Conflict, Forbidden, InvalidRequest, LimitExceeded, NotFound, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire import jobids, messages
from tests import depth
from tests.console.conftest import in_thread, submit
from tests.console.test_jobs import make
from tests.console.test_projector import accept, accepted, run_job, until
from tests.integration.signalbox.test_core_deadletters import dead, enable
from tests.rigs.natsserver import NatsServer
from tests.rigs.submit import floats

pytestmark = pytest.mark.django_db(transaction=True)
Browser = Callable[[str], Client]
ME = system_actor("tests")


def waiting(number: int, **more: Any) -> messages.Job:
    """A job that was accepted just now."""
    now = time.time()
    return accepted(number, created_at=now, deadline_at=now + 900, **more)


async def queue(bus: Bus, jobs: list[messages.Job]) -> None:
    """They wait, in NATS and as rows."""
    left = iter(jobs)

    async def work() -> None:
        for job in left:
            await accept(bus, job)

    await asyncio.gather(*(work() for _ in range(32)))
    await in_thread(store.write, [JobMessage.accepted(job, job.created_at) for job in jobs])


async def state_of(bus: Bus, job: messages.Job) -> str:
    found = await Records(bus).find(job.id)
    assert found is not None
    return found.record.state.value


def notes(chosen: Selection) -> dict[str, tuple[str, str]]:
    """What came of each job."""
    return {item.job_id: (item.outcome, item.note) for item in chosen.items.all()}


def again(chosen: Selection) -> Selection:
    return Selection.objects.get(pk=chosen.pk)


# ---------------------------------------------------------------------------------- choosing


def test_a_filter_freezes_exactly_the_jobs_that_match_by_one_statement(admin: Actor) -> None:
    now = timezone.now()
    jobs = [make(n, state=("queued", "running", "failed")[n % 3], model=("a", "b")[n % 2]) for n in range(12)]
    with CaptureQueriesContext(connection) as asked:
        chosen = services.freeze(admin, "cancel", filter_text="state:queued,running model:a", now=now)
    wanted = {job.pk for job in jobs if job.state in {"queued", "running"} and job.model == "a"}
    assert set(notes(chosen)) == wanted
    assert chosen.total == len(wanted)
    read = [query["sql"] for query in asked.captured_queries if '"jobs_job"' in query["sql"]]
    assert all(sql.startswith("INSERT") for sql in read), "no row crosses to the console"
    make(20, state="queued", model="a")
    assert set(notes(again(chosen))) == wanted
    assert chosen.words == "all jobs of which state is queued or running, and model is a"
    assert services.freeze(admin, "cancel", filter_text="").total == 13
    (tagged,) = [make(30, tags=["nightly", "eu"], state="queued")]
    assert set(notes(services.freeze(admin, "cancel", filter_text="tag:nightly tag:eu"))) == {tagged.pk}


def test_jobs_are_named_once_each_and_what_is_no_id_is_refused(admin: Actor) -> None:
    job = make(1, state="queued")
    chosen = services.freeze(admin, "cancel", ids=[job.pk, job.pk], reason="stuck")
    assert (chosen.total, chosen.words, chosen.state) == (1, "1 job chosen one by one", "waiting")
    entry = AuditEntry.objects.get()
    assert (entry.act, entry.target_kind, entry.target, entry.reason) == (
        "jobs.cancel",
        "selection",
        chosen.pk,
        "stuck",
    )
    assert (entry.after["jobs"], entry.after["started"]) == (1, True)
    for ids, filter_text in ((["thing"], None), ([], None), ([], "state:expired"), ([], "colour:red")):
        with pytest.raises(InvalidRequest):
            services.freeze(admin, "cancel", ids=ids, filter_text=filter_text)
    assert Selection.objects.count() == 1
    assert SelectionItem.objects.count() == 1


def test_too_many_jobs_or_selections_are_refused_with_the_mend(admin: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MOST", 3)
    monkeypatch.setattr(services, "MOST_OPEN", 2)
    jobs = [make(n, state="queued") for n in range(4)]
    with pytest.raises(InvalidRequest, match="narrow the filter"):
        services.freeze(admin, "cancel", filter_text="state:queued")
    with pytest.raises(InvalidRequest, match="More than 3 jobs are named"):
        services.freeze(admin, "cancel", ids=[job.pk for job in jobs])
    for _ in range(2):
        services.freeze(admin, "cancel", ids=[jobs[0].pk])
    with pytest.raises(LimitExceeded, match="stop one"):
        services.freeze(admin, "cancel", ids=[jobs[0].pk])
    assert SelectionItem.objects.count() == 2
    for _ in range(services.MOST_CHOSEN + 2):  # who only looks keeps the newest
        services.freeze(admin, "cancel", ids=[jobs[0].pk], is_started=False)
    assert Selection.objects.filter(state="chosen").count() == services.MOST_CHOSEN


def test_who_may_not_do_it_to_one_job_may_not_to_many(cast: dict[str, User], admin: Actor) -> None:
    job, viewer = make(1, state="queued"), Actor(user=cast["viewer"], via="tests")
    chosen = services.freeze(admin, "delete", ids=[job.pk], is_started=False)
    acts: list[Callable[[], Selection]] = [
        lambda: services.freeze(viewer, "cancel", ids=[job.pk]),
        lambda: services.start(viewer, chosen.pk),
        lambda: services.stop(viewer, chosen.pk),
        lambda: services.stop(viewer, "none"),
    ]
    for act in acts:
        with pytest.raises(Forbidden):
            act()
    operators.switch_read_only(admin, is_read_only=True, message="")
    with pytest.raises(Forbidden):
        services.start(admin, chosen.pk)
    assert AuditEntry.objects.filter(result="refused", act="jobs.delete").count() == 3
    assert again(chosen).state == "chosen"


def test_the_page_says_what_will_happen_to_exactly_which_jobs_before_anything_does(browser: Browser, db: None) -> None:
    jobs = [make(n, state="queued" if n < 4 else "succeeded") for n in range(5)]
    client = browser("operator")
    page = client.get("/jobs").content.decode()
    assert all(f'value="{job.pk}" form="selection"' in page for job in jobs)
    assert 'form="selection"' not in browser("viewer").get("/jobs").content.decode()
    answer = submit(client, "/jobs/-/selections/choose", {"act": "cancel", "all": "1", "q": "model:digits"})
    chosen = Selection.objects.get()
    assert answer["Location"] == f"/jobs/-/selections/{chosen.pk}"
    page = client.get(answer["Location"]).content.decode()
    assert "Cancel 5 jobs" in page
    assert "model is digits" in page
    assert page.count('class="mono" href="/jobs/0000') == 3
    assert 'data-state="queued"' in page
    assert "cannot be brought back" in page
    assert browser("viewer").get(answer["Location"]).status_code == 200
    started = submit(client, f"{answer['Location']}/start", {"reason": "stuck"})
    assert started.status_code == 302
    assert submit(client, f"{answer['Location']}/start").status_code == 409
    running = client.get(answer["Location"]).content.decode()
    assert "data-open" in running
    assert "stuck" in running
    part = client.get(f"{answer['Location']}?part=1").content.decode()
    assert part.lstrip().startswith('<div class="stack" id="progress"')
    assert submit(client, f"{answer['Location']}/stop").status_code == 302
    over = client.get(f"{answer['Location']}?outcome=left").content.decode()
    assert "data-open" not in over
    assert "5 not begun" in over
    assert client.get(f"{answer['Location']}?outcome=odd").status_code == 400
    assert "Cancel 5 jobs" in client.get("/jobs/-/selections").content.decode()
    assert f"/jobs/-/selections/{chosen.pk}" in client.get(f"/jobs/{jobs[0].pk}").content.decode()


def test_rest_freezes_shows_stops_and_tells_job_by_job(call: Callable[[str], Any], db: None) -> None:
    jobs = [make(n, state="queued") for n in range(3)]
    send = call("operator")
    answer = send("post", "selections", {"act": "priority", "q": "state:queued", "priority": "mid", "reason": "x"})
    assert answer.status_code == 202
    made = answer.json()
    assert (made["total"], made["left"], made["state"], made["options"]) == (3, 3, "waiting", {"priority": "mid"})
    page = send("get", f"selections/{made['id']}/items?size=2").json()
    assert [item["outcome"] for item in page["items"]] == ["", ""]
    rest = send("get", f"selections/{made['id']}/items?outcome=left&after={page['after']}").json()
    assert (len(rest["items"]), rest["after"]) == (1, None)
    stopped = send("post", f"selections/{made['id']}/stop", {}).json()
    assert (stopped["state"], stopped["stopped_by"]) == ("stopped", "operator")
    assert send("post", f"selections/{made['id']}/stop", {}).status_code == 409
    assert send("get", "selections/none").status_code == 404
    assert [one["id"] for one in send("get", "selections").json()] == [made["id"]]
    for odd in ({"act": "cancel"}, {"act": "cancel", "q": "", "jobs": []}, {"act": "burn", "q": ""}):
        assert send("post", "selections", odd).status_code == 400
    chosen = send("post", "selections", {"act": "cancel", "jobs": [jobs[0].pk], "is_started": False}).json()
    assert send("post", f"selections/{chosen['id']}/start", {}).json()["state"] == "waiting"
    assert AuditEntry.objects.filter(target=made["id"]).count() == 3, "begun, stopped, and stopped in vain"


# ---------------------------------------------------------------------------------- acting


@pytest.mark.proof
async def test_ten_thousand_jobs_exactly_the_frozen_ones_are_cancelled(bus: Bus) -> None:
    number = depth.at(short=500, full=10_000)
    jobs = [waiting(n) for n in range(number)]
    await queue(bus, jobs)
    began = time.monotonic()
    chosen = await in_thread(services.freeze, ME, "cancel", filter_text="state:queued")
    print(f"{number} jobs frozen in {time.monotonic() - began:.2f} s")
    assert chosen.total == number
    later = waiting(number)
    await queue(bus, [later])
    ended = jobs[: number // 100]
    for job in ended:
        await run_job(bus, job)
    began = time.monotonic()
    assert await SelectionRunner(bus).work()
    print(f"{number} jobs cancelled in {time.monotonic() - began:.1f} s")
    chosen = await in_thread(again, chosen)
    assert (chosen.state, chosen.done, chosen.failed) == ("ended", number - len(ended), len(ended))
    told = await in_thread(notes, chosen)
    assert {told[job.id] for job in ended} == {("refused", "The job has already ended: succeeded.")}
    assert {told[job.id] for job in jobs[len(ended) :]} == {("done", "")}
    stored = await Records(bus).read_many([job.id for job in jobs[:: number // 100]])
    assert {found[0].state.value for found in stored.values() if found is not None} == {"succeeded", "cancelled"}
    assert await state_of(bus, later) == "queued"


async def test_a_running_job_is_asked_and_one_that_its_owner_cancelled_is_reported(bus: Bus) -> None:
    running, owned, unknown = waiting(1), waiting(2), waiting(3)
    await queue(bus, [running, owned])
    records = Records(bus)
    await records.write(life.claimed(running, None, worker="w", gpu="g", token=1, now=time.time()), expect=0)
    found = await records.find(owned.id)
    assert found is not None
    await cancel(bus, records, found, by=OWNER, clock=time.time)
    chosen = await in_thread(services.freeze, ME, "cancel", ids=[running.id, owned.id, unknown.id])
    await SelectionRunner(bus).work()
    assert await in_thread(notes, chosen) == {
        running.id: ("done", "It was running: its holder is asked to stop it."),
        owned.id: ("refused", "The job has already ended: cancelled."),
        unknown.id: ("refused", "NATS knows no such job, or no longer."),
    }


async def test_dead_letters_run_again_once_and_what_is_none_is_left(bus: Bus) -> None:
    await enable(bus)
    first, before = await dead(bus, floats(1.0)), await dead(bus, floats(2.0))
    await deadletters.redrive(bus, before.id)
    none = waiting(1)
    await queue(bus, [none])
    chosen = await in_thread(services.freeze, ME, "retry", ids=[first.id, before.id, none.id])
    await SelectionRunner(bus).work()
    told = await in_thread(notes, chosen)
    new_id = deadletters.redriven_id(await deadletters.find(bus, first.id))
    assert told[first.id] == ("done", f"It runs again as job {new_id}.")
    assert "run again before" in told[before.id][1]
    assert "has not ended" in told[none.id][1]
    await in_thread(chosen.items.filter(job_id=first.id).update, outcome="")  # as if it had not been noted
    await in_thread(Selection.objects.filter(pk=chosen.pk).update, state="running")
    await SelectionRunner(bus).work()
    assert (await in_thread(notes, chosen))[first.id] == ("done", f"It runs again as job {new_id}.")
    gone = await in_thread(services.freeze, ME, "discard", ids=[first.id])
    await SelectionRunner(bus).work()
    assert (await in_thread(notes, gone))[first.id] == ("done", "")
    with pytest.raises(NotFound):
        await deadletters.find(bus, first.id)


async def test_ended_jobs_are_deleted_and_waiting_ones_raised(bus: Bus) -> None:
    ended, open_one = waiting(1), waiting(2)
    await queue(bus, [ended, open_one])
    await run_job(bus, ended)
    only_row = await in_thread(make, 9, state="failed")
    for act in ("delete", "priority"):
        await in_thread(services.freeze, ME, act, ids=[ended.id, open_one.id, only_row.pk])
    runner = SelectionRunner(bus)
    assert await runner.work()
    assert await runner.work()
    assert not await runner.work()
    deleted, raised = [await in_thread(notes, one) for one in await in_thread(_oldest_first)]
    assert {job: outcome for job, (outcome, _) in deleted.items()} == {
        ended.id: "done",
        open_one.id: "refused",
        only_row.pk: "done",
    }
    assert "cancel it first" in deleted[open_one.id][1]
    assert {job: outcome for job, (outcome, _) in raised.items()} == {
        ended.id: "refused",
        open_one.id: "done",
        only_row.pk: "refused",
    }
    found = await Records(bus).find(open_one.id)
    assert found is not None
    assert found.record.priority == "hi"


def _oldest_first() -> list[Selection]:
    return list(Selection.objects.order_by("as_of"))


class Interrupted(SelectionRunner):
    """At its second job of a selection something happens."""

    def __init__(self, bus: Bus, happens: Callable[[], Any], **more: Any) -> None:
        super().__init__(bus, **more)
        self._happens, self._count = happens, 0

    async def _do(self, taken: Selection, item: Item) -> str:
        self._count += 1
        if self._count == 2:
            await self._happens()
        return await super()._do(taken, item)


async def test_a_selection_that_is_stopped_leaves_the_jobs_that_were_not_begun(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.selections.runner.BATCH", 4)
    jobs = [waiting(n) for n in range(20)]
    await queue(bus, jobs)
    chosen = await in_thread(services.freeze, ME, "cancel", filter_text="state:queued")

    async def stop() -> None:
        await in_thread(services.stop, ME, chosen.pk, reason="a mistake")

    assert await Interrupted(bus, stop).work()
    chosen = await in_thread(again, chosen)
    assert (chosen.state, chosen.done, chosen.failed, chosen.left) == ("stopped", 4, 0, 16)
    states = [await state_of(bus, job) for job in jobs]
    assert (states.count("cancelled"), states.count("queued")) == (4, 16)
    assert not await SelectionRunner(bus).work()
    acts = await in_thread(lambda: list(AuditEntry.objects.order_by("pk").values_list("reason", "after__stopped")))
    assert acts == [("", None), ("a mistake", True)]
    with pytest.raises(Conflict):
        await in_thread(services.stop, ME, chosen.pk)


async def test_another_program_goes_on_where_one_died_and_no_job_counts_twice(bus: Bus, wire: Wire) -> None:
    jobs = [waiting(n) for n in range(100)]
    await queue(bus, jobs)
    chosen = await in_thread(services.freeze, ME, "cancel", filter_text="state:queued")
    is_stuck, may_go_on = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        is_stuck.set()
        await may_go_on.wait()

    dying_bus = await Bus.connect(wire, role="console")
    dying = asyncio.create_task(Interrupted(dying_bus, hang, held_s=0.0).work())
    try:
        async with asyncio.timeout(60):
            await is_stuck.wait()  # it has cancelled some of a batch, and written nothing down
            assert await SelectionRunner(bus).work()
        over = await in_thread(again, chosen)
        assert (over.state, over.done, over.failed) == ("ended", 100, 0)
        may_go_on.set()
        async with asyncio.timeout(60):
            await dying
    finally:
        dying.cancel()
        await asyncio.wait([dying])
        await dying_bus.close()
    over = await in_thread(again, chosen)
    assert (over.state, over.done, over.failed) == ("ended", 100, 0)
    assert set((await in_thread(notes, chosen)).values()) == {("done", "")}


async def test_a_selection_waits_while_another_program_has_it_and_while_nats_is_away(own_nats: NatsServer) -> None:
    bus = await Bus.connect(Wire(nats_url=own_nats.url, request_timeout_s=1.0), role="console")
    try:
        jobs = [waiting(n) for n in range(3)]
        await queue(bus, jobs)
        chosen = await in_thread(services.freeze, ME, "cancel", filter_text="state:queued")
        await in_thread(
            Selection.objects.filter(pk=chosen.pk).update, holder="x", held_until=timezone.now() + timedelta(hours=1)
        )
        assert not await SelectionRunner(bus).work()
        await in_thread(Selection.objects.filter(pk=chosen.pk).update, held_until=timezone.now())
        await own_nats.kill()
        with pytest.raises(Unavailable):
            await SelectionRunner(bus).work()
        away = await in_thread(again, chosen)
        assert (away.is_open, away.left, away.holder) == (True, 3, "")
        await own_nats.restart()
        async with asyncio.timeout(60):
            while not bus.is_connected:  # noqa: ASYNC110  it reconnects by itself
                await asyncio.sleep(0.05)
        running = asyncio.create_task(SelectionRunner(bus).run())
        try:
            await until(lambda: not again(chosen).is_open)
        finally:
            running.cancel()
            await asyncio.wait([running])
        assert (await in_thread(again, chosen)).done == 3
    finally:
        await bus.close()


def test_selections_are_kept_for_a_time_and_one_that_runs_for_longer(admin: Actor) -> None:
    job = make(1, state="queued")
    old, looked_at, runs, new = [
        services.freeze(admin, "cancel", ids=[job.pk], is_started=is_started)
        for is_started in (True, False, True, True)
    ]
    long_ago = timezone.now() - retention.KEPT - timedelta(days=1)
    Selection.objects.filter(pk__in=[old.pk, runs.pk]).update(as_of=long_ago)
    Selection.objects.filter(pk=looked_at.pk).update(as_of=timezone.now() - timedelta(hours=2))
    Selection.objects.filter(pk__in=[old.pk, new.pk]).update(state="ended")
    assert retention.forget_old(timezone.now()) == 2
    assert set(Selection.objects.values_list("pk", flat=True)) == {runs.pk, new.pk}
    assert SelectionItem.objects.count() == 2
    assert Job.objects.count() == 1


def test_kinds_of_ids_that_jobs_have_fit(admin: Actor) -> None:
    made = [jobids.new_job_id(time.time(), n) for n in range(3)]
    assert services.freeze(admin, "cancel", ids=made).total == 3
