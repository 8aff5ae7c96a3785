"""Devices: who holds each, how it was used lately, and the log of its lease."""

import time
from typing import Final, NamedTuple

from console.asking import ask
from console.board.holds import Hold
from console.board.lanes import STRIP_S
from console.board.rows import LaneRow, WorkerRow
from console.feed import history
from console.feed.running import running
from console.fleet import workers

LOG_S: Final = 1800.0
"""How far back the log of a lease is read: a lease is written every few seconds."""
HEIGHT: Final = 100
"""Of a strip, in its own units; its width is in seconds."""


class Bar(NamedTuple):
    """A part of a strip: ``computing`` or ``loading``, and where it is drawn."""

    kind: str
    x: float
    y: float
    height: float


class Use(NamedTuple):
    """A device's last ten minutes. now, computing, loading: shares; None = nobody has told. bars: by five seconds."""

    now: float | None
    computing: float | None
    loading: float | None
    bars: list[Bar]


def find(gpu: str) -> LaneRow:
    """A device that is here. Raises :class:`NotFound`, or :class:`Unavailable` without NATS."""
    found = lane(gpu)
    if found is None:
        raise workers.unknown("GPU", gpu)
    return found


def lane(gpu: str) -> LaneRow | None:
    """A device as the board shows it; None where it is not there, or not known."""
    feed = running.feed
    row = feed.view.topics.topics["lanes"].rows.get(gpu) if feed is not None else None
    return row if isinstance(row, LaneRow) else None


def present() -> list[LaneRow]:
    """Every device that is here, by host and name."""
    feed = running.feed
    rows = list(feed.view.topics.topics["lanes"].rows.values()) if feed is not None else []
    return sorted((row for row in rows if isinstance(row, LaneRow)), key=lambda row: (row.host, row.name, row.gpu))


def workers_of(gpu: str) -> list[WorkerRow]:
    """The workers on a device, its holder first."""
    here = [row for row in workers.present().values() if row.gpu == gpu and row.state != "lost"]
    return sorted(here, key=lambda row: (not row.token, row.id))


def use(row: LaneRow) -> Use:
    """How a device was used."""
    start = time.time() - STRIP_S
    known = [share for share in row.used if share.at >= start]
    bars = []
    for share in known:
        top = HEIGHT * (1 - share.computing)
        at = round(share.at - start, 1)
        if share.computing:
            bars.append(Bar("computing", at, round(top, 1), round(HEIGHT * share.computing, 1)))
        if share.loading:
            bars.append(Bar("loading", at, round(top - HEIGHT * share.loading, 1), round(HEIGHT * share.loading, 1)))
    if not known:
        return Use(row.use, None, None, [])
    computing, loading = sum(share.computing for share in known), sum(share.loading for share in known)
    return Use(row.use, round(computing / len(known), 3), round(loading / len(known), 3), bars)


def holds(gpu: str) -> list[Hold]:
    """The log of a device's lease, the newest hold first. Raises :class:`Unavailable`."""
    return ask("the log of a lease", lambda bus: history.holds(bus, gpu, time.time() - LOG_S))
