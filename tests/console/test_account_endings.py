"""An account is disabled and enabled again, or deleted: its keys, its name, its open jobs."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.keys import accounts, cancelling, endings, services, unknown
from console.keys.accounts import Terms
from console.keys.models import Account, ApiKey, UnknownKey
from console.keys.services import KeyGrant
from console.outbox.models import OutboxEntry
from console.outbox.publisher import Publisher
from signalbox.bus.client import Bus
from signalbox.program.errors import Conflict, Forbidden, InvalidRequest
from tests.console.conftest import in_thread, submit
from tests.console.test_accounts import published
from tests.console.test_jobs import make
from tests.console.test_unknown_keys import lose_database, reported, settle

ME = system_actor("tests")


def shop(admin: Actor, *names: str) -> tuple[Account, list[ApiKey]]:
    made = accounts.create(admin, Terms(name="Shop"))
    return made, [services.create(admin, KeyGrant(name=name, account=made.pk))[0] for name in names]


def test_a_disabled_accounts_keys_are_published_so_and_are_good_again_once_it_is_enabled(admin: Actor) -> None:
    account, (web, old) = shop(admin, "web", "old")
    services.revoke(admin, old.pk)
    before = published()[web.pk].updated_at
    endings.disable(admin, account.pk, reason="does not pay")
    assert (published()[web.pk].is_disabled, published()[web.pk].revoked_at) == (True, None)
    assert published()[web.pk].updated_at > before
    assert [key.state() for key in ApiKey.objects.order_by("name")] == ["revoked", "disabled"]
    with pytest.raises(Conflict, match="Account Shop is disabled"):
        endings.disable(admin, account.pk)
    with pytest.raises(Conflict, match="Account Shop is disabled: enable it first"):
        services.create(admin, KeyGrant(name="new", account=account.pk))
    endings.enable(admin, account.pk)
    assert not published()[web.pk].is_disabled
    assert published()[old.pk].revoked_at is not None
    entry = AuditEntry.objects.get(act="accounts.delete", reason="does not pay")
    assert (entry.target, entry.before, entry.after) == (account.pk, {"state": "active"}, {"state": "disabled"})


def test_a_deleted_accounts_keys_end_its_name_is_free_and_its_page_stays(admin: Actor) -> None:
    account, (web,) = shop(admin, "web")
    with pytest.raises(InvalidRequest, match="reason: say why"):
        endings.delete(admin, account.pk, jobs="finish", reason=" ")
    with pytest.raises(InvalidRequest, match="jobs: one of finish, cancel"):
        endings.delete(admin, account.pk, jobs="", reason="gone")
    endings.delete(admin, account.pk, jobs="finish", reason="gone")
    assert published()[web.pk].revoked_at is not None
    web.refresh_from_db()
    assert (web.revoked_reason, web.state()) == ("its account was deleted", "revoked")
    assert not accounts.listed().exists()
    assert accounts.shown(account.pk).state == "deleted"
    for act in (endings.disable, endings.enable):
        with pytest.raises(Conflict, match="Account Shop is deleted"):
            act(admin, account.pk)
    assert accounts.create(admin, Terms(name="shop")).pk != account.pk
    assert not OutboxEntry.objects.filter(kind=OutboxEntry.CANCEL).exists()


def test_names_of_accounts_are_their_own_whatever_their_capitals(admin: Actor) -> None:
    account, _ = shop(admin)
    with pytest.raises(Conflict, match="name: there is an account SHOP already: add keys to it"):
        accounts.create(admin, Terms(name="SHOP"))
    other = accounts.create(admin, Terms(name="Other"))
    with pytest.raises(Conflict, match="name: there is an account shop already"):
        accounts.change(admin, other.pk, {"name": "shop"})
    assert accounts.change(admin, account.pk, {"name": "SHOP"}).name == "SHOP"


def test_the_open_jobs_of_a_deleted_account_are_cancelled_a_batch_at_a_time(
    admin: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancelling, "BATCH", 2)
    account, _ = shop(admin)
    mine = [make(n, account_id=account.pk, state="queued").pk for n in range(3)]
    mine.append(make(3, account_id=account.pk, state="running").pk)
    make(4, account_id=account.pk)
    make(5, state="queued")
    endings.delete(admin, account.pk, jobs="cancel", reason="gone")
    asked = OutboxEntry.objects.filter(kind=OutboxEntry.CANCEL).order_by("pk")
    assert (cancelling.cancel_some(), cancelling.cancel_some()) == (2, 0), "the first batch is not published yet"
    asked.update(published_at=timezone.now())
    assert (cancelling.cancel_some(), cancelling.cancel_some()) == (2, 0)
    assert list(asked.values_list("key", flat=True)) == mine
    asked.update(published_at=timezone.now())
    assert cancelling.cancel_some() == 0
    assert Account.objects.get().cancels_jobs, "a job that was accepted just before has no row yet"
    late = make(6, account_id=account.pk, state="queued")
    assert cancelling.cancel_some() == 1
    asked.filter(key=late.pk).update(published_at=timezone.now())
    Account.objects.update(deleted_at=timezone.now() - timedelta(minutes=1))
    assert cancelling.cancel_some() == 0
    assert not Account.objects.get().cancels_jobs
    assert AuditEntry.objects.filter(act="accounts.delete").count() == 1


def test_only_admins_disable_and_delete(admin: Actor, cast: dict[str, object]) -> None:
    account, _ = shop(admin)
    manager = Actor(user=cast["model manager"], via="tests")  # type: ignore[arg-type]  # the cast's users
    with pytest.raises(Forbidden):
        endings.disable(manager, account.pk)
    with pytest.raises(Forbidden):
        endings.delete(manager, account.pk, jobs="finish", reason="gone")
    account.refresh_from_db()
    assert account.state == "active"


@pytest.mark.django_db(transaction=True)
async def test_a_database_of_before_an_account_was_disabled_does_not_enable_it(bus: Bus) -> None:
    key, _ = await in_thread(services.create, ME, KeyGrant(name="web"))
    await Publisher(bus, 5).publish_due()
    before = await in_thread(lambda: ApiKey.objects.filter(pk=key.pk).values().get())
    await in_thread(endings.disable, ME, key.account_id)
    await Publisher(bus, 5).publish_due()
    await in_thread(OutboxEntry.objects.all().delete)
    await in_thread(lambda: ApiKey.objects.filter(pk=key.pk).update(**before))
    await in_thread(lambda: Account.objects.update(disabled_at=None))
    await settle(bus)
    assert (await reported(bus, key.pk)).is_disabled
    assert (await in_thread(Account.objects.get)).state == "disabled"
    await in_thread(endings.enable, ME, key.account_id)
    await settle(bus)
    assert not (await reported(bus, key.pk)).is_disabled, "what was decided later stands"


@pytest.mark.django_db(transaction=True)
async def test_a_key_of_a_disabled_account_is_adopted_with_the_account_disabled(bus: Bus) -> None:
    key, _ = await in_thread(services.create, ME, KeyGrant(name="web"))
    await in_thread(endings.disable, ME, key.account_id)
    await Publisher(bus, 5).publish_due()
    await lose_database()
    await in_thread(Account.objects.all().delete)
    await settle(bus)
    assert await in_thread(UnknownKey.objects.filter(pk=key.pk).exists), "it comes back to life when it is enabled"
    await in_thread(unknown.adopt, ME, key.pk)
    assert (await in_thread(Account.objects.get)).state == "disabled"


def test_an_account_is_disabled_and_deleted_over_rest(admin: Actor, call: Callable[[str], Any]) -> None:
    account, (web,) = shop(admin, "web")
    program = call("admin")
    told = program("put", f"accounts/{account.pk}/disabled", {"on": True, "reason": "does not pay"})
    assert (told.status_code, told.json()["state"]) == (202, "disabled"), "nobody publishes here"
    assert program("get", f"keys/{web.pk}").json()["state"] == "disabled"
    assert program("put", f"accounts/{account.pk}/disabled", {"on": False}).json()["state"] == "active"
    assert program("post", f"accounts/{account.pk}/delete", {"jobs": "finish"}).status_code == 400
    gone = {"jobs": "cancel", "reason": "gone"}
    told = program("post", f"accounts/{account.pk}/delete", gone).json()
    assert (told["state"], told["cancels_jobs"], told["active_keys"]) == ("deleted", True, 0)
    assert program("post", f"accounts/{account.pk}/delete", gone).status_code == 409


def test_a_refused_deletion_says_why_on_the_page(admin: Actor, browser: Callable[[str], Client]) -> None:
    account, _ = shop(admin)
    client = browser("admin")
    answer = submit(client, f"/accounts/{account.pk}/delete", {"jobs": "finish", "reason": ""})
    assert (answer.status_code, "say why" in answer.content.decode()) == (400, True)
    assert accounts.shown(account.pk).state == "active"
    assert "Disable" not in browser("operator").get(f"/accounts/{account.pk}").content.decode()
