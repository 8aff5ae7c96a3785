"""Repositories that are deleted: with their models, and back; what refuses it; who gets the names after that."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from msgspec.structs import replace

from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.catalog import registration
from console.catalog.models import ModelVersion, ServedModel
from console.catalog.versions import Candidate
from console.config import ConsoleSettings
from console.deletion import listing, versions, wholemodels
from console.noticing import rows
from console.repositories import removal, services
from console.repositories.models import Repository
from console.repositories.services import Terms
from signalbox.program.errors import Conflict, NotFound
from tests.console.conftest import FOUND
from tests.console.test_jobs import make

ZOO = "s3://zoo/models"


@pytest.fixture(autouse=True)
def allowed(console: ConsoleSettings, settings: Any) -> None:
    """A deployer who lets operators use one bucket."""
    settings.CONSOLE = replace(console, repository_urls=("s3://zoo",))


@pytest.fixture
def zoo(admin: Actor) -> Repository:
    return services.add(admin, "zoo", Terms(url=ZOO))


def brought(repository: Repository, name: str, number: int = 1) -> None:
    """Noticing finds a version."""
    found = {number: Candidate(f"{ZOO}/{name}/{number}", replace(FOUND, digest=""), f"manifest {number}")}
    registration.register_found(system_actor("repository:zoo"), repository, name, f"{ZOO}/{name}", found)


def test_a_deleted_repository_is_listed_no_more_and_comes_back_with_its_models(admin: Actor, zoo: Repository) -> None:
    for name in ("cat", "dog"):
        brought(zoo, name)
    brought(zoo, "cat", 2)
    versions.delete_version(admin, "cat", 2)
    wholemodels.delete_model(admin, "dog")
    brought(zoo, "cow")
    removal.delete(admin, "zoo", reason="over")
    assert AuditEntry.objects.get(reason="over").before["url"] == ZOO
    with pytest.raises(NotFound):
        services.find("zoo")
    with pytest.raises(NotFound, match="Repository zoo was deleted by admin"):
        removal.delete(admin, "zoo")
    assert rows.noticed() == []
    assert not ServedModel.objects.exists()
    with pytest.raises(Conflict, match="cow was deleted with the repository zoo"):
        wholemodels.undo_model(admin, "cow")
    with pytest.raises(Conflict, match="The repository zoo was deleted"):
        brought(zoo, "new")
    assert [one.what for one in listing.undoable()] == ["repository zoo"]

    assert removal.undo(admin, "zoo").name == "zoo"
    assert [one.name for one in rows.noticed()] == ["zoo"]
    assert list(ServedModel.objects.values_list("name", flat=True)) == ["cat", "cow"]
    assert [one.what for one in listing.undoable()] == ["model dog", "version 2 of cat"], "as before"
    with pytest.raises(NotFound, match="repository zoo is not deleted"):
        removal.undo(admin, "zoo")


def test_a_repository_is_not_deleted_while_an_open_job_needs_a_model_of_it(admin: Actor, zoo: Repository) -> None:
    brought(zoo, "cat")
    make(1, model="cat", state="queued")
    with pytest.raises(Conflict, match="An open job needs it"):
        removal.delete(admin, "zoo")
    assert rows.noticed()


def test_the_name_of_a_deleted_repository_is_taken_again_after_the_day_with_free_names_and_no_old_number(
    admin: Actor, zoo: Repository
) -> None:
    brought(zoo, "cat")
    removal.delete(admin, "zoo")
    with pytest.raises(Conflict, match=r"Repository zoo was deleted by admin .* Undo the deletion"):
        services.add(admin, "zoo", Terms(url=ZOO))
    beside = services.add(admin, "beside", Terms(url=ZOO))
    assert "cat" in rows.known(beside).gone
    with pytest.raises(Conflict, match="beside lie one in the other"):
        removal.undo(admin, "zoo")
    removal.delete(admin, "beside")
    for every in (Repository, ServedModel, ModelVersion):
        every.with_deleted.exclude(deleted_at=None).update(deleted_at=timezone.now() - timedelta(days=2))
    with pytest.raises(Conflict, match="could be undone until"):
        removal.undo(admin, "zoo")
    new = services.add(admin, "zoo", Terms(url=ZOO, access="everybody"))
    assert (new.models.count(), new.access) == (0, "everybody")
    known = rows.known(new)
    assert ("cat" in known.gone, known.deleted["cat"]) == (False, {1})
