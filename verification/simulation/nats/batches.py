"""Atomic batches: staged until their commit, then judged and stored all together or not at all.

After nats-server 2.15's ``processJetStreamAtomicBatchMsg``: a batch is refused as a whole by the first message that
does not pass, and what was staged is forgotten.
"""

from typing import TYPE_CHECKING, Final

from verification.simulation.nats.messages import (
    BATCH_COMMIT,
    BATCH_SEQUENCE,
    EXPECTED_SUBJECT,
    MSG_ID,
    Msg,
    Refusal,
)

if TYPE_CHECKING:
    from verification.simulation.nats.stream import Stream

_FORGOTTEN_AFTER_S: Final = 10.0
_INCOMPLETE: Final = Refusal(400, 10176, "atomic publish batch is incomplete")

Staged = tuple[str, bytes, bytes, dict[str, str]]


class Batches:
    """The open batches of one stream."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._open: dict[str, tuple[list[Staged], float]] = {}

    def take(self, batch: str, subject: str, head: bytes, data: bytes, fields: dict[str, str]) -> list[Staged] | None:
        """Stage one message; all of them, judged, if it was the last. Raises :class:`Refusal`."""
        stream = self._stream
        stream.judge.check_size(head, data)
        if not stream.config.get("allow_atomic"):
            raise Refusal(400, 10174, "atomic publish is disabled")
        number = int(fields[BATCH_SEQUENCE])
        staged = self._staged(batch, number)
        staged.append((subject, head, data, fields))
        if len(staged) != number:
            del self._open[batch]
            raise _INCOMPLETE
        if BATCH_COMMIT not in fields:
            return None
        del self._open[batch]
        self._judge(staged)
        return staged

    def forget(self) -> None:
        """The server has restarted."""
        self._open.clear()

    def _staged(self, batch: str, number: int) -> list[Staged]:
        now = self._stream.server.loop_time()
        for name in [n for n, (_, at) in self._open.items() if now - at > _FORGOTTEN_AFTER_S]:
            del self._open[name]
        known = self._open.get(batch)
        if known is None:
            if number != 1:
                raise _INCOMPLETE
            known = ([], now)
        self._open[batch] = (known[0], now)
        return known[0]

    def _judge(self, staged: list[Staged]) -> None:
        """As if they were stored one after the other, but nothing is."""
        stream = self._stream
        written: set[str] = set()
        judged: dict[str, str] = {}
        ids: set[str] = set()
        size = 0
        for count, (subject, head, data, fields) in enumerate(staged, 1):
            stream.judge.check_ttl(fields)
            msg_id = fields.get(MSG_ID)
            if msg_id is not None:
                if msg_id in ids:
                    raise Refusal(400, 10201, "atomic publish batch contains duplicate message id")
                stream.judge.check_batch_id(fields)
                ids.add(msg_id)
            if EXPECTED_SUBJECT in fields and subject in written:
                raise Refusal(400, 10164, "wrong last sequence")
            if judged.get(subject) != fields.get(EXPECTED_SUBJECT, ""):
                stream.judge.check_expected(subject, fields)
                judged[subject] = fields.get(EXPECTED_SUBJECT, "")
            stream.judge.check_rollup(fields)
            written.add(subject)
            size += Msg(0, 0, subject, head, data, 0, 0.0).size
            stream.judge.check_totals(count, size)
