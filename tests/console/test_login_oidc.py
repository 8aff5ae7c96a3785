"""Signing on with a provider: a real one, oidc-provider-mock, on this machine."""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import httpx
import pytest
from django.test import Client
from msgspec.structs import replace

from console.accounts.acts import ROLES
from console.accounts.models import Identity, LoginFailure, User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.config import ROLE_NAMES, ConsoleSettings
from console.operators import services as operators
from signalbox.program.errors import Conflict
from tests.console.conftest import PASSWORD, submit
from tests.console.test_login import log_in
from tests.console.test_sessions import turn

with warnings.catch_warnings(record=True):  # it uses names of Authlib that are to go
    from oidc_provider_mock import run_server_in_thread

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:authlib", "ignore::DeprecationWarning:oidc_.*")
CLIENT = "signalbox"
ANNA: dict[str, Any] = {"preferred_username": "anna", "groups": ["staff", "sre"], "email": "anna@example.com"}


class House:
    """A console that people sign on to, and their provider."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer

    def is_told(self, subject: str, **claims: Any) -> None:
        """The provider knows this person."""
        httpx.put(f"{self.issuer}/users/{subject}", json={**ANNA, **claims}).raise_for_status()

    def answer(self, where: str, subject: str = "1", *, action: str = "") -> str:
        """Where the provider sends the browser of somebody who signs on there."""
        sent = httpx.post(where, data={"sub": subject, "action": action})
        assert sent.status_code == 302, sent.text[:500]
        parts = urlsplit(sent.headers["Location"])
        return f"{parts.path}?{parts.query}"


@pytest.fixture
def house(console: ConsoleSettings, settings: Any, db: None) -> Iterator[House]:
    with run_server_in_thread() as server:
        issuer = f"http://localhost:{server.server_port}"
        settings.CONSOLE = replace(
            console,
            oidc_issuer=issuer,
            oidc_client_id=CLIENT,
            oidc_client_secret="their secret",
            oidc_roles=("staff=viewer", "sre=operator", "owners=admin"),
        )
        settings.ALLOWED_HOSTS = ["testserver"]
        found = House(issuer)
        found.is_told("1")
        yield found


@pytest.fixture
def tab() -> Client:
    return Client(enforce_csrf_checks=True)


@pytest.fixture
def sign_on(house: House, tab: Client) -> Callable[..., Any]:
    """What the console answers to somebody who signed on."""

    def signed(subject: str = "1", path: str = "/login/sign-on", change: dict[str, str] | None = None) -> Any:
        where = tab.get(path)["Location"]
        return tab.get(house.answer(_with(where, change or {}), subject))

    return signed


def _with(url: str, changes: dict[str, str]) -> str:
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()} | changes
    return urlunsplit(parts._replace(query=urlencode(query)))


def test_the_names_of_roles_in_the_settings_are_those_of_the_acts() -> None:
    assert tuple(ROLES) == ROLE_NAMES


def test_an_operator_signs_on_and_has_the_role_of_their_groups(sign_on: Callable[..., Any], tab: Client) -> None:
    assert "Sign on with your organisation" in tab.get("/login").content.decode()
    answer = sign_on(path="/login/sign-on?next=/jobs")
    assert (answer.status_code, answer["Location"]) == (302, "/jobs")
    assert tab.get("/jobs").status_code == 200
    user = User.objects.get(username="anna")
    assert (user.role, user.has_usable_password()) == ("operator", False)
    assert (user.identity.subject, Identity.objects.count()) == ("1", 1)
    entry = AuditEntry.objects.get(act="users.manage", target="anna")
    assert (entry.actor_name, entry.after["role"]) == ("system:sign-on", "operator")
    assert submit(tab, "/logout").status_code == 302
    assert tab.get("/jobs").status_code == 302


def test_what_is_asked_for_has_pkce_a_state_and_a_nonce_and_no_open_redirect(house: House, tab: Client) -> None:
    asked = parse_qs(urlsplit(tab.get("/login/sign-on?next=https://evil.example/")["Location"]).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert len(asked["state"][0]) == len(asked["nonce"][0]) == 64
    assert asked["state"] != asked["nonce"]
    assert asked["scope"] == ["openid profile email"]
    assert tab.get(house.answer(tab.get("/login/sign-on?next=https://evil.example/")["Location"]))["Location"] == "/"


def test_a_second_sign_on_finds_the_operator_whatever_the_name_is_now(
    house: House, sign_on: Callable[..., Any]
) -> None:
    sign_on()
    house.is_told("1", preferred_username="admin", groups="owners")
    assert sign_on().status_code == 302
    user = User.objects.get()
    assert (user.username, user.role) == ("anna", "admin")


@pytest.mark.parametrize("groups", [[], ["others"], None, {"sre": True}, 7])
def test_who_has_no_group_is_told_so_and_is_no_operator(house: House, sign_on: Callable[..., Any], groups: Any) -> None:
    house.is_told("1", groups=groups)
    answer = sign_on()
    assert answer.status_code == 403
    assert "none of your groups has a role" in answer.content.decode()
    assert not User.objects.exists()


def test_who_loses_the_groups_loses_role_sessions_and_what_tokens_may_do(
    house: House, sign_on: Callable[..., Any], tab: Client
) -> None:
    sign_on()
    user = User.objects.get(username="anna")
    _, token = operators.create_token(Actor(user=user), "mine", 1)
    program = Client(headers={"Authorization": f"Bearer {token}"})
    assert program.get("/api/jobs").status_code == 200
    house.is_told("1", groups=["others"])
    other = Client()
    assert other.get(house.answer(other.get("/login/sign-on")["Location"])).status_code == 403
    assert program.get("/api/jobs").status_code == 403
    assert tab.get("/jobs").status_code == 302
    assert AuditEntry.objects.filter(target="anna", after={"role": ""}).count() == 1


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"aud": "another-program"}, "another program (aud)"),
        ({"aud": ["another-program", "a-third"], "azp": CLIENT}, "another program (aud)"),
        ({"iss": "https://evil.example"}, "another issuer (iss)"),
        ({"exp": 1_000_000_000}, "expired"),
        ({"nonce": "of another"}, "another sign-on (nonce)"),
    ],
)
def test_an_id_token_that_is_not_for_this_sign_on_is_refused(
    house: House, sign_on: Callable[..., Any], claims: dict[str, Any], said: str
) -> None:
    house.is_told("1", **claims)
    answer = sign_on()
    assert answer.status_code == 403
    assert said in answer.content.decode()
    assert not User.objects.exists()
    assert LoginFailure.objects.count() == 1


@pytest.mark.parametrize("claims", [{"aud": [CLIENT]}, {"aud": [CLIENT, "another"], "azp": CLIENT}])
def test_an_id_token_may_be_for_others_too(house: House, sign_on: Callable[..., Any], claims: dict[str, Any]) -> None:
    house.is_told("1", **claims)
    assert sign_on().status_code == 302


def test_a_code_that_another_sign_on_began_is_refused(sign_on: Callable[..., Any]) -> None:
    answer = sign_on(change={"nonce": "of another"})
    assert (answer.status_code, b"nonce" in answer.content) == (403, True)


def test_an_answer_without_the_browser_that_asked_is_refused(house: House, tab: Client) -> None:
    back = house.answer(tab.get("/login/sign-on")["Location"])
    assert Client().get(back).status_code == 403
    first = tab.get("/login/sign-on")["Location"]
    tab.get("/login/sign-on")
    assert b"another tab" in tab.get(house.answer(first)).content
    assert not User.objects.exists()


def test_an_answer_is_good_once(house: House, tab: Client) -> None:
    back = house.answer(tab.get("/login/sign-on")["Location"])
    cookie = tab.cookies["signalbox_signon"].value
    assert tab.get(back).status_code == 302
    tab.cookies["signalbox_signon"] = cookie
    assert tab.get(back).status_code == 403


def test_who_declines_at_the_provider_is_told_so(house: House, tab: Client) -> None:
    where = tab.get("/login/sign-on")["Location"]
    state = parse_qs(urlsplit(where).query)["state"][0]  # which this provider leaves out
    answer = tab.get(f"{house.answer(where, action='deny')}&state={state}")
    assert (answer.status_code, b"access_denied" in answer.content) == (403, True)


@pytest.mark.parametrize("name", ["viewer", "VIEWER"])
def test_a_local_operator_is_never_taken_over_by_a_name(
    house: House, cast: dict[str, User], sign_on: Callable[..., Any], name: str
) -> None:
    house.is_told("1", preferred_username=name, groups=["owners"])
    answer = sign_on()
    assert answer.status_code == 409
    assert "SIGNALBOX_CONSOLE_OIDC_NAME_CLAIM" in answer.content.decode()
    assert (User.objects.get(username="viewer").role, Identity.objects.count()) == ("viewer", 0)


@pytest.mark.parametrize("name", ["key:abc", "system:web", "a b", "x" * 151, "", None])
def test_a_name_that_no_operator_can_have_is_refused(house: House, sign_on: Callable[..., Any], name: Any) -> None:
    house.is_told("1", preferred_username=name)
    assert sign_on().status_code == 400
    assert not User.objects.exists()


@pytest.mark.parametrize(
    ("email", "is_verified", "status"),
    [("a@example.com", True, 302), ("a@example.com", False, 403), ("a@evil.example", True, 403), (None, True, 403)],
)
def test_addresses_of_other_domains_are_not_let_in(
    house: House, sign_on: Callable[..., Any], settings: Any, email: Any, is_verified: bool, status: int
) -> None:
    settings.CONSOLE = replace(settings.CONSOLE, oidc_email_domains=("Example.com",))
    house.is_told("1", email=email, email_verified=is_verified)
    assert sign_on().status_code == status


def test_a_locked_out_operator_stays_out(sign_on: Callable[..., Any], admin: Actor) -> None:
    sign_on()
    operators.set_active(admin, "anna", is_active=False)
    assert sign_on().status_code == 403


def test_the_role_of_who_signs_on_is_the_providers_to_change(sign_on: Callable[..., Any], admin: Actor) -> None:
    sign_on()
    with pytest.raises(Conflict, match="groups there"):
        operators.set_role(admin, "anna", "admin")


def test_a_provider_that_is_away_is_said_so_and_local_logins_go_on(
    house: House, settings: Any, cast: dict[str, User], tab: Client
) -> None:
    settings.CONSOLE = replace(settings.CONSOLE, oidc_issuer="http://localhost:9")  # nobody listens there
    answer = tab.get("/login/sign-on")
    assert answer.status_code == 503
    assert "cannot be reached" in answer.content.decode()
    assert 'href="/"' in answer.content.decode()
    assert log_in(tab, "viewer", PASSWORD) == 302


def test_a_document_of_another_issuer_is_refused(house: House, settings: Any, tab: Client) -> None:
    settings.CONSOLE = replace(settings.CONSOLE, oidc_issuer=house.issuer + "/")
    answer = tab.get("/login/sign-on")
    assert (answer.status_code, b"names another issuer" in answer.content) == (503, True)


def test_without_a_provider_there_is_no_sign_on(cast: dict[str, User], tab: Client) -> None:
    assert tab.get("/login/sign-on").status_code == 404
    assert "Sign on" not in tab.get("/login").content.decode()


def test_guessed_answers_are_slowed_down(house: House, settings: Any, tab: Client, long_waits: None) -> None:
    settings.CONSOLE = replace(settings.CONSOLE, login_per_address=2)
    for _ in range(2):
        where = parse_qs(urlsplit(tab.get("/login/sign-on")["Location"]).query)
        assert tab.get("/login/signed-on", {"code": "guess", "state": where["state"][0]}).status_code == 403
    back = house.answer(tab.get("/login/sign-on")["Location"])
    assert tab.get(back).status_code == 429


class TestSudo:
    """Acts that ask again who you are, of operators without a password."""

    def test_a_fresh_sign_on_is_asked_for_and_kept_forms_go_on_with_it(
        self, house: House, sign_on: Callable[..., Any], tab: Client
    ) -> None:
        sign_on()
        turn(tab, "confirmed_at", 301)
        kept = submit(tab, "/settings/tokens", {"name": "robot", "days": "7"})
        assert kept.status_code == 403
        page = kept.content.decode()
        assert 'name="name" value="robot"' in page
        assert 'type="password"' not in page
        where = tab.get("/login/sign-on?again=1&next=/login/signed-on-again")["Location"]
        asked = parse_qs(urlsplit(where).query)
        assert (asked["prompt"], asked["max_age"]) == (["login"], ["0"])
        assert b"Close this tab" in tab.get(house.answer(where), follow=True).content
        assert submit(tab, "/settings/tokens", {"name": "robot", "days": "7"}).status_code == 302

    def test_a_page_asks_before_it_is_shown(self, house: House, sign_on: Callable[..., Any], tab: Client) -> None:
        house.is_told("1", groups=["owners"])
        sign_on()
        turn(tab, "confirmed_at", 301)
        page = tab.get("/settings/users/new", follow=True).content.decode()
        assert "/login/sign-on?again=1&amp;next=/settings/users/new" in page
        assert sign_on(path="/login/sign-on?again=1&next=/settings/users/new")["Location"] == "/settings/users/new"
        assert tab.get("/settings/users/new").status_code == 200

    @pytest.mark.parametrize("auth_time", [None, 1_000_000_000, "now"])
    def test_a_sign_on_of_before_is_not_taken_for_a_fresh_one(
        self, house: House, sign_on: Callable[..., Any], tab: Client, auth_time: Any
    ) -> None:
        sign_on()
        turn(tab, "confirmed_at", 301)
        house.is_told("1", auth_time=auth_time)
        assert sign_on(path="/login/sign-on?again=1").status_code == 403
        assert submit(tab, "/settings/tokens", {"name": "robot", "days": "7"}).status_code == 403

    def test_somebody_else_does_not_do(self, house: House, sign_on: Callable[..., Any], tab: Client) -> None:
        sign_on()
        turn(tab, "confirmed_at", 301)
        house.is_told("2", preferred_username="berta", auth_time=int(time.time()))
        answer = sign_on("2", path="/login/sign-on?again=1")
        assert (answer.status_code, b"somebody else" in answer.content) == (403, True)
        assert not User.objects.filter(username="berta").exists()
        assert submit(tab, "/settings/tokens", {"name": "robot", "days": "7"}).status_code == 403

    @pytest.mark.parametrize("auth_time", [None, 1_000_000_000])
    def test_a_sign_on_that_nobody_was_asked_at_is_no_fresh_one(
        self, house: House, sign_on: Callable[..., Any], tab: Client, auth_time: Any
    ) -> None:
        house.is_told("1", auth_time=auth_time)
        sign_on()
        assert tab.get("/jobs").status_code == 200
        assert submit(tab, "/settings/tokens", {"name": "robot", "days": "7"}).status_code == 403
