"""``python -m benchmarks``: the figures of issue-sized promises, measured on this machine."""

import argparse
import asyncio
import runpy
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final

from benchmarks import batches, board, console, fairness, images, services
from benchmarks.cold import first
from benchmarks.day import turns
from benchmarks.front import bare, path, ways
from benchmarks.production import cost, sizes
from benchmarks.queue import depth, devices, models
from benchmarks.queues import rates
from benchmarks.scale import burst
from benchmarks.shortest import ratio
from benchmarks.streams import events
from benchmarks.zipf import main as zipf
from signalbox.ops.up.tyk import find
from signalbox.program.errors import SignalboxError

PARTS: Final = (
    "edge",
    "tyk",
    "handover",
    "fairness",
    "console",
    "shortest",
    "images",
    "cold",
    "events",
    "board",
    "batches",
    "queues",
    "services",
    "scale",
)
ON_REQUEST: Final = ("queue",)
QUEUE: Final = ("models", "depth", "devices")
"""Parts of ``queue``, which takes twenty minutes."""
ON_PRODUCTION: Final = ("production", "sizes")
"""Parts of a production stack. They need what `make production` needs, so they run only when named."""


def main() -> int:
    """Run the parts asked for. Returns the exit status."""
    if sys.argv[1:2] == ["day"]:  # an hour, so no part of all
        return turns.main(sys.argv[2:])
    if sys.argv[1:2] == ["zipf"]:
        return zipf.main(sys.argv[2:])
    options = _options()
    wanted = options.parts or PARTS
    try:
        for part in (*PARTS, *ON_REQUEST, *ON_PRODUCTION):
            if part in wanted:
                print(f"\n== {part}", flush=True)
                _PARTS[part](options)
    except SignalboxError as error:
        print(f"benchmarks: {error.public_message}", file=sys.stderr)
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        help=f"of {', '.join(PARTS)} (all of these), {', '.join((*ON_REQUEST, *ON_PRODUCTION))}; or day or zipf, alone",
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="per figure (%(default)s)")
    group = parser.add_argument_group("on a production stack", "started for the time, or --up")
    group.add_argument("--up", type=Path, metavar="FILE", help="the up.json of one that runs")
    group.add_argument("--plugins", type=int, choices=(1, 2), default=2, help="(%(default)s)")
    group.add_argument("--devices", type=int, choices=(1, 2, 4), default=1, help="(%(default)s)")
    group.add_argument("--alone", action="store_true", help="production: not the embedded stack")
    group.add_argument("--jobs", type=int, default=20_000, help="sizes: to count (%(default)s)")
    group.add_argument("--rows", type=int, default=1, help="sizes: rows of a job (%(default)s)")
    group = parser.add_argument_group("queue")
    group.add_argument("--of", nargs="+", choices=QUEUE, default=QUEUE, help="of its parts (all)")
    group.add_argument("--registered", type=int, default=10_000, help="models: so many (%(default)s)")
    group.add_argument("--busy", type=int, default=50, help="models: of them called (%(default)s)")
    group.add_argument(
        "--turns",
        type=int,
        default=4,
        help="models: of each of the two stacks; depth: with a worker started anew (%(default)s)",
    )
    group.add_argument("--settle-s", type=float, default=250.0, help="models: before idle is measured (%(default)s)")
    group.add_argument("--depth", type=int, default=1_000_000, help="depth: jobs that wait (%(default)s)")
    group.add_argument(
        "--depth-models", type=int, nargs="+", default=(1, 1_000), help="depth: one queue after the other (1 1000)"
    )
    group.add_argument("--warm-s", type=float, default=20.0, help="depth: before it is measured (%(default)s)")
    group.add_argument("--queued", type=int, default=10_000, help="devices: jobs that wait (%(default)s)")
    group.add_argument("--runs", type=int, default=4, help="devices: long runs, five lone jobs each (%(default)s)")
    group.add_argument("--run-s", type=float, default=12.0, help="devices: of one (%(default)s)")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS) - set(ON_REQUEST) - set(ON_PRODUCTION):
        parser.error(f"unknown part: {', '.join(sorted(unknown))}")
    return options


def _edge(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(path.measure(Path(folder), seconds=options.seconds))


def _tyk(options: argparse.Namespace) -> None:
    programs = find("auto")
    if programs is None:
        print("skipped: no Tyk here (SIGNALBOX_TYK_BIN, or tyk and redis-server on the path)")
        return
    seconds = options.seconds
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        ours = asyncio.run(path.measure(Path(folder) / "ours", seconds=seconds, tyk=programs))
        ceiling = asyncio.run(bare.measure(Path(folder) / "bare", programs, seconds=seconds))
        asyncio.run(ways.measure(Path(folder) / "ways", programs, seconds=seconds))
    for in_flight, rate in ours.items():
        share = rate / ceiling[in_flight]
        print(f"share of a plugin that only answers, {in_flight} in flight: {share:.2f}")


def _handover(_options: argparse.Namespace) -> None:
    sys.argv[1:] = []  # it reads a command line of its own
    runpy.run_module("benchmarks.handover", run_name="__main__")


def _fairness(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(fairness.measure(Path(folder), seconds=options.seconds))


def _console(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(console.measure(Path(folder), seconds=options.seconds))


def _shortest(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(ratio.measure(Path(folder), seconds=options.seconds))


def _images(options: argparse.Namespace) -> None:
    images.decoding()
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(images.measure(Path(folder), seconds=options.seconds))


def _events(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(events.measure(Path(folder), seconds=options.seconds))


def _board(_options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(board.measure(Path(folder)))


def _services(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(services.measure(Path(folder), seconds=options.seconds))


def _batches(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(batches.measure(Path(folder), seconds=options.seconds))


def _queues(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(rates.measure(Path(folder), seconds=options.seconds))


def _scale(_options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(burst.measure(Path(folder)))


def _cold(_options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(first.measure(Path(folder)))


def _queue(options: argparse.Namespace) -> None:
    parts: dict[str, Callable[[Path], Coroutine[None, None, None]]] = {
        "models": lambda folder: models.measure(
            folder,
            registered=options.registered,
            busy=options.busy,
            seconds=options.seconds,
            rounds=options.turns,
            settle_s=options.settle_s,
        ),
        "depth": lambda folder: depth.measure(
            folder,
            depth=options.depth,
            models=options.depth_models,
            seconds=options.seconds,
            warm_s=options.warm_s,
            turns=options.turns,
        ),
        "devices": lambda folder: devices.measure(
            folder, queued=options.queued, run_s=options.run_s, runs=options.runs
        ),
    }
    for part in options.of:
        with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
            asyncio.run(parts[part](Path(folder)))


def _production(options: argparse.Namespace) -> None:
    if not options.alone:
        with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
            asyncio.run(cost.measure_embedded(Path(folder), seconds=options.seconds))
    asyncio.run(cost.measure(seconds=options.seconds, up=options.up, plugins=options.plugins, devices=options.devices))


def _sizes(options: argparse.Namespace) -> None:
    asyncio.run(sizes.measure(up=options.up, jobs=options.jobs, rows=options.rows))


_PARTS: Final[dict[str, Callable[[argparse.Namespace], None]]] = {
    "edge": _edge,
    "tyk": _tyk,
    "handover": _handover,
    "fairness": _fairness,
    "console": _console,
    "shortest": _shortest,
    "images": _images,
    "cold": _cold,
    "events": _events,
    "board": _board,
    "batches": _batches,
    "queues": _queues,
    "services": _services,
    "scale": _scale,
    "queue": _queue,
    "production": _production,
    "sizes": _sizes,
}

if __name__ == "__main__":
    sys.exit(main())
