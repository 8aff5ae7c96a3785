"""Has models and workers be as many as the load asks for: one controller of several, as long as a model scales."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from console.board.capacity import devices_of
from console.catalog.models import ServedModel
from console.catalog.scaling import scale
from console.config import ConsoleSettings
from console.database import DATABASE_FAULTS
from console.feed.retry import for_ever, until_done
from console.noticing.leadership import SCALING, Leadership
from console.noticing.rows import in_thread
from console.scaling import gauges
from console.scaling.loads import Loads
from console.scaling.scaler import Scaler
from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put, remove
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.program.tasks import TaskGroup
from signalbox.wire import names
from signalbox.wire.messages import decode
from signalbox.wire.names import SCALE, Bucket, event_of_key
from signalbox.wire.scaling import Host, Scale, Scaling

ROUND_S: Final = 1.0
"""Between two decisions: a job that comes is answered for by then, and windows pass without any event."""
WORDS_S: Final = 10.0
"""Between two publications of the same numbers."""
LOOK_S: Final = 60.0
"""Between two looks at the models' settings that no document told of: NATS may have lost the event of one."""


class Keeper:
    """Decides every second while a model scales by itself, or a class of devices has a bound. Else it only listens.

    ticks: a clock that does not go back.
    """

    def __init__(self, bus: Bus, console: ConsoleSettings, ticks: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self._most = console.most_of_class
        self._ticks = ticks
        self._leadership = Leadership(SCALING)
        self._news = asyncio.Event()
        self._scaled: dict[str, Scaling] = {}
        self._looked_at = 0.0
        self._scaler: Scaler | None = None
        self._published = Scale()
        self._published_at = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        await until_done(self._listen)
        self._bus.on_reconnect(self._news.set)
        self._news.set()
        try:
            while True:
                await self._wait()
                if self._is_wanted():
                    await self._scale()
        finally:
            self._bus.forget_reconnect(self._news.set)
            await in_thread(self._leadership.resign)()

    def _is_wanted(self) -> bool:
        return bool(self._scaled or self._most)

    async def _listen(self) -> None:
        await self._bus.subscribe(event_of_key(Bucket.MODELS), lambda _: self._news.set())

    async def _wait(self) -> None:
        """Until something scales, with nothing left that was wanted while it did."""
        while not self._is_wanted():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._news.wait()
            self._news.set()
            try:
                await self._look()
                if not self._is_wanted() and await in_thread(self._leadership.is_ours)():
                    await self._forget()
            except DATABASE_FAULTS as error:
                log.warning("scaling.waiting", reason=str(error))
                await asyncio.sleep(ROUND_S)
                self._news.set()
            except SignalboxError as error:
                log.warning("scaling.waiting", reason=error.public_message)
                await asyncio.sleep(ROUND_S)
                self._news.set()

    async def _look(self) -> None:
        """Read which models scale, where a model has changed."""
        if not self._news.is_set() and self._ticks() < self._looked_at + LOOK_S:
            return
        self._news.clear()
        try:
            self._scaled = await in_thread(scaled)()
        except DATABASE_FAULTS:
            self._news.set()
            raise
        self._looked_at = self._ticks()

    async def _scale(self) -> None:
        """Decides again and again, until nothing scales."""
        loads = Loads(self._bus, self._ticks)
        hosts = Table(self._bus, Bucket.HOSTS, Host)
        try:
            async with TaskGroup() as group:
                await loads.start()
                await until_done(hosts.start)
                reading = group.create_task(for_ever("gauges of scaling", loads.keep), name="gauges of scaling")
                while self._is_wanted():
                    try:
                        await self._turn(loads, hosts)
                    except DATABASE_FAULTS as error:
                        log.warning("scaling.waiting", reason=str(error))
                    except SignalboxError as error:
                        log.warning("scaling.waiting", reason=error.public_message)
                    except Exception:  # noqa: BLE001  the edge of a task: logged, and tried again
                        log.exception("scaling.failed")
                    await asyncio.sleep(ROUND_S)
                reading.cancel()
        finally:
            self._scaler = None
            gauges.clear()
            self._news.set()
            await hosts.close()
            await loads.close()

    async def _turn(self, loads: Loads, hosts: Table[Host]) -> None:
        """One decision, where this controller makes them and knows what waits."""
        if not await in_thread(self._leadership.is_ours)():
            self._scaler = None
            gauges.clear()
            return
        await self._look()
        if not (loads.is_known and self._is_wanted()):
            return
        now = self._ticks()
        if self._scaler is None:
            self._published = await self._last()
            self._published_at = now
            self._scaler = Scaler(self._published, now)
        devices = devices_of(self._most, hosts.items().values(), loads.workers())
        decision = self._scaler.decide(now, self._scaled, loads.replicas, loads.called(), devices)
        gauges.show(decision.scale)
        for name, replicas in decision.replicas.items():
            await in_thread(scale)(name, replicas, decision.scale.models[name].reason)
        await self._publish(decision.scale, now)

    async def _publish(self, found: Scale, now: float) -> None:
        """Write what is wanted where it is news, and again while there are more workers than that: a host that has
        started the first one by itself ends it once it was told so with that in sight."""
        has_others = any(one.actual > one.wanted for one in found.classes.values())
        if found == replace(self._published, at=0.0) and not has_others:
            return
        if _figures(found) == _figures(self._published) and now < self._published_at + WORDS_S:
            return
        written = replace(found, at=time.time())
        await put(self._bus, Bucket.DESIRED, SCALE, written)
        wanted = {name: one.wanted for name, one in found.classes.items()}
        if wanted != {name: one.wanted for name, one in self._published.classes.items()}:
            log.info("scaling.workers_wanted", classes=wanted, needed={n: m.needed for n, m in found.models.items()})
        self._published, self._published_at = written, now

    async def _last(self) -> Scale:
        found = await self._bus.direct_get(Bucket.DESIRED.stream, names.key(Bucket.DESIRED, SCALE))
        try:
            return decode(Scale, found.data) if found is not None and found.data else Scale()
        except msgspec.MsgspecError as error:
            log.warning("scaling.unreadable", reason=str(error))
            return Scale()

    async def _forget(self) -> None:
        """Nothing scales: each device has workers again."""
        if (await self._last()) != Scale():
            await remove(self._bus, Bucket.DESIRED, SCALE)
            log.info("scaling.ended")


def scaled() -> dict[str, Scaling]:
    """The models that scale by themselves."""
    return {model.name: model.scaling for model in ServedModel.objects.filter(autoscale=True)}


def _figures(scale: Scale) -> object:
    return (
        {name: (one.wanted, one.asked, one.actual, one.most) for name, one in scale.classes.items()},
        {name: (one.wanted, one.needed) for name, one in scale.models.items()},
    )
