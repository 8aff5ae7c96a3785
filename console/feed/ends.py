"""Alarms on ends of jobs that are not sent out in time, or never were."""

from typing import Final, TypeVar

import msgspec

from console.board.rows import Alarm
from signalbox.bus.client import Bus
from signalbox.bus.jetstream import unix_time
from signalbox.program import log
from signalbox.program.errors import NotFound, SignalboxError
from signalbox.program.words import counted
from signalbox.wire import names, outboundnames
from signalbox.wire.messages import Doc, decode
from signalbox.wire.names import RECORDS, Bucket, Stream
from signalbox.wire.outbound import EndsLost, FollowerPosition

LATE_S: Final = 60.0
"""Ends that are less late are none of an operator's business."""
SHOWN_S: Final = 86_400.0
"""A loss stays on the board so long after it."""
_HREF: Final = "/results"
D = TypeVar("D", bound=Doc)


async def read_ends(bus: Bus, now: float) -> dict[str, Alarm]:
    """The alarms by key; none while NATS does not answer, which has its own. now: UTC seconds."""
    try:
        return await _late(bus, now) | await _lost(bus, now)
    except (SignalboxError, msgspec.MsgspecError) as error:
        log.warning("live.ends_unknown", reason=str(error))
        return {}


async def _late(bus: Bus, now: float) -> dict[str, Alarm]:
    """Where the first record that the follower has not passed is old."""
    position = await _read(bus, outboundnames.FOLLOWER_POSITION, FollowerPosition)
    if position is None or not position.is_watched:
        return {}
    ask = {"seq": max(1, position.state_seq), "next_by_subj": RECORDS}
    try:
        answer = await bus.request_json(f"$JS.API.STREAM.MSG.GET.{Stream.STATE}", ask)
    except NotFound:
        return {}
    stored_at = unix_time(answer["message"]["time"])
    if now - stored_at < LATE_S:
        return {}
    text = "Ends of jobs are not sent out in time."
    hint = "Look whether the outbound program runs, and what its log says; records wait for it for a time."
    return {"ends-late": Alarm("warning", text, stored_at, _HREF, hint=hint)}


async def _lost(bus: Bus, now: float) -> dict[str, Alarm]:
    lost = await _read(bus, outboundnames.ENDS_LOST, EndsLost)
    if lost is None or now - lost.at >= SHOWN_S:
        return {}
    what = counted(lost.records, "record of an ended job was", "records of ended jobs were")
    text = (
        f"{what} removed before the outbound program had passed them: ends that somebody is subscribed to are missing."
    )
    hint = "Have those who need them ask for the results while they are kept, and the program run (docs/results.md)."
    return {"ends-lost": Alarm("error", text, lost.at, _HREF, hint=hint)}


async def _read(bus: Bus, key: str, type_: type[D]) -> D | None:
    stored = await bus.leader_get(Bucket.DUTIES.stream, names.key(Bucket.DUTIES, key))
    return decode(type_, stored.data) if stored is not None else None
