"""What cannot be published to the fleet is said: in the answer, on the model's page, on the board."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from console.accounts import services as accounts
from console.accounts.models import User
from console.accounts.rights import Actor, system_actor
from console.catalog import services as catalog
from console.catalog.models import ServedModel
from console.fleet import services as fleet
from console.live.feed import Feed
from console.live.unpublished import unpublished
from console.outbox.models import OutboxEntry
from console.outbox.publisher import Publisher
from signalbox import topology
from signalbox.bus import Bus
from signalbox.names import Stream
from signalbox.settings import Wire
from tests.console.conftest import in_thread, submit
from tests.console.mirror import Viewer

pytestmark = pytest.mark.django_db(transaction=True)
ME = system_actor("tests")
LIMIT = "maximum consumers limit reached"


@pytest.fixture
async def full(bus: Bus) -> Bus:
    """A NATS whose queue takes the consumers of one model, as 2.15 takes those of 333."""
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
    await bus.request_json(
        f"$JS.API.STREAM.UPDATE.{Stream.JOBS}", info["config"] | {"max_consumers": 3}
    )
    await topology.ensure_consumers(bus, "first")
    return bus


@pytest.fixture
async def publishing(full: Bus) -> AsyncIterator[None]:
    task = asyncio.create_task(Publisher(full, 60).run())
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
    cast: dict[str, User], base: Path
) -> None:
    def call(method: str, path: str, body: Any = None) -> Any:
        _, text = accounts.create_token(Actor(user=cast["model manager"]), "t", 1)
        client = Client(headers={"Authorization": f"Bearer {text}"})
        return getattr(client, method)(f"/api/{path}", body, content_type="application/json")

    made = await in_a_request(call, "post", "models", {"name": "first", "path": str(base)})
    assert (made.status_code, made.json()["unpublished"]) == (201, "")
    made = await in_a_request(call, "post", "models", {"name": "second", "path": str(base)})
    assert made.status_code == 202
    assert LIMIT in made.json()["unpublished"]
    listed = (await in_a_request(call, "get", "models")).json()
    assert [(m["name"], LIMIT in m["unpublished"]) for m in listed] == [
        ("first", False), ("second", True),
    ]  # fmt: skip


@pytest.mark.usefixtures("publishing")
async def test_its_page_says_so_as_long_as_it_stands(
    browser: Callable[[str], Client], full: Bus, base: Path
) -> None:
    client = await in_thread(browser, "admin")
    await in_thread(catalog.register, ME, "second", str(base))
    answer = await in_a_request(submit, client, "/models/second/replicas", {"replicas": "2"})
    page = (await in_a_request(client.get, answer["Location"])).content.decode()
    assert "not published to the fleet yet" in page, "in the answer to the act"
    page = (await in_a_request(client.get, "/models/second")).content.decode()
    assert LIMIT in page
    assert "not published" in (await in_a_request(client.get, "/models")).content.decode()
    info = await full.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
    await full.request_json(
        f"$JS.API.STREAM.UPDATE.{Stream.JOBS}", info["config"] | {"max_consumers": 6}
    )
    await Publisher(full, 5).publish_due()
    for path in ("/models/second", "/models"):
        assert "not published" not in (await in_a_request(client.get, path)).content.decode()


async def test_the_board_has_an_alarm_for_it(full: Bus, wire: Wire, base: Path) -> None:
    await in_thread(catalog.register, ME, "second", str(base))
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


async def test_what_is_refused_is_tried_less_and_less_and_holds_nobody_else_up(
    full: Bus, base: Path
) -> None:
    await in_thread(catalog.register, ME, "second", str(base))
    await in_thread(lambda: ServedModel.objects.create(name="first"))
    await in_thread(lambda: fleet.pause(ME, "first", is_paused=True, reason="heat"))
    publisher = Publisher(full, 60)
    assert await publisher.publish_due() == 2
    assert await publisher.publish_due() == 0, "not at every look"
    entries = {e.bucket: e for e in await in_thread(lambda: list(OutboxEntry.objects.all()))}
    assert entries["desired"].published_at is not None
    assert (entries["models"].published_at, entries["models"].attempts) == (None, 1)
    await in_thread(lambda: catalog.set_enabled(ME, "second", is_enabled=False))
    assert await publisher.publish_due() == 1, "a newer decision is tried at once"
