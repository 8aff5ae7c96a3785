"""The groups of a side, and what each has got and not got yet."""

from collections.abc import Mapping
from typing import NamedTuple

from signalbox.bus.client import Bus
from signalbox.program.errors import Unavailable
from signalbox.wire import queuenames
from signalbox.wire.queuenames import RANKS, Rank, Side
from signalbox.wire.queues import GroupState


class Place(NamedTuple):
    """A group of one side of a queue: whose watches share out what the group has not got yet."""

    queue: str
    side: Side
    group: str

    @property
    def stream(self) -> str:
        """The stream of the side."""
        return queuenames.queue_stream(self.queue, self.side)

    def consumer(self, rank: Rank) -> str:
        """The group's consumer of one rank."""
        return queuenames.queue_consumer(self.group, rank)


async def group_states(bus: Bus, queue: str, side: Side) -> list[GroupState]:
    """Every group of a side, in the order of their names. Raises :class:`Unavailable`, :class:`NotFound`."""
    found: dict[str, GroupState] = {}
    for info in await bus.listed(f"$JS.API.CONSUMER.LIST.{queuenames.queue_stream(queue, side)}", "consumers"):
        if not info["name"].endswith(("-hi", "-lo")):
            continue  # what others read a stream with
        name = queuenames.group_of_consumer(info["name"])
        known = found.get(name, GroupState(name=name))
        found[name] = GroupState(
            name=name,
            pending=known.pending + info.get("num_ack_pending", 0),
            left=known.left + info.get("num_pending", 0),
            index=max(known.index, info.get("delivered", {}).get("stream_seq", 0)),
        )
    return [found[name] for name in sorted(found)]


class Standing(NamedTuple):
    """How a group's two consumers stand, by rank.

    left: not given out yet. waiting: given out and not committed. floors: all up to there is committed. given: nothing
    behind that has been given out.
    """

    left: Mapping[Rank, int]
    waiting: Mapping[Rank, int]
    floors: Mapping[Rank, int]
    given: Mapping[Rank, int]

    @property
    def is_through(self) -> bool:
        """Whether the group has committed all that there is."""
        return not any(self.left.values()) and not any(self.waiting.values())


async def standing(bus: Bus, place: Place) -> Standing:
    """How a group stands, as its consumers' leaders know it. Raises :class:`Unavailable`, :class:`NotFound`."""
    subject = f"$JS.API.CONSUMER.INFO.{place.stream}."
    infos = {rank: await bus.request_json(subject + place.consumer(rank)) for rank in RANKS}
    return Standing(
        {rank: info.get("num_pending", 0) for rank, info in infos.items()},
        {rank: info.get("num_ack_pending", 0) for rank, info in infos.items()},
        {rank: info["ack_floor"].get("stream_seq", 0) for rank, info in infos.items()},
        {rank: info["delivered"].get("stream_seq", 0) for rank, info in infos.items()},
    )


async def is_watched(bus: Bus, place: Place) -> bool:
    """Whether any program watches for a group: who does listens for what is given back to it, and answers; where nobody
    listens the server says so at once. False also where an answer is lost."""
    try:
        await bus.request(queuenames.returned(place.queue, place.side, place.group))
    except Unavailable:
        return False
    return True
