"""Starts the first worker of a fleet that has none, when there is work: by what every host works out, without a word.

Jobs are accepted while nobody could run them, and the controller may be away. So each host listens, and the one whose
turn comes first starts a worker at once; the others only where none appears (:func:`signalbox.wire.hosts.first_start`).

What only the workers' reconciler does needs a worker later: a delayed job falls due, a deadline passes. So when the
last worker has gone each host reads what that left (``position`` in KV ``duties``), and sets a timer. It does so too at
its begin, after a reconnect, and where a worker is gone that no host accounts for: its jobs are nobody's news. A worker
that drains takes no job, so it counts for none.

Events are not kept, and one may be lost: so the queue is looked at each minute in which there is no worker. Records are
not: owners delete ended jobs at any time, and that is no work.
"""

import asyncio
import math
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec

from signalbox.bus.client import Bus, Message, Subscription
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.program.tasks import TaskGroup
from signalbox.wire import names
from signalbox.wire.duties import ReconcilerPosition
from signalbox.wire.hosts import first_start, is_overruled, needed_at
from signalbox.wire.messages import decode
from signalbox.wire.names import POSITION, Bucket, Stream, token
from signalbox.wire.scaling import Host, Scale
from signalbox.wire.workerdocs import Worker

_AGAIN_S: Final = 1.0
"""Until what NATS did not tell is looked for again."""
_LOST_S: Final = 60.0
"""Between two looks at the queue for jobs whose events were lost."""


class FirstStart:
    """Of one host. hosts: all that are present, this one included. workers: all that are present.

    start: called with the device whose workers are to be started, which are then kept until :meth:`released`.
    """

    def __init__(
        self,
        bus: Bus,
        host: str,
        *,
        hosts: Callable[[], Collection[Host]],
        scale: Callable[[], Scale | None],
        workers: Callable[[], Collection[Worker]],
        start: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._bus = bus
        self._host = host
        self._hosts = hosts
        self._scale = scale
        self._workers = workers
        self._start = start
        self._clock = clock
        self._work = asyncio.Event()
        self._moved = asyncio.Event()
        self._doubted = asyncio.Event()
        self._doubted.set()  # one that begins has heard of none
        self._had_worker = False
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = math.inf
        self._subscriptions: list[Subscription] = []
        self.held: dict[str, float | None] = {}
        """Devices with workers that this has started, and when the first was ready."""

    async def start(self) -> None:
        """Listen to jobs, and to such as will be due."""
        for subject in (names.event_of_jobs(), names.delayed()):
            self._subscriptions.append(await self._bus.subscribe(subject, self._receive))

    def changed(self) -> None:
        """Presence or what is wanted has changed."""
        has_worker = self._has_worker()
        if self._had_worker and not has_worker:
            self.doubt()
        self._had_worker = has_worker
        self._moved.set()

    def learn(self, key: str, worker: Worker | None) -> None:
        """The presence of a worker under a key has changed. The last one of all that is gone has left word of what it
        knows; any other may have left jobs, unless its host is there, which has ended it, or starts it again."""
        self.changed()
        if worker is not None and worker.state == "ready" and self.held.get(worker.device.id, 0.0) is None:
            self.held[worker.device.id] = self._clock()
        is_known = any(token(kept.id) == key for host in self._hosts() for kept in host.workers)
        if worker is None and not (is_known and self._workers()):
            self.doubt()

    def doubt(self) -> None:
        """Look for what a worker is needed for: some of it may not have been heard."""
        self._doubted.set()

    def released(self, kept: Collection[str], scale: Scale | None) -> None:
        """Let go of what was started, once the controller has seen the work: from then on its number counts."""
        if scale is None:
            return
        for device, ready_at in list(self.held.items()):
            if device in kept or is_overruled(ready_at, scale):
                del self.held[device]

    async def keep(self) -> None:
        """Until cancelled: start what is to be started."""
        async with TaskGroup() as group:
            group.create_task(self._keep_looking())
            group.create_task(self._keep_starting())

    async def _keep_looking(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOST_S):
                    await self._doubted.wait()
            is_doubted = self._doubted.is_set()
            self._doubted.clear()
            if not self._has_worker() and not await self._look(with_records=is_doubted):
                await asyncio.sleep(_AGAIN_S)
                self.doubt()

    async def _keep_starting(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            if not self._is_needed():
                continue
            mine = first_start(self._host, self._hosts(), self._scale())
            if mine is not None and await self._is_still_needed(mine.after_s):
                self._hold(mine.device)

    def _hold(self, device: str) -> None:
        """Have a worker at the device, once what drains there has ended."""
        if device not in self.held:
            self.held[device] = None
            log.info("host.first_worker", device=device)
            self._start(device)

    async def _look(self, *, with_records: bool = True) -> bool:
        """Learn when a worker is needed, by what jobs and records there are and what the last worker has left. False
        where NATS does not tell: after a restart it has its connections before its streams."""
        try:
            jobs, state = await self._stream(Stream.JOBS), await self._stream(Stream.STATE)
            stored = await self._bus.leader_get(Bucket.DUTIES.stream, names.key(Bucket.DUTIES, POSITION))
        except SignalboxError as error:
            log.warning("host.jobs_not_seen", why=error.public_message)
            return False
        try:
            position = decode(ReconcilerPosition, stored.data) if stored is not None else ReconcilerPosition()
        except msgspec.MsgspecError:  # a newer program's
            position = ReconcilerPosition()
        newest_at = datetime.fromisoformat(jobs["last_ts"]).timestamp() if jobs["messages"] else None
        # One that drains reads records until it ends, and says then how far it has come.
        is_read = with_records and state["messages"] and not self._workers()
        last_record = state["last_seq"] if is_read else 0
        self._due(needed_at(position, self._scale(), newest_job_at=newest_at, last_record=last_record))
        return True

    async def _stream(self, stream: Stream) -> dict[str, Any]:
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
        state: dict[str, Any] = info["state"]
        return state

    def _due(self, at: float) -> None:
        """There is work from then on, UTC seconds; of several the first is what counts."""
        if self._timer is not None and not self._timer.cancelled() and self._due_at <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if math.isfinite(at):
            wait_s = max(0.0, at - self._clock())
            self._due_at = at
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._fall_due)

    def _fall_due(self) -> None:
        self._timer, self._due_at = None, math.inf
        self._work.set()

    def _has_worker(self) -> bool:
        return any(worker.state != "draining" for worker in self._workers())

    def _is_needed(self) -> bool:
        return not self._has_worker() and not any(
            worker.state == "starting" and not worker.why for host in self._hosts() for worker in host.workers
        )

    async def _is_still_needed(self, after_s: float) -> bool:
        """Whether nobody has a worker after so long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + after_s
        while self._is_needed():
            self._moved.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._moved.wait()
            except TimeoutError:
                return True
        return False

    def _receive(self, message: Message) -> None:
        if self._has_worker():
            return  # it does what is to be done, and once it has gone we look for what it has not done
        at = 0.0
        if message.data:  # of a delayed job: when it is due
            with suppress(ValueError):
                at = float(message.data)
        self._due(at)

    async def close(self) -> None:
        """Listen no more."""
        if self._timer is not None:
            self._timer.cancel()
        for subscription in self._subscriptions:
            await subscription.close()
