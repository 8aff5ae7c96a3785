"""What owners of API keys have the console do: by the key's rights, through the services, over NATS."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.accounts.models import System
from console.accounts.rights import Actor, system_actor
from console.asked import answering
from console.asked.listener import answer_asks
from console.audit.models import AuditEntry
from console.catalog import imports, modelsettings, publishing, registration
from console.catalog.models import ServedModel
from console.fleet import services as fleet
from console.fleet.models import DesiredState
from console.keys import services as keys
from console.keys.models import ApiKey
from console.outbox.models import OutboxEntry
from console.repositories.models import Repository
from gateway_plugin.service.console import Console
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.errors import Conflict, Forbidden, NotFound, TooLarge, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire import keydocs
from signalbox.wire.asks import SCOPE, ConsoleAnswer, ConsoleAsk
from signalbox.wire.messages import decode, encode
from signalbox.wire.servingconfig import ServingConfig, ServingModel
from signalbox.wire.steering import Prefetch
from tests.console.conftest import in_thread
from tests.console.test_models import brought, published
from tests.rigs.natsserver import NatsServer

PASSWORDS = {"admin": "admin-secret", "console": "console-secret", "gateway": "gateway-secret"}


def key_of(admin: Actor, *models: str, scopes: tuple[str, ...] = (SCOPE,)) -> ApiKey:
    return keys.create(admin, keys.KeyGrant(name=f"ci {secrets.token_hex(4)}", scopes=scopes, models=models))[0]


def ask(key: ApiKey, what: Any, **given: Any) -> ConsoleAnswer:
    asked = ConsoleAsk(key_id=key.pk, account=key.account_id, what=what, **given)
    return decode(ConsoleAnswer, answering.answer(encode(asked)))


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no publisher in these tests, and it is not waited for."""
    monkeypatch.setattr(publishing, "why_unpublished", lambda _: "")
    monkeypatch.setattr(fleet, "why_unpublished", lambda _: "")


def test_unload_disables_a_model_and_load_enables_it_and_has_it_loaded_ahead_of_need(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    key = key_of(admin)
    assert ask(key, "unload", model="digits").status == "ok"
    assert not published().is_enabled
    assert ask(key, "unload", model="digits").status == "ok", "again"
    until = timezone.now().timestamp() + 60
    assert ask(key, "load", model="digits", until=until).status == "ok"
    assert published().is_enabled
    body = OutboxEntry.objects.filter(key="prefetch.digits").latest("pk").body
    assert decode(Prefetch, body) == Prefetch(model="digits", until=until, by=f"key:{key.pk}")
    entry = AuditEntry.objects.filter(target="digits").latest("pk")
    assert (entry.actor_name, entry.via) == (f"key:{key.pk}", "gateway")


def test_the_page_says_who_unloaded_a_model_and_who_has_it_loaded_ahead(
    admin: Actor, base: Path, browser: Callable[[str], Client]
) -> None:
    registration.register(admin, "digits", str(base))
    key, viewer = key_of(admin), browser("viewer")
    ask(key, "unload", model="digits")
    assert f"Disabled by key:{key.pk}." in viewer.get("/models/digits").content.decode()
    ask(key, "load", model="digits", until=timezone.now().timestamp() + 60)
    assert f"asked for by key:{key.pk}" in viewer.get("/models/digits").content.decode()


def test_a_load_is_kept_for_an_hour_at_most(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    ask(key_of(admin), "load", model="digits", until=timezone.now().timestamp() + 10**9)
    until = DesiredState.objects.get(kind=DesiredState.PREFETCH).until
    assert until is not None
    assert until <= timezone.now() + answering.LONGEST_LOAD


def test_a_key_does_not_enable_what_an_operator_has_disabled(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    modelsettings.set_enabled(admin, "digits", is_enabled=False)
    said = ask(key_of(admin), "load", model="digits")
    assert (said.status, "disabled by an operator" in said.text) == ("conflict", True)
    modelsettings.set_enabled(admin, "digits", is_enabled=True)
    modelsettings.change_settings(admin, "digits", {"replicas": 0})
    assert "has no replicas" in ask(key_of(admin), "load", model="digits").text


def test_an_operator_who_disables_a_model_while_a_key_does_is_not_undone_by_the_key(admin: Actor, base: Path) -> None:
    imported(admin, base, "digits")
    key = key_of(admin)
    late = Actor(user=None, via="gateway", key=key.pk, granted=answering.GRANTED)
    modelsettings.set_enabled(admin, "digits", is_enabled=False)
    modelsettings.set_enabled(late, "digits", is_enabled=False)
    assert ask(key, "load", model="digits").status == "conflict"
    assert ask(key, "reload", models=(ServingModel(name="digits"),)).status == "ok"
    assert not published().is_enabled


def test_every_question_is_answered_whatever_goes_wrong(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    key = key_of(admin)
    assert ask(key, "load", model="digits", until=1e300).status == Unavailable.code
    assert ask(key, "load", model="a\0b").status == NotFound.code, "and no database is asked for such a name"


def test_a_key_without_the_right_is_refused_by_the_console_s_own_rows(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    assert ask(key_of(admin, scopes=("jobs:submit",)), "unload", model="digits").status == "forbidden"
    assert ask(key_of(admin, "other-*"), "unload", model="digits").status == "not_found"
    assert ask(key_of(admin), "unload", model="nothing").status == "not_found"
    revoked = key_of(admin)
    keys.revoke(admin, revoked.pk)
    assert ask(revoked, "unload", model="digits").status == "unauthorized"
    strange = ConsoleAsk(key_id=key_of(admin).pk, account="another", what="unload", model="digits")
    assert decode(ConsoleAnswer, answering.answer(encode(strange))).status == "unauthorized"
    assert published().is_enabled


def test_a_closed_model_of_a_repository_is_unknown_to_a_key_that_does_not_name_it(admin: Actor) -> None:
    brought(1, access=Repository.PRIVATE)
    assert ask(key_of(admin), "unload", model="digits").status == "not_found"
    assert ask(key_of(admin, "digits"), "unload", model="digits").status == "ok"


def test_a_key_does_nothing_while_the_console_is_read_only(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    key = key_of(admin)
    System.objects.update_or_create(pk=System.current().pk, defaults={"is_read_only": True})
    assert ask(key, "unload", model="digits").status == "forbidden"


def test_what_is_no_question_is_refused() -> None:
    for data in (b"", b"{}", b"\xff", b'{"key_id": "k", "account": "a", "what": "drop"}', bytes(300_000)):
        assert decode(ConsoleAnswer, answering.answer(data)).status == "invalid_request"


def imported(admin: Actor, base: Path, *names: str) -> None:
    models = tuple(ServingModel(name=name, base_path=str(base)) for name in names)
    imports.carry_out(admin, ServingConfig(models=models))


def test_a_reload_gives_imported_models_other_versions_and_disables_those_that_it_omits(
    admin: Actor, base: Path
) -> None:
    imported(admin, base, "digits", "omitted")
    registration.register(admin, "ours", str(base))
    key = key_of(admin)
    one = ServingModel(name="digits", base_path=f"{base}/", labels={"stable": 1}, specific=(1, 2))
    assert ask(key, "reload", models=(one,)).status == "ok"
    assert [each.version for each in published().versions] == [1, 2]
    assert published().labels == {"stable": 1}
    assert [published(name).is_enabled for name in ("digits", "omitted", "ours")] == [True, False, True]
    back = (ServingModel(name="digits"), ServingModel(name="omitted"))
    assert ask(key, "reload", models=back).status == "ok"
    assert published("omitted").is_enabled
    assert published().labels == {}
    assert ServedModel.objects.get(name="digits").imported["base_path"] == f"{base}", "it stays where it is"


def test_a_reload_changes_nothing_where_it_names_what_no_import_has_made(admin: Actor, base: Path) -> None:
    imported(admin, base, "digits")
    registration.register(admin, "ours", str(base))
    key = key_of(admin)
    said = ask(key, "reload", models=(ServingModel(name="ours"),))
    assert (said.status, "not made by an import" in said.text) == ("conflict", True)
    said = ask(key, "reload", models=(ServingModel(name="digits", base_path="/elsewhere"),))
    assert "imported from another place" in said.text
    assert published().is_enabled


def test_a_reload_of_a_key_for_some_models_leaves_the_others_alone(admin: Actor, base: Path) -> None:
    imported(admin, base, "digits", "theirs")
    assert ask(key_of(admin, "digits"), "reload", models=(ServingModel(name="digits"),)).status == "ok"
    assert published("theirs").is_enabled


def test_what_is_not_taken_over_of_a_reload_is_said(admin: Actor, base: Path) -> None:
    imported(admin, base, "digits")
    said = ask(key_of(admin), "reload", models=(ServingModel(name="digits", labels={"stable": 9}),))
    assert said.status == "conflict"
    assert "digits: version_labels.stable: digits has no version 9." in said.text


def test_a_reload_with_what_is_no_policy_changes_nothing(admin: Actor, base: Path) -> None:
    imported(admin, base, "digits", "others")
    models = (ServingModel(name="digits", labels={"stable": 1}), ServingModel(name="others", specific=(-1,)))
    assert ask(key_of(admin), "reload", models=models).status == "invalid_request"
    many = (ServingModel(name="digits", labels=dict.fromkeys(map(str, range(101)), 1)),)
    assert ask(key_of(admin), "reload", models=many).status == "invalid_request"
    assert published().labels == {}


@asynccontextmanager
async def listening(tmp_path: Path) -> AsyncIterator[tuple[NatsServer, Bus]]:
    """A server with every role's user, and a gateway's connection."""
    async with NatsServer(tmp_path / "nats", users=PASSWORDS) as server:
        admin = await connect(server, "admin")
        await topology.apply(admin)
        await admin.close()
        gateway = await connect(server, "gateway")
        try:
            yield server, gateway
        finally:
            await gateway.close()


def wire(server: NatsServer, role: str) -> Wire:
    return Wire(nats_url=server.url, nats_user=role, nats_password=PASSWORDS[role])


async def connect(server: NatsServer, role: str) -> Bus:
    return await Bus.connect(wire(server, role), role=role)


def document(key: ApiKey) -> keydocs.ApiKey:
    return key.document()


async def is_away(console: Console, key: keydocs.ApiKey) -> bool:
    """Whether no console listens yet, to unload the model."""
    try:
        await console.ask(key, "unload", model="digits")
    except Unavailable:
        return True
    return False


@pytest.mark.django_db(transaction=True)
async def test_a_console_that_cannot_listen_at_first_listens_a_moment_later(
    nats: NatsServer, bus: Bus, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = system_actor("tests")
    await in_thread(registration.register, me, "digits", str(base))
    key = await in_thread(key_of, me)
    subscribe, refusals = Bus.subscribe, [Unavailable("NATS does not answer.")]

    async def late(self: Bus, *args: Any, **more: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await subscribe(self, *args, **more)

    monkeypatch.setattr(Bus, "subscribe", late)
    program = asyncio.create_task(answer_asks(Wire(nats_url=nats.url)))
    try:
        async with asyncio.timeout(20):
            while await is_away(Console(bus), key.document()):
                pass
    finally:
        program.cancel()
        await asyncio.wait([program])


@pytest.mark.django_db(transaction=True)
async def test_a_gateway_is_answered_once_however_many_consoles_there_are_and_503_without_one(
    tmp_path: Path, base: Path
) -> None:
    me = system_actor("tests")
    await in_thread(registration.register, me, "digits", str(base))
    key = await in_thread(key_of, me)
    other = await in_thread(key_of, me, "other-*")
    plain = await in_thread(lambda: key_of(me, scopes=("jobs:submit",)))
    async with listening(tmp_path) as (server, bus):
        console = Console(bus)
        with pytest.raises(Unavailable, match="is away") as away:
            await console.ask(key.document(), "unload", model="digits")
        assert away.value.retry_after_s
        programs = [asyncio.create_task(answer_asks(wire(server, "console"))) for _ in range(2)]
        try:
            async with asyncio.timeout(60):
                while await is_away(console, key.document()):
                    pass
            assert not (await in_thread(published)).is_enabled
            with pytest.raises(NotFound, match="no model 'digits'"):
                await console.ask(await in_thread(document, other), "load", model="digits")
            with pytest.raises(Forbidden, match=SCOPE):
                await console.ask(await in_thread(document, plain), "load", model="digits")
            with pytest.raises(Conflict, match="not made by an import"):
                await console.ask(key.document(), "reload", models=(ServingModel(name="x"),))
            with pytest.raises(TooLarge):
                await console.ask(key.document(), "reload", models=(ServingModel(name="x" * 300_000),))
            acts = await in_thread(lambda: AuditEntry.objects.filter(actor_name=f"key:{key.pk}").count())
            assert acts == 1, "one of them did it"
        finally:
            for program in programs:
                program.cancel()
            await asyncio.wait(programs)
