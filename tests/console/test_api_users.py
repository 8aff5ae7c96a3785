"""Operators by REST: create, list, another role, in and out; the same service as the pages."""

from collections.abc import Callable

from console.accounts.models import User
from console.audit.models import AuditEntry
from tests.console.conftest import Call

NINA = {"username": "nina", "password": "quite another long password", "role": "viewer"}


def test_an_operator_is_created_given_another_role_and_locked_out(call: Callable[[str], Call]) -> None:
    api = call("admin")
    made = api("post", "users", NINA)
    assert (made.status_code, made.json()["role"], "password" in made.json()) == (201, "viewer", False)
    changed = api("put", "users/nina/role", {"role": "operator", "reason": "on call"})
    assert (changed.status_code, changed.json()["role"]) == (200, "operator")
    out = api("put", "users/nina/active", {"on": False, "reason": "left"})
    assert (out.status_code, out.json()["is_active"]) == (200, False)
    assert User.objects.get(username="nina").is_active is False
    assert api("get", "users/nina").json() == out.json()
    assert "nina" in [user["username"] for user in api("get", "users").json()]
    rows = AuditEntry.objects.filter(target="nina").order_by("number")
    assert [(row.act, row.reason) for row in rows] == [
        ("users.manage", ""),
        ("users.manage", "on call"),
        ("users.manage", "left"),
    ]
    assert NINA["password"] not in repr(list(rows.values_list("before", "after", "message")))


def test_what_is_wrong_is_named(call: Callable[[str], Call]) -> None:
    api = call("admin")
    assert api("post", "users", {**NINA, "role": "king"}).status_code == 400
    assert api("post", "users", {**NINA, "colour": "red"}).status_code == 400
    weak = api("post", "users", {**NINA, "password": "short"})
    assert (weak.status_code, "12" in weak.json()["detail"]) == (400, True)
    assert api("post", "users", {**NINA, "username": "admin"}).status_code == 409
    assert api("get", "users/nobody").status_code == 404
    assert api("put", "users/nobody/role", {"role": "viewer"}).status_code == 404
    last = api("put", "users/admin/active", {"on": False})
    assert (last.status_code, "last admin" in last.json()["detail"]) == (409, True)


def test_others_may_not(call: Callable[[str], Call]) -> None:
    api = call("model manager")
    for method, path, body in (("post", "users", NINA), ("put", "users/admin/role", {"role": "viewer"})):
        assert api(method, path, body).status_code == 403
    assert AuditEntry.objects.filter(act="users.manage", result="refused").count() == 2
