"""A closed-loop HTTP load generator that costs little, so that it measures the server and not itself.

Raw protocols on uvloop: each connection sends prepared bytes again as soon as its answer is
whole. Answers are recognised by Content-Length (or the last chunk), never parsed further.
"""

import asyncio
import itertools
import resource
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import uvloop

CONNECT_S: Final = 10.0
DRAIN_S: Final = 60.0


class Target(NamedTuple):
    """One prepared request, or some to the same server that are sent in turn. data, others: all bytes of each."""

    host: str
    port: int
    data: bytes
    others: tuple[bytes, ...] = ()


class Figures(NamedTuple):
    """What one run gave. latencies_s: sorted. cpu_s: processor time the generator itself used."""

    in_flight: int
    seconds: float
    statuses: Mapping[int, int]
    latencies_s: tuple[float, ...]
    cpu_s: float

    @property
    def rate(self) -> float:
        """Good answers (2xx) a second."""
        good = sum(count for status, count in self.statuses.items() if 200 <= status < 300)
        return good / self.seconds

    def quantile_ms(self, share: float) -> float:
        """The latency in milliseconds that ``share`` of the answers did not exceed."""
        if not self.latencies_s:
            return float("nan")
        index = min(len(self.latencies_s) - 1, int(share * len(self.latencies_s)))
        return self.latencies_s[index] * 1000


def prepare(url: str, path: str, body: bytes, headers: Mapping[str, str]) -> Target:
    """A POST of ``body`` to ``path``."""
    parts = urlsplit(url)
    lines = [f"POST {path} HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join(lines) + "\r\n\r\n"
    return Target(parts.hostname or "127.0.0.1", parts.port or 80, head.encode() + body)


def in_turn(targets: Sequence[Target]) -> Target:
    """All of them, which are of one server, one after the other."""
    return targets[0]._replace(others=tuple(target.data for target in targets[1:]))


def run(target: Target, in_flight: int, *, seconds: float, warm_s: float = 1.0) -> Figures:
    """Keep ``in_flight`` requests going for ``seconds``, after ``warm_s`` that are not counted."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(target, in_flight, seconds, warm_s))


class _Tally:
    """What the connections of one run share. requests: those to send, for ever."""

    def __init__(self, target: Target) -> None:
        self.requests = itertools.cycle((target.data, *target.others))
        self.is_counting = False
        self.is_over = False
        self.statuses: Counter[int] = Counter()
        self.latencies_s: list[float] = []


class _Caller(asyncio.Protocol):
    """One connection: sends, waits for the whole answer, sends the next."""

    def __init__(self, tally: _Tally, done: asyncio.Future[None]) -> None:
        self._tally = tally
        self._done = done
        self._buffer = b""
        self._needed = 0
        self._sent_at = 0.0
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's own class
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if not self._needed:
            self._needed = _length(self._buffer)
        is_whole = self._buffer.endswith(b"0\r\n\r\n") if self._needed < 0 else 0 < self._needed <= len(self._buffer)
        if is_whole:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            if not self._tally.is_over:
                self._tally.statuses[0] += 1  # 0 = the connection broke
            self._done.set_result(None)

    def _finish(self) -> None:
        tally = self._tally
        if tally.is_counting:
            tally.latencies_s.append(time.perf_counter() - self._sent_at)
            tally.statuses[int(self._buffer[9:12])] += 1
        if tally.is_over:
            assert self._transport is not None
            self._transport.close()
            return
        self._send()

    def _send(self) -> None:
        assert self._transport is not None
        self._buffer, self._needed = b"", 0
        self._sent_at = time.perf_counter()
        self._transport.write(next(self._tally.requests))


def _length(buffer: bytes) -> int:
    """Bytes of the whole answer; 0 while its head is not whole, -1 when it comes in chunks."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return 0
    head = buffer[:end].lower()
    mark = head.find(b"\r\ncontent-length:")
    if mark < 0:
        return -1
    return end + 4 + int(head[mark + 17 :].split(b"\r\n", 1)[0])


async def _run(target: Target, in_flight: int, seconds: float, warm_s: float) -> Figures:
    loop = asyncio.get_running_loop()
    tally = _Tally(target)
    ends = [loop.create_future() for _ in range(in_flight)]
    async with asyncio.timeout(CONNECT_S):
        for end in ends:
            await loop.create_connection(
                lambda end=end: _Caller(tally, end),  # type: ignore[misc]
                target.host,
                target.port,
            )
    await asyncio.sleep(warm_s)
    cpu, began = _cpu_s(), time.perf_counter()
    tally.is_counting = True
    await asyncio.sleep(seconds)
    tally.is_counting = False
    elapsed, used = time.perf_counter() - began, _cpu_s() - cpu
    tally.is_over = True
    async with asyncio.timeout(DRAIN_S):
        await asyncio.gather(*ends)
    latencies = tuple(sorted(tally.latencies_s))
    return Figures(in_flight, elapsed, dict(tally.statuses), latencies, used)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
