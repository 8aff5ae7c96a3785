"""A real ``python -m workers``, its log lines as events, and the signals a test sends it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """One worker. Lines: every log line it has written, parsed. program: the module that is run."""

    def __init__(
        self, url: str, folder: Path, worker_id: str, *, program: object = "workers", **settings: object
    ) -> None:
        self.id, self.url = worker_id, url
        self._program = str(program)
        self.lines: list[dict[str, Any]] = []
        self._changed = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("SIGNALBOX_")},
            "SIGNALBOX_NATS_URL": url,
            "SIGNALBOX_WORKER_ID": worker_id,
            "SIGNALBOX_WORKER_LOCK_DIR": str(folder / "locks"),
            "SIGNALBOX_WORKER_INTERVAL_LOG": str(folder / "intervals.log"),
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": str(ROOT),
            **{f"SIGNALBOX_{name.upper()}": str(value) for name, value in settings.items()},
        }

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        assert self._process is not None
        return self._process.returncode

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._program,
            cwd=ROOT,
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        assert self._process.stderr is not None
        self._reader = asyncio.create_task(self._read(self._process.stderr))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or os.environ.get("SHOW_WORKERS"):
            print(f"--- {self.id}", *(json.dumps(line) for line in self.lines[-40:]), sep="\n")
        if self.returncode is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                await self.ended(timeout_s=15)
            except TimeoutError:
                self.signal(signal.SIGKILL)
                await self.ended()
        assert self._reader is not None
        await self._reader

    async def ready(self, *, timeout_s: float = 60.0) -> Self:
        """Its runner is on standby."""
        await self.said("worker.ready", timeout_s=timeout_s)
        return self

    async def said(
        self,
        event: str,
        where: Callable[[Mapping[str, Any]], bool] = lambda _: True,
        *,
        count: int = 1,
        timeout_s: float = 60.0,
    ) -> dict[str, Any]:
        """The ``count``-th log line of an event, waiting for it."""
        async with asyncio.timeout(timeout_s):
            while True:
                found = [line for line in self.lines if line.get("event") == event and where(line)]
                if len(found) >= count:
                    return found[count - 1]
                if self.returncode is not None:
                    raise AssertionError(f"{self.id} ended with {self.returncode}: {self.lines[-5:]}")
                self._changed.clear()
                await self._changed.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor alone."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        await self.ended()

    async def ended(self, *, timeout_s: float = 60.0) -> int:
        """Wait for its end; its exit status."""
        assert self._process is not None
        async with asyncio.timeout(timeout_s):
            return await self._process.wait()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            try:
                parsed = json.loads(line)
            except ValueError:
                parsed = {"event": "text", "text": line.decode(errors="replace").rstrip()}
            self.lines.append(parsed)
            self._changed.set()
        self._changed.set()
