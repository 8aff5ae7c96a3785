"""How long a login lasts, what ends it, and how guessing is slowed down."""

import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from msgspec.structs import replace

from console.accounts import sessions
from console.accounts.models import LoginFailure, User
from console.accounts.rights import Actor
from console.config import ConsoleSettings
from console.keys import services as keys
from console.operators import services as accounts
from console.operators import throttle
from signalbox.program.errors import LimitExceeded
from tests.console.conftest import PASSWORD, submit
from tests.console.test_login import log_in

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tab(cast: dict[str, User]) -> Client:
    """A browser an operator is logged in with."""
    client = Client(enforce_csrf_checks=True)
    assert log_in(client, "operator", PASSWORD) == 302
    return client


def turn(client: Client, name: str, seconds: float) -> None:
    """One of the session's clocks, put back."""
    session = client.session
    session[name] -= seconds
    session.save()


def is_in(client: Client) -> bool:
    answer = client.get("/jobs")
    assert answer.status_code in {200, 302}
    return answer.status_code == 200


def test_a_login_ends_after_its_time_however_busy_it_was(tab: Client, console: ConsoleSettings) -> None:
    turn(tab, "began_at", console.session_s - 60)
    assert is_in(tab)
    turn(tab, "began_at", 120)
    assert not is_in(tab)
    assert not is_in(tab)


def test_an_unused_login_ends_and_using_it_keeps_it(tab: Client, console: ConsoleSettings) -> None:
    turn(tab, "seen_at", console.idle_s - 60)
    assert is_in(tab)  # which counts as use
    turn(tab, "seen_at", console.idle_s - 60)
    assert is_in(tab)
    turn(tab, "seen_at", console.idle_s + 1)
    assert not is_in(tab)


def test_use_is_written_once_a_minute_and_not_with_every_request() -> None:
    session: dict[str, Any] = {}
    sessions.touch(session, 1000.0)
    assert session == {"began_at": 1000.0, "seen_at": 1000.0}
    sessions.touch(session, 1059.0)
    assert session["seen_at"] == 1000.0
    sessions.touch(session, 1061.0)
    assert session == {"began_at": 1000.0, "seen_at": 1061.0}


def test_a_login_gets_a_session_of_its_own_and_a_planted_one_is_worth_nothing(cast: dict[str, User]) -> None:
    client = Client(enforce_csrf_checks=True)
    planted = client.session  # one an attacker might have put there
    planted["next"] = "/"
    planted.save()
    client.cookies[django_settings.SESSION_COOKIE_NAME] = str(planted.session_key)
    assert log_in(client, "operator", PASSWORD) == 302
    assert client.session.session_key != planted.session_key
    stale = Client()
    stale.cookies[django_settings.SESSION_COOKIE_NAME] = str(planted.session_key)
    assert not is_in(stale)


@pytest.mark.parametrize("change", ["role", "lock out", "password"])
def test_a_change_of_rights_ends_every_session_of_its_operator(tab: Client, admin: Actor, change: str) -> None:
    other = Client(enforce_csrf_checks=True)
    assert log_in(other, "operator", PASSWORD, address="192.0.2.9") == 302
    assert is_in(tab)
    if change == "role":
        accounts.set_role(admin, "operator", "viewer")
    elif change == "lock out":
        accounts.set_active(admin, "operator", is_active=False)
    else:
        new = {"old": PASSWORD, "new": "quite another long password"}
        assert submit(other, "/settings/password", new).status_code == 302
        assert is_in(other)  # the one who changed it stays
    assert not is_in(tab)


@pytest.mark.parametrize("is_old", [False, True])
def test_open_connections_are_looked_at_once_the_session_is_gone_and_not_before(
    tab: Client, console: ConsoleSettings, is_old: bool
) -> None:
    key, seen = tab.session.session_key, []

    def look(user_id: int, **_: Any) -> None:
        seen.append((user_id, sessions.owner(key, time.time())))

    sessions.doubted.connect(look)
    try:
        assert is_in(tab)
        assert seen == []
        if is_old:
            turn(tab, "began_at", console.session_s + 1)
            assert not is_in(tab)
        else:
            assert submit(tab, "/logout").status_code == 302
    finally:
        sessions.doubted.disconnect(look)
    assert seen == [(User.objects.get(username="operator").pk, None)]


def test_cookies_are_bound_to_the_host_where_there_is_https() -> None:
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            (
                "from console import settings as s; print(s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME,"
                " s.SESSION_COOKIE_SECURE, s.CSRF_COOKIE_SECURE, s.SECURE_SSL_REDIRECT, s.SECURE_HSTS_SECONDS,"
                " s.SESSION_COOKIE_HTTPONLY, s.SESSION_COOKIE_SAMESITE)"
            ),
        ],
        env={"PYTHONPATH": str(ROOT), "SIGNALBOX_CONSOLE_IS_HTTPS": "on"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert shown.stdout.split() == [
        "__Host-signalbox_session",
        "__Host-signalbox_csrf",
        "True",
        "True",
        "True",
        "31536000",
        "True",
        "Lax",
    ]


def test_the_wait_doubles_with_each_failure_and_never_passes_five_minutes() -> None:
    waits = [throttle.wait_s(failures, 5) for failures in range(14)]
    assert waits == [0, 0, 0, 0, 0, 5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_waiting_ends_by_itself_and_what_is_refused_meanwhile_does_not_prolong_it(
    cast: dict[str, User], console: ConsoleSettings, settings: Any
) -> None:
    settings.CONSOLE = replace(console, login_per_account=3)
    for _ in range(5):
        throttle.note_failure("Operator", "192.0.2.1")
    for _ in range(3):
        with pytest.raises(LimitExceeded) as refused:
            throttle.check("operator", "192.0.2.1")
        assert 15 < (refused.value.retry_after_s or 0) <= 20
    assert LoginFailure.objects.count() == 5
    throttle.check("operator", "192.0.2.2")  # its owner, elsewhere
    throttle.check("viewer", "192.0.2.1")
    LoginFailure.objects.update(at=timezone.now() - timedelta(seconds=21))
    throttle.check("operator", "192.0.2.1")
    client = Client(enforce_csrf_checks=True)
    assert log_in(client, "operator", PASSWORD) == 302
    assert not LoginFailure.objects.exists()


@pytest.mark.usefixtures("long_waits")
def test_a_guesser_does_not_get_away_by_changing_the_end_of_an_ipv6_address(
    cast: dict[str, User], console: ConsoleSettings, settings: Any
) -> None:
    settings.CONSOLE = replace(console, login_per_address=4)
    for number in range(4):
        throttle.note_failure(f"name-{number}", f"2001:db8:1:2::{number:x}")
    with pytest.raises(LimitExceeded):
        throttle.check("viewer", "2001:db8:1:2:ffff::1")
    throttle.check("viewer", "2001:db8:1:3::1")
    assert throttle.network("::ffff:192.0.2.1") == "192.0.2.1"
    assert throttle.network("not an address") == "not an address"


@pytest.mark.usefixtures("long_waits")
def test_a_throttled_login_says_how_long_to_wait(cast: dict[str, User], console: ConsoleSettings) -> None:
    for _ in range(console.login_per_account):
        throttle.note_failure("viewer", "192.0.2.1")
    client = Client()
    client.get("/login")
    answer = client.post("/login", {"username": "viewer", "password": PASSWORD}, REMOTE_ADDR="192.0.2.1")
    assert b"Too many failed logins. Wait" in answer.content


def test_a_password_entered_lately_speaks_for_its_owner_and_an_old_one_does_not() -> None:
    session: dict[str, Any] = {}
    assert not sessions.is_confirmed(session, 1000.0)
    sessions.confirm(session, 1000.0)
    assert sessions.is_confirmed(session, 1000.0 + sessions.CONFIRMED_S - 1)
    assert not sessions.is_confirmed(session, 1000.0 + sessions.CONFIRMED_S)
    assert not sessions.is_confirmed(session, 999.0)


def test_what_matters_most_asks_for_the_password_again(cast: dict[str, User]) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast["admin"])
    turn(client, "confirmed_at", sessions.CONFIRMED_S + 1)
    for name in ("register-model", "upload-model", "create-user", "create-key"):
        answer = client.get(reverse(name))
        assert answer.status_code == 302, name
        assert answer["Location"].startswith("/confirm?next=%2F"), name
    key, _ = keys.create(Actor(user=cast["admin"]), keys.KeyGrant(name="k"))
    for url in (
        reverse("set-role", args=["viewer"]),
        reverse("set-active", args=["viewer"]),
        reverse("create-token"),
        reverse("create-user"),
        reverse("create-key"),
        reverse("register-model"),
        reverse("upload-model"),
        reverse("rotate-key", args=[key.pk]),
        reverse("adopt-key", args=["unknown"]),
    ):
        asked = submit(client, url)
        assert (asked.status_code, b"Your password again" in asked.content) == (403, True), url
    assert cast["viewer"].role == "viewer"
    page = reverse("upload-model")
    wrong = submit(client, "/confirm", {"password": "not it", "next": page})
    assert (wrong.status_code, b"not right" in wrong.content) == (400, True)
    assert client.get(page).status_code == 302
    answer = submit(client, "/confirm", {"password": PASSWORD, "next": page})
    assert (answer.status_code, answer["Location"]) == (302, page)
    assert client.get(page).status_code == 200


@pytest.mark.parametrize("page", ["https://evil.example/", "//evil.example", "javascript:alert(1)", ""])
def test_after_the_password_only_own_pages_follow(cast: dict[str, User], page: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast["viewer"])
    answer = submit(client, "/confirm", {"password": PASSWORD, "next": page})
    assert (answer.status_code, answer["Location"]) == (302, "/")


@pytest.mark.usefixtures("long_waits")
def test_guessing_the_password_of_a_borrowed_session_is_slowed_down(
    cast: dict[str, User], console: ConsoleSettings
) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast["viewer"])
    for _ in range(console.login_per_account):
        throttle.note_failure("viewer", "127.0.0.1")
    answer = submit(client, "/confirm", {"password": PASSWORD})
    assert (answer.status_code, b"Too many failed" in answer.content) == (400, True)


@pytest.mark.usefixtures("long_waits")
def test_a_borrowed_session_cannot_guess_the_password_by_changing_it(
    cast: dict[str, User], console: ConsoleSettings
) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast["viewer"])
    new = "quite another long password"
    for _ in range(console.login_per_account):
        answer = submit(client, "/settings/password", {"old": "a guess", "new": new})
        assert b"old password is not right" in answer.content
    assert LoginFailure.objects.filter(account="viewer").count() == console.login_per_account
    answer = submit(client, "/settings/password", {"old": PASSWORD, "new": new})
    assert (answer.status_code, b"Too many failed" in answer.content) == (400, True)
    assert User.objects.get(username="viewer").check_password(PASSWORD)
    refused = submit(client, "/confirm", {"password": PASSWORD})  # one count for both doors
    assert b"Too many failed" in refused.content
    LoginFailure.objects.update(at=timezone.now() - throttle.WINDOW)
    changed = submit(client, "/settings/password", {"old": PASSWORD, "new": new})
    assert changed.status_code == 302
    assert not LoginFailure.objects.exists()


def test_the_api_asks_a_session_for_the_password_again_and_a_token_never(cast: dict[str, User], admin: Actor) -> None:
    client = Client()
    client.force_login(cast["admin"])
    calls = {
        "/api/models": {"name": "m", "path": "/nowhere"},
        "/api/keys": {"name": "k"},
        "/api/keys/none/rotate": {},
        "/api/keys/none/adopt": {},
    }

    def refused(caller: Client) -> list[Any]:
        answers = [caller.post(p, b, content_type="application/json") for p, b in calls.items()]
        return [answer for answer in answers if answer.status_code == 403]

    assert not refused(client)
    turn(client, "confirmed_at", sessions.CONFIRMED_S + 1)
    stale = refused(client)
    assert len(stale) == len(calls)
    assert all("/confirm" in answer.json()["detail"] for answer in stale)
    _, text = accounts.create_token(admin, "ci", 1)
    assert not refused(Client(headers={"Authorization": f"Bearer {text}"}))
