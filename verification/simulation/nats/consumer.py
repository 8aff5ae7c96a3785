"""One pull consumer: its waiting requests, unacknowledged deliveries and redeliveries."""

import json
from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from verification.simulation.nats.consumerstate import ConsumerState, raised
from verification.simulation.nats.messages import NANO, Msg, stamp, with_headers
from verification.simulation.nats.pulls import Pull, Pulls
from verification.simulation.nats.subjects import is_literal, is_subset, matcher

if TYPE_CHECKING:
    from verification.simulation.nats.stream import Stream

_LIMITS: Final = "Unacknowledged message was deleted"
_ADVISORY: Final = "$JS.EVENT.ADVISORY.CONSUMER"


class _Pending:
    """A delivery that waits for its acknowledgement. at: time of the loop from which the wait counts."""

    __slots__ = ("at", "seq")

    def __init__(self, seq: int, at: float) -> None:
        self.seq, self.at = seq, at


class Consumer:
    """See the module. Deliveries are pending by stream sequence; an acknowledgement of any delivery ends them."""

    def __init__(self, stream: "Stream", config: dict[str, Any]) -> None:
        self.stream = stream
        self.config = config
        self.name: str = config["name"]
        self.created = stream.server.now_ns()
        self.filter: str = config.get("filter_subject", "") or ">"
        self._fits = matcher(self.filter)
        self._server = stream.server
        self.waiting = Pulls(stream.server)
        self.pending: dict[int, _Pending] = {}
        self.deliveries: dict[int, int] = {}
        self.again: deque[int] = deque()
        self.next_seq = max(1, stream.first_seq)
        if config.get("deliver_policy") == "by_start_sequence":
            self.next_seq = max(1, config.get("opt_start_seq", 1))
        elif config.get("deliver_policy") == "by_start_time":
            since = datetime.fromisoformat(config["opt_start_time"]).timestamp() * NANO
            later = (msg.seq for msg in stream.msgs.values() if msg.ts >= since)
            self.next_seq = next(later, stream.last_seq + 1)
        self.delivered = 0
        self.state = ConsumerState(self.next_seq - 1)
        self._floor, self._floor_seq = 0, self.next_seq - 1
        self._ended_seq = 0
        self._checks = 0
        self._check_at = 0.0
        self._heard_at = self._server.loop_time()
        self.configure(config)

    def configure(self, config: dict[str, Any]) -> None:
        """Take a new configuration; of what is declared only limits may change."""
        self.config = config
        self._ack_wait_s = (config.get("ack_wait") or 30 * NANO) / NANO
        self._most_pending = config.get("max_ack_pending", 1000)
        self._most_waiting = config.get("max_waiting", 512)
        self._most_deliveries = config.get("max_deliver", -1)
        self._is_removed = self.stream.config.get("retention") == "workqueue"
        self._is_acked = config.get("ack_policy", "explicit") != "none"
        self._is_head_only = bool(config.get("headers_only"))
        self._forgotten_after_s = config.get("inactive_threshold", 0) / NANO
        if self._forgotten_after_s:
            self._server.later(self._forgotten_after_s, self._forget)

    @property
    def num_pending(self) -> int:
        """Messages that fit and were never delivered."""
        stream, start = self.stream, self.next_seq
        if start > stream.last_seq:
            return 0
        if is_literal(self.filter):
            return sum(seq >= start for seq in stream.subjects.get(self.filter, ()))
        fits = self._fits
        return sum(1 for msg in stream.from_(start) if fits(msg.subject))

    def info(self) -> dict[str, Any]:
        """As ``CONSUMER.INFO`` answers it."""
        self.waiting.drop_deaf()
        state = self.state
        return {
            "stream_name": self.stream.name,
            "name": self.name,
            "created": stamp(self.created),
            "config": self.config,
            "delivered": {"consumer_seq": state.delivered, "stream_seq": state.delivered_seq},
            "ack_floor": {"consumer_seq": state.floor, "stream_seq": state.floor_seq},
            "num_ack_pending": len(self.pending),
            "num_redelivered": len(self.deliveries),
            "num_waiting": len(self.waiting),
            "num_pending": self.num_pending,
            "ts": stamp(self._server.now_ns()),
        }

    # ------------------------------------------------------------------------------ asking

    def ask(self, reply: bytes, body: bytes) -> None:
        """A pull request: JSON, a bare number, or nothing for one message."""
        self._heard_at = self._server.loop_time()
        try:
            pull = Pull(reply, body, self._heard_at)
        except ValueError as error:
            self.waiting.refuse(reply, 400, f"Bad Request - {error}")
            return
        is_now_or_never = pull.is_one_shot and not pull.ends_at
        if is_now_or_never and not self.num_pending and not self.again:
            self.waiting.refuse(reply, 404, "No Messages")
        elif not self.waiting.park(pull, self._most_waiting):
            self.waiting.refuse(reply, 409, "Exceeded MaxWaiting")
        else:
            self.serve()
            self.waiting.arm()

    def stored(self, msg: Msg) -> None:
        """The stream has a new message."""
        if self.waiting and self._fits(msg.subject):
            self.serve()

    def serve(self) -> None:
        """Deliver while a request waits and there is a message for it."""
        if not self._server.has_leader(self.stream):
            return
        while self.waiting:
            msg, attempt = self._choose()
            if msg is None:
                break
            asked = self.waiting.take(msg)
            if asked is None:
                if attempt == 1:
                    self.next_seq = msg.seq
                else:
                    self.deliveries[msg.seq] = attempt - 2
                    self.again.appendleft(msg.seq)
                break
            self._deliver(asked, msg, attempt)
        if not 0 < self._most_pending <= len(self.pending):
            self.waiting.end_one_shots()

    def _choose(self) -> tuple[Msg | None, int]:
        """What is delivered next and which attempt that is: redeliveries first."""
        while self.again:
            seq = self.again.popleft()
            attempt = self.deliveries.get(seq, 0) + 2
            self.deliveries[seq] = attempt - 1
            if 0 < self._most_deliveries < attempt:
                self._give_up(seq, attempt - 1)
                continue
            msg = self.stream.msgs.get(seq)
            if msg is None:
                self._settle(seq)
                continue
            return msg, attempt
        if 0 < self._most_pending <= len(self.pending):
            return None, 0
        msg = self.stream.next(self.filter, self.next_seq)
        self.next_seq = (msg.seq if msg is not None else self.stream.last_seq) + 1
        return msg, 1

    def _deliver(self, asked: Pull, msg: Msg, attempt: int) -> None:
        self.delivered += 1
        reply = (
            f"$JS.ACK.{self.stream.name}.{self.name}.{attempt}.{msg.seq}.{self.delivered}."
            f"{msg.ts}.{self.num_pending if self._server.counts_pending else 0}"
        )
        if self._is_acked:
            now = self._server.loop_time()
            known = self.pending.get(msg.seq)
            self.state.deliver(self.delivered, msg.seq)
            if known is None:
                self.pending[msg.seq] = _Pending(self.delivered, now)
            else:
                known.at = now
            self._arm(self._ack_wait_s)
        else:
            self.state.skip(self.delivered, msg.seq)
            self._floor, self._floor_seq = self.delivered, msg.seq
        head, data = msg.head, msg.data
        if self._is_head_only:
            head, data = with_headers(head, f"Nats-Msg-Size: {len(data)}\r\n"), b""
        self._server.deliver(asked.reply.decode(), msg.subject, reply.encode(), head, data)

    # ------------------------------------------------------------------------------ acknowledging

    def acknowledge(self, parts: list[str], reply: bytes, body: bytes) -> None:
        """An answer on a delivery's reply subject. ``parts``: its tokens from the attempt on."""
        self._heard_at = self._server.loop_time()
        attempt, seq, delivery = int(parts[0]), int(parts[1]), int(parts[2])
        is_answered = bool(reply)
        if body in {b"", b"+ACK", b"+OK"}:
            is_answered = self._end(seq, delivery) and is_answered
        elif body.startswith(b"-NAK"):
            self._nak(seq, delivery, body[4:].strip())
        elif body == b"+WPI":
            if seq in self.pending:
                self.pending[seq].at = self._server.loop_time()
        elif body.startswith(b"+TERM"):
            if seq in self.pending:
                self._tell("MSG_TERMINATED", seq, attempt, reason=body[5:].strip().decode())
            is_answered = self._end(seq, delivery) and is_answered
        if is_answered:
            self._server.route(reply.decode(), b"", b"")

    def _end(self, seq: int, delivery: int) -> bool:
        """Whether the server answers: it says nothing about what it has not come to."""
        if seq >= self.next_seq:
            return False
        was_full = 0 < self._most_pending <= len(self.pending)
        self._settle(seq, delivery)
        if self._is_removed:
            self.stream.remove(seq)
        if was_full:
            self.serve()
        return True

    def _settle(self, seq: int, delivery: int = 0) -> None:
        """Done with ``seq``, however; the floor moves up."""
        known = self.pending.pop(seq, None)
        self._ended_seq = max(self._ended_seq, seq)
        self.deliveries.pop(seq, None)
        if seq in self.again:
            self.again.remove(seq)
        if known is not None:
            self._raise_floors(known.seq, seq)
        else:
            self.state.end(delivery, seq)

    def _raise_floors(self, delivery: int, seq: int) -> None:
        self.state.end(delivery, seq)
        if not self.pending:
            self._floor, self._floor_seq = self.delivered, self.next_seq - 1
        elif delivery == self._floor + 1:
            numbers = {s: known.seq for s, known in self.pending.items()}
            self._floor, self._floor_seq = raised(delivery, seq, numbers)

    def _nak(self, seq: int, delivery: int, argument: bytes) -> None:
        known = self.pending.get(seq)
        if known is None or delivery <= self._floor or delivery > self.delivered + 1:
            return
        if argument:
            delay_s = json.loads(argument)["delay"] / NANO
            if seq in self.again:
                self.again.remove(seq)
            known.at = self._server.loop_time() - self._ack_wait_s + delay_s
            self._arm(max(delay_s, 0.01))
            return
        if seq not in self.again:
            self.again.append(seq)
        self.serve()

    def _give_up(self, seq: int, deliveries: int) -> None:
        if deliveries == self._most_deliveries:
            self._tell("MAX_DELIVERIES", seq, deliveries)
        known = self.pending.pop(seq, None)
        if known is not None:
            self._raise_floors(known.seq, seq)

    def _tell(self, what: str, seq: int, deliveries: int, **more: str) -> None:
        body: dict[str, object] = {
            "type": f"io.nats.jetstream.advisory.v1.{what.lower()}",
            "stream": self.stream.name,
            "consumer": self.name,
            "stream_seq": seq,
            "deliveries": deliveries,
            **more,
        }
        subject = f"{_ADVISORY}.{what}.{self.stream.name}.{self.name}"
        self._server.publish(None, subject, b"", b"", json.dumps(body).encode())

    # ------------------------------------------------------------------------------ time

    def _arm(self, wait_s: float) -> None:
        """Look for overdue acknowledgements in ``wait_s`` at the latest."""
        at = self._server.loop_time() + wait_s
        if self._check_at and self._check_at <= at:
            return
        self._check_at = at
        self._checks += 1
        self._server.later(wait_s, self._check, self._checks)

    def _check(self, check: int) -> None:
        if check != self._checks or self.stream.consumers.get(self.name) is not self:
            return
        self._check_at = 0.0
        if not self._server.has_leader(self.stream):
            return  # the new leader looks at all of them
        now = self._server.loop_time()
        overdue = sorted(seq for seq, known in self.pending.items() if now - known.at >= self._ack_wait_s - 1e-6)
        for seq in overdue:
            self.pending[seq].at = now
            if seq not in self.again:
                self.again.append(seq)
        if overdue:
            self.serve()
        if self.pending:
            self._arm(min(k.at for k in self.pending.values()) + self._ack_wait_s - now)

    def _forget(self) -> None:
        if self.stream.consumers.get(self.name) is not self:
            return
        self.waiting.drop_deaf()
        idle_s = self._server.loop_time() - self._heard_at
        if not self.waiting and idle_s >= self._forgotten_after_s - 1e-6:
            del self.stream.consumers[self.name]
        else:
            wait_s = self._forgotten_after_s - (0.0 if self.waiting else idle_s)
            self._server.later(max(wait_s, 0.1), self._forget)

    # ------------------------------------------------------------------------------ what happens to it

    def removed(self, msg: Msg) -> None:
        """The stream has lost a message: expired, deleted, replaced."""
        if msg.seq in self.pending:
            attempt = self.deliveries.get(msg.seq, 0) + 1
            self._settle(msg.seq)
            self._tell("MSG_TERMINATED", msg.seq, attempt, reason=_LIMITS)
        else:
            self.deliveries.pop(msg.seq, None)

    def purged(self, pattern: str, first_left: int) -> None:
        """The stream was purged of ``pattern``; ``first_left``: the first that still fits it, 0 = none.

        A consumer of just that, or less, goes on behind what is gone; one of more looks what became of each of its own.
        """
        stream = self.stream
        if is_subset(self.filter, pattern):
            start, is_wider = first_left or stream.last_seq + 1, False
        elif is_subset(pattern, self.filter):
            start, is_wider = stream.first_seq, True
        else:
            return
        self.next_seq = max(self.next_seq, start)
        if self._floor_seq < start:
            self._floor_seq = start - 1
            for seq, known in list(self.pending.items()):
                if seq < start or (is_wider and seq not in stream.msgs):
                    self._floor = max(self._floor, known.seq)
                    self.delivered = max(self.delivered, self._floor - 1)
                    del self.pending[seq]
                    self.deliveries.pop(seq, None)
                    self.state.end(known.seq, seq)
        if not self.pending:
            self.deliveries.clear()
            self._floor, self._floor_seq = self.delivered, self.next_seq - 1
        self.again = deque(seq for seq in self.again if seq >= self.next_seq)
        self.state.replace(
            (self.delivered, self.next_seq - 1),
            (self._floor, self._floor_seq),
            {seq: known.seq for seq, known in self.pending.items()},
        )

    def forget_below(self, first_seq: int) -> None:
        """The stream begins here now: what was delivered several times before that is forgotten."""
        for seq in [seq for seq in self.deliveries if seq < first_seq]:
            del self.deliveries[seq]
            if seq in self.again:
                self.again.remove(seq)

    def restarted(self, *, forgotten: int = 0) -> None:
        """Start after a change of server or leader: no request waits, the last ``forgotten`` deliveries are unknown.

        Only the last ones can be forgotten, and none that something is known of that came after it.
        """
        self.waiting.forget()
        late = [seq for seq in sorted(self.pending) if seq > self._ended_seq]
        for seq in reversed(late[len(late) - forgotten :] if forgotten else []):
            if seq in self.deliveries:
                break
            del self.pending[seq]
            self.next_seq = seq
            self.state.pending.pop(seq, None)
            self.state.delivered_seq = min(self.state.delivered_seq, seq - 1)
        self.again.clear()
        self._check_at = 0.0
        self._checks += 1
        if self.pending:
            now = self._server.loop_time()
            due_s = min(k.at for k in self.pending.values()) + self._ack_wait_s - now
            self._arm(max(due_s, 0.01))

    def deleted(self) -> None:
        """The consumer is deleted; waiting requests are answered so."""
        self.waiting.end_all(409, "Consumer Deleted")

    def rolled_back(self) -> None:
        """The stream has lost its end: nothing beyond it was ever delivered."""
        last = self.stream.last_seq
        for seq in [seq for seq in self.pending if seq not in self.stream.msgs]:
            self._settle(seq)
        self.next_seq = min(self.next_seq, last + 1)
        self.state.delivered_seq = min(self.state.delivered_seq, last)
        self.state.floor_seq = min(self.state.floor_seq, last)
        self._floor_seq = min(self._floor_seq, last)
