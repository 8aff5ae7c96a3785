"""The JetStream API, as far as Signalbox asks it: ``$JS.API.…`` in, JSON or messages out."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from verification.simulation.nats.consumer import Consumer
from verification.simulation.nats.direct import Direct
from verification.simulation.nats.messages import Refusal, decode, encode, stamp
from verification.simulation.nats.stream import Stream
from verification.simulation.nats.subjects import matcher

if TYPE_CHECKING:
    from verification.simulation.nats.server import Server

_SUBJECTS_PAGE: Final = 100_000
_NO_STREAM: Final = Refusal(404, 10059, "stream not found")
_NO_CONSUMER: Final = Refusal(404, 10014, "consumer not found")
_NO_MESSAGE: Final = Refusal(404, 10037, "no message found")
_CONSUMER_EXISTS: Final = Refusal(400, 10148, "consumer already exists")
_AWAY: Final = Refusal(503, 10008, "JetStream system temporarily unavailable")

Doc = dict[str, Any]


class Api:
    """Questions to one server."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._direct = Direct(server)
        self._acts: dict[str, Callable[[list[str], Doc], Doc]] = {
            "STREAM.CREATE": self._create,
            "STREAM.INFO": self._info,
            "STREAM.PURGE": self._purge,
            "STREAM.MSG.GET": self._get,
            "STREAM.MSG.DELETE": self._remove,
            "CONSUMER.CREATE": self._consume,
            "CONSUMER.INFO": self._consumer_info,
            "CONSUMER.DELETE": self._consumer_delete,
        }

    def handle(self, subject: str, reply: bytes, data: bytes) -> bool:
        """Whether the API answers on this subject."""
        parts = subject.split(".")[2:]
        if parts[:2] == ["DIRECT", "GET"]:
            return self._direct.handle(parts[2:], reply, data)
        if parts[:3] == ["CONSUMER", "MSG", "NEXT"]:
            return self._next(parts[3:], reply, data)
        size = 3 if ".".join(parts[:3]) in self._acts else 2
        act = self._acts.get(".".join(parts[:size]))
        if act is None:
            return False
        names = parts[size:]
        stream = self._server.streams.get(names[0]) if names else None
        if stream is not None and not self._server.has_leader(stream):
            if self._server.is_election_unnoticed(stream):
                return True
            self._server.answer(reply, encode({"error": _AWAY.as_json()}))
            return True
        if stream is not None and parts[0] == "CONSUMER" and self._is_away(stream, names):
            return True
        try:
            answer = act(names, decode(data) if data else {})
        except Refusal as refusal:
            answer = {"error": refusal.as_json()}
        self._server.answer(reply, encode(answer))
        return True

    def _is_away(self, stream: Stream, names: list[str]) -> bool:
        consumer = stream.consumers.get(names[1]) if len(names) > 1 else None
        return consumer is not None and consumer.is_away

    def _next(self, names: list[str], reply: bytes, data: bytes) -> bool:
        stream = self._server.streams.get(names[0])
        consumer = stream.consumers.get(names[1]) if stream is not None else None
        if stream is None or consumer is None:
            return False
        if consumer.is_away:
            return True
        if not self._server.has_leader(stream):
            return self._server.is_election_unnoticed(stream)
        consumer.ask(reply, data)
        return True

    # ------------------------------------------------------------------------------ streams

    def _stream(self, names: list[str]) -> Stream:
        stream = self._server.streams.get(names[0])
        if stream is None:
            raise _NO_STREAM
        return stream

    def _create(self, _: list[str], doc: Doc) -> Doc:
        return self._described(self._server.add_stream(doc))

    def _info(self, names: list[str], doc: Doc) -> Doc:
        stream = self._stream(names)
        answer = self._described(stream)
        pattern = doc.get("subjects_filter")
        if pattern:
            fits, offset = matcher(pattern), doc.get("offset", 0)
            found = sorted(name for name in stream.subjects if fits(name))
            page = found[offset : offset + _SUBJECTS_PAGE]
            answer["state"]["subjects"] = {name: len(stream.subjects[name]) for name in page}
            answer |= {"total": len(found), "offset": offset, "limit": _SUBJECTS_PAGE}
        return answer

    def _described(self, stream: Stream) -> Doc:
        return {
            "config": stream.config,
            "created": stamp(stream.created),
            "state": {
                "messages": len(stream.msgs),
                "bytes": stream.size,
                "first_seq": stream.first_seq,
                "first_ts": stamp(next((msg.ts for msg in stream.msgs.values()), 0)),
                "last_seq": stream.last_seq,
                "num_subjects": len(stream.subjects),
                "consumer_count": len(stream.consumers),
            },
            "ts": stamp(self._server.now_ns()),
        }

    def _purge(self, names: list[str], doc: Doc) -> Doc:
        stream = self._stream(names)
        if stream.config.get("deny_purge"):
            raise Refusal(500, 10110, "stream purge not permitted")
        return {
            "success": True,
            "purged": stream.purge(doc.get("filter") or ">", doc.get("seq", 0), doc.get("keep", 0)),
        }

    def _get(self, names: list[str], doc: Doc) -> Doc:
        stream, last = self._stream(names), doc.get("last_by_subj")
        found = stream.last(last) if last else stream.next(doc["next_by_subj"], doc.get("seq", 0))
        if found is None:
            raise _NO_MESSAGE
        return {"message": found.as_json()}

    def _remove(self, names: list[str], doc: Doc) -> Doc:
        stream = self._stream(names)
        if stream.config.get("deny_delete"):
            raise Refusal(500, 10057, "message delete not permitted")
        seq = doc.get("seq", 0)
        if not stream.first_seq <= seq <= stream.last_seq or not seq:
            raise Refusal(500, 10057, "stream store EOF")
        if stream.remove(seq) is None:
            raise Refusal(400, 10043, f"sequence {seq} not found")
        return {"success": True}

    # ------------------------------------------------------------------------------ consumers

    def _consumer(self, names: list[str]) -> Consumer:
        consumer = self._stream(names).consumers.get(names[1])
        if consumer is None:
            raise _NO_CONSUMER
        return consumer

    def _consume(self, names: list[str], doc: Doc) -> Doc:
        """Make a consumer. One that there is takes the new configuration, unless it was to be created only."""
        stream = self._stream(names)
        config: Doc = doc["config"]
        known = stream.consumers.get(names[1])
        if known is not None:
            if doc.get("action") == "create" and known.config != config:
                raise _CONSUMER_EXISTS
            known.configure(config)
            return known.info()
        consumer = stream.consumers[names[1]] = Consumer(stream, config)
        return consumer.info()

    def _consumer_info(self, names: list[str], _: Doc) -> Doc:
        return self._consumer(names).info()

    def _consumer_delete(self, names: list[str], _: Doc) -> Doc:
        consumer = self._consumer(names)
        consumer.deleted()
        del self._stream(names).consumers[names[1]]
        return {"success": True}
