"""One stream: what it stores, what follows from a write, what expires and when."""

import heapq
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from verification.simulation.nats.batches import Batches
from verification.simulation.nats.judge import Judge
from verification.simulation.nats.messages import (
    BATCH_ID,
    MSG_ID,
    NANO,
    ROLLUP,
    Msg,
    server_headers,
    stamp,
    with_headers,
)
from verification.simulation.nats.subjects import is_literal, matcher, transform

if TYPE_CHECKING:
    from verification.simulation.nats.consumer import Consumer
    from verification.simulation.nats.server import Server

_LEAST_CHECK_S: Final = 0.25
"""The server looks for what has expired at most this often."""


class Stream:
    """See the module. ``config`` is as the API takes it."""

    def __init__(self, server: "Server", config: dict[str, Any]) -> None:
        self.server = server
        self.name: str = config["name"]
        self.created = server.now_ns()
        self.msgs: dict[int, Msg] = {}
        self.subjects: dict[str, list[int]] = {}
        self.first_seq, self.last_seq, self.size = 0, 0, 0
        self.consumers: dict[str, Consumer] = {}
        self.on_stored: list[Callable[[Msg], None]] = []
        self.on_removed: list[Callable[[Msg], None]] = []
        self.history: list[tuple[float, str, Msg | None]] = []
        self.judge = Judge(self)
        self.batches = Batches(self)
        self.in_flight: dict[str, int] = {}
        self.ids_in_flight: set[str] = set()
        self.ids: dict[str, tuple[int, int]] = {}
        self._expiring: list[tuple[int, int]] = []
        self._markers_due: set[int] = set()
        self._check_at = 0.0
        self._checks = 0
        self.configure(config)

    def configure(self, config: dict[str, Any]) -> None:
        """Take a new configuration; what it forbids is removed as writes come, as on the server."""
        self.config = config
        self.judge.configure(config)
        self.patterns = [matcher(pattern) for pattern in config.get("subjects") or []]
        self._max_age = config.get("max_age", 0)
        self._per_subject = config.get("max_msgs_per_subject", -1)
        self._max_msgs = config.get("max_msgs", -1)
        self._max_bytes = config.get("max_bytes", -1)
        self._is_new_refused = config.get("discard") == "new"
        self._marker_ttl_s = config.get("subject_delete_marker_ttl", 0) // NANO
        rule = config.get("republish")
        self._republished = transform(rule["src"], rule["dest"]) if rule else None
        self._is_head_only = bool(rule and rule.get("headers_only"))

    def takes(self, subject: str) -> bool:
        """Whether the stream captures ``subject``."""
        return any(fits(subject) for fits in self.patterns)

    # ------------------------------------------------------------------------------ reading

    def last(self, subject: str) -> Msg | None:
        """The last message of one subject, wildcards allowed."""
        if is_literal(subject):
            seqs = self.subjects.get(subject)
            return self.msgs[seqs[-1]] if seqs else None
        fits = matcher(subject)
        found = [seqs[-1] for name, seqs in self.subjects.items() if fits(name)]
        return self.msgs[max(found)] if found else None

    def next(self, pattern: str, seq: int) -> Msg | None:
        """The first message from ``seq`` on whose subject fits."""
        if is_literal(pattern):
            return next((self.msgs[s] for s in self.subjects.get(pattern, ()) if s >= seq), None)
        fits = matcher(pattern)
        return next((m for m in self.from_(seq) if fits(m.subject)), None)

    def from_(self, seq: int) -> Iterator[Msg]:
        """Messages from ``seq`` on, in order."""
        if seq <= self.first_seq:
            yield from list(self.msgs.values())
        elif self.last_seq - seq < len(self.msgs):
            for number in range(seq, self.last_seq + 1):
                if (found := self.msgs.get(number)) is not None:
                    yield found
        else:
            yield from [m for m in self.msgs.values() if m.seq >= seq]

    # ------------------------------------------------------------------------------ writing

    def store(self, subject: str, head: bytes, data: bytes, fields: dict[str, str] | None = None) -> Msg:
        """Store what has been judged, with all that follows from it: limits, rollup, republish, consumers."""
        server = self.server
        if fields is None:
            fields = server_headers(head)
        ts = server.now_ns()
        ttl = self.judge.ttl(fields) if fields else 0
        before = self.subjects.get(subject)
        tail = before[-1] if before else 0
        msg = Msg(self.last_seq + 1, ts, subject, head, data, ts + ttl if ttl else 0, server.loop_time())
        self._remember(subject, tail)
        self._insert(msg)
        self._enforce(subject)
        if fields:
            if MSG_ID in fields:
                self.ids[fields[MSG_ID]] = (msg.seq, ts)
            if ROLLUP in fields and self.judge.takes_rollup:
                self._roll_up(fields[ROLLUP], msg)
        if self._republished is not None and (event := self._republished(subject)) is not None:
            self._republish(event, msg, tail)
        if self._max_age or msg.expires:
            self.arm()
        for reported in self.on_stored:
            reported(msg)
        for consumer in self.consumers.values():
            consumer.stored(msg)
        return msg

    def _insert(self, msg: Msg) -> None:
        self.msgs[msg.seq] = msg
        self.last_seq = msg.seq
        if len(self.msgs) == 1:
            self.first_seq = msg.seq
        self.subjects.setdefault(msg.subject, []).append(msg.seq)
        self.size += msg.size
        if msg.expires:
            heapq.heappush(self._expiring, (msg.expires, msg.seq))

    def _enforce(self, subject: str) -> None:
        if self._per_subject > 0:
            seqs = self.subjects.get(subject, [])
            while len(seqs) > self._per_subject:
                self.remove(seqs[0])
        if not self._is_new_refused:
            while 0 < self._max_msgs < len(self.msgs) or 0 < self._max_bytes < self.size:
                self.remove(self.first_seq)

    def _roll_up(self, which: str, msg: Msg) -> None:
        self.purge(msg.subject if which == "sub" else ">", keep=1)

    def _republish(self, event: str, msg: Msg, tail: int) -> None:
        if self.server.loses_hint(self.name):
            return
        lines = (
            f"Nats-Stream: {self.name}\r\nNats-Subject: {msg.subject}\r\nNats-Sequence: {msg.seq}\r\n"
            f"Nats-Time-Stamp: {stamp(msg.ts)}\r\nNats-Last-Sequence: {tail}\r\n"
        )
        if self._is_head_only:
            lines += f"Nats-Msg-Size: {len(msg.data)}\r\n"
        data = b"" if self._is_head_only else msg.data
        self.server.route(event, b"", with_headers(msg.head, lines), data)

    # ------------------------------------------------------------------------------ removing

    def remove(self, seq: int) -> Msg | None:
        """Remove one message; None if it is not there."""
        msg = self.msgs.pop(seq, None)
        if msg is None:
            return None
        seqs = self.subjects[msg.subject]
        if seqs[-1] == seq:
            self._remember(msg.subject, seq, msg)
        seqs.remove(seq)
        if not seqs:
            del self.subjects[msg.subject]
        self.size -= msg.size
        self._markers_due.discard(seq)
        if seq == self.first_seq:
            self.first_seq = next(iter(self.msgs), self.last_seq + 1)
        for reported in self.on_removed:
            reported(msg)
        return msg

    def purge(self, pattern: str = ">", below: int = 0, keep: int = 0) -> int:
        """Remove what fits: all, or only below a sequence, or all but the last ``keep``."""
        fits = matcher(pattern)
        found = [m.seq for m in self.msgs.values() if fits(m.subject)]
        if below:
            found = [seq for seq in found if seq < below]
        elif keep:
            found = found[:-keep]
        for seq in found:
            self.remove(seq)
        if pattern == ">" and not self.msgs:
            self.first_seq = self.last_seq + 1
        left = self.next(pattern, 0)
        for consumer in self.consumers.values():
            consumer.purged(pattern, left.seq if left is not None else 0)
        return len(found)

    def arm(self) -> None:
        """See to it that what expires is looked for in time, by the clock as it is now."""
        expiring = self._expiring
        while expiring and expiring[0][1] not in self.msgs:
            heapq.heappop(expiring)
        waits = [expiring[0][0] - self.server.now_ns()] if expiring else []
        if self._max_age:
            oldest = next((m.ts for m in self.msgs.values()), None)
            if oldest is not None:
                waits.append(oldest + self._max_age - self.server.now_ns())
        if not waits:
            return
        wait_s = max(min(waits) / NANO, _LEAST_CHECK_S) + self.server.draw_ttl_lateness()
        at = self.server.loop_time() + wait_s
        if self._check_at and at >= self._check_at:
            return
        self._check_at = at
        self._checks += 1
        self.server.later(wait_s, self._expire, self._checks)

    def rearm(self) -> None:
        """The server has just started: nothing is looked for yet."""
        self._check_at = 0.0
        self._checks += 1
        self._markers_due.clear()
        self.arm()

    def _expire(self, check: int) -> None:
        if check != self._checks or self.server.streams.get(self.name) is not self:
            return
        self._check_at = 0.0
        if not self.server.has_leader(self):
            self.server.later(_LEAST_CHECK_S, self._expire, check)
            return
        now = self.server.now_ns()
        if self._max_age:
            for msg in list(self.msgs.values()):
                if msg.ts > now - self._max_age:
                    break
                self.remove(msg.seq)
        due: list[int] = []
        while self._expiring and self._expiring[0][0] <= now:
            due.append(heapq.heappop(self._expiring)[1])
        for seq in sorted(due):
            if seq in self.msgs:
                self._end(self.msgs[seq])
        self.arm()

    def _end(self, msg: Msg) -> None:
        """The lifetime of a message is over: it goes, or a marker takes its place.

        The marker is a write of its own that waits its turn: what is written in between is rolled up with the rest.
        """
        is_last = self.subjects[msg.subject][-1] == msg.seq
        is_silent = not self._marker_ttl_s or not is_last or msg.is_marker
        if is_silent or self.server.draw_marker_loss():
            self.remove(msg.seq)
        elif msg.seq not in self._markers_due:
            self._markers_due.add(msg.seq)
            self.server.enqueue(self, self._mark, msg.subject)

    def _mark(self, subject: str) -> None:
        head = (
            f"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: {_go_seconds(self._marker_ttl_s)}\r\n"
            "Nats-Rollup: sub\r\n\r\n"
        ).encode()
        self.store(subject, head, b"")

    # ------------------------------------------------------------------------------ faults

    def _remember(self, subject: str, tail: int, msg: Msg | None = None) -> None:
        """Keep what direct reads of a lagging replica may still show."""
        if self.server.stale_s:
            if msg is None:
                msg = self.msgs.get(tail)
            self.history.append((self.server.loop_time(), subject, msg))
            oldest = self.server.loop_time() - self.server.stale_s - 1
            while self.history and self.history[0][0] < oldest:
                del self.history[0]

    def rebuild(self, msgs: dict[int, Msg], last_seq: int) -> None:
        """Be what a backup or a disk that lost its end says. Duplicates are known again from what is stored."""
        self.msgs, self.subjects, self.size = {}, {}, 0
        self._expiring, self.ids, self.first_seq = [], {}, 0
        for msg in msgs.values():
            self._insert(msg)
            fields = server_headers(msg.head)
            if MSG_ID in fields and BATCH_ID not in fields:
                self.ids[fields[MSG_ID]] = (msg.seq, msg.ts)
        self.last_seq = last_seq
        if not msgs:
            self.first_seq = last_seq + 1
        for consumer in self.consumers.values():
            consumer.rolled_back()
        self.rearm()


def _go_seconds(seconds: int) -> str:
    """As Go writes a duration of whole seconds."""
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{seconds}s"
