"""Measures a job's path through a front: rates, latencies, processor time, syncs, memory."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.rig.bed import Bed, made
from benchmarks.rig.load import Figures, Target, prepare, run
from benchmarks.rig.processes import Cost, SyncCounter, cost, descendants, title
from signalbox.ops.up.stack import UpStack
from signalbox.ops.up.tyk import Programs

BODY: Final = json.dumps({"instances": [1.0]}).encode()
PATH: Final = "/v1/models/half_plus_two:predict"
IN_FLIGHT: Final = (1, 32, 128)
SYNC_RUNS: Final = (1, 32, 128)
SYNC_S: Final = 3.0


def sync_target(bed: Bed) -> Target:
    """A synchronous prediction of one row."""
    return prepare(bed.stack.front_url, PATH, BODY, bed.headers)


def submit_target(bed: Bed) -> Target:
    """The row of the prediction, answered 202 as soon as it is durably accepted."""
    headers = {**bed.headers, "Prefer": "respond-async"}
    return prepare(bed.stack.front_url, PATH, BODY, headers)


async def measure(folder: Path, *, seconds: float, tyk: Programs | None = None) -> dict[int, float]:
    """Print the figures of one front; returns predictions a second by number in flight."""
    async with made(folder, tyk=tyk) as bed:
        rates = {}
        print(f"\n{'front':<22}{'in flight':>10}{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}  statuses")
        for in_flight in IN_FLIGHT:
            before = costs(bed.stack)
            figures = await _apart(sync_target(bed), in_flight, seconds)
            after = costs(bed.stack)
            rates[in_flight] = figures.rate
            _print_row("predict", figures)
            _print_cpu(before, after, figures)
        _print_row("submit (202)", await _apart(submit_target(bed), 1, seconds))
        await _count_syncs(bed)
        _print_sizes(bed)
    return rates


async def _apart(target: Target, in_flight: int, seconds: float) -> Figures:
    """The load comes from a thread of its own; the loop here only keeps our connection to NATS."""
    return await asyncio.to_thread(run, target, in_flight, seconds=seconds)


def costs(stack: UpStack) -> Mapping[str, Cost]:
    """Every process of the stack; children by program and role."""
    found = {}
    for name, pid in stack.pids().items():
        found[name] = cost(pid)
        for child in descendants(pid):
            try:
                place, used = f"{name}/{_role(child)}", cost(child)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile, as Redis' that writes its file
            found[place] = used if place not in found else _both(found[place], used)
    return found


def _both(one: Cost, other: Cost) -> Cost:
    """Two processes of one role."""
    return Cost(one.pid, one.cpu_s + other.cpu_s, one.rss_bytes + other.rss_bytes, one.pss_bytes + other.pss_bytes)


def _role(pid: int) -> str:
    """``guard``, ``runner`` or the like, from the module it runs."""
    words = title(pid).replace(".", " ").replace("/", " ").split()
    for word in ("guard", "runner", "compute", "forkserver", "resource_tracker"):
        if word in words or f"{word}py" in words:
            return word
    return f"pid {pid}"


def _print_row(what: str, figures: Figures) -> None:
    statuses = " ".join(f"{status}:{count}" for status, count in sorted(figures.statuses.items()))
    print(
        f"{what:<22}{figures.in_flight:>10}{figures.rate:>9.0f}"
        f"{figures.quantile_ms(0.5):>9.2f}{figures.quantile_ms(0.99):>9.2f}  {statuses}",
        flush=True,
    )


def _print_cpu(before: Mapping[str, Cost], after: Mapping[str, Cost], figures: Figures) -> None:
    jobs = max(1, sum(figures.statuses.values()))
    parts = [f"{name} {(after[name].cpu_s - before[name].cpu_s) / jobs * 1000:.2f}" for name in after if name in before]
    parts.append(f"load {figures.cpu_s / jobs * 1000:.2f}")
    print(f"{'':<22}CPU s per 1000 jobs (warm-up included): {', '.join(parts)}", flush=True)


async def _count_syncs(bed: Bed) -> None:
    if not SyncCounter.is_possible():
        print("disk syncs per job: not counted (strace is missing: apt-get install strace)")
        return
    for in_flight in SYNC_RUNS:
        counter = SyncCounter(bed.stack.pids()["nats"])
        jobs_before = await _accepted(bed)
        with counter:
            await asyncio.to_thread(run, sync_target(bed), in_flight, seconds=SYNC_S, warm_s=0.0)
        jobs = await _accepted(bed) - jobs_before
        counts = counter.counts()
        parts = ", ".join(f"{kind} {count / jobs:.2f}" for kind, count in counts.most_common(6))
        print(
            f"disk syncs per job at {in_flight} in flight: {counts.total() / jobs:.2f} ({parts}; "
            f"{jobs} jobs, under strace, so slower than above)",
            flush=True,
        )


async def _accepted(bed: Bed) -> int:
    """Jobs ever accepted: the last sequence of the job stream."""
    answer = await bed.stack.bus.request_json("$JS.API.STREAM.INFO.JOBS")
    return int(answer["state"]["last_seq"])


def _print_sizes(bed: Bed) -> None:
    print("\nresident memory, MB (proportional share in brackets)")
    for name, found in costs(bed.stack).items():
        print(f"  {name:<24}{found.rss_bytes / 1e6:8.1f} ({found.pss_bytes / 1e6:.1f})", flush=True)
