"""API keys: shown once, kept as a keyed hash, revoked for ever."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.config import ConsoleSettings
from console.keys import services
from console.keys.models import ApiKey
from console.keys.usage import receive
from console.operators import services as operators
from console.outbox.models import OutboxEntry
from signalbox.bus.client import Message
from signalbox.program import keys
from signalbox.program.errors import Conflict, InvalidRequest, Misconfigured, NotFound
from signalbox.wire import keydocs, messages
from signalbox.wire.names import KEY_USE
from tests.console.conftest import in_thread, submit

Browser = Callable[[str], Client]
FORM = {
    "name": "checkout",
    "scopes": ["jobs:submit", "jobs:read"],
    "rate": "10",
    "per_s": "1",
    "quota": "0",
    "quota_window_s": "86400",
    "days": "30",
}


def test_the_page_that_creates_a_key_shows_it_and_no_other_page_does(browser: Browser) -> None:
    client = browser("admin")
    sent = submit(client, "/keys/new", FORM)
    assert sent.status_code == 302
    answer = client.get(sent["Location"])
    text = re.findall(r"sbx_[a-z]+_\w+", answer.content.decode())[0]
    kid = keys.parse(text).kid
    for url in ("/keys", f"/keys/{kid}", "/audit", f"/api/keys/{kid}"):
        assert text[-49:] not in client.get(url).content.decode()
    everything = [*AuditEntry.objects.values(), *OutboxEntry.objects.values(), *ApiKey.objects.values()]
    assert text[-49:] not in repr(everything)


def test_what_is_published_opens_for_the_key_and_nothing_else(admin: Actor, console: ConsoleSettings) -> None:
    key, text = services.create(admin, services.KeyGrant(name="a", models=[], rate=3, per_s=2))
    _, other = services.create(admin, services.KeyGrant(name="b"))
    document = messages.decode(keydocs.ApiKey, OutboxEntry.objects.get(key=key.id).body)
    assert keys.matches(console.key_pepper, text, document.hmac)
    assert not keys.matches(console.key_pepper, other, document.hmac)
    assert (document.rate, document.per_s, document.scopes) == (3, 2, services.DEFAULT_SCOPES)
    assert document.expires_at is not None


def test_revoking_posts_the_key_as_revoked_and_cannot_be_repeated(admin: Actor) -> None:
    key, _ = services.create(admin, services.KeyGrant(name="a"))
    services.revoke(admin, key.id, reason="leaked")
    last = OutboxEntry.objects.filter(key=key.id).latest("pk")
    assert messages.decode(keydocs.ApiKey, last.body).revoked_at is not None
    with pytest.raises(Conflict):
        services.revoke(admin, key.id)
    entry = AuditEntry.objects.filter(target=key.id, result="done").latest("pk")
    assert (entry.reason, entry.after["state"]) == ("leaked", "revoked")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scopes": ["jobs:everything"]}, "scopes"),
        ({"scopes": []}, "scopes"),
        ({"models": ["nothing"]}, "models"),
        ({"days": 0}, "days"),
        ({"days": 4000}, "days"),
        ({"name": " "}, "name"),
        ({"rate": -1}, "rate"),
        ({"quota": 2**31}, "quota"),
        ({"scopes": ["jobs:read", "jobs:read"]}, "scopes: name each once"),
        ({"models": ["digits", "digits"]}, "models: name each once"),
        ({"models": [f"{number:040}" for number in range(1600)]}, "models: gateways are told at most"),
    ],
)
def test_a_grant_that_makes_no_sense_is_refused_by_field(admin: Actor, change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field):
        services.create(admin, services.KeyGrant(**({"name": "a"} | change)))  # type: ignore[arg-type]  # on purpose
    assert not ApiKey.objects.exists()


def test_without_a_pepper_no_key_is_made(admin: Actor, settings: object, console: ConsoleSettings) -> None:
    from msgspec.structs import replace

    settings.CONSOLE = replace(console, key_pepper="")  # type: ignore[attr-defined]  # pytest-django's
    with pytest.raises(Misconfigured, match="SIGNALBOX_KEY_PEPPER"):
        services.create(admin, services.KeyGrant(name="a"))


def test_an_unknown_key_is_not_found(browser: Browser, admin: Actor) -> None:
    assert browser("viewer").get("/keys/unknown").status_code == 404
    with pytest.raises(NotFound):
        services.revoke(admin, "unknown")


def test_names_are_shown_as_text_and_never_as_markup(browser: Browser) -> None:
    client = browser("admin")
    submit(client, "/keys/new", {**FORM, "name": "<script>alert(1)</script>"})
    assert b"<script>alert(1)" not in client.get("/keys").content


def test_bad_input_shows_the_reason_at_its_field(browser: Browser) -> None:
    answer = submit(browser("admin"), "/keys/new", {**FORM, "days": "0"})
    assert answer.status_code == 400
    assert b"id_days_error" in answer.content


def test_the_page_says_whether_gateways_have_been_told(browser: Browser, admin: Actor) -> None:
    key, _ = services.create(admin, services.KeyGrant(name="a"))
    client = browser("viewer")
    assert b"being published" in client.get(f"/keys/{key.id}").content
    OutboxEntry.objects.update(published_at=key.created_at, revision=7)
    assert b"revision 7" in client.get(f"/keys/{key.id}").content


def test_a_replacement_may_what_the_old_one_may_owns_its_jobs_and_outlives_it(admin: Actor) -> None:
    grant = services.KeyGrant(name="a", rate=3, networks=["192.0.2.0/24"], scopes=["jobs:read"])
    old, _ = services.create(admin, grant)
    new, text = services.rotate(admin, old.id, overlap_days=2)
    newest, _ = services.rotate(admin, new.id, overlap_days=0)
    old.refresh_from_db()
    published = {entry.key: messages.decode(keydocs.ApiKey, entry.body) for entry in OutboxEntry.objects.order_by("pk")}
    assert keys.parse(text).kid == new.id
    assert new.rotated_from == old
    assert published[new.id].account_id == published[newest.id].account_id == old.id
    assert published[new.id].networks == ("192.0.2.0/24",)
    assert (published[new.id].rate, published[new.id].scopes) == (3, ("jobs:read",))
    left = (old.expires_at or timezone.now()) - timezone.now()
    assert timedelta(days=1, hours=23) < left <= timedelta(days=2)
    assert published[old.id].expires_at == pytest.approx((old.expires_at or old.created_at).timestamp())
    ended = published[new.id].expires_at
    assert ended is not None
    assert ended <= timezone.now().timestamp()


def test_a_key_may_jump_the_queue_only_where_that_was_ticked(browser: Browser, admin: Actor) -> None:
    client = browser("admin")
    page = client.get("/keys/new").content.decode()
    boxes = dict(re.findall(r'<input type="checkbox" name="scopes" value="([\w:]+)"([^>]*)>', page))
    assert {name: "checked" in rest for name, rest in boxes.items()} == {
        "jobs:submit": True,
        "jobs:read": True,
        "jobs:cancel": True,
        "jobs:urgent": False,
        **dict.fromkeys(("queues:put", "queues:get", "queues:watch", "queues:manage"), False),
        "models:manage": False,
    }
    assert "ask for priority hi" in page
    assert submit(client, "/keys/new", {**FORM, "scopes": ["jobs:urgent"]}).status_code == 302
    ticked = ApiKey.objects.get()
    new, _ = services.rotate(admin, ticked.id)
    assert ticked.document().scopes == new.document().scopes == ("jobs:urgent",)


def test_a_replacement_is_valid_for_as_long_as_the_old_key_was_made_for(admin: Actor) -> None:
    old, _ = services.create(admin, services.KeyGrant(name="a", days=30))
    ApiKey.objects.update(created_at=old.created_at - timedelta(days=29), expires_at=timezone.now() + timedelta(days=1))
    new, _ = services.rotate(admin, old.id)
    other, _ = services.rotate(admin, new.id, days=7)
    for key, days in ((new, 30), (other, 7)):
        assert key.expires_at == key.created_at + timedelta(days=days)
    with pytest.raises(Conflict, match=f"replaced already, by {new.pk}: replace that one"):
        services.rotate(admin, old.id)


def test_a_keys_name_is_its_own_in_its_account_until_it_is_revoked_or_replaced(admin: Actor) -> None:
    first, _ = services.create(admin, services.KeyGrant(name="web"))
    shop = first.account_id
    with pytest.raises(Conflict, match="name: account web has a key WEB already: replace or revoke it"):
        services.create(admin, services.KeyGrant(name="WEB", account=shop))
    with pytest.raises(Conflict, match="name: the key would get an account of its own, and there is an account web"):
        services.create(admin, services.KeyGrant(name="web"))
    second, _ = services.rotate(admin, first.pk)
    services.revoke(admin, second.pk)
    third, _ = services.create(admin, services.KeyGrant(name="web", account=shop))
    assert third.account_id == shop


def test_a_key_without_an_end_is_replaced_by_one_without_an_end(admin: Actor) -> None:
    old, _ = services.create(admin, services.KeyGrant(name="a"))
    ApiKey.objects.update(expires_at=None, lifetime=None)
    new, _ = services.rotate(admin, old.id)
    assert (new.expires_at, new.document().expires_at) == (None, None)


def test_nothing_that_is_revoked_says_when_it_would_have_expired(browser: Browser, admin: Actor) -> None:
    key, _ = services.create(admin, services.KeyGrant(name="a"))
    token, _ = operators.create_token(admin, "ci", 30)
    client = browser("admin")
    pages = ("/keys", f"/keys/{key.pk}", f"/accounts/{key.account_id}", "/settings")

    def ends(page: str) -> bool:
        shown = client.get(page).content.decode()
        return any(f'datetime="{one.expires_at:%Y-%m-%dT%H:%M:%S}' in shown for one in (key, token) if one.expires_at)

    assert [page for page in pages if not ends(page)] == []
    services.rotate(admin, key.pk)
    services.revoke(admin, key.pk)
    operators.revoke_token(admin, token.pk)
    key.refresh_from_db()
    assert [page for page in pages if ends(page)] == []


@pytest.mark.parametrize("overlap_days", [-1, 7.5, 100])
def test_the_old_key_goes_on_for_at_most_a_week(admin: Actor, overlap_days: float) -> None:
    old, _ = services.create(admin, services.KeyGrant(name="a"))
    with pytest.raises(InvalidRequest, match="overlap_days"):
        services.rotate(admin, old.id, overlap_days=overlap_days)
    assert ApiKey.objects.count() == 1


def test_a_replacement_does_not_lengthen_the_life_of_the_old_key(admin: Actor) -> None:
    old, _ = services.create(admin, services.KeyGrant(name="a", days=1))
    before = old.expires_at
    services.rotate(admin, old.id, overlap_days=7)
    old.refresh_from_db()
    assert old.expires_at == before


def test_a_key_that_has_ended_is_not_replaced(admin: Actor) -> None:
    revoked, _ = services.create(admin, services.KeyGrant(name="a"))
    services.revoke(admin, revoked.id)
    expired, _ = services.create(admin, services.KeyGrant(name="b"))
    ApiKey.objects.filter(pk=expired.id).update(expires_at=timezone.now())
    for key in (revoked, expired):
        with pytest.raises(Conflict):
            services.rotate(admin, key.id)
    with pytest.raises(NotFound):
        services.rotate(admin, "unknown")


def test_only_who_may_manage_keys_replaces_one_and_the_page_shows_it_once(browser: Browser, admin: Actor) -> None:
    old, _ = services.create(admin, services.KeyGrant(name="a"))
    url = f"/keys/{old.id}/rotate"
    assert submit(browser("viewer"), url, {"overlap_days": "1"}).status_code == 403
    assert submit(browser("admin"), url, {"overlap_days": "8"}).status_code == 302
    assert ApiKey.objects.count() == 1
    client = browser("admin")
    answer = client.get(submit(client, url, {"overlap_days": "1"})["Location"])
    assert "no-store" in answer["Cache-Control"]
    text = re.findall(r"sbx_[a-z]+_\w+", answer.content.decode())[0]
    assert ApiKey.objects.get(rotated_from=old).id == keys.parse(text).kid
    assert f"/keys/{keys.parse(text).kid}" in browser("viewer").get(f"/keys/{old.id}").content.decode()


@pytest.mark.parametrize("networks", [["192.0.2.1/24"], ["nonsense"], ["0.0.0.0/0"] * 51])
def test_what_is_no_network_is_refused(admin: Actor, networks: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="networks"):
        services.create(admin, services.KeyGrant(name="a", networks=networks))
    assert not ApiKey.objects.exists()


def test_networks_are_read_from_the_form_and_shown(browser: Browser) -> None:
    client = browser("admin")
    submit(client, "/keys/new", {**FORM, "networks": "192.0.2.0/24, 2001:db8::/32"})
    key = ApiKey.objects.get()
    assert key.networks == ["192.0.2.0/24", "2001:db8::/32"]
    assert b"2001:db8::/32" in client.get(f"/keys/{key.id}").content


def test_a_key_names_the_pepper_it_was_made_under(admin: Actor, console: ConsoleSettings) -> None:
    key, _ = services.create(admin, services.KeyGrant(name="a"))
    assert key.pepper == keys.pepper_id(console.key_pepper)
    assert keys.pepper_id("another") != key.pepper


@pytest.mark.django_db(transaction=True)
async def test_what_gateways_tell_of_use_is_written_down(admin: Actor) -> None:
    used, _ = await in_thread(services.create, admin, services.KeyGrant(name="a"))
    idle, _ = await in_thread(services.create, admin, services.KeyGrant(name="b"))
    await receive(Message(KEY_USE, "", b"", f'["{used.id}", "unknown"]'.encode()))
    await receive(Message(KEY_USE, "", b"", b"nonsense"))
    await receive(Message(KEY_USE, "", b"", b'["\xff"]'))
    await in_thread(used.refresh_from_db)
    await in_thread(idle.refresh_from_db)
    assert used.last_used_at is not None
    assert idle.last_used_at is None
