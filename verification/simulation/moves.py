"""Writes records of open jobs again unchanged, so that they move to the end of their stream.

Workers do so with jobs that they run for long, the reconciler with jobs that no worker runs. Here it is done to any
open record at any time, also where the reconciler would be wrong about who runs it.
"""

import random
from typing import TYPE_CHECKING, Final

from signalbox.bus.transport.frames import parse_headers
from signalbox.wire.messages import Record, decode, header
from signalbox.wire.names import Header
from verification.simulation.nats.messages import Msg

if TYPE_CHECKING:
    from verification.simulation.world import World

_MOVES: Final = 60


class Moves:
    """All such writes of one world, drawn from a random stream of their own."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.chance = random.Random(f"moves of {world.shape.seed}")

    def plan(self) -> None:
        """Until the healing."""
        for _ in range(_MOVES if self.world.shape.is_moved else 0):
            self.world.later(self.chance.uniform(0.5, self.world.shape.lull_s - 0.5), self._draw)

    def _draw(self) -> None:
        server = self.world.server
        if not server.is_running or server.is_paused:
            return
        open_ = [
            (msg, record)
            for msg in server.streams["STATE"].msgs.values()
            if not (record := _record(msg)).state.is_terminal
        ]
        if open_:  # as compare-and-set: an end that is on its way wins
            self.world.injected("move_record")
            msg, record = self.chance.choice(open_)
            self.world.note("FAULT move record", job=record.id[-6:])
            fields = f"{Header.RECORD}: {header(record)}\r\n{Header.EXPECTED_LAST}: {msg.seq}\r\n"
            head = f"NATS/1.0\r\n{fields}\r\n".encode()
            self.world.nats.context.run(server.publish, None, msg.subject, b"", head, msg.data)


def _record(msg: Msg) -> Record:
    return decode(Record, parse_headers(msg.head)[Header.RECORD])
