"""Acts of operators on the memory of devices: pin, load and evict a version by hand. Workers carry them out."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.board.rows import WorkerRow
from console.catalog import lookup
from console.catalog.models import ServedModel
from console.feed.running import running
from console.fleet import hosts, residents, workers
from console.fleet.models import DesiredState
from console.fleet.services import desired_key
from console.outbox.models import OutboxEntry
from console.outbox.services import post, post_document
from signalbox.program.errors import Conflict, NotFound, Unavailable
from signalbox.wire import messages, workerdocs
from signalbox.wire.eviction import size
from signalbox.wire.names import Bucket
from signalbox.wire.placement import homes_of
from signalbox.wire.steering import Evict

MOST_HOSTS: Final = 64
"""That one pin names."""
_MOST_NAMED: Final = 10
LOADED_FOR: Final = timedelta(minutes=10)
"""What is loaded by hand is wanted for so long; then it stays like any other version."""


def pin(
    actor: Actor, model: str, *, is_pinned: bool, version: int = 0, on: Sequence[str] = (), reason: str = ""
) -> DesiredState:
    """Have a version loaded and kept on the devices of these hosts that the model is placed on, or no longer.

    version: 0 = the one that requests get. on: ids of hosts, empty = all.
    Raises :class:`NotFound`, :class:`Conflict` where pins may not take so much memory, and :class:`Unavailable` while
    that is not known.
    """
    asked = {"is_on": is_pinned, "version": version, "hosts": list(on)}
    with act(actor, Act.RESIDENCY_PIN, Target("model", model), asked=asked, reason=reason) as change:
        served = lookup.find(model)
        before = DesiredState.objects.select_for_update().filter(kind=DesiredState.PIN, name=model).first()
        change.before = _values(before)
        if is_pinned:
            _must_have_version(served, version)
            _must_have_room(served, version, _placed(served, on))
        elif before is not None:
            version, on = before.version, before.hosts
        return _decide(actor, DesiredState.PIN, model, reason, is_on=is_pinned, version=version, hosts=list(on))


def load(actor: Actor, model: str, *, on: str, version: int = 0, reason: str = "") -> DesiredState:
    """Have a version loaded on the devices of a host that the model is placed on, before a job needs it.

    Raises :class:`NotFound`, :class:`Conflict` where it is placed on none of them, :class:`Unavailable` without NATS.
    """
    asked = {"load": version, "host": on}
    with act(actor, Act.RESIDENCY_LOAD, Target("model", model), asked=asked, reason=reason):
        served = lookup.find(model)
        _must_have_version(served, version)
        _placed(served, (on,))
        until = timezone.now() + LOADED_FOR
        return _decide(
            actor, DesiredState.PREFETCH, model, reason, is_on=True, version=version, hosts=[on], until=until
        )


def evict(actor: Actor, worker: str, model: str, version: int, *, reason: str = "") -> None:
    """Ask a worker to have a version leave its device's memory, after the runs that use it.

    Raises :class:`NotFound` where it is not there, and :class:`Conflict` where it is pinned.
    """
    asked = {"evict": f"{model}:{version}"}
    with act(actor, Act.RESIDENCY_LOAD, Target("worker", worker), asked=asked, reason=reason):
        here = workers.here(worker).models
        found = next((one for one in here if (one.model, one.version) == (model, version)), None)
        if found is None or not residents.is_resident(found):
            raise NotFound(f"Version {version} of {model[:150]} is not in the memory of {worker}.")
        if found.use is not None and found.use.is_pinned:
            raise Conflict(f"Version {version} of {model} is pinned there. Unpin it first.")
        asked_for = Evict(model=model, version=version, by=actor.name)
        post(OutboxEntry(kind=OutboxEntry.EVICT, key=worker, body=messages.encode(asked_for).decode()))


def pin_of(model: str) -> DesiredState | None:
    """The pin of a model that is in force."""
    return DesiredState.objects.filter(kind=DesiredState.PIN, name=model, is_on=True).first()


def _values(desired: DesiredState | None) -> dict[str, object]:
    if desired is None or not desired.is_on:
        return {"is_on": False}
    return {"is_on": True, "version": desired.version, "hosts": desired.hosts}


def _decide(actor: Actor, kind: str, model: str, reason: str, **values: object) -> DesiredState:
    more = {"actor_name": actor.name, "reason": reason[:200], "updated_at": timezone.now()}
    desired, _ = DesiredState.objects.update_or_create(kind=kind, name=model, defaults=values | more)
    post_document(Bucket.DESIRED, desired_key(kind, model), desired.document())
    return desired


def _must_have_version(model: ServedModel, version: int) -> None:
    """Returns if requests may get the version. Raises :class:`NotFound`."""
    if version not in {0, *(each.version for each in model.document().versions)}:
        raise NotFound(f"{model.name} serves no version {version}.")


def _placed(model: ServedModel, on: Sequence[str]) -> list[WorkerRow]:
    """The workers of these hosts that the model is placed on. Raises :class:`NotFound` and :class:`Conflict`."""
    present = _present()
    unknown = set(on) - {hosts.id_of(each.host) for each in present}
    if unknown:
        raise NotFound(f"There is no host {min(unknown)[:150]!r} with a worker.")
    rows = _rows(model, on)
    if on and not rows:
        elsewhere = sorted({hosts.id_of(row.host) for row in _rows(model, ())})
        raise Conflict(f"{model.name} is placed on none of these hosts, but on: {', '.join(elsewhere) or 'none'}.")
    return rows


def _rows(model: ServedModel, on: Sequence[str]) -> list[WorkerRow]:
    homes = homes_of(model.document(), _present())
    return [row for row in workers.present().values() if row.gpu in homes and (not on or hosts.id_of(row.host) in on)]


def _present() -> list[workerdocs.Worker]:
    feed = running.feed
    if feed is None or feed.is_blind:
        raise Unavailable("NATS is away, so it is not known what is in the memory of devices.", retry_after_s=5.0)
    return feed.view.queues.workers()


def _must_have_room(model: ServedModel, version: int, rows: Iterable[WorkerRow]) -> None:
    """Returns if each of these workers may keep it beside what is pinned there. Raises :class:`Conflict`."""
    pins = {each.name: each for each in DesiredState.objects.filter(kind=DesiredState.PIN, is_on=True)}
    there: dict[str, list[tuple[str, int]]] = {}
    for other in ServedModel.objects.filter(name__in=pins).exclude(name=model.name):
        for row in _rows(other, pins[other.name].hosts):
            there.setdefault(row.id, []).append((other.name, _size(other, pins[other.name].version, row)))
    for row in rows:
        pinned, own = there.get(row.id, []), _size(model, version, row)
        if row.pin_bytes and sum(each for _, each in pinned) + own > row.pin_bytes:
            named = ", ".join(f"{name} ({size(each)})" for name, each in pinned[:_MOST_NAMED]) or "nothing"
            raise Conflict(
                f"Pinned versions may keep {size(row.pin_bytes)} of the memory of {row.id}"
                f" (SIGNALBOX_WORKER_PIN_SHARE), and {model.name} takes {size(own)}. Pinned there: {named}."
            )


def _size(model: ServedModel, version: int, row: WorkerRow) -> int:
    """What a version takes there: as measured on that worker, else as stored."""
    number = version or model.serving_version
    for each in row.models:
        if (each.model, each.version) == (model.name, number) and each.size_bytes:
            return each.size_bytes
    return next((each.size_bytes for each in model.document().versions if each.version == number), 0)
