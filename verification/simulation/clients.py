"""Callers and what they were told: a ledger of every promise Signalbox made to them."""

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gateway_plugin.service.waiting import End
from signalbox.jobs.records import Found
from signalbox.program.errors import Conflict, NotFound, SignalboxError
from signalbox.wire.messages import State
from verification.simulation.runner import Task

if TYPE_CHECKING:
    from verification.simulation.hosts import Gateway
    from verification.simulation.world import World

_DELAYED: Final = 0.15
_DELETIONS: Final = 20
"""So often a caller asks for a deletion until all is gone."""
PATIENCE_S: Final = 8.0
"""A caller waits this long for an answer beyond what it asked to wait."""


@dataclass
class Entry:
    """One job. accepted_at: when its acceptance was durable and told. seen: states it was told, and when.

    delay_s: until it was to run at the earliest.
    """

    job_id: str
    task: Task
    key: str
    begun_at: float
    accepted_at: float | None = None
    seen: list[tuple[float, State]] = field(default_factory=list)
    may_be_cancelled: bool = False
    delay_s: float = 0.0
    was_raised: bool = False


class Ledger:
    """All jobs of a world, by id."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.entries: dict[str, Entry] = {}

    def begun(self, job_id: str, task: Task, key: str, delay_s: float = 0.0) -> None:
        """A gateway has drawn an id, or found the one of an earlier try."""
        if job_id not in self.entries:
            self.entries[job_id] = Entry(job_id, task, key, self._world.loop.now, delay_s=delay_s)

    def accepted(self, job_id: str) -> None:
        """The acceptance is promised."""
        entry = self.entries[job_id]
        if entry.accepted_at is None:
            entry.accepted_at = self._world.loop.now
            self._world.note("accepted", job=job_id[-6:])

    def saw(self, job_id: str, state: State, body: bytes | None = None) -> None:
        """Note that a caller was told this state, and perhaps a result."""
        self.entries[job_id].seen.append((self._world.loop.now, state))
        self._world.note("told", job=job_id[-6:], state=state.value)
        if state is State.SUCCEEDED and body is not None and body != job_id.encode():
            self._world.broke(f"job {job_id} got the result {body!r}")


class Caller:
    """One caller with one job."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.chance = random.Random(f"client {number} {world.shape.seed}")
        draw = self.chance.random
        self.begins_at = 1.5 + draw() * (world.shape.lull_s - 2.0)
        does = self.chance.choices(["fine", "alone", "refused", "crash", "hang"], [70, 15, 6, 6, 3])[0]
        self.task = Task("", does, 0.005 if draw() < 0.5 else draw() * 1.5)
        if world.shape.is_calm:  # enough load that every worker wants the device
            self.task = Task("", "fine", 0.3 + draw())
        self.priority = self.chance.choice(["hi", "mid", "mid", "lo"])
        self.wait_s = self.chance.uniform(1.0, 8.0) if draw() < 0.4 else 0.0
        self.key = f"key-{number}" if draw() < 0.4 else ""
        self.cancels_after_s = draw() * 4.0 if draw() < 0.25 else None
        self.delay_s = self.chance.uniform(0.5, 10.0) if not world.shape.is_calm and draw() < _DELAYED else 0.0
        if self.delay_s:
            self.wait_s = 0.0
        self.not_before = 0.0
        acts = random.Random(f"acts {number} {world.shape.seed}")
        self.raises_after_s = acts.random() * 2.0 if acts.random() < 0.25 else None
        self.deletes = acts.random() < 0.25

    async def live(self) -> None:
        """Submit, perhaps raise and cancel, ask until it is known how the job ended, perhaps delete it."""
        await asyncio.sleep(self.begins_at)
        job_id = await self._submit()
        if not job_id:
            return
        if self.raises_after_s is not None:
            await asyncio.sleep(self.raises_after_s)
            self.world.ledger.entries[job_id].was_raised = True
            with contextlib.suppress(TimeoutError, SignalboxError):  # it runs already, or NATS is away
                await self._ask(lambda gateway: gateway.raise_priority(job_id), PATIENCE_S)
        if self.cancels_after_s is not None:
            await asyncio.sleep(self.cancels_after_s)
            await self._cancel(job_id)
        while not await self._is_over(job_id):  # noqa: ASYNC110  callers do poll
            await asyncio.sleep(self.chance.uniform(0.5, 2.0))
        for _ in range(_DELETIONS if self.deletes else 0):
            if await self._is_deleted(job_id):
                return
            await asyncio.sleep(1.0)

    def _gateway(self) -> "Gateway":
        return self.chance.choice(self.world.gateways)

    async def _ask(self, act: Any, timeout_s: float) -> Any:
        gateway = self._gateway()
        return await gateway.ask(lambda: act(gateway), timeout_s)

    async def _submit(self) -> str:
        """The job's id, if it was accepted or may have been. With a key it is asked until that is known."""
        if self.delay_s:  # one instant for all tries, as they are of one body
            self.not_before = self.world.nats_clock.utc(self.world.loop.now) + self.delay_s
        for _ in range(30 if self.key else 5):
            try:
                job_id, end = await self._ask(
                    lambda gateway: gateway.submit(self.task, self.priority, self.wait_s, self.key, self.not_before),
                    self.wait_s + PATIENCE_S,
                )
            except TimeoutError:
                self.world.note("submit.unanswered")
            except SignalboxError as error:
                self.world.note("submit.refused", code=error.code)
                job_id = str(error.facts.get("job_id", ""))
                if job_id and not self.key:
                    return job_id
            else:
                self.world.ledger.accepted(job_id)
                self._reported(job_id, end)
                return str(job_id)
            await asyncio.sleep(self.chance.uniform(0.3, 2.0))
        return ""

    def _reported(self, job_id: str, end: End | None) -> None:
        if end is not None:
            self.world.ledger.saw(job_id, end.record.state, end.body)

    async def _cancel(self, job_id: str) -> None:
        self.world.ledger.entries[job_id].may_be_cancelled = True
        try:
            found: Found = await self._ask(lambda gateway: gateway.cancel(job_id), PATIENCE_S)
        except Conflict as error:
            self.world.ledger.saw(job_id, State(str(error.facts["state"])))
        except (TimeoutError, SignalboxError):
            return
        else:
            if found.record.state.is_terminal:
                self.world.ledger.saw(job_id, found.record.state)

    async def _is_deleted(self, job_id: str) -> bool:
        try:
            is_gone = await self._ask(lambda gateway: gateway.delete(job_id), PATIENCE_S)
        except NotFound:
            return True  # it had its time
        except (TimeoutError, SignalboxError):
            return False
        if is_gone:
            self.world.oracle.said_gone(self.world.ledger.entries[job_id])
        return bool(is_gone)

    async def _is_over(self, job_id: str) -> bool:
        try:
            found: Found = await self._ask(lambda gateway: gateway.find(job_id), PATIENCE_S)
        except NotFound:
            entry = self.world.ledger.entries[job_id]
            if entry.accepted_at is not None:
                self.world.oracle.not_found(entry)
            return True
        except (TimeoutError, SignalboxError):
            return False
        if not found.record.state.is_terminal:
            return False
        self.world.ledger.saw(job_id, found.record.state, found.body)
        return True
