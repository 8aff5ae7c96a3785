"""Selections of dead letters: those of a group, of a model, or all, up to the newest that was shown."""

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, check, preparing
from console.jobs import deadgroups
from console.jobs.deadgroups import Which
from console.selections import services
from console.selections.models import Selection
from signalbox.program.errors import NotFound


def redrive(actor: Actor, which: Which, *, with_version: int = 0, reason: str = "") -> Selection:
    """Run those again that were not yet. with_version: of their model, where their inputs fit it; 0 = as they were.

    Raises :class:`NotFound` for none, and as :func:`services.freeze`.
    """
    return _freeze(actor, "redrive", Act.JOBS_REDRIVE, which, reason, {"with_version": with_version})


def discard(actor: Actor, which: Which, *, reason: str = "") -> Selection:
    """Remove them with their inputs for good. Raises as :func:`redrive`."""
    return _freeze(actor, "discard", Act.JOBS_DISCARD, which, reason, {})


def _freeze(actor: Actor, name: str, right: Act, which: Which, reason: str, options: dict[str, int]) -> Selection:
    target, asked = Target("dead letters", which.words), {name: value for name, value in options.items() if value}
    # NATS is asked for the letters first, and by nobody who may not act on them.
    check(actor, right, target, asked=asked, reason=reason)
    with preparing(actor, right, target, asked=asked, reason=reason):
        ids = [one.id for one in deadgroups.read(which).letters if name == "discard" or not one.redriven]
        if not ids:
            raise NotFound("There are no such dead letters any more that this could be done to.")
    return services.freeze(actor, name, ids=ids, options=options, words=which.words, reason=reason)
