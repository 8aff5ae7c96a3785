"""The live protocol, server side and pure: topics of keyed rows, numbered deltas, snapshots, ticks.

A *topic* is a set of rows (or, for the ticker, a list of entries). Changes gather until a flush, which
makes one delta with the next ``seq`` of that topic: serialised once, sent to everybody. A client
that holds ``seq`` n takes only n+1; anything else makes it ask again, and gets the deltas it
missed from the ring or a snapshot. docs/live.md describes it. No clock, no I/O.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

RING_S: Final = 30.0
"""How long deltas are kept for a client that resumes."""
RING_LIMIT: Final = 600
BACKLOG: Final = 64
"""Frames one slow connection may leave unread before they give way to snapshots."""
ENTRIES: Final = 50
"""Entries the ticker holds."""

_encode = msgspec.json.Encoder().encode


class Frame(NamedTuple):
    """One message to browsers. seq: of its topic; 0 for a tick. at: unix seconds of its flush."""

    topic: str
    seq: int
    at: float
    text: str


class Topic:
    """Keyed rows, or a list of the newest entries if ``is_list``."""

    def __init__(self, name: str, *, is_list: bool = False) -> None:
        self.name = name
        self.seq = 0
        self.rows: dict[str, msgspec.Struct] = {}
        self.entries: deque[msgspec.Struct] = deque(maxlen=ENTRIES)
        self.is_list = is_list
        self._changed: set[str] = set()
        self._added: list[msgspec.Struct] = []
        self._ring: deque[Frame] = deque(maxlen=RING_LIMIT)

    def set(self, key: str, row: msgspec.Struct) -> None:
        """The row now. The same row again changes nothing."""
        if self.rows.get(key) != row:
            self.rows[key] = row
            self._changed.add(key)

    def remove(self, key: str) -> None:
        """The row is gone."""
        if self.rows.pop(key, None) is not None:
            self._changed.add(key)

    def append(self, entry: msgspec.Struct) -> None:
        """A new entry of a list topic; the oldest one gives way."""
        self.entries.append(entry)
        self._added.append(entry)

    def flush(self, now: float) -> Frame | None:
        """One delta of all that changed since the last flush, or None if nothing did."""
        if not self._changed and not self._added:
            return None
        self.seq += 1
        body: dict[str, Any] = {"t": "delta", "topic": self.name, "seq": self.seq}
        if self.is_list:
            body["add"] = self._added[-ENTRIES:]
        else:
            body["set"] = {k: self.rows[k] for k in self._changed if k in self.rows}
            body["del"] = [k for k in self._changed if k not in self.rows]
        self._changed.clear()
        self._added.clear()
        frame = Frame(self.name, self.seq, now, _encode(body).decode())
        self._ring.append(frame)
        while self._ring and self._ring[0].at < now - RING_S:
            self._ring.popleft()
        return frame

    def skip(self) -> None:
        """Make no delta of what changed, and forget earlier ones: a client that resumes gets a snapshot."""
        if self._changed or self._added:
            self.seq += 1
        self._changed.clear()
        self._added.clear()
        self._ring.clear()

    def snapshot(self, epoch: str, now: float) -> Frame:
        """The whole topic as of the last flush plus what waits for the next one.

        Sending a change twice is harmless (rows replace rows); losing one is not. The pending
        entries of a list are left out, because the next delta appends them.
        """
        state: Mapping[str, Any] | list[Any] = self.rows
        if self.is_list:
            kept = max(0, len(self.entries) - len(self._added))
            state = list(self.entries)[:kept]
        body = {"t": "snap", "topic": self.name, "epoch": epoch, "seq": self.seq, "now": instant(now), "state": state}
        return Frame(self.name, self.seq, now, _encode(body).decode())

    def since(self, seq: int) -> list[Frame] | None:
        """The deltas after ``seq``, in order, or None if the ring no longer reaches back that far."""
        if seq == self.seq:
            return []
        if seq > self.seq or not self._ring or self._ring[0].seq > seq + 1:
            return None
        return [frame for frame in self._ring if frame.seq > seq]


class Topics:
    """All topics of one process, under one random ``epoch``."""

    def __init__(self, epoch: str, topics: Iterable[Topic]) -> None:
        self.epoch = epoch
        self.topics = {topic.name: topic for topic in topics}

    def flush(self, now: float) -> list[Frame]:
        """The deltas of every topic that changed."""
        return [frame for topic in self.topics.values() if (frame := topic.flush(now))]

    def skip(self) -> None:
        """Of every topic."""
        for topic in self.topics.values():
            topic.skip()

    def snapshot(self, name: str, now: float) -> Frame:
        """One topic whole. Raises :class:`KeyError` for a topic that does not exist."""
        return self.topics[name].snapshot(self.epoch, now)

    def resume(self, name: str, epoch: str, seq: int | None, now: float) -> list[Frame]:
        """What a client that holds ``seq`` of ``epoch`` needs: missed deltas, or a snapshot."""
        if epoch == self.epoch and seq is not None:
            missed = self.topics[name].since(seq)
            if missed is not None:
                return missed
        return [self.snapshot(name, now)]

    def tick(self, now: float, source: Mapping[str, Any], names: Collection[str] = ()) -> Frame:
        """Sent every second whatever happens: reveals a lost last delta of these topics (none named: of all), and a
        dead link.
        """
        body = {
            "t": "tick",
            "epoch": self.epoch,
            "now": instant(now),
            "src": source,
            "seqs": {name: self.topics[name].seq for name in names or self.topics if name in self.topics},
        }
        return Frame("", 0, now, _encode(body).decode())


class Backlog:
    """What one connection has still to be sent, bounded.

    On overflow everything queued is thrown away and each topic concerned is marked: the
    writer then takes one fresh snapshot of it, made when the reader is ready and not before.
    """

    def __init__(self, limit: int = BACKLOG) -> None:
        self.limit = limit
        self.overflows = 0
        self.behind_since: float | None = None
        self._frames: deque[Frame] = deque()
        self._stale: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._frames) + len(self._stale)

    def push(self, frame: Frame) -> None:
        """One more frame to send; never blocks, never grows past the limit."""
        if frame.topic in self._stale:
            return
        if len(self._frames) >= self.limit:
            self.overflows += 1
            if self.behind_since is None:
                self.behind_since = frame.at
            self._stale |= {f.topic: None for f in self._frames if f.topic}
            self._frames.clear()
            if frame.topic:
                self._stale[frame.topic] = None
                return
        self._frames.append(frame)

    def pop(self) -> Frame | str | None:
        """Next to send: a frame, the name of a topic that needs a snapshot, or None if all is sent."""
        if self._stale:
            name = next(iter(self._stale))
            del self._stale[name]
            return name
        if self._frames:
            return self._frames.popleft()
        self.behind_since = None
        return None


def instant(now: float) -> str:
    """Unix seconds as RFC 3339 UTC with milliseconds."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
