"""Queues in memory with the signatures of the real ones, for tests of what is before them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from msgspec.structs import replace

from gateway_plugin.admission.eventtokens import EventTokens
from gateway_plugin.admission.limits import KeyLimits
from gateway_plugin.admission.pool import bodies_pool
from gateway_plugin.api.dialect import Dialects
from gateway_plugin.api.hello import Hello
from gateway_plugin.api.queues.rest import QueuesRest
from gateway_plugin.jsonresponses import JsonResponse
from gateway_plugin.queues.items import Consumer, Item
from gateway_plugin.queues.reading import Get
from gateway_plugin.queues.store import Found
from gateway_plugin.queues.watching.openwatch import Watch
from gateway_plugin.request import Request
from gateway_plugin.upstream.callers import Callers
from gateway_plugin.upstream.http import HttpUpstream
from gateway_plugin.upstream.server import HttpServer
from signalbox.program.errors import Conflict, Forbidden, NotFound, SignalboxError, Unauthorized
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.queuenames import Side
from signalbox.wire.queues import Queue
from tests.rigs.edge import Everybody

QUEUE_SCOPES = ("queues:put", "queues:get", "queues:watch", "queues:manage")


class MemoryWatch:
    """One watch, which gives out what is there and what comes."""

    def __init__(self, queues: "MemoryQueues", side: Side, consumer: Consumer, watch: Watch) -> None:
        self.consumer = consumer
        self.watch = watch
        self.side = side
        self.failing: SignalboxError | None = None
        self.is_complete = False
        self.closed = asyncio.Event()
        self._queues = queues
        self._at = 0

    async def next(self) -> Item | None:
        while True:
            if self.failing is not None:
                raise self.failing
            given = self._queues.given.setdefault((self.side, self.consumer.group), {})
            own = sum(consumer == self.consumer for consumer in given.values())
            for item in self._queues.items[self.side]:
                has_room = self.watch.is_auto_commit or own < self.watch.window
                if item.index > self._at and item.index not in given and item.matches(self.watch.tags) and has_room:
                    self._at = item.index
                    given[item.index] = self.consumer
                    return replace(item, data=b"") if self.watch.is_index_only else item
            if self.is_complete:
                return None
            changed = self._queues.changed
            await changed.wait()

    async def close(self, *, code: str = "", reason: str = "") -> None:
        given = self._queues.given.setdefault((self.side, self.consumer.group), {})
        for index in [index for index, consumer in given.items() if consumer == self.consumer]:
            del given[index]
        self.closed.set()


class MemoryQueues:
    """One queue, ``chat``. asked: each call, in order. watches: those that were opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Semaphore(0)
        self.changed = asyncio.Event()
        self.reset()

    def reset(self) -> None:
        """Forget all that was put, asked and watched."""
        self.items: dict[Side, list[Item]] = {"source": [], "sink": []}
        self.given: dict[tuple[Side, str], dict[int, Consumer]] = {}
        self.asked: list[tuple[Any, ...]] = []
        self.watches: list[MemoryWatch] = []
        self._last = 0

    def find(self, key: ApiKey, name: str, scope: str) -> Queue:
        if name != "chat":
            raise NotFound(f'There is no queue "{name}", or it is not yours.')
        if scope not in key.scopes:
            raise Forbidden(f"This API key lacks the scope {scope}.")
        return Queue(name=name, account_id=key.account_id)

    async def put(
        self,
        key: ApiKey,
        name: str,
        side: Side,
        data: bytes,
        tags: Mapping[str, str],
        *,
        is_high: bool = False,
        request_id: str = "",
        trace: str = "",
    ) -> int:
        self.find(key, name, "queues:put")
        self._last += 1
        tags = {"requestId": request_id, **tags}
        self.items[side].append(Item(self._last, tags, data, request_id, is_high, trace=trace))
        self.wake()
        return self._last

    async def get(self, key: ApiKey, name: str, side: Side, asked: Get) -> list[Item]:
        self.find(key, name, "queues:get")
        self.asked.append(("get", side, asked))
        found = [item for item in self.items[side] if item.index >= asked.index and item.matches(asked.tags)]
        found = found[: asked.length] if asked.index >= 0 else found[-1:]
        if asked.is_deleting:
            self.items[side] = [item for item in self.items[side] if item not in found]
        return found

    async def watch(self, key: ApiKey, name: str, side: Side, consumer: Consumer, watch: Watch) -> MemoryWatch:
        self.find(key, name, "queues:watch")
        self.watches.append(MemoryWatch(self, side, consumer, watch))
        self.opened.release()
        return self.watches[-1]

    async def commit(self, key: ApiKey, name: str, side: Side, group: str, indexes: Iterable[int]) -> None:
        self.find(key, name, "queues:watch")
        self.asked.append(("commit", side, group, tuple(indexes)))
        given = self.given.setdefault((side, group), {})
        for index in indexes:
            if index not in given:
                raise Conflict("It was not given out.")
            given[index] = Consumer(group, "")
        self.wake()

    async def negative(
        self, key: ApiKey, name: str, side: Side, consumer: Consumer, indexes: Iterable[int], code: str, reason: str
    ) -> None:
        self.find(key, name, "queues:watch")
        self.asked.append(("negative", side, consumer, tuple(indexes), code, reason))

    async def delete(self, key: ApiKey, name: str, side: Side, indexes: Iterable[int], *, is_rear: bool = False) -> int:
        self.find(key, name, "queues:manage")
        self.asked.append(("delete", side, tuple(indexes), is_rear))
        return 0

    async def truncate(self, key: ApiKey, name: str, side: Side, below: int) -> int:
        self.find(key, name, "queues:manage")
        self.asked.append(("truncate", side, below))
        return 0

    async def forget(self, key: ApiKey, name: str, side: Side, group: str) -> None:
        self.find(key, name, "queues:manage")
        self.asked.append(("forget", side, group))

    async def end(self, key: ApiKey, name: str, side: Side, *, is_forced: bool = False) -> None:
        self.find(key, name, "queues:manage")
        self.asked.append(("end", side, is_forced))

    async def search(self, key: ApiKey, name: str, side: Side, group: str, index: int) -> Found:
        self.find(key, name, "queues:get")
        self.asked.append(("search", side, group, index))
        return Found(is_pending=True, wait_count=3)

    async def count(
        self, key: ApiKey, name: str, side: Side, tags: Mapping[str, str], *, is_high: bool | None = None
    ) -> int:
        self.find(key, name, "queues:get")
        self.asked.append(("count", side, dict(tags), is_high))
        return 7

    async def attributes(self, key: ApiKey, name: str, side: Side) -> Mapping[str, str]:
        self.find(key, name, "queues:get")
        return {"meta.name": name, "stream.length": str(len(self.items[side]))}

    def wake(self) -> None:
        """Have watches look again."""
        self.changed.set()
        self.changed = asyncio.Event()


class Predictor:
    """A model ``chat`` and one ``digits``, which say what they got."""

    names = frozenset({"chat", "digits"})

    async def predict(self, request: Request, key: ApiKey, name: str) -> JsonResponse:
        return JsonResponse(200, name.encode() + b" got " + request.raw_body, {"Content-Type": "text/plain"})


class Owners(Everybody):
    """Each text is the key of that name; ``reader`` may only get. ended: keys that are good no more."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: set[str] = set()

    def check(self, text: str, address: str = "") -> ApiKey:
        if text == "nobody":
            raise Unauthorized("Who?")
        scopes = ("queues:get",) if text == "reader" else QUEUE_SCOPES
        return ApiKey(id=text or "anybody", account_id=text or "anybody", hmac="", scopes=scopes)

    def require_unended(self, key: ApiKey) -> ApiKey:
        if key.id in self.ended:
            raise Unauthorized("The key has ended.")
        return key


class QueueFront:
    """A server before queues in memory."""

    def __init__(self, places: int = 2048) -> None:
        self.queues = MemoryQueues()
        self.owners = Owners()
        predictor: Any = Predictor()
        service: Any = self.queues
        dialect = QueuesRest(service, predictor, lambda name: name in predictor.names, 1024 * 1024, places)
        callers = Callers(self.owners, EventTokens(("pepper",), self.owners), charge=KeyLimits().charge)
        self.upstream = HttpUpstream(
            Dialects(Hello(), dialect, dialect),
            callers,
            bodies_pool(64 * 1024 * 1024),
            answer_s=60,
            sockets=dialect,
        )


@asynccontextmanager
async def queue_front(**given: Any) -> AsyncIterator[tuple[QueueFront, HttpServer, httpx.AsyncClient]]:
    """A front, its server, and a client with a key of everything."""
    front = QueueFront(**given)
    server = await HttpServer.start(front.upstream, listen="127.0.0.1:0")
    try:
        headers = {"Authorization": "mine"}
        async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=60, headers=headers) as client:
            yield front, server, client
    finally:
        await server.close(1)
