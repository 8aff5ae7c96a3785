"""Measures a thousand streams of jobs' events with an event a second each, beside streams that only send on.

An event here is a change of a job's record, as NATS republishes it: nothing is written, so that the disk does not
count. Delay: from its publishing to the reader.
"""

import asyncio
import json
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from benchmarks.rig.bed import mint
from benchmarks.rig.processes import cost
from signalbox.jobs.records import Records
from signalbox.ops.ports import HOST, free_port
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.wire import jobids, names
from signalbox.wire.messages import ErrorInfo, Record, State, header
from signalbox.wire.names import Header

STREAMS: Final = 1_000
ROUNDS: Final = 3
_TICK_S: Final = 0.01
_MIB: Final = 1024 * 1024


async def measure(folder: Path, *, seconds: float) -> None:
    """Print what streams add to the plugin's memory, and the delays of their events beside those of bare ones."""
    options = UpOptions(data=folder, workers=0, front_port=0, console_port=0, nats_port=0)
    with DataDir(folder) as data:
        stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        try:
            await stack.start_nats()
            key = await mint(stack)
            await stack.start_edge()
            records = await _written(stack, key)
            await _measure(stack, key, records, seconds)
        finally:
            await stack.stop()


async def _measure(stack: UpStack, key: str, records: Sequence[Record], seconds: float) -> None:
    plugin = stack.pids()["gateway"]
    ours = [f"/v1/jobs/{record.id}/events" for record in records]
    await _delays(stack, stack.front_url, key, ours[:1], records[:1], 2.0)  # what it needs once
    before = cost(plugin)
    p99: dict[str, list[float]] = {"events": [], "bare": []}
    async with _bare(stack) as bare:
        for _ in range(ROUNDS):
            delays_ms, most_bytes = await _delays(stack, stack.front_url, key, ours, records, seconds, plugin)
            p99["events"].append(_print("events", delays_ms))
            print(f"  the plugin grew by {(most_bytes - before.rss_bytes) / _MIB:.0f} MiB", flush=True)
            delays_ms, _ = await _delays(stack, bare, key, [f"/{record.id}" for record in records], records, seconds)
            p99["bare"].append(_print("bare", delays_ms))
    medians = {name: statistics.median(values) for name, values in p99.items()}
    print(f"p99, median of {ROUNDS}: {medians['events']:.1f} ms, bare {medians['bare']:.1f} ms", flush=True)


def _print(name: str, delays_ms: Sequence[float]) -> float:
    """Print a round's figures; returns its p99."""
    cut = statistics.quantiles(delays_ms, n=100)
    print(f"{name:<7} {len(delays_ms):>6} events, p50 {cut[49]:.1f} ms, p99 {cut[98]:.1f} ms", flush=True)
    return cut[98]


async def _written(stack: UpStack, key: str) -> list[Record]:
    """Records of running jobs of the key's account."""
    account, now = key.split("_")[2], time.time()
    made = [
        Record(
            id=jobids.new_job_id(now, uuid.uuid4().int),
            model="half_plus_two",
            version=1,
            signature="serving_default",
            account_id=account,
            state=State.RUNNING,
            attempt=1,
            created_at=now,
            deadline_at=now + 3600,
            claimed_at=now,
        )
        for _ in range(STREAMS)
    ]
    writer = Records(stack.bus)
    await asyncio.gather(*(writer.write(record, expect=0) for record in made))
    return made


async def _delays(
    stack: UpStack,
    url: str,
    key: str,
    paths: Sequence[str],
    records: Sequence[Record],
    seconds: float,
    watched: int = 0,
) -> tuple[list[float], int]:
    """Delays of events that readers got, in milliseconds, and the most bytes that a process had meanwhile."""
    argv = (sys.executable, "-m", "benchmarks.streams.readers", url, key)
    pipe = asyncio.subprocess.PIPE
    readers = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, limit=64 * _MIB)
    assert readers.stdin is not None
    assert readers.stdout is not None
    readers.stdin.write(("\n".join(paths) + "\n\n").encode())
    assert await readers.stdout.readline() == b"open\n"
    most_bytes = await _publish(stack, records, seconds, watched)
    readers.stdin.write(b"\n")
    found: list[float] = json.loads(await readers.stdout.readline())
    await readers.wait()
    return found, most_bytes


async def _publish(stack: UpStack, records: Sequence[Record], seconds: float, watched: int) -> int:
    """An event of each record every second, spread over it."""
    loop = asyncio.get_running_loop()
    began, sent, most_bytes = loop.time(), 0, 0
    while (passed_s := loop.time() - began) < seconds:
        while sent < passed_s * len(records):
            record = records[sent % len(records)]
            changed = replace(record, error=ErrorInfo(code="again", message=f"at={time.time():.6f}"))
            headers = {Header.RECORD.value: header(changed), Header.SEQUENCE.value: str(time.time_ns())}
            await stack.bus.publish(names.event_of_state(record.id), headers=headers)
            sent += 1
        await asyncio.sleep(_TICK_S)
        if watched and sent % 10 == 0:
            most_bytes = max(most_bytes, cost(watched).rss_bytes)
    return most_bytes


@asynccontextmanager
async def _bare(stack: UpStack) -> AsyncIterator[str]:
    port = free_port()
    env: Mapping[str, str] = stack.env("gateway")
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "benchmarks.streams.bare", str(port), env=env)
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection(HOST, port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                break
        yield f"http://{HOST}:{port}"
    finally:
        process.kill()
        await process.wait()
