"""How queues stand, as NATS and the programs that hold watches tell: written for the console when it has changed."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gateway_plugin.outbound.queues import gauges
from gateway_plugin.outbound.queues.making import QueueMaker
from gateway_plugin.outbound.queues.watching import HeardWatches
from gateway_plugin.queues.watching.groups import group_states
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.jetstream import unix_time
from signalbox.bus.storage import Streams, list_streams
from signalbox.bus.table import Table, put, remove
from signalbox.program import log
from signalbox.program.errors import NotFound, SignalboxError, Unavailable
from signalbox.wire import names, queuenames
from signalbox.wire.events import is_removal
from signalbox.wire.messages import decode, encode
from signalbox.wire.names import Bucket
from signalbox.wire.queuenames import SIDES, Side
from signalbox.wire.queues import GroupState, Queue, QueueMark, QueueState, SideState, WatchState, backlog

LOOK_S: Final = 2.0
"""Between two looks while anything is in a queue or watched: of a commit there is no event. Otherwise puts wake it."""
DEAD_S: Final = 30.0
"""Between two looks while there are dead items and nothing else: of one that is read and removed there is no event."""
QUIET_S: Final = 60.0
"""Between two looks while there is nothing at all: NATS may have lost the event of a put."""
_SHARE: Final = 0.2
"""Most of the time that looks and writes take. While a stream has no leader NATS waits for one before it lists the
others: that is no work."""
_MOST_BYTES: Final = 48 * 1024
"""Of a state: more watches and groups than fit are left out."""
_IDLE_STEPS: Final = (3600.0, 600.0, 60.0, 10.0)
"""Seconds to which the idle time of a watch is rounded down: a watch that is idle is no change every two seconds."""


class Standing:
    """The states of all queues. ``await load()`` once, then :meth:`keep`.

    bus, queue_bus: to the account of documents, and of queues. maker: knows whose streams are there. stirred: is
    set when there may be something new.
    """

    def __init__(
        self,
        bus: Bus,
        queue_bus: Bus,
        table: Table[Queue],
        marks: Table[QueueMark],
        maker: QueueMaker,
        watches: HeardWatches,
        stirred: asyncio.Event,
    ) -> None:
        self._bus = bus
        self._queue_bus = queue_bus
        self._table = table
        self._marks = marks
        self._maker = maker
        self._watches = watches
        self._written: dict[str, QueueState] = {}
        self._groups: dict[str, tuple[object, tuple[GroupState, ...]]] = {}
        self._rear: tuple[object, dict[str, int]] = (None, {})
        self._stirred = stirred
        self._backlog: dict[str, int] = {}
        self._waited_s = 0.0

    async def load(self) -> None:
        """Read what an earlier holder of this task has written. Raises :class:`Unavailable`."""
        prefix = names.key(Bucket.QUEUE_STATES, "")
        for stored in await self._bus.list_latest(Bucket.QUEUE_STATES.stream, [f"{prefix}>"]):
            if not is_removal(stored.headers):
                with contextlib.suppress(msgspec.MsgspecError):  # a newer program's is written anew
                    self._written[stored.subject.removeprefix(prefix)] = decode(QueueState, stored.data)

    async def keep(self) -> None:
        """Until cancelled: look, write, and wait until there may be something new."""
        loop = asyncio.get_running_loop()
        while True:
            self._stirred.clear()
            began = loop.time()
            try:
                is_moving = await self.look()
            except SignalboxError as error:
                log.warning("queues.not_looked_at", reason=error.public_message)
                is_moving = True
            if not is_moving and not self._stirred.is_set():
                await self._until_stirred()
            took_s = loop.time() - began - self._waited_s
            await asyncio.sleep(max(LOOK_S, took_s * (1 / _SHARE - 1) if is_moving else 0))

    async def look(self) -> bool:
        """Compare all queues with what was last written; whether anything is in one, or watched, or away.

        Raises as :meth:`Bus.request_json`.
        """
        self._waited_s, asked_at = 0.0, time.monotonic()
        streams = await list_streams(self._queue_bus)
        if streams.leaderless:
            self._waited_s = time.monotonic() - asked_at
        gauges.show_late(streams)
        watches = self._watches.by_queue()
        dead = await self._dead(streams.infos.get(queuenames.REAR))
        for key, queue in dict(self._table.items()).items():
            state = await self._state(key, queue, streams, dead, watches.get(queue.name, ()))
            gauges.show(queue.name, state)
            await self._write(key, state)
        self._show_backlog()
        await self._show_room(streams.infos.get(queuenames.REAR))
        for key in self._written.keys() - self._table.items().keys():
            if self._table.is_removed(key) and not self._maker.is_made(key):
                await self._forget(key)
        return bool(self._watches or streams.leaderless) or any(
            info["state"]["messages"] for name, info in streams.infos.items() if name.startswith("Q_")
        )

    def _show_backlog(self) -> None:
        before, self._backlog = (
            self._backlog,
            backlog((queue, self._written.get(key)) for key, queue in self._table.items().items()),
        )
        gauges.show_backlog(before, self._backlog)

    async def _show_room(self, rear: Mapping[str, Any] | None) -> None:
        account = await self._queue_bus.request_json("$JS.API.INFO")
        gauges.show_room("account", account["storage"], account["limits"]["max_storage"])
        if rear is not None:
            gauges.show_room("rear", rear["state"]["bytes"], rear["config"]["max_bytes"])

    async def _until_stirred(self) -> None:
        """Return when something is put, watched or decided, or after a while, sooner where there are dead items."""
        listening = await self._queue_bus.subscribe("evt.q.>", lambda _message: self._stirred.set())
        try:
            if not await self._is_moving():  # what came before the subscription
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(DEAD_S if self._rear[1] else QUIET_S):
                        await self._stirred.wait()
        finally:
            await listening.close()

    async def _is_moving(self) -> bool:
        try:
            return await self.look()
        except SignalboxError:
            return True  # looked at again in a moment, and told then

    # ------------------------------------------------------------------------------ one queue

    async def _state(
        self,
        key: str,
        queue: Queue,
        streams: Streams,
        dead: Mapping[str, int],
        watches: Sequence[WatchState],
    ) -> QueueState:
        is_made, why = self._maker.is_made(key), self._maker.why(key)
        before = self._written.get(key, QueueState())
        sides: dict[Side, SideState] = {"source": before.source, "sink": before.sink} if is_made else {}
        replicas = before.replicas if is_made else 0
        for side in SIDES if is_made else ():
            stream = queuenames.queue_stream(queue.name, side)
            if stream in streams.leaderless:
                sides[side] = replace(sides[side], is_away=True)
            elif (info := await self._info(stream, streams.infos)) is not None:
                sides[side] = await self._side(queue.name, side, info, dead)
                replicas = int(info["config"].get("num_replicas", 1))
        state = QueueState(
            state="running" if is_made else "failed" if why else "creating",
            why=why,
            replicas=replicas,
            source=sides.get("source", SideState()),
            sink=sides.get("sink", SideState()),
            watches=tuple(replace(one, idle_s=_coarse(one.idle_s)) for one in watches),
        )
        return _bounded(state)

    async def _info(self, stream: str, listed: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """What NATS tells of a stream, one that was made since the list too; None while it does not."""
        if stream in listed:
            return listed[stream]
        try:
            return await topology.stream_info(self._queue_bus, stream)
        except Unavailable:
            return None

    async def _side(self, queue: str, side: Side, info: Mapping[str, Any], dead: Mapping[str, int]) -> SideState:
        state = info["state"]
        length = int(state["messages"])
        return SideState(
            length=length,
            size=int(state["bytes"]),
            first_index=int(state["first_seq"]) if length else 0,
            last_index=int(state["last_seq"]),
            oldest_at=unix_time(state["first_ts"]) if length else 0.0,
            rear=dead.get(queuenames.rear_items(queue, side), 0),
            is_ended=self._marks.get(queuenames.queue_mark(queue, side)) is not None,
            groups=await self._groups_of(queue, side, info),
        )

    async def _groups_of(self, queue: str, side: Side, info: Mapping[str, Any]) -> tuple[GroupState, ...]:
        """The groups of a side. Where nothing is in it, and was not before, nothing of them has changed."""
        stream, state = info["config"]["name"], info["state"]
        now = (info["created"], state["last_seq"], state.get("consumer_count", 0))
        known = self._groups.get(stream)
        if known is not None and known[0] == now and not state["messages"]:
            return known[1]
        try:
            found = tuple(await group_states(self._queue_bus, queue, side))
        except NotFound:  # removed meanwhile
            return ()
        self._groups[stream] = (None if state["messages"] else now), found
        return found

    async def _dead(self, info: Mapping[str, Any] | None) -> dict[str, int]:
        """Dead items by the wildcard of their side. All are counted by their subjects, when any came or went."""
        if info is None:
            return self._rear[1]
        now = info["state"]["last_seq"], info["state"]["messages"]
        if self._rear[0] != now:
            self._rear = now, _by_side(await self._subjects()) if info["state"]["messages"] else {}
        return self._rear[1]

    async def _subjects(self) -> dict[str, int]:
        found: dict[str, int] = {}
        while True:
            asked = {"subjects_filter": queuenames.rear_items(), "offset": len(found)}
            info = await self._queue_bus.request_json(f"$JS.API.STREAM.INFO.{queuenames.REAR}", asked)
            page = info["state"].get("subjects") or {}
            found |= page
            if not page or len(found) >= info.get("total", 0):
                return found

    async def _write(self, key: str, state: QueueState) -> None:
        before = self._written.get(key)
        if before is not None and replace(before, at=0.0) == state:
            return
        made = replace(state, at=time.time())
        await put(self._bus, Bucket.QUEUE_STATES, key, made)
        self._written[key] = made

    async def _forget(self, key: str) -> None:
        """Remove the state of a queue that is gone."""
        await remove(self._bus, Bucket.QUEUE_STATES, key)
        del self._written[key]
        name = names.untoken(key)
        gauges.forget(name)
        for side in SIDES:
            self._groups.pop(queuenames.queue_stream(name, side), None)


def _by_side(subjects: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for subject, count in subjects.items():
        side = f"{subject.rpartition('.')[0]}.*"
        found[side] = found.get(side, 0) + count
    return found


def _coarse(idle_s: float) -> float:
    return next((step for step in _IDLE_STEPS if idle_s >= step), 0.0)


def _bounded(state: QueueState) -> QueueState:
    """With as many watches and groups as a document may hold."""
    while len(encode(state)) > _MOST_BYTES:
        most = max(len(state.watches), *(len(side.groups) for side in (state.source, state.sink))) // 2
        state = replace(
            state,
            watches=state.watches[:most],
            source=replace(state.source, groups=state.source.groups[:most]),
            sink=replace(state.sink, groups=state.sink.groups[:most]),
        )
    return state
