"""One pull consumer that takes no acknowledgement: its waiting requests, and how far it has delivered.

It lives in the memory of one server: it is gone, or begins anew, when that server is killed.
"""

from typing import TYPE_CHECKING, Any

from verification.simulation.nats.messages import NANO, Msg, Refusal, stamp, with_headers
from verification.simulation.nats.pulls import Pull, Pulls
from verification.simulation.nats.subjects import is_literal, is_subset, matcher

if TYPE_CHECKING:
    from verification.simulation.nats.stream import Stream


class Consumer:
    """See the module. away_until: time of the loop until which nobody learns of it: its node is cut off."""

    def __init__(self, stream: "Stream", config: dict[str, Any]) -> None:
        if config.get("ack_policy") != "none" or not config.get("mem_storage"):
            raise NotImplementedError("The model knows only consumers in memory without acknowledgements.")
        self.stream = stream
        self.config = config
        self.name: str = config["name"]
        self.created = stream.server.now_ns()
        self.filter: str = config.get("filter_subject", "") or ">"
        self.away_until = 0.0
        self._fits = matcher(self.filter)
        self._server = stream.server
        self.waiting = Pulls(stream.server)
        self._seen_at = self._server.loop_time()
        self._begin()
        self.configure(config)

    def _begin(self) -> None:
        """Stand where a new consumer of this configuration stands."""
        stream, config = self.stream, self.config
        self.next_seq = max(1, stream.first_seq)
        if config.get("deliver_policy") == "by_start_sequence":
            self.next_seq = max(1, config.get("opt_start_seq", 1))
        self.delivered, self.delivered_seq = 0, self.next_seq - 1

    def configure(self, config: dict[str, Any]) -> None:
        """Take a new configuration; of what is declared only limits and metadata may change."""
        for name in ("filter_subject", "deliver_policy", "ack_policy"):
            if config.get(name) != self.config.get(name):
                raise Refusal(500, 10012, f"{name} can not be updated")
        self.config = config
        self._is_head_only = bool(config.get("headers_only"))
        self._forgotten_after_s = config.get("inactive_threshold", 0) / NANO
        if self._forgotten_after_s:
            self._server.later(self._forgotten_after_s, self._forget)

    @property
    def is_away(self) -> bool:
        """Whether nobody answers for it."""
        return self._server.loop_time() < self.away_until

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
        place = {"consumer_seq": self.delivered, "stream_seq": self.delivered_seq}
        return {
            "stream_name": self.stream.name,
            "name": self.name,
            "created": stamp(self.created),
            "config": self.config,
            "delivered": place,
            "ack_floor": place,
            "num_ack_pending": 0,
            "num_redelivered": 0,
            "num_waiting": len(self.waiting),
            "num_pending": self.num_pending,
            "ts": stamp(self._server.now_ns()),
        }

    # ------------------------------------------------------------------------------ asking

    def ask(self, reply: bytes, body: bytes) -> None:
        """A pull request."""
        self._seen_at = self._server.loop_time()
        pull = Pull(reply, body, self._seen_at)
        is_now_or_never = pull.is_one_shot and not pull.ends_at
        if is_now_or_never and not self.num_pending:
            self.waiting.refuse(reply, 404, "No Messages")
        else:
            self.waiting.park(pull)
            self.serve()
            self.waiting.arm()

    def stored(self, msg: Msg) -> None:
        """The stream has a new message."""
        if self.waiting and self._fits(msg.subject):
            self.serve()

    def serve(self) -> None:
        """Deliver while a request waits and there is a message for it."""
        if not self._server.has_leader(self.stream) or self.is_away:
            return
        while self.waiting:
            msg = self.stream.next(self.filter, self.next_seq)
            if msg is None:
                self.next_seq = self.stream.last_seq + 1
                break
            asked = self.waiting.take()
            if asked is None:
                self.next_seq = msg.seq
                break
            self.next_seq = msg.seq + 1
            self._deliver(asked, msg)
        self.waiting.end_one_shots()

    def _deliver(self, asked: Pull, msg: Msg) -> None:
        self.delivered += 1
        self.delivered_seq = msg.seq
        if self._server.loses_delivery():
            return
        reply = f"$JS.ACK.{self.stream.name}.{self.name}.1.{msg.seq}.{self.delivered}.{msg.ts}.{self.num_pending}"
        head, data = msg.head, msg.data
        if self._is_head_only:
            head, data = with_headers(head, f"Nats-Msg-Size: {len(data)}\r\n"), b""
        self._server.deliver(asked.reply.decode(), msg.subject, reply.encode(), head, data)

    # ------------------------------------------------------------------------------ what happens to it

    def _forget(self) -> None:
        if self.stream.consumers.get(self.name) is not self:
            return
        self.waiting.drop_deaf()
        idle_s = self._server.loop_time() - self._seen_at
        if not self.waiting and idle_s >= self._forgotten_after_s - 1e-6:
            del self.stream.consumers[self.name]
        else:
            wait_s = self._forgotten_after_s - (0.0 if self.waiting else idle_s)
            self._server.later(max(wait_s, 0.1), self._forget)

    def purged(self, pattern: str, first_left: int) -> None:
        """The stream was purged of ``pattern``; ``first_left``: the first that still fits it, 0 = none.

        A consumer of just that, or less, goes on behind what is gone; one of more where the stream now begins.
        """
        stream = self.stream
        if is_subset(self.filter, pattern):
            start = first_left or stream.last_seq + 1
        elif is_subset(pattern, self.filter):
            start = stream.first_seq
        else:
            return
        self.next_seq = max(self.next_seq, start)
        self.delivered_seq = self.next_seq - 1

    def led_anew(self, *, away_s: float = 0.0) -> None:
        """The stream has a new leader. away_s: the consumer was on the node of the old one, which is away for so long.

        It comes back with its node, and its node has forgotten who waited and how far it was.
        """
        if away_s:
            self.away_until = self._server.loop_time() + away_s
            self.waiting.forget()
            self._begin()
        else:
            self.serve()

    def deleted(self) -> None:
        """The consumer is deleted; waiting requests are answered so."""
        self.waiting.end_all(409, "Consumer Deleted")

    def rolled_back(self) -> None:
        """The stream has lost its end: nothing beyond it was ever delivered."""
        last = self.stream.last_seq
        self.next_seq = min(self.next_seq, last + 1)
        self.delivered_seq = min(self.delivered_seq, last)
