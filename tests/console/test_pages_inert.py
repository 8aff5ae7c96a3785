"""Every page, found in the URL conf: nothing inline, nothing from elsewhere, no text of a job taken for HTML."""

from html.parser import HTMLParser
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.jobs.models import Job, JobEvent
from console.keys import services as keys
from tests.console.conftest import submit
from tests.console.test_rights import ACTS, OPEN, PAGES, is_endpoint, routes

NASTY = """<script>alert(1)</script><img src=x onerror=alert(2)>"'>{{7*7}}=cmd|'/C calc'!A0"""


class Inline(HTMLParser):
    """Collects whatever a browser would run or fetch though our policy says it must not."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()
        self._is_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self._is_script = tag == "script" and given.get("type") != "application/json"
        if self._is_script and not given.get("src", "").startswith("/static/"):
            self.found.append(f"script {given}")
        if tag in {"style", "base", "object", "embed", "iframe"}:
            self.found.append(tag)
        for name, value in given.items():
            if name.startswith("on") or name == "style":
                self.found.append(f"{tag} {name}={value}")
            if name in {"href", "src", "action", "formaction"} and not _is_ours(value):
                self.found.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag: str) -> None:
        self._is_script = False

    def handle_data(self, data: str) -> None:
        if self._is_script and data.strip():
            self.found.append(f"script text {data[:60]}")


def _is_ours(target: str) -> bool:
    return target in {"", "#"} or (target[:1] in "/?#" and not target.startswith("//"))


def looked_at(client: Client, url: str) -> Inline:
    """The page, read as a browser reads it; it must carry the policy."""
    answer = client.get(url, follow=True)
    assert answer.status_code in {200, 400, 403, 404, 405, 503}, url
    policy = answer["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    page = Inline()
    page.feed(answer.content.decode())
    return page


def pages() -> list[str]:
    """URLs of every route of ours one may GET."""
    posts = {"logout", "health", "api-schema"}
    shown = []
    for name, url in routes():
        is_form = name in {
            "register-model",
            "upload-model",
            "create-key",
            "create-user",
            "add-second-factor",
            "confirm-password",
            "model-settings",
        }
        if name in posts or (name in ACTS and not is_form):
            continue
        if is_endpoint(name):
            continue
        shown.append(url)
    assert len(shown) > len(PAGES) + len(OPEN) - 2
    return shown


@pytest.fixture
def nasty_job(db: None) -> Job:
    """A job whose every text is an attack."""
    job = Job.objects.create(**_filled(Job, id=str(uuid4()), model="digits", state="failed", account_id="k"))
    JobEvent.objects.create(**_filled(JobEvent, job_id=job.pk, state="failed", seq=1))
    return job


def _filled(kind_of_row: Any, **given: Any) -> dict[str, Any]:
    """Values for every text field of a row that has room for them."""
    values: dict[str, Any] = {}
    for field in kind_of_row._meta.get_fields():
        kind = type(field).__name__
        if field.name in given or not getattr(field, "concrete", False) or field.primary_key:
            continue
        if kind in {"CharField", "TextField"}:
            values[field.name] = NASTY[: field.max_length or 500]
        elif kind == "DateTimeField" and not field.null:
            values[field.name] = timezone.now()
        elif not field.null and not field.has_default() and kind.endswith("IntegerField"):
            values[field.name] = 1
        elif not field.null and not field.has_default() and kind == "FloatField":
            values[field.name] = 1.0
    return values | given


@pytest.mark.parametrize("url", pages())
def test_a_page_has_nothing_inline_and_fetches_nothing_from_elsewhere(cast: dict[str, User], url: str) -> None:
    client = Client()
    client.force_login(cast["admin"])
    assert looked_at(client, url).found == []


def test_what_a_job_a_key_and_an_act_are_called_is_shown_as_text(
    cast: dict[str, User], admin: Actor, nasty_job: Job
) -> None:
    key, _ = keys.create(admin, keys.KeyGrant(name=NASTY[:60]))
    AuditEntry.objects.create(
        actor_name=NASTY[:150],
        via="web",
        act="keys.manage",
        target_kind="key",
        target=NASTY[:150],
        reason=NASTY[:200],
        message=NASTY[:500],
        before={"a": NASTY},
        after={"a": NASTY + "!"},
    )
    client = Client()
    client.force_login(cast["admin"])
    urls = [
        reverse("job", args=[nasty_job.pk]),
        "/jobs",
        f"/jobs?q={NASTY}",
        "/audit",
        "/keys",
        reverse("key", args=[key.pk]),
        f"/audit?q={NASTY}",
    ]
    for url in urls:
        page = looked_at(client, url)
        assert page.found == [], url
        text = client.get(url).content.decode()
        assert "<script>alert" not in text, url
        assert "<img src=x" not in text, url


@pytest.mark.parametrize("name", ["a/b", "..", "", " ", "a?b#c", "x" * 150])
def test_a_refused_act_on_something_with_an_odd_name_does_not_break_the_audit_page(
    cast: dict[str, User], name: str
) -> None:
    viewer = Client(enforce_csrf_checks=True)
    viewer.force_login(cast["viewer"])
    for act in ("/models/-/register", "/keys/new"):
        submit(viewer, act, {"name": name, "path": "/x"})
    for kind in ("model", "key", "job"):
        AuditEntry.objects.create(actor_name="x", via="web", act="x", target_kind=kind, target=name)
    client = Client()
    client.force_login(cast["admin"])
    assert client.get("/audit").status_code == 200


def test_the_check_itself_finds_what_is_inline() -> None:
    for text in (
        "<script>1</script>",
        "<a onclick='x'>",
        "<p style='a'>",
        "<script src='//cdn.example/x.js'></script>",
        "<img src='https://x.example/a.png'>",
        "<a href='javascript:1'>",
        "<form action='http://x.example'>",
        "<style>a{}</style>",
        "<iframe src='/x'></iframe>",
    ):
        page = Inline()
        page.feed(text)
        assert page.found, text
