"""Fuzzes the supervisor's link with bytes that a compromised runner may send, cut anywhere.

For all bytes, the link either gets answers that fit its requests or gives the runner up: nothing else is raised,
no caller waits for a runner that was given up, and the link buffers at most one frame's limit.
"""

import asyncio
import atexit
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

from signalbox.program.errors import Bug
from workers.runner import frames
from workers.runner.wire import RunnerWire

SEEDS: Final = Path(__file__).parent / "corpus" / "frames"
SHARE: Final = 30_000
TOKENS: Final = (
    b"\x96\xa3Ran",
    b"\x94\xa6Failed",
    b"\x96\xa6Loaded",
    b"\x92\xa8Unloaded",
    b"\x94\xa5Ready",
    b"\xc0",
    b"\xc3",
    b"\xca\x3f\x80\x00\x00",
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x80",
    b"\x90",
    b"\xc4\x00",
    b"\xc6\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xc1",
    b"\x01",
    b"\x02",
)
LIMIT: Final = 4096
ASKED: Final = (1, 2)
LONG_S: Final = 3600.0


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False

    def write(self, data: Any) -> None:
        """A runner that does not listen."""

    def close(self) -> None:
        self.is_closed = True


async def _talk(data: bytes) -> Hashable:
    ready: list[frames.RunnerStarted] = []
    refused: list[bool] = []
    wire = RunnerWire(LIMIT, on_ready=ready.append, kill=lambda: refused.append(True))
    transport = _Transport()
    wire.connection_made(transport)
    waiting = [wire.send(number, b"", LONG_S) for number in ASKED]
    step = 1 + len(data) % 97
    for at in range(0, len(data), step):
        wire.data_received(data[at : at + step])
        assert len(wire._splitter._buffer) <= LIMIT + frames.LENGTH_BYTES + step
    assert bool(refused) == wire.is_broken, "given up and not said, or said and not given up"
    assert len(refused) <= 1
    kinds = []
    for number, future in zip(ASKED, waiting, strict=True):
        if wire.is_broken:
            assert future.done(), "somebody waits for a runner that was given up"
        if future.done() and future.exception() is None:
            answer = future.result()
            assert not isinstance(answer, frames.RunnerStarted)
            assert answer.id == number
            kinds.append(type(answer).__name__)
    if not wire.is_broken:
        wire.fail()
    assert transport.is_closed
    for future in waiting:
        future.exception()
    return (len(refused), min(len(ready), 2), *kinds)


_loop: Final = asyncio.new_event_loop()
atexit.register(_loop.close)


def one(data: bytes) -> Hashable:
    """One conversation, and the same bytes as requests of a supervisor."""
    found = _loop.run_until_complete(_talk(data))
    try:
        bodies = frames.Splitter(LIMIT).feed(data)
    except Bug:
        bodies = []
    return (found, min(len(bodies), 4))
