"""Dead letters for operators: read from NATS at each request, acted on through the outbox.

The database keeps only who acted. Each request opens its own connection to NATS, and fails without NATS.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.asking import ask
from console.audit.acts import Target, act, check, preparing
from console.outbox import services as outbox
from console.outbox.models import OutboxEntry
from signalbox.bus.client import Bus
from signalbox.jobs import deadletters
from signalbox.jobs.deadletters import Letter, Page
from signalbox.program.errors import Conflict, SignalboxError
from signalbox.wire.access import is_among

_REPORT_WITHIN_S: Final = 2.0
"""How long an answer waits to say whether the act is done."""
_WHAT: Final = "dead letters"


@dataclass(frozen=True)
class LetterAct:
    """An act on a letter. job: of the redrive. is_done: NATS has it; otherwise the outbox keeps it, see reason."""

    job: str
    is_done: bool
    reason: str = ""


def page(*, model: str, after: int, size: int, only: Sequence[str] = ()) -> Page:
    """A page of letters. only: of these models, names or beginnings of names; the page then has fewer.

    Raises :class:`Unavailable`.
    """
    found = ask(_WHAT, lambda bus: deadletters.page(bus, model=model, after=after, size=size))
    if not only:
        return found
    letters = [one for one in found.letters if is_among(only, one.model)]
    return found._replace(letters=letters)


def show(job_id: str) -> dict[str, Any]:
    """One letter with name, dtype and shape of its inputs, never their values. Raises :class:`NotFound`."""

    async def read(bus: Bus) -> dict[str, Any]:
        letter = await deadletters.find(bus, job_id)
        reported = deadletters.summary(letter)
        try:
            reported["inputs"] = deadletters.described(await deadletters.input_of(bus, letter))
        except SignalboxError as error:
            reported |= {"inputs": [], "not_kept": error.public_message}
        return reported

    return ask(_WHAT, read)


def redrive(actor: Actor, job_id: str, *, after: str = "", reason: str = "") -> LetterAct:
    """Run it again as a new job. Raises as :func:`signalbox.jobs.deadletters.plan`."""
    target, asked = Target("job", job_id), {"after": after} if after else {}
    check(actor, Act.JOBS_REDRIVE, target, asked=asked, reason=reason)
    with preparing(actor, Act.JOBS_REDRIVE, target, asked=asked, reason=reason):
        letter, new_id = ask(_WHAT, lambda bus: deadletters.plan(bus, job_id, after=after))
    owner = _owner(letter)
    with act(actor, Act.JOBS_REDRIVE, target, asked=asked, reason=reason) as change:
        change.before, change.after = owner, {**owner, "redriven_as": new_id}
        entry = outbox.post(OutboxEntry(kind=OutboxEntry.REDRIVE, key=job_id, body=after))
    return _reported(entry.pk, new_id)


def discard(actor: Actor, job_id: str, *, reason: str = "") -> LetterAct:
    """Remove it with its input for good. Raises :class:`NotFound`."""
    target = Target("job", job_id)
    check(actor, Act.JOBS_DISCARD, target, reason=reason)
    with preparing(actor, Act.JOBS_DISCARD, target, reason=reason):
        owner = _owner(ask(_WHAT, lambda bus: deadletters.find(bus, job_id)))
    with act(actor, Act.JOBS_DISCARD, target, reason=reason) as change:
        change.before = change.after = owner
        entry = outbox.post(OutboxEntry(kind=OutboxEntry.DISCARD, key=job_id))
    return _reported(entry.pk, "")


def _owner(letter: Letter) -> dict[str, str]:
    """Whose job it was, for the audit."""
    return {"account": letter.job.account_id} if letter.job is not None else {}


def _reported(pk: int, new_id: str) -> LetterAct:
    entry = outbox.wait_settled(pk, timeout_s=_REPORT_WITHIN_S)
    if entry.published_at is not None and entry.last_error:
        raise Conflict(entry.last_error)
    return LetterAct(new_id, is_done=entry.published_at is not None, reason=entry.last_error)
