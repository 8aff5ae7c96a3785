"""Measures what a service behind a queue costs a live caller of the same model: windows with and without, in turn."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.batches import live, shown
from benchmarks.front.path import BODY, PATH
from benchmarks.rig.bed import headers_of
from signalbox.ops.httppool import ConnectionPool
from signalbox.ops.up.consoleclient import ConsoleClient
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.main import bring_up
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program.errors import Unavailable

ROUNDS: Final = 4
PER_SECOND: Final = 2_500
"""Items that are put before a window, for each second of it: more than are done."""
_AT_ONCE: Final = 32
_POLL_S: Final = 0.2
_QUEUE: Final = "line"
_ITEMS: Final = f"/api/predict/{_QUEUE}"
_MODEL: Final = PATH.split("/")[3].partition(":")[0]
_SCOPES: Final = ("jobs:submit", "queues:put", "queues:get", "queues:manage")
_CONSUMER: Final = {"X-EAS-QueueService-Redis-Uid": "benchmark"}


async def measure(folder: Path, *, seconds: float) -> None:
    """Print p50, p95 and the longest of one live caller, alone and beside a service, and its items a second."""
    options = UpOptions(data=folder, front_port=0, console_port=0, nats_port=0)
    with DataDir(folder) as data:
        stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        try:
            await bring_up(stack)
            console = ConsoleClient(stack.console_url, await stack.operator_token())
            headers = headers_of(await _made(console))
            alone, beside, items = [], [], 0.0
            pool = ConnectionPool(stack.front_url, timeout_s=30.0)
            try:
                for _ in range(ROUNDS):
                    alone += await live(pool, headers, seconds)
                    await _put(pool, headers, int(PER_SECOND * seconds))
                    before, began = await _served(console, pool, headers), time.monotonic()
                    beside += await live(pool, headers, seconds)
                    left = await _left(pool, headers)
                    if not left:
                        raise Unavailable("The queue was empty before the window was over.")
                    items += (before - left) / (time.monotonic() - began) / ROUNDS
                    await _change(console, [])
                    await _emptied(pool, headers)
            finally:
                await pool.close()
                await console.close()
        finally:
            await stack.stop()
    shown("alone", alone)
    shown("beside a service", beside)
    print(f"items of the service a second, meanwhile: {items:.0f}", flush=True)


async def _made(console: ConsoleClient) -> str:
    """A queue without a service; returns a key of its account."""
    account = (await _of(console, "GET", "/api/keys"))[0]["account"]
    room = {"max_length": 1_000_000, "max_payload_size_kb": 0}
    asked = {"name": _QUEUE, "account": account, "source": room, "sink": {**room, "auto_evict": True}}
    await _of(console, "POST", "/api/queues", asked)
    while (await _of(console, "GET", f"/api/queues/{_QUEUE}"))["state"]["state"] != "ok":  # noqa: ASYNC110  a state has no event for a client
        await asyncio.sleep(_POLL_S)
    key = await _of(console, "POST", "/api/keys", {"name": _QUEUE, "account": account, "scopes": _SCOPES})
    return str(key["key"])


async def _change(console: ConsoleClient, services: list[str]) -> None:
    await _of(console, "PATCH", f"/api/queues/{_QUEUE}", {"services": services, "reason": "a benchmark"})


async def _served(console: ConsoleClient, pool: ConnectionPool, headers: Mapping[str, str]) -> int:
    """Have the model that the live caller calls take items; returns how many are left when it does."""
    before = await _left(pool, headers)
    await _change(console, [_MODEL])
    while (left := await _left(pool, headers)) == before:  # noqa: ASYNC110  a count has no event for a client
        await asyncio.sleep(_POLL_S)
    return left


async def _of(console: ConsoleClient, method: str, path: str, doc: object = None) -> Any:
    answer = await console.request(method, path, b"" if doc is None else json.dumps(doc).encode())
    if answer.status >= 300:
        raise Unavailable(f"The console answered {method} {path} with {answer.status}: {answer.body.decode()[:500]}")
    return json.loads(answer.body)


async def _put(pool: ConnectionPool, headers: Mapping[str, str], number: int) -> None:
    """Put so many items."""
    left = iter(range(number))

    async def put() -> None:
        for _ in left:
            await _ask(pool, "POST", _ITEMS, headers, BODY)

    await asyncio.gather(*(put() for _ in range(_AT_ONCE)))


async def _left(pool: ConnectionPool, headers: Mapping[str, str]) -> int:
    return int(await _ask(pool, "GET", f"{_ITEMS}?_count_=true", headers))


async def _emptied(pool: ConnectionPool, headers: Mapping[str, str]) -> None:
    await _ask(pool, "DELETE", f"{_ITEMS}?_index_={1 << 40}&_trunc_=true", headers)


async def _ask(pool: ConnectionPool, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    answer = await pool.request(method, path, body, {**headers, **_CONSUMER})
    if answer.status >= 300:
        raise Unavailable(f"{method} {path} was answered {answer.status}: {answer.body.decode()[:500]}")
    return answer.body
