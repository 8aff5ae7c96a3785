"""Queues as operators make, change, empty and see them: pages, REST, keys, the board, and what the fleet is told."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.test import Client
from msgspec.structs import replace

from console.accounts.models import User
from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.board import queueservice
from console.catalog.models import ServedModel
from console.config import ConsoleSettings
from console.controller.reconciler import ConsoleReconciler
from console.keys import accounts
from console.keys import services as keys
from console.keys.models import Account, ApiKey
from console.outbox.models import OutboxEntry
from console.outbox.publisher import Publisher
from console.queues import contents, services, terms
from console.queues.models import Queue
from console.queues.terms import Terms
from signalbox.bus.client import Bus, Message
from signalbox.bus.table import put, remove
from signalbox.program.errors import Conflict, InvalidRequest, NotFound, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire import keydocs, messages, names, queuenames
from signalbox.wire.names import Bucket
from signalbox.wire.queues import (
    MOST_QUEUES,
    GroupState,
    QueueAsk,
    QueueDone,
    QueueState,
    SideState,
    WatchState,
)
from signalbox.wire.queues import Queue as QueueDocument
from tests.console.conftest import Call, in_thread, submit
from tests.console.test_live_feed import watching
from tests.rigs.natsserver import NatsServer

Browser = Callable[[str], Client]
FORM = {
    "name": "orders",
    "account": "shop",
    "memory": "4000",
    "memory_ratio": "0.5",
    "max_delivery": "5",
    "max_idle": "0",
    "dead_message_policy": "Rear",
    "instance": "1",
    "min_replica": "1",
    "cpu": "1",
}
ME = system_actor("tests")
with_rows = pytest.mark.django_db(transaction=True)


@pytest.fixture
def shop(db: None) -> Account:
    """An account."""
    return Account.objects.create(id="shop", name="Shop")


def document() -> QueueDocument:
    """The newest document that was posted."""
    entry = OutboxEntry.objects.filter(bucket=Bucket.QUEUES.value).exclude(body="").latest("pk")
    return messages.decode(QueueDocument, entry.body)


def test_a_queue_is_made_with_the_products_defaults_changed_taken_back_and_deleted(
    browser: Browser, shop: Account
) -> None:
    client = browser("model manager")
    assert "No queues yet" in client.get("/queues").content.decode()
    assert submit(client, "/queues/-/create", FORM).status_code == 302
    made = Queue.objects.get()
    told = document()
    assert replace(told, created_at=0.0, updated_at=0.0) == QueueDocument(name="orders", account_id="shop")
    assert (told.room("source").length, told.room("sink").length) == (230_399, 230_399)
    page = client.get("/queues/orders").content.decode()
    assert "How queues stand is not known now" in page
    submit(client, "/queues/orders/settings", FORM | {"sink_max_length": "100", "max_idle": "90s"})
    told = document()
    assert (told.sink.max_length, told.sink.max_payload_kb, told.max_idle_s) == (100, 0, 90.0)
    entry = AuditEntry.objects.latest("number")
    assert entry.before == {"sink_max_length": 0, "sink_max_payload_size_kb": 8, "max_idle_s": 0.0}
    assert submit(client, f"/audit/{entry.number}/undo").status_code == 302
    assert replace(document(), created_at=0.0, updated_at=0.0) == QueueDocument(name="orders", account_id="shop")
    assert submit(client, "/queues/orders/delete").status_code == 302
    assert not Queue.objects.filter(pk=made.pk).exists()
    assert list(OutboxEntry.objects.filter(body="").values_list("bucket", "key")) == [("queues", "orders")]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"source_max_length": 5, "source_max_payload_size_kb": 8}, "source_max_length"),
        ({"sink_max_payload_size_kb": terms.MOST_PAYLOAD_KB + 1}, "sink_max_payload_size_kb"),
        ({"memory": 0}, "memory"),
        ({"memory_ratio": 1.0}, "memory_ratio"),
        ({"min_replica": 2}, "min_replica"),
        ({"instance": 6}, "instance"),
        ({"max_idle_s": 1e9}, "max_idle"),
        ({"dead_message_policy": "Keep"}, "dead_message_policy"),
        ({"services": ["m", "m"]}, "services"),
        ({"services": ["nothing"]}, "services"),
        ({"key": "nobody"}, "key"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_its_name(
    admin: Actor, shop: Account, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest, match=rf"^{field}: "):
        services.create(admin, "orders", "shop", given)
    assert not Queue.objects.exists()
    assert AuditEntry.objects.latest("number").result == AuditEntry.FAILED


def test_names_and_accounts_are_checked_and_there_are_no_more_queues_than_nats_shall_keep(
    admin: Actor, shop: Account
) -> None:
    for name in ("", "-x", "a b", "x" * 61, "a/b"):
        with pytest.raises(InvalidRequest, match=r"^name: "):
            services.create(admin, name, "shop", {})
    with pytest.raises(InvalidRequest, match=r"^account: "):
        services.create(admin, "orders", "nobody", {})
    services.create(admin, "orders", "shop", {})
    with pytest.raises(Conflict, match=r"^name: "):
        services.create(admin, "orders", "shop", {})
    Queue.objects.bulk_create(Queue(name=f"q{n}", account=shop) for n in range(MOST_QUEUES - 1))
    with pytest.raises(Conflict, match="delete one first"):
        services.create(admin, "one-more", "shop", {})
    with pytest.raises(NotFound):
        services.change(admin, "one-more", {"cpu": 2})


def test_a_length_takes_the_place_of_a_payload_size_and_the_other_way_round() -> None:
    longer = terms.changed(Terms(), {"sink_max_length": 7})
    assert (longer.sink_max_length, longer.sink_max_payload_size_kb) == (7, 0)
    larger = terms.changed(longer, {"sink_max_payload_size_kb": 64})
    assert (larger.sink_max_length, larger.sink_max_payload_size_kb) == (0, 64)
    neither = terms.changed(larger, {"sink_max_length": 0, "sink_max_payload_size_kb": 0})
    assert neither == Terms()


@pytest.mark.parametrize(
    ("text", "seconds", "again"),
    [
        ("0", 0.0, "0"),
        ("90s", 90.0, "90s"),
        ("5m", 300.0, "5m"),
        ("1h30m", 5400.0, "90m"),
        ("7", 7.0, "7s"),
        ("2h", 7200.0, "2h"),
    ],
)
def test_times_are_written_as_the_product_writes_them(text: str, seconds: float, again: str) -> None:
    assert terms.seconds_of(text) == seconds
    assert terms.text_of(seconds) == again
    assert terms.seconds_of(again) == seconds


@pytest.mark.parametrize("text", ["", " ", "m", "5 minutes", "-1s", "1d", "9" * 30, "1e3"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^max_idle: "):
        terms.seconds_of(text)


def test_a_key_is_for_queues_of_its_account_alone(admin: Actor, shop: Account) -> None:
    services.create(admin, "orders", "shop", {})
    grant = keys.KeyGrant(name="k", account="shop", scopes=("queues:put", "queues:get"), queues=("orders",))
    key, _ = keys.create(admin, grant)
    told = messages.decode(keydocs.ApiKey, OutboxEntry.objects.filter(bucket=Bucket.KEYS.value).latest("pk").body)
    assert (told.scopes, told.queues) == (("queues:put", "queues:get"), ("orders",))
    new, _ = keys.rotate(admin, key.pk)
    assert new.queues_allowed == ["orders"]
    other = accounts.create(admin, accounts.Terms(name="Other"))
    for given in ({"account": other.pk}, {"account": ""}, {"account": "shop", "queues": ("orders", "orders")}):
        with pytest.raises(InvalidRequest, match=r"^queues: "):
            keys.create(admin, replace(keys.KeyGrant(name="k2", queues=("orders",)), **given))


def test_the_form_of_a_key_has_its_queues(browser: Browser, admin: Actor, shop: Account) -> None:
    services.create(admin, "orders", "shop", {})
    client = browser("admin")
    form = {"name": "k", "account": "shop", "scopes": "queues:watch", "queues": "orders", "rate": "0", "per_s": "1"}
    form |= {"quota": "0", "quota_window_s": "86400", "days": "7"}
    assert submit(client, "/keys/new", form).status_code == 302
    key = ApiKey.objects.get()
    assert (key.scopes, key.queues_allowed) == (["queues:watch"], ["orders"])
    assert "orders" in client.get(f"/keys/{key.pk}").content.decode()


def test_a_page_names_the_services_that_no_key_lets_have_anything(
    browser: Browser, admin: Actor, shop: Account
) -> None:
    for name in ("a", "b"):
        ServedModel.objects.create(name=name, base_path=f"/{name}")
    queue = services.create(admin, "orders", "shop", {"services": ["a", "b"]})
    keys.create(admin, keys.KeyGrant(name="puts", account="shop", scopes=("queues:put",)))
    assert services.without_key(queue) == ["a", "b"]
    key, _ = keys.create(admin, keys.KeyGrant(name="a", account="shop", scopes=("jobs:submit",), models=("a",)))
    assert services.without_key(queue) == ["b"]
    page = browser("viewer").get("/queues/orders").content.decode()
    assert "b takes no items: no key of the account may submit them" in page
    assert "a takes no items" not in page
    keys.revoke(admin, key.pk)
    assert services.without_key(queue) == ["a", "b"]
    ApiKey.objects.update(revoked_at=None, scopes=["jobs:submit"], models_allowed=[])
    assert services.without_key(queue) == []


def test_rest_takes_the_products_names_and_refuses_others_by_name(call: Callable[[str], Call], shop: Account) -> None:
    send = call("model manager")
    body = {"name": "orders", "account": "shop", "max_idle": "5m", "sink": {"memory_ratio": 0.25, "max_length": 10}}
    made = send("post", "queues", body)
    assert made.status_code == 202, made.content
    assert made.json()["unpublished"]
    assert (made.json()["max_idle"], made.json()["sink"]["max_payload_size_kb"]) == ("5m", 0)
    assert made.json()["source"]["most_items"] == int(4000 * 1024 * 0.9 * 0.75 / 8) - 1
    wrong = send("patch", "queues/orders", {"max_delivrey": 3, "sink": {"memory": 3}})
    assert wrong.status_code == 400
    assert "did you mean max_delivery?" in wrong.content.decode()
    both = send("patch", "queues/orders", {"sink": {"max_length": 5, "max_payload_size_kb": 8}})
    assert (both.status_code, "not both" in both.json()["detail"]) == (400, True)
    changed = send("patch", "queues/orders", {"max_delivery": 0, "reason": "asked for"}).json()
    assert (changed["max_delivery"], changed["state"], changed["sink"]["max_length"]) == (0, None, 10)
    assert [one["name"] for one in send("get", "queues").json()] == ["orders"]
    assert send("post", "queues/orders/purge", {}).status_code == 400, "the count first"
    assert send("post", "queues/orders/purge", {"items": 3}).status_code == 503, "no NATS is there"
    assert send("delete", "queues/orders").status_code == 204
    assert send("get", "queues/orders").status_code == 404


@pytest.fixture
async def nearby(bus: Bus, shared_server: NatsServer, console: ConsoleSettings, settings: Any) -> Bus:
    """NATS as the console's pages ask it."""
    settings.CONSOLE = replace(console, nats_url=shared_server.url)
    return bus


STATE = QueueState(
    state="running",
    replicas=1,
    source=SideState(
        length=230_399,
        size=10,
        first_index=3,
        last_index=9,
        oldest_at=1e9,
        rear=2,
        groups=(GroupState(name="eas", pending=4),),
    ),
    sink=SideState(is_ended=True),
    watches=(
        WatchState(
            queue="orders", side="source", group="eas", uid="<w1>", window=5, pending=2, slots=3, tags={"a": "b"}
        ),
    ),
    at=1.0,
)


async def answering(bus: Bus, done: QueueDone, asked: list[QueueAsk]) -> Callable[[], Awaitable[None]]:
    """Answer what is asked of queues, as the outbound program does."""

    async def reply(message: Message) -> None:
        asked.append(messages.decode(QueueAsk, message.data))
        await bus.publish(message.reply, messages.encode(done))

    tasks: list[asyncio.Task[None]] = []
    received = await bus.subscribe(
        queuenames.ask_queue(), lambda message: tasks.append(asyncio.ensure_future(reply(message)))
    )
    await bus.flush()
    return received.close


@with_rows
async def test_a_page_shows_both_sides_and_purges_no_more_than_it_has_told(
    nearby: Bus, browser: Browser, transactional_db: None
) -> None:
    await in_thread(lambda: Account.objects.create(id="shop", name="Shop"))
    await in_thread(services.create, ME, "orders", "shop", {})
    new = (await in_thread(lambda: browser("viewer").get("/queues/orders"))).content.decode()
    assert "/v1/queues/orders" in new, "what to do first"
    await put(nearby, Bucket.QUEUE_STATES, names.token("orders"), STATE)
    asked: list[QueueAsk] = []
    close = await answering(nearby, QueueDone(items=3), asked)

    def look() -> None:
        client = browser("operator")
        page = client.get("/queues/orders").content.decode()
        assert "eas.&lt;w1&gt;" in page
        assert "a=b" in page
        assert "source full" in page
        assert "Reopen sink" in page
        assert "/queues/orders/settings" not in page
        told = re.findall(r'name="items" value="(\d+)"', page)
        assert told == ["2", "230399"]
        listed = client.get("/queues").content.decode()
        assert "full" in listed
        assert re.search(r"10\s(B|bytes) in them now", client.get("/accounts/shop").content.decode())
        assert client.get("/api/accounts/shop").json()["queued_bytes"] == 10
        form = {"side": "source", "items": "230399", "reason": "old"}
        assert submit(client, "/queues/orders/purge", form).status_code == 302
        assert submit(client, "/queues/orders/redrive", {"side": "source"}).status_code == 302
        assert submit(client, "/queues/orders/reopen", {"side": "sink"}).status_code == 302
        assert "3 items are in the source again" in client.get("/queues/orders").content.decode()
        assert submit(client, "/queues/orders/purge", {"side": "source", "items": "0"}).status_code == 400
        assert submit(client, "/queues/orders/purge", {"side": "both", "items": "1"}).status_code == 400
        viewer = browser("viewer").get("/queues/orders").content.decode()
        assert "Purge" not in viewer

    await in_thread(look)
    created_at = (await in_thread(services.find, "orders")).created_at.timestamp()
    assert asked == [
        QueueAsk(act="purge", side="source", most=230_399, created_at=created_at),
        QueueAsk(act="redrive", side="source", most=contents.MOST_REDRIVEN, created_at=created_at),
        QueueAsk(act="reopen", side="sink", created_at=created_at),
    ]
    entry = await in_thread(lambda: AuditEntry.objects.filter(act="queues.purge", result="done").get())
    assert entry.after == {"side": "source", "is_rear": False, "items": 3}
    await close()


@with_rows
async def test_what_cannot_be_done_with_items_is_said_and_audited(nearby: Bus, transactional_db: None) -> None:
    await in_thread(lambda: Account.objects.create(id="shop", name="Shop"))
    await in_thread(services.create, ME, "orders", "shop", {})
    with pytest.raises(Unavailable, match="No outbound program runs"):
        await in_thread(contents.redrive, ME, "orders", "sink")
    close = await answering(nearby, QueueDone(items=7, error="The source is full."), [])
    with pytest.raises(Conflict, match="after 7 items: The source is full"):
        await in_thread(contents.redrive, ME, "orders", "source")
    with pytest.raises(NotFound):
        await in_thread(contents.purge, ME, "none", "source", 1)
    await close()
    close = await answering(nearby, QueueDone(), [])
    with pytest.raises(Conflict, match="has not ended"):
        await in_thread(contents.reopen, ME, "orders", "source")
    results = await in_thread(lambda: list(AuditEntry.objects.filter(result="failed").values_list("act", flat=True)))
    assert sorted(results) == ["queues.purge", *["queues.redrive"] * 3]
    await close()


@with_rows
async def test_documents_reach_nats_and_come_back_when_lost(nearby: Bus, transactional_db: None) -> None:
    await in_thread(lambda: Account.objects.create(id="shop", name="Shop"))
    await in_thread(services.create, ME, "a.b", "shop", {"max_delivery": 0})
    publisher = Publisher(nearby, 5)
    await publisher.publish_due()
    subject = names.key(Bucket.QUEUES, names.token("a.b"))

    async def held() -> QueueDocument | None:
        stored = await nearby.leader_get(Bucket.QUEUES.stream, subject)
        return messages.decode(QueueDocument, stored.data) if stored is not None and stored.data else None

    first = await held()
    assert first is not None
    assert (first.name, first.max_delivery) == ("a.b", 0)
    await remove(nearby, Bucket.QUEUES, names.token("a.b"))
    reconciler = ConsoleReconciler(nearby, every_s=60, vanished_after_s=0)
    assert await reconciler.repost_lost_documents() == 1
    await publisher.publish_due()
    assert await held() == first
    await in_thread(services.delete, ME, "a.b")
    await publisher.publish_due()
    assert await held() is None


async def test_the_board_tells_of_full_and_failed_queues_and_pages_of_each_change(bus: Bus, wire: Wire) -> None:
    queue = QueueDocument(name="orders", account_id="shop")
    async with watching(wire) as (feed, viewer):
        await asyncio.wait_for(feed.synced.wait(), 60)
        feed.hub.subscribe(viewer, ["queuestates"], {}, 0.0)
        await put(bus, Bucket.QUEUES, "orders", queue)
        await put(bus, Bucket.QUEUE_STATES, "orders", STATE)
        await viewer.until(lambda: viewer.row("alarms", "queue-full:orders"))
        alarm = viewer.row("alarms", "queue-full:orders")
        assert alarm["text"] == "Queue orders: its source is full: puts are refused."
        assert alarm["href"] == "/queues/orders"
        away = QueueState(state="running", sink=SideState(is_away=True), at=1.5)
        await put(bus, Bucket.QUEUE_STATES, "orders", away)
        await viewer.until(lambda: viewer.row("alarms", "queue-away:orders"))
        assert viewer.row("alarms", "queue-away:orders")["text"] == (
            "Queue orders: its sink has no leader in NATS: a node is away, or another is being elected. "
            "Until then nothing is put or taken."
        )
        await put(bus, Bucket.QUEUE_STATES, "orders", STATE)
        await viewer.until(lambda: viewer.row("alarms", "queue-full:orders"))
        await viewer.until(lambda: viewer.row("queuestates", "orders").get("at") == 1.0)
        await put(bus, Bucket.QUEUE_STATES, "orders", QueueState(state="failed", why="No room.", at=2.0))
        await viewer.until(lambda: viewer.row("alarms", "queue-failed:orders"))
        await viewer.until(lambda: viewer.row("queuestates", "orders").get("at") == 2.0)
        await remove(bus, Bucket.QUEUES, "orders")
        await remove(bus, Bucket.QUEUE_STATES, "orders")
        await viewer.until(lambda: not viewer.row("alarms", "queue-failed:orders"))
        await viewer.until(lambda: not viewer.row("queuestates", "orders"))


async def test_items_of_a_queue_are_the_backlog_of_each_of_its_services(bus: Bus, wire: Wire) -> None:
    group = GroupState(name="eas", left=5, pending=2)
    state = QueueState(state="running", source=SideState(length=7, groups=(group, GroupState(name="other", left=9))))
    async with watching(wire) as (feed, viewer):
        await asyncio.wait_for(feed.synced.wait(), 60)
        feed.hub.subscribe(viewer, ["queues"], {}, 0.0)
        await put(bus, Bucket.QUEUE_STATES, "orders", state)
        await put(bus, Bucket.QUEUES, "orders", QueueDocument(name="orders", account_id="shop", services=("a", "b")))
        await viewer.until(lambda: viewer.row("queues", "a").get("items") == 5)
        await viewer.until(lambda: viewer.row("queues", "b").get("items") == 5)
        await put(bus, Bucket.QUEUE_STATES, "orders", replace(state, sink=SideState(length=230_399)))  # it is full
        await viewer.until(lambda: not viewer.row("queues", "a"))
        await put(bus, Bucket.QUEUE_STATES, "orders", state)
        await viewer.until(lambda: viewer.row("queues", "a").get("items") == 5)
        await put(bus, Bucket.QUEUE_STATES, "orders", replace(state, source=replace(state.source, is_away=True)))
        await viewer.until(lambda: not viewer.row("queues", "a"))
        await put(bus, Bucket.QUEUE_STATES, "orders", state)
        await viewer.until(lambda: viewer.row("queues", "a").get("items") == 5)
        await remove(bus, Bucket.QUEUES, "orders")
        await viewer.until(lambda: not viewer.row("queues", "a"))
        await remove(bus, Bucket.QUEUE_STATES, "orders")


def test_a_side_that_drops_its_oldest_is_never_full_and_many_full_ones_are_one_line() -> None:
    queue = QueueDocument(name="orders", account_id="shop")
    assert queueservice.is_full(queue, "source", STATE)
    evicting = replace(queue, source=replace(queue.source, auto_evict=True))
    assert not queueservice.is_full(evicting, "source", STATE)
    assert queueservice.condition(queue, None).state == "pending"
    assert queueservice.condition(evicting, STATE).label == "sink ended"
    many = {f"q{n}": replace(queue, name=f"q{n}") for n in range(7)}
    (alarm,) = queueservice.alarms(many, dict.fromkeys(many, STATE)).values()
    assert alarm.text == "7 of the queues are full, so that puts are refused: q0, q1, q2, q3, q4 and 2 more."


def test_a_sink_that_takes_nothing_is_said_to_stop_the_services_of_its_queue() -> None:
    queue = QueueDocument(name="orders", account_id="shop", services=("a",))
    full = replace(STATE, source=SideState(), sink=SideState(length=230_399))
    assert queueservice.condition(queue, full).why == (
        "Its sink is full: puts are refused, and its services take no items."
    )
    assert queueservice.condition(replace(queue, services=()), full).why == "Its sink is full: puts are refused."
    assert queueservice.condition(queue, replace(STATE, source=SideState())).why == (
        "It takes no further item there, and its services take no items until it is reopened."
    )


def test_who_is_limited_to_models_sees_no_queues(browser: Browser, admin: Actor, shop: Account) -> None:
    services.create(admin, "orders", "shop", {})
    client = browser("operator")
    User.objects.filter(username="operator").update(only_models=["team-*"])
    assert client.get("/queues").status_code == 403
    assert submit(client, "/queues/orders/reopen", {"side": "sink"}).status_code == 403
    assert 'href="/queues"' not in client.get("/models").content.decode()
