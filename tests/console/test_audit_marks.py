"""The audit's head lies outside the database too: a log that was cut or made anew leaves a note that no row matches."""

import asyncio
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import QuerySet
from msgspec.structs import replace

from console.accounts.rights import system_actor
from console.audit import marks
from console.audit.models import AuditEntry, AuditHead, breaks
from console.config import ConsoleSettings
from console.operators import services as accounts
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.ops.ports import free_port
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from signalbox.wire.messages import AuditMark, decode
from signalbox.wire.names import AUDIT_HEAD
from tests.console.conftest import in_thread
from tests.console.test_audit_chain import by_hand
from tests.rigs.natsserver import NatsServer

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORDS = {"admin": "admin-secret", "console": "console-secret"}


def act(number: int = 1) -> None:
    """So many acts."""
    for count in range(number):
        accounts.switch_read_only(system_actor("tests"), is_read_only=False, message=str(count))


def cut(to: int) -> None:
    """The last rows go, and the head says that there never were any."""
    QuerySet(AuditEntry).filter(number__gt=to).delete()
    kept = AuditEntry.objects.get(number=to)
    AuditHead.objects.update(number=to, digest=kept.digest)


def emptied() -> None:
    """Nothing is left."""
    by_hand("DELETE FROM audit_auditentry; DELETE FROM audit_audithead")


def made_anew() -> None:
    """As many other acts, in a chain of their own."""
    emptied()
    act(6)


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (lambda: cut(3), "4: was the head once, and is gone"),
        (emptied, "1: was the head once, and is gone"),
        (made_anew, "4: was the head once with another digest"),
    ],
)
async def test_a_log_that_is_whole_in_itself_but_was_cut_or_made_anew_is_found(
    bus: Bus, wire: Wire, console: ConsoleSettings, settings: Any, tamper: Callable[[], None], words: str
) -> None:
    settings.CONSOLE = replace(console, nats_url=wire.nats_url)
    assert not await marks.mark(bus)  # nothing to note yet
    for count in (1, 3, 2):
        await in_thread(act, count)
        assert await marks.mark(bus)
        assert not await marks.mark(bus)
    said = StringIO()
    await in_thread(call_command, "audit", stdout=said)
    assert "3 heads noted in NATS match" in said.getvalue()
    await in_thread(tamper)
    assert await in_thread(lambda: list(breaks())) == []
    with pytest.raises(CommandError, match=words):
        await in_thread(call_command, "audit")


async def test_the_controller_s_part_notes_what_moved(bus: Bus) -> None:
    reported: asyncio.Queue[AuditMark] = asyncio.Queue()
    await bus.subscribe(AUDIT_HEAD, lambda note: reported.put_nowait(decode(AuditMark, note.data)))
    await in_thread(act, 2)
    part = asyncio.create_task(marks.keep_marked(bus, 0.01))
    try:
        async with asyncio.timeout(60):
            first = await reported.get()
            assert (first.number, first.digest) == (2, (await in_thread(AuditHead.objects.get)).digest)
            await in_thread(act)
            assert (await reported.get()).number == 3
    finally:
        part.cancel()
        await asyncio.wait([part])


async def test_a_mark_cannot_be_removed(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "nats", users=PASSWORDS) as server:
        wire = Wire(nats_url=server.url)
        admin = await Bus.connect(replace(wire, nats_user="admin", nats_password="admin-secret"), role="admin")
        bus = await Bus.connect(replace(wire, nats_user="console", nats_password="console-secret"), role="console")
        try:
            await topology.apply(admin)
            await in_thread(act)
            assert await marks.mark(bus)
            for one in (admin, bus):
                for order, body in (
                    ("PURGE", {}),
                    ("MSG.DELETE", {"seq": 1}),
                    ("MSG.DELETE", {"seq": 1, "no_erase": True}),
                ):
                    with pytest.raises(SignalboxError):
                        await one.request_json(f"$JS.API.STREAM.{order}.AUDIT", body)
            assert [mark.number for mark in await marks.read(bus)] == [1]
            assert await bus.leader_get("AUDIT", AUDIT_HEAD) is not None
        finally:
            await bus.close()
            await admin.close()


def test_without_nats_the_end_is_not_said_to_be_whole(console: ConsoleSettings, settings: Any) -> None:
    settings.CONSOLE = replace(console, nats_url=f"nats://127.0.0.1:{free_port()}")
    act(2)
    with pytest.raises(CommandError, match="Whether its end was cut is not known"):
        call_command("audit")
