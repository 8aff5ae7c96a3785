"""Pins, loads and evictions by hand: rights, bounds, refusals, what is published and what is audited."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog import registration
from console.feed.feed import Feed
from console.feed.running import running
from console.fleet.models import DesiredState
from console.outbox.models import OutboxEntry
from signalbox.program.settings import Wire
from signalbox.wire.eviction import ResidencyUse
from signalbox.wire.messages import decode
from signalbox.wire.steering import Evict, Pin, Prefetch
from signalbox.wire.workerdocs import Device, Residency
from tests.console.conftest import Call, submit
from tests.console.test_live_view import worker

Browser = Callable[[str], Client]
MB = 2**20


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch, admin: Actor, base: Path) -> Feed:
    """Two models with a version each, placed on the one device of the host north; host south has none of them."""
    for name in ("digits", "cats"):
        registration.register(admin, name, str(base / "1"))
    feed = Feed(Wire())
    monkeypatch.setattr(running, "feed", feed)
    monkeypatch.setattr(Feed, "is_blind", False)
    present(feed)
    away = worker("w2", host="south/boot", device=Device(id="GPU-2", kind="nvidia", name="H200"), serves=("other",))
    feed.view.presence("w2", away, 1_000_000.0)
    return feed


def present(feed: Feed, **sizes: int) -> None:
    """What w1 has in memory, by model; of what is called as such, pinned."""
    models = tuple(
        Residency(
            model=name.removesuffix("_pinned"),
            version=1,
            state="ready",
            size_bytes=size,
            use=ResidencyUse(is_pinned=name.endswith("_pinned")),
        )
        for name, size in sizes.items()
    )
    feed.view.presence("w1", worker("w1", models=models, budget_bytes=200 * MB, pin_bytes=100 * MB), 1_000_000.0)


def published(key: str, kind: type[Any]) -> Any:
    """The newest document of a key that is to be published."""
    return decode(kind, OutboxEntry.objects.filter(key=key).order_by("-pk")[0].body)


def test_a_pin_is_published_audited_shown_and_ended(browser: Browser, call: Callable[[str], Call], feed: Feed) -> None:
    client, api = browser("model manager"), call("model manager")
    assert (
        api("put", "models/digits/pin", {"on": True, "version": 1, "hosts": ["north"], "reason": "demo"}).status_code
        == 202
    )
    pin = published("pin.digits", Pin)
    assert (pin.model, pin.version, pin.hosts, pin.is_on) == ("digits", 1, ("north",), True)
    entry = AuditEntry.objects.filter(act="residency.pin")[0]
    assert (entry.target, entry.reason, entry.result) == ("digits", "demo", AuditEntry.DONE)
    page = client.get("/models/digits").content.decode()
    assert "version 1, on north" in page
    assert "Unpin" in page
    assert api("put", "models/digits/pin", {"on": False}).status_code == 202
    assert not published("pin.digits", Pin).is_on
    assert ">Unpin<" not in client.get("/models/digits").content.decode()


def test_a_pin_above_the_share_for_pins_is_refused_with_what_is_pinned(call: Callable[[str], Call], feed: Feed) -> None:
    present(feed, digits=70 * MB, cats=40 * MB)
    api = call("model manager")
    assert api("put", "models/digits/pin", {"on": True}).status_code == 202
    refused = api("put", "models/cats/pin", {"on": True})
    assert refused.status_code == 409
    for part in (
        "100.0 MiB of the memory of w1",
        "SIGNALBOX_WORKER_PIN_SHARE",
        "cats takes 40.0 MiB",
        "digits (70.0 MiB)",
    ):
        assert part in refused.content.decode()
    assert not DesiredState.objects.filter(name="cats").exists()
    assert api("put", "models/digits/pin", {"on": True}).status_code == 202, "its own bytes count once"
    assert api("put", "models/digits/pin", {"on": False}).status_code == 202
    assert api("put", "models/cats/pin", {"on": True}).status_code == 202


def test_a_load_by_hand_is_a_prefetch_of_one_host(browser: Browser, call: Callable[[str], Call], feed: Feed) -> None:
    client, api = browser("operator"), call("operator")
    assert api("post", "models/digits/load", {"host": "north"}).status_code == 202
    asked = published("prefetch.digits", Prefetch)
    assert (asked.model, asked.version, asked.hosts) == ("digits", 0, ("north",))
    assert asked.until > 0
    page = submit(client, "/models/digits/load", {"host": "north", "version": "1"}, follow=True).content.decode()
    assert "digits is to be loaded on north" in page
    assert published("prefetch.digits", Prefetch).version == 1


def test_a_load_on_no_host_is_refused_and_a_pin_of_the_page_is_one_on_all(browser: Browser, feed: Feed) -> None:
    client = browser("model manager")
    form = {"pinned": "1", "host": "", "version": "0"}  # as the page sends it, whichever button was used
    assert f'name="pinned" value="{form["pinned"]}"' in client.get("/models/digits").content.decode()
    answer = submit(client, "/models/digits/load", form)
    assert (answer.status_code, "Choose a host" in answer.content.decode()) == (400, True)
    assert "digits is pinned" in submit(client, "/models/digits/pin", form, follow=True).content.decode()
    assert published("pin.digits", Pin).hosts == ()


def test_what_is_evicted_by_hand_is_asked_of_the_worker_that_has_it_unless_it_is_pinned(
    browser: Browser, call: Callable[[str], Call], feed: Feed
) -> None:
    present(feed, digits=MB, cats_pinned=MB)
    client, api = browser("operator"), call("operator")
    assert api("post", "workers/w1/evict", {"model": "digits", "version": 1}).status_code == 202
    entry = OutboxEntry.objects.get(kind=OutboxEntry.EVICT)
    asked = decode(Evict, entry.body)
    assert (entry.key, asked.model, asked.version) == ("w1", "digits", 1)
    assert "Unpin it first" in api("post", "workers/w1/evict", {"model": "cats", "version": 1}).content.decode()
    assert api("post", "workers/w1/evict", {"model": "digits", "version": 2}).status_code == 404
    assert api("post", "workers/w9/evict", {"model": "digits", "version": 1}).status_code == 404
    page = client.get("/workers/w1").content.decode()
    assert page.count(">Evict<") == 1
    assert "stays: pinned" in page
    gone = submit(client, "/workers/w1/evict", {"model": "digits", "version": "1"}, follow=True).content.decode()
    assert "w1 is asked to evict digits" in gone


@pytest.mark.parametrize(
    ("asked", "status", "why"),
    [
        ({"host": "south"}, 409, "placed on none of these hosts, but on: north"),
        ({"host": "west"}, 404, "no host 'west'"),
        ({"host": "north", "version": 7}, 404, "serves no version 7"),
        ({"host": "north", "version": -1}, 400, "version"),
        ({"host": "north", "odd": 1}, 400, "odd"),
        ({}, 400, "host"),
    ],
)
def test_each_refusal_says_why_and_changes_nothing(
    call: Callable[[str], Call], feed: Feed, asked: dict[str, Any], status: int, why: str
) -> None:
    api = call("model manager")
    answer = api("post", "models/digits/load", asked)
    assert (answer.status_code, why in answer.content.decode()) == (status, True), answer.content
    body = {"on": True, **{name: value for name, value in asked.items() if name != "host"}}
    if "host" in asked:
        body["hosts"] = [asked["host"]]
        answer = api("put", "models/digits/pin", body)
        assert (answer.status_code, why in answer.content.decode()) == (status, True), answer.content
    assert not DesiredState.objects.exists()


def test_without_nats_nothing_is_pinned_loaded_or_evicted_and_the_answer_says_so(
    call: Callable[[str], Call], feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Feed, "is_blind", True)
    api = call("model manager")
    for answer in (
        api("put", "models/digits/pin", {"on": True}),
        api("post", "models/digits/load", {"host": "north"}),
    ):
        assert (answer.status_code, "NATS is away" in answer.content.decode()) == (503, True)


def test_who_may_not_pin_sees_no_button_and_is_refused(
    browser: Browser, call: Callable[[str], Call], feed: Feed
) -> None:
    for role, parts in {"viewer": (False, False), "operator": (True, False), "model manager": (True, True)}.items():
        client, api = browser(role), call(role)
        page = client.get("/models/digits").content.decode()
        assert (">Load<" in page, ">Pin<" in page) == parts, role
        assert (api("put", "models/digits/pin", {"on": True}).status_code == 403) is not parts[1]
