"""Which writes a stream takes. Order and wording are those of nats-server 2.15's ``processJetStreamMsg``."""

from typing import TYPE_CHECKING, Any, Final

from verification.simulation.nats.messages import (
    EXPECTED_SUBJECT,
    MSG_ID,
    ROLLUP,
    TTL,
    Msg,
    Refusal,
    ttl_ns,
)

if TYPE_CHECKING:
    from verification.simulation.nats.stream import Stream

_IN_PROCESS: Final = Refusal(400, 10164, "wrong last sequence")
_ID_IN_PROCESS: Final = Refusal(409, 10158, "duplicate message id is in process")


def wrong_last(seq: int) -> Refusal:
    """A compare-and-set that lost against ``seq``."""
    return Refusal(400, 10071, f"wrong last sequence: {seq}")


class Judge:
    """Judges writes for one stream; changes nothing."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._server = stream.server

    def configure(self, config: dict[str, Any]) -> None:
        """Take the stream's limits."""
        self._per_subject = config.get("max_msgs_per_subject", -1)
        self._max_msgs = config.get("max_msgs", -1)
        self._max_bytes = config.get("max_bytes", -1)
        self._max_size = config.get("max_msg_size", -1)
        self._is_new_refused = config.get("discard") == "new"
        self._takes_ttl = bool(config.get("allow_msg_ttl"))
        self.takes_rollup = bool(config.get("allow_rollup_hdrs")) and not config.get("deny_purge")
        self._window = config.get("duplicate_window", 0)

    def check(self, subject: str, head: bytes, data: bytes, fields: dict[str, str]) -> int:
        """Judge a write as the server does; the sequence of its duplicate, or 0. Raises :class:`Refusal`."""
        if self._server.commit_s:
            return self._check_clustered(subject, head, data, fields)
        self.check_size(head, data)
        if fields:
            if TTL in fields and not self._takes_ttl:
                raise Refusal(400, 10166, "per-message TTL is disabled")
            self.check_expected(subject, fields)
            if MSG_ID in fields:
                known = self._stream.ids.get(fields[MSG_ID])
                if known is not None and self._server.now_ns() - known[1] < self._window:
                    return known[0]
            self.check_rollup(fields)
        self.ttl(fields)
        self._check_room(subject, head, data)
        return 0

    def _check_clustered(self, subject: str, head: bytes, data: bytes, fields: dict[str, str]) -> int:
        """A cluster judges before it agrees, in another order: there a duplicate is one before it is stale."""
        self.check_size(head, data)
        if fields:
            self.check_ttl(fields)
            msg_id = fields.get(MSG_ID)
            if msg_id in self._stream.ids_in_flight:
                raise _ID_IN_PROCESS
            known = self._stream.ids.get(msg_id or "")
            if known is not None and self._server.now_ns() - known[1] < self._window:
                return known[0]
            self.check_expected(subject, fields)
            self.check_rollup(fields)
        self.check_totals(1, Msg(0, 0, subject, head, data, 0, 0.0).size)
        return 0

    def check_expected(self, subject: str, fields: dict[str, str]) -> None:
        """The compare-and-set of a write."""
        expected = fields.get(EXPECTED_SUBJECT)
        if expected is not None:
            if subject in self._stream.in_flight:
                raise _IN_PROCESS
            found = self._stream.last(subject)
            last = found.seq if found is not None else 0
            if last != int(expected):
                raise wrong_last(last)

    def check_rollup(self, fields: dict[str, str]) -> None:
        """Whether a rollup is allowed here."""
        rollup = fields.get(ROLLUP)
        if rollup is not None and not self.takes_rollup:
            raise Refusal(500, 10111, "rollup not permitted")
        if rollup not in {None, "sub", "all"}:
            raise Refusal(500, 10111, f'rollup value invalid: "{rollup}"')

    def check_size(self, head: bytes, data: bytes) -> None:
        """Whether the message is not too large for the stream."""
        if 0 <= self._max_size < len(head) + len(data):
            raise Refusal(400, 10054, "message size exceeds maximum allowed")

    def check_ttl(self, fields: dict[str, str]) -> None:
        """Whether the lifetime asked for is one the stream takes; batches are judged so, before anything else."""
        if TTL in fields:
            if not self._takes_ttl:
                raise Refusal(400, 10166, "per-message TTL is disabled")
            self.ttl(fields)

    def check_batch_id(self, fields: dict[str, str]) -> None:
        """A duplicate refuses a whole batch."""
        if fields.get(MSG_ID) in self._stream.ids_in_flight:
            raise _ID_IN_PROCESS
        known = self._stream.ids.get(fields.get(MSG_ID, ""))
        if known is not None and self._server.now_ns() - known[1] < self._window:
            raise Refusal(400, 10201, "atomic publish batch contains duplicate message id")

    def check_totals(self, count: int, size: int) -> None:
        """Whether a batch of so many messages and bytes fits beside what is stored."""
        if self._is_new_refused:
            count += sum(self._stream.in_flight.values())
            if 0 < self._max_msgs < len(self._stream.msgs) + count:
                raise Refusal(503, 10077, "maximum messages exceeded")
            if 0 < self._max_bytes < self._stream.size + size:
                raise Refusal(503, 10077, "maximum bytes exceeded")

    def _check_room(self, subject: str, head: bytes, data: bytes) -> None:
        if not self._is_new_refused:
            return
        seqs = self._stream.subjects.get(subject, [])
        replaces = 0 < self._per_subject <= len(seqs)
        if 0 < self._max_msgs <= len(self._stream.msgs) and not replaces:
            raise Refusal(503, 10077, "maximum messages exceeded")
        if self._max_bytes > 0:
            size = Msg(0, 0, subject, head, data, 0, 0.0).size
            fits = replaces and self._stream.msgs[seqs[0]].size >= size
            if self._stream.size + size > self._max_bytes and not fits:
                raise Refusal(503, 10077, "maximum bytes exceeded")

    def ttl(self, fields: dict[str, str]) -> int:
        """Nanoseconds that a message is to live: 0 = not said."""
        text = fields.get(TTL)
        if text is None:
            return 0
        try:
            return ttl_ns(text)
        except ValueError:
            raise Refusal(400, 10165, "invalid per-message TTL") from None
