"""The audit's filter and pages, on the page and over REST."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from console.audit import listing, query
from console.audit.models import AuditEntry
from signalbox.program.errors import InvalidRequest

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
Browser = Callable[[str], Client]


@pytest.fixture
def rows(db: None) -> dict[str, AuditEntry]:
    """Four acts of two operators, one each day, the last today."""
    made = [
        ("anna", "models.settings", "model", "digits", "faster", "done"),
        ("anna", "queues.pause", "model", "mnist", "new driver", "done"),
        ("bert", "keys.manage", "key", "k1", "leaked, they say", "done"),
        ("bert", "models.rollout", "model", "digits", "", "refused"),
    ]
    found = {}
    for number, (actor, act, kind, target, reason, result) in enumerate(made):
        found[f"{actor} {act}"] = AuditEntry.objects.create(
            at=NOW - timedelta(days=3 - number, hours=1),
            actor_name=actor,
            via="web",
            act=act,
            target_kind=kind,
            target=target,
            reason=reason,
            result=result,
            after={"replicas": 2},
        )
    return found


def matching(text: str) -> list[str]:
    """What a filter finds, the oldest first."""
    return [f"{row.actor_name} {row.act}" for row in reversed(listing.page(query.parse(text, NOW)).entries)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "anna models.settings,anna queues.pause,bert keys.manage,bert models.rollout"),
        ("actor:ann", "anna models.settings,anna queues.pause"),
        ("-actor:ann", "bert keys.manage,bert models.rollout"),
        ("act:models", "anna models.settings,bert models.rollout"),
        ("act:queues.pause,keys.manage", "anna queues.pause,bert keys.manage"),
        ("kind:key", "bert keys.manage"),
        ("kind:model target:digits", "anna models.settings,bert models.rollout"),
        ("result:refused", "bert models.rollout"),
        ('reason:"new driver"', "anna queues.pause"),
        ('reason:"leaked, they"', "bert keys.manage"),
        ("digits actor:bert", "bert models.rollout"),
        ("at:<2h", "bert models.rollout"),
        ("at:>3d", "anna models.settings"),
        ("at:2026-11-27", "anna queues.pause"),
        ("at:2026-11-27..2026-11-28", "anna queues.pause,bert keys.manage"),
        ("at:2026-11-28T11:00..", "bert keys.manage,bert models.rollout"),
        ("at:..2026-11-26", "anna models.settings"),
        ("at:>2d at:<3d", "anna queues.pause"),
        ("nobody", ""),
    ],
)
def test_a_filter_finds_what_it_says(rows: dict[str, AuditEntry], text: str, found: str) -> None:
    assert matching(text) == [one for one in found.split(",") if one]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("actr:anna", "did you mean actor:"),
        ("act:models.setings", "Did you mean models.settings?"),
        ("kind:gpu", "Known: account"),
        ("result:lost", "Known: done"),
        ("actor:", "has no value"),
        ("at:yesterday", "is an age"),
        ("at:2026-13-40", "is an age"),
        ("at:..", "is an age"),
        ("-at:<2h", "has no opposite"),
        ("at:<99999999d", "is an age"),
        ("at:<99999d", "goes back at most"),
        ("x " * 21, "at most 20 words"),
        ("x" * 2001, "at most 2000 characters"),
        ("actor:" + ",".join("abcdefghijk"), "at most 10 values"),
    ],
)
def test_what_is_not_understood_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(InvalidRequest, match=hint):
        query.parse(text, NOW)


def test_pages_follow_one_another_to_the_end_and_look_through_a_bounded_number_of_rows(
    rows: dict[str, AuditEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = query.parse("actor:anna", NOW)
    first = listing.page(asked, size=1)
    assert [row.act for row in first.entries] == ["queues.pause"]
    second = listing.page(asked, size=1, before=first.older)
    assert ([row.act for row in second.entries], second.older) == (["models.settings"], 0)
    monkeypatch.setattr(listing, "SCAN", 2)
    cut = listing.page(asked)
    assert (cut.entries, cut.searched_to) == ([], rows["bert keys.manage"].at)
    rest = listing.page(asked, before=cut.older)
    assert [row.act for row in rest.entries] == ["queues.pause", "models.settings"]
    monkeypatch.undo()
    whole = listing.page(asked)  # the ids of a PostgreSQL that has had others do not begin at 1
    assert (len(whole.entries), whole.older, whole.searched_to) == (2, 0, None)


def test_the_page_keeps_its_filter_in_the_url_and_offers_its_files(
    browser: Browser, rows: dict[str, AuditEntry]
) -> None:
    page = browser("operator").get("/audit", {"q": "actor:anna", "act": "queues.pause"}).content.decode()
    assert "new driver" in page
    assert "faster" not in page
    assert "/exports/audit.csv?q=actor%3Aanna+act%3Aqueues.pause" in page
    refused = browser("operator").get("/audit", {"q": "actr:anna"})
    assert (refused.status_code, b"did you mean actor:" in refused.content) == (400, True)


def test_rest_filters_as_the_page_does_and_says_changes_in_words(call: Any, rows: dict[str, AuditEntry]) -> None:
    api = call("operator")
    found = api("get", "audit?q=actor:anna&act=models&size=1").json()
    (entry,) = found["entries"]
    assert (entry["target"], entry["changes"]) == ("digits", [{"what": "replicas", "before": "", "after": "2"}])
    assert found["older"] == 0
    assert api("get", "audit?reason=new%20driver").json()["entries"][0]["act"] == "queues.pause"
    newest = api("get", "audit?size=2&kind=model").json()
    (oldest,) = api("get", f"audit?size=2&kind=model&before={newest['older']}").json()["entries"]
    assert oldest["act"] == "models.settings"
    assert api("get", "audit?actr=anna").status_code == 400
    assert api("get", "audit?q=actr:anna").status_code == 400
