"""Logging in, being slowed down, and the headers every page carries."""

from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError
from django.test import Client, override_settings
from django.urls import reverse
from msgspec.structs import replace

from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.config import ConsoleSettings
from console.operators import services as accounts
from signalbox.program.errors import Conflict, InvalidRequest
from tests.console.conftest import PASSWORD, submit


def log_in(client: Client, username: str, password: str, address: str = "192.0.2.1") -> int:
    """Status of a login attempt: 302 is in, 200 is the form again."""
    client.get("/login")
    token = client.cookies[settings.CSRF_COOKIE_NAME].value
    data = {"username": username, "password": password, "csrfmiddlewaretoken": token}
    return client.post("/login", data, REMOTE_ADDR=address).status_code


def test_the_right_password_lets_in_and_the_session_id_changes(cast: dict[str, User]) -> None:
    client = Client(enforce_csrf_checks=True)
    assert log_in(client, "viewer", PASSWORD) == 302
    assert client.get("/").status_code == 200
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"


def test_logging_out_ends_the_session(cast: dict[str, User]) -> None:
    client = Client(enforce_csrf_checks=True)
    log_in(client, "viewer", PASSWORD)
    assert submit(client, "/logout").status_code == 302
    assert client.get("/").status_code == 302


@pytest.mark.usefixtures("long_waits")
def test_guessing_is_slowed_down_per_account_and_elsewhere_is_not_locked_out(
    cast: dict[str, User], console: ConsoleSettings, settings: Any
) -> None:
    settings.CONSOLE = replace(console, login_per_account=2)
    client = Client(enforce_csrf_checks=True)
    for _ in range(2):
        assert log_in(client, "admin", "wrong") == 200
    assert log_in(client, "admin", PASSWORD) == 200
    assert log_in(client, "admin", PASSWORD, address="192.0.2.2") == 302


@pytest.mark.usefixtures("long_waits")
def test_an_address_that_tries_many_accounts_is_slowed_down(
    cast: dict[str, User], console: ConsoleSettings, settings: Any
) -> None:
    settings.CONSOLE = replace(console, login_per_address=3)
    client = Client(enforce_csrf_checks=True)
    for number in range(3):
        log_in(client, f"name-{number}", "wrong")
    assert log_in(client, "viewer", PASSWORD) == 200


def test_a_program_account_cannot_log_in(admin: Actor) -> None:
    accounts.create_user(admin, "robot", PASSWORD, "operator", is_service=True)
    assert log_in(Client(enforce_csrf_checks=True), "robot", PASSWORD) == 200


def test_passwords_are_kept_as_argon2id(cast: dict[str, User]) -> None:
    assert cast["viewer"].password.startswith("argon2$argon2id$")


@pytest.mark.parametrize("password", ["short", "password1234", "123456789012345"])
def test_weak_passwords_are_refused(admin: Actor, password: str) -> None:
    with pytest.raises(InvalidRequest):
        accounts.create_user(admin, "newcomer", password, "viewer")
    assert not User.objects.filter(username="newcomer").exists()


def test_the_last_admin_cannot_be_demoted_or_locked_out(admin: Actor) -> None:
    with pytest.raises(Conflict):
        accounts.set_role(admin, "admin", "viewer")
    with pytest.raises(Conflict):
        accounts.set_active(admin, "admin", is_active=False)
    assert User.objects.get(username="admin").role == "admin"


def test_every_page_carries_a_strict_content_policy(cast: dict[str, User]) -> None:
    client = Client()
    client.force_login(cast["admin"])
    for url in ("/login", "/models", "/keys", "/jobs", "/audit", "/settings", reverse("api-docs")):
        answer = client.get(url, follow=True)
        policy = answer["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Referrer-Policy"] == "same-origin"
        assert b"https://" not in answer.content.replace(b"http://www.w3.org", b""), url
        assert b" style=" not in answer.content, url


def test_a_path_that_leads_nowhere_gets_a_page_with_the_request_id(cast: dict[str, User]) -> None:
    answer = Client().get("/no/such/page", headers={"X-Request-Id": "trace-me-1234"})
    assert answer.status_code == 404
    assert b"trace-me-1234" in answer.content
    assert answer["X-Request-Id"] == "trace-me-1234"


def test_a_database_that_is_away_is_said_in_words_and_jobs_are_not_at_fault(
    cast: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OperationalError

    client = Client(raise_request_exception=False)
    client.force_login(cast["admin"])
    monkeypatch.setattr("django.db.models.sql.compiler.SQLCompiler.execute_sql", away)
    answer = client.get("/models")
    assert answer.status_code == 503
    assert b"Jobs do not depend on it" in answer.content
    assert Client().get("/healthz").status_code == Client().head("/healthz").status_code == 200


def test_a_host_name_that_is_not_declared_is_refused(cast: dict[str, User]) -> None:
    for path in ("/login", "/healthz/", "/healthz/x", "/static/healthz", "//healthz"):
        assert Client().get(path, HTTP_HOST="evil.example").status_code == 400, path


@pytest.mark.parametrize("is_https", [False, True])
def test_the_health_page_is_answered_by_whatever_address_it_is_asked_at(is_https: bool) -> None:
    with override_settings(SECURE_SSL_REDIRECT=is_https):
        for host in ("172.18.0.5:8000", "[fd00::5]:8000", "console-1", "evil.example"):
            for ask in (Client().get, Client().head):
                answer = ask("/healthz", HTTP_HOST=host)
                assert (answer.status_code, host in str(answer.headers)) == (200, False)


@pytest.mark.parametrize("ends", [False, True])
def test_a_change_of_password_says_what_becomes_of_the_tokens_and_offers_to_end_them(
    admin: Actor, cast: dict[str, User], ends: bool
) -> None:
    token, _ = accounts.create_token(admin, "mine", 1)
    theirs, _ = accounts.create_token(Actor(user=cast["viewer"]), "another's", 1)
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast["admin"])
    assert "End my API tokens too" in client.get("/settings").content.decode()
    form = {"old": PASSWORD, "new": "another long password indeed"}
    form |= {"ends_tokens": "on"} if ends else {}
    page = submit(client, "/settings/password", form, follow=True).content.decode()
    assert ("No API token of yours goes on" if ends else "1 API token of yours goes on") in page
    token.refresh_from_db()
    theirs.refresh_from_db()
    assert bool(token.revoked_at) is ends
    assert theirs.revoked_at is None
    entry = AuditEntry.objects.get(act="tokens.own", target="admin")
    assert entry.after["tokens_ended"] == ([token.pk] if ends else [])


def test_changing_the_password_needs_the_old_one(cast: dict[str, User]) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast["viewer"])
    new = "another long password indeed"
    assert submit(client, "/settings/password", {"old": "wrong", "new": new}).status_code == 400
    assert submit(client, "/settings/password", {"old": PASSWORD, "new": new}).status_code == 302
    assert User.objects.get(username="viewer").check_password(new)
    assert client.get("/").status_code == 200
