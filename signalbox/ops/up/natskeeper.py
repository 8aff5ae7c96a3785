"""Restarts a nats-server that stores nothing any more because its disk was full.

JetStream keeps the first write error of a stream: from then on it answers no write to it, also when there is room
again, until the server is started anew. It says so in its log and nowhere else. SIGTERM does not always end it then.
"""

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Callable
from typing import Final

from signalbox.bus.client import Bus
from signalbox.bus.disk import Room
from signalbox.bus.storage import list_streams
from signalbox.ops.up.child import Child
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.program.tasks import TaskGroup
from signalbox.wire.names import NATS_FAULT

MOST_RESTARTS: Final = 3
"""In :data:`PERIOD_S`. A disk that fills again and again needs a person."""
PERIOD_S: Final = 3600.0
_POLL_S: Final = 0.25
"""How often the room is looked at while there is none."""
TELL_S: Final = 1.0
_FAULT_TEXT: Final = "NATS stores nothing: its disk is full, or was."
_WATCH_S: Final = 5.0
_BACK_S: Final = 60.0
_FAULT: Final = re.compile(rb"(?i)(critical write error|no space left on device|disk quota exceeded)[^\n]*")
_NO_ROOM_BYTES: Final = 1024 * 1024
"""With less, a stream's first write may have failed: of a block that it cannot make it says nothing (2.15.1)."""
_OVERLAP_BYTES: Final = 64
"""The fault's words may come in two pieces."""


class NatsKeeper:
    """Receives the log of ``server`` (:meth:`receive`) and restarts it once its disk has room again (:meth:`run`).

    say: called with sentences a person should read.
    """

    def __init__(self, room: Room, say: Callable[[str], None]) -> None:
        self._room = room
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._has_failed = asyncio.Event()
        self._rest = b""
        self._fault = _FAULT_TEXT
        self._restarts: deque[float] = deque(maxlen=MOST_RESTARTS)
        self._known: deque[dict[str, int]] = deque(maxlen=2)

    def receive(self, output: bytes) -> None:
        """A piece of the server's log, in any thread."""
        if _FAULT.search(self._rest + output):
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._has_failed.set)
        self._rest = output[-_OVERLAP_BYTES:]

    async def run(self, server: Child, bus: Bus) -> None:
        """Until cancelled. Only while :meth:`Child.keep` of ``server`` runs too: that starts it again."""
        async with TaskGroup() as group:
            group.create_task(self._watch(bus))
            group.create_task(self._mend(server, bus))
            group.create_task(self._tell(bus))

    async def check(self, bus: Bus) -> None:
        """Remember how far the streams are, while they store. Two checks make the earlier one :attr:`stored`."""
        found = await last_sequences(bus)
        if found and not self._has_failed.is_set():
            self._known.append(found)

    @property
    def stored(self) -> dict[str, int]:
        """How far each stream is known to have stored; empty where that is not known yet.

        What the server tells after a fault is no measure: its last sequence counts the write that failed. The last
        check may be so late too, hence the one before it.
        """
        return self._known[0] if len(self._known) == 2 else {}

    async def _tell(self, bus: Bus) -> None:
        """Have the board say what is wrong, for as long as it is."""
        while True:
            await self._has_failed.wait()
            with contextlib.suppress(SignalboxError):
                await bus.publish(NATS_FAULT, self._fault.encode())
            await asyncio.sleep(TELL_S)

    async def _watch(self, bus: Bus) -> None:
        """Remember how far the streams are while they store, and say when room runs out and is there again."""
        was_low = False
        while True:
            await self.check(bus)
            free = self._room.free_bytes()
            if free is not None and free < _NO_ROOM_BYTES:
                self._has_failed.set()
            is_low = self._room.is_low()
            if is_low != was_low:
                self._say(
                    f"the disk of NATS has less than {self._room.reserve_bytes >> 20} MB left: new jobs are refused"
                    f" until there is room again under {self._room.folder}"
                    if is_low
                    else "the disk of NATS has room again; new jobs are taken"
                )
            was_low = is_low
            await asyncio.sleep(_WATCH_S)

    async def _mend(self, server: Child, bus: Bus) -> None:
        while True:
            await self._has_failed.wait()
            self._fault = f"{_FAULT_TEXT} `signalbox up` restarts it once the disk has room."
            self._say("NATS cannot write to its disk and stores nothing now; waiting for room there")
            log.error("nats.write_failed", free_bytes=self._room.free_bytes())
            await self._has_room()
            await self._may_restart()
            pid = server.pid
            self._restarts.append(self._loop.time())
            self._say("there is room again; restarting NATS, which would not write before")
            log.warning("nats.restarted", free_bytes=self._room.free_bytes())
            server.kill()
            is_back = await self._is_back(server, bus, pid)
            self._has_failed.clear()  # what its former life has said until now
            self._say("NATS is back" if is_back else f"NATS does not answer {_BACK_S:g} s after its restart")

    async def _has_room(self) -> None:
        """Return when more than the reserve is free. The kernel sends no notice of it, so this polls."""
        while True:
            if not self._room.is_low():
                return
            await asyncio.sleep(_POLL_S)

    async def _may_restart(self) -> None:
        """Wait until it was not restarted too often lately."""
        if len(self._restarts) < MOST_RESTARTS:
            return
        wait_s = self._restarts[0] + PERIOD_S - self._loop.time()
        if wait_s > 0:
            self._say(
                f"NATS was restarted {MOST_RESTARTS} times within an hour because its disk was full; the next"
                f" restart is in {wait_s / 60:.0f} min. Give its disk more room, then restart `signalbox up`."
            )
            self._fault = (
                f"{_FAULT_TEXT} It was restarted {MOST_RESTARTS} times within an hour: give its disk more room, then"
                " restart `signalbox up`."
            )
            log.error("nats.restarts_exhausted", wait_s=round(wait_s))
            await asyncio.sleep(wait_s)

    async def _is_back(self, server: Child, bus: Bus, former_pid: int) -> bool:
        """Whether another life of the server answers within a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BACK_S):
                while True:
                    if server.pid not in {0, former_pid} and await last_sequences(bus):
                        return True
                    await asyncio.sleep(_POLL_S)
        return False


async def last_sequences(bus: Bus) -> dict[str, int]:
    """The last sequence of each stream, by name; empty while NATS does not answer."""
    try:
        streams = await list_streams(bus)
    except SignalboxError:
        return {}
    return {name: info["state"]["last_seq"] for name, info in streams.infos.items()}
