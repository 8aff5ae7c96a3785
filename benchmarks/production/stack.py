"""Provides a production stack to measure: a running one, or one started for the benchmark and stopped after it."""

import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from signalbox.program.errors import Unavailable
from tests.rigs.runningstack import RunningStack

START_S: Final = 600.0
END_S: Final = 120.0
POLL_S: Final = 0.5


async def until(condition: Callable[[], bool], limit_s: float) -> None:
    """Return when ``condition()`` holds, asked again and again. Raises :class:`TimeoutError`."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110  other processes announce nothing
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def standing(up: Path | None, *, plugins: int, devices: int) -> AsyncIterator[RunningStack]:
    """The stack of the ``up.json``; without one, a stack of so many plugins and devices."""
    if up is not None:
        yield RunningStack(up)
        return
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        data = Path(folder) / "data"
        log = Path(folder) / "log"
        process = await _started(data, log, plugins, devices)
        try:
            file = data / "up.json"
            await until(lambda: file.exists() or process.returncode is not None, START_S)
            if process.returncode is not None:
                raise Unavailable(f"The stack did not start:\n{log.read_text(errors='replace')}")
            yield RunningStack(file)
        finally:
            await _end(process)


async def _started(data: Path, log: Path, plugins: int, devices: int) -> asyncio.subprocess.Process:
    with log.open("wb") as file:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "verification.production", "--data", str(data)),
            *("--ports", "any", "--plugins", str(plugins), "--devices", str(devices)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        process.kill()  # the next start removes what it leaves
        await process.wait()
