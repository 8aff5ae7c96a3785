"""Lists as files: exactly what the filter shows, batch by batch, harmless in a spreadsheet."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import StreamingHttpResponse
from django.test import AsyncClient, Client

from console.accounts.acts import ROLES, Act
from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit import listing
from console.audit.models import AuditEntry
from console.catalog.models import ServedModel
from console.exports import lists
from console.keys import services as keys
from tests.console.conftest import in_thread
from tests.console.test_jobs import make

Browser = Callable[[str], Client]


def read(answer: Any) -> str:
    """The whole file."""
    assert isinstance(answer, StreamingHttpResponse)
    return b"".join(answer.streaming_content).decode()  # type: ignore[arg-type]


def table(answer: Any) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(io.StringIO(read(answer), newline="")))


def write(number: int, **more: Any) -> AuditEntry:
    given = {"actor_name": "anna", "via": "web", "act": "models.settings", "target_kind": "model", "target": "digits"}
    return AuditEntry.objects.create(
        **{**given, "before": {"replicas": number}, "after": {"replicas": number + 1}, **more}
    )


def test_the_audit_comes_whole_and_in_words_with_what_its_filter_shows(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "BATCH", 2)
    for number in range(5):
        write(number)
    write(9, actor_name="bert")
    answer = browser("operator").get("/exports/audit.csv", {"q": "actor:anna", "before": "3"})
    assert answer["Content-Type"].startswith("text/csv")
    assert answer["Content-Disposition"].startswith('attachment; filename="signalbox-audit-')
    rows = table(answer)
    assert [row["changes"] for row in rows] == [f"replicas: {number} -> {number + 1}" for number in (4, 3, 2, 1, 0)]
    assert {row["actor_name"] for row in rows} == {"anna"}
    lines = read(browser("operator").get("/exports/audit.jsonl", {"q": "actor:bert"})).splitlines()
    assert [json.loads(line)["after"] for line in lines] == [{"replicas": 10}]


def test_a_cell_that_a_spreadsheet_would_take_for_a_formula_is_harmless(browser: Browser) -> None:
    for number, reason in enumerate(("=1+1", "+1", "-1", "@SUM(A1)", "\tx", "plain", 'say "so", then')):
        write(number, reason=reason)
    reasons = [row["reason"] for row in table(browser("operator").get("/exports/audit.csv"))]
    assert reasons == ['say "so", then', "plain", "'\tx", "'@SUM(A1)", "'-1", "'+1", "'=1+1"]


def test_a_file_is_read_batch_by_batch_while_it_is_sent(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "BATCH", 10)
    for number in range(40):
        write(number)
    asked: list[int] = []
    page = listing.page

    def counted(*args: Any, **kwargs: Any) -> Any:
        asked.append(kwargs["before"])
        return page(*args, **kwargs)

    monkeypatch.setattr(listing, "page", counted)
    parts: Iterator[bytes] = iter(browser("operator").get("/exports/audit.jsonl").streaming_content)  # type: ignore[attr-defined]
    assert len(next(parts).splitlines()) == 10
    assert len(asked) == 1, "no batch is read before the one that is sent"
    assert sum(len(part.splitlines()) for part in parts) == 30


@pytest.mark.django_db(transaction=True)
async def test_the_server_streams_it_too(cast: dict[str, User], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "BATCH", 10)
    await in_thread(lambda: [write(number) for number in range(25)])
    client = AsyncClient()
    await client.aforce_login(cast["operator"])
    answer = await client.get("/exports/audit.jsonl")
    parts = [part async for part in answer.streaming_content]  # type: ignore[attr-defined]
    assert [len(part.splitlines()) for part in parts] == [10, 10, 5]


def test_jobs_keys_accounts_models_and_workers_come_as_files(browser: Browser, admin: Actor) -> None:
    make(1, state="failed")
    make(2, state="succeeded")
    key, _ = keys.create(admin, keys.KeyGrant(name="checkout"))
    ServedModel.objects.create(name="digits", base_path="/m/digits")
    ServedModel.objects.create(name="other", base_path="/m/other")
    client = browser("viewer")
    assert [row["state"] for row in table(client.get("/exports/jobs.csv", {"state": "failed"}))] == ["failed"]
    assert len(table(client.get("/exports/jobs.csv"))) == 2
    assert [row["name"] for row in table(client.get("/exports/keys.csv"))] == ["checkout"]
    assert [row["id"] for row in table(client.get("/exports/accounts.csv"))] == [key.account_id]
    assert [row["name"] for row in table(client.get("/exports/models.csv", {"q": "dig"}))] == ["digits"]
    assert table(client.get("/exports/workers.csv")) == []
    assert all(key.hmac not in read(client.get(f"/exports/{name}.jsonl")) for name in ("keys", "accounts"))


@pytest.mark.parametrize("role", ROLES)
def test_each_role_gets_the_files_of_the_lists_that_it_sees(browser: Browser, call: Any, role: str) -> None:
    for name, export in lists.EXPORTS.items():
        is_allowed = export.act in ROLES[role]
        assert (browser(role).get(f"/exports/{name}.csv").status_code == 200) is is_allowed
        assert (call(role)("get", f"exports/{name}.csv").status_code == 200) is is_allowed
    assert Act.AUDIT_VIEW not in ROLES["viewer"]


@pytest.mark.parametrize("path", ["thing", "thing.csv", "audit.xls", "audit", ".csv"])
def test_a_list_that_does_not_exist_is_not_found(browser: Browser, call: Any, path: str) -> None:
    assert browser("admin").get(f"/exports/{path}").status_code == 404
    assert call("admin")("get", f"exports/{path}").json()["code"] == "not_found"


def test_a_bad_filter_is_refused_before_a_byte_is_sent(browser: Browser, call: Any) -> None:
    for url in ("audit.csv?q=actr:x", "jobs.csv?q=stat:x", "models.csv?state=x", "keys.csv?q=x"):
        assert browser("admin").get(f"/exports/{url}").status_code == 400, url
    api = call("admin")
    assert api("get", "exports/keys.csv?q=x").status_code == 400
    assert api("get", "exports/audit.csv?nonsense=x").status_code == 400
    assert api("get", "exports/audit.csv?q=actor:admin").status_code == 200
    assert not AuditEntry.objects.filter(act__endswith=".view").exists()
