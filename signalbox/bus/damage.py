"""Reads what nats-server reports as lost from a stream: blocks it could not read when it started."""

from typing import Final, NamedTuple

from signalbox.bus.client import Bus
from signalbox.program.errors import NotFound
from signalbox.program.words import counted
from signalbox.wire.assets import COUNTED, STREAMS

_MOST_DELETED: Final = 50_000
"""Most deleted sequences of a stream that is asked: the server lists them all in its answer, about a megabyte."""


class StreamDamage(NamedTuple):
    """The damage of one stream. messages: how many the server knows to be lost; 0 = it knows only their bytes."""

    stream: str
    messages: int
    size_bytes: int

    @property
    def what(self) -> str:
        """What is lost, for a person."""
        if self.messages:
            size = counted(self.size_bytes, "byte")
            return counted(self.messages, f"message of {size} is lost", f"messages of {size} are lost")
        return counted(self.size_bytes, "byte is lost", "bytes are lost")


async def find(bus: Bus) -> list[StreamDamage]:
    """Every declared stream of which the server has lost something. Raises as :meth:`Bus.request_json`.

    The server tells it until it is started again. It tells nothing of a block that ends too early or of a stream that
    is gone, and is not asked where it has deleted too many; what jobs were lost there, the console finds
    (:mod:`console.projector.damage`).
    """
    found = []
    for declared in STREAMS:
        if declared["name"] in COUNTED:
            continue  # gone within seconds anyway, and the server counts one as lost after an ordinary kill
        subject = f"$JS.API.STREAM.INFO.{declared['name']}"
        try:
            info = await bus.request_json(subject)
            if info["state"].get("num_deleted", 0) > _MOST_DELETED:
                continue
            info = await bus.request_json(subject, {"deleted_details": True})
        except NotFound:
            continue
        if lost := info["state"].get("lost"):
            messages = len(lost.get("msgs") or ())
            found.append(StreamDamage(declared["name"], messages, lost.get("bytes", 0)))
    return found
