"""Dead letters for operators: read from NATS at each request, acted on through the outbox.

The database keeps only who acted. Each request opens its own connection to NATS, and fails without NATS.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from asgiref.sync import async_to_sync

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.asking import ask
from console.audit.acts import Target, act, check, preparing
from console.feed.running import running
from console.jobs import deadgroups
from console.jobs.models import Job
from console.outbox import services as outbox
from console.outbox.models import OutboxEntry, redrive_body
from signalbox.bus.client import Bus
from signalbox.jobs import deadletters
from signalbox.jobs.deadletters import Letter, Page
from signalbox.program.errors import Conflict, SignalboxError
from signalbox.wire import names
from signalbox.wire.access import is_among
from signalbox.wire.messages import State
from signalbox.wire.names import Stream

_REPORT_WITHIN_S: Final = 2.0
"""How long an answer waits to say whether the act is done."""
_SOON_S: Final = 0.5
"""How long a job's page waits to know of its letter."""
_WHAT: Final = "dead letters"


@dataclass(frozen=True)
class LetterAct:
    """An act on a letter. job: of the redrive. is_done: NATS has it; otherwise the outbox keeps it, see reason."""

    job: str
    is_done: bool
    reason: str = ""


@dataclass(frozen=True)
class Detail:
    """A letter for its page. facts: as :func:`signalbox.jobs.deadletters.summary` with ``inputs``. versions: of its
    model, that it may be redriven with, the newest first. kept_until: UTC seconds, None = for ever.
    """

    facts: dict[str, Any]
    at: float
    kept_until: float | None
    versions: list[int]


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
    return detail(job_id).facts


def detail(job_id: str) -> Detail:
    """One letter, and what can be done with it. Raises :class:`NotFound`."""

    async def read(bus: Bus) -> Detail:
        letter = await deadletters.find(bus, job_id)
        facts = deadletters.summary(letter)
        try:
            facts["inputs"] = deadletters.described(await deadletters.input_of(bus, letter))
        except SignalboxError as error:
            facts |= {"inputs": [], "not_kept": error.public_message}
        kept_s = await deadgroups.kept_s(bus)
        kept_until = letter.at + kept_s if kept_s else None
        return Detail(facts, letter.at, kept_until, await deadletters.versions(bus, letter.model))

    return ask(_WHAT, read)


def is_one(job: Job) -> bool:
    """Whether a job that failed is kept as a dead letter, as far as NATS tells it soon."""
    feed = running.feed
    if job.state != State.FAILED or feed is None or feed.is_blind or feed.bus is None:
        return False
    try:
        # On the loop of the server, which this connection belongs to.
        return async_to_sync(_has_letter)(feed.bus, job.pk)
    except (SignalboxError, TimeoutError):
        return False


async def _has_letter(bus: Bus, job_id: str) -> bool:
    async with asyncio.timeout(_SOON_S):
        return bool(await bus.list_latest(Stream.DLQ, [names.dead_letters(job_id=job_id)]))


def versions(model: str) -> list[int]:
    """Of a model that letters may be redriven with, the newest first. Raises :class:`Unavailable`."""
    return ask(_WHAT, lambda bus: deadletters.versions(bus, model))


def redrive(actor: Actor, job_id: str, *, after: str = "", with_version: int = 0, reason: str = "") -> LetterAct:
    """Run it again as a new job. Raises as :func:`signalbox.jobs.deadletters.plan`."""
    target = Target("job", job_id)
    asked: dict[str, Any] = {"after": after} if after else {}
    if with_version:
        asked["with_version"] = with_version
    check(actor, Act.JOBS_REDRIVE, target, asked=asked, reason=reason)
    with preparing(actor, Act.JOBS_REDRIVE, target, asked=asked, reason=reason):
        letter, new_id = ask(_WHAT, lambda bus: deadletters.plan(bus, job_id, after=after, version=with_version))
    owner = _owner(letter)
    with act(actor, Act.JOBS_REDRIVE, target, asked=asked, reason=reason) as change:
        change.before, change.after = owner, {**owner, **asked, "redriven_as": new_id}
        body = redrive_body(after, with_version)
        entry = outbox.post(OutboxEntry(kind=OutboxEntry.REDRIVE, key=job_id, body=body))
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
