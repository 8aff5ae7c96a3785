"""Repositories: who may add them and where, whom they let in, and what the pages and the REST API show of them."""

import asyncio
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from msgspec.structs import replace

from console.accounts.models import User
from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.catalog import registration
from console.catalog.models import ModelVersion, ServedModel
from console.config import ConsoleSettings
from console.fleet import listing
from console.keys import accounts
from console.operators import services as operators
from console.outbox.models import OutboxEntry
from console.repositories import removal, services
from console.repositories.models import Listing, Repository
from console.repositories.services import Terms
from signalbox.bus import table, topology
from signalbox.bus.client import Bus
from signalbox.program.errors import Conflict, Forbidden, InvalidRequest, Misconfigured
from signalbox.program.settings import Wire
from signalbox.wire import manifests, messages, modeldocs, names
from signalbox.wire.names import Bucket
from tests.console.conftest import Call, submit
from tests.rigs.natsserver import NatsServer

Browser = Callable[[str], Client]
ZOO = "s3://zoo/models"


@pytest.fixture(autouse=True)
def allowed(console: ConsoleSettings, settings: Any) -> None:
    """A deployer who lets operators use one bucket."""
    settings.CONSOLE = replace(console, repository_urls=("s3://zoo",))


@pytest.fixture
def zoo(admin: Actor) -> Repository:
    return services.add(admin, "zoo", Terms(url=ZOO))


def brought(repository: Repository, name: str) -> ServedModel:
    """A model that a repository has brought."""
    model = ServedModel.objects.create(name=name, repository=repository, base_path=f"{repository.name}:{name}")
    ModelVersion.objects.create(
        model=model, number=3, path=f"{repository.name}:{name}/3", source="repository", added_by="repository:zoo"
    )
    return model


def published() -> dict[str, modeldocs.Access]:
    """Who may call each model, as its newest document says it."""
    rows = OutboxEntry.objects.filter(bucket="models").exclude(body="").order_by("pk")
    return {row.subject_name: messages.decode(modeldocs.Model, row.body).access for row in rows}


def test_a_repository_is_private_until_its_owner_says_otherwise(admin: Actor, zoo: Repository) -> None:
    assert (zoo.url, zoo.access, zoo.is_noticed, zoo.added_by, zoo.changed_by) == (ZOO, "private", True, *["admin"] * 2)
    assert zoo.grant == modeldocs.Access(is_open=False)
    assert [one.name for one in services.listed()] == ["zoo"]
    entry = AuditEntry.objects.get(act="repositories.manage")
    assert (entry.target_kind, entry.target, entry.after["url"], entry.after["access"]) == (
        "repository",
        "zoo",
        ZOO,
        "private",
    )


def test_a_change_of_access_publishes_every_model_it_has_brought(admin: Actor, zoo: Repository) -> None:
    shop = accounts.create(admin, accounts.Terms(name="Shop"))
    for number in range(450):
        brought(zoo, f"cat-{number}")
    ServedModel.objects.create(name="mine", base_path="/nowhere")
    services.change(admin, "zoo", {"access": "accounts", "accounts": [shop.pk]}, reason="they pay")
    assert len(published()) == 450
    assert set(published().values()) == {modeldocs.Access(is_open=False, accounts=(shop.pk,))}
    entry = AuditEntry.objects.get(act="repositories.manage", reason="they pay")
    assert entry.before == {"access": "private", "accounts": []}
    assert entry.after == {"access": "accounts", "accounts": [shop.pk], "models_published": 450}
    services.change(admin, "zoo", {"access": "everybody", "accounts": []})
    assert set(published().values()) == {modeldocs.Access()}


def test_what_is_no_matter_of_access_publishes_nothing(cast: dict[str, User], zoo: Repository) -> None:
    brought(zoo, "cat")
    other = Actor(user=cast["model manager"], via="tests")
    changed = services.change(other, "zoo", {"grace_s": 5.0, "defaults": {"replicas": 2}, "is_noticed": False})
    assert (changed.grace_s, changed.defaults, changed.is_noticed) == (5.0, {"replicas": 2}, False)
    assert (changed.added_by, changed.changed_by) == ("admin", "model-manager")
    assert published() == {}


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"url": "https://zoo/models"}, "url: A repository's URL begins with"),
        ({"url": "s3://zoo/" + "x" * 800}, "url: a repository's has at most 800 letters"),
        ({"url": "s3://ark/models"}, "url: s3://ark/models is outside the places .* s3://zoo. They are SIGNALBOX_"),
        ({"url": "s3://zoological"}, "url: .* is outside"),
        ({"url": "s3://zoo/../ark"}, "url: .*'..'"),
        ({"url": "s3://me:secret@zoo/x"}, "url: .*credentials file"),
        ({"url": "file:///etc"}, "url: .* is outside"),
        ({"description": "x" * 301}, "description: at most 300"),
        ({"access": "somebody"}, "access: one of private, accounts, everybody"),
        ({"access": "accounts"}, "accounts: name one or more"),
        ({"access": "accounts", "accounts": ["none"]}, "accounts: there is no 'none'"),
        ({"accounts": ["none"]}, "accounts: they are for access accounts alone"),
        ({"access": "accounts", "accounts": ["a", "a"]}, "accounts: name each once"),
        ({"marker": "a/b"}, "marker: the name of one file"),
        ({"marker": ".."}, "marker: the name of one file"),
        ({"settle_s": -1.0}, "settle_s: 0 to"),
        ({"grace_s": float("nan")}, "grace_s: 0 to"),
        ({"defaults": {"colour": 1}}, "defaults: there is no setting 'colour'. Known: replicas"),
        ({"defaults": {"description": "x"}}, "defaults: there is no setting 'description'"),
        ({"defaults": {"replicas": -1}}, "defaults: replicas: "),
        ({"defaults": {"timeout_s": "soon"}}, "defaults: timeout_s: "),
    ],
)
def test_terms_that_make_no_sense_are_refused_by_field(admin: Actor, terms: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        services.add(admin, "zoo", Terms(**({"url": ZOO} | terms)))
    assert not Repository.objects.exists()
    assert AuditEntry.objects.get(act="repositories.manage").result == "failed"


@pytest.mark.parametrize("name", ["", "-x", "a/b", "x" * 51, "s3", "file", "a b", "zoo\n"])
def test_names_that_say_nothing_are_refused(admin: Actor, name: str) -> None:
    with pytest.raises(InvalidRequest, match="name: "):
        services.add(admin, name, Terms(url=ZOO))


@pytest.mark.parametrize("url", [ZOO, "s3://zoo", f"{ZOO}/cats", f"{ZOO}/"])
def test_no_two_repositories_lie_one_in_the_other(admin: Actor, zoo: Repository, url: str) -> None:
    with pytest.raises(Conflict, match="repository zoo lie one in the other"):
        services.add(admin, "ark", Terms(url=url))
    with pytest.raises(Conflict, match="there is a repository zoo already"):
        services.add(admin, "zoo", Terms(url="s3://zoo/other"))
    assert services.add(admin, "ark", Terms(url="s3://zoo/models2")).name == "ark"


def test_a_folder_is_judged_by_what_its_links_lead_to(
    admin: Actor, console: ConsoleSettings, settings: Any, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "out").symlink_to(tmp_path / "real")
    (tmp_path / "allowed").symlink_to(tmp_path / "inside")
    settings.CONSOLE = replace(console, repository_roots=(str(tmp_path / "allowed"),))
    with pytest.raises(InvalidRequest, match="is outside"):
        services.add(admin, "a", Terms(url=f"file://{tmp_path}/inside/out"))
    assert services.add(admin, "b", Terms(url=f"file://{tmp_path}/allowed/models")).is_local
    with pytest.raises(InvalidRequest, match="is outside"):
        services.add(admin, "c", Terms(url="s3://zoo"))


def test_a_url_moves_while_nothing_lies_below_it(admin: Actor, zoo: Repository) -> None:
    assert services.change(admin, "zoo", {"url": "s3://zoo/new/"}).url == "s3://zoo/new"
    brought(zoo, "cat")
    with pytest.raises(Conflict, match="Add another repository"):
        services.change(admin, "zoo", {"url": ZOO})


def test_a_place_that_is_no_longer_allowed_can_still_be_changed(
    admin: Actor, zoo: Repository, console: ConsoleSettings, settings: Any
) -> None:
    settings.CONSOLE = replace(console, repository_urls=("s3://ark",))
    assert not services.change(admin, "zoo", {"is_noticed": False}).is_noticed


def test_who_may_not_manage_and_read_only_are_refused(cast: dict[str, User], admin: Actor, zoo: Repository) -> None:
    operator = Actor(user=cast["operator"], via="tests")
    refusals: tuple[Callable[[], object], ...] = (
        lambda: services.add(operator, "ark", Terms(url="s3://zoo/ark")),
        lambda: services.change(operator, "zoo", {"access": "everybody"}),
        lambda: removal.delete(operator, "zoo"),
        lambda: removal.undo(operator, "zoo"),
    )
    for refused in refusals:
        with pytest.raises(Forbidden):
            refused()
    operators.switch_read_only(admin, is_read_only=True, message="Moving house.")
    with pytest.raises(Forbidden, match="Moving house"):
        services.change(admin, "zoo", {"access": "everybody"})


def test_named_folders_of_the_settings_are_repositories_wherever_they_move(
    admin: Actor, console: ConsoleSettings, settings: Any, tmp_path: Path
) -> None:
    settings.CONSOLE = replace(console, repository_roots=(f"nfs={tmp_path}/a", f"{tmp_path}/unnamed"))
    for _ in range(2):
        services.sync_roots()
    rows = {one.name: (one.url, one.is_noticed, one.access) for one in services.listed()}
    assert rows == {
        "nfs": (f"file://{tmp_path}/a", False, "private"),
        "uploads": (f"file://{console.repository}", False, "everybody"),
    }
    services.change(admin, "nfs", {"is_noticed": True, "access": "everybody"})
    settings.CONSOLE = replace(settings.CONSOLE, repository_roots=(f"nfs={tmp_path}/b",))
    services.sync_roots()
    moved = services.find("nfs")
    assert (moved.url, moved.is_noticed, moved.access) == (f"file://{tmp_path}/b", True, "everybody")
    for name in ("nfs", "uploads"):
        with pytest.raises(Conflict, match="SIGNALBOX_CONSOLE_REPOSITORY_ROOTS"):
            removal.delete(admin, name)


def test_a_folder_that_gets_the_name_of_an_operator_s_repository_is_refused(
    admin: Actor, zoo: Repository, console: ConsoleSettings, settings: Any, tmp_path: Path
) -> None:
    settings.CONSOLE = replace(console, repository_roots=(f"zoo={tmp_path}",))
    with pytest.raises(Misconfigured, match="zoo is a repository that admin added"):
        services.sync_roots()


@pytest.mark.parametrize("urls", [("s3://",), ("s3://zoo/a", "gs://other-bucket", "file:///models")])
def test_a_deployer_names_places_by_url(console: ConsoleSettings, urls: tuple[str, ...]) -> None:
    assert not list(replace(console, repository_urls=urls).problems())
    for wrong in ("zoo", "s3://zoo?x=1", "https://zoo"):
        assert any("REPOSITORY_URLS" in problem for problem in replace(console, repository_urls=(wrong,)).problems())
    for wrong in ("zoo", "file:///models", "s3://zoo?x=1", f"s3://zoo/{'x' * 900}"):
        assert any("UPLOADS_URL" in problem for problem in replace(console, uploads_url=wrong).problems())
    assert any("'gs'" in problem for problem in replace(console, repository_roots=("gs=/x",)).problems())


# ------------------------------------------------------------------------------------------------ REST


def test_a_repository_is_added_listed_changed_and_removed_over_rest(call: Callable[[str], Call]) -> None:
    manager, viewer = call("model manager"), call("viewer")
    given = {"name": "zoo", "url": ZOO, "defaults": {"replicas": 2}, "settle_s": 5}
    made = manager("post", "repositories", given)
    assert (made.status_code, made.json()["state"], made.json()["listing"]) == (201, "not listed yet", None)
    assert made.json()["defaults"] == {"replicas": 2}
    brought(Repository.objects.get(), "cat")
    refused = {"a/b": "No model's name."}
    Listing.objects.create(
        repository=Repository.objects.get(), tried_at=timezone.now(), models_found=1, refused=refused, refusals=1
    )
    (listed,) = viewer("get", "repositories").json()
    assert (listed["name"], listed["models"], listed["state"], listed["listing"]["refusals"]) == ("zoo", 1, "listed", 1)
    assert "refused" not in listed
    assert viewer("get", "repositories/zoo").json()["refused"] == refused
    changed = manager("patch", "repositories/zoo", {"access": "everybody", "reason": "ours"})
    assert (changed.status_code, changed.json()["access"], changed.json()["settle_s"]) == (200, "everybody", 5)
    assert published() == {"cat": modeldocs.Access()}
    assert manager("delete", "repositories/zoo").status_code == 204
    assert viewer("get", "repositories").json() == viewer("get", "models").json()["models"] == []
    assert [one["kind"] for one in viewer("get", "deleted").json()] == ["repository"]
    assert manager("post", "repositories/zoo/undo", {"reason": "a mistake"}).json()["models"] == 1
    assert published() == {"cat": modeldocs.Access(is_open=True)}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("post", "repositories", {"name": "ark", "url": "ftp://x"}, 400, "url: A repository"),
        ("post", "repositories", {"name": "ark"}, 400, "url"),
        ("post", "repositories", {"name": "ark", "url": ZOO, "colour": 1}, 400, "colour"),
        ("post", "repositories", {"name": "ark", "url": "s3://zoo/a", "defaults": {"colour": 1}}, 400, "colour"),
        ("post", "repositories", {"name": "ark", "url": "s3://zoo/a", "settle_s": -1}, 400, "settle_s"),
        ("post", "repositories", {"name": "zoo", "url": "s3://zoo/a"}, 409, "there is a repository zoo already"),
        ("patch", "repositories/zoo", {"access": "somebody"}, 400, "access"),
        ("patch", "repositories/ark", {"grace_s": 1}, 404, "no repository"),
        ("get", "repositories/ark", None, 404, "no repository"),
        ("delete", "repositories/ark", None, 404, "no repository"),
        ("put", "repositories/zoo", {}, 405, "method"),
        ("get", "repositories?page=1", None, 400, "page"),
        ("get", "models?state=happy", None, 400, "state"),
        ("get", "models?size=1000", None, 400, "size"),
        ("get", "models?size=0", None, 400, "size"),
        ("get", "models/nothing/versions/1/files", None, 404, "no model"),
        ("get", "models/cat/versions/9/files", None, 404, "no version 9"),
        ("get", "models/cat/versions/x/files", None, 400, "version: is a number"),
        ("post", "models/cat/versions/3/files", {}, 405, "method"),
    ],
)
def test_what_rest_cannot_do_is_refused_with_the_reason(
    call: Callable[[str], Call], zoo: Repository, method: str, path: str, body: Any, status: int, words: str
) -> None:
    brought(zoo, "cat")
    answer = call("admin")(method, path, body)
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    assert words.lower() in answer.content.decode().lower()


def test_rest_refuses_who_has_no_right_and_everybody_in_read_only_mode(
    call: Callable[[str], Call], admin: Actor, zoo: Repository
) -> None:
    acts: list[tuple[Any, ...]] = [
        ("post", "repositories", {"name": "ark", "url": "s3://zoo/ark"}),
        ("patch", "repositories/zoo", {"access": "everybody"}),
        ("delete", "repositories/zoo"),
    ]
    operator, manager = call("operator"), call("model manager")
    assert [operator(*one).status_code for one in acts] == [403] * 3
    operators.switch_read_only(admin, is_read_only=True, message="Moving house.")
    assert [manager(*one).status_code for one in acts] == [403] * 3
    assert manager("get", "repositories").status_code == 200
    assert [one.access for one in Repository.objects.all()] == ["private"]


def listed(client: Call, **query: Any) -> tuple[list[str], str]:
    """Names on a page of models, and the cursor of the next."""
    page = client("get", f"models?{urlencode(query)}").json()
    return [model["name"] for model in page["models"]], page["after"]


def test_models_are_paged_searched_and_filtered_over_rest(call: Callable[[str], Call], zoo: Repository) -> None:
    viewer = call("viewer")
    for number in range(5):
        brought(zoo, f"cat-{number}")
    ServedModel.objects.create(name="dog", base_path="/nowhere", is_enabled=False, description="a good cat")
    ServedModel.objects.create(name="emu", base_path="/nowhere", replicas=0)
    assert listed(viewer, size=3) == (["cat-0", "cat-1", "cat-2"], "cat-2")
    assert listed(viewer, size=3, after="cat-2") == (["cat-3", "cat-4", "dog"], "dog")
    assert listed(viewer, size=3, after="dog") == (["emu"], "")
    assert listed(viewer, q="CAT", size=6) == ([*(f"cat-{n}" for n in range(5)), "dog"], "")
    assert listed(viewer, repository="zoo", after="cat-3") == (["cat-4"], "")
    assert listed(viewer, repository="-") == (["dog", "emu"], "")
    assert listed(viewer, repository="ark") == ([], "")
    assert listed(viewer, state="disabled") == (["dog"], "")
    assert listed(viewer, state="none", q="e") == (["emu"], "")
    assert viewer("get", "models/cat-0").json()["repository"] == "zoo"
    assert viewer("get", "models/dog").json()["repository"] is None


def test_a_page_filtered_by_state_looks_at_a_bounded_number_of_models(
    admin: Actor, zoo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SCAN", 250)
    rows = [
        ServedModel(name=f"m{number:03}", base_path="/x", is_enabled=number not in {3, 400}) for number in range(600)
    ]
    ServedModel.objects.bulk_create(rows)
    first = listing.page(state="disabled")
    assert ([model.name for model, _ in first.models], first.after, first.is_cut) == (["m003"], "m249", True)
    second = listing.page(state="disabled", after=first.after)
    assert ([model.name for model, _ in second.models], second.is_cut) == (["m400"], True)
    assert listing.page(state="disabled", after=second.after) == ([], "", False)


def test_a_page_of_models_asks_as_often_for_fifty_as_for_five(admin: Actor, zoo: Repository) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert listing.page(size=50).models
        return len(queries)

    for number in range(5):
        brought(zoo, f"a{number}")
    few = asked()
    for number in range(60):
        brought(zoo, f"b{number}")
    assert asked() == few


@pytest.fixture
def nearby(settings: Any, shared_server: NatsServer) -> Callable[..., None]:
    """A console that reaches NATS, and a way to put documents there."""
    settings.CONSOLE = replace(settings.CONSOLE, nats_url=shared_server.url)

    def put(*documents: tuple[Bucket, str, messages.Doc]) -> None:
        async def lay() -> None:
            async with await Bus.connect(Wire(nats_url=shared_server.url), role="admin") as bus:
                await topology.apply(bus)
                for document in documents:
                    await table.put(bus, *document)

        asyncio.run(lay())

    return put


def test_the_files_of_a_repository_s_version_are_those_that_were_listed(
    call: Callable[[str], Call], zoo: Repository, nearby: Callable[..., None]
) -> None:
    name = f"cat-{secrets.token_hex(4)}"
    brought(zoo, name)
    viewer, key = call("viewer"), names.version_key(name, 3)
    nearby()
    missing = viewer("get", f"models/{name}/versions/3/files")
    assert (missing.status_code, "not listed yet" in missing.content.decode()) == (404, True)
    url = f"{ZOO}/{name}/3"
    files = (manifests.ManifestFile("variables/v", 7, "e2"), manifests.ManifestFile("saved_model.pb", 5, "e1"))
    nearby((Bucket.MANIFESTS, key, manifests.Manifest(repository="zoo", url=url, files=files, listed_at=5.0)))
    shown = viewer("get", f"models/{name}/versions/3/files").json()
    assert (shown["place"], shown["digest"], shown["host"], shown["size_bytes"]) == (url, "", "", 12)
    assert shown["listed_at"] == "1970-01-01T00:00:05Z"
    assert shown["files"] == [
        {"path": "saved_model.pb", "size_bytes": 5, "etag": "e1"},
        {"path": "variables/v", "size_bytes": 7, "etag": "e2"},
    ]
    nearby((Bucket.DIGESTS, key, manifests.VersionDigest(digest="d" * 64, host="gpu-1")))
    shown = viewer("get", f"models/{name}/versions/3/files").json()
    assert (shown["digest"], shown["host"]) == ("d" * 64, "gpu-1")


def test_the_files_of_a_person_s_version_are_those_of_its_folder(
    call: Callable[[str], Call], admin: Actor, base: Path
) -> None:
    (base / "2" / "assets").mkdir()
    (base / "2" / "assets" / "words.txt").write_text("a b")
    (base / "2" / "link").symlink_to("/etc/passwd")
    registration.register(admin, "digits", str(base))
    shown = call("viewer")("get", "models/digits/versions/2/files").json()
    assert [(one["path"], one["size_bytes"]) for one in shown["files"]] == [
        ("assets/words.txt", 3),
        ("link", len("/etc/passwd")),
        ("saved_model.pb", 1),
    ]
    assert (shown["place"], shown["digest"], shown["listed_at"]) == (str(base / "2"), "d" * 64, None)
    shutil.rmtree(base / "2")
    gone = call("viewer")("get", "models/digits/versions/2/files")
    assert (gone.status_code, "cannot read" in gone.content.decode()) == (409, True)


def test_without_nats_a_repository_s_files_are_not_known_now(call: Callable[[str], Call], zoo: Repository) -> None:
    brought(zoo, "cat")
    assert call("viewer")("get", "models/cat/versions/3/files").status_code == 503


# ----------------------------------------------------------------------------------------------- pages

FORM = {"name": "ark", "url": "s3://zoo/ark", "access": "private", "is_noticed": "on", "settle_s": "20", "grace_s": "5"}
DEFAULTS = {name: str(getattr(ServedModel(), name)) for name in services.DEFAULTS if name != "rows_independent"}


def test_the_pages_add_change_and_remove_a_repository(browser: Browser, admin: Actor) -> None:
    client = browser("model manager")
    shop = accounts.create(admin, accounts.Terms(name="Shop"))
    assert "No repositories yet" in client.get("/repositories").content.decode()
    added = submit(client, "/repositories/-/add", FORM | DEFAULTS | {"replicas": "3"})
    assert (added.status_code, added["Location"]) == (302, "/repositories/ark")
    ark = services.find("ark")
    assert (ark.url, ark.grace_s, ark.defaults, ark.is_noticed) == ("s3://zoo/ark", 5.0, {"replicas": 3}, True)
    page = client.get("/repositories/ark").content.decode()
    assert "not listed yet" in page
    assert "replicas: 3" in page
    form = client.get("/repositories/ark/settings").content.decode()
    assert 'value="s3://zoo/ark"' in form
    changed = FORM | DEFAULTS | {"access": "accounts", "accounts": [shop.pk], "replicas": "3"}
    assert submit(client, "/repositories/ark/settings", changed).status_code == 302
    entry = AuditEntry.objects.filter(act="repositories.manage").latest("pk")
    assert entry.after == {"access": "accounts", "accounts": [shop.pk], "models_published": 0}
    assert ">Shop</a>, and keys that name the model" in client.get("/repositories/ark").content.decode()
    assert submit(client, "/repositories/ark/settings", changed).status_code == 302
    assert AuditEntry.objects.filter(act="repositories.manage").latest("pk").pk == entry.pk, "nothing changed"
    assert submit(client, "/repositories/ark/remove", {"reason": "over"})["Location"] == "/repositories"
    assert "No repositories yet" in client.get("/repositories").content.decode()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"url": "s3://ark"}, "is outside the places"),
        ({"url": ""}, "required"),
        ({"name": "a b"}, "letters, digits"),
        ({"access": "accounts"}, "name one or more"),
        ({"settle_s": "-1"}, "0 to 31536000 seconds"),
        ({"replicas": "-1"}, "greater than or equal to 0"),
    ],
)
def test_the_form_says_at_the_field_what_is_wrong(browser: Browser, fields: dict[str, str], words: str) -> None:
    client = browser("admin")
    answer = submit(client, "/repositories/-/add", FORM | DEFAULTS | fields)
    page = answer.content.decode()
    assert (answer.status_code, page.count('class="errors"')) == (400, 1)
    assert words in page
    assert not Repository.objects.exists()


def test_the_page_shows_what_is_wrong_what_was_refused_and_why(browser: Browser, zoo: Repository) -> None:
    client, now = browser("viewer"), timezone.now()
    alarm = "The listing failed: nothing that has vanished is withdrawn."
    row = Listing.objects.create(repository=zoo, tried_at=now, error="Its credentials are refused.", alarm=alarm)
    for url in ("/repositories", "/repositories/zoo"):
        page = client.get(url).content.decode()
        assert "cannot be listed" in page
        assert "Its credentials are refused." in page
        assert "is withdrawn" not in page, "there is nothing yet, and one message is enough"
    assert "/repositories/zoo/settings" not in client.get("/repositories/zoo").content.decode()
    row.error, row.alarm, row.listed_at, row.models_found = "", "Half of it is gone.", now, 1
    row.refused, row.refusals = {"<b>/1": "No model's name."}, 250
    row.save()
    brought(zoo, "cat")
    page = client.get("/repositories/zoo").content.decode()
    assert "Half of it is gone." in page
    assert "nothing is withdrawn" in page
    assert "the first 1 of 250" in page
    assert "&lt;b&gt;/1" in page
    assert 'href="/models/cat"' in page
    assert client.get("/repositories/none").status_code == 404
    row.alarm = ""
    row.save()
    assert ">listed<" in client.get("/repositories").content.decode()


def test_the_page_of_uploads_leads_to_an_upload_and_offers_no_removal(browser: Browser) -> None:
    services.sync_roots()
    page = browser("model manager").get("/repositories/uploads").content.decode()
    assert 'href="/models/-/upload"' in page
    assert "/repositories/uploads/remove" not in page, "it is a place of the settings"


def test_models_are_paged_searched_and_filtered_on_their_page(browser: Browser, zoo: Repository) -> None:
    client = browser("viewer")
    for number in range(60):
        brought(zoo, f"cat-{number:02}")
    ServedModel.objects.create(name="dog", base_path="/nowhere", is_enabled=False)
    first = client.get("/models").content.decode()
    assert ("cat-49<" in first, "cat-50<" in first, "61 models" in first) == (True, False, True)
    assert 'href="?q=&amp;repository=&amp;state=&amp;after=cat-49"' in first
    second = client.get("/models?after=cat-49").content.decode()
    assert ("cat-50<" in second, "dog<" in second, "First page" in second) == (True, True, True)
    for query, found in (("repository=-", ["dog"]), ("q=t-07", ["cat-07"]), ("state=disabled", ["dog"])):
        page = client.get(f"/models?{query}").content.decode()
        assert re.findall(r'class="row-link" href="/models/([^"]+)"', page) == found
    assert "No models match" in client.get("/models?q=nothing").content.decode()
    assert client.get("/models?state=happy").status_code == 400
    shown = client.get("/models/cat-00").content.decode()
    assert 'the repository <a href="/repositories/zoo">zoo</a>' in shown
    assert "not yet" in shown, "no host has its bytes"


def test_the_page_of_a_version_shows_its_files_and_says_why_it_cannot(
    browser: Browser, admin: Actor, base: Path, zoo: Repository
) -> None:
    registration.register(admin, "digits", str(base))
    brought(zoo, "cat")
    client = browser("viewer")
    page = client.get("/models/digits/versions/2").content.decode()
    for words in ("saved_model.pb", "d" * 64, str(base / "2"), "1 file, 1 B"):
        assert words in page
    away = client.get("/models/cat/versions/3")
    assert (away.status_code, 'class="message message-warning"' in away.content.decode()) == (200, True)
    assert [client.get(f"/models/{path}").status_code for path in ("cat/versions/4", "none/versions/1")] == [404, 404]


def test_an_act_of_a_repository_fits_into_the_audit_however_long_its_name_is(admin: Actor, base: Path) -> None:
    registration.register(system_actor(f"repository:{'x' * services.MOST_NAME}"), "digits", str(base))
    entry = AuditEntry.objects.get(act="models.register")
    # SQLite asks nobody for lengths, PostgreSQL does.
    entry.clean_fields(exclude=["reason", "before", "user", "actor"])
