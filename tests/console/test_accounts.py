"""Accounts: whose keys are whose, what a change publishes, and the lines of rotations that became accounts."""

import re
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from django.db import connection, transaction
from django.test import Client

from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog.models import ServedModel
from console.jobs import acts as jobs
from console.jobs import query
from console.keys import accounts, services
from console.keys.accounts import Terms
from console.keys.models import Account, ApiKey
from console.keys.services import KeyGrant
from console.outbox.models import OutboxEntry
from signalbox.program.errors import Conflict, InvalidRequest, NotFound
from signalbox.wire import keydocs, messages
from tests.console.conftest import submit
from tests.console.test_jobs import make
from tests.console.test_keys import FORM as KEY

Browser = Callable[[str], Client]
FORM = {"name": "Shop", "note": "", "stored_bytes": "0", "waiting": "0", "idempotency_keys": "0", "result_bytes": "0"}
FORM |= {"queue_bytes": "0"}


def published() -> dict[str, keydocs.ApiKey]:
    """The newest document of each key."""
    return {entry.key: messages.decode(keydocs.ApiKey, entry.body) for entry in OutboxEntry.objects.order_by("pk")}


@pytest.fixture
def digits(db: None) -> ServedModel:
    return ServedModel.objects.create(name="digits", base_path="/nowhere")


def test_a_key_made_without_an_account_gets_one_of_its_own(admin: Actor) -> None:
    key, _ = services.create(admin, KeyGrant(name="checkout"))
    assert (key.account.pk, key.account.name, key.account.created_by) == (key.pk, "checkout", "admin")
    assert published()[key.pk].account_id == key.pk


def test_what_an_account_may_use_and_hold_is_published_with_each_of_its_keys(admin: Actor, digits: ServedModel) -> None:
    bounds: dict[str, Any] = {
        "stored_bytes": 7,
        "waiting": 3,
        "idempotency_keys": 9,
        "result_bytes": 5,
        "queue_bytes": 4,
    }
    terms = Terms(name="Shop", models=["digits"], **bounds)
    shop = accounts.create(admin, terms)
    first, _ = services.create(admin, KeyGrant(name="a", account=shop.pk))
    second, _ = services.create(admin, KeyGrant(name="b", account=shop.pk))
    for kid in (first.pk, second.pk):
        document = published()[kid]
        assert (document.account_id, document.account_models) == (shop.pk, ("digits",))
        assert document.share == keydocs.Share(**bounds)


def test_a_changed_account_publishes_its_keys_anew_and_no_others(admin: Actor, digits: ServedModel) -> None:
    shop = accounts.create(admin, Terms(name="Shop"))
    mine = [services.create(admin, KeyGrant(name=name, account=shop.pk))[0] for name in "ab"]
    services.revoke(admin, mine[1].pk)
    services.create(admin, KeyGrant(name="other"))
    before = OutboxEntry.objects.latest("pk").pk
    accounts.change(admin, shop.pk, {"models": ["digits"], "waiting": 5}, reason="asked for")
    assert sorted(OutboxEntry.objects.filter(pk__gt=before).values_list("key", flat=True)) == sorted(
        key.pk for key in mine
    )
    assert {published()[key.pk].account_models for key in mine} == {("digits",)}
    assert {published()[key.pk].share.waiting for key in mine} == {5}
    assert published()[mine[1].pk].revoked_at is not None
    entry = AuditEntry.objects.get(act="accounts.manage", reason="asked for")
    assert (entry.target_kind, entry.target) == ("account", shop.pk)
    assert entry.before == {"models": [], "waiting": 0}
    assert entry.after == {"models": ["digits"], "waiting": 5}


def test_a_changed_name_or_note_is_no_news_for_gateways(admin: Actor) -> None:
    key, _ = services.create(admin, KeyGrant(name="a"))
    before = OutboxEntry.objects.count()
    accounts.change(admin, key.pk, {"name": "Shop", "note": "ask Ann"})
    assert OutboxEntry.objects.count() == before
    assert str(Account.objects.get()) == f"Shop ({key.pk})"


def test_a_change_that_is_refused_publishes_nothing(admin: Actor) -> None:
    key, _ = services.create(admin, KeyGrant(name="a"))
    before = OutboxEntry.objects.count()
    with pytest.raises(InvalidRequest, match="models: there is no nothing"):
        accounts.change(admin, key.pk, {"waiting": 5, "models": ["nothing"]})
    assert OutboxEntry.objects.count() == before
    assert Account.objects.get().waiting == 0
    assert AuditEntry.objects.filter(act="accounts.manage", result="failed").count() == 1


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"name": " "}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"note": "x" * 501}, "note"),
        ({"models": ["nothing"]}, "models: there is no nothing"),
        ({"models": ["digits", "digits"]}, "models: name each once"),
        ({"models": ["dig*s"]}, "models: there is no dig"),
        ({"models": ["-x*"]}, "models: '-x.*' begins no model's name"),
        ({"models": ["x" * 100 + "*"]}, "models: .* begins no model's name"),
        ({"models": ["x" * 100] * 2000}, "models"),
        ({"models": [f"{number:040}" for number in range(1600)]}, "models: gateways are told at most"),
        ({"stored_bytes": -1}, "stored_bytes"),
        ({"stored_bytes": 2**50 + 1}, "stored_bytes: 0 to"),
        ({"waiting": 10**6 + 1}, "waiting: 0 to"),
        ({"idempotency_keys": 2**31}, "idempotency_keys: 0 to"),
        ({"result_bytes": 2**50 + 1}, "result_bytes: 0 to"),
        ({"queue_bytes": 2**50 + 1}, "queue_bytes: 0 to"),
    ],
)
def test_terms_that_make_no_sense_are_refused_by_field(
    admin: Actor, digits: ServedModel, terms: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest, match=field):
        accounts.create(admin, Terms(**({"name": "Shop"} | terms)))
    assert not Account.objects.exists()


def test_beginnings_of_names_are_published_whether_or_not_there_are_such_models(admin: Actor) -> None:
    shop = accounts.create(admin, Terms(name="Shop", models=["team-*", "*"]))
    key, _ = services.create(admin, KeyGrant(name="a", account=shop.pk, models=["x" * 99 + "*"]))
    assert published()[key.pk].account_models == ("team-*", "*")
    assert published()[key.pk].models == ("x" * 99 + "*",)


def test_the_form_takes_names_and_beginnings_of_names_and_shows_them_again(
    browser: Browser, admin: Actor, digits: ServedModel
) -> None:
    client = browser("admin")
    sent = submit(client, "/accounts/new", {**FORM, "models": "digits, team-*\n scan*"})
    assert Account.objects.get().models_allowed == ["digits", "team-*", "scan*"]
    form = client.get(f"{sent.url}/edit").content.decode()
    assert "digits team-* scan*</textarea>" in form
    assert "beginnings of names" in form
    refused = submit(client, f"{sent.url}/edit", {**FORM, "models": "digits none"})
    assert (refused.status_code, "there is no none" in refused.content.decode()) == (400, True)


def test_the_highest_numbers_are_kept_and_published(admin: Actor) -> None:
    shop = accounts.create(admin, msgspec.convert({"name": "Shop"} | accounts.BOUNDS, Terms))
    key, _ = services.create(admin, KeyGrant(name="a", account=shop.pk))
    assert published()[key.pk].share == keydocs.Share(**accounts.BOUNDS)


def test_a_list_of_models_that_no_document_can_hold_is_refused(admin: Actor) -> None:
    names = [f"{number:0100}" for number in range(400)]
    ServedModel.objects.bulk_create(ServedModel(name=name, base_path="/nowhere") for name in names)
    key, _ = services.create(admin, KeyGrant(name="a", models=names[:300]))
    with pytest.raises(InvalidRequest, match="models: gateways are told at most"):
        accounts.change(admin, key.pk, {"models": names})
    assert published()[key.pk].account_models == ()
    shop = accounts.create(admin, Terms(name="Shop", models=names))
    with pytest.raises(InvalidRequest, match="models: gateways are told at most"):
        services.create(admin, KeyGrant(name="b", models=names[:300], account=shop.pk))
    assert not shop.keys.exists()


def test_an_account_has_a_bounded_number_of_keys(admin: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "MOST_KEYS", 2)
    old, _ = services.create(admin, KeyGrant(name="a"))
    services.rotate(admin, old.pk)
    with pytest.raises(Conflict, match="create another account"):
        services.create(admin, KeyGrant(name="b", account=old.pk))
    with pytest.raises(Conflict, match="create another account"):
        services.rotate(admin, old.pk)
    assert ApiKey.objects.count() == 2
    services.create(admin, KeyGrant(name="of its own"))


def test_an_unknown_account_is_not_found(browser: Browser, admin: Actor) -> None:
    assert browser("viewer").get("/accounts/unknown").status_code == 404
    with pytest.raises(NotFound):
        accounts.change(admin, "unknown", {"name": "x"})
    with pytest.raises(InvalidRequest, match="account: There is no account 'unknown'"):
        services.create(admin, KeyGrant(name="a", account="unknown"))
    assert not ApiKey.objects.exists()


def test_every_act_on_a_key_names_its_account_in_the_audit(admin: Actor) -> None:
    shop = accounts.create(admin, Terms(name="Shop"))
    key, _ = services.create(admin, KeyGrant(name="a", account=shop.pk))
    new, _ = services.rotate(admin, key.pk)
    services.revoke(admin, new.pk)
    entries = list(AuditEntry.objects.filter(act="keys.manage"))
    assert len(entries) == 3
    assert {entry.after["account"] for entry in entries} == {shop.pk}


def test_the_end_of_a_job_names_its_account_in_the_audit(admin: Actor) -> None:
    job = make(1, account_id="shop", state="queued")
    jobs.cancel(admin, job.pk)
    entry = AuditEntry.objects.get(act="jobs.cancel")
    assert entry.after == {"account": "shop", "cancel": "asked"}
    assert [name for name, _, _ in entry.changes] == ["cancel"], "only what the act set is shown"


def test_an_account_is_made_in_the_browser_given_a_key_and_changed(browser: Browser, digits: ServedModel) -> None:
    client = browser("admin")
    assert b"No accounts yet" in client.get("/accounts").content
    sent = submit(client, "/accounts/new", {**FORM, "note": "ask Ann", "models": ["digits"]})
    shop = Account.objects.get()
    assert sent["Location"] == f"/accounts/{shop.pk}"
    page = client.get(sent["Location"]).content.decode()
    assert "ask Ann" in page
    assert "No keys yet" in page
    assert f'href="/keys/new?account={shop.pk}"' in page
    form = client.get(f"/keys/new?account={shop.pk}").content.decode()
    assert re.search(rf'<option value="{shop.pk}" selected>', form)
    submit(client, "/keys/new", {**KEY, "account": shop.pk})
    key = ApiKey.objects.get()
    assert key.account == shop
    changed = {**FORM, "note": "ask Ann", "waiting": "12"}
    assert submit(client, f"/accounts/{shop.pk}/edit", changed)["Location"] == f"/accounts/{shop.pk}"
    shop.refresh_from_db()
    assert (shop.waiting, shop.models_allowed) == (12, [])
    page = client.get(f"/accounts/{shop.pk}").content.decode()
    assert f'href="/keys/{key.pk}"' in page
    assert "12 at a gateway" in page
    assert "Not published to the gateways yet" in page
    assert "accounts.manage" in page, "its history"
    assert "keys.manage" in page, "and that of its keys"
    assert f'href="/accounts/{shop.pk}"' in client.get(f"/keys/{key.pk}").content.decode()


def test_bad_terms_show_the_reason_at_their_field(browser: Browser) -> None:
    answer = submit(browser("admin"), "/accounts/new", {**FORM, "waiting": str(10**6 + 1)})
    assert answer.status_code == 400
    assert b"id_waiting_error" in answer.content
    answer = submit(browser("admin"), "/keys/new", {**KEY, "account": "unknown"})
    assert b"id_account_error" in answer.content


def test_an_account_s_page_says_what_its_jobs_come_to(browser: Browser, admin: Actor) -> None:
    key, _ = services.create(admin, KeyGrant(name="a"))
    make(1, account_id=key.pk, state="queued", size_in=3 * 1024)
    make(2, account_id=key.pk, state="running", size_in=2 * 1024)
    make(3, account_id=key.pk, state="succeeded", size_in=99 * 1024)
    make(4, account_id="other", state="queued", size_in=7 * 1024)
    page = browser("viewer").get(f"/accounts/{key.pk}").content.decode()
    assert "5.0 KiB in open jobs now" in page
    jobs = page[page.index('id="usage"') :]
    counts = re.findall(r'stat-label">(\w+)</span><span class="stat-value">([^<]+)<', jobs)
    assert dict(counts) == dict.fromkeys(query.STATES, "0") | {"queued": "1", "running": "1", "succeeded": "1"}
    assert f'?q=account:{key.pk}">All 3</a>' in page


def test_jobs_name_the_account_they_belong_to_and_are_found_by_it(browser: Browser, admin: Actor) -> None:
    shop = accounts.create(admin, Terms(name="Northern shop"))
    mine, other = make(1, account_id=shop.pk), make(2, account_id="unknown")
    client = browser("viewer")
    for url in ("/jobs", f"/jobs?q=account:{shop.pk}", f"/jobs/{mine.pk}"):
        assert "Northern shop" in client.get(url).content.decode(), url
    assert f'href="/accounts/{shop.pk}"' in client.get(f"/jobs/{mine.pk}").content.decode()
    found = client.get(f"/jobs?q=account:{shop.pk}").content.decode()
    assert mine.pk in found
    assert other.pk not in found


@pytest.mark.django_db(transaction=True)
def test_a_change_waits_for_a_revocation_and_does_not_undo_it(admin: Actor) -> None:
    key, _ = services.create(admin, KeyGrant(name="a"))

    def change() -> None:
        try:
            accounts.change(admin, key.pk, {"waiting": 5})
        finally:
            connection.close()

    changing = threading.Thread(target=change)
    with transaction.atomic():
        services.revoke(admin, key.pk)
        changing.start()
        changing.join(1.0)  # to no end where it waits; where it does not, it ends too early
    changing.join(60)
    assert not changing.is_alive()
    assert published()[key.pk].share.waiting == 5
    assert published()[key.pk].revoked_at is not None
