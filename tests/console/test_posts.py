"""POST, redirect, GET: no reload does a thing twice, and no form is lost over a password that has grown old."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyotp
import pytest
from django.conf import settings as django_settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from console.accounts import sessions
from console.accounts.models import OperatorToken, SecondFactor, User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog import modelsettings, registration
from console.catalog.models import ModelVersion, ServedModel, VersionSplit
from console.feed.feed import Feed
from console.feed.running import running
from console.fleet.models import DesiredState
from console.keys import services as keys
from console.keys.models import ApiKey, UnknownKey
from console.operators import factors
from console.operators import services as operators
from console.outbound import subscriptions, webhooks
from console.pages import once
from console.queues import services as queues
from console.selections import services as selections
from console.views import services as views
from signalbox.program.settings import Wire
from signalbox.wire.workerdocs import Residency
from tests.console.conftest import PASSWORD, submit
from tests.console.test_accounts import FORM as ACCOUNT
from tests.console.test_archives import archive_of
from tests.console.test_jobs import make
from tests.console.test_keys import FORM as KEY
from tests.console.test_live_view import worker
from tests.console.test_queues import FORM as QUEUE
from tests.console.test_repositories import DEFAULTS as OF_NEW_MODELS
from tests.console.test_repositories import FORM as REPOSITORY
from tests.console.test_rights import ACTS
from tests.console.test_sessions import turn
from tests.rigs.models import half_plus_two

Browser = Callable[[str], Client]
SCRIPTS = {"live:release"}
"""Routes that answer a script of the board, in JSON: no page, so nothing to reload."""
WITH_NATS = {"retry-job", "steer-batch", "purge-queue", "redrive-queue", "reopen-queue"} | {
    f"{act}-dead-letter{many}" for act in ("redrive", "discard") for many in ("", "s")
}
"""Routes that ask NATS before they redirect: test_job_acts, test_dead_letters, test_outbound, test_queues have them."""
NEW = "quite another long password"


@pytest.fixture
def valid(admin: Actor, base: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, dict[str, Any]]]:
    """Route to ``(URL, form)`` that it accepts, for every route that takes a POST, in an order that works."""
    registration.register(admin, "digits", str(base / "1"))
    modelsettings.change_settings(admin, "digits", {"max_queue": 7})
    done = AuditEntry.objects.latest("number")
    feed = Feed(Wire())
    loaded = Residency(model="digits", version=1, state="ready")
    feed.view.presence("w1", worker("w1", token=7, models=(loaded,)), 1_000_000.0)
    monkeypatch.setattr(running, "feed", feed)
    monkeypatch.setattr(Feed, "is_blind", False)
    waits = {"listed_ops": {"ReadFile": "reads files"}, "added_by": "somebody else"}
    ModelVersion.objects.update(**waits)
    VersionSplit.objects.create(
        model=ServedModel.objects.get(), target="old", base=1, candidate=1, weight=0.1, started_by="admin"
    )
    DesiredState.objects.create(kind=DesiredState.HOST, name="h1", actor_name="anna")
    job = make(1, state="running", worker="w1", gpu="GPU-1")
    waiting, ended = make(2, state="queued"), make(3, state="failed")
    chosen = selections.freeze(admin, "cancel", ids=[job.pk], is_started=False)
    started = selections.freeze(admin, "cancel", filter_text="state:running")
    old, _ = keys.create(admin, keys.KeyGrant(name="old"))
    lost, _ = keys.create(admin, keys.KeyGrant(name="lost"))
    key = UnknownKey.objects.create(id="unknown", document='{"id": "unknown", "account_id": "a", "hmac": "00"}')
    view = views.save(admin, "jobs", "old", "")
    subscription = subscriptions.create(admin)
    hook, _ = webhooks.create(admin, "https://hooks.example.com/ends")
    orders = queues.create(admin, "orders", old.account_id, {})
    model = {"args": ["digits"]}
    queue = {"args": [orders.pk]}
    zoo = REPOSITORY | OF_NEW_MODELS | {"name": "zoo", "url": f"file://{base}/zoo"}
    forms: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "model-approve": (model, {"version": "1"}),
        "register-model": ({}, {"name": "digits", "path": str(base), "is_default": "new"}),
        "delete-version": ({"args": ["digits", 2]}, {}),
        "undo-version": ({"args": ["digits", 2]}, {}),
        "upload-model": ({}, {"name": "new", "is_default": "new"}),
        "delete-model": ({"args": ["new"]}, {}),
        "undo-model": ({"args": ["new"]}, {}),
        "model-settings": (model, {"replicas": "2"}),
        "model-autoscale": (model, {"autoscale": "on", "autoscale_max": "3"}),
        "model-enabled": (model, {"enabled": "0"}),
        "model-replicas": (model, {"replicas": "3"}),
        "model-default": (model, {"version": "1"}),
        "model-split": (model, {"candidate": "2", "percent": "10"}),
        "promote-split": (model, {}),
        "roll-back-split": (model, {"target": "old"}),
        "model-policy": (model, {"kind": "latest", "count": "1"}),
        "model-label": (model, {"label": "stable", "version": "1"}),
        "model-pause": (model, {"paused": "1"}),
        "try-model": (model, {"version": "1", "signature": "serving_default", "input.x": "1.0"}),
        "model-pin": (model, {"pinned": "1", "host": "north"}),
        "model-load": (model, {"version": "1", "host": "north"}),
        "add-repository": ({}, zoo),
        "repository-settings": ({"args": ["zoo"]}, zoo | {"grace_s": "60"}),
        "remove-repository": ({"args": ["zoo"]}, {}),
        "undo-repository": ({"args": ["zoo"]}, {}),
        "create-key": ({}, KEY),
        "rotate-key": ({"args": [old.pk]}, {"overlap_days": "1"}),
        "revoke-key": ({"args": [lost.pk]}, {}),
        "create-account": ({}, ACCOUNT),
        "edit-account": ({"args": [old.pk]}, ACCOUNT | {"name": "Old shop"}),
        "disable-account": ({"args": [old.pk]}, {}),
        "enable-account": ({"args": [old.pk]}, {}),
        "delete-account": ({"args": [lost.pk]}, {"jobs": "finish", "reason": "gone"}),
        "adopt-key": ({"args": [key.pk]}, {}),
        "webhook-hosts": ({"args": [old.pk]}, {"hosts": "hooks.example.com"}),
        "create-subscription": ({}, {"model": "digits"}),
        "switch-subscription": ({"args": [subscription.pk]}, {"on": "0"}),
        "delete-subscription": ({"args": [subscription.pk]}, {}),
        "create-webhook": ({}, {"url": "https://hooks.example.com/new"}),
        "rotate-webhook": ({"args": [hook.pk]}, {"keeps_previous": "1"}),
        "deliver-again": ({"args": [hook.pk]}, {"job": job.pk}),
        "switch-webhook": ({"args": [hook.pk]}, {"on": "0"}),
        "delete-webhook": ({"args": [hook.pk]}, {}),
        "create-queue": ({}, QUEUE | {"account": old.pk, "name": "new"}),
        "queue-settings": (queue, QUEUE | {"max_delivery": "7"}),
        "delete-queue": (queue, {}),
        "cancel-job": ({"args": [job.pk]}, {}),
        "change-job": ({"args": [waiting.pk]}, {"priority": "hi"}),
        "delete-job": ({"args": [ended.pk]}, {}),
        "choose-jobs": ({}, {"act": "cancel", "job": [job.pk, waiting.pk]}),
        "start-selection": ({"args": [chosen.pk]}, {}),
        "stop-selection": ({"args": [started.pk]}, {}),
        "worker-drain": ({"args": ["w1"]}, {"draining": "1"}),
        "host-drain": ({"args": ["h1"]}, {"draining": "1"}),
        "worker-evict": ({"args": ["w1"]}, {"model": "digits", "version": "1"}),
        "live:release": ({}, {"gpu": "GPU-1"}),
        "device-release": ({"args": ["GPU-1"]}, {}),
        "worker-release": ({"args": ["w1"]}, {}),
        "undo": ({"args": [done.number]}, {}),
        "create-user": ({}, {"username": "nina", "password": NEW, "role": "viewer"}),
        "set-role": ({"args": ["viewer"]}, {"role": "operator"}),
        "set-active": ({"args": ["operator"]}, {"active": "0"}),
        "create-token": ({}, {"name": "ci", "days": "7"}),
        "revoke-token": ({"args": ["-"]}, {}),
        "add-second-factor": ({}, {}),
        "remove-second-factor": ({}, {}),
        "set-models": ({"args": ["operator"]}, {"models": "team-*"}),
        "remove-factor-of": ({"args": ["model-manager"]}, {}),
        "confirm-password": ({}, {"password": PASSWORD, "next": "/settings"}),
        "read-only": ({}, {"on": "0"}),
        "change-password": ({}, {"old": PASSWORD, "new": NEW}),
        "shortcuts": ({}, {"on": "0"}),
        "save-view": ({}, {"of_list": "jobs", "name": "mine", "query": "state=failed"}),
        "remove-view": ({"args": [view.pk]}, {}),
        "logout": ({}, {}),
        "login": ({}, {"username": "admin", "password": NEW}),
    }
    return {name: (reverse(name, **where), form) for name, (where, form) in forms.items()}


def test_every_post_redirects_and_no_reload_does_it_again(
    browser: Browser, valid: dict[str, tuple[str, dict[str, Any]]]
) -> None:
    assert set(valid) == (set(ACTS) | {"login", "logout"}) - WITH_NATS
    SecondFactor.objects.create(user=User.objects.get(username="model-manager"))
    client = browser("admin")
    for name, (path, form) in valid.items():
        if name in {"model-settings", "model-autoscale"}:
            form |= {
                field: getattr(ServedModel.objects.get(name="digits"), field)
                for field in modelsettings.SETTINGS
                if field not in form
            }
        if name == "add-second-factor":
            form.update(first_code(User.objects.get(username="admin")))
        if name == "upload-model":
            form["archive"] = SimpleUploadedFile("m.tgz", archive_of(half_plus_two()))
        made = OperatorToken.objects.first()
        answer = submit(client, path.replace("/-/revoke", f"/{made.pk if made else ''}/revoke"), form)
        if name in SCRIPTS:
            assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
            continue
        assert answer.status_code == 302, (name, answer.content)
        done = AuditEntry.objects.filter(result="done").count()
        for _ in range(2):  # what a browser does next, and what a reload does
            page = client.get(answer["Location"], follow=True)
            assert page.status_code == 200, name
        assert AuditEntry.objects.filter(result="done").count() == done


def first_code(user: User) -> dict[str, str]:
    """The form that adds a second factor, as an app that scanned it answers."""
    sealed = factors.offer(user)
    return {"sealed": sealed, "code": pyotp.TOTP(factors.offered(user, sealed)).now()}


@pytest.mark.parametrize("act", ["create-key", "rotate-key", "create-token", "create-webhook", "rotate-webhook"])
def test_a_secret_is_shown_once_after_the_redirect_and_lies_nowhere(
    browser: Browser, valid: dict[str, tuple[str, dict[str, Any]]], act: str
) -> None:
    client = browser("admin")
    url, form = valid[act]
    before = AuditEntry.objects.filter(result="done").count()
    sent = submit(client, url, form)
    cookies = repr([cookie.output() for cookie in client.cookies.values()])
    stored = repr(list(client.session.items()))
    page = client.get(sent["Location"])
    (text,) = set(re.findall(r"(?:sb[xo]_|whsec_)[\w+/=]{40,}", page.content.decode()))
    assert "no-store" in page["Cache-Control"]
    for place in (sent["Location"], sent.content.decode(), cookies, stored):
        assert text[-43:] not in place
    assert text[-43:].encode().hex() not in cookies + stored
    again = client.get(sent["Location"], follow=True)
    assert (again.status_code, text in again.content.decode()) == (200, False)
    assert AuditEntry.objects.filter(result="done").count() == before + 1
    assert not client.cookies[f"{django_settings.SESSION_COOKIE_NAME}_once"].value


def test_a_secret_that_was_not_fetched_is_gone_and_half_of_it_shows_nothing(
    browser: Browser, valid: dict[str, tuple[str, dict[str, Any]]]
) -> None:
    client = browser("admin")

    def shown(spoil: Callable[[], None]) -> bool:
        url, form = valid["create-key"]
        answer = submit(client, url, form | {"name": f"key {ApiKey.objects.count()}"})
        spoil()
        return b"sbx_live_" in client.get(answer["Location"], follow=True).content

    def too_late() -> None:
        session = client.session
        session["shown_once"]["until"] -= once.KEPT_S + 1
        session.save()

    def without_cookie() -> None:
        del client.cookies[f"{django_settings.SESSION_COOKIE_NAME}_once"]

    def asked_elsewhere() -> None:
        client.get(reverse("key-created", args=[ApiKey.objects.earliest("created_at").pk]))

    assert shown(asked_elsewhere)
    assert not shown(too_late)
    assert not shown(without_cookie)


def test_a_form_opened_while_the_password_was_fresh_is_taken_with_its_file_when_it_no_longer_is(
    browser: Browser, console: Any
) -> None:
    client = browser("admin")
    slips = [slip for url in ("/settings/users/new", "/models/-/upload") for slip in slips_of(client, url)]
    assert len(slips) == len(set(slips)) == 2
    turn(client, "confirmed_at", sessions.CONFIRMED_S + 1)

    def send(slip: str, url: str = "/models/-/upload") -> int:
        archive = SimpleUploadedFile("m.tgz", archive_of(half_plus_two()))
        form = {"name": "mine", "archive": archive, "is_default": "new"}
        status: int = submit(client, url, form | {"opened-while-confirmed": slip}).status_code
        return status

    assert send("") == send("nonsense") == 403
    assert send(slips[0]) == 403  # the slip of the other form
    assert send(slips[1]) == 302
    assert ServedModel.objects.get().name == "mine"
    other = browser("admin")
    turn(other, "confirmed_at", sessions.CONFIRMED_S + 1)
    client = other
    assert send(slips[1]) == 403  # another login of the same operator


def test_only_forms_that_cannot_be_carried_have_a_slip_and_no_cache_keeps_them(browser: Browser, admin: Actor) -> None:
    client = browser("admin")
    key, _ = keys.create(admin, keys.KeyGrant(name="k"))
    for page in ("/settings", "/keys/new", f"/keys/{key.pk}", "/settings/users"):
        assert slips_of(client, page) == [], page
    slips = []
    for page in ("/models/-/register", "/models/-/upload", "/settings/users/new"):
        slips += slips_of(client, page)
        assert "no-store" in client.get(page)["Cache-Control"], page
    assert len(slips) == 3
    turn(client, "confirmed_at", sessions.CONFIRMED_S + 1)
    for slip in slips:
        form = {"name": "x", "days": "365", "opened-while-confirmed": slip}
        assert submit(client, reverse("create-token"), form).status_code == 403
    assert not OperatorToken.objects.exists()


def test_a_form_whose_slip_is_older_than_a_login_may_idle_asks_again(
    browser: Browser, console: Any, settings: Any
) -> None:
    from msgspec.structs import replace

    client = browser("admin")
    (slip,) = slips_of(client, "/settings/users/new")
    turn(client, "confirmed_at", sessions.CONFIRMED_S + 1)
    settings.CONSOLE = replace(console, idle_s=0.0)
    turn(client, "seen_at", -60)  # the login itself goes on
    person = {"username": "nina", "password": NEW, "role": "viewer"}
    answer = submit(client, "/settings/users/new", {**person, "opened-while-confirmed": slip})
    assert (answer.status_code, User.objects.filter(username="nina").exists()) == (403, False)


def test_what_was_sent_survives_the_question_for_the_password_but_no_secret_is_echoed(
    cast: dict[str, User], browser: Browser
) -> None:
    client = browser("admin")
    turn(client, "confirmed_at", sessions.CONFIRMED_S + 1)
    page = submit(client, "/keys/new", KEY)
    assert (page.status_code, "no-store" in page["Cache-Control"]) == (403, True)
    carried = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', page.content.decode())
    assert ("name", "checkout") in carried
    assert ("scopes", "jobs:read") in carried
    assert b"not right" in submit(client, "/keys/new", {**KEY, "confirm-password": "no"}).content
    assert not ApiKey.objects.exists()
    sent = submit(client, "/keys/new", {**_lists(carried), "confirm-password": PASSWORD})
    assert sent.status_code == 302
    key = ApiKey.objects.get()
    assert (key.name, key.scopes) == ("checkout", ["jobs:submit", "jobs:read"])
    turn(client, "confirmed_at", sessions.CONFIRMED_S + 1)
    person = {"username": "nina", "password": NEW, "role": "viewer"}
    asked = submit(client, "/settings/users/new", person).content.decode()
    assert "nina" in asked
    assert NEW not in asked


FORMS = {
    "/login": "/login",
    "/confirm": "/confirm",
    "/settings/password": "/settings",
    "/settings/tokens": "/settings",
    "/settings/users/new": "/settings/users/new",
    "/keys/new": "/keys/new",
    "/accounts/new": "/accounts/new",
    "/accounts/{account}/edit": "/accounts/{account}/edit",
    "/models/-/register": "/models/-/register",
    "/models/-/upload": "/models/-/upload",
    "/models/digits/settings": "/models/digits/settings",
}
"""Where a form is sent that shows what was wrong with it, and the page that it stands on."""


@pytest.mark.parametrize("url", FORMS)
def test_a_form_that_is_shown_again_is_the_same_form(browser: Browser, admin: Actor, url: str) -> None:
    key, _ = keys.create(admin, keys.KeyGrant(name="k"))
    ServedModel.objects.create(name="digits", base_path="/m/digits")
    client = Client(enforce_csrf_checks=True) if url == "/login" else browser("admin")
    page = client.get(FORMS[url].format(account=key.account_id)).content.decode()
    answer = submit(client, url.format(account=key.account_id), {"unknown": "x"})
    again = answer.content.decode()
    assert answer.status_code in {200, 400}
    before, after = (re.findall(r'\bid="([^"]+)"', text) for text in (page, again))
    assert sorted(after) == sorted(set(after)), "each id once"
    assert set(before) <= set(after), "each field under its id"
    labels = re.findall(r'\b(?:for|aria-describedby|aria-labelledby)="([^"]+)"', again)
    assert {name for label in labels for name in label.split()} <= set(after)


FREE = {"confirm-password", "revoke-token", "change-password", "revoke-key", "read-only"}
"""Acts that read-only mode allows."""
REASONED = {"model-pause", "model-enabled", "worker-drain", "worker-evict", "cancel-job", "delete-model", "set-active"}
"""Acts whose dialog asks for a reason."""


def test_what_was_typed_survives_every_refusal(
    browser: Browser, admin: Actor, valid: dict[str, tuple[str, dict[str, Any]]]
) -> None:
    operators.switch_read_only(admin, is_read_only=True, message="Moving house.")
    client = browser("admin")
    pages = {"model": "/models/digits", "live": "/", "worker": "/workers/w1", "set": "/settings/users"}
    for name, (url, form) in valid.items():
        if name in FREE | SCRIPTS | {"login", "logout"}:
            continue
        typed = form | ({"reason": "because <of> it"} if name in REASONED else {})
        page = pages.get(re.split("[-:]", name)[0], url)
        answer = submit(client, url, typed, headers=_from(page))
        shown = html.unescape(answer.content.decode()).encode().decode("unicode_escape", "replace")
        assert (name, answer.status_code) in {(name, 403), (name, 400)}
        assert "Moving house." in shown
        secrets = {NEW, PASSWORD}
        for field, value in typed.items():
            for each in value if isinstance(value, list) else [value]:
                assert str(each) in secrets or str(each) in shown, (name, field)
        assert not any(secret in shown for secret in secrets)
    assert not AuditEntry.objects.filter(result="done", number__gt=_switched()).exists()


DATA = r'<script id="refused" type="application/json">(.*?)</script>'


def _from(page: str) -> dict[str, str]:
    return {"Referer": f"http://testserver{page}", "Host": "testserver"}


def _switched() -> int:
    return AuditEntry.objects.filter(act="system.read_only")[0].number


def test_a_refused_form_is_shown_on_its_page_at_the_field_that_was_wrong(browser: Browser, admin: Actor) -> None:
    ServedModel.objects.create(name="digits", base_path="/m/digits")
    client = browser("admin")
    sent = {"label": "stable", "version": "12", "reason": ""}
    answer = submit(client, "/models/digits/label", sent, headers=_from("/models/digits?x=1"))
    page = answer.content.decode()
    assert answer.status_code == 404
    assert "<h1>digits" in page
    assert page.count("has no version 12") == 3  # the message, the script's data, and by itself without the script
    data = json.loads(re.findall(DATA, page)[0])
    assert (data["url"], data["page"]) == ("/models/digits/label", "/models/digits?x=1")
    assert ["version", "12"] in data["fields"]
    wrong = submit(client, "/models/digits/replicas", {"replicas": "many"}, headers=_from("/models/digits"))
    data = json.loads(
        re.findall(r'<script id="refused" type="application/json">(.*?)</script>', wrong.content.decode())[0]
    )
    assert (wrong.status_code, data["field"]) == (400, "replicas")


def test_a_refused_form_whose_page_cannot_be_shown_stands_by_itself(browser: Browser) -> None:
    client = browser("admin")
    for referer in ("http://testserver/models/gone", "http://testserver/models/gone/label", "http://else.where/", ""):
        sent = {"label": "stable", "version": "12"}
        page = submit(
            client, "/models/gone/label", sent, headers={"Referer": referer, "Host": "testserver"}
        ).content.decode()
        assert 'action="/models/gone/label"' in page
        assert 'name="version" value="12"' in page
        assert "Send again" in page


def slips_of(client: Client, url: str) -> list[str]:
    """The slips that a page hands out."""
    page = client.get(url).content.decode()
    return re.findall(r'name="opened-while-confirmed" value="([^"]+)"', page)


def _lists(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name != "csrfmiddlewaretoken":
            found.setdefault(name, []).append(value)
    return found
