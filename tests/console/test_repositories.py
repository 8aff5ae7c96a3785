"""Repositories: who may add them and where, whom they let in, and what the pages and the REST API show of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from msgspec.structs import replace

from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog.models import ModelVersion, ServedModel
from console.config import ConsoleSettings
from console.keys import accounts
from console.operators import services as operators
from console.outbox.models import OutboxEntry
from console.repositories import services
from console.repositories.models import Repository
from console.repositories.services import Terms
from signalbox.program.errors import Conflict, Forbidden, InvalidRequest, Misconfigured, NotFound
from signalbox.wire import messages

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


def published() -> dict[str, messages.Access]:
    """Who may call each model, as its newest document says it."""
    rows = OutboxEntry.objects.filter(bucket="models").order_by("pk")
    return {row.subject_name: messages.decode(messages.Model, row.body).access for row in rows}


def test_a_repository_is_private_until_its_owner_says_otherwise(admin: Actor, zoo: Repository) -> None:
    assert (zoo.url, zoo.access, zoo.is_noticed, zoo.added_by, zoo.changed_by) == (ZOO, "private", True, *["admin"] * 2)
    assert zoo.grant == messages.Access(is_open=False)
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
    assert set(published().values()) == {messages.Access(is_open=False, accounts=(shop.pk,))}
    entry = AuditEntry.objects.get(act="repositories.manage", reason="they pay")
    assert entry.before == {"access": "private", "accounts": []}
    assert entry.after == {"access": "accounts", "accounts": [shop.pk], "models_published": 450}
    services.change(admin, "zoo", {"access": "everybody", "accounts": []})
    assert set(published().values()) == {messages.Access()}


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


def test_a_repository_with_models_is_not_removed_and_they_are_named(admin: Actor, zoo: Repository) -> None:
    for number in range(6):
        brought(zoo, f"cat-{number}")
    with pytest.raises(Conflict, match=r"zoo has models: cat-0, .*, cat-4 and others. Stop noticing it"):
        services.remove(admin, "zoo")
    ServedModel.objects.all().delete()
    services.remove(admin, "zoo", reason="over")
    with pytest.raises(NotFound):
        services.find("zoo")
    assert AuditEntry.objects.get(reason="over").before["url"] == ZOO
    with pytest.raises(NotFound):
        services.remove(admin, "zoo")


def test_who_may_not_manage_and_read_only_are_refused(cast: dict[str, User], admin: Actor, zoo: Repository) -> None:
    operator = Actor(user=cast["operator"], via="tests")
    for refused in (
        lambda: services.add(operator, "ark", Terms(url="s3://zoo/ark")),
        lambda: services.change(operator, "zoo", {"access": "everybody"}),
        lambda: services.remove(operator, "zoo"),
    ):
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
            services.remove(admin, name)


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
    assert any("'gs'" in problem for problem in replace(console, repository_roots=("gs=/x",)).problems())
