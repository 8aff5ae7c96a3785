"""Measures what jobs store: disk and memory of a NATS node, rows and bytes of PostgreSQL, per million jobs."""

import asyncio
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import psycopg
from psycopg import sql

from benchmarks.production.stack import POLL_S, standing
from benchmarks.rig import bed
from benchmarks.rig.load import prepare, run
from benchmarks.rig.processes import cost
from signalbox.bus.client import Bus
from signalbox.wire.names import Stream
from tests.rigs.runningstack import RunningStack

MODEL: Final = "half_plus_two"
IN_FLIGHT: Final = 128
PIECE_S: Final = 3.0
CAUGHT_UP_S: Final = 300.0
MILLION: Final = 1_000_000
LOGS: Final = "jetstream/$SYS"
GIB: Final = 1024**3
DAY_S: Final = 86_400
_TABLES: Final = """
SELECT relname, pg_total_relation_size(relid) FROM pg_stat_user_tables WHERE pg_total_relation_size(relid) > 0
"""


class Held(NamedTuple):
    """What is kept at one moment. disk: by node, what streams take of it. logs: what the nodes' agreement takes, which
    is cut again and again. streams: bytes by name. tables: rows and bytes by name, indexes included.
    """

    jobs: int
    disk: Mapping[str, int]
    logs: Mapping[str, int]
    memory: Mapping[str, int]
    streams: Mapping[str, int]
    tables: Mapping[str, tuple[int, int]]


async def measure(*, up: Path | None, jobs: int, rows: int) -> None:
    """Send ``jobs`` of ``rows`` numbers each that a caller waits for, then as many submitted; print what is left."""
    async with standing(up, plugins=2, devices=1) as running:
        bus = await Bus.connect(running.admin(), role="admin", name="bench")
        try:
            key = await bed.mint_with(bus, running.secret("key_pepper"))
            await bed.first_answer(running.facts["direct_front"], key)
            for what, path, doc in (
                ("predict", f"/v1/models/{MODEL}:predict", {}),
                ("submit", "/v1/jobs", {"model": MODEL}),
            ):
                body = json.dumps({**doc, "instances": [1.0] * rows}).encode()
                headers = bed.headers_of(key)
                before = await _held(running, bus)
                target = prepare(running.facts["direct_front"], path, body, headers)
                while await _accepted(bus) - before.jobs < jobs:
                    await asyncio.to_thread(run, target, IN_FLIGHT, seconds=PIECE_S, warm_s=0.0)
                await _caught_up(running, bus)
                _print(what, len(body), before, await _held(running, bus))
        finally:
            await bus.close()


async def _accepted(bus: Bus) -> int:
    answer = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS.value}")
    return int(answer["state"]["last_seq"])


async def _caught_up(running: RunningStack, bus: Bus) -> None:
    """Return when every job has ended and the console's rows tell of it."""
    async with asyncio.timeout(CAUGHT_UP_S):
        while True:
            jobs = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS.value}")
            state = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.STATE.value}")
            behind = state["state"]["last_seq"] - await asyncio.to_thread(_cursor, running)
            if not jobs["state"]["messages"] and behind <= 0:
                return
            await asyncio.sleep(POLL_S)


def _database(running: RunningStack) -> "psycopg.Connection[tuple[int, ...]]":
    url = running.secret("database_url")
    address = running.facts["addresses"]["postgres"]
    return psycopg.connect(url.replace("@postgres:", f"@{address}:"))


def _cursor(running: RunningStack) -> int:
    with _database(running) as database:
        found = database.execute("SELECT max(seq) FROM projector_cursor").fetchone()
    return int(found[0] or 0) if found else 0


async def _held(running: RunningStack, bus: Bus) -> Held:
    nodes = running.pids("nats-")
    listed = await bus.request_json("$JS.API.STREAM.LIST")
    return Held(
        await _accepted(bus),
        {name: _disk(running, name) - _disk(running, name, LOGS) for name in nodes},
        {name: _disk(running, name, LOGS) for name in nodes},
        {name: cost(pid).rss_bytes for name, pid in nodes.items()},
        {each["config"]["name"]: each["state"]["bytes"] for each in listed["streams"]},
        await asyncio.to_thread(_tables, running),
    )


def _disk(running: RunningStack, node: str, part: str = "jetstream") -> int:
    """Bytes that a folder of a node takes of its file system."""
    taken = 0
    for path in (running.data / "volumes" / node / part).rglob("*"):
        try:
            taken += path.lstat().st_blocks * 512
        except FileNotFoundError:  # NATS removes a block meanwhile
            continue
    return taken


def _tables(running: RunningStack) -> dict[str, tuple[int, int]]:
    found = {}
    with _database(running) as database:
        for name, size in database.execute(_TABLES).fetchall():
            query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(str(name)))
            (rows,) = database.execute(query).fetchone() or (0,)
            found[str(name)] = (int(rows), int(size))
    return found


def _print(what: str, body_bytes: int, before: Held, after: Held) -> None:
    jobs = after.jobs - before.jobs
    scale = MILLION / jobs
    print(f"\n{jobs} jobs by {what}, a body of {body_bytes} bytes; for a million of them:")
    disk = max(after.disk[name] - before.disk[name] for name in before.disk)
    for name, first in before.disk.items():
        grown = (after.memory[name] - before.memory[name]) * scale
        print(
            f"  {name}: disk {(after.disk[name] - first) * scale / GIB:.2f} GiB, "
            f"memory {grown / GIB:+.2f} GiB; now {after.memory[name] / 1e6:.0f} MB of memory, and "
            f"{after.logs[name] / 1e6:.0f} MB of logs of the cluster, which do not grow with the jobs"
        )
    grown_streams = {name: size - before.streams.get(name, 0) for name, size in after.streams.items()}
    reported = ", ".join(f"{name} {grown * scale / GIB:.2f}" for name, grown in grown_streams.items() if grown > jobs)
    print(f"  of which in streams, GiB: {reported or 'nothing'}")
    for name, (rows, size) in after.tables.items():
        rows_before, size_before = before.tables.get(name, (0, 0))
        if rows - rows_before > jobs / 100 or size - size_before > jobs:
            print(
                f"  PostgreSQL {name}: {(rows - rows_before) * scale:.0f} rows, "
                f"{(size - size_before) * scale / GIB:.2f} GiB"
            )
    rate = GIB / (disk / jobs) / DAY_S if disk > 0 else math.inf
    print(f"  a GiB of a node's disk lasts a day at {rate:.1f} jobs/s; {disk / jobs:.0f} bytes a job")
