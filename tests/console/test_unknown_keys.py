"""Keys after a loss: an end that database or NATS knows of is an end in both, and no key lives unseen."""

import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.accounts.models import User
from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.controller.reconciler import ConsoleReconciler
from console.keys import services as keys
from console.keys import unknown
from console.keys.models import Account, ApiKey, UnknownKey
from console.live.database import unpublished
from console.operators import services as accounts
from console.outbox.ends import with_ends_of
from console.outbox.models import OutboxEntry
from console.outbox.publisher import Publisher
from signalbox.bus.client import Bus
from signalbox.program.errors import Conflict, NotFound
from signalbox.wire import keydocs, messages, names
from signalbox.wire.names import Bucket
from tests.console.conftest import in_thread, submit

pytestmark = pytest.mark.django_db(transaction=True)
ME = system_actor("tests")


def doc(**changes: object) -> keydocs.ApiKey:
    return keydocs.ApiKey(**{"id": "k", "account_id": "k", "hmac": "0" * 64, **changes})  # type: ignore[arg-type]  # a test's fields


async def reported(bus: Bus, kid: str) -> keydocs.ApiKey:
    """What gateways know of a key."""
    stored = await bus.leader_get(Bucket.KEYS.stream, names.key(Bucket.KEYS, kid))
    assert stored is not None
    return messages.decode(keydocs.ApiKey, stored.data)


async def settle(bus: Bus) -> None:
    """What the controller does in a round."""
    await ConsoleReconciler(bus, every_s=60, vanished_after_s=60).repost_lost_documents()
    await Publisher(bus, 5).publish_due()


async def made(bus: Bus, **grant: object) -> str:
    """The id of a key that gateways know."""
    key, _ = await in_thread(lambda: keys.create(ME, keys.KeyGrant(name="shop", **grant)))  # type: ignore[arg-type]
    await Publisher(bus, 5).publish_due()
    return key.pk


async def lose_database() -> None:
    """All that the console knew of keys."""
    await in_thread(ApiKey.objects.all().delete)
    await in_thread(OutboxEntry.objects.all().delete)


def test_an_end_counts_whether_nats_or_the_database_has_it() -> None:
    old, new = doc(updated_at=1.0), doc(updated_at=2.0)
    revoked = doc(updated_at=1.0, revoked_at=1.0)
    assert with_ends_of(new, revoked).revoked_at == 1.0
    assert with_ends_of(revoked, new) == revoked
    shorter = doc(updated_at=2.0, expires_at=5.0)
    assert with_ends_of(doc(updated_at=1.0, expires_at=9.0), shorter).expires_at == 5.0
    assert with_ends_of(old, shorter).expires_at == 5.0
    longer = doc(updated_at=3.0, expires_at=9.0)
    assert with_ends_of(longer, shorter) == longer, "what was decided later stands"


async def test_a_database_of_before_a_revocation_does_not_undo_it(bus: Bus) -> None:
    kid = await made(bus)
    before = await in_thread(lambda: ApiKey.objects.filter(pk=kid).values().get())
    await in_thread(lambda: keys.revoke(ME, kid))
    await Publisher(bus, 5).publish_due()
    await in_thread(OutboxEntry.objects.all().delete)
    await in_thread(lambda: ApiKey.objects.filter(pk=kid).update(**before))
    await settle(bus)
    assert (await reported(bus, kid)).revoked_at is not None
    row = await in_thread(ApiKey.objects.get, pk=kid)
    assert row.state() == "revoked"
    assert "NATS knew of it" in row.revoked_reason
    entry = await in_thread(lambda: AuditEntry.objects.filter(target=kid).latest("pk"))
    assert entry.after["state"] == "revoked"


async def test_a_posting_of_before_a_revocation_does_not_undo_it(bus: Bus) -> None:
    """As from an outbox that was restored with a posting that waits."""
    kid = await made(bus)
    await in_thread(lambda: keys.revoke(ME, kid))
    await Publisher(bus, 5).publish_due()
    stale = await in_thread(lambda: OutboxEntry.objects.filter(key=kid).earliest("pk").body)
    entry = OutboxEntry(kind=OutboxEntry.DOCUMENT, bucket=Bucket.KEYS.value, key=kid, body=stale)
    await in_thread(entry.save)
    await Publisher(bus, 5).publish_due()
    assert (await reported(bus, kid)).revoked_at is not None


async def test_a_database_of_before_a_replacement_takes_the_earlier_expiry(bus: Bus) -> None:
    kid = await made(bus)
    before = await in_thread(lambda: ApiKey.objects.filter(pk=kid).values().get())
    new, _ = await in_thread(lambda: keys.rotate(ME, kid, overlap_days=0))
    await Publisher(bus, 5).publish_due()
    await in_thread(OutboxEntry.objects.all().delete)
    await in_thread(lambda: ApiKey.objects.filter(pk=new.pk).delete())
    await in_thread(lambda: ApiKey.objects.filter(pk=kid).update(**before))
    await settle(bus)
    assert (await in_thread(ApiKey.objects.get, pk=kid)).state() == "expired"
    ends_at = (await reported(bus, kid)).expires_at
    assert ends_at is not None
    assert ends_at <= time.time()
    assert await in_thread(UnknownKey.objects.filter(pk=new.pk).exists)


async def test_a_nats_of_before_a_revocation_is_told_again(bus: Bus) -> None:
    kid = await made(bus)
    before = await bus.leader_get(Bucket.KEYS.stream, names.key(Bucket.KEYS, kid))
    assert before is not None
    await in_thread(lambda: keys.revoke(ME, kid))
    await Publisher(bus, 5).publish_due()
    await bus.write(names.key(Bucket.KEYS, kid), before.data)
    await settle(bus)
    assert (await reported(bus, kid)).revoked_at is not None


async def test_a_key_that_only_nats_knows_is_shown_and_adopted_as_it_is(bus: Bus) -> None:
    kid = await made(bus, rate=7, networks=["192.0.2.0/24"])
    known = await reported(bus, kid)
    await lose_database()
    await settle(bus)
    assert await reported(bus, kid) == known, "it goes on"
    found = await unpublished()
    assert found is not None
    assert found["keys:unknown"].text.startswith("1 API key is in force")
    key = await in_thread(lambda: unknown.adopt(ME, kid))
    assert (key.name, key.rate, key.account_id) == ("shop", 7, kid)
    await settle(bus)
    adopted = await reported(bus, kid)
    assert (adopted.hmac, adopted.networks, adopted.revoked_at) == (known.hmac, known.networks, None)
    assert not await in_thread(UnknownKey.objects.exists)
    with pytest.raises(Conflict):
        await in_thread(lambda: unknown.adopt(ME, kid))


async def test_a_key_that_only_nats_knows_is_revoked(bus: Bus) -> None:
    kid = await made(bus)
    await lose_database()
    await settle(bus)
    await in_thread(lambda: keys.revoke(ME, kid, reason="not ours"))
    await Publisher(bus, 5).publish_due()
    assert (await reported(bus, kid)).revoked_at is not None
    assert (await in_thread(ApiKey.objects.get, pk=kid)).revoked_reason == "not ours"
    await settle(bus)
    assert not await in_thread(UnknownKey.objects.exists)
    with pytest.raises(NotFound):
        await in_thread(lambda: keys.revoke(ME, "unknown"))


def held(*docs: keydocs.ApiKey) -> dict[str, bytes]:
    return {one.id: messages.encode(one) for one in docs}


def test_a_key_that_has_ended_takes_no_place_among_unknown_ones() -> None:
    past = time.time() - 60
    unknown.compare(held(doc(id="a", revoked_at=past), doc(id="b", expires_at=past), doc(id="c")))
    assert [key.pk for key in UnknownKey.objects.all()] == ["c"]
    unknown.compare(held(doc(id="c", revoked_at=past)))
    assert not UnknownKey.objects.exists()


async def test_the_alarm_counts_every_unknown_key() -> None:
    many = [UnknownKey(id=f"k{n}", document=f'{{"id": "k{n}", "account_id": "a", "hmac": "00"}}') for n in range(1200)]
    await in_thread(lambda: UnknownKey.objects.bulk_create(many))
    found = await unpublished()
    assert found is not None
    assert found["keys:unknown"].text.startswith("1200 API keys are in force")


def test_what_is_compared_takes_as_many_queries_however_many_keys_there_are() -> None:
    asked = []
    for _ in range(2):
        for _ in range(3):
            keys.create(ME, keys.KeyGrant(name=f"shop {ApiKey.objects.count()}"))
        documents = held(*(key.document() for key in ApiKey.objects.all()))
        with CaptureQueriesContext(connection) as queries:
            unknown.compare(documents)
        asked.append(len(queries))
    assert asked[0] == asked[1]


def test_read_only_mode_still_offers_to_revoke_an_unknown_key(browser: Callable[[str], Client], admin: Actor) -> None:
    UnknownKey.objects.create(id="k", document='{"id": "k", "name": "old", "account_id": "a", "hmac": "00"}')
    accounts.switch_read_only(admin, is_read_only=True, message="Moving house.")
    page = browser("admin").get("/keys").content.decode()
    assert ("/keys/k/revoke" in page, "/keys/k/adopt" in page) == (True, False)
    assert "/keys/k/revoke" not in browser("viewer").get("/keys").content.decode()


def program(user: User, method: str, path: str) -> Any:
    """A call of the API with a token of this operator."""
    _, text = accounts.create_token(Actor(user=user), "t", 1)
    client = Client(headers={"Authorization": f"Bearer {text}"})
    more = {} if method == "get" else {"data": {}, "content_type": "application/json"}
    return getattr(client, method)(f"/api/{path}", **more)


def test_page_and_api_show_what_is_unknown_and_act_on_it(
    browser: Callable[[str], Client], cast: dict[str, User]
) -> None:
    ended = (timezone.now() - timedelta(days=1)).timestamp()
    for kid, more in (("lives", ""), ("over", f', "expires_at": {ended}')):
        UnknownKey.objects.create(
            id=kid, document=f'{{"id": "{kid}", "name": "old {kid}", "account_id": "a", "hmac": "00"{more}}}'
        )
    admin, viewer = browser("admin"), browser("viewer")
    listed = program(cast["admin"], "get", "unknown-keys").json()
    assert [(one["id"], one["name"], one["state"]) for one in listed] == [
        ("lives", "old lives", "active"),
        ("over", "old over", "expired"),
    ]
    page = admin.get("/keys").content.decode()
    assert re.findall(r'action="/keys/(\w+/\w+)"', page) == ["lives/adopt", "lives/revoke", "over/adopt", "over/revoke"]
    assert "/adopt" not in viewer.get("/keys").content.decode()
    assert program(cast["viewer"], "post", "keys/lives/adopt").status_code == 403
    assert submit(admin, "/keys/lives/adopt").status_code == 302
    assert ApiKey.objects.get(pk="lives").name == "old lives"
    assert program(cast["admin"], "post", "keys/over/revoke").json()["state"] == "revoked"
    assert program(cast["admin"], "get", "unknown-keys").json() == []
    assert program(cast["admin"], "post", "keys/gone/adopt").status_code == 404


def test_a_key_of_a_deleted_account_is_revoked_and_not_adopted(admin: Actor) -> None:
    account = Account.objects.create(id="a", name="gone", deleted_at=timezone.now())
    UnknownKey.objects.create(id="k", document='{"id": "k", "name": "old", "account_id": "a", "hmac": "00"}')
    with pytest.raises(Conflict, match="is deleted"):
        unknown.adopt(admin, "k")
    assert not account.keys.exists()
    assert keys.revoke(admin, "k").state() == "revoked"
