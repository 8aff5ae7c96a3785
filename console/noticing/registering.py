"""Carries a plan out: inspects what is new, writes manifests to NATS, and registers in the catalog.

No database transaction is open while a repository, the inspector or NATS is asked.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Final

from django.conf import settings
from django.db import connection

from console.accounts.rights import Actor, system_actor
from console.catalog import judging, registration, triton, withdrawal
from console.catalog.inspection import GraphInspection
from console.catalog.models import REPOSITORY, ModelVersion, ServedModel
from console.catalog.versions import Candidate
from console.noticing import fingerprints, rows
from console.noticing.graphs import Graphs
from console.noticing.listing import MOST_GRAPH_BYTES, Place
from console.noticing.plan import Key, Plan, Refusal, Step, shown, taken
from console.noticing.rows import in_thread
from console.repositories.models import Repository
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.program import log
from signalbox.program.errors import Conflict, InvalidRequest, SignalboxError
from signalbox.program.tasks import TaskGroup
from signalbox.wire.manifests import Manifest
from signalbox.wire.names import Bucket, version_key, version_of
from signalbox.wire.names import key as key_subject

_AT_ONCE: Final = 200
"""Versions that are inspected in one process, and whose rows are written in one call of the database's thread."""
_WRITES: Final = 32
"""Manifests on their way to NATS."""
_TURN_S: Final = 0.25
"""Registrations go on for so long before other writers get theirs."""
_PAUSE_S: Final = 0.1
_INDEX: Final = "variables/variables.index"
Inspected = dict[Key, GraphInspection]
Use = Callable[[Sequence[Step], Inspected, dict[Key, Refusal]], Awaitable[None]]
"""Takes versions, what graphs of them say, and why the others are refused."""
Refused = dict[Key, tuple[str, Refusal]]
"""By version: the stamp it had, and why it was not taken."""


class Registrar:
    """Registers, renews, judges, withdraws and restores versions of repositories."""

    def __init__(self, bus: Bus, graphs: Graphs) -> None:
        self._bus = bus
        self._graphs = graphs
        self._turns = asyncio.Semaphore(_WRITES)
        self._one = asyncio.Lock()

    async def carry_out(self, row: Repository, place: Place, plan: Plan, now: float) -> Refused:
        """Do all that the plan says; what was refused. What has changed since the listing waits for the next one.

        Raises :class:`SignalboxError` where repository, inspector or NATS is away: what is left comes again.
        """
        await in_thread(_note_gone)(row, plan, now)
        refused: Refused = {}

        async def register(steps: Sequence[Step], found: Inspected, bad: dict[Key, Refusal]) -> None:
            refused.update(await self._register(row, place, steps, found, bad, now))

        async def judge(_: Sequence[Step], found: Inspected, __: dict[Key, Refusal]) -> None:
            await in_thread(_note_judged)(found)

        async def note_configs(steps: Sequence[Step], found: Inspected, bad: dict[Key, Refusal]) -> None:
            await in_thread(_note_configs)(row, [(step, found[step.key]) for step in steps if step.key in found])
            refused.update({step.key: (step.stamp, bad[step.key]) for step in steps if step.key in bad})

        await self._inspect(place, plan.register, register)
        await self._inspect(place, plan.judge, judge)
        await self._inspect(place, plan.configs, note_configs)
        await self._write_manifests(place, plan.renew, now)
        await in_thread(_note_back)(row, plan)
        return refused

    async def held(self) -> set[Key]:
        """Versions whose manifests NATS has. Raises :class:`Unavailable`."""
        prefix = key_subject(Bucket.MANIFESTS, "")
        pages = self._bus.list_pages(Bucket.MANIFESTS.stream, [f"{prefix}>"])
        keys = {stored.subject.removeprefix(prefix) async for page in pages for stored in page}
        return {found for key in keys if (found := version_of(key)) is not None}

    async def _inspect(self, place: Place, steps: Sequence[Step], use: Use) -> None:
        """Read what graphs say, some at a time: the next ones are inspected while ``use`` works with these."""
        parts = list(_parts(steps))
        said = await self._graphs.read(place, parts[0]) if parts else None
        for part, following in zip_longest(parts, parts[1:]):
            assert said is not None
            async with _together() as group:
                ahead = group.create_task(self._graphs.read(place, following)) if following else None
                await use(part, *said)
            said = ahead.result() if ahead is not None else None

    async def _register(
        self,
        row: Repository,
        place: Place,
        steps: Sequence[Step],
        found: Inspected,
        refused: dict[Key, Refusal],
        now: float,
    ) -> Refused:
        for step in steps:
            if step.key in found and (lacking := list(_lacking(step, found[step.key]))):
                refused[step.key] = Refusal(
                    "incomplete", f"Its graph names files that are not there: {shown(lacking)}."
                )
            elif step.key in found and (why := _unlike(step, found[step.key])):
                refused[step.key] = Refusal("config", why)
        async with self._one:  # of two repositories with a model of one name the first has it, and its manifest stands
            owners = await in_thread(rows.owners)(row, {step.model for step in steps})
            refused |= {step.key: taken(owners[step.model]) for step in steps if step.model in owners}
            new = [step for step in steps if step.key in found and step.key not in refused]
            await self._write_manifests(place, new, now)
            refused |= await in_thread(_store)(row, place, [(step, found[step.key]) for step in new])
        return {step.key: (step.stamp, refused[step.key]) for step in steps if step.key in refused}

    async def _write_manifests(self, place: Place, steps: Sequence[Step], now: float) -> None:
        async def write(step: Step) -> None:
            url = place.location.below(step.version.folder).url
            doc = Manifest(repository=place.name, url=url, files=step.version.files, listed_at=now)
            async with self._turns:
                await put(self._bus, Bucket.MANIFESTS, version_key(step.model, step.number), doc)

        async with _together() as group:
            for step in steps:
                group.create_task(write(step))


@asynccontextmanager
async def _together() -> AsyncIterator[TaskGroup]:
    """A group of tasks. The first of our errors in it is raised as it is."""
    try:
        async with TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        ours = errors.subgroup(SignalboxError)
        if ours is None:
            raise
        raise ours.exceptions[0] from None


def actor_of(repository: str) -> Actor:
    """Who acts for a repository."""
    return system_actor(f"repository:{repository}")


def _parts(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Some at a time: so many, and so many bytes of graphs."""
    part: list[Step] = []
    size = 0
    for step in steps:
        size += step.version.graph.size_bytes
        if part and (len(part) == _AT_ONCE or size > MOST_GRAPH_BYTES):
            yield part
            part, size = [], step.version.graph.size_bytes
        part.append(step)
    if part:
        yield part


def _lacking(step: Step, found: GraphInspection) -> Iterator[str]:
    files = {file.path for file in step.version.files}
    if found.restores and _INDEX not in files:
        yield _INDEX
    yield from (path for asset in found.assets if (path := f"assets/{asset}") not in files)


def _unlike(step: Step, found: GraphInspection) -> str:
    """Why what the model's ``config.pbtxt`` promises is never kept by the version."""
    why = triton.refusal(found.config, found.signatures) if found.config is not None else ""
    return f"Version {step.number}: {why}" if why else ""


def _store(row: Repository, place: Place, new: Sequence[tuple[Step, GraphInspection]]) -> dict[Key, Refusal]:
    """Register each model's versions in a transaction of its own; why others were refused.

    Nothing while the console is read-only, nor where the repository is not noticed any more.
    """
    refused: dict[Key, Refusal] = {}
    fresh = rows.fresh(row)
    if fresh is None:
        return refused
    begun = time.monotonic()
    for name, group in groupby(new, key=lambda each: each[0].model):
        steps = list(group)
        candidates = {step.number: _candidate(place, step, found) for step, found in steps}
        base = _kept(place, steps[0][0].version.folder.rpartition("/")[0])
        try:
            registration.register_found(actor_of(row.name), fresh, name, base, candidates, _config(*steps[0]))
        except (InvalidRequest, Conflict) as error:
            refused |= {step.key: Refusal("registration", error.public_message) for step, _ in steps}
        if connection.vendor == "sqlite" and time.monotonic() >= begun + _TURN_S:
            # Its writers wait by polling every 0.1 s: the publisher and operators find the database free now.
            time.sleep(_PAUSE_S)
            begun = time.monotonic()
    return refused


def _config(step: Step, found: GraphInspection) -> triton.FoundConfig | None:
    return triton.FoundConfig(fingerprints.of_config(step.config), found.config) if found.config is not None else None


def _note_configs(row: Repository, found: Sequence[tuple[Step, GraphInspection]]) -> None:
    """Keep what changed files say: that changes no setting, and which warm-ups are run."""
    for step, one in found:
        model = ServedModel.objects.filter(name=step.model, repository=row).first()
        if model is not None:
            registration.note_config(actor_of(row.name), model, _config(step, one))
            log.info("repository.config_changed", repository=row.name, model=step.model)


def _candidate(place: Place, step: Step, found: GraphInspection) -> Candidate:
    size_bytes = sum(file.size_bytes for file in step.version.files)
    return Candidate(_kept(place, step.version.folder), found.whole(size_bytes), step.manifest)


def _kept(place: Place, below: str) -> str:
    """A folder below the repository, as the database keeps it."""
    found = place.location.below(below)
    return settings.CONSOLE.kept_path(found.folder) if found.is_local else found.url


def _note_gone(row: Repository, plan: Plan, now: float) -> None:
    if rows.fresh(row) is None:
        return
    at = datetime.fromtimestamp(now, tz=UTC)
    for name, keys in groupby(plan.missing, key=itemgetter(0)):
        withdrawal.note_missing(row, name, [number for _, number in keys], at)
    for (name, number), why in plan.withdraw.items():
        withdrawal.withdraw(actor_of(row.name), row, name, [number], why)


def _note_back(row: Repository, plan: Plan) -> None:
    for step in plan.renew:
        withdrawal.note_manifest(row, step.model, step.number, step.manifest)
    if rows.fresh(row) is None:
        return
    for name, keys in groupby(plan.restore, key=itemgetter(0)):
        withdrawal.restore(actor_of(row.name), row, name, [number for _, number in keys], "Its files are back.")


def _note_judged(found: Mapping[Key, GraphInspection]) -> None:
    for (name, number), one in found.items():
        version = ModelVersion.objects.filter(model__name=name, number=number, source=REPOSITORY).first()
        if version is not None:
            judging.note(version.pk, one.rules, one.whole(0).listed)
