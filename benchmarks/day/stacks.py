"""A stack of our own under settings by which all that is kept turns over soon."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from benchmarks.day.samples import Site
from signalbox.ops.ports import free_port
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.main import bring_up
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program.errors import Misconfigured


def shortened(turn_s: float) -> dict[str, str]:
    """Settings under which all that is kept turns over within a turn, or the two minutes that it fills.

    Records of synchronous calls go sooner than others, or they would go with them.
    """
    kept_s = f"{max(120.0, turn_s / 2):g}"
    return {
        "SIGNALBOX_RECORDS_KEPT_S": kept_s,
        "SIGNALBOX_RESULTS_KEPT_S": "60",
        "SIGNALBOX_SYNC_RESULTS_KEPT_S": "60",
        "SIGNALBOX_DEAD_LETTERS_KEPT_S": kept_s,
        "SIGNALBOX_HISTORY_KEPT_S": "600",
        "SIGNALBOX_CONSOLE_JOBS_KEPT_DAYS": f"{float(kept_s) / 86_400:.6f}",
    }


def check_started_with(settings: Mapping[str, str], environ: Path) -> None:
    """Raise :class:`Misconfigured` unless the process whose ``/proc/PID/environ`` is given has all settings."""
    has = {os.fsdecode(each) for each in environ.read_bytes().split(b"\0")}
    if lacking := [f"{k}={v}" for k, v in settings.items() if f"{k}={v}" not in has]:
        raise Misconfigured(f"The stack was started without {' '.join(lacking)}.")


@asynccontextmanager
async def running(settings: Mapping[str, str]) -> AsyncIterator[Site]:
    """An embedded stack in a folder of its own, which goes with it."""
    ports = {"SIGNALBOX_METRICS_PORT": str(free_port())}
    with tempfile.TemporaryDirectory(prefix="signalbox-day-") as folder, _environment({**settings, **ports}):
        async with _stack(Path(folder)) as site:
            yield site


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """The programs of a stack inherit it."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@asynccontextmanager
async def _stack(folder: Path) -> AsyncIterator[Site]:
    """An embedded stack of our own."""
    options = UpOptions(data=folder, front_port=0, console_port=0, nats_port=0, front="edge")
    with DataDir(folder) as data:
        stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        try:
            facts = {
                "api_key": (await bring_up(stack)).api_key,
                "front": stack.front_url,
                "console": stack.console_url,
                "metrics": stack.metrics(),
                "data": str(folder),
            }
            file = folder / "up.json"

            def note() -> None:
                file.write_text(json.dumps({**facts, "processes": stack.pids()}))

            note()
            keeping = asyncio.create_task(stack.keep(note))
            yield Site(file, await stack.operator_token())
            keeping.cancel()
        finally:
            await stack.stop()
