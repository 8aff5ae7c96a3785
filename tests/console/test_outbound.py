"""What goes out, as operators decide and see it: subscriptions, webhooks and their secrets, their log, batches."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from msgspec.structs import replace

from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.board import hooks
from console.config import ConsoleSettings
from console.controller.reconciler import ConsoleReconciler
from console.feed import programs
from console.keys import services as keys
from console.keys.models import Account
from console.outbound import batches, hosts, reading, subscriptions, webhooks
from console.outbound.models import Subscription, Webhook
from console.outbox import program
from console.outbox.models import OutboxEntry
from console.outbox.publisher import Publisher
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.program.errors import Conflict, InvalidRequest, NotFound, SignalboxError
from signalbox.program.settings import Wire
from signalbox.wire import keydocs, messages, names, outboundnames
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import Batch, Delivery, HookSecret, HookState
from signalbox.wire.outbound import Subscription as SubscriptionDocument
from signalbox.wire.outbound import Webhook as WebhookDocument
from tests.console.conftest import Call, in_thread, submit
from tests.console.test_live_feed import watching
from tests.rigs.natsserver import NatsServer

Browser = Callable[[str], Client]
URL = "https://hooks.example.com/ends?token=abc"
JOB = "018f0000-0000-7000-8000-00000000000{}"
ME = system_actor("tests")
with_rows = pytest.mark.django_db(transaction=True)


def document(bucket: Bucket, type_: type[Any]) -> Any:
    """The newest document that was posted."""
    return messages.decode(type_, OutboxEntry.objects.filter(bucket=bucket.value, kind="document").latest("pk").body)


def test_a_subscription_is_published_switched_taken_back_and_deleted(browser: Browser, admin: Actor) -> None:
    Account.objects.create(id="shop", name="Shop")
    client = browser("admin")
    assert "No subscriptions yet" in client.get("/results").content.decode()
    assert submit(client, "/results/subscribe", {"account": "shop"}).status_code == 302
    made = Subscription.objects.get()
    assert document(Bucket.SUBSCRIPTIONS, SubscriptionDocument).account_id == "shop"
    again = submit(client, "/results/subscribe", {"account": "shop"})
    assert (again.status_code, "already" in again.content.decode()) == (400, True)
    operator = browser("operator")
    submit(operator, f"/results/subscriptions/{made.pk}/switch", {"on": "0"})
    assert not document(Bucket.SUBSCRIPTIONS, SubscriptionDocument).is_enabled
    entry = AuditEntry.objects.latest("number")
    assert submit(operator, f"/audit/{entry.number}/undo").status_code == 302
    assert document(Bucket.SUBSCRIPTIONS, SubscriptionDocument).is_enabled
    submit(client, f"/results/subscriptions/{made.pk}/delete")
    assert not Subscription.objects.exists()
    assert OutboxEntry.objects.latest("pk").body == ""


def test_what_is_refused_names_its_field(admin: Actor) -> None:
    for account, model in (("nobody", ""), ("", "nothing")):
        with pytest.raises(InvalidRequest, match=r"^(account|model): "):
            subscriptions.create(admin, account=account, model=model)
    for url in ("http://hooks.example.com", "https://127.0.0.1", "https://hooks.internal", "https://a:b@x.example.com"):
        with pytest.raises(InvalidRequest, match=r"^url: "):
            webhooks.create(admin, url)
    webhooks.create(admin, URL)
    with pytest.raises(Conflict, match=r"^url: "):
        webhooks.create(admin, URL)


@with_rows
async def test_a_secret_goes_to_where_the_console_cannot_read_it_and_stays_nowhere_else(tmp_path: Path) -> None:
    passwords = {"admin": "admin-secret", "console": "console-secret", "outbound": "outbound-secret"}
    async with NatsServer(tmp_path / "nats", users=passwords) as server:
        users = {
            role: await Bus.connect(Wire(nats_url=server.url, nats_user=role, nats_password=password), role=role)
            for role, password in passwords.items()
        }
        await topology.apply(users["admin"])
        hook, first = await in_thread(webhooks.create, ME, URL)
        await Publisher(users["console"], 5).publish_due()
        _, second = await in_thread(webhooks.rotate, ME, hook.pk)
        await Publisher(users["console"], 5).publish_due()
        rows = await in_thread(
            lambda: [*OutboxEntry.objects.values(), *Webhook.objects.values(), *AuditEntry.objects.values()]
        )
        assert first not in repr(rows)
        assert second not in repr(rows)
        now = await in_thread(webhooks.find, hook.pk)
        stream = Bucket.HOOK_SECRETS.stream

        async def held(name: str) -> str:
            subject = names.key(Bucket.HOOK_SECRETS, outboundnames.hook_secret(hook.pk, name))
            stored = await users["outbound"].direct_get(stream, subject)
            return messages.decode(HookSecret, stored.data).secret if stored and stored.data else ""

        assert (await held(now.secret), await held(now.previous_secret)) == (second, first)
        subject = names.key(Bucket.HOOK_SECRETS, outboundnames.hook_secret(hook.pk, now.secret))
        for read in (users["console"].direct_get, users["console"].leader_get):
            with pytest.raises(SignalboxError):
                await read(stream, subject)
        await in_thread(webhooks.rotate, ME, hook.pk, keeps_previous=False)
        await Publisher(users["console"], 5).publish_due()
        assert (await held(now.secret), await held(now.previous_secret)) == ("", "")
        assert await ConsoleReconciler(users["console"], every_s=60, vanished_after_s=0).repost_lost_documents() == 0
        for user in users.values():
            await user.close()


def test_hosts_that_jobs_may_name_reach_the_keys_and_one_webhook(admin: Actor) -> None:
    key, _ = keys.create(admin, keys.KeyGrant(name="shop"))
    hook, text = hosts.allow(admin, key.account_id, ["Hooks.example.com"])
    assert hook is not None
    assert text.startswith("whsec_")
    assert document(Bucket.KEYS, keydocs.ApiKey).webhook_hosts == ("hooks.example.com",)
    told = document(Bucket.WEBHOOKS, WebhookDocument)
    assert (told.is_for_jobs, told.hosts, told.url) == (True, ("hooks.example.com",), "")
    same, none = hosts.allow(admin, key.account_id, ["hooks.example.com", "more.example.com"])
    assert (same, none) == (hook, "")
    with pytest.raises(Conflict):
        webhooks.delete(admin, hook.pk)
    for wrong in ("10.0.0.1", "hooks.example.com/path", "hooks.example.com:8443", "host"):
        with pytest.raises(InvalidRequest, match=r"^hosts: "):
            hosts.allow(admin, key.account_id, [wrong])
    assert hosts.allow(admin, key.account_id, []) == (None, "")
    assert not Webhook.objects.exists()
    assert document(Bucket.KEYS, keydocs.ApiKey).webhook_hosts == ()


@pytest.fixture
async def nearby(bus: Bus, shared_server: NatsServer, console: ConsoleSettings, settings: Any) -> Bus:
    """NATS as the console's pages ask it."""
    settings.CONSOLE = replace(console, nats_url=shared_server.url)
    return bus


@with_rows
async def test_a_webhook_s_page_shows_how_it_goes_and_enabling_it_calls_it_again(
    nearby: Bus, browser: Browser, call: Callable[[str], Call]
) -> None:
    hook, _ = await in_thread(webhooks.create, ME, URL)
    enabled_at = hook.enabled_at.timestamp()
    failed = HookState(failing_since=1.0, disabled_at=enabled_at + 5, why="five days", last_at=enabled_at, waiting=3)
    await put(nearby, Bucket.HOOK_STATES, names.token(hook.pk), failed)
    for number in range(60):
        told = Delivery(
            hook=hook.pk,
            job_id=JOB.format(number % 2),
            attempt=number,
            at=1000.0 + number,
            status=500,
            answer=f"<{number}>",
        )
        await nearby.write(outboundnames.delivery(hook.pk, told.job_id, number), messages.encode(told))
    other = Delivery(hook="wh_other", job_id=JOB.format(9), attempt=1, at=1.0, status=200)
    await nearby.write(outboundnames.delivery("wh_other", other.job_id, 1), messages.encode(other))
    log = await in_thread(reading.attempts, hook.pk)
    assert [one.attempt for one in log] == list(range(59, 9, -1))

    def look() -> None:
        client = browser("operator")
        page = client.get(f"/results/webhooks/{hook.pk}").content.decode()
        assert "given up" in page
        assert "&lt;59&gt;" in page
        assert "token=abc" not in page + client.get("/results/webhooks").content.decode()
        asked = submit(client, f"/results/webhooks/{hook.pk}/deliver", {"job": JOB.format(1)})
        assert asked.status_code == 302
        send = call("operator")
        assert send("get", f"webhooks/{hook.pk}").json()["deliveries"]["state"] == "failed"
        assert send("get", f"webhooks/{hook.pk}/attempts").json()[0]["answer"] == "<59>"
        submit(client, f"/results/webhooks/{hook.pk}/switch", {"on": "1"})
        Webhook.objects.filter(pk=hook.pk).update(enabled_at=hook.enabled_at.replace(year=2100))
        assert "given up" not in client.get("/results/webhooks").content.decode()
        assert send("put", f"webhooks/{hook.pk}/enabled", {"on": False}).json()["is_enabled"] is False
        assert send("post", f"webhooks/{hook.pk}/deliver", {"job": JOB.format(1)}).status_code == 409

    asked: list[bytes] = []
    received = await nearby.subscribe(outboundnames.ask_delivery(), lambda message: asked.append(message.data))
    await in_thread(look)
    await Publisher(nearby, 5).publish_due()
    await nearby.flush()
    assert asked == [JOB.format(1).encode()]
    await received.close()


@with_rows
async def test_a_batch_is_paused_resumed_and_cancelled_beside_who_does_it(
    nearby: Bus, browser: Browser, call: Callable[[str], Call], transactional_db: None
) -> None:
    batch = Batch(
        id="batch_1",
        account_id="shop",
        key_id="k",
        endpoint="/v1/models/m:predict",
        input_file="file-1",
        state="in_progress",
        created_at=1.0,
        deadline_at=4e9,
        total=10,
        completed=4,
        failed=1,
    )
    key = batches.key_of(batch)
    await put(nearby, Bucket.BATCHES, key, batch)

    async def asked() -> str:
        stored = await nearby.leader_get(Bucket.BATCHES.stream, names.key(Bucket.BATCHES, key))
        assert stored is not None
        return messages.decode(Batch, stored.data).asked

    def act(wanted: str) -> Any:
        return submit(browser("operator"), f"/results/batches/{key}/steer", {"asked": wanted}).status_code

    page = (await in_thread(lambda: browser("viewer").get(f"/results/batches/{key}"))).content.decode()
    assert re.search(r"5 of 10", page)
    assert "Pause" not in page
    for wanted in ("pause", "run", "cancel"):
        assert await in_thread(act, wanted) == 302
        await Publisher(nearby, 5).publish_due()
        assert await asked() == wanted
    listed = (await in_thread(lambda: browser("viewer").get("/results/batches"))).content.decode()
    assert "is being cancelled" in listed
    answer = await in_thread(lambda: call("operator")("put", f"batches/{key}/asked", {"asked": "pause"}))
    assert answer.status_code == 409
    with pytest.raises(NotFound):
        await in_thread(reading.batch, "shop.batch_2")


async def test_the_board_says_which_webhook_was_given_up_and_that_nobody_sends(
    bus: Bus, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "SILENT_S", 2.0)
    hook = WebhookDocument(id="wh_1", url=URL, enabled_at=10.0)
    async with watching(wire) as (feed, viewer):
        await asyncio.wait_for(feed.synced.wait(), 60)
        await viewer.until(lambda: viewer.row("alarms", "projector"))
        assert not viewer.row("alarms", "outbound"), "nothing is to go out"
        await put(bus, Bucket.WEBHOOKS, hook.id, hook)
        await put(bus, Bucket.HOOK_STATES, hook.id, HookState(disabled_at=20.0, why="It failed for five days."))
        await viewer.until(lambda: "outbound program does not run" in viewer.row("alarms", "outbound").get("text", ""))
        await viewer.until(lambda: viewer.row("alarms", f"hook:{hook.id}"))
        alarm = viewer.row("alarms", f"hook:{hook.id}")
        assert alarm["text"] == "Webhook hooks.example.com/ends was given up: It failed for five days."
        assert alarm["href"] == "/results/webhooks/wh_1"
        await put(bus, Bucket.WEBHOOKS, hook.id, replace(hook, enabled_at=30.0))
        saying = asyncio.create_task(program.say_alive(bus, outboundnames.OUTBOUND))
        await viewer.until(lambda: not viewer.row("alarms", f"hook:{hook.id}"))
        await viewer.until(lambda: not viewer.row("alarms", "outbound"))
        saying.cancel()


def test_many_webhooks_that_were_given_up_are_one_line() -> None:
    found = {f"wh_{n}": WebhookDocument(id=f"wh_{n}", url=f"https://h{n}.example.com/") for n in range(3)}
    states = {name: HookState(disabled_at=1.0, why="gone") for name in found}
    (alarm,) = hooks.alarms(found, states).values()
    assert alarm.text.startswith("3 webhooks were given up: h0.example.com")
    off = {name: replace(one, is_enabled=False) for name, one in found.items()}
    assert hooks.alarms(off, states) == {}


def test_rest_does_what_the_pages_do(call: Callable[[str], Call]) -> None:
    send = call("admin")
    made = send("post", "webhooks", {"url": URL})
    assert made.status_code == 202, made.content
    hook = made.json()
    assert (hook["url"], hook["secret"][:6]) == (URL.partition("?")[0], "whsec_")
    (listed,) = send("get", "webhooks").json()
    assert "secret" not in listed
    assert listed["unpublished"], "no NATS is there"
    other = send("post", f"webhooks/{hook['id']}/rotate", {"keeps_previous": True}).json()
    assert other["secret"] != hook["secret"]
    assert other["previous_until"] is not None
    assert send("delete", f"webhooks/{hook['id']}").status_code == 204
    assert OutboxEntry.objects.filter(kind=OutboxEntry.SECRET, body="").count() == 2
    subscription = send("post", "subscriptions", {}).json()
    assert send("put", f"subscriptions/{subscription['id']}/enabled", {"on": False}).json()["is_enabled"] is False
    assert send("delete", f"subscriptions/{subscription['id']}").status_code == 204
