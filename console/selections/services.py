"""Choosing jobs, starting what is to be done to them, and stopping it.

The ids are written down when they are chosen: jobs that come later are not among them, and a job that has changed
meanwhile is judged when its turn comes.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import CharField, Count, Q, Value
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import AuditedValues, Target, act
from console.jobs import listing, query
from console.jobs.models import Job
from console.outbox import wake
from console.selections.kinds import kind_of, options_of
from console.selections.models import Selection, SelectionItem
from signalbox.program.errors import Conflict, InvalidRequest, LimitExceeded, NotFound
from signalbox.program.words import counted
from signalbox.wire.jobids import JOB_ID

MOST: Final = 100_000
"""Jobs of one selection."""
MOST_OPEN: Final = 20
"""Selections that wait or run at once."""
MOST_CHOSEN: Final = 5
"""Selections of one operator that are chosen and not started: the oldest goes."""
SAMPLES: Final = 3
_AT_ONCE: Final = 5_000


def freeze(
    actor: Actor,
    act_name: str,
    *,
    ids: Sequence[str] = (),
    filter_text: str | None = None,
    options: dict[str, Any] | None = None,
    words: str = "",
    reason: str = "",
    is_started: bool = True,
    now: datetime | None = None,
) -> Selection:
    """Write down the jobs with these ids, or all that a filter of the job list chooses now, for an act on each.

    words: which jobs these are, for people; default: the ids' number, or the filter. is_started: False = only chosen,
    for somebody to look at and to :func:`start`. Raises :class:`InvalidRequest` for a filter that is not understood or
    chooses none or too many, and :class:`LimitExceeded` for too many selections at once.
    """
    kind = kind_of(act_name)
    chosen = Selection(
        id=secrets.token_hex(6),
        act=act_name,
        options=options_of(act_name, options or {}),
        filter_text=filter_text or "",
        as_of=now or timezone.now(),
        actor=actor.user,
        actor_name=actor.name,
        reason=reason[:200],
        words=words[:2200],
    )
    target, asked = Target("selection", chosen.pk), _told(chosen)
    with act(actor, kind.right, target, asked=asked, reason=reason) as change:
        _require_place(chosen)
        chosen.save(force_insert=True)
        if filter_text is not None:
            chosen.total = _insert_matching(chosen, filter_text)
            chosen.words = chosen.words or in_words(filter_text)[:2200]
        else:
            chosen.total = _insert_named(chosen, ids)
            chosen.words = chosen.words or f"{counted(chosen.total, 'job')} chosen one by one"
        if not chosen.total:
            raise InvalidRequest("No job is chosen: choose at least one, or a filter that finds some.")
        if is_started:
            _begin(chosen, reason)
        chosen.save()
        change.after = _told(chosen)
    return chosen


def start(actor: Actor, selection_id: str, *, reason: str = "") -> Selection:
    """Begin with a selection that was only chosen. Raises :class:`Conflict` where that was done before."""
    with _acting(actor, selection_id, reason) as (chosen, change):
        if chosen.state != Selection.CHOSEN:
            raise Conflict(f"It was started before: it is {chosen.state}.")
        _begin(chosen, reason)
        chosen.save()
        change.after = _told(chosen)
    return chosen


def stop(actor: Actor, selection_id: str, *, reason: str = "") -> Selection:
    """Leave the jobs that were not begun. The few that are being acted on are finished.

    Raises :class:`Conflict` where it is over already.
    """
    with _acting(actor, selection_id, reason) as (chosen, change):
        if not chosen.is_open:
            raise Conflict(f"There is nothing to stop: it is {chosen.state}.")
        chosen.state, chosen.ended_at, chosen.stopped_by = Selection.STOPPED, timezone.now(), actor.name
        # Not done and failed: the program that works through it adds to them at the same time.
        chosen.save(update_fields=("state", "ended_at", "stopped_by"))
        change.after = {**_told(chosen), "stopped": True, "done": chosen.done, "refused": chosen.failed}
    return chosen


def find(selection_id: str) -> Selection:
    """The selection. Raises :class:`NotFound`."""
    found = Selection.objects.filter(pk=selection_id).first()
    if found is None:
        raise NotFound(f"There is no selection {selection_id!r}, or it is not kept any longer.")
    return found


def samples(chosen: Selection) -> list[Job]:
    """A few of its jobs, those that have rows."""
    ids = list(chosen.items.order_by("pk").values_list("job_id", flat=True)[:SAMPLES])
    jobs = Job.objects.in_bulk(ids)
    return [jobs[job_id] for job_id in ids if job_id in jobs]


def states(chosen: Selection) -> dict[str, int]:
    """How many of its jobs are in which state by now, by the job list; those without a row are not counted."""
    items = chosen.items.order_by().values("job_id")
    found = Job.objects.filter(pk__in=items).order_by().values_list("state").annotate(number=Count("pk"))
    return dict(sorted(found))


def of_job(job_id: str) -> list[Selection]:
    """The selections that acted on a job, or are to, newest first."""
    acted = Selection.objects.filter(items__job_id=job_id).exclude(state=Selection.CHOSEN)
    return list(acted.order_by("-as_of")[:5])


def in_words(filter_text: str) -> str:
    """Which jobs a filter chooses, for people."""
    parts = []
    for word in query.words_of(filter_text):
        is_not = "not " if word.startswith("-") else ""
        name, colon, value = word.removeprefix("-").replace('"', "").partition(":")
        parts.append(f"{name} is {is_not}{value.replace(',', ' or ')}" if colon else f"{is_not}“{name}”")
    return f"all jobs of which {', and '.join(parts)}" if parts else "all jobs of the list"


@contextmanager
def _acting(actor: Actor, selection_id: str, reason: str) -> Iterator[tuple[Selection, AuditedValues]]:
    """An act on a selection needs the right that its own act needs; of one that is not there, that to cancel."""
    known = Selection.objects.filter(pk=selection_id).first()
    right = kind_of(known.act).right if known is not None else Act.JOBS_CANCEL
    with act(actor, right, Target("selection", selection_id), reason=reason) as change:
        find(selection_id)
        yield Selection.objects.select_for_update().get(pk=selection_id), change


def _told(chosen: Selection) -> dict[str, Any]:
    """What the audit tells of it."""
    told = {"act": chosen.act, **chosen.options, "jobs": chosen.total}
    return told | {"of": chosen.words or chosen.filter_text, "started": chosen.started_at is not None}


def _begin(chosen: Selection, reason: str) -> None:
    if Selection.objects.filter(state__in=(Selection.WAITING, Selection.RUNNING)).count() >= MOST_OPEN:
        raise LimitExceeded(
            f"{MOST_OPEN} selections wait or run already: try again when one of them is over, or stop one.",
            retry_after_s=5.0,
        )
    chosen.state, chosen.started_at = Selection.WAITING, timezone.now()
    chosen.reason = reason[:200] or chosen.reason
    transaction.on_commit(wake.everybody)


def _require_place(chosen: Selection) -> None:
    """Whoever chooses again and again keeps the newest choices."""
    own = Selection.objects.filter(state=Selection.CHOSEN, actor_name=chosen.actor_name).order_by("-as_of")
    forget(list(own.values_list("pk", flat=True)[MOST_CHOSEN - 1 :]))


def forget(selection_ids: Sequence[str]) -> None:
    """Delete selections with their items, in a transaction of the caller's."""
    for selection_id in selection_ids:
        SelectionItem.objects.filter(selection_id=selection_id)._raw_delete("default")  # noqa: SLF001  nothing refers
        Selection.objects.filter(pk=selection_id).delete()


def _insert_matching(chosen: Selection, filter_text: str) -> int:
    """One statement for each index that leads; no row is read here. Returns how many it chose."""
    asked = query.parse(filter_text, chosen.as_of)
    columns = {name: Value(value, output_field=CharField()) for name, value in _empty(chosen).items()}
    table = SelectionItem._meta.db_table  # noqa: SLF001  Django's documented place of it
    total = 0
    with connection.cursor() as cursor:
        for lead in asked.leads:
            jobs = Job.objects.filter(listing.within(lead, asked) & (asked.rest or Q())).order_by()
            some = jobs.annotate(**columns).values_list("pk", *columns)[: MOST + 1 - total]
            sql, values = some.query.sql_with_params()
            into = f'INSERT INTO "{table}" (job_id, selection_id, outcome, note)'
            # Names are ours, values travel as parameters. Two leads may have the same job.
            cursor.execute(f"{into} {sql} ON CONFLICT DO NOTHING", values)
            total += cursor.rowcount
    if total > MOST:
        raise InvalidRequest(f"More than {MOST} jobs match, which is the most of one selection: narrow the filter.")
    return total


def _empty(chosen: Selection) -> dict[str, str]:
    return {"chosen_by": chosen.pk, "no_outcome": "", "no_note": ""}


def _insert_named(chosen: Selection, ids: Sequence[str]) -> int:
    named = list(dict.fromkeys(ids))
    if len(named) > MOST:
        raise InvalidRequest(f"More than {MOST} jobs are named, which is the most of one selection.")
    if not all(JOB_ID.match(job_id) for job_id in named):
        raise InvalidRequest("An id of a job is malformed: nothing was chosen.")
    items = (SelectionItem(selection=chosen, job_id=job_id) for job_id in named)
    SelectionItem.objects.bulk_create(items, batch_size=_AT_ONCE)
    return len(named)
