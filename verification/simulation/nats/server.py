"""nats-server in memory: its connections, the routing of messages, and its faults.

Knobs of a running server, all off at first: :attr:`Server.stale_s`, :attr:`~Server.commit_s`,
:attr:`~Server.ttl_late_s`, :attr:`~Server.marker_late_s`, :attr:`~Server.marker_loss`, :attr:`~Server.lost_requests`,
:attr:`~Server.lost_answers`, :attr:`~Server.lost_deliveries`, :attr:`~Server.lost_hints`,
:attr:`~Server.late_requests`. Acts: :meth:`~Server.pause`, :meth:`~Server.kill`, :meth:`~Server.lose_leader`,
:meth:`~Server.roll_back`, and the clock it was given.
"""

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from signalbox.bus.topology import wanted
from signalbox.wire.assets import STREAMS, Config
from verification.simulation.nats.api import Api
from verification.simulation.nats.batches import Staged
from verification.simulation.nats.messages import BATCH_ID, MSG_ID, NANO, Refusal, encode, server_headers
from verification.simulation.nats.session import Session
from verification.simulation.nats.sources import Source
from verification.simulation.nats.stream import Stream
from verification.simulation.nats.subjects import Interest, stem

NO_RESPONDERS: Final = b"NATS/1.0 503\r\n\r\n"
MAX_PAYLOAD: Final = 2 * 1024 * 1024
_ROUNDING_S: Final = 1e-6
_STALE_CLIENT_S: Final = 30.0
"""Two pings of ten seconds without an answer, and the third."""
_AWAY: Final = 1 / 3
"""Chance that a consumer was on the node that led its stream."""


class _Proposal:
    """A write that was judged and is not yet stored: a cluster is agreeing on it."""

    __slots__ = ("answer", "staged")

    def __init__(self, staged: Sequence[Staged], answer: Callable[[int], None]) -> None:
        self.staged, self.answer = staged, answer


class Server:
    """See the module. clock: its wall clock, UTC unix seconds. rng: draws every fault."""

    def __init__(self, *, clock: Callable[[], float], rng: random.Random) -> None:
        self.clock = clock
        self.rng = rng
        self.streams: dict[str, Stream] = {}
        self.sources: dict[str, list[Source]] = {}
        self.interest: Interest[tuple[Session, int]] = Interest()
        self.sessions: dict[Session, None] = {}
        self.is_running = True
        self.is_paused = False
        self.stale_s = 0.0
        """Direct reads come from a replica that lags by up to this."""
        self.commit_s = 0.0
        """A cluster takes up to this to agree on a write; above 0 it is one, and judges what is in flight."""
        self.ttl_late_s = 0.0
        """What expires is looked for later by up to this."""
        self.marker_late_s = 0.0
        """A marker waits its turn up to this: a write in between is accepted and then rolled up."""
        self.marker_loss = 0.0
        """Share of expiries that leave no marker (nats-server #6741)."""
        self.lost_requests = 0.0
        """Share of writes and questions that are dropped without an answer."""
        self.lost_answers = 0.0
        """Share of writes and questions that are acted on without an answer."""
        self.lost_deliveries = 0.0
        """Share of deliveries that reach nobody, though the consumer counts them."""
        self.lost_hints = 0.0
        """Share of accepted jobs that are not republished, as where their stream's leader has just changed."""
        self.late_requests: tuple[float, float] = (0.0, 0.0)
        """``(share, longest)`` of writes that are acted on up to so many seconds later."""
        self.version = "2.15.1"
        self._api = Api(self)
        self._loop = asyncio.get_running_loop()
        self.context = contextvars.copy_context()
        self._life = 0
        self._backlog: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._captures: dict[str, list[Stream]] = {}
        self._leaderless: dict[str, float] = {}
        self._proposals: dict[str, deque[_Proposal]] = {}

    # ------------------------------------------------------------------------------ time and chance

    def loop_time(self) -> float:
        """Seconds of the loop: what the server's timers go by."""
        return self._loop.time()

    def now_ns(self) -> int:
        """UTC unix nanoseconds by the server's own clock."""
        return int(self.clock() * NANO)

    def later(self, delay_s: float, act: Callable[..., None], *args: Any) -> None:
        """Run ``act`` after a while, if the server lives then; while it is paused it waits."""
        at = self._loop.time() + max(delay_s, 0.0)
        self._loop.call_at(at, self._run, self._life, act, args, context=self.context)

    def enqueue(self, stream: Stream, act: Callable[..., None], *args: Any) -> None:
        """Have a stream do something of its own after what it has to do already."""
        self.later(self._draw(self.marker_late_s), act, *args)

    def draw_ttl_lateness(self) -> float:
        """How much later than it could the server looks for what has expired."""
        return self._draw(self.ttl_late_s)

    def draw_marker_loss(self) -> bool:
        """Whether an expiry leaves no marker."""
        return self.marker_loss > 0 and self.rng.random() < self.marker_loss

    def loses_hint(self, stream: str) -> bool:
        """Whether a write to a stream is not told to those who listen."""
        return stream == "JOBS" and self.lost_hints > 0 and self.rng.random() < self.lost_hints

    def loses_delivery(self) -> bool:
        """Whether a delivery reaches nobody."""
        return self.lost_deliveries > 0 and self.rng.random() < self.lost_deliveries

    def _draw(self, longest_s: float) -> float:
        return self.rng.uniform(0, longest_s) if longest_s else 0.0

    def _run(self, life: int, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        if life == self._life:
            if self.is_paused:
                self._backlog.append((act, args))
            else:
                act(*args)

    # ------------------------------------------------------------------------------ clients

    def accept(self, session: Session) -> None:
        """A client arrives."""
        if self.is_paused:
            self._backlog.append((self.accept, (session,)))
        elif not self.is_running:
            session.refuse()
        else:
            self.sessions[session] = None
            session.seen_at = self.loop_time()
            self.later(_STALE_CLIENT_S, self._check_alive, session)
            session.welcome()

    def receive(self, session: Session, act: Callable[..., None], *args: Any) -> None:
        """Something a client sent, in its order."""
        if self.is_paused:
            self._backlog.append((act, args))
        elif self.is_running:
            session.seen_at = self._loop.time()
            act(*args)

    def later_from(self, session: Session, delay_s: float, act: Callable[..., None], *args: Any) -> None:
        """Something a client's network says once more."""
        at = self.context.copy().run(self._loop.time) + delay_s
        self._loop.call_at(at, self.receive, session, act, *args, context=self.context)

    def subscribe(self, session: Session, sid: int, subject: str) -> None:
        """A client listens."""
        if session in self.sessions:
            self.interest.add((session, sid), subject)
            session.sids.add(sid)

    def unsubscribe(self, session: Session, sid: int) -> None:
        """A client listens no more; pull requests of that inbox are void."""
        self.interest.remove((session, sid))
        session.sids.discard(sid)

    def end(self, session: Session) -> None:
        """A client is gone. Idempotent."""
        if self.sessions.pop(session, session) is None:
            for sid in session.sids:
                self.interest.remove((session, sid))
            session.closed()

    def _check_alive(self, session: Session) -> None:
        if session in self.sessions:
            quiet_s = self.loop_time() - session.seen_at
            if quiet_s >= _STALE_CLIENT_S - _ROUNDING_S:
                self.end(session)
            else:
                self.later(_STALE_CLIENT_S - quiet_s, self._check_alive, session)

    # ------------------------------------------------------------------------------ messages

    def route(self, subject: str, reply: bytes, head: bytes, data: bytes = b"") -> bool:
        """Give a core message to all subscribers. Returns whether there was one."""
        received = self.interest.of(subject)
        for session, sid in received:
            session.deliver(sid, subject.encode(), reply, head, data)
        return bool(received)

    def deliver(self, to: str, subject: str, reply: bytes, head: bytes, data: bytes) -> None:
        """A consumer's delivery: it comes to an inbox under its own subject."""
        for session, sid in self.interest.of(to):
            session.deliver(sid, subject.encode(), reply, head, data)

    def publish(self, session: Session | None, subject: str, reply: bytes, head: bytes, data: bytes) -> None:
        """A message has come in, from a client or (None) from the server itself."""
        if subject.startswith("$JS."):
            if self._is_dropped(reply):
                return
            is_taken = subject.startswith("$JS.API.") and self._api.handle(subject, reply, data)
        else:
            is_taken = False
        is_taken = self.route(subject, reply, head, data) or is_taken
        stream = self.stream_of(subject)
        if stream is not None:
            is_taken = self._offer(stream, subject, reply, head, data) or is_taken
        if reply and not is_taken:
            self.route(reply.decode(), b"", NO_RESPONDERS)

    def answer(self, reply: bytes, data: bytes, head: bytes = b"") -> None:
        """Answer a write or a question, unless answers get lost."""
        if reply and not (self.lost_answers and self.rng.random() < self.lost_answers):
            self.route(reply.decode(), b"", head, data)

    def stream_of(self, subject: str) -> Stream | None:
        """The stream that captures ``subject``."""
        for stream in self._captures.get(stem(subject), ()):
            if stream.takes(subject):
                return stream
        return None

    def _is_dropped(self, reply: bytes) -> bool:
        return bool(reply) and self.lost_requests > 0 and self.rng.random() < self.lost_requests

    # ------------------------------------------------------------------------------ writes

    def _offer(self, stream: Stream, subject: str, reply: bytes, head: bytes, data: bytes) -> bool:
        """Whether the stream listens: without a leader it stops after a while."""
        if not self.has_leader(stream):
            return self.is_election_unnoticed(stream)
        if self._is_dropped(reply):
            return True
        share, longest_s = self.late_requests
        if share and self.rng.random() < share:
            self.later(self._draw(longest_s), self._write, stream, subject, reply, head, data)
        else:
            self._write(stream, subject, reply, head, data)
        return True

    def _write(self, stream: Stream, subject: str, reply: bytes, head: bytes, data: bytes) -> None:
        if self.streams.get(stream.name) is not stream or not self.has_leader(stream):
            return
        fields = server_headers(head)
        try:
            batch = fields.get(BATCH_ID)
            if batch is None:
                duplicate = stream.judge.check(subject, head, data, fields)
                if duplicate:
                    self.answer(reply, _acked(stream, duplicate, ',"duplicate": true'))
                    return
                staged: Sequence[Staged] = ((subject, head, data, fields),)
                more = ""
            else:
                whole = stream.batches.take(batch, subject, head, data, fields)
                if whole is None:
                    self.answer(reply, b"")
                    return
                staged, more = whole, f',"batch":"{batch}","count":{len(whole)}'
        except Refusal as refusal:
            self.answer(reply, encode({"error": refusal.as_json(), "stream": stream.name, "seq": 0}))
            return
        proposal = _Proposal(staged, lambda seq: self.answer(reply, _acked(stream, seq, more)))
        if self.commit_s:
            self._propose(stream, proposal)
        else:
            self._store(stream, proposal)

    def _store(self, stream: Stream, proposal: _Proposal, *, is_answered: bool = True) -> None:
        seq = 0
        for subject, head, data, fields in proposal.staged:
            seq = stream.store(subject, head, data, fields).seq
        if is_answered:
            proposal.answer(seq)

    def _propose(self, stream: Stream, proposal: _Proposal) -> None:
        for subject, _, _, fields in proposal.staged:
            stream.in_flight[subject] = stream.in_flight.get(subject, 0) + 1
            if MSG_ID in fields:
                stream.ids_in_flight.add(fields[MSG_ID])
        self._proposals.setdefault(stream.name, deque()).append(proposal)
        self.later(self._draw(self.commit_s), self._commit, stream)

    def _commit(self, stream: Stream, *, is_answered: bool = True) -> None:
        """The oldest proposal is agreed on (each brings one such moment, so none stays)."""
        proposals = self._proposals.get(stream.name)
        if not proposals or self.streams.get(stream.name) is not stream:
            return
        proposal = proposals.popleft()
        for subject, _, _, fields in proposal.staged:
            stream.in_flight[subject] -= 1
            if not stream.in_flight[subject]:
                del stream.in_flight[subject]
            stream.ids_in_flight.discard(fields.get(MSG_ID, ""))
        self._store(stream, proposal, is_answered=is_answered)

    # ------------------------------------------------------------------------------ streams

    def declare(self, configs: Iterable[Config] = STREAMS) -> None:
        """Make streams as ``topology.apply`` would, at once."""
        for config in configs:
            self.add_stream(wanted(config, 3 if self.commit_s else 1))

    def add_stream(self, config: Config) -> Stream:
        """A new stream."""
        stream = self.streams[config["name"]] = Stream(self, config)
        self.sources[stream.name] = [Source(self, stream, source) for source in config.get("sources") or []]
        self._index()
        return stream

    def _index(self) -> None:
        self._captures.clear()
        for stream in self.streams.values():
            for subject in stream.config.get("subjects") or []:
                self._captures.setdefault(stem(subject), []).append(stream)

    # ------------------------------------------------------------------------------ faults

    def has_leader(self, stream: Stream) -> bool:
        """Whether the stream and its consumers have a leader."""
        return stream.name not in self._leaderless

    def is_election_unnoticed(self, stream: Stream) -> bool:
        """Whether the others still take the lost leader for alive: what is sent to it vanishes."""
        return self.loop_time() < self._leaderless[stream.name]

    def pause(self) -> None:
        """SIGSTOP: what comes waits, timers too; the wall clock goes on."""
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT: everything that waited happens now, in its order."""
        self.is_paused = False
        while self._backlog and not self.is_paused:
            act, args = self._backlog.popleft()
            act(*args)

    def kill(self, lost: dict[str, int] | None = None) -> None:
        """SIGKILL, or a power cut. lost: by stream, how many of its last messages never reached the disk."""
        self.is_running = self.is_paused = False
        self._life += 1
        self._backlog.clear()
        for session in list(self.sessions):
            self.end(session)
        for name, count in (lost or {}).items():
            self._cut(self.streams[name], count)
        self._proposals.clear()

    def start(self) -> None:
        """Run again, with what is on the disk."""
        self._life += 1
        self.is_running = True
        self._leaderless.clear()
        for stream in self.streams.values():
            stream.in_flight.clear()
            stream.ids_in_flight.clear()
            stream.batches.forget()
            stream.consumers.clear()
            stream.rebuild(stream.msgs, stream.last_seq)
        for sources in self.sources.values():
            for source in sources:
                source.copy()

    def lose_leader(
        self, for_s: float, *, names: Sequence[str] = (), silent_s: float = 0.5, away_s: float = 0.0
    ) -> None:
        """Streams (all, if none is named) have no leader for a while.

        Writes and questions vanish for ``silent_s`` and are refused then. Of what is being agreed on a first part is
        kept, without an answer. away_s: the leader's node stays away for so long beyond that, and each consumer was
        there with one chance in three.
        """
        for name in names or list(self.streams):
            self._leaderless[name] = self.loop_time() + silent_s
            proposals = self._proposals.pop(name, deque())
            self.streams[name].in_flight.clear()
            self.streams[name].ids_in_flight.clear()
            kept = [proposals.popleft() for _ in range(self.rng.randint(0, len(proposals)))]
            self.later(for_s, self._elect, name, kept, away_s)

    def roll_back(self, name: str, count: int) -> None:
        """Restore a stream from a backup ``count`` messages old: sequences go backwards."""
        self._cut(self.streams[name], count)

    def _cut(self, stream: Stream, count: int) -> None:
        last = max(0, stream.last_seq - count)
        stream.rebuild({s: m for s, m in stream.msgs.items() if s <= last}, last)

    def _elect(self, name: str, kept: list[_Proposal], away_s: float) -> None:
        stream = self.streams.get(name)
        if self._leaderless.pop(name, None) is None or stream is None:
            return
        for proposal in kept:
            self._store(stream, proposal, is_answered=False)
        stream.rearm()
        for consumer in stream.consumers.values():
            consumer.led_anew(away_s=away_s if self.rng.random() < _AWAY else 0.0)


def _acked(stream: Stream, seq: int, more: str = "") -> bytes:
    return f'{{"stream":"{stream.name}","seq":{seq}{more}}}'.encode()
