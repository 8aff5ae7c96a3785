"""Lists each repository every few seconds and carries out what follows. Runs in the controller, in one for all."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from console.catalog import inspection
from console.config import ConsoleSettings
from console.database import DATABASE_FAULTS
from console.noticing import rows
from console.noticing.graphs import Graphs
from console.noticing.leadership import Leadership
from console.noticing.listing import Place, Repositories
from console.noticing.plan import Key, Plan, Refusal, Seen, Terms, decide
from console.noticing.registering import Refused, Registrar
from console.noticing.rows import in_thread
from console.repositories.models import Repository
from signalbox.bus.client import Bus
from signalbox.program import log, metrics
from signalbox.program.errors import SignalboxError
from signalbox.program.tasks import TaskGroup
from signalbox.repositories.layouts import Found

_LOOK_S: Final = 1.0
"""At most, between two looks at which repositories are due."""
_TRIED_AGAIN_S: Final = 600.0
"""After which the catalog's refusals are asked for again: an operator may have made room."""
_CHECKED_S: Final = 3600.0
"""Between two looks at which manifests NATS has."""
_REFUSED: Final = metrics.counter(
    "console_repository_refusals", "Models and versions of repositories that were found and not taken.", "reason"
)
_FAILED: Final = metrics.counter("console_repository_failures", "Listings of repositories that failed.")


@dataclass
class _Memory:
    """Of one repository between two listings. doubted_at: since when the listing is in doubt as a whole.

    checked_at: when it was seen which manifests NATS has.
    """

    url: str
    due_at: float = 0.0
    is_busy: bool = False
    seen: dict[Key, Seen] = field(default_factory=dict)
    refused: Refused = field(default_factory=dict)
    refused_at: float = 0.0
    said: dict[str, Refusal] = field(default_factory=dict)
    doubted_at: float | None = None
    checked_at: float = float("-inf")


class Noticing:
    """Notices what repositories hold. clock: UNIX time, of settle times and graces."""

    def __init__(self, bus: Bus, console: ConsoleSettings, clock: Callable[[], float] = time.time) -> None:
        folder = console.repository_credentials
        self._bus = bus
        self._repositories = Repositories(Path(folder) if folder else None)
        self._registrar = Registrar(bus, Graphs(self._repositories))
        self._every_s = console.repositories_every_s
        self._clock = clock
        self._leadership = Leadership()
        self._memory: dict[int, _Memory] = {}
        self._rules = ""

    async def run(self) -> None:
        """Until cancelled. Repositories are listed beside each other: one that is slow delays no other."""
        loop = asyncio.get_running_loop()
        self._bus.on_reconnect(self._doubt_manifests)
        try:
            async with TaskGroup() as group:
                while True:
                    for row in await self._noticed():
                        memory = self._remembered(row)
                        if not memory.is_busy and memory.due_at <= loop.time():
                            memory.is_busy, memory.due_at = True, loop.time() + self._every_s
                            group.create_task(self._notice_in_turn(row, memory))
                    await asyncio.sleep(min(_LOOK_S, self._every_s))
        finally:
            self._bus.forget_reconnect(self._doubt_manifests)
            await in_thread(self._leadership.resign)()

    async def notice(self, row: Repository) -> None:
        """List a repository once, and carry out what follows. Where it is away, its listing says so."""
        memory, place, now = self._remembered(row), Place(row.name, row.url, row.marker), self._clock()
        begun = time.monotonic()
        try:
            found = await self._repositories.find(place)
        except SignalboxError as error:
            await self._note_failed(
                row, error, now, alarm="The listing failed: nothing that has vanished is withdrawn."
            )
            return
        try:
            plan = await self._decided(row, memory, found, now)
            values = {
                "listed_at": _instant(now),
                "tried_at": _instant(now),
                "took_s": time.monotonic() - begun,
                "error": "",
                "alarm": plan.alarm,
                "models_found": len(found.models),
                "versions_found": sum(len(model.versions) for model in found.models.values()),
                "waiting": plan.waiting + len(plan.register),
            }
            await self._note(row, memory, plan, values)
            refused = await self._registrar.carry_out(row, place, plan, now)
            memory.refused |= refused
            for step in (*plan.register, *plan.configs):
                if step.key in refused:
                    plan.refused[step.where(refused[step.key][1])] = refused[step.key][1]
            await self._note(row, memory, plan, {"waiting": plan.waiting})
        except SignalboxError as error:
            await self._note_failed(row, error, now)

    async def _noticed(self) -> list[Repository]:
        """What this program lists now: nothing where another one leads, or the database is away."""
        try:
            if not await in_thread(self._leadership.is_ours)():
                self._memory.clear()  # it may be old when this program leads again
                return []
            return await in_thread(rows.noticed)()
        except DATABASE_FAULTS as error:
            log.warning("noticing.waiting", reason=str(error))
            return []

    async def _notice_in_turn(self, row: Repository, memory: _Memory) -> None:
        try:
            await self.notice(row)
        except Exception:  # noqa: BLE001  the edge of a task: a database away must not end it
            log.exception("repository.failed", repository=row.name)
        finally:
            memory.is_busy = False

    async def _decided(self, row: Repository, memory: _Memory, found: Found, now: float) -> Plan:
        self._rules = self._rules or await asyncio.to_thread(inspection.rules)
        if now >= memory.refused_at + _TRIED_AGAIN_S:
            memory.refused, memory.refused_at = {}, now
        plan = decide(
            found,
            await in_thread(rows.known)(row),
            memory.seen,
            memory.refused,
            Terms(row.marker, row.settle_s, row.grace_s, self._rules),
            now=now,
            held=await self._held(memory, now),
            is_accepted=memory.doubted_at is not None and row.updated_at.timestamp() > memory.doubted_at,
        )
        if plan.alarm and memory.doubted_at is None:
            log.warning("repository.doubted", repository=row.name, reason=plan.alarm)
        memory.doubted_at = (memory.doubted_at or now) if plan.alarm else None
        memory.seen = plan.seen
        return plan

    async def _held(self, memory: _Memory, now: float) -> set[Key] | None:
        """Which manifests NATS has: looked up at first, after a reconnect, and every hour. None = not now."""
        if now < memory.checked_at + _CHECKED_S:
            return None
        memory.checked_at = now
        return await self._registrar.held()

    def _doubt_manifests(self) -> None:
        """Another server perhaps, which lost some."""
        for memory in self._memory.values():
            memory.checked_at = float("-inf")

    async def _note(self, row: Repository, memory: _Memory, plan: Plan, values: dict[str, Any]) -> None:
        for path, refusal in plan.refused.items():
            if memory.said.get(path) != refusal:
                _REFUSED.labels(refusal.kind).inc()
                log.warning("repository.refused", repository=row.name, path=path, reason=refusal.why)
        memory.said = plan.refused.copy()
        await in_thread(rows.note_listing)(row, {**values, **rows.refused_values(plan.refused)})

    async def _note_failed(self, row: Repository, error: SignalboxError, now: float, **values: Any) -> None:
        _FAILED.inc()
        log.warning("repository.failed", repository=row.name, code=error.code, reason=error.public_message)
        failed = {"tried_at": _instant(now), "error": error.public_message[:500], **values}
        await in_thread(rows.note_listing)(row, failed)

    def _remembered(self, row: Repository) -> _Memory:
        memory = self._memory.get(row.pk)
        if memory is None or memory.url != row.url:
            memory = self._memory[row.pk] = _Memory(row.url)
        return memory


def _instant(at: float) -> datetime:
    return datetime.fromtimestamp(at, tz=UTC)
