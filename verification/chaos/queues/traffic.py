"""Producers that put numbers, and consumers that watch and commit, at whichever gateway."""

import asyncio
import random
import struct
import time
from collections.abc import Iterator
from itertools import chain, count, repeat
from typing import Final

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from signalbox.program import tasks
from signalbox.wire.queuenames import Rank
from verification.chaos.queues.evidence import Commit, Evidence, Receipt
from verification.chaos.queues.site import QUEUES, Site

LONGEST_S: Final = 1.0
"""A consumer's work on what it takes at once."""
_PAUSE_S: Final = 0.2
"""After a refusal."""
_CALL_S: Final = 10.0
_OPEN_S: Final = 10.0
_PINGS_S: Final = 2.0
"""As the product's SDK."""
_HIGH: Final = 0.1
_RETRIES: Final = frozenset({0, 429, 503})
_MAYBE: Final = frozenset({0, 503})
_links = count(1)
now = time.monotonic


class Consumer:
    """One instance of a group: takes from one queue, commits a little later, and dials again for ever."""

    def __init__(
        self, site: Site, client: httpx.AsyncClient, found: Evidence, queue: str, group: str, uid: str, window: int
    ) -> None:
        self.uid = uid
        self.window = window
        self.is_paused = asyncio.Event()
        self.is_paused.set()
        self._site = site
        self._client = client
        self._found = found
        self._queue = queue
        self._group = group
        self._rng = random.Random(f"{queue}{group}{uid}")
        self._connection: ClientConnection | None = None
        self._headers = {
            "Authorization": site.key,
            "X-EAS-QueueService-Redis-Uid": uid,
            "X-EAS-QueueService-Redis-Gid": group,
        }
        self._todo: asyncio.Queue[int] = asyncio.Queue()
        self._pending: set[int] = set()

    async def run(self) -> None:
        """Until it is cancelled."""
        committing = asyncio.create_task(self._commit_all(), name=f"commits of {self.uid}")
        try:
            while True:
                try:
                    await self._watch()
                except (WebSocketException, InvalidHandshake, OSError, TimeoutError) as error:
                    self._found.closes[type(error).__name__] += 1
                await asyncio.sleep(_PAUSE_S * self._rng.random())
        finally:
            await tasks.end([committing])

    def abort(self) -> None:
        """End the connection without a word, as a machine that is gone."""
        if self._connection is not None:
            self._connection.transport.abort()

    async def leave(self) -> None:
        """Say ``Shutdown`` for an item that it has, if any, and come back by another connection."""
        for index in sorted(self._pending)[:1]:
            asked = {"_indexes_": str(index), "_negative_": "true"}
            await self._call("leave", asked, {"_code_": "Shutdown", "_reason_": "restarts"})
        self.abort()

    async def _watch(self) -> None:
        link, link_at = next(_links), now()
        self._pending = pending = set()
        address = self._site.any_address(self._rng)
        asked = f"_watch_=true&_index_=0&_window_={self.window}&_index_only_=false&_auto_commit_=false"
        async with connect(
            f"ws://{address}/api/predict/{self._queue}?{asked}",
            additional_headers=self._headers,
            open_timeout=_OPEN_S,
            ping_interval=_PINGS_S,
            ping_timeout=30,
            close_timeout=1,
        ) as connection:
            self._connection = connection
            async for message in connection:
                assert isinstance(message, bytes)
                index, tags = frame(message)
                pending.add(index)
                self._found.receipts.append(
                    Receipt(
                        now(),
                        self._queue,
                        self._group,
                        self.uid,
                        link,
                        link_at,
                        index,
                        int(tags["n"]),
                        "hi" if tags["rank"] == "hi" else "lo",
                        self.window,
                    )
                )
                self._todo.put_nowait(index)

    async def _commit_all(self) -> None:
        while True:
            indexes = [await self._todo.get()]
            await asyncio.sleep(self._rng.uniform(0, LONGEST_S))
            await self.is_paused.wait()
            while len(indexes) < self.window and not self._todo.empty():
                indexes.append(self._todo.get_nowait())
            self._pending.difference_update(indexes)
            asked_at = now()
            for pause_s in chain([0.0], repeat(_PAUSE_S)):
                await asyncio.sleep(pause_s)
                if await self._commit(indexes):
                    self._found.commits.append(Commit(asked_at, now(), self._queue, self._group, tuple(indexes)))
                    break

    async def _commit(self, indexes: list[int]) -> bool:
        status = await self._call("commit", {"_indexes_": ",".join(map(str, indexes))})
        if status == 409:
            self._found.conflicts.append(now())
        elif status != 200 and status not in _RETRIES:
            self._found.findings.append(f"A commit was answered with {status}.")
        return status == 200

    async def _call(self, act: str, asked: dict[str, str], form: dict[str, str] | None = None) -> int:
        url = f"http://{self._site.any_address(self._rng)}/api/predict/{self._queue}"
        try:
            answer = await self._client.put(url, params=asked, headers=self._headers, data=form, timeout=_CALL_S)
        except httpx.TransportError:
            self._found.answers[act, 0] += 1
            return 0
        self._found.answers[act, answer.status_code] += 1
        return answer.status_code


class Producer:
    """Puts numbers, each until it is accepted."""

    def __init__(self, site: Site, client: httpx.AsyncClient, found: Evidence, seed: float) -> None:
        self._site = site
        self._client = client
        self._found = found
        self._rng = random.Random(seed)

    async def put(self, number: int) -> None:
        """One number into one queue."""
        queue = QUEUES[number % len(QUEUES)]
        rank: Rank = "hi" if self._rng.random() < _HIGH else "lo"
        self._found.ranks[queue, number] = rank
        asked = {"n": str(number), "rank": rank} | ({"_priority_": "1"} if rank == "hi" else {})
        headers = {"Authorization": self._site.key, "X-EAS-QueueService-Redis-Uid": "producer"}
        while True:
            url = f"http://{self._site.any_address(self._rng)}/api/predict/{queue}"
            status, text = 0, ""
            try:
                answer = await self._client.post(
                    url, params=asked, headers=headers, content=b"x" * 200, timeout=_CALL_S
                )
                status, text = answer.status_code, answer.text
            except httpx.TransportError:
                pass
            self._found.answers["put", status] += 1
            if status == 200:
                self._found.put[queue, number] = int(text)
                return
            if status in _MAYBE:
                self._found.perhaps.add((queue, number))
            elif status not in _RETRIES:
                self._found.findings.append(f"A put was answered with {status}: {text[:200]}")
            await asyncio.sleep(_PAUSE_S)


def frame(data: bytes) -> tuple[int, dict[str, str]]:
    """Index and tags of a ``DataFrame``: ``{uint64 index = 1; map<string, string> tags = 2; bytes data = 3}``."""
    index, tags = 0, {}
    for field, value in _fields(data):
        if field == 1 and isinstance(value, int):
            index = value
        elif field == 2 and isinstance(value, bytes):
            pair = {number: part.decode() for number, part in _fields(value) if isinstance(part, bytes)}
            tags[pair.get(1, "")] = pair.get(2, "")
    return index, tags


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        head, at = _number(data, at)
        if head & 7 == 0:
            value, at = _number(data, at)
            yield head >> 3, value
        elif head & 7 == 2:
            size, at = _number(data, at)
            yield head >> 3, data[at : at + size]
            at += size
        else:
            raise struct.error(f"wire type {head & 7}")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
