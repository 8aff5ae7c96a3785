"""Acts of operators on workers, queues and GPUs: they change desired state and are never on a job's path."""

from collections.abc import Callable
from datetime import datetime

from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.catalog import lookup
from console.fleet import agents, workers
from console.fleet.models import DesiredState
from console.outbox import services as outbox
from console.outbox.models import OutboxEntry
from console.outbox.services import post, post_document
from signalbox.program.errors import Conflict
from signalbox.wire.names import Bucket, token


def drain(actor: Actor, worker: str, *, is_draining: bool, reason: str = "") -> DesiredState:
    """Ask a worker to stop pulling and hand its GPU over, or to take part again.

    Raises :class:`NotFound` if there is no such worker.
    """
    return _desire(
        actor, Act.WORKERS_DRAIN, DesiredState.WORKER, worker, reason, is_on=is_draining, must_exist=workers.must_exist
    )


def drain_host(actor: Actor, host: str, *, is_draining: bool, reason: str = "") -> DesiredState:
    """Ask a host's agent to hand its devices over and keep no worker, or to take part again. host: its, or its agent's.

    Raises :class:`NotFound` if no such host is here.
    """
    name = agents.name_of(host)
    return _desire(
        actor, Act.WORKERS_DRAIN, DesiredState.HOST, name, reason, is_on=is_draining, must_exist=agents.must_exist
    )


def pause(actor: Actor, model: str, *, is_paused: bool, reason: str = "") -> DesiredState:
    """Keep a model's jobs waiting (accepted, not run), or let them run again.

    Raises :class:`NotFound` if there is no such model.
    """
    return _desire(actor, Act.QUEUES_PAUSE, DesiredState.MODEL, model, reason, is_on=is_paused, must_exist=lookup.find)


def prefetch(actor: Actor, model: str, *, until: datetime, version: int = 0) -> DesiredState:
    """Have a model loaded ahead of need on the devices that it is placed on, until then. version: 0 = as requests get.

    Raises :class:`NotFound` if there is no such model.
    """
    asked = {"prefetch": version, "until": until.isoformat(timespec="seconds")}
    with act(actor, Act.MODELS_SETTINGS, Target("model", model), asked=asked):
        lookup.find(model)
        desired, _ = DesiredState.objects.update_or_create(
            kind=DesiredState.PREFETCH,
            name=model,
            defaults={
                "is_on": True,
                "version": version,
                "until": until,
                "hosts": [],
                "actor_name": actor.name,
                "updated_at": timezone.now(),
            },
        )
        post_document(Bucket.DESIRED, desired_key(desired.kind, model), desired.document())
    return desired


def ask_release(actor: Actor, gpu: str, *, reason: str = "") -> None:
    """Ask the holder of a GPU to hand it over to the first waiter after its batch.

    Raises :class:`NotFound` if there is no such GPU.
    """
    with act(actor, Act.LANES_RELEASE, Target("lane", gpu), reason=reason):
        workers.must_have_device(gpu)
        post(OutboxEntry(kind=OutboxEntry.RELEASE, key=gpu))


def ask_release_by(actor: Actor, worker: str, *, reason: str = "") -> None:
    """Ask a worker to hand its GPU over. Raises :class:`NotFound`, and :class:`Conflict` where it holds none."""
    with act(actor, Act.LANES_RELEASE, Target("worker", worker), reason=reason):
        row = workers.here(worker)
        if not row.token:
            raise Conflict(f"{worker} holds no GPU, so it has none to hand over.")
        post(OutboxEntry(kind=OutboxEntry.RELEASE, key=row.gpu))


def of_model(name: str) -> DesiredState | None:
    """The desired state of a model's queue; None if no operator ever decided it."""
    return DesiredState.objects.filter(kind=DesiredState.MODEL, name=name).first()


def prefetch_of(name: str) -> DesiredState | None:
    """What has a model loaded ahead of need now; None where nothing has."""
    found = DesiredState.objects.filter(kind=DesiredState.PREFETCH, name=name, until__gt=timezone.now())
    return found.first()


def desired_key(kind: str, name: str) -> str:
    """Key in KV ``desired`` of a worker or a model."""
    return f"{kind}.{token(name)}"


def why_unpublished(desired: DesiredState) -> str:
    """Why a desired state is not published yet, empty once it is; waits a moment for it."""
    return outbox.why_unpublished(Bucket.DESIRED, desired_key(desired.kind, desired.name))


def _desire(
    actor: Actor, what: Act, kind: str, name: str, reason: str, *, is_on: bool, must_exist: Callable[[str], object]
) -> DesiredState:
    with act(actor, what, Target(kind, name), asked={"is_on": is_on}, reason=reason) as change:
        must_exist(name)
        before = DesiredState.objects.select_for_update().filter(kind=kind, name=name).first()
        change.before = {"is_on": bool(before and before.is_on)}
        desired, _ = DesiredState.objects.update_or_create(
            kind=kind,
            name=name,
            defaults={"is_on": is_on, "actor_name": actor.name, "reason": reason[:200], "updated_at": timezone.now()},
        )
        post_document(Bucket.DESIRED, desired_key(kind, name), desired.document())
    return desired
