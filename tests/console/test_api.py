"""The REST API: the same acts, a token per operator, problems in words."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from console.accounts.acts import ROLES, Act
from console.accounts.models import OperatorToken, User
from console.accounts.rights import Actor
from console.api.schema import document
from console.audit.models import AuditEntry
from console.operators import services as accounts
from console.outbox.models import OutboxEntry
from tests.console.conftest import Call, submit
from tests.console.test_api_rights import operations
from tests.console.test_archives import archive_of
from tests.console.test_jobs import make
from tests.rigs.models import half_plus_two


def test_a_key_is_made_shown_once_listed_and_revoked(call: Callable[[str], Call]) -> None:
    admin = call("admin")
    made = admin("post", "keys", {"name": "shop", "rate": 5})
    assert made.status_code == 202, "made, and no publisher runs here"
    kid = made.json()["id"]
    assert made.json()["key"].startswith(f"sbx_live_{kid}_")
    listed = admin("get", "keys").json()
    assert [key["id"] for key in listed] == [kid]
    assert "key" not in listed[0]
    assert admin("post", f"keys/{kid}/revoke", {"reason": "over"}).json()["state"] == "revoked"
    assert admin("post", f"keys/{kid}/revoke", {}).status_code == 409
    assert admin("get", f"keys/{kid}").json()["revoked_reason"] == "over"
    entry = AuditEntry.objects.filter(act="keys.manage", result="done").latest("pk")
    assert (entry.via, entry.actor_name) == ("token", "admin")


def test_a_key_may_jump_the_queue_only_where_that_was_said(call: Callable[[str], Call]) -> None:
    admin = call("admin")
    silent = admin("post", "keys", {"name": "shop"}).json()
    assert silent["scopes"] == ["jobs:submit", "jobs:read", "jobs:cancel"]
    said = admin("post", "keys", {"name": "ward", "scopes": ["jobs:submit", "jobs:urgent"]}).json()
    assert said["scopes"] == ["jobs:submit", "jobs:urgent"]
    replaced = admin("post", f"keys/{said['id']}/rotate", {}).json()
    assert replaced["scopes"] == said["scopes"]


def test_a_key_is_replaced_by_one_that_owns_its_jobs(call: Callable[[str], Call]) -> None:
    admin = call("admin")
    old = admin("post", "keys", {"name": "shop", "networks": ["192.0.2.0/24"]}).json()["id"]
    assert admin("post", f"keys/{old}/rotate", {"overlap_days": 8}).status_code == 400
    assert call("viewer")("post", f"keys/{old}/rotate", {}).status_code == 403
    made = admin("post", f"keys/{old}/rotate", {"overlap_days": 0.5})
    assert made.status_code == 202
    new = made.json()
    assert new["key"].startswith(f"sbx_live_{new['id']}_")
    assert (new["rotated_from"], new["account"]) == (old, old)
    assert new["networks"] == ["192.0.2.0/24"]
    assert admin("get", f"keys/{new['id']}").json()["last_used_at"] is None
    assert admin("post", "keys/unknown/rotate", {}).status_code == 404


def test_an_account_is_made_given_keys_changed_and_shown(call: Callable[[str], Call]) -> None:
    admin, viewer = call("admin"), call("viewer")
    made = admin("post", "accounts", {"name": "Shop", "waiting": 3})
    assert made.status_code == 201
    shop = made.json()["id"]
    kids = [admin("post", "keys", {"name": n, "account": shop}).json()["id"] for n in "ab"]
    own = admin("post", "keys", {"name": "own"}).json()
    assert (own["account"], admin("get", f"keys/{kids[0]}").json()["account"]) == (own["id"], shop)
    make(1, account_id=shop, key_id=kids[0], state="running", size_in=5)
    make(2, account_id=shop, key_id=kids[1], state="succeeded")
    changed = admin("patch", f"accounts/{shop}", {"stored_bytes": 2**50, "reason": "asked for"})
    assert changed.status_code == 202, "changed, and no publisher runs here"
    assert changed.json()["unpublished"].startswith("2 of its keys, ")
    shown = viewer("get", f"accounts/{shop}").json()
    assert (shown["stored_bytes"], shown["waiting"], shown["models"]) == (2**50, 3, [])
    assert (sorted(shown["keys"]), shown["active_keys"]) == (sorted(kids), 2)
    assert (shown["jobs"]["running"], shown["open_bytes"]) == ("1", 5)
    listed = {one["id"]: one["name"] for one in viewer("get", "accounts").json()}
    assert listed == {shop: "Shop", own["id"]: "own"}
    of_account = viewer("get", f"jobs?account={shop}").json()["jobs"]
    assert [(job["account_id"], job["key_id"]) for job in of_account] == [(shop, kids[1]), (shop, kids[0])]
    of_key = viewer("get", f"jobs?key={kids[0]}").json()["jobs"]
    assert [(job["account_id"], job["key_id"]) for job in of_key] == [(shop, kids[0])]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"waiting": 10**6 + 1}, "waiting"),
        ({"stored_bytes": 10**30}, "stored_bytes"),
        ({"idempotency_keys": -1}, "idempotency_keys"),
        ({"result_bytes": 10**30}, "result_bytes"),
        ({"queue_bytes": -1}, "queue_bytes"),
        ({"note": "x" * 501}, "note"),
        ({"models": ["nothing"]}, "models"),
        ({"share": 1}, "share"),
    ],
)
def test_an_account_s_terms_have_bounds(call: Callable[[str], Call], body: dict[str, Any], field: str) -> None:
    admin = call("admin")
    shop = admin("post", "accounts", {"name": "Shop"}).json()["id"]
    for answer in (admin("patch", f"accounts/{shop}", body), admin("post", "accounts", {"name": "x"} | body)):
        assert answer.status_code == 400
        assert field in answer.content.decode()
    assert admin("patch", "accounts/unknown", {"name": "x"}).status_code == 404
    assert admin("get", "accounts/unknown").status_code == 404


def test_a_model_is_registered_changed_labelled_and_paused(call: Callable[[str], Call], base: Any) -> None:
    manager = call("model manager")
    made = manager("post", "models", {"name": "digits", "path": str(base), "settings": {"replicas": 2}})
    assert made.status_code == 202, "registered, and no publisher runs here"
    assert "being published" in made.json()["unpublished"]
    assert [v["number"] for v in made.json()["versions"]] == [2, 1]
    assert made.json()["replicas"] == 2
    assert manager("patch", "models/digits", {"replicas": 3, "is_enabled": False}).json()["replicas"] == 3
    assert manager("put", "models/digits/default", {"version": 1}).json()["serving_version"] == 1
    assert manager("put", "models/digits/labels/stable", {"version": 2}).json()["labels"] == {"stable": 2}
    assert manager("put", "models/digits/pause", {"on": True}).json()["on"] is True
    shown = manager("get", "models/digits").json()
    assert (shown["is_enabled"], shown["default_version"], shown["replicas"]) == (False, 1, 3)
    assert manager("get", "models").json()["models"][0]["name"] == "digits"


def test_an_archive_is_uploaded(cast: dict[str, User]) -> None:
    _, text = accounts.create_token(Actor(user=cast["model manager"]), "t", 1)
    client = Client(headers={"Authorization": f"Bearer {text}"})
    upload = SimpleUploadedFile("m.tgz", archive_of(half_plus_two()))
    answer = client.post("/api/models/mine/versions", {"archive": upload})
    assert answer.status_code == 202, answer.content
    assert answer.json()["number"] == 1
    assert answer.json()["unpublished"]


def test_jobs_are_listed_filtered_shown_and_cancelled(call: Callable[[str], Call]) -> None:
    jobs = [make(n, state="running" if n == 2 else "succeeded") for n in range(1, 4)]
    operator = call("operator")
    first = operator("get", "jobs?size=2").json()
    second = operator("get", f"jobs?size=2&before={first['older']}").json()
    assert [job["id"] for job in first["jobs"] + second["jobs"]] == [job.pk for job in reversed(jobs)]
    assert operator("get", "jobs?q=state:running").json()["jobs"][0]["id"] == jobs[1].pk
    assert operator("get", "jobs?q=colour:red").status_code == 400
    assert operator("get", f"jobs/{jobs[0].pk}").json()["job"]["model"] == "digits"
    assert operator("post", f"jobs/{jobs[1].pk}/cancel", {}).status_code == 202
    assert operator("post", f"jobs/{jobs[0].pk}/cancel", {}).status_code == 409
    assert OutboxEntry.objects.filter(kind="cancel").count() == 1


@pytest.mark.parametrize("role", ROLES)
def test_a_token_has_exactly_its_owner_s_rights(call: Callable[[str], Call], role: str) -> None:
    program = call(role)
    assert set(program("get", "me").json()["acts"]) == ROLES[role]
    asks: dict[Act, Any] = {
        Act.KEYS_MANAGE: program("post", "keys", {"name": "x", "days": 1}),
        Act.MODELS_REGISTER: program("post", "models", {"name": "x", "path": "/nowhere"}),
        Act.MODELS_SETTINGS: program("patch", "models/x", {"replicas": 1}),
        Act.MODELS_ROLLOUT: program("put", "models/x/default", {"version": 1}),
        Act.MODELS_APPROVE: program("put", "models/x/approval", {"version": 1}),
        Act.JOBS_CANCEL: program("post", "jobs/x/cancel", {}),
        Act.QUEUES_PAUSE: program("put", "models/x/pause", {"on": False}),
        Act.WORKERS_DRAIN: program("put", "workers/x/drain", {"on": False}),
        Act.AUDIT_VIEW: program("get", "audit"),
    }
    for act, answer in asks.items():
        assert (answer.status_code == 403) is (act not in ROLES[role]), (act, answer.status_code)


def test_tokens_that_are_wrong_revoked_expired_or_orphaned_are_all_401(cast: dict[str, User]) -> None:
    actor = Actor(user=cast["viewer"], via="tests")
    token, text = accounts.create_token(actor, "t", 1)

    def status(secret: str) -> int:
        return Client().get("/api/me", headers={"Authorization": f"Bearer {secret}"}).status_code

    assert status(text) == 200
    assert status(text[:-1] + ("a" if text[-1] != "a" else "b")) == 401
    assert status("sbo_nonsense") == 401
    assert Client().get("/api/me").status_code == 401
    OperatorToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert status(text) == 401
    OperatorToken.objects.update(expires_at=timezone.now() + timedelta(days=1))
    User.objects.filter(pk=cast["viewer"].pk).update(is_active=False)
    assert status(text) == 401
    User.objects.filter(pk=cast["viewer"].pk).update(is_active=True)
    accounts.revoke_token(actor, token.pk)
    assert status(text) == 401


def test_only_an_admin_revokes_the_token_of_another(cast: dict[str, User]) -> None:
    from signalbox.program.errors import Forbidden

    mine, _ = accounts.create_token(Actor(user=cast["viewer"]), "mine", 1)
    with pytest.raises(Forbidden):
        accounts.revoke_token(Actor(user=cast["operator"]), mine.pk)
    assert accounts.revoke_token(Actor(user=cast["admin"]), mine.pk).revoked_at is not None


def test_the_token_s_text_is_nowhere_in_the_database(cast: dict[str, User]) -> None:
    _, text = accounts.create_token(Actor(user=cast["viewer"]), "t", 1)
    rows = [*OperatorToken.objects.values(), *AuditEntry.objects.values()]
    assert text[-43:] not in repr(rows)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("post", "keys", {"name": "x", "days": 0}, 400, "invalid_request"),
        ("post", "keys", {}, 400, "invalid_request"),
        ("post", "keys", {"name": "x", "models": ["none"]}, 400, "invalid_request"),
        ("get", "keys/none", None, 404, "not_found"),
        ("get", "models/none", None, 404, "not_found"),
        ("delete", "keys", None, 405, "method_not_allowed"),
        ("patch", "models/none", {"replicas": 1}, 404, "not_found"),
    ],
)
def test_refusals_are_problem_json_with_code_and_words(
    call: Callable[[str], Call], method: str, path: str, body: Any, status: int, code: str
) -> None:
    answer = call("admin")(method, path, body)
    assert answer.status_code == status
    assert answer["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["detail"]


def test_broken_json_is_a_problem_and_no_crash(call: Callable[[str], Call]) -> None:
    answer = call("admin")("post", "keys", '{"name": ')
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_json")


def test_the_schema_is_valid_and_names_every_route(cast: dict[str, User]) -> None:
    from drf_spectacular.generators import SchemaGenerator
    from drf_spectacular.validation import validate_schema

    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    validate_schema(schema)  # type: ignore[no-untyped-call]
    assert {"/api/models", "/api/keys", "/api/jobs/{job_id}/cancel", "/api/audit"} <= set(schema["paths"])


def test_the_documentation_names_every_operation_and_field_and_needs_no_script(cast: dict[str, User]) -> None:
    client = Client()
    client.force_login(cast["viewer"])
    page = client.get("/api/").content.decode()
    assert "https://" not in page
    assert "<script>" not in page
    for method, path in operations():
        has_body = "requestBody" in document()["paths"][path][method]
        assert (f"What {method.upper()} {path} takes" in page) or not has_body, (method, path)
        assert f">{path}</code>" in page
    assert "jobs:submit | jobs:read | jobs:cancel | jobs:urgent" in page
    assert client.get("/api/schema").status_code == 200


def test_the_settings_page_makes_and_revokes_tokens(cast: dict[str, User]) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast["viewer"])
    assert submit(client, "/settings/tokens", {"name": "ci", "days": "7"}).status_code == 302
    assert b"sbo_" in client.get("/settings").content
    token = OperatorToken.objects.get()
    assert b"sbo_" + token.pk.encode() not in client.get("/settings").content
    assert submit(client, f"/settings/tokens/{token.pk}/revoke").status_code == 302
    assert OperatorToken.objects.get().revoked_at is not None
