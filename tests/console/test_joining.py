"""Whether requests of a model are joined: asked for, tried by a worker, recorded, and said."""

import asyncio
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from channels.db import database_sync_to_async
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from console.accounts.models import User
from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.catalog import approval, independence, lookup, modelsettings, registration, targets, uploads
from console.catalog.joining import State, state_of
from console.catalog.models import ModelVersion, ServedModel
from console.config import ConsoleSettings
from console.controller.readiness import keep_noted
from console.operators import services as operators
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.program.errors import Conflict
from signalbox.wire.names import Bucket, token
from signalbox.wire.workerdocs import Device, Joining, Residency, Worker
from tests.console.conftest import FOUND, in_thread, submit
from tests.console.test_archives import tar
from tests.console.test_models import published

Browser = Callable[[str], Client]
WORDS = 'Signature "serving_default": joined with other requests, output "y" differs by up to 50 % of its value.'
EQUAL = Joining(joined=("serving_default",), digest=FOUND.digest)
DIFFERS = Joining(differs=WORDS, digest=FOUND.digest)
UNTRIED = Joining(untried="The runner died while joined requests were tried.", digest=FOUND.digest)
ASK = {"rows_independent": True}


def state() -> State:
    return state_of(lookup.find("digits"))


def joined() -> dict[int, tuple[str, ...] | None]:
    """What is published of the versions."""
    return {version.version: version.joined for version in published().versions}


@pytest.fixture
def digits(admin: Actor, base: Path) -> Actor:
    """Versions 1 and 2 are registered; 2 serves."""
    registration.register(admin, "digits", str(base))
    return admin


def test_nobody_has_asked_and_each_request_runs_alone(digits: Actor) -> None:
    assert state().state == "alone"
    assert (published().batching.rows_independent, joined()) == (False, {1: None, 2: None})


def test_what_a_worker_found_equal_is_published_and_said(digits: Actor) -> None:
    modelsettings.change_settings(digits, "digits", ASK)
    assert state().state == "trying"
    assert independence.note_joining("w1", "digits", 2, EQUAL)
    assert joined() == {1: None, 2: ("serving_default",)}
    assert state() == State("joined", "Up to 32 rows in one run. Found equal, joined and alone: serving_default.")
    assert not independence.note_joining("w2", "digits", 2, UNTRIED), "it is known"
    modelsettings.change_settings(digits, "digits", {"max_batch_size": 1})
    assert state().state == "alone"


def test_what_is_unknown_or_of_other_files_is_not_noted(digits: Actor) -> None:
    modelsettings.change_settings(digits, "digits", ASK)
    assert not independence.note_joining("w1", "other", 1, EQUAL)
    assert not independence.note_joining("w1", "digits", 3, EQUAL)
    assert not independence.note_joining("w1", "digits", 2, Joining(joined=("serving_default",), digest="other"))
    independence.note_joining("w1", "digits", 2, EQUAL)
    ModelVersion.objects.filter(number=2).update(digest="e" * 64)
    assert state().state == "trying", "the files are others now"


def test_a_difference_refuses_the_setting_and_the_audit_says_why(digits: Actor) -> None:
    modelsettings.change_settings(digits, "digits", ASK)
    independence.note_joining("w1", "digits", 2, DIFFERS)
    assert (published().batching.rows_independent, joined()[2]) == (False, ())
    assert state() == State("refused", f"Each request runs alone. Joined, they get other answers. {WORDS}")
    entry = AuditEntry.objects.filter(act="models.settings").latest("pk")
    assert (entry.actor_name, entry.reason) == ("system:trial", "Joined, requests of version 2 get other answers.")
    assert ("rows_independent", True, False) in entry.changes
    assert entry.after["differs"] == f"Version 2: {WORDS}"
    with pytest.raises(Conflict, match="a worker has tried version 2") as refused:
        modelsettings.change_settings(digits, "digits", ASK)
    assert WORDS in refused.value.public_message


def test_a_version_that_does_not_serve_and_differs_leaves_the_setting(digits: Actor) -> None:
    modelsettings.change_settings(digits, "digits", ASK)
    independence.note_joining("w1", "digits", 1, DIFFERS)
    independence.note_joining("w1", "digits", 2, EQUAL)
    assert published().batching.rows_independent
    assert joined() == {1: (), 2: ("serving_default",)}
    assert state().state == "joined"


def choose(who: Actor, _: Path, number: int | None = 2) -> None:
    ModelVersion.objects.update(listed_ops={})
    ServedModel.objects.update(default_version=1)
    targets.set_default(who, "digits", number)


def choose_the_highest(who: Actor, base: Path) -> None:
    choose(who, base, None)


def approve(who: Actor, _: Path) -> None:
    approval.approve(who, "digits", 2)


def register(who: Actor, base: Path) -> None:
    ModelVersion.objects.filter(number=2).update(digest="e" * 64)
    registration.register(who, "digits", str(base))


def upload(who: Actor, _: Path) -> None:
    ModelVersion.objects.filter(number=2).update(digest="e" * 64)
    uploads.upload(who, "digits", io.BytesIO(tar(("saved_model.pb", b"x"))), number=2)


@pytest.mark.parametrize("move", [choose, choose_the_highest, approve, register, upload])
def test_what_moves_requests_to_a_version_that_differs_takes_the_setting_away_and_audits_it(
    digits: Actor, base: Path, console: ConsoleSettings, move: Callable[[Actor, Path], None]
) -> None:
    modelsettings.change_settings(digits, "digits", ASK)
    independence.note_joining("w1", "digits", 1, EQUAL)
    ModelVersion.objects.filter(number=2).update(
        listed_ops={"MyOp": "nobody knows it"},
        added_by="another",
        joining={"joined": [], "differs": WORDS, "untried": "", "digest": FOUND.digest},
    )
    assert state().state == "joined"
    move(digits, base)
    assert (state().state, published().default_version, published().batching.rows_independent) == ("refused", 2, False)
    entry = AuditEntry.objects.latest("pk")
    assert ("rows_independent", True, False) in entry.changes
    assert entry.after["differs"] == f"Version 2: {WORDS}"
    targets.set_default(digits, "digits", 1)
    assert state().state == "alone", "it is asked for again by a person"


def test_what_could_not_be_tried_is_tried_again_where_it_is_asked_for_again(digits: Actor) -> None:
    modelsettings.change_settings(digits, "digits", ASK)
    independence.note_joining("w1", "digits", 2, UNTRIED)
    assert (joined()[2], state()) == ((), State("untried", f"Each request runs alone. Not tried: {UNTRIED.untried}"))
    modelsettings.change_settings(digits, "digits", {"replicas": 2})
    assert joined()[2] == ()
    modelsettings.change_settings(digits, "digits", {"rows_independent": False})
    modelsettings.change_settings(digits, "digits", ASK)
    assert (joined()[2], state().state) == (None, "trying")


def test_page_list_and_rest_say_why_requests_are_or_are_not_joined(
    digits: Actor, browser: Browser, cast: dict[str, User]
) -> None:
    client = browser("model manager")

    def shown() -> str:
        text = client.get("/models/digits").content.decode()
        assert client.get("/models").status_code == 200
        found: dict[str, str] = client.get("/api/models/digits").json()["joining"]
        assert found["state"] == state().state
        return text

    text = shown()
    assert "Each request runs alone: the setting" in text
    assert (text.count("not asked"), "not tried yet" in text) == (2, False)
    modelsettings.change_settings(digits, "digits", ASK)
    text = shown()
    assert "being tried" in text
    assert ("not asked" in text, text.count("not tried yet")) == (False, 2)
    independence.note_joining("w1", "digits", 2, EQUAL)
    assert "Found equal, joined and alone: serving_default." in shown()
    (version,) = [one for one in client.get("/api/models/digits").json()["versions"] if one["number"] == 2]
    assert (version["joining"]["joined"], version["joining"]["worker"]) == (["serving_default"], "w1")
    ModelVersion.objects.update(joining=None)
    independence.note_joining("w1", "digits", 2, DIFFERS)
    assert "differs by up to 50 % of its value" in shown()
    form = {field: str(getattr(lookup.find("digits"), field)) for field in modelsettings.SETTINGS}
    del form["rows_independent"]
    refused = submit(client, "/models/digits/settings", {**form, "rows_independent": "on"})
    assert (refused.status_code, b"a worker has tried version 2" in refused.content) == (400, True)
    _, text = operators.create_token(Actor(user=cast["model manager"]), "tests", 1)
    program = Client(headers={"Authorization": f"Bearer {text}"})
    answer = program.patch("/api/models/digits", json.dumps(ASK), content_type="application/json")
    assert (answer.status_code, WORDS in str(answer.json())) == (409, True)


def test_the_form_that_registers_a_model_asks(browser: Browser, base: Path) -> None:
    client = browser("model manager")
    form = {"name": "digits", "path": str(base), "is_default": "new", "rows_independent": "on"}
    assert submit(client, "/models/-/register", form).status_code == 302
    assert published().batching.rows_independent


def test_the_form_and_the_call_that_upload_a_model_ask_too(
    browser: Browser, base: Path, console: ConsoleSettings, cast: dict[str, User]
) -> None:
    def archive() -> SimpleUploadedFile:
        return SimpleUploadedFile("digits.tar.gz", tar(("saved_model.pb", b"x")))

    client = browser("model manager")
    assert client.get("/models/-/upload").content.count(b'name="rows_independent"') == 2
    form = {"name": "digits", "is_default": "new", "rows_independent": "on"}
    assert submit(client, "/models/-/upload", {**form, "archive": archive()}).status_code == 302
    assert published().batching.rows_independent
    assert AuditEntry.objects.get(act="models.register").after["rows_independent"] is True
    assert submit(client, "/models/-/upload", {**form, "archive": archive()}).status_code == 400, "it is there"
    _, text = operators.create_token(Actor(user=cast["model manager"]), "tests", 1)
    program = Client(headers={"Authorization": f"Bearer {text}"})
    for name, said, asked in (("a", {"rows_independent": "true"}, True), ("b", {}, False)):
        answer = program.post(f"/api/models/{name}/versions", {"archive": archive(), **said})
        assert (answer.status_code, lookup.find(name).rows_independent) == (202, asked), answer.content


@pytest.mark.django_db(transaction=True)
async def test_the_controller_notes_what_workers_tell(bus: Bus, base: Path) -> None:
    me = system_actor("tests")
    await in_thread(registration.register, me, "digits", str(base), changes=ASK)
    device = Device(id="CPU-1", kind="cpu", name="cpu")
    resident = Residency(model="digits", version=2, state="ready", joining=DIFFERS)
    worker = Worker(
        id="w1",
        boot="b",
        host="h",
        pid=1,
        state="ready",
        device=device,
        started_at=0.0,
        beat_at=0.0,
        models=(resident,),
    )
    keeping = asyncio.create_task(keep_noted(bus))
    try:
        await put(bus, Bucket.WORKERS, token("w1"), worker, ttl_s=60)
        async with asyncio.timeout(30):
            while (await database_sync_to_async(lookup.find)("digits")).rows_independent:  # noqa: ASYNC110  a row
                await asyncio.sleep(0.02)
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
    assert (await in_thread(published)).batching.rows_independent is False
