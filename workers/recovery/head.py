"""The head of a deep queue: the messages before the first job that has not ended."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from signalbox.bus.client import Bus, Delivery
from signalbox.jobs import delivery as consumers
from signalbox.wire import names
from signalbox.wire.names import Stream
from workers.recovery.walk import walk

MOST_READ: Final = 100_000
"""Messages read in one turn."""


class QueueHead:
    """Read on, each message once, as far as its jobs have ended.

    floor: sequence of the first job that has not, as far as was read. ended: the jobs before it, in order.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._created = ""
        self._told = 0
        self.floor = 0
        self.ended: list[str] = []

    def begin(self) -> None:
        """Forget what was read."""
        self.floor = self._told = 0
        self.ended.clear()

    async def read_on(self, jobs: Mapping[str, Any], has_ended: Callable[[str], bool]) -> None:
        """Move the floor, and tell it. jobs: ``JOBS`` as the server tells of it. Raises as :meth:`Bus.request_json`."""
        state = jobs["state"]
        if self._created != jobs["created"] or self.floor < state["first_seq"]:
            self.begin()
            self._created, self.floor = jobs["created"], state["first_seq"]
        highest = state["last_seq"] - consumers.DEEP
        ended: list[str] = []

        def look(delivery: Delivery) -> bool:
            job_id = names.job_of(delivery.subject)
            if delivery.seq > highest or not has_ended(job_id):
                return False
            ended.append(job_id)
            return True

        self.floor = await walk(self._bus, Stream.JOBS, self.floor, MOST_READ, look)
        self.ended += ended
        if self.floor != self._told:  # also one that is lower than another's was: that may be of what was lost since
            await consumers.tell_floor(self._bus, self._created, self.floor)
            self._told = self.floor

    def take(self) -> list[str]:
        """The jobs before the floor, whose messages are removed."""
        taken, self.ended = self.ended, []
        return taken
