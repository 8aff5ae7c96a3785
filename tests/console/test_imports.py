"""Configurations of TensorFlow Serving: read by the inspector, made so, and what became of each field is said."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client

from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog import imports, inspection, selection, targets
from console.catalog.imports import Imported
from console.catalog.models import ServedModel
from console.outbox.models import OutboxEntry
from console.repositories.models import Repository
from console.splits import acts
from signalbox.program.errors import InvalidRequest
from signalbox.wire.servingconfig import ServingBatching, ServingConfig, ServingModel
from tests.console.conftest import Call
from tests.console.test_models import brought, published

Browser = Callable[[str], Client]
BATCHING = """
max_batch_size { value: 128 }
batch_timeout_micros { value: 5000 }
max_enqueued_batches { value: 10 }
num_batch_threads { value: 8 }
"""


def documented(base: Path) -> str:
    """As TensorFlow Serving's own pages write it."""
    return f"""
    model_config_list {{
      config {{
        name: 'digits'
        base_path: '{base}/'
        model_platform: 'tensorflow'
        model_version_policy {{ specific {{ versions: 1 versions: 2 }} }}
        version_labels {{ key: 'stable' value: 1 }}
        version_labels {{ key: 'canary' value: 2 }}
        logging_config {{ log_collector_config {{ type: 'x' }} }}
      }}
      config: {{ name: "torch", base_path: "/nowhere" model_platform: "pytorch" }}
    }}
    """


def test_the_documented_files_are_imported_and_say_what_became_of_each_field(
    base: Path, call: Callable[[str], Call]
) -> None:
    program = call("model manager")
    body = {"config": documented(base), "batching": BATCHING}
    answer = program("post", "imports", body)
    assert answer.status_code == 200, answer.content
    digits, torch = answer.json()["models"]
    assert digits["why"] == ""
    assert {one["field"]: one["is_taken"] for one in digits["became"]} == {
        "name": True,
        "base_path": True,
        "model_platform": True,
        "model_version_policy": True,
        "version_labels.stable": True,
        "version_labels.canary": True,
        "logging_config": False,
        "batching": True,
        "max_batch_size": True,
        "batch_timeout_micros": True,
        "max_enqueued_batches": True,
        "num_batch_threads": False,
    }
    assert torch["why"] == "model_platform: pytorch is not served, only tensorflow is."
    shown = program("get", "models/digits").json()
    assert shown["labels"] == {"stable": 1, "canary": 2}
    assert shown["policy"] == {"kind": "specific", "versions": [1, 2]}
    assert (shown["max_batch_size"], shown["max_batch_delay_ms"], shown["max_queue"]) == (128, 5.0, 1280)
    assert shown["rows_independent"] is True
    assert shown["imported"]["labels"] == {"stable": 1, "canary": 2}
    posted, audited = OutboxEntry.objects.count(), AuditEntry.objects.count()
    assert program("post", "imports", body).json() == answer.json()
    assert OutboxEntry.objects.count() == posted
    assert AuditEntry.objects.count() == audited


def imported(actor: Actor, *models: ServingModel, batching: ServingBatching | None = None) -> list[Imported]:
    return imports.carry_out(actor, ServingConfig(models=models, batching=batching))


def test_run_again_an_import_changes_only_what_differs(admin: Actor, base: Path) -> None:
    one = ServingModel(name="digits", base_path=str(base), labels={"stable": 1})
    imported(admin, one)
    assert (published().default_version, published().labels) == (2, {"stable": 1})
    targets.set_label(admin, "digits", "mine", 2)
    (base / "3").mkdir()
    (base / "3" / "saved_model.pb").write_bytes(b"x")
    imported(admin, ServingModel(name="digits", base_path=str(base), labels={"canary": 3}, latest=2))
    assert published().labels == {"mine": 2, "canary": 3}, (
        "what the import before set is gone, what a person set is not"
    )
    assert ServedModel.objects.get().policy == {"kind": "latest", "count": 2}
    assert [one.number for one in ServedModel.objects.get().selected()] == [2, 3]


def test_without_a_version_policy_the_latest_is_served_as_in_tensorflow_serving(admin: Actor, base: Path) -> None:
    imported(admin, ServingModel(name="digits", base_path=str(base)))
    assert [one.version for one in published().versions] == [2]
    imported(admin, ServingModel(name="digits", base_path=str(base), is_all=True))
    assert [one.version for one in published().versions] == [1, 2]


def test_a_field_that_is_refused_costs_that_field_alone(admin: Actor, base: Path) -> None:
    one = ServingModel(name="digits", base_path=str(base), labels={"stable": 9, "canary": 2}, is_all=True)
    (found,) = imported(admin, one)
    assert [(each.field, each.what) for each in found.became if not each.is_taken] == [
        ("version_labels.stable", "digits has no version 9.")
    ]
    assert published().labels == {"canary": 2}


def test_a_label_that_could_not_be_taken_away_is_by_the_next_import(admin: Actor, base: Path) -> None:
    one = ServingModel(name="digits", base_path=str(base), labels={"stable": 1}, is_all=True)
    imported(admin, one)
    acts.set_split(admin, "digits", "stable", 2, 0.5)
    without = ServingModel(name="digits", base_path=str(base), is_all=True)
    (found,) = imported(admin, without)
    assert [each.field for each in found.became if not each.is_taken] == ["version_labels.stable"]
    acts.roll_back(admin, "digits", "stable")
    imported(admin, without)
    assert published().labels == {}


def test_labels_that_cannot_be_one_are_refused_and_not_kept(admin: Actor, base: Path) -> None:
    (found,) = imported(admin, ServingModel(name="digits", base_path=str(base), labels={"a\0b": 2, "stable": 2}))
    assert [each.field for each in found.became if not each.is_taken] == ["version_labels.a\0b"]
    assert ServedModel.objects.get().imported["labels"] == {"stable": 2}


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (ServingModel(name="../x", base_path="/m"), "A model's name is letters"),
        (ServingModel(name="m", base_path="models/m"), "Give an absolute path"),
        (ServingModel(name="m", base_path="/nowhere/m"), "is no folder on the console's machine"),
        (ServingModel(name="m", base_path="/m\0"), "cannot be the path of a folder"),
        (ServingModel(name="m", base_path=f"/{'m' * 300}"), "cannot be the path of a folder"),
        (ServingModel(name="m", base_path="s3://bucket/all/m"), "Add a repository with the URL s3://bucket/all,"),
        (ServingModel(name="m", base_path="/m", labels=dict.fromkeys(map(str, range(101)), 1)), "at most 100 are read"),
        (ServingModel(name="m", base_path="/m", kind="other"), "model_platform: other is not served"),
        (ServingModel(name="m", base_path="/m", specific=tuple(range(65))), "policy: versions is a list of 1 to 64"),
    ],
)
def test_a_model_that_cannot_be_served_is_refused_with_the_reason(admin: Actor, one: ServingModel, why: str) -> None:
    (found,) = imported(admin, one)
    assert why in found.why
    assert not ServedModel.objects.exists()


def test_a_name_that_stands_there_twice_is_refused(admin: Actor) -> None:
    with pytest.raises(InvalidRequest, match="twice: m"):
        imported(admin, ServingModel(name="m"), ServingModel(name="m"))


def test_a_model_of_an_object_store_waits_for_its_repository_and_gets_policy_and_labels_then(admin: Actor) -> None:
    one = ServingModel(name="digits", base_path="s3://models/digits/", specific=(1,), labels={"stable": 1})
    Repository.objects.create(name="store", url="s3://models", added_by="ann", changed_by="ann")
    (found,) = imported(admin, one)
    assert found.why.endswith("the repository store has not brought digits yet. Import again once it has.")
    brought(1, 2)
    (found,) = imported(admin, one)
    assert (found.why, all(each.is_taken for each in found.became)) == ("", True)
    assert [each.number for each in ServedModel.objects.get().selected()] == [1]
    (found,) = imported(admin, ServingModel(name="digits", base_path="s3://other/digits"))
    assert "whose versions repository store brings. They lie in s3://models/digits" in found.why


def test_a_broken_file_is_refused_with_its_name_and_line(call: Callable[[str], Call]) -> None:
    program = call("model manager")
    for body, why in (
        ({"config": "model_config_list {\n  config { nam"}, "models.config: Line 2"),
        ({"config": "model_config_list { }"}, "models.config: has a model_config_list of 1 to 1000 models"),
        ({"config": "custom_model_config { }"}, "custom_model_config is not read"),
        (
            {"config": "model_config_list { config { name: 'm' } }", "batching": "max_batch_size: 3"},
            "batching.config: Li",
        ),
        ({"config": ""}, "blank"),
    ):
        answer = program("post", "imports", body)
        assert answer.status_code == 400, answer.content
        assert why in json.dumps(answer.json()), answer.content
    assert call("viewer")("post", "imports", {"config": "model_config_list {}"}).status_code == 403


def test_a_text_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        inspection.inspect_serving("a {" * 10_000, "")


def test_the_page_says_that_a_model_was_imported(admin: Actor, base: Path, browser: Browser) -> None:
    imported(admin, ServingModel(name="digits", base_path=str(base)))
    assert b"imported from a configuration of TensorFlow Serving" in browser("viewer").get("/models/digits").content
    assert selection.set_policy(admin, "digits", {"kind": "all"}).imported
