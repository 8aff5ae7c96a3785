"""Acts on workers, queues and lanes: wishes, never orders on a job's path."""

from collections.abc import Callable

from django.utils import timezone

from console.accounts.rights import Act, Actor
from console.audit.acts import Target, act
from console.catalog import services as catalog
from console.fleet import workers
from console.fleet.models import Wish
from console.outbox import services as outbox
from console.outbox.services import post_document, post_release
from signalbox.wire.names import Bucket, token


def drain(actor: Actor, worker: str, *, is_draining: bool, reason: str = "") -> Wish:
    """Ask a worker to stop pulling and hand its GPU over, or to take part again.

    Raises :class:`NotFound` if there is no such worker.
    """
    return _wish(
        actor, Act.WORKERS_DRAIN, Wish.WORKER, worker, reason, is_on=is_draining, must_exist=workers.must_exist
    )


def pause(actor: Actor, model: str, *, is_paused: bool, reason: str = "") -> Wish:
    """Keep a model's jobs waiting (accepted, not run), or let them run again.

    Raises :class:`NotFound` if there is no such model.
    """
    return _wish(actor, Act.QUEUES_PAUSE, Wish.MODEL, model, reason, is_on=is_paused, must_exist=catalog.find)


def ask_release(actor: Actor, gpu: str, *, reason: str = "") -> None:
    """Ask the holder of a GPU to hand it over to the first waiter after its batch.

    Raises :class:`NotFound` if there is no such GPU.
    """
    with act(actor, Act.LANES_RELEASE, Target("lane", gpu), reason=reason):
        workers.must_have_device(gpu)
        post_release(gpu)


def of_model(name: str) -> Wish | None:
    """The wish about a model's queue, if there ever was one."""
    return Wish.objects.filter(kind=Wish.MODEL, name=name).first()


def wish_key(kind: str, name: str) -> str:
    """KV key of a wish."""
    return f"{kind}.{token(name)}"


def why_unpublished(wish: Wish) -> str:
    """Empty once the fleet knows of a wish; waits a moment for it."""
    return outbox.why_unpublished(Bucket.DESIRED, wish_key(wish.kind, wish.name))


def _wish(
    actor: Actor, what: Act, kind: str, name: str, reason: str, *, is_on: bool, must_exist: Callable[[str], object]
) -> Wish:
    with act(actor, what, Target(kind, name), reason=reason) as change:
        must_exist(name)
        before = Wish.objects.select_for_update().filter(kind=kind, name=name).first()
        change.before = {"is_on": bool(before and before.is_on)}
        wish, _ = Wish.objects.update_or_create(
            kind=kind,
            name=name,
            defaults={"is_on": is_on, "actor_name": actor.name, "reason": reason[:200], "updated_at": timezone.now()},
        )
        change.after = {"is_on": is_on}
        post_document(Bucket.DESIRED, wish_key(kind, name), wish.document())
    return wish
