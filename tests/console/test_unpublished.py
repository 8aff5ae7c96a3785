"""What cannot be published to the fleet is said: in the answer, on the model's page, on the board."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from console.accounts.models import User
from console.accounts.rights import Actor, system_actor
from console.catalog import modelsettings, registration
from console.catalog.models import ServedModel
from console.feed.feed import Feed
from console.fleet import services as fleet
from console.keys import services as keys
from console.live.database import unpublished
from console.operators import services as accounts
from console.outbox.models import OutboxEntry
from console.outbox.publisher import Publisher
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.errors import InvalidRequest
from signalbox.program.settings import Wire
from signalbox.wire.names import Bucket
from tests.console.conftest import in_thread, submit
from tests.console.mirror import Viewer
from tests.console.test_jobs import make
from tests.console.test_keys import FORM as KEY

pytestmark = pytest.mark.django_db(transaction=True)
ME = system_actor("tests")
LIMIT = "larger than its stream takes"


async def refuse(bus: Bus, *buckets: Bucket) -> None:
    """Have NATS take no document of these buckets, until all is declared again."""
    for bucket in buckets:
        info = await bus.request_json(f"$JS.API.STREAM.INFO.{bucket.stream}")
        await bus.request_json(f"$JS.API.STREAM.UPDATE.{bucket.stream}", info["config"] | {"max_msg_size": 10})


@pytest.fixture
async def full(bus: Bus) -> AsyncIterator[Bus]:
    """A NATS that takes no model."""
    await refuse(bus, Bucket.MODELS)
    yield bus
    await topology.apply(bus)


@pytest.fixture
async def publishing(bus: Bus) -> AsyncIterator[None]:
    task = asyncio.create_task(Publisher(bus, 60).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def in_a_request(act: Callable[..., Any], *given: Any) -> Any:
    """In a thread to itself, as a server runs a request: the publisher uses the one of in_thread."""

    def run() -> Any:
        try:
            return act(*given)
        finally:
            connections.close_all()

    return asyncio.to_thread(run)


@pytest.mark.usefixtures("publishing")
async def test_a_model_that_nats_does_not_take_is_accepted_with_the_reason(
    cast: dict[str, User], bus: Bus, base: Path
) -> None:
    def call(method: str, path: str, body: Any = None) -> Any:
        _, text = accounts.create_token(Actor(user=cast["model manager"]), "t", 1)
        client = Client(headers={"Authorization": f"Bearer {text}"})
        return getattr(client, method)(f"/api/{path}", body, content_type="application/json")

    made = await in_a_request(call, "post", "models", {"name": "first", "path": str(base)})
    assert (made.status_code, made.json()["unpublished"]) == (201, "")
    await refuse(bus, Bucket.MODELS)
    made = await in_a_request(call, "post", "models", {"name": "second", "path": str(base)})
    assert made.status_code == 202
    assert LIMIT in made.json()["unpublished"]
    listed = (await in_a_request(call, "get", "models")).json()["models"]
    assert [(m["name"], LIMIT in m["unpublished"]) for m in listed] == [("first", False), ("second", True)]


def says_so(page: str) -> bool:
    """Whether it says that a model is not published, and does not only offer to filter by that."""
    return "not published" in page.replace(">not published</option>", "")


@pytest.mark.usefixtures("publishing")
async def test_its_page_says_so_as_long_as_it_stands(browser: Callable[[str], Client], full: Bus, base: Path) -> None:
    client = await in_thread(browser, "admin")
    await in_thread(registration.register, ME, "second", str(base))
    answer = await in_a_request(submit, client, "/models/second/replicas", {"replicas": "2"})
    page = (await in_a_request(client.get, answer["Location"])).content.decode()
    assert "not published to the fleet yet" in page, "in the answer to the act"
    page = (await in_a_request(client.get, "/models/second")).content.decode()
    assert LIMIT in page
    assert says_so((await in_a_request(client.get, "/models")).content.decode())
    await topology.apply(full)
    await Publisher(full, 5).publish_due()
    for path in ("/models/second", "/models"):
        assert not says_so((await in_a_request(client.get, path)).content.decode())


@pytest.fixture
async def refusing(bus: Bus) -> AsyncIterator[Callable[[], Any]]:
    """A publisher, and a NATS that takes no key and no desired state when asked so."""

    task = asyncio.create_task(Publisher(bus, 0.1).run())
    try:
        yield partial(refuse, bus, Bucket.KEYS, Bucket.DESIRED)
    finally:
        task.cancel()
        await asyncio.wait([task])
        await topology.apply(bus)


async def test_a_key_a_pause_and_a_drain_say_whether_the_fleet_knows(
    cast: dict[str, User], refusing: Callable[[], Any]
) -> None:
    await in_thread(lambda: ServedModel.objects.create(name="digits"))
    await in_thread(make, 1, worker="w1")
    _, text = await in_thread(accounts.create_token, Actor(user=cast["admin"]), "t", 1)

    def call(method: str, path: str, body: Any) -> Any:
        client = Client(headers={"Authorization": f"Bearer {text}"})
        return getattr(client, method)(f"/api/{path}", body, content_type="application/json")

    async def statuses() -> list[tuple[int, bool]]:
        made = await in_a_request(call, "post", "keys", {"name": secrets.token_hex(4)})
        path = f"keys/{made.json()['id']}/rotate"
        answers = [
            made,
            await in_a_request(call, "post", path, {}),
            await in_a_request(call, "put", "models/digits/pause", {"on": True}),
            await in_a_request(call, "put", "workers/w1/drain", {"on": True}),
        ]
        return [(one.status_code, one.json()["unpublished"] == "") for one in answers]

    assert await statuses() == [(201, True), (201, True), (200, True), (200, True)]
    await refusing()
    assert await statuses() == [(202, False)] * 4


async def test_pages_of_a_key_a_pause_and_a_drain_say_it_too(
    browser: Callable[[str], Client], refusing: Callable[[], Any]
) -> None:
    await in_thread(lambda: ServedModel.objects.create(name="digits"))
    await in_thread(make, 1, worker="w1")
    client = await in_thread(browser, "admin")

    async def said(path: str, form: dict[str, Any]) -> str:
        answer = await in_a_request(submit, client, path, form)
        page: str = (await in_a_request(client.get, answer["Location"])).content.decode()
        return page

    acts = (("/keys/new", KEY), ("/models/digits/pause", {"paused": "1"}), ("/workers/w1/drain", {"draining": "1"}))
    for path, form in acts:
        page = await said(path, form)
        assert "not published to the fleet" not in page
        assert "know it." in page, path
    await refusing()
    for path, form in acts:
        page = await said(path, {**form, "name": "another"})
        assert "Gateways do not know this key yet" in page or "not published to the fleet" in page
        assert "know it." not in page, path


async def test_the_largest_key_that_is_taken_is_published(bus: Bus) -> None:
    names = [f"{number:0100}" for number in range(700)]
    await in_thread(lambda: ServedModel.objects.bulk_create(ServedModel(name=n) for n in names))

    def largest() -> int:
        while names:
            try:
                keys.create(ME, keys.KeyGrant(name="k", models=names))
            except InvalidRequest:
                names.pop()
            else:
                return len(names)
        return 0

    assert 580 < await in_thread(largest) < 700
    await Publisher(bus, 5).publish_due()
    entry = await in_thread(lambda: OutboxEntry.objects.get(bucket="keys"))
    assert (entry.published_at is not None, entry.last_error) == (True, "")


async def test_the_board_has_an_alarm_for_it(full: Bus, wire: Wire, base: Path) -> None:
    await in_thread(registration.register, ME, "second", str(base))
    await Publisher(full, 5).publish_due()
    feed, viewer = Feed(wire, unpublished=unpublished), Viewer()
    watching = asyncio.create_task(feed.run())
    feed.hub.subscribe(viewer, ["alarms"], {}, 0.0)
    try:
        await viewer.until(lambda: bool(viewer.row("alarms", "outbox:models:second")))
        alarm = viewer.row("alarms", "outbox:models:second")
        assert LIMIT in alarm["text"]
        assert (alarm["level"], alarm["href"]) == ("error", "/models/second")
    finally:
        watching.cancel()
        await asyncio.wait([watching])


async def test_what_is_refused_is_tried_less_and_less_and_holds_nothing_else_up(full: Bus, base: Path) -> None:
    await in_thread(registration.register, ME, "second", str(base))
    await in_thread(lambda: ServedModel.objects.create(name="first"))
    await in_thread(lambda: fleet.pause(ME, "first", is_paused=True, reason="heat"))
    publisher = Publisher(full, 60)
    assert await publisher.publish_due() == 2
    assert await publisher.publish_due() == 0, "not at every look"
    entries = {e.bucket: e for e in await in_thread(lambda: list(OutboxEntry.objects.all()))}
    assert entries["desired"].published_at is not None
    assert (entries["models"].published_at, entries["models"].attempts) == (None, 1)
    await in_thread(lambda: modelsettings.set_enabled(ME, "second", is_enabled=False))
    assert await publisher.publish_due() == 1, "a newer decision is tried at once"
