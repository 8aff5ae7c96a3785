"""The audit in words: every act and every field that a service writes has them, and no raw name is shown."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit import words
from console.audit.models import AuditEntry
from console.catalog.modelsettings import SETTINGS
from console.keys.accounts import Terms as AccountTerms
from console.keys.models import Account
from console.keys.services import KeyGrant
from console.queues.terms import Terms as QueueTerms
from console.repositories.services import Terms as RepositoryTerms

CONSOLE = Path(words.__file__).resolve().parents[1]
RECORDS = {"asked", "owner", "told"}
"""Variables of services that become what the audit says."""


def written() -> Iterator[tuple[str, str]]:
    """``(module, field)`` of everything that a service writes into the audit by a name of its own."""
    for path in sorted(CONSOLE.rglob("*.py")):
        text = path.read_text()
        if "audit.acts import" in text:
            for node in ast.walk(ast.parse(text)):
                for value in _records(node):
                    yield from ((path.name, name) for name in _names(value))


def _records(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.keyword) and node.arg == "asked":
        yield node.value
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    for target in targets:
        words_of = ast.unparse(target)
        value = getattr(node, "value", None)
        if value is not None and (words_of.endswith((".before", ".after")) or words_of in RECORDS):
            yield value
        if isinstance(target, ast.Subscript) and ast.unparse(target.value).endswith((".before", ".after")):
            yield ast.Dict([target.slice], [ast.Constant(None)])
        if words_of.startswith("target, asked") and isinstance(value, ast.Tuple):
            yield value.elts[1]


def _names(value: ast.AST) -> Iterator[str]:
    if isinstance(value, ast.Dict):
        yield from (key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        for inner in value.values:  # of {**one, **other}
            yield from _names(inner) if isinstance(inner, ast.IfExp) else ()
    elif isinstance(value, ast.IfExp | ast.BinOp | ast.Call):
        for part in ast.iter_child_nodes(value):
            yield from _names(part)


def test_every_act_that_changes_something_has_words() -> None:
    assert set(words.ACTS) == {act for act in Act if not act.is_view}


def test_every_field_that_a_service_writes_has_words() -> None:
    found = set(written())
    assert len(found) > 60, "the services are read"
    named = set(SETTINGS) | set(KeyGrant.__struct_fields__)
    named |= set(AccountTerms.__struct_fields__) | set(RepositoryTerms.__struct_fields__)
    named |= set(QueueTerms.__struct_fields__)
    known = set(words.FIELDS) | {name for _, name in words.OF_ACT}
    assert {(module, name) for module, name in found if name not in known} == set()
    assert named - known == set()


def test_no_words_are_a_raw_name() -> None:
    for field in (*words.FIELDS.values(), *words.OF_ACT.values()):
        assert "_" not in field.label
    assert words.field_of("jobs.change", "is_not_known").label == "not known"


def entry(act: str, before: dict[str, Any], after: dict[str, Any], result: str = "done") -> AuditEntry:
    return AuditEntry(act=act, target_kind="model", target="digits", before=before, after=after, result=result)


@pytest.mark.parametrize(
    ("act", "before", "after", "line"),
    [
        ("queues.pause", {"is_on": False}, {"is_on": True}, "pause: on"),
        ("workers.drain", {"is_on": True}, {"is_on": False}, "drain: off"),
        (
            "residency.pin",
            {"is_on": False},
            {"is_on": True, "version": 0, "hosts": []},
            "pin: on; version: the version that requests get",
        ),
        ("models.settings", {"replicas": 1}, {"replicas": 3}, "replicas: 1 -> 3"),
        ("models.settings", {"is_enabled": True}, {"is_enabled": False}, "takes requests: no"),
        (
            "models.settings",
            {"max_payload_bytes": 2**26},
            {"max_payload_bytes": 2**20},
            "largest inputs: 64 MiB -> 1 MiB",
        ),
        ("models.settings", {"deadline_s": 900.0}, {"deadline_s": 5400.0}, "deadline: 15 min -> 1.5 h"),
        (
            "models.settings",
            {"max_batch_delay_ms": 0.0},
            {"max_batch_delay_ms": 2.5},
            "longest wait for company: 0 s -> 2.5 ms",
        ),
        ("models.rollout", {"stable": 2}, {"stable": 3}, "label “stable”: version 2 -> version 3"),
        ("models.rollout", {"stable": None}, {"stable": 3}, "label “stable”: none -> version 3"),
        (
            "models.rollout",
            {"policy": {"kind": "all"}},
            {"policy": {"kind": "latest", "count": 2}},
            "versions served: all -> the latest 2",
        ),
        ("models.rollout", {"weight": 0.1}, {"weight": 0.5}, "share of callers: 10 % -> 50 %"),
        (
            "keys.manage",
            {"expires_at": "2026-11-29T10:45:00+00:00"},
            {"expires_at": "never"},
            "ends: 2026-11-29 10:45 UTC -> never",
        ),
        ("keys.manage", {}, {"replaced_by": "new1", "account": "acc1"}, "new key: checkout; account: Shop"),
        (
            "repositories.manage",
            {"defaults": {}},
            {"defaults": {"replicas": 2, "timeout_s": 60.0}},
            "settings of new models: none -> replicas 2, run timeout 1 min",
        ),
        (
            "models.register",
            {},
            {"awaits_approval": {"ReadFile": "reads files"}},
            "waits for approval: ReadFile (reads files)",
        ),
    ],
)
def test_a_change_is_said_in_words(act: str, before: dict[str, Any], after: dict[str, Any], line: str) -> None:
    names = {"new1": "checkout", "acc1": "Shop"}
    assert words.in_one_line(entry(act, before, after), names) == line


def test_what_was_only_asked_for_has_no_before() -> None:
    (change,) = words.changes(entry("models.settings", {"replicas": 1}, {"replicas": -4}, "failed"), {})
    assert change == words.Change("replicas", "", "-4")


def test_ids_of_a_page_of_the_audit_are_shown_by_name(browser: Any, admin: Actor) -> None:
    from console.keys import services

    account = Account.objects.create(id="acc1", name="Shop", created_by="admin")
    key, _ = services.create(admin, KeyGrant(name="checkout", account=account.pk, quota=10))
    services.rotate(admin, key.pk)
    page = browser("admin").get("/audit").content.decode()
    cells = re.sub(r"<[^>]+>", " ", page[page.index("<tbody") :])
    assert "Shop" in cells
    assert "acc1" not in cells
    assert not re.search(r"\b[a-z]+_[a-z_]+\b", cells), "no raw name"
