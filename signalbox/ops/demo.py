"""``signalbox demo``: a stream of real handwritten digits through the front, so that the board moves."""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import statistics
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any, Final, NamedTuple

from signalbox.client import AsyncClient
from signalbox.program.errors import Misconfigured, SignalboxError
from signalbox.program.tasks import TaskGroup

DEFAULT_RATE: Final = 20.0
DEFAULT_IN_FLIGHT: Final = 32
REPORT_S: Final = 1.0
SLOW_EVERY_S: Final = 10.0
RECENT: Final = 1000
HOLDOUT: Final = Path("models") / "digits-holdout.json"


class Digit(NamedTuple):
    """One handwritten digit the model was not trained on. image: ``[8, 8]`` of 0..16."""

    image: list[list[int]]
    label: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options on an argument parser."""
    parser.add_argument("--data", type=Path, default=Path(".signalbox"), help="of `make up`")
    parser.add_argument("--rate", type=float, default=DEFAULT_RATE, help="digits a second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.0, help="0 = until Ctrl-C (%(default)s)")
    parser.add_argument("--in-flight", type=int, default=DEFAULT_IN_FLIGHT, help="at most (%(default)s)")
    parser.add_argument(
        "--slow",
        type=float,
        default=0.0,
        metavar="S",
        help=f"every {SLOW_EVERY_S:g} s also a job that computes for S seconds",
    )


def run(arguments: argparse.Namespace) -> int:
    """Stream until the time is up or Ctrl-C; prints a line a second. Returns the exit status."""
    return asyncio.run(_stream(arguments))


def digits(data: Path) -> list[Digit]:
    """The held-out digits that ``make up`` left beside the models. Raises :class:`Misconfigured`."""
    try:
        doc = json.loads((data / HOLDOUT).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise Misconfigured(f"No {data / HOLDOUT}: start `make up` with its demonstration.") from error
    return [Digit(image, label) for image, label in zip(doc["images"], doc["labels"], strict=True)]


def running(data: Path) -> dict[str, Any]:
    """What ``make up`` wrote into ``up.json``. Raises :class:`Misconfigured` when nothing runs."""
    path = data / "up.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise Misconfigured(f"No {path}: start `make up` first, or name its folder with --data.") from error
    return found


class _Tally:
    """Counts of the stream's answers."""

    def __init__(self) -> None:
        self.right = 0
        self.answered = 0
        self.in_flight = 0
        self.refused: Counter[str] = Counter()
        self.recent_s: deque[float] = deque(maxlen=RECENT)

    def line(self) -> str:
        """One line for a person."""
        share = self.right / self.answered if self.answered else 0.0
        cuts = statistics.quantiles(self.recent_s, n=20) if len(self.recent_s) > 1 else [0.0] * 19
        text = (
            f"{self.answered:7d} answered  {share:6.1%} right  "
            f"p50 {cuts[9] * 1000:6.1f} ms  p95 {cuts[18] * 1000:6.1f} ms  {self.in_flight:3d} in flight"
        )
        refused = "  ".join(f"{code} {count}" for code, count in self.refused.items())
        return f"{text}  {refused}".rstrip()


async def _stream(arguments: argparse.Namespace) -> int:
    up, pool = running(arguments.data), digits(arguments.data)
    if not up.get("api_key"):
        raise Misconfigured("The running stack has no demonstration key (--no-demo).")
    stop, loop, tally = asyncio.Event(), asyncio.get_running_loop(), _Tally()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if arguments.seconds:
        loop.call_later(arguments.seconds, stop.set)
    print(f"digits to {up['front']} at {arguments.rate:g}/s; Ctrl-C ends it", flush=True)
    limit = asyncio.Semaphore(arguments.in_flight)
    async with (
        AsyncClient(up["front"], up["api_key"], connections=arguments.in_flight + 1, retries=0) as client,
        TaskGroup() as group,
    ):
        group.create_task(_report(tally, stop))
        if arguments.slow:
            group.create_task(_send_slow(client, arguments.slow, tally, stop))
        due = loop.time()
        while not stop.is_set():
            due = max(due + 1 / arguments.rate, loop.time() - 1)
            if await _until(stop, due - loop.time()):
                break
            await limit.acquire()
            group.create_task(_send(client, random.choice(pool), tally, limit))  # noqa: S311
    print(tally.line(), flush=True)
    return 0 if tally.answered else 1


async def _send(client: AsyncClient, digit: Digit, tally: _Tally, limit: asyncio.Semaphore) -> None:
    began = time.perf_counter()
    tally.in_flight += 1
    try:
        reply = await client.predict("digits", instances=[digit.image])
    except SignalboxError as error:
        tally.refused[error.code] += 1
    else:
        tally.recent_s.append(time.perf_counter() - began)
        tally.answered += 1
        tally.right += reply["predictions"][0]["label"] == digit.label
    finally:
        tally.in_flight -= 1
        limit.release()


async def _send_slow(client: AsyncClient, seconds: float, tally: _Tally, stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            await client.submit("slow", instances=[seconds])
        except SignalboxError as error:
            tally.refused[error.code] += 1
        await _until(stop, SLOW_EVERY_S)


async def _report(tally: _Tally, stop: asyncio.Event) -> None:
    while not await _until(stop, REPORT_S):
        print(tally.line(), flush=True)


async def _until(stop: asyncio.Event, seconds: float) -> bool:
    """Wait at most ``seconds``; whether ``stop`` came."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await stop.wait()
    return stop.is_set()
