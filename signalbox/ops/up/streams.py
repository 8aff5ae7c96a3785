"""Creates the streams of a stack on one machine: at its start, and again when NATS returns without some."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from signalbox.bus import damage, topology
from signalbox.bus.client import Bus
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.natskeeper import NatsKeeper
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.wire.assets import COUNTED, STREAMS

_NUMBERED: Final = tuple(config["name"] for config in STREAMS if config["subjects"])
_FILE: Final = "streams.json"
_FORGOTTEN: Final = topology.REMEMBERED.union(COUNTED)
"""If one of these was lost, no program may run until its sequences are set anew, nor remember former ones."""
_MORE: Final = "See docs/operations.md, When NATS has lost something."
_NOTED_EVERY_S: Final = 30.0
_RETRY_S: Final = 1.0


class Streams:
    """What one data folder's NATS shall hold.

    keeper: knows how far each has stored. without_programs: within it none runs; they start anew after it. say: for a
    person.
    """

    def __init__(
        self,
        bus: Bus,
        data: DataDir,
        keeper: NatsKeeper,
        *,
        storage_bytes: int,
        say: Callable[[str], None],
        without_programs: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self._bus = bus
        self._data = data
        self._keeper = keeper
        self._storage_bytes = storage_bytes
        self._say = say
        self._without_programs = without_programs
        self._is_back = asyncio.Event()

    async def make(self) -> None:
        """Have every stream as declared, and say what of them was lost. Raises as :func:`topology.apply`."""
        noted = self._data.read_json(_FILE)
        had: dict[str, int] = {name: noted[name] for name in _NUMBERED if name in noted}
        last = await topology.last_sequences(self._bus)
        gone = [name for name in had if had[name] and not last.get(name)]
        cut = [name for name in had if 0 < last.get(name, 0) < had[name]]
        for name in cut:
            self._say(f"{name} has lost its end: NATS had {had[name]} and has {last[name]}. {_MORE}")
        is_forgotten = not _FORGOTTEN.isdisjoint(gone + cut)
        async with self._without_programs() if is_forgotten else contextlib.nullcontext():
            first_seq = topology.numbers_from(time.time())
            await topology.apply(self._bus, storage_bytes=self._storage_bytes, first_seq=first_seq)
            found = await topology.last_sequences(self._bus)
            for name in set(cut).intersection(COUNTED):  # the living write it again, renumbered
                await self._bus.request_json(f"$JS.API.STREAM.PURGE.{name}", {"seq": first_seq})
        if empty := [name for name in gone if not 0 < found[name] < first_seq - 1]:
            self._say(f"NATS has lost all that {', '.join(empty)} held; made again. {_MORE}")
        if whole := [name for name in gone if name not in empty]:
            self._say(f"NATS had lost what {', '.join(whole)} is; its messages are there again. {_MORE}")
        for one in await damage.find(self._bus):
            self._say(f"NATS cannot read all of {one.stream}: {one.what}. {_MORE}")
        for _ in range(2):  # what was known before is true of other streams
            await self._keeper.check(self._bus)
        self.note()

    def note(self) -> None:
        """Write down how far each stream has stored, to know at the next start whether it has lost something."""
        if stored := self._keeper.stored:
            self._data.write_json(_FILE, stored)

    async def keep(self) -> None:
        """Make them again after each reconnect, until cancelled: NATS may come back without some."""
        self._bus.on_reconnect(self._is_back.set)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_NOTED_EVERY_S):
                        await self._is_back.wait()
                is_back = self._is_back.is_set()
                self._is_back.clear()
                try:
                    self.note()
                    if is_back:
                        await self.make()
                except (SignalboxError, OSError) as error:  # the disk may be full
                    log.warning("up.streams_not_seen", reason=str(error))
                    if is_back:
                        await asyncio.sleep(_RETRY_S)
                        self._is_back.set()
        finally:
            self._bus.forget_reconnect(self._is_back.set)
