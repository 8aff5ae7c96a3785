"""Deletions that meet other acts at the same moment: one of the two counts, and the other says so."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from console.accounts.rights import Actor
from console.catalog import lookup, modelsettings, registration, selection, targets
from console.catalog.models import ModelVersion, ServedModel
from console.deletion import listing, versions, wholemodels
from console.repositories import removal
from signalbox.program.errors import NotFound, SignalboxError
from tests.console.test_deletion import numbers, removed
from tests.console.test_models import brought

pytestmark = pytest.mark.django_db(transaction=True)
Act = Callable[[], Any]


@pytest.fixture
def digits(admin: Actor, base: Path) -> ServedModel:
    """A model with versions 1 and 2; 2 is the default, as the highest."""
    return registration.register(admin, "digits", str(base))


def together(*acts: Act) -> list[str]:
    """What became of acts that begin at the same moment: ``done``, or the name of the refusal."""
    ready = threading.Barrier(len(acts))
    outcomes = [""] * len(acts)

    def run(number: int) -> None:
        ready.wait()
        try:
            acts[number]()
            outcomes[number] = "done"
        except SignalboxError as error:
            outcomes[number] = type(error).__name__
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(outcomes)
    return outcomes


@pytest.mark.usefixtures("digits")
def test_of_two_operators_one_deletes_a_version_and_one_brings_it_back(admin: Actor) -> None:
    assert sorted(together(*[lambda: versions.delete_version(admin, "digits", 1)] * 2)) == ["NotFound", "done"]
    assert numbers() == [2]
    assert sorted(together(*[lambda: versions.undo_version(admin, "digits", 1)] * 2)) == ["NotFound", "done"]
    assert numbers() == [1, 2]


@pytest.mark.usefixtures("digits")
def test_of_two_operators_one_deletes_a_model_and_one_brings_it_back(admin: Actor) -> None:
    assert sorted(together(*[lambda: wholemodels.delete_model(admin, "digits")] * 2)) == ["NotFound", "done"]
    assert removed()
    assert sorted(together(*[lambda: wholemodels.undo_model(admin, "digits")] * 2)) == ["NotFound", "done"]
    assert numbers() == [1, 2]


@pytest.mark.usefixtures("digits")
def test_two_versions_that_are_deleted_at_once_leave_one(admin: Actor) -> None:
    outcomes = together(*[lambda number=number: versions.delete_version(admin, "digits", number) for number in (1, 2)])
    assert sorted(outcomes) == ["Conflict", "done"]
    assert len(numbers()) == 1


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize("named_by", ["default", "label"])
def test_a_version_is_either_deleted_or_named(admin: Actor, named_by: str) -> None:
    def name() -> None:
        if named_by == "default":
            targets.set_default(admin, "digits", 1)
        else:
            targets.set_label(admin, "digits", "stable", 1)

    deleted, named = together(lambda: versions.delete_version(admin, "digits", 1), name)
    assert (deleted, named) in {("done", "NotFound"), ("Conflict", "done")}
    assert numbers() == ([2] if deleted == "done" else [1, 2])


@pytest.mark.usefixtures("digits")
def test_a_model_is_either_deleted_with_its_new_version_or_not_given_one(admin: Actor, base: Path) -> None:
    (base / "3").mkdir()
    (base / "3" / "saved_model.pb").write_bytes(b"x")
    deleted, registered = together(
        lambda: wholemodels.delete_model(admin, "digits"), lambda: registration.register(admin, "digits", str(base))
    )
    assert deleted == "done"
    assert registered in {"done", "Conflict"}
    assert removed()
    assert not ServedModel.objects.exists()
    assert not ModelVersion.objects.exists(), "a version that stays of a deleted model would come back with its name"
    assert [one.kind for one in listing.undoable()] == ["model"]


@pytest.mark.usefixtures("digits")
def test_an_act_that_waits_for_a_deletion_does_not_undo_it(admin: Actor) -> None:
    outcomes = together(
        lambda: wholemodels.delete_model(admin, "digits"),
        lambda: modelsettings.change_settings(admin, "digits", {"replicas": 2}),
        lambda: modelsettings.set_enabled(admin, "digits", is_enabled=False),
        lambda: selection.note_ready(ModelVersion.objects.filter(model__name="digits", number=1)),
    )
    assert outcomes[0] == outcomes[3] == "done"
    assert set(outcomes[1:3]) <= {"done", "NotFound"}
    assert removed()
    with pytest.raises(NotFound):
        lookup.find("digits")


@pytest.mark.usefixtures("digits")
def test_what_is_undone_and_deleted_again_at_once_ends_as_one_of_the_two(admin: Actor) -> None:
    versions.delete_version(admin, "digits", 1)
    undone, deleted = together(
        lambda: versions.undo_version(admin, "digits", 1), lambda: versions.delete_version(admin, "digits", 1)
    )
    assert undone == "done"
    assert numbers() == ([2] if deleted == "done" else [1, 2])


def test_a_model_does_not_come_back_without_its_repository(admin: Actor) -> None:
    for number in range(1, 6):
        brought(number)
        wholemodels.delete_model(admin, "digits")
        together(
            lambda: removal.delete(admin, "store"),
            lambda: wholemodels.undo_model(admin, "digits"),
        )
        assert not ServedModel.objects.filter(repository__deleted_at__isnull=False).exists()
        removal.undo(admin, "store")
        if not ServedModel.objects.exists():
            wholemodels.undo_model(admin, "digits")
