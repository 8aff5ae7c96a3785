"""Dead letters in the console: REST calls with every right and refusal, acts through the outbox, the job's page."""

import asyncio
import html
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from msgspec.structs import replace

from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.config import ConsoleSettings
from console.feed.health import read_health
from console.jobs import deadgroups
from console.jobs import deadletters as service
from console.jobs.fold import JobMessage
from console.jobs.models import Job
from console.operators import services as accounts
from console.outbox import services as outbox
from console.outbox.models import OutboxEntry
from console.outbox.publisher import Publisher
from console.projector import store
from console.selections.models import Selection, SelectionItem
from console.selections.runner import SelectionRunner
from signalbox.bus.client import Bus
from signalbox.bus.writes import Group
from signalbox.jobs import deadletters
from signalbox.jobs.attempts import Attempt
from signalbox.jobs.commits import Commits
from signalbox.jobs.penalty import Penalty
from signalbox.jobs.records import Records
from signalbox.program.errors import Bug, NotFound
from signalbox.program.settings import Wire
from signalbox.wire import messages, names
from signalbox.wire.messages import DeadLetter, ErrorInfo
from signalbox.wire.modeldocs import Signature, TensorSpec, Version
from signalbox.wire.names import Header, Stream
from tests.console.conftest import in_thread
from tests.console.test_jobs import make
from tests.console.test_projector import accepted
from tests.integration.signalbox.test_core_cli import run
from tests.integration.signalbox.test_core_deadletters import dead, enable, frame_of
from tests.rigs.natsserver import NatsServer
from tests.rigs.submit import floats

pytestmark = pytest.mark.django_db(transaction=True)
Call = Callable[..., Coroutine[Any, Any, Any]]


def takes(name: str, dtype: str) -> Signature:
    """A signature of one input with rows."""
    spec = TensorSpec(dtype=dtype, shape=(-1,))
    return Signature(inputs={name: spec}, outputs={"y": spec})


@pytest.fixture
async def call(
    cast: dict[str, User], console: ConsoleSettings, settings: Any, wire: Wire, bus: Bus
) -> AsyncIterator[Callable[[str], Call]]:
    """A program with the token of a role, a console that reaches NATS, and its publisher at work."""
    settings.CONSOLE = replace(console, nats_url=wire.nats_url)
    publishing = asyncio.create_task(Publisher(bus, 60).run())

    def as_role(role: str) -> Call:
        def send(method: str, path: str, body: Any = None) -> Any:
            _, text = accounts.create_token(Actor(user=cast[role], via="tests"), "test", 1)
            client = Client(headers={"Authorization": f"Bearer {text}"})
            path = f"/api/dead-letters{path}"
            try:
                return getattr(client, method)(path, body, content_type="application/json")
            finally:
                connections.close_all()

        # A thread to itself, as a server gives each request: the publisher uses the one of in_thread.
        return lambda *given: asyncio.to_thread(send, *given)

    try:
        yield as_role
    finally:
        publishing.cancel()
        await asyncio.wait([publishing])


async def test_the_boards_figure_leads_to_exactly_as_many_letters(call: Callable[[str], Call], bus: Bus) -> None:
    await enable(bus)
    for number in range(2):
        await dead(bus, floats(float(number)))
    await in_thread(lambda: make(99, model="digits", state="failed"))
    figure = (await read_health(bus, None, 0.0))[0]["dead"]
    assert figure.value == "2"

    def look() -> str:
        client = Client()
        client.force_login(User.objects.get(username="viewer"))
        try:
            return client.get(figure.href).content.decode()
        finally:
            connections.close_all()

    page = await asyncio.to_thread(look)
    (counted,) = re.findall(r'data-label="Letters" class="num"><div>(\d+)<', page)
    assert counted == figure.value
    assert "poison" in page


async def test_a_letter_is_listed_shown_redriven_once_and_discarded(call: Callable[[str], Call], bus: Bus) -> None:
    await enable(bus)
    old, other = await dead(bus, frame_of(400_000)), await dead(bus, floats(1.0))
    listed = (await call("viewer")("get", "?size=1")).json()
    assert [letter["id"] for letter in listed["letters"]] == [old.id]
    rest = (await call("viewer")("get", f"?after={listed['after']}")).json()
    assert ([letter["id"] for letter in rest["letters"]], rest["after"]) == ([other.id], None)
    shown = (await call("viewer")("get", f"/{old.id}")).json()
    assert (shown["error"], shown["attempt"], shown["input_is"]) == ("poison", 3, "kept")
    assert shown["inputs"] == [{"name": "x", "dtype": "uint8", "shape": [400_000]}]
    operator = call("operator")
    asked = [await operator("post", f"/{old.id}/redrive", {"reason": "mended"}) for _ in range(2)]
    new_id = deadletters.redriven_id(await deadletters.find(bus, old.id))
    for answer in asked:
        assert answer.status_code == 202
        assert answer.json() == {"job": new_id, "is_done": True, "reason": ""}
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
    assert info["state"]["messages"] == 1, "a double click makes one job"
    queued = await Records(bus).queued(new_id)
    assert queued is not None
    assert messages.decode(messages.Job, queued.headers[Header.JOB]).redrive_of == old.id
    assert (await operator("post", f"/{old.id}/discard", {})).status_code == 202
    assert (await operator("get", f"/{old.id}")).status_code == 404
    acts = await in_thread(lambda: list(AuditEntry.objects.filter(target=old.id)))
    assert sorted((act.act, act.result, act.reason) for act in acts) == [
        ("jobs.discard", "done", ""),
        ("jobs.redrive", "done", "mended"),
        ("jobs.redrive", "done", "mended"),
    ]
    assert [act.after["account"] for act in acts] == [old.account_id] * 3
    assert old.account_id


async def test_what_cannot_be_redriven_is_refused_in_words_and_written_down(
    call: Callable[[str], Call], bus: Bus
) -> None:
    unknown = accepted(7).id
    answer = await call("operator")("post", f"/{unknown}/redrive", {})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    await enable(bus, is_enabled=False)
    old = await dead(bus, floats(1.0))
    answer = await call("operator")("post", f"/{old.id}/redrive", {})
    assert answer.status_code == 409
    assert "not enabled" in answer.json()["detail"]
    assert (await call("viewer")("post", f"/{old.id}/redrive", {})).status_code == 403
    assert (await call("viewer")("post", f"/{old.id}/discard", {})).status_code == 403
    results = await in_thread(lambda: list(AuditEntry.objects.values_list("target", "result")))
    assert (unknown, "failed") in results
    assert results.count((old.id, "refused")) == 2


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?modle=x", "did you mean model?"),
        ("?size=0", "size:"),
        ("?size=201", "size:"),
        ("?after=-1", "after:"),
        ("?after=x", "after:"),
        ("?model=" + "x" * 101, "model:"),
    ],
)
async def test_a_query_that_is_not_understood_is_refused(call: Callable[[str], Call], query: str, said: str) -> None:
    answer = await call("viewer")("get", query)
    assert answer.status_code == 400
    assert said in answer.json()["detail"]


async def test_an_act_that_nats_will_never_take_is_settled_with_its_reason(bus: Bus) -> None:
    entry = await in_thread(outbox.post, OutboxEntry(kind=OutboxEntry.REDRIVE, key=accepted(9).id))
    await Publisher(bus, 5).publish_due()
    entry = await in_thread(OutboxEntry.objects.get, pk=entry.pk)
    assert entry.published_at is not None
    assert "no dead letter" in entry.last_error


async def test_a_letter_that_cannot_be_had_now_holds_up_no_other(own_nats: NatsServer) -> None:
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    try:
        entries = []
        for number in (1, 2):
            old = await dead(bus, floats(number))
            entries.append(await in_thread(outbox.post, OutboxEntry(kind=OutboxEntry.REDRIVE, key=old.id)))
        await bus.request_json(f"$JS.API.STREAM.DELETE.{Stream.DLQ_PARTS}")  # no stream answers for it
        assert await Publisher(bus, 5).publish_due() == 2
    finally:
        await bus.close()
    for entry in entries:
        tried = await in_thread(OutboxEntry.objects.get, pk=entry.pk)
        assert (tried.published_at, tried.attempts) == (None, 1)


async def test_a_redrive_into_a_full_queue_is_over_and_its_input_stored_once(own_nats: NatsServer) -> None:
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    try:
        await enable(bus)
        old = await dead(bus, frame_of(400_000))
        config = (await bus.request_json("$JS.API.STREAM.INFO.JOBS"))["config"]
        await bus.write(names.job("half", "hi", "t", accepted(1).id), b"")
        await bus.request_json("$JS.API.STREAM.UPDATE.JOBS", config | {"max_msgs": 1})
        entry = await in_thread(outbox.post, OutboxEntry(kind=OutboxEntry.REDRIVE, key=old.id))
        await Publisher(bus, 5).publish_due()
    finally:
        await bus.close()
    entry = await in_thread(OutboxEntry.objects.get, pk=entry.pk)
    assert entry.published_at is not None
    assert entry.last_error


async def test_a_discard_that_an_earlier_try_did_is_done(bus: Bus) -> None:
    entry = await in_thread(outbox.post, OutboxEntry(kind=OutboxEntry.DISCARD, key=accepted(9).id))
    await Publisher(bus, 5).publish_due()
    entry = await in_thread(OutboxEntry.objects.get, pk=entry.pk)
    assert entry.published_at is not None
    assert not entry.last_error


@pytest.mark.parametrize("wire", [Wire(nats_url="nats://127.0.0.1:1", connect_timeout_s=0.2)])
async def test_without_nats_nothing_is_promised(
    console: ConsoleSettings, settings: Any, admin: Actor, wire: Wire
) -> None:
    settings.CONSOLE = replace(console, nats_url=wire.nats_url, connect_timeout_s=wire.connect_timeout_s)
    answer = await in_thread(_redrive_without_nats, admin)
    assert answer == "unavailable"
    assert not await in_thread(OutboxEntry.objects.exists)


def _redrive_without_nats(admin: Actor) -> str:
    from signalbox.program.errors import SignalboxError

    try:
        service.redrive(admin, accepted(1).id)
    except SignalboxError as error:
        return error.code
    return ""


async def test_a_redriven_job_names_the_old_one_on_its_page(cast: dict[str, User]) -> None:
    job = accepted(1, redrive_of=accepted(2).id)
    await in_thread(store.write, [JobMessage.accepted(job, job.created_at)])
    row = await in_thread(Job.objects.get, pk=job.id)
    assert row.redrive_of == accepted(2).id

    def page() -> str:
        client = Client()
        client.force_login(cast["viewer"])
        return client.get(f"/jobs/{job.id}").content.decode()

    assert f'href="/jobs/{accepted(2).id}"' in await in_thread(page)


@pytest.mark.parametrize(("penalty", "strikes", "failures"), [(Penalty.STRIKE, 3, 0), (Penalty.FAILURE, 0, 3)])
async def test_page_list_and_command_count_what_ended_a_job_alike(
    call: Callable[[str], Call],
    cast: dict[str, User],
    bus: Bus,
    wire: Wire,
    penalty: Penalty,
    strikes: int,
    failures: int,
) -> None:
    records = Records(bus)
    commits = Commits(bus, records, worker="w1", gpu="GPU-1", token=7, inline_limit_bytes=1000, clock=time.time)
    attempt, error = Attempt(accepted(1)), ErrorInfo(code="internal", message="No.")
    for _ in range(2):
        await commits.claim([attempt], Group())
        await commits.apply([commits.requeue(attempt, Bug("No."), penalty=penalty)])
    await commits.claim([attempt], Group())
    await commits.dead_letter(attempt, floats(1.0), error, penalty=penalty)
    await commits.apply([commits.failure(attempt, error, penalty=penalty)])
    found = await records.read(attempt.job.id)
    assert found is not None
    await in_thread(store.write, [JobMessage(time.time(), found[1], found[0])])

    def page() -> str:
        client = Client()
        client.force_login(cast["viewer"])
        return client.get(f"/jobs/{attempt.job.id}").content.decode()

    shown = await in_thread(page)
    assert ("3 strikes" in shown, "3 failures" in shown) == (bool(strikes), bool(failures))
    assert "crashed" not in shown
    (listed,) = (await call("viewer")("get", "")).json()["letters"]
    assert (listed["attempt"], listed["strikes"], listed["failures"]) == (3, strikes, failures)
    reported = (await run("dead", "show", attempt.job.id, SIGNALBOX_NATS_URL=wire.nats_url))[1]
    assert f"attempt: 3\nstrikes: {strikes}\nfailures: {failures}\n" in reported


async def test_a_letter_that_is_not_there_is_not_found(call: Callable[[str], Call], admin: Actor) -> None:
    assert (await call("operator")("post", f"/{accepted(3).id}/discard", {})).status_code == 404
    with pytest.raises(NotFound):
        await in_thread(service.show, "thing")


# ------------------------------------------------------------------------------------------- groups and pages


async def post(user: User, path: str, form: dict[str, Any]) -> Any:
    """A form sent by somebody who is logged in."""

    def send() -> Any:
        client = Client()
        client.force_login(user)
        try:
            return client.post(path, form)
        finally:
            connections.close_all()

    return await asyncio.to_thread(send)


async def page_of(user: User, path: str) -> str:
    def look() -> str:
        client = Client()
        client.force_login(user)
        try:
            return client.get(path).content.decode()
        finally:
            connections.close_all()

    return await asyncio.to_thread(look)


def because(message: str, code: str = "model_error") -> DeadLetter:
    return DeadLetter(error=ErrorInfo(code=code, message=message), attempt=3)


async def many(bus: Bus) -> list[messages.Job]:
    """Three letters that are alike, one of another error and one of another model."""
    whys = [because(f"No row {number} of 9.") for number in (1, 2, 3)] + [because("No.", "timeout")]
    made = [await dead(bus, floats(1.0), notice=why) for why in whys]
    return [*made, await dead(bus, floats(1.0), model="whole", notice=because("No row 1 of 9."))]


async def test_letters_whose_errors_are_alike_are_one_group(call: Callable[[str], Call], bus: Bus) -> None:
    made = await many(bus)
    doc = (await call("viewer")("get", "/groups")).json()
    largest = doc["groups"][0]
    assert sorted((one["model"], one["error"], one["count"], one["waiting"]) for one in doc["groups"]) == [
        ("half", "model_error", 3, 3),
        ("half", "timeout", 1, 1),
        ("whole", "model_error", 1, 1),
    ]
    assert (largest["count"], largest["sample"], largest["message"]) == (3, made[2].id, "No row 3 of 9.")
    assert not doc["is_cut"]
    kept = datetime.fromisoformat(largest["kept_until"]) - datetime.fromisoformat(largest["first_at"])
    assert kept == timedelta(days=14)
    only = (await call("viewer")("get", "/groups?model=whole")).json()
    assert [one["model"] for one in only["groups"]] == ["whole"]


async def test_reading_letters_stops_at_a_bound_and_says_so(
    call: Callable[[str], Call], cast: dict[str, User], bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await many(bus)
    monkeypatch.setattr(deadgroups, "MOST_READ", 2)
    monkeypatch.setattr(deadletters, "MOST", 2)
    doc = (await call("viewer")("get", "/groups")).json()
    assert (sum(one["count"] for one in doc["groups"]), doc["is_cut"]) == (2, True)
    assert "There are more" in await page_of(cast["viewer"], "/jobs/-/dead-letters")


async def worked(bus: Bus) -> Selection:
    """The newest selection, once it is over."""
    await SelectionRunner(bus).work()
    return await in_thread(Selection.objects.earliest, "-as_of")


async def test_a_group_is_redriven_up_to_the_letter_that_was_shown_and_leaves_one_row(
    call: Callable[[str], Call], cast: dict[str, User], bus: Bus
) -> None:
    await enable(bus)
    made = await many(bus)
    shown = (await call("viewer")("get", "/groups?model=half")).json()["groups"][0]
    later = await dead(bus, floats(1.0), notice=because("No row 4 of 9."))
    form = {name: shown[name] for name in ("model", "version", "error", "group", "until")} | {"reason": "mended"}
    answer = await post(cast["operator"], "/jobs/-/dead-letters/-/redrive", form)
    chosen = await worked(bus)
    assert (answer.status_code, answer["Location"]) == (302, f"/jobs/-/selections/{chosen.pk}")
    assert (chosen.words, chosen.done, chosen.failed) == ("dead letters of half:1 with model_error", 3, 0)
    redriven = {letter.id: letter.redriven for letter in (await deadletters.page(bus)).letters}
    assert [one.id for one in made[:3] if redriven[one.id] is not None] == [one.id for one in made[:3]]
    assert [redriven[one.id] for one in (made[3], made[4], later)] == [None] * 3
    (row,) = await in_thread(lambda: list(AuditEntry.objects.filter(act="jobs.redrive")))
    assert (row.target_kind, row.result, row.reason) == ("selection", "done", "mended")
    again = await call("operator")("post", "/redrive", form)
    assert again.status_code == 404, "they were redriven"


async def test_what_of_a_group_does_not_fit_another_version_is_refused_in_words(
    call: Callable[[str], Call], bus: Bus
) -> None:
    await enable(bus, versions=VERSIONS)
    await many(bus)
    await dead(bus, frame_of(10), notice=because("No row 7 of 9."))
    shown = (await call("viewer")("get", "/groups?model=half")).json()["groups"][0]
    form = {name: shown[name] for name in ("model", "version", "error", "group", "until")} | {"with_version": 2}
    answer = await call("operator")("post", "/redrive", form)
    assert (answer.status_code, answer.json()["total"], answer.json()["options"]) == (202, 4, {"with_version": "2"})
    chosen = await worked(bus)
    assert (chosen.done, chosen.failed) == (3, 1)
    (note,) = await in_thread(
        lambda: list(chosen.items.filter(outcome=SelectionItem.REFUSED).values_list("note", flat=True))
    )
    assert "Its input does not fit version 2 of half" in note
    found = [letter.redriven for letter in (await deadletters.page(bus, model="half")).letters]
    assert [mark.version for mark in found if mark is not None] == [2, 2, 2]


async def test_a_group_is_discarded(call: Callable[[str], Call], cast: dict[str, User], bus: Bus) -> None:
    made = await many(bus)
    shown = (await call("viewer")("get", "/groups?model=half")).json()["groups"][0]
    form = {name: shown[name] for name in ("model", "version", "error", "group", "until")}
    assert (await call("viewer")("post", "/discard", form)).status_code == 403
    assert (await post(cast["operator"], "/jobs/-/dead-letters/-/discard", form)).status_code == 302
    assert (await worked(bus)).done == 3
    assert [letter.id for letter in (await deadletters.page(bus)).letters] == [one.id for one in made[3:]]


VERSIONS = (
    Version(version=1, path="/m/1"),
    Version(version=2, path="/m/2", signatures={"serving_default": takes("x", "float32")}),
    Version(version=3, path="/m/3", signatures={"serving_default": takes("x", "int64")}),
)


async def test_a_letter_is_redriven_with_another_version_whose_signature_its_input_fits(
    call: Callable[[str], Call], cast: dict[str, User], bus: Bus
) -> None:
    await enable(bus, versions=VERSIONS)
    old = await dead(bus, floats(1.0), batch_key="s|", rows=1)
    operator = call("operator")
    refused = await operator("post", f"/{old.id}/redrive", {"with_version": 3})
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        'Its input does not fit version 3 of half: its input "x" is float32 [1], and int64 [-1] in the signature.',
    )
    assert (await operator("post", f"/{old.id}/redrive", {"with_version": 9})).json()["detail"] == (
        "The model half does not serve version 9."
    )
    page = await page_of(cast["operator"], f"/jobs/-/dead-letters/{old.id}")
    assert re.findall(r'<option value="(\d)"', page) == ["0", "3", "2"]
    answer = await post(cast["operator"], f"/jobs/-/dead-letters/{old.id}/redrive", {"with_version": "2", "after": ""})
    new_id = deadletters.redriven_id(await deadletters.find(bus, old.id))
    assert (answer.status_code, answer["Location"]) == (302, f"/jobs/{new_id}")
    queued = await Records(bus).queued(new_id)
    assert queued is not None
    assert (queued.job.version, queued.job.batch_key, queued.job.redrive_of) == (2, "", old.id)
    rows = await in_thread(lambda: list(AuditEntry.objects.filter(target=old.id, result="done")))
    assert [row.after["with_version"] for row in rows] == [2]
    other = await operator("post", f"/{old.id}/redrive", {})
    assert other.status_code == 409
    assert f"It was redriven as job {new_id} with version 2" in other.json()["detail"]


async def test_a_page_of_a_letter_has_cause_input_and_how_long_it_is_kept(
    call: Callable[[str], Call], cast: dict[str, User], bus: Bus
) -> None:
    old = await dead(bus, floats(1.0), notice=because("Line one.\n  File <b>two</b>"))
    page = await page_of(cast["viewer"], f"/jobs/-/dead-letters/{old.id}")
    assert "Line one.\n  File &lt;b&gt;two&lt;/b&gt;" in page
    assert "float32 [1]" in page
    assert "Kept until" in page
    assert (f"/jobs/{old.id}/input" in page, "/redrive" in page, "/discard" in page) == (False, False, False)
    full = await page_of(cast["admin"], f"/jobs/-/dead-letters/{old.id}")
    assert (f"/jobs/{old.id}/input" in full, "/redrive" in full, "/discard" in full) == (True, True, True)
    listed = await page_of(cast["viewer"], "/jobs/-/dead-letters")
    href = html.unescape(re.findall(r'row-link mono" href="([^"]+)"', listed)[0])
    assert f'href="/jobs/-/dead-letters/{old.id}"' in await page_of(cast["viewer"], href)


async def test_a_letter_is_discarded_on_its_page(call: Callable[[str], Call], cast: dict[str, User], bus: Bus) -> None:
    old = await dead(bus, floats(1.0))
    url = f"/jobs/-/dead-letters/{old.id}"
    assert (await post(cast["viewer"], f"{url}/discard", {})).status_code == 403
    assert (await post(cast["operator"], f"{url}/discard", {"reason": "old"})).status_code == 302
    assert (await post(cast["operator"], f"{url}/discard", {})).status_code == 404
    assert (await post(cast["operator"], f"{url}/redrive", {"with_version": "x"})).status_code == 400
