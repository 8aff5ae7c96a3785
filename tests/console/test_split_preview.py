"""Before a default, a label or a split moves, a page says who gets another version and what is different there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog import registration, targets
from console.catalog.models import ModelVersion, ServedModel
from console.feed.feed import Feed
from console.feed.running import running
from console.projector import store
from console.splits import acts, preview
from console.splits.preview import Difference, Move
from signalbox.program.errors import Conflict, InvalidRequest, NotFound
from signalbox.program.settings import Wire
from signalbox.wire.workerdocs import Residency
from tests.console.conftest import submit
from tests.console.test_live_view import worker
from tests.console.test_rollups import ended, message

Browser = Callable[[str], Client]
FLOATS: dict[str, Any] = {"dtype": "float32", "shape": [-1, 4]}


@pytest.fixture
def digits(admin: Actor, base: Path) -> ServedModel:
    """A model with versions 1, the default and ``stable``, and 2."""
    registration.register(admin, "digits", str(base))
    targets.set_default(admin, "digits", 1)
    return targets.set_label(admin, "digits", "stable", 1)


def test_another_default_moves_the_requests_that_name_none(digits: ServedModel) -> None:
    at = store._clock()
    store.apply([message(ended(n, version=1), n, at) for n in range(1, 4)], 3)
    found = preview.of_default(digits, 2)
    assert (found.moves, found.new, found.differences, found.calls) == (
        [Move("Requests without a version", 1, 2)],
        2,
        [],
        3,
    )
    highest = preview.of_default(digits, None)
    assert highest.moves == [Move("Requests without a version", 1, 2)]
    with pytest.raises(NotFound):
        preview.of_default(digits, 9)


def test_a_label_that_is_new_moved_or_taken_away(digits: ServedModel) -> None:
    assert preview.of_label(digits, "new", 2).moves == [Move("Requests by label new", None, 2)]
    assert preview.of_label(digits, "stable", 2).moves == [Move("Requests by label stable", 1, 2)]
    assert preview.of_label(digits, "stable", None).moves == [Move("Requests by label stable", 1, None)]
    with pytest.raises(InvalidRequest, match="A label is"):
        preview.of_label(digits, "no label", 2)


def test_the_end_of_a_split_moves_its_callers_alone(admin: Actor, digits: ServedModel) -> None:
    acts.set_split(admin, "digits", "", 2, 0.1)
    who = "Requests without a version"
    promotion = preview.of_split(digits, "", is_promotion=True)
    assert promotion.moves == [Move(f"{who}: 10 % of the callers", 2, 2), Move(f"{who}: the other 90 %", 1, 2)]
    rolled_back = preview.of_split(digits, "", is_promotion=False)
    assert [(move.old, move.new) for move in rolled_back.moves] == [(2, 1), (1, 1)]
    with pytest.raises(Conflict, match="Promote"):
        preview.of_default(digits, 2)
    with pytest.raises(NotFound):
        preview.of_split(digits, "stable", is_promotion=True)


def test_a_split_that_begins_or_grows_moves_part_of_the_callers(admin: Actor, digits: ServedModel) -> None:
    who = "Requests without a version"
    assert preview.of_share(digits, "", 2, 0.1).moves == [
        Move(f"{who}: 10 % of the callers", 1, 2),
        Move(f"{who}: 90 % of the callers", 1, 1),
    ]
    assert not preview.of_share(digits, "stable", 2, 0.0).is_change
    acts.set_split(admin, "digits", "", 2, 0.5)
    assert [(move.old, move.new) for move in preview.of_share(digits, "", 2, 0.8).moves] == [(1, 2), (2, 2), (1, 1)]
    less = preview.of_share(digits, "", 2, 0.0)
    assert [(move.old, move.new) for move in less.moves] == [(2, 1), (1, 1)]
    for weight in (1.1, float("nan")):
        with pytest.raises(InvalidRequest):
            preview.of_share(digits, "", 2, weight)
    with pytest.raises(NotFound):
        preview.of_share(digits, "none", 2, 0.1)


def test_a_version_in_no_device_s_memory_is_told_of(digits: ServedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not known" in preview.of_default(digits, 2).cold
    feed = Feed(Wire())
    monkeypatch.setattr(running, "feed", feed)
    monkeypatch.setattr(Feed, "is_blind", False)
    assert "loaded first" in preview.of_default(digits, 2).cold
    assert preview.of_default(digits, 1).cold == "", "nobody moves"
    for state, words in (("failed", "last load failed"), ("ready", "")):
        feed.view.presence(
            "w1", worker("w1", token=7, models=(Residency(model="digits", version=2, state=state),)), 1.0
        )
        assert words in preview.of_default(digits, 2).cold
    assert preview.of_default(digits, 2).cold == ""


@pytest.mark.parametrize(
    ("old", "new", "said", "is_breaking"),
    [
        ({"x": FLOATS}, {}, "The input x of signature f is gone.", True),
        ({}, {"x": FLOATS}, "The input x of signature f must be given now.", True),
        ({"x": FLOATS}, {"x": FLOATS | {"dtype": "int32"}}, "is int32 and no longer float32", True),
        ({"x": FLOATS}, {"x": FLOATS | {"shape": [-1, 5]}}, "[?, 5] and no longer [?, 4]", True),
        ({"x": FLOATS}, {"x": FLOATS | {"shape": [-1, -1]}}, "[?, ?] and no longer [?, 4]", False),
        ({"x": FLOATS}, {"x": FLOATS | {"shape": None}}, "of any rank", False),
        ({"x": FLOATS | {"shape": None}}, {"x": FLOATS}, "no longer of any rank", True),
    ],
)
def test_inputs_may_become_wider_and_nothing_else(
    old: dict[str, Any], new: dict[str, Any], said: str, *, is_breaking: bool
) -> None:
    before, after = (ModelVersion(signatures={"f": {"inputs": one, "outputs": {}}}) for one in (old, new))
    [found] = preview.compare(before, after)
    assert (said in found.text, found.is_breaking) == (True, is_breaking)


def test_outputs_may_become_narrower_and_signatures_may_come() -> None:
    wide, narrow = {"y": FLOATS | {"shape": [-1, -1]}}, {"y": FLOATS}
    before = ModelVersion(signatures={"f": {"inputs": {}, "outputs": wide}, "g": {"inputs": {}, "outputs": {}}})
    after = ModelVersion(signatures={"f": {"inputs": {}, "outputs": narrow}, "h": {"inputs": {}, "outputs": {}}})
    assert [one.is_breaking for one in preview.compare(before, after)] == [True, False, False]
    back = list(preview.compare(after, before))
    assert back[-1] == Difference(
        "The output y of signature f has the shape [?, ?] and no longer [?, 4].", is_breaking=True
    )


def test_the_page_does_what_it_shows(browser: Browser, digits: ServedModel) -> None:
    ModelVersion.objects.filter(number=2).update(signatures={"other": {"inputs": {}, "outputs": {}}})
    client = browser("model manager")
    page = client.get("/models/digits/move?what=default&version=2").content.decode()
    assert "Signature serving_default is gone." in page
    assert "breaks calls" in page
    assert submit(client, "/models/digits/default", {"version": "2", "reason": "it is better"}).status_code == 302
    assert AuditEntry.objects.latest("pk").reason == "it is better"
    assert (
        "Nobody gets another version"
        in client.get("/models/digits/move?what=label&label=new&version=1").content.decode()
    )
    assert "Roll back: version 1" in client.get("/models/digits/move?what=default&version=1").content.decode()
    split = client.get("/models/digits/move?what=split&candidate=1&percent=10&shadow=5&header=X-User").content.decode()
    assert all(
        f'name="{field}" value="{value}"' in split for field, value in {"shadow": "5", "header": "X-User"}.items()
    )
    assert client.get("/models/digits/move?what=sideways").status_code == 400
    assert browser("operator").get("/models/digits/move?what=default&version=1").status_code == 403
