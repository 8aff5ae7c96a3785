"""Works through selections, in the program that publishes the outbox: one at a time, a few jobs at once.

Several programs may run this. One takes a selection for a time and renews that with each batch; if it dies, another
goes on with what has no outcome yet. A job may so be acted on twice, which each act allows: the outcome of the second
time is that of the first.
"""

import asyncio
import secrets
from datetime import timedelta
from typing import Final, NamedTuple

from channels.db import database_sync_to_async
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from console.jobs.acts import record_of
from console.jobs.models import Job
from console.outbox.jobacts import JobActs, JobChange
from console.outbox.wake import Waker
from console.selections.models import Selection, SelectionItem
from console.selections.retention import forget_old
from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.program.errors import NotFound, SignalboxError, Unavailable
from signalbox.program.tasks import TaskGroup
from signalbox.wire.messages import Record

POLL_S: Final = 5.0
"""Between two looks: who starts a selection in this program rings."""
HELD_S: Final = 15.0
"""How long a selection is another program's after its last batch: more than a batch takes."""
BATCH: Final = 64
"""Jobs between two looks whether the selection was stopped."""
AT_ONCE: Final = 16
"""Jobs of a batch that are acted on at once."""
_TRIES: Final = 5
"""Of a job that alone finds NATS unavailable."""
_PAUSE_S: Final = 0.05
"""Before the second try, then twice as long each time."""
_FORGET_EVERY_S: Final = 600.0


class Item(NamedTuple):
    """A job whose turn it is. listed: the record of an ended one, as the job list has it."""

    pk: int
    job_id: str
    listed: Record | None


class Outcome(NamedTuple):
    """What came of one job."""

    outcome: str
    note: str = ""


class SelectionRunner:
    """Runs until cancelled."""

    def __init__(self, bus: Bus, *, held_s: float = HELD_S, poll_s: float = POLL_S) -> None:
        self._bus = bus
        self._jobs = JobActs(bus)
        self._name = secrets.token_hex(8)
        self._held_s = held_s
        self._poll_s = poll_s
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Until cancelled. NATS away: what is not done waits."""
        forgot_at = float("-inf")
        with Waker() as waker:
            while True:
                try:
                    if self._loop.time() >= forgot_at + _FORGET_EVERY_S:
                        forgot_at = self._loop.time()
                        await database_sync_to_async(forget_old)(timezone.now())
                    while await self.work():
                        pass
                except Unavailable as error:
                    log.warning("selections.waiting", reason=error.public_message)
                except Exception:  # noqa: BLE001  the edge of a task: a database away must not end it
                    log.exception("selections.failed")
                await waker.wait(self._poll_s)

    async def work(self) -> bool:
        """Work through the next selection, if there is one. Raises :class:`Unavailable` where NATS is away."""
        taken = await _take(self._name, self._held_s)
        if taken is None:
            return False
        log.info("selections.taken", selection=taken.pk, act=taken.act, total=taken.total)
        try:
            while items := await _next(taken):
                outcomes = await self._batch(taken, items)
                if not await _note(taken.pk, self._name, outcomes, self._held_s):
                    return True  # it was stopped, or is another program's
                if len(outcomes) < len(items):
                    raise Unavailable("NATS is away; the selection waits for it.")
            await _end(taken.pk, self._name)
        finally:
            await asyncio.shield(_let_go(taken.pk, self._name))
        return True

    async def _batch(self, taken: Selection, items: list[Item]) -> dict[int, Outcome]:
        """Act on each; of a job that found NATS away there is no outcome."""
        outcomes: dict[int, Outcome] = {}
        left = iter(items)

        async def work() -> None:
            for item in left:
                outcome = await self._one(taken, item)
                if outcome is None:
                    return
                outcomes[item.pk] = outcome

        async with TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())
        return outcomes

    async def _one(self, taken: Selection, item: Item) -> Outcome | None:
        refusal = SignalboxError()
        for number in range(_TRIES):
            try:
                return Outcome(SelectionItem.DONE, (await self._do(taken, item))[:300])
            except Unavailable as error:
                if not self._bus.is_connected:
                    return None
                refusal = error
                await asyncio.sleep(_PAUSE_S * 2**number)
            except SignalboxError as error:
                refusal = error
                break
        return Outcome(SelectionItem.REFUSED, refusal.public_message[:300])

    async def _do(self, taken: Selection, item: Item) -> str:
        """Act on one job; returns what is to be said of it beside that it is done."""
        job_id = item.job_id
        if taken.act == "cancel":
            return await self._jobs.cancel(job_id)
        if taken.act == "delete":
            await self._jobs.delete(job_id, item.listed)
        elif taken.act == "priority":
            await self._jobs.change(job_id, JobChange(priority=taken.options["priority"]))
        elif taken.act == "discard":
            try:
                await self._jobs.discard(job_id)
            except NotFound:  # perhaps by a try whose outcome was not written down
                return "It was gone."
        else:
            version = int(taken.options.get("with_version", 0))
            new_id = await self._jobs.redrive(job_id, since=taken.as_of.timestamp(), version=version)
            return f"It runs again as job {new_id}."
        return ""


_OPEN: Final = (Selection.WAITING, Selection.RUNNING)


@database_sync_to_async
def _take(name: str, held_s: float) -> Selection | None:
    """The next selection that no other program has, now held by this one."""
    now = timezone.now()
    is_free = Q(held_until=None) | Q(held_until__lt=now) | Q(holder=name)
    until = now + timedelta(seconds=held_s)
    for one in Selection.objects.filter(is_free, state__in=_OPEN).order_by("started_at", "pk"):
        mine = Selection.objects.filter(is_free, pk=one.pk, state__in=_OPEN)
        if mine.update(state=Selection.RUNNING, holder=name, held_until=until):
            return one
    return None


@database_sync_to_async
def _next(taken: Selection) -> list[Item]:
    rows = list(taken.items.filter(outcome="").order_by("pk")[:BATCH])
    jobs = Job.objects.in_bulk([row.job_id for row in rows]) if taken.act == "delete" else {}
    listed = {job.pk: record_of(job) for job in jobs.values() if not job.is_open}
    return [Item(row.pk, row.job_id, listed.get(row.job_id)) for row in rows]


@database_sync_to_async
def _note(pk: str, name: str, outcomes: dict[int, Outcome], held_s: float) -> bool:
    """Write down what came of a batch. Returns whether to go on: False = it was stopped, or another program has it."""
    items: dict[Outcome, list[int]] = {}
    for item, outcome in outcomes.items():
        items.setdefault(outcome, []).append(item)
    counts = dict.fromkeys((SelectionItem.DONE, SelectionItem.REFUSED), 0)
    with transaction.atomic():
        # Of two programs that acted on a job the first to write it down counts.
        for outcome, pks in items.items():
            rows = SelectionItem.objects.filter(pk__in=pks, outcome="")
            counts[outcome.outcome] += rows.update(outcome=outcome.outcome, note=outcome.note)
        done, refused = counts.values()
        Selection.objects.filter(pk=pk).update(done=F("done") + done, failed=F("failed") + refused)
        mine = Selection.objects.filter(pk=pk, holder=name, state=Selection.RUNNING)
        return bool(mine.update(held_until=timezone.now() + timedelta(seconds=held_s)))


@database_sync_to_async
def _end(pk: str, name: str) -> None:
    mine = Selection.objects.filter(pk=pk, holder=name, state=Selection.RUNNING)
    mine.update(state=Selection.ENDED, ended_at=timezone.now())


@database_sync_to_async
def _let_go(pk: str, name: str) -> None:
    Selection.objects.filter(pk=pk, holder=name).update(holder="", held_until=None)
