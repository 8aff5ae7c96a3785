"""Codes of an authenticator app at local logins, and the recovery codes for one that is lost."""

import re
import time
from collections.abc import Callable
from typing import Any

import pyotp
import pytest
from django.test import Client
from msgspec.structs import replace

from console.accounts.models import SecondFactor, User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.config import ConsoleSettings
from console.operators import factors
from console.operators import services as operators
from signalbox.program.errors import InvalidRequest, NotFound
from tests.console.conftest import PASSWORD, submit
from tests.console.test_login import log_in
from tests.console.test_sessions import turn

Browser = Callable[[str], Client]


@pytest.fixture
def app(cast: dict[str, User]) -> tuple[pyotp.TOTP, list[str]]:
    """The viewer's app, and their recovery codes. Its codes of now and before are not used up."""
    me = Actor(user=cast["viewer"])
    sealed = factors.offer(cast["viewer"])
    found = pyotp.TOTP(factors.offered(cast["viewer"], sealed))
    codes = factors.add(me, sealed, found.now())
    SecondFactor.objects.update(last_step=0)
    return found, codes


@pytest.fixture
def tab() -> Client:
    """A browser in which the viewer's password was just right."""
    return Client(enforce_csrf_checks=True)


def code(tab: Client, text: str) -> int:
    status: int = submit(tab, "/login/code", {"code": text}).status_code
    return status


def test_a_login_asks_for_the_code_before_anything_is_logged_in(tab: Client, app: tuple[pyotp.TOTP, list[str]]) -> None:
    assert log_in(tab, "viewer", PASSWORD) == 302
    assert tab.get("/jobs")["Location"].startswith("/login")
    assert tab.get("/login/code").status_code == 200
    assert code(tab, "000000") == 400
    assert code(tab, app[0].now()) == 302
    assert tab.get("/jobs").status_code == 200


def test_a_code_works_once_and_so_does_none_before_it(tab: Client, app: tuple[pyotp.TOTP, list[str]]) -> None:
    now = time.time()
    for text, status in ((app[0].at(now), 302), (app[0].at(now), 400), (app[0].at(now - 30), 400)):
        other = Client(enforce_csrf_checks=True)
        log_in(other, "viewer", PASSWORD)
        assert code(other, text) == status


@pytest.mark.parametrize(("steps", "is_right"), [(-3, False), (-1, True), (0, True), (1, True), (3, False)])
def test_clocks_may_be_half_a_minute_apart(
    cast: dict[str, User], app: tuple[pyotp.TOTP, list[str]], steps: int, is_right: bool, monkeypatch: Any
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    me = Actor(user=cast["viewer"])
    if is_right:
        factors.check(me, app[0].at(now + 30 * steps))
    else:
        with pytest.raises(InvalidRequest):
            factors.check(me, app[0].at(now + 30 * steps))


def test_each_recovery_code_lets_in_once_and_is_noted(tab: Client, app: tuple[pyotp.TOTP, list[str]]) -> None:
    assert len(set(app[1])) == factors.RECOVERY_CODES == 10
    for text, status in ((app[1][3].upper().replace("-", " "), 302), (app[1][3], 400), (app[1][4], 302)):
        other = Client(enforce_csrf_checks=True)
        log_in(other, "viewer", PASSWORD)
        assert code(other, text) == status
    entries = AuditEntry.objects.filter(after__second_factor="recovery code used")
    assert [entry.after["left"] for entry in entries.order_by("pk")] == [9, 8]


@pytest.mark.usefixtures("long_waits")
def test_wrong_codes_slow_the_next_one_down_wherever_they_come_from_and_the_password_clears_none(
    app: tuple[pyotp.TOTP, list[str]], console: ConsoleSettings, settings: Any
) -> None:
    settings.CONSOLE = replace(console, login_per_account=3)
    for number in range(3):
        other = Client(enforce_csrf_checks=True, REMOTE_ADDR=f"192.0.2.{number}")
        assert log_in(other, "viewer", PASSWORD, address=f"192.0.2.{number}") == 302
        assert code(other, "123456") == 400
    last = Client(enforce_csrf_checks=True)
    assert log_in(last, "viewer", PASSWORD, address="192.0.2.9") == 302
    answer = submit(last, "/login/code", {"code": app[0].now()})
    assert (answer.status_code, b"Too many failed logins" in answer.content) == (400, True)


def test_a_right_password_waits_minutes_for_its_code_and_not_beyond_a_change(
    tab: Client, app: tuple[pyotp.TOTP, list[str]], cast: dict[str, User]
) -> None:
    log_in(tab, "viewer", PASSWORD)
    session = tab.session
    session["login_without_code"] |= {"until": time.time() - 1}
    session.save()
    assert tab.get("/login/code")["Location"] == "/login"
    log_in(tab, "viewer", PASSWORD)
    cast["viewer"].set_password("another long password indeed")
    cast["viewer"].save()
    assert tab.get("/login/code")["Location"] == "/login"


def test_an_operator_adds_one_and_sees_the_recovery_codes_once(browser: Browser) -> None:
    client = browser("operator")
    other = browser("operator")
    page = client.get("/settings/second-factor").content.decode()
    assert "<svg" in page
    secret = re.search(r'wrap-anywhere">([A-Z2-7 ]+)<', page)
    sealed = re.search(r'name="sealed" value="([^"]+)"', page)
    assert secret
    assert sealed
    wrong = submit(client, "/settings/second-factor", {"sealed": sealed[1], "code": "000000"})
    assert wrong.status_code == 400
    assert secret[1] in wrong.content.decode(), "the app that scanned it goes on working"
    form = {"sealed": sealed[1], "code": pyotp.TOTP(secret[1].replace(" ", "")).now()}
    sent = submit(client, "/settings/second-factor", form)
    assert (sent.status_code, sent["Location"]) == (302, "/settings/recovery-codes")
    codes = client.get("/settings/recovery-codes").content.decode().partition('id="recovery-codes">')[2]
    shown = re.findall(r"\b[a-z2-7]{5}-[a-z2-7]{5}\b", codes.partition("<")[0])
    assert len(set(shown)) == 10
    assert client.get("/settings/recovery-codes").status_code == 302
    assert other.get("/jobs").status_code == 302, "other sessions end"
    kept = repr(SecondFactor.objects.values()) + repr(list(AuditEntry.objects.values())) + repr(client.session.items())
    for text in (secret[1].replace(" ", ""), *shown, form["code"]):
        assert text not in kept
    assert "Recovery codes left: 10" in client.get("/settings").content.decode()


def test_a_secret_offered_to_another_or_changed_is_not_taken(cast: dict[str, User]) -> None:
    sealed = factors.offer(cast["admin"])
    for text in (sealed, sealed[:-2], "é", ""):
        with pytest.raises(InvalidRequest, match="no longer offered"):
            factors.add(Actor(user=cast["viewer"]), text, "000000")


def test_removing_ones_own_asks_for_the_password(app: Any, cast: dict[str, User]) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast["viewer"])
    turn(client, "confirmed_at", 301)
    assert submit(client, "/settings/second-factor/remove").status_code == 403
    assert submit(client, "/settings/second-factor/remove", {"confirm-password": PASSWORD}).status_code == 302
    assert log_in(Client(enforce_csrf_checks=True), "viewer", PASSWORD) == 302
    assert not SecondFactor.objects.exists()


def test_an_admin_removes_it_for_who_lost_the_app(app: Any, admin: Actor, browser: Browser, tab: Client) -> None:
    client = browser("admin")
    assert "Remove second factor" in client.get("/settings/users").content.decode()
    assert submit(client, "/settings/users/viewer/second-factor", {"reason": "Lost phone."}).status_code == 302
    entry = AuditEntry.objects.get(act="users.manage", target="viewer")
    assert (entry.after, entry.reason) == ({"second_factor": "removed"}, "Lost phone.")
    assert log_in(tab, "viewer", PASSWORD) == 302
    assert tab.get("/jobs").status_code == 200
    with pytest.raises(NotFound):
        factors.remove_of(admin, "viewer")


def test_tokens_go_on_without_a_code(app: Any, cast: dict[str, User]) -> None:
    _, token = operators.create_token(Actor(user=cast["viewer"]), "mine", 1)
    assert Client(headers={"Authorization": f"Bearer {token}"}).get("/api/jobs").status_code == 200


def test_where_it_is_required_a_login_adds_one_first(
    cast: dict[str, User], tab: Client, console: ConsoleSettings, settings: Any, admin: Actor
) -> None:
    settings.CONSOLE = replace(console, second_factor="required")
    operators.switch_read_only(admin, is_read_only=True, message="Moving house.")  # which does not lock out
    assert log_in(tab, "viewer", PASSWORD) == 302
    assert tab.get("/jobs")["Location"].startswith("/login")
    assert tab.get("/login/code")["Location"] == "/login"
    page = tab.get("/login/second-factor").content.decode()
    sealed = re.search(r'name="sealed" value="([^"]+)"', page)
    assert sealed
    secret = factors.offered(cast["viewer"], sealed[1])
    form = {"sealed": sealed[1], "code": pyotp.TOTP(secret).now()}
    sent = submit(tab, "/login/second-factor", form, follow=True)
    assert b"Recovery codes" in sent.content
    assert tab.get("/jobs").status_code == 200
    assert tab.get("/login/second-factor")["Location"] == "/login"
