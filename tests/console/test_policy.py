"""Which versions are served: the policy of a model, and what changes it."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.catalog import policy, registration, selection, targets
from console.catalog.models import ModelConfig, ServedModel
from console.catalog.triton import FoundConfig
from console.catalog.versions import Candidate
from console.controller import readiness, retiring
from console.jobs.models import Job
from console.outbox.models import OutboxEntry
from console.repositories.models import Repository
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.program.errors import Conflict, InvalidRequest
from signalbox.repositories.triton import TritonConfig
from signalbox.wire.modeldocs import Serving
from signalbox.wire.names import Bucket, token
from tests.console.conftest import FOUND, Call, in_thread, submit
from tests.console.test_jobs import make
from tests.console.test_models import published

Browser = Callable[[str], Client]
READY = {1: True, 2: True, 3: False, 4: True, 5: False}


@pytest.mark.parametrize(
    ("chosen", "versions"),
    [
        (policy.everything(), {1, 2, 3, 4, 5}),
        (policy.latest(1), {4, 5}),
        (policy.latest(2), {2, 4, 5}),
        (policy.latest(9), {1, 2, 3, 4, 5}),
        (policy.specific([2, 7]), {2}),
    ],
)
def test_older_versions_stay_until_newer_ones_are_ready(chosen: dict[str, Any], versions: set[int]) -> None:
    assert policy.selected(chosen, READY) == versions


@given(st.dictionaries(st.integers(0, 30), st.booleans()), st.integers(1, 5))
def test_the_latest_are_the_highest_once_all_are_ready(ready: dict[int, bool], count: int) -> None:
    chosen = policy.latest(count)
    assert policy.selected(chosen, dict.fromkeys(ready, True)) == set(sorted(ready)[-count:])
    assert policy.selected(chosen, ready) >= set(sorted(ready)[-count:])
    assert len(policy.selected(chosen, ready)) <= 2 * count


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"kind": "newest"},
        {"kind": "all", "count": 1},
        {"kind": "latest"},
        {"kind": "latest", "count": 0},
        {"kind": "latest", "count": 65},
        {"kind": "latest", "count": True},
        {"kind": "specific", "versions": []},
        {"kind": "specific", "versions": "12"},
        {"kind": "specific", "versions": [-1]},
        {"kind": "specific", "versions": [2**63]},
        {"kind": "specific", "versions": list(range(65))},
    ],
)
def test_what_is_no_policy_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="policy: "):
        policy.checked(given)


def numbers() -> Sequence[int]:
    return [one.version for one in published().versions]


def retired() -> Sequence[int]:
    """What is published once nothing needs the versions that retire."""
    model = ServedModel.objects.get()
    selection.retire(model.name, [int(number) for number in model.retiring])
    return numbers()


def register_third(admin: Actor, base: Path) -> None:
    (base / "3").mkdir()
    (base / "3" / "saved_model.pb").write_bytes(b"x")
    registration.register(admin, "digits", str(base))


def test_of_the_latest_the_old_one_leaves_when_the_new_one_was_ready(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    readiness.note([("digits", 1), ("digits", 2)])
    selection.set_policy(admin, "digits", {"kind": "latest", "count": 1})
    assert (numbers(), retired()) == ([1, 2], [2])
    register_third(admin, base)
    assert (retired(), published().default_version) == ([2, 3], 3)
    readiness.note([("digits", 3)])
    assert (numbers(), published().default_version) == ([2, 3], 3), "an accepted job may need it"
    assert (retired(), published().default_version) == ([3], 3)
    posted = OutboxEntry.objects.count()
    readiness.note([("digits", 3), ("digits", 2), ("gone", 1)])
    assert OutboxEntry.objects.count() == posted


def test_readiness_publishes_nothing_where_all_are_served(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    posted = OutboxEntry.objects.count()
    readiness.note([("digits", 1), ("digits", 2)])
    assert OutboxEntry.objects.count() == posted
    assert all(version.first_ready_at for version in ServedModel.objects.get().versions.all())


def test_what_the_default_or_a_label_names_is_served_whatever_the_policy_says(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    register_third(admin, base)
    targets.set_label(admin, "digits", "stable", 1)
    selection.set_policy(admin, "digits", {"kind": "specific", "versions": [3]})
    assert retired() == [1, 3]
    targets.set_default(admin, "digits", 2)
    assert numbers() == [1, 2, 3]
    targets.set_default(admin, "digits", None)
    targets.set_label(admin, "digits", "stable", None)
    assert published().default_version == 3
    assert (numbers(), retired()) == ([1, 2, 3], [3])


def test_a_version_that_retires_and_is_selected_again_stays(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    selection.set_policy(admin, "digits", {"kind": "specific", "versions": [1]})
    assert published().default_version == 1, "requests that name no version get none that retires"
    selection.set_policy(admin, "digits", {"kind": "all"})
    selection.retire("digits", [2])
    assert (numbers(), ServedModel.objects.get().retiring) == ([1, 2], {})


@pytest.mark.django_db(transaction=True)
async def test_a_version_retires_when_requests_get_another_one_and_its_jobs_have_ended(bus: Bus, base: Path) -> None:
    me = system_actor("tests")
    await in_thread(registration.register, me, "digits", str(base))
    await in_thread(selection.set_policy, me, "digits", {"kind": "specific", "versions": [2]})
    job = await in_thread(lambda: make(1, model="digits", version=1, state="queued"))
    at_once = timedelta(0)

    async def after() -> Sequence[int]:
        await retiring.retire(bus, "digits", seen_after=at_once)
        return await in_thread(numbers)

    await retiring.retire(bus, "digits")
    assert await after() == [1, 2], "a job waits for it"
    await in_thread(lambda: Job.objects.filter(pk=job.pk).update(state="succeeded"))
    await retiring.retire(bus, "digits")
    assert await in_thread(numbers) == [1, 2], "the rows may lack a job that was accepted just now"
    await put(bus, Bucket.SERVING, token("digits"), Serving(publication=1, default=1))
    assert await after() == [1, 2], "requests get it"
    await put(bus, Bucket.SERVING, token("digits"), Serving(publication=1, default=2))
    assert await after() == [2]


@pytest.mark.django_db(transaction=True)
async def test_a_version_goes_after_the_times_of_the_jobs_that_were_accepted_for_it(bus: Bus, base: Path) -> None:
    me = system_actor("tests")
    await in_thread(registration.register, me, "digits", str(base))
    await in_thread(selection.set_policy, me, "digits", {"kind": "specific", "versions": [2]})
    await in_thread(lambda: make(1, model="digits", version=1, state="queued"))
    await in_thread(lambda: ServedModel.objects.update(retiring={"1": time.time() - 961}))
    await retiring.retire(bus, "digits")
    assert await in_thread(numbers) == [2]


def test_a_policy_that_leaves_no_version_is_refused_and_one_is_audited(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    with pytest.raises(Conflict, match="only 7 leaves no version of digits"):
        selection.set_policy(admin, "digits", {"kind": "specific", "versions": [7]})
    selection.set_policy(admin, "digits", {"kind": "specific", "versions": [1]}, reason="2 is wrong")
    entry = AuditEntry.objects.filter(act="models.rollout").latest("pk")
    assert (entry.before["versions"], entry.after["versions"], entry.reason) == ([1, 2], [1], "2 is wrong")


def test_the_page_and_rest_change_the_policy_and_say_why_versions_are_not_served(
    admin: Actor, base: Path, browser: Browser, call: Callable[[str], Call]
) -> None:
    registration.register(admin, "digits", str(base))
    client = browser("model manager")
    readiness.note([("digits", 1), ("digits", 2)])
    sent = submit(client, "/models/digits/policy", {"kind": "latest", "count": "1", "versions": ""})
    assert sent.status_code == 302
    page = client.get("/models/digits").content.decode()
    assert "leaves once no accepted job needs it" in page
    retired()
    page = client.get("/models/digits").content.decode()
    assert "not served" in page
    assert "newer ones are: 1 version at most" in page
    assert submit(client, "/models/digits/policy", {"kind": "specific", "versions": "one"}).status_code == 400
    submit(client, "/models/digits/policy", {"kind": "specific", "versions": "1, 2"})
    assert numbers() == [1, 2]
    program = call("model manager")
    shown = program("put", "models/digits/policy", {"kind": "specific", "versions": [1], "reason": "back"}).json()
    assert shown["policy"] == {"kind": "specific", "versions": [1]}
    assert shown["unserved"] == {"2": "the policy names only 1; it leaves once no accepted job needs it"}
    assert program("put", "models/digits/policy", {"kind": "latest"}).status_code == 400
    assert program("put", "models/nothing/policy", {"kind": "all"}).status_code == 404
    assert browser("viewer").post("/models/digits/policy", {"kind": "all"}).status_code == 403


def test_a_new_model_of_a_repository_has_the_version_policy_of_its_config_file(db: None) -> None:
    repository = Repository.objects.create(name="store", url="s3://models", added_by="ann", changed_by="ann")
    config = TritonConfig(fields=("version_policy",), latest=1)
    new = {number: Candidate(f"s3://models/digits/{number}", FOUND, f"manifest {number}") for number in (1, 2)}
    registration.register_found(
        system_actor("repository:store"),
        repository,
        "digits",
        "s3://models/digits",
        new,
        FoundConfig("f" * 64, config),
    )
    assert numbers() == [2]
    assert ModelConfig.objects.get().model.policy == {"kind": "latest", "count": 1}
