"""Keeps the record of which versions requests get, together with every other gateway (ADR 0166).

Every gateway looks at every change and writes the same decision. Compare-and-set lets one write through, and every
gateway, the writer too, acts on what the table then says. So requests move at all gateways by one durable write.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put, remove
from signalbox.program import log
from signalbox.program.errors import SignalboxError, StaleRevision
from signalbox.program.tasks import Background
from signalbox.wire import rollout
from signalbox.wire.modeldocs import Model, Serving
from signalbox.wire.names import Bucket, token
from signalbox.wire.workerdocs import Worker

DESERTED_S: Final = 10.0
"""The rollout of a model that no worker serves for so long waits no more: longer than presence takes to return after
an outage of NATS."""
_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 60.0
_MOMENT_S: Final = 0.01
"""A timer may be early by the resolution of its clock."""


class _Presence(NamedTuple):
    """What decisions read of a worker's presence. The rest changes every two seconds."""

    place: tuple[str, str, bool, bool, tuple[str, ...]]
    residencies: frozenset[tuple[str, int, str]]


def _reported(worker: Worker) -> _Presence:
    return _Presence(
        (worker.device.id, worker.host, worker.state == "draining", bool(worker.token), worker.serves),
        frozenset((resident.model, resident.version, resident.state) for resident in worker.models),
    )


class RolloutController:
    """Moves requests to the versions the console published, when those are ready.

    The tables are the caller's to start, after this is made and before :meth:`start`.
    """

    def __init__(self, bus: Bus, models: Table[Model], serving: Table[Serving], workers: Table[Worker]) -> None:
        self._bus = bus
        self._models = models
        self._serving = serving
        self._workers = workers
        self._dirty: set[str] = set()
        self._open: set[str] = set()
        """Models whose requests do not get the published version yet, or are split."""
        self._reported: dict[str, _Presence] = {}
        self._deserted_at: dict[str, float] = {}
        self._delays_s: dict[str, float] = {}
        """Seconds until a model is looked at again after the next failure."""
        self._retries: dict[str, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()
        self._deciding = Background()
        self._loop = asyncio.get_running_loop()
        models.on_change(lambda key, *_: self._mark_dirty((key,)))
        serving.on_change(lambda key, *_: self._mark_dirty((key,)))
        workers.on_change(lambda key, worker, _revision: self._mark_dirty(self._concerned(key, worker)))

    def start(self) -> None:
        """Decide from now on; the tables have been read."""
        self._deciding.start(self._keep(), name="rollouts")

    async def close(self) -> None:
        """Decide nothing more. Idempotent."""
        await self._deciding.cancel()

    def _mark_dirty(self, keys: Iterable[str]) -> None:
        self._dirty.update(keys)
        if self._dirty:
            self._wake.set()

    def _concerned(self, key: str, worker: Worker | None) -> set[str]:
        """The open models of which a worker's presence says what it did not say before."""
        before, reported = self._reported.pop(key, None), None
        if worker is not None:
            reported = self._reported[key] = _reported(worker)
        if before is None or reported is None or before.place != reported.place:
            return self._open
        return self._open & {token(model) for model, *_ in before.residencies ^ reported.residencies}

    async def _keep(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for key in self._taken():
                try:
                    await self._check(key)
                except SignalboxError as error:
                    log.warning("rollout.not_recorded", model=key, why=str(error))
                    self._retry(key)
                except Exception:  # noqa: BLE001  the edge of a task: the others must move on
                    log.exception("rollout.failed", model=key)
                    self._retry(key)
                else:
                    self._forget_failures(key)

    def _taken(self) -> list[str]:
        """The models to look at now, in order."""
        dirty, self._dirty = self._dirty, set()
        return sorted(dirty)

    async def _check(self, key: str) -> None:
        """Record what requests of one model get from now on, if that changes."""
        model = self._models.get(key)
        if model is None:
            self._open.discard(key)
            self._deserted_at.pop(key, None)
            await self._forget(key)
            return
        now_s = self._loop.time()
        before, revision = self._serving.get(key), self._serving.revision(key)
        after, is_unserved = rollout.decide(
            model,
            self._models.revision(key),
            before,
            self._workers.items().values(),
            is_deserted=now_s + _MOMENT_S >= self._deserted_at.get(key, float("inf")),
        )
        if not is_unserved:
            self._deserted_at.pop(key, None)
        elif key not in self._deserted_at:
            self._deserted_at[key] = now_s + DESERTED_S
            self._again(DESERTED_S, key)
        if rollout.is_settled(model, before) and not model.splits:
            self._open.discard(key)
        else:
            self._open.add(key)
        if after is None or after == before:
            return
        try:
            await put(self._bus, Bucket.SERVING, key, after, expect=revision)
        except StaleRevision:
            return  # another gateway was first; its record is on its way here
        log.info(
            "rollout.recorded",
            model=model.name,
            default=after.default,
            labels=after.labels,
            failed=after.failed,
            candidates=after.candidates,
            publication=after.publication,
        )

    async def _forget(self, key: str) -> None:
        """Remove the record of a removed model, but not where this gateway has not seen the model yet."""
        record = self._serving.get(key)
        if record is None or self._models.revision(key) <= record.publication:
            return
        with suppress(StaleRevision):  # another gateway was first
            await remove(self._bus, Bucket.SERVING, key, expect=self._serving.revision(key))

    def _retry(self, key: str) -> None:
        """Look at a model again later, after a pause that doubles each time; a change of a table comes before that."""
        delay_s = self._delays_s.get(key, _RETRY_S)
        self._delays_s[key] = min(2 * delay_s, _LONGEST_RETRY_S)
        if key in self._retries:
            self._retries[key].cancel()
        self._retries[key] = self._again(delay_s, key)

    def _forget_failures(self, key: str) -> None:
        self._delays_s.pop(key, None)
        if key in self._retries:
            self._retries.pop(key).cancel()

    def _again(self, delay_s: float, key: str) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, self._mark_dirty, (key,))
