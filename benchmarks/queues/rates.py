"""Measures puts a second, and items watched and committed a second, beside the reference in turn; and idle watches."""

import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from benchmarks.queues import bare, redisstreams
from benchmarks.rig.load import prepare, run
from benchmarks.rig.processes import cost
from gateway_plugin.queues.items import headers_of
from signalbox.bus import queues, table
from signalbox.bus.client import Bus
from signalbox.ops.ports import HOST, free_port
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program import keys
from signalbox.program.errors import Ambiguous
from signalbox.program.settings import Wire
from signalbox.wire import queuenames
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.names import Bucket, token
from signalbox.wire.queues import Queue

CONSUMERS: Final = {1: 1_000, 32: 4_000, 128: 4_000}
"""How many at once, and the items that all of them commit in a round."""
ROUNDS: Final = 5
WINDOW: Final = 8
GOAL: Final = 0.7
IDLE_WATCHES: Final = 1_000
IDLE_QUEUES: Final = 10
IDLE_MIB: Final = 100
BODY: Final = b"x" * 256
_OURS: Final = "bench"
_ACCOUNT: Final = "bench"
_FILLING: Final = 64
_WARM_S: Final = 0.3
_SETTLE_S: Final = 10.0
_MIB: Final = 1024 * 1024
_KNOWN_S: Final = 60.0


async def measure(folder: Path, *, seconds: float) -> None:
    """Print rates by consumers, ours and the reference's in turn, and what idle watches cost the plugin."""
    async with _stack(folder) as (stack, key, bus):
        plugin = stack.pids()["gateway"]
        async with _bare(stack) as reference:
            fronts = (_Front("ours", stack.front_url, plugin, _OURS), reference)
            for number in CONSUMERS:
                window_s = seconds / ROUNDS
                await _compare(
                    f"put, {number} at once",
                    fronts,
                    lambda front: _put(front, key, number, window_s),  # noqa: B023
                )
                await _empty(bus)
            for number in CONSUMERS:
                await _compare(
                    f"watch and commit, {number} at once",
                    fronts,
                    lambda front: _watch(front, key, number, bus),  # noqa: B023
                )
        await _idle(stack.front_url, key, plugin)
    await asyncio.to_thread(redisstreams.measure, folder / "redis", CONSUMERS, seconds)


class _Front(NamedTuple):
    """Something that is measured. pid: of its process. queue: that it has."""

    name: str
    url: str
    pid: int
    queue: str


class _Rate(NamedTuple):
    """What a window gave. cpu_ms: processor time of the front for one of them."""

    per_s: float
    cpu_ms: float


async def _put(front: _Front, key: str, producers: int, seconds: float) -> _Rate:
    target, before = prepare(front.url, _path(front.queue), BODY, {"Authorization": key}), cost(front.pid).cpu_s
    figures = await asyncio.to_thread(run, target, producers, seconds=seconds, warm_s=_WARM_S)
    if set(figures.statuses) != {200}:
        print(f"  answers of {front.name}: {dict(figures.statuses)}", flush=True)
    spent = (cost(front.pid).cpu_s - before) * seconds / (seconds + _WARM_S)
    return _Rate(figures.rate, 1000 * spent / max(1, figures.statuses.get(200, 0)))


async def _watch(front: _Front, key: str, consumers: int, bus: Bus) -> _Rate:
    items = CONSUMERS[consumers]
    await _fill(bus, front.queue, items)
    arguments = (front.url, key, str(consumers), str(items), str(WINDOW), _path(front.queue))
    argv = (sys.executable, "-m", "benchmarks.queues.consumers", *arguments)
    before = cost(front.pid).cpu_s
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    found: dict[str, Any] = json.loads(printed)
    if set(found["statuses"]) != {"200"}:
        print(f"  answers of {front.name}: {found['statuses']}", flush=True)
    return _Rate(items / found["seconds"], 1000 * (cost(front.pid).cpu_s - before) / items)


async def _compare(name: str, fronts: Sequence[_Front], window: Callable[[_Front], Awaitable[_Rate]]) -> None:
    """Windows of each in turn, the first of them changing: what else the machine does meets both."""
    found: dict[str, list[_Rate]] = {front.name: [] for front in fronts}
    for number in range(ROUNDS):
        for front in fronts if number % 2 else reversed(fronts):
            found[front.name].append(await window(front))
    ours, reference = found.values()
    rates = [statistics.median(one.per_s for one in each) for each in (ours, reference)]
    cpu = [statistics.median(one.cpu_ms for one in each) for each in (ours, reference)]
    share = statistics.median(a.per_s / b.per_s for a, b in zip(ours, reference, strict=True))
    print(
        f"{name}: {rates[0]:.0f}/s and {cpu[0]:.2f} ms of a core each, reference {rates[1]:.0f}/s and {cpu[1]:.2f} ms: "
        f"{share:.2f} of its rate (at least {GOAL})",
        flush=True,
    )


async def _idle(url: str, key: str, plugin: int) -> None:
    paths = [_path(f"idle-{number}") for number in range(IDLE_QUEUES)]
    before = cost(plugin)
    arguments = (url, key, str(IDLE_WATCHES), "0", "1", *paths)
    argv, pipe = (sys.executable, "-m", "benchmarks.queues.consumers", *arguments), asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"open\n"
    opened = cost(plugin)
    await asyncio.sleep(_SETTLE_S)
    idle = cost(plugin)
    await process.communicate(b"\n")
    grown, used = (idle.rss_bytes - before.rss_bytes) / _MIB, (idle.cpu_s - opened.cpu_s) / _SETTLE_S
    print(
        f"{IDLE_WATCHES} idle watches on {IDLE_QUEUES} queues: {grown:.0f} MiB (less than {IDLE_MIB}), "
        f"{used:.0%} of a core",
        flush=True,
    )


async def _fill(bus: Bus, queue: str, items: int) -> None:
    """Put items, so many or, where an answer is lost, a few more."""
    subject = queuenames.queue_item(queue, "source", "lo")

    async def put(number: int) -> None:
        while True:
            with contextlib.suppress(Ambiguous):
                await bus.write(subject, BODY, headers=headers_of({}, f"r{number}"))
                return

    for begin in range(0, items, _FILLING):
        await asyncio.gather(*map(put, range(begin, min(items, begin + _FILLING))))


async def _empty(bus: Bus) -> None:
    for queue in (_OURS, bare.QUEUE):
        await bus.request_json(f"$JS.API.STREAM.PURGE.{queuenames.queue_stream(queue, 'source')}")


@asynccontextmanager
async def _stack(folder: Path) -> AsyncIterator[tuple[UpStack, str, Bus]]:
    """NATS and the plugin as edge, with queues; a key for them, and a connection that may do anything to them."""
    options = UpOptions(data=folder, workers=0, front_port=0, console_port=0, nats_port=0)
    with DataDir(folder) as data:
        stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        try:
            await stack.start_nats()
            key = await _mint(stack)
            async with await queues.connect(_wire(stack), role="admin") as bus:
                for name in (_OURS, bare.QUEUE, *(f"idle-{number}" for number in range(IDLE_QUEUES))):
                    await _declare(stack, bus, name)
                await stack.start_edge()
                await _known(stack.front_url, key)
                yield stack, key, bus
        finally:
            await stack.stop()


async def _declare(stack: UpStack, bus: Bus, name: str) -> None:
    queue = Queue(name=name, account_id=_ACCOUNT, memory_mb=16_000)
    await queues.declare(bus, queue)
    await table.put(stack.bus, Bucket.QUEUES, token(name), queue)


async def _mint(stack: UpStack) -> str:
    text, key_id = keys.mint()
    doc = ApiKey(
        id=key_id,
        account_id=_ACCOUNT,
        hmac=keys.digest(stack.data.secret("pepper").read_text(), text),
        scopes=("queues:put", "queues:get", "queues:watch", "queues:manage"),
    )
    await table.put(stack.bus, Bucket.KEYS, token(key_id), doc)
    return text


def _wire(stack: UpStack) -> Wire:
    password = stack.data.secret("nats_admin-queues").read_text()
    return replace(Wire(), nats_url=stack.nats_url, queues_nats_user="admin-queues", queues_nats_password=password)


async def _known(url: str, key: str) -> None:
    """Return once the plugin knows key and queue."""
    target = prepare(url, _path(_OURS), BODY, {"Authorization": key})
    ends = time.monotonic() + _KNOWN_S
    while 200 not in (statuses := (await asyncio.to_thread(run, target, 1, seconds=0.2, warm_s=0.1)).statuses):
        if time.monotonic() > ends:
            raise RuntimeError(f"the plugin does not take a put: {dict(statuses)}")


@asynccontextmanager
async def _bare(stack: UpStack) -> AsyncIterator[_Front]:
    port = free_port()
    argv = (sys.executable, "-m", "benchmarks.queues.bare", str(port))
    process = await asyncio.create_subprocess_exec(*argv, env=stack.env("gateway"))
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection(HOST, port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                break
        yield _Front("reference", f"http://{HOST}:{port}", process.pid, bare.QUEUE)
    finally:
        process.kill()
        await process.wait()


def _path(queue: str) -> str:
    return f"/v1/queues/{queue}"
