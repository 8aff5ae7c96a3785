"""Who may do what: every URL, every role, CSRF, read-only. Walked from the URL conf, so none is forgotten."""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver
from msgspec.structs import replace

from console.accounts.acts import ROLES, Act
from console.accounts.models import User
from console.accounts.rights import Actor, may, system_actor
from console.audit.models import AuditEntry
from console.catalog import registration
from console.config import ConsoleSettings
from console.keys import services as keys
from console.operators import services as accounts
from signalbox.program.errors import Forbidden
from tests.console.conftest import PASSWORD, submit

Browser = Callable[[str], Client]
OPEN = {"login", "logout", "health", "login-code", "enrol", "sign-on", "signed-on"}
"""Routes for those who are not logged in."""
ACTS: dict[str, Act | None] = {
    "confirm-password": None,
    "change-password": None,
    "create-token": None,
    "revoke-token": None,
    "add-second-factor": None,
    "remove-second-factor": None,
    "remove-factor-of": Act.USERS_MANAGE,
    "set-models": Act.USERS_MANAGE,
    "read-only": Act.SYSTEM_READ_ONLY,
    "shortcuts": Act.VIEWS_OWN,
    "save-view": Act.VIEWS_OWN,
    "remove-view": None,
    "create-user": Act.USERS_MANAGE,
    "set-role": Act.USERS_MANAGE,
    "set-active": Act.USERS_MANAGE,
    "register-model": Act.MODELS_REGISTER,
    "upload-model": Act.MODELS_REGISTER,
    "add-repository": Act.REPOSITORIES_MANAGE,
    "repository-settings": Act.REPOSITORIES_MANAGE,
    "undo-repository": Act.REPOSITORIES_MANAGE,
    "remove-repository": Act.REPOSITORIES_MANAGE,
    "model-settings": Act.MODELS_SETTINGS,
    "model-autoscale": Act.MODELS_SETTINGS,
    "model-enabled": Act.MODELS_SETTINGS,
    "model-replicas": Act.MODELS_SETTINGS,
    "model-approve": Act.MODELS_APPROVE,
    "model-default": Act.MODELS_ROLLOUT,
    "model-policy": Act.MODELS_ROLLOUT,
    "model-label": Act.MODELS_ROLLOUT,
    "model-split": Act.MODELS_ROLLOUT,
    "promote-split": Act.MODELS_ROLLOUT,
    "roll-back-split": Act.MODELS_ROLLOUT,
    "model-pause": Act.QUEUES_PAUSE,
    "try-model": Act.MODELS_TRY,
    "model-pin": Act.RESIDENCY_PIN,
    "model-load": Act.RESIDENCY_LOAD,
    "delete-model": Act.MODELS_DELETE,
    "undo-model": Act.MODELS_DELETE,
    "delete-version": Act.MODELS_DELETE,
    "undo-version": Act.MODELS_DELETE,
    "create-key": Act.KEYS_MANAGE,
    "rotate-key": Act.KEYS_MANAGE,
    "revoke-key": Act.KEYS_MANAGE,
    "adopt-key": Act.KEYS_MANAGE,
    "create-account": Act.ACCOUNTS_MANAGE,
    "edit-account": Act.ACCOUNTS_MANAGE,
    "disable-account": Act.ACCOUNTS_DELETE,
    "enable-account": Act.ACCOUNTS_DELETE,
    "delete-account": Act.ACCOUNTS_DELETE,
    "cancel-job": Act.JOBS_CANCEL,
    "retry-job": Act.JOBS_RETRY,
    "change-job": Act.JOBS_CHANGE,
    "delete-job": Act.JOBS_DELETE,
    "choose-jobs": Act.JOBS_CANCEL,
    "start-selection": Act.JOBS_CANCEL,
    "stop-selection": Act.JOBS_CANCEL,
    "redrive-dead-letter": Act.JOBS_REDRIVE,
    "redrive-dead-letters": Act.JOBS_REDRIVE,
    "discard-dead-letter": Act.JOBS_DISCARD,
    "discard-dead-letters": Act.JOBS_DISCARD,
    "webhook-hosts": Act.RESULTS_MANAGE,
    "create-subscription": Act.RESULTS_MANAGE,
    "switch-subscription": Act.RESULTS_SWITCH,
    "delete-subscription": Act.RESULTS_MANAGE,
    "create-webhook": Act.RESULTS_MANAGE,
    "rotate-webhook": Act.RESULTS_MANAGE,
    "switch-webhook": Act.RESULTS_SWITCH,
    "delete-webhook": Act.RESULTS_MANAGE,
    "deliver-again": Act.RESULTS_DELIVER,
    "steer-batch": Act.BATCHES_STEER,
    "create-queue": Act.QUEUES_MANAGE,
    "queue-settings": Act.QUEUES_MANAGE,
    "delete-queue": Act.QUEUES_MANAGE,
    "purge-queue": Act.QUEUES_PURGE,
    "redrive-queue": Act.QUEUES_REDRIVE,
    "reopen-queue": Act.QUEUES_REDRIVE,
    "worker-drain": Act.WORKERS_DRAIN,
    "host-drain": Act.WORKERS_DRAIN,
    "worker-evict": Act.RESIDENCY_LOAD,
    "live:release": Act.LANES_RELEASE,
    "device-release": Act.LANES_RELEASE,
    "worker-release": Act.LANES_RELEASE,
    "undo": Act.AUDIT_VIEW,
}
"""What each route that takes a POST asks of its caller; None: one's own things, for every role."""
PAGES = {
    "live:board": Act.SYSTEM_VIEW,
    "settings": Act.SYSTEM_VIEW,
    "users": Act.USERS_VIEW,
    "models": Act.MODELS_VIEW,
    "deleted": Act.MODELS_VIEW,
    "repositories": Act.MODELS_VIEW,
    "keys": Act.KEYS_VIEW,
    "accounts": Act.ACCOUNTS_VIEW,
    "results": Act.RESULTS_VIEW,
    "webhooks": Act.RESULTS_VIEW,
    "batches": Act.RESULTS_VIEW,
    "queues": Act.QUEUES_VIEW,
    "jobs": Act.JOBS_VIEW,
    "dead-letters": Act.JOBS_VIEW,
    "selections": Act.JOBS_VIEW,
    "audit": Act.AUDIT_VIEW,
    "find": Act.SYSTEM_VIEW,
    "workers": Act.SYSTEM_VIEW,
    "hosts": Act.SYSTEM_VIEW,
    "scaling": Act.SYSTEM_VIEW,
    "api-docs": Act.SYSTEM_VIEW,
}
PARTS = {
    *("model", "model-move", "version", "repository", "key", "key-created", "account", "worker", "host"),
    *("job", "job-live", "job-input", "job-output", "job-input-image", "job-output-image"),
    *(
        "dead-letter",
        "dead-letter-group",
        "trial",
        "webhook",
        "webhook-secret",
        "batch",
        "queue",
        "device",
        "longest-waiting",
        "selection",
        "export",
        "recovery-codes",
        "signed-on-again",
    ),
}
"""Pages of one thing, and the file of a list."""
FORMS: dict[str, dict[str, str]] = {
    "live:release": {"gpu": "g"},
    "choose-jobs": {"act": "cancel"},
    "model-load": {"version": "1", "host": "h"},
    "worker-evict": {"model": "m", "version": "1"},
    "read-only": {"on": "0"},
    "steer-batch": {"asked": "pause"},
    "purge-queue": {"side": "source", "items": "1"},
    "redrive-queue": {"side": "source"},
    "reopen-queue": {"side": "source"},
    "create-user": {"username": "x", "password": "short", "role": "viewer"},
}


REVOKING = {"read-only", "revoke-key", "revoke-token", "change-password", "add-second-factor"}
"""What read-only mode allows: switching back, ending what has leaked, and a safer login."""


@pytest.fixture(autouse=True)
def no_nats(console: ConsoleSettings, settings: Any) -> None:
    """It is not there, and many routes ask it: none waits long for it."""
    settings.CONSOLE = replace(console, connect_timeout_s=0.1)


def routes() -> Iterator[tuple[str, str]]:
    """Name and URL of every page route, with plausible arguments."""
    yield from _walk(get_resolver().url_patterns, "/", "")


def _walk(patterns: list[Any], prefix: str, namespace: str) -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            inner = f"{pattern.namespace}:" if pattern.namespace else namespace
            yield from _walk(pattern.url_patterns, route, inner)
        elif isinstance(pattern, URLPattern):
            url = route
            for name in pattern.pattern.converters:
                url = url.replace(f"<str:{name}>", "thing")
            yield f"{namespace}{pattern.name}", url


def test_every_route_is_named_in_this_test() -> None:
    names = {name for name, url in routes() if not is_endpoint(name)}
    assert names == OPEN | set(ACTS) | set(PAGES) | PARTS


def is_endpoint(name: str) -> bool:
    """Whether a route is the REST API's, which its own tests walk."""
    return name.startswith("api-") and name not in PAGES


def test_a_stranger_is_sent_to_the_login_or_refused(client: Client, db: None) -> None:
    for name, url in routes():
        for answer in (client.get(url), client.post(url)) if name not in OPEN else ():
            if is_endpoint(name):
                assert answer.status_code == 401, name
            else:
                assert answer.status_code == 302, name
                assert answer["Location"].startswith("/login"), name


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_post_exactly_what_its_rights_say(browser: Browser, role: str) -> None:
    client = browser(role)
    for name, url in routes():
        if name in ACTS:
            answer = submit(client, url, FORMS.get(name))
            act = ACTS[name]
            is_allowed = act is None or act in ROLES[role]
            assert (answer.status_code == 403) is not is_allowed, (role, name, answer.status_code)


@pytest.mark.parametrize("role", ROLES)
def test_each_role_sees_exactly_the_pages_its_rights_say(browser: Browser, role: str) -> None:
    client = browser(role)
    for name, url in routes():
        if name in PAGES:
            answer = client.get(url)
            assert answer.status_code == (200 if PAGES[name] in ROLES[role] else 403), (role, name)


def test_nothing_but_static_files_is_kept_by_a_browser_or_a_proxy(browser: Browser, client: Client) -> None:
    admin = browser("admin")
    answers = {
        f"{who} {name}": one.get(url) for name, url in routes() for who, one in (("admin", admin), ("none", client))
    }
    answers |= {f"post {name}": submit(admin, url) for name, url in routes() if name not in {"logout", "read-only"}}
    answers |= {url: admin.get(url) for url in ("/nowhere", "/api/nowhere", "/models/%00", "/static/nothing.js")}
    answers["no token"] = admin.post("/keys/new")
    assert {answer.status_code for answer in answers.values()} >= {200, 302, 400, 403, 404, 405}
    assert [what for what, answer in answers.items() if "no-store" not in answer.headers.get("Cache-Control", "")] == []
    static = client.get("/static/css/signalbox.css")
    assert (static.status_code, "max-age" in static["Cache-Control"]) == (200, True)


def test_every_post_without_a_csrf_token_is_refused(browser: Browser) -> None:
    client = browser("admin")
    for name, url in routes():
        if name in ACTS:
            answer = client.post(url)
            assert answer.status_code == 403, name
            assert b"expired" in answer.content


def test_session_users_of_the_api_need_a_csrf_token_too(browser: Browser) -> None:
    answer = browser("admin").post("/api/keys", {"name": "x"}, content_type="application/json")
    assert answer.status_code == 403


def test_read_only_refuses_every_act_but_switching_back(browser: Browser, admin: Actor) -> None:
    accounts.switch_read_only(admin, is_read_only=True, message="Moving house until noon.")
    client = browser("admin")
    for name, url in routes():
        if name in ACTS and name not in REVOKING:
            answer = submit(client, url, FORMS.get(name) or {"name": "x", "days": "1", "old": "x", "new": "y"})
            assert answer.status_code in {400, 403, 404}, name
    assert not AuditEntry.objects.filter(result="done").exclude(act__in={"system.read_only", "users.manage"})
    assert b"Moving house until noon." in submit(client, "/models/thing/pause").content
    assert submit(client, "/settings/read-only", {"on": "0"}).status_code == 302


def test_read_only_lets_a_leaked_key_token_and_password_be_ended(browser: Browser, admin: Actor) -> None:
    key, _ = keys.create(admin, keys.KeyGrant(name="leaked"))
    token, _ = accounts.create_token(admin, "leaked", 1)
    accounts.switch_read_only(admin, is_read_only=True, message="Moving house.")
    client = browser("admin")
    page = client.get(f"/keys/{key.pk}").content.decode()
    assert (f"/keys/{key.pk}/revoke" in page, f"/keys/{key.pk}/rotate" in page) == (True, False)
    assert submit(browser("viewer"), f"/keys/{key.pk}/revoke").status_code == 403
    assert submit(client, f"/keys/{key.pk}/revoke", {"reason": "leaked"}).status_code == 302
    assert submit(client, f"/settings/tokens/{token.pk}/revoke").status_code == 302
    new = {"old": PASSWORD, "new": "quite another long password"}
    assert submit(client, "/settings/password", new).status_code == 302
    key.refresh_from_db()
    token.refresh_from_db()
    assert key.revoked_at
    assert token.revoked_at
    with pytest.raises(Forbidden):
        keys.create(admin, keys.KeyGrant(name="another"))


def test_a_refused_attempt_is_in_the_audit(browser: Browser) -> None:
    submit(browser("viewer"), "/keys/thing/revoke", {"reason": "curious"})
    entry = AuditEntry.objects.filter(act="keys.manage").latest("pk")
    assert (entry.result, entry.actor_name, entry.target) == ("refused", "viewer", "thing")


def test_roles_are_nested_and_groups_hold_exactly_their_rights(cast: dict[str, User]) -> None:
    chain = list(ROLES.values())
    assert all(small < large for small, large in itertools.pairwise(chain))
    for role, acts in ROLES.items():
        assert {act for act in Act if cast[role].has_perm(act.permission)} == acts


def test_an_inactive_operator_may_nothing(cast: dict[str, User], admin: Actor) -> None:
    accounts.set_active(admin, "operator", is_active=False)
    assert not any(may(Actor(user=User.objects.get(username="operator")), act) for act in Act)


def test_the_system_itself_may_everything(db: None) -> None:
    assert all(may(system_actor("tests"), act) for act in Act)


def test_a_list_of_operators_asks_as_often_for_forty_as_for_four(browser: Browser) -> None:
    client = browser("admin")

    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert client.get("/settings/users").status_code == 200
        return len(queries)

    few = asked()
    viewers = Group.objects.get(name="viewer")
    for number in range(36):
        User.objects.create(username=f"person-{number}").groups.set([viewers])
    assert asked() == few


def test_read_only_shows_the_operators_and_no_form_to_change_them(browser: Browser, admin: Actor) -> None:
    client = browser("admin")
    assert 'href="/settings/users/new"' in client.get("/settings/users").content.decode()
    accounts.switch_read_only(admin, is_read_only=True, message="Moving house.")
    assert 'href="/settings/users"' in client.get("/settings").content.decode()
    page = client.get("/settings/users").content.decode()
    assert "model-manager" in page
    assert "/settings/users/" not in page
    assert client.get("/settings/users/new").status_code == 403


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/", "/"),
        ("/settings", "/settings"),
        ("/settings/users", "/settings"),
        ("/api/", None),
        ("/models/settings", "/models"),
        ("/models/keys/settings", "/models"),
        ("/workers", "/workers"),
    ],
)
def test_one_entry_of_the_rail_is_where_one_is(
    browser: Browser, admin: Actor, base: object, path: str, place: str | None
) -> None:
    for name in ("keys", "settings"):
        registration.register(admin, name, str(base))
    page = browser("admin").get(path).content.decode()
    rail = page[page.index("<nav") : page.index("</nav>")]
    lit = [line for line in rail.splitlines() if "aria-current" in line]
    assert len(lit) == (place is not None)
    assert all(f'href="{place}"' in line for line in lit)


def test_what_the_rail_of_a_narrow_screen_leaves_out_stands_in_the_menu(browser: Browser) -> None:
    page = browser("admin").get("/results").content.decode()
    left_out = re.findall(r'<li class="wide-only"><a href="([^"]+)"', page)
    assert "/queues" in left_out
    assert re.findall(r'<a href="([^"]+)" class="narrow-only"', page) == left_out


def test_a_refusal_speaks_to_operators_of_operators(browser: Browser) -> None:
    page = browser("viewer").get("/keys/new")
    assert page.status_code == 403
    assert b"Not allowed" in page.content
    assert b"API key lacks" not in page.content
    reported = browser("viewer").get("/api/audit").json()
    assert (reported["code"], reported["title"]) == ("forbidden", "Not allowed")
