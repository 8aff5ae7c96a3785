"""Direct gets: any replica answers, and one may lag behind."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from verification.simulation.nats.messages import Msg, decode, stamp, status_block, with_headers
from verification.simulation.nats.subjects import is_literal, matcher

if TYPE_CHECKING:
    from verification.simulation.nats.server import Server
    from verification.simulation.nats.stream import Stream

_MOST_SUBJECTS: Final = 1024
_NOT_FOUND: Final = b"NATS/1.0 404 Message Not Found\r\n\r\n"
_NO_RESULTS: Final = b"NATS/1.0 404 No Results\r\n\r\n"


class Direct:
    """``$JS.API.DIRECT.GET.…`` of one server."""

    def __init__(self, server: "Server") -> None:
        self._server = server

    def handle(self, names: list[str], reply: bytes, data: bytes) -> bool:
        """Whether the stream answers direct gets at all."""
        stream = self._server.streams.get(names[0])
        if stream is None or not stream.config.get("allow_direct"):
            return False
        view = _View(stream, self._moment())
        if len(names) > 1:
            found = view.last(".".join(names[1:]))
            head = _NOT_FOUND if found is None else _described(stream, found)
            self._server.answer(reply, found.data if found is not None else b"", head)
        else:
            doc = decode(data)
            if doc.get("multi_last"):
                self._many(view, doc, reply)
            else:
                self._following(view, doc, reply)
        return True

    def _moment(self) -> float:
        """The moment of which the replica that answers knows, infinite = now."""
        lag_s = self._server.stale_s
        if not lag_s:
            return float("inf")
        return self._server.loop_time() - self._server.rng.uniform(0, lag_s)

    def _many(self, view: "_View", doc: dict[str, Any], reply: bytes) -> None:
        found = view.latest(doc["multi_last"])
        if len(found) > _MOST_SUBJECTS:
            self._server.answer(reply, b"", status_block(413, "Too Many Results"))
        elif not found:
            self._server.answer(reply, b"", _NO_RESULTS)
        else:
            self._send(view.stream, found, doc, reply, view.stream.last_seq)

    def _following(self, view: "_View", doc: dict[str, Any], reply: bytes) -> None:
        found = view.following(doc["next_by_subj"], doc["seq"], doc["batch"])
        if found:
            self._send(view.stream, found, doc, reply)
        else:
            self._server.answer(reply, b"", _NOT_FOUND)

    def _send(self, stream: "Stream", found: list[Msg], doc: dict[str, Any], reply: bytes, upto: int = 0) -> None:
        """Messages, then the status that ends them."""
        batch = doc.get("batch") or len(found)
        last = 0
        for number, msg in enumerate(found[:batch], 1):
            more = f"Nats-Num-Pending: {len(found) - number}\r\nNats-Last-Sequence: {last}\r\n"
            self._server.route(reply.decode(), b"", _described(stream, msg, more), msg.data)
            last = msg.seq
        fields: dict[str, object] = {"Nats_Num_Pending": max(0, len(found) - batch)}
        fields["Nats_Last_Sequence"] = last
        if upto:
            fields["Nats_UpTo_Sequence"] = upto
        self._server.answer(reply, b"", status_block(204, "EOB", **fields))


class _View:
    """A stream as a replica knows it that has learned of everything until ``moment``, and of nothing after."""

    def __init__(self, stream: "Stream", moment: float) -> None:
        self.stream = stream
        self._moment = moment
        self._before: dict[str, Msg | None] = {}
        for at, subject, before in reversed(stream.history):
            if at <= moment:
                break
            self._before[subject] = before

    def last(self, subject: str) -> Msg | None:
        """The last message of one subject."""
        if subject in self._before:
            return self._before[subject]
        return self.stream.last(subject)

    def latest(self, patterns: list[str]) -> list[Msg]:
        """The last message of every subject that fits, in stream order."""
        names: dict[str, None] = {}
        for pattern in patterns:
            if is_literal(pattern):
                names[pattern] = None
            else:
                fits: Callable[[str], bool] = matcher(pattern)
                known = (*self.stream.subjects, *self._before)
                names.update(dict.fromkeys(name for name in known if fits(name)))
        found = [msg for name in names if (msg := self.last(name)) is not None]
        return sorted(found, key=lambda msg: msg.seq)

    def following(self, pattern: str, seq: int, limit: int) -> list[Msg]:
        """Messages that fit, from a sequence on."""
        fits = matcher(pattern)
        found: list[Msg] = []
        for msg in self.stream.from_(seq):
            if fits(msg.subject) and msg.at <= self._moment:
                found.append(msg)
                if len(found) > limit:
                    break
        return found[:limit]


def _described(stream: "Stream", msg: Msg, more: str = "") -> bytes:
    return with_headers(
        msg.head,
        f"Nats-Stream: {stream.name}\r\nNats-Subject: {msg.subject}\r\nNats-Sequence: {msg.seq}\r\n"
        f"Nats-Time-Stamp: {stamp(msg.ts)}\r\n{more}",
    )
