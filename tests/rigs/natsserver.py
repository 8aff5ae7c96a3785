"""A real nats-server as a child process of a test."""

import asyncio
import collections
import ctypes
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from signalbox.ops import natsserver
from signalbox.ops.ports import HOST, free_port
from signalbox.program.errors import Unavailable
from signalbox.program.tasks import Background

_READY: Final = b"Server is ready"
_ROUTES: Final = b"Listening for route connections"
"""Logged after readiness; a node whose cluster port is taken ends between the two."""
_RELOADED: Final = re.compile(rb"Reloaded server configuration|Failed to reload server configuration: (?P<fault>.*)")
_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)


class NatsServer:
    """One nats-server process. ``async with NatsServer(folder) as server: ... server.url``.

    folder: holds its store, configuration and log tail; kept, so that a restart finds the data. users: role ->
    password; none = anyone may do anything, in one account. workers, readers, hosts, queues_bytes: see
    :func:`signalbox.ops.natsserver.accounts`.
    port: 0 = a free one, the same at every start. monitor: ``host:port`` of the HTTP monitor. cluster, tls: the bodies
    of these blocks, as text. dies_with_parent: the kernel kills it when this process ends, however that happens.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        port: int = 0,
        users: Mapping[str, str] | None = None,
        workers: Mapping[str, Sequence[str]] | None = None,
        readers: Sequence[str] = (),
        hosts: Mapping[str, str] | None = None,
        queues_bytes: int = natsserver.QUEUES_BYTES,
        monitor: str = "",
        name: str = "",
        cluster: str = "",
        tls: str = "",
        start_timeout_s: float = 20.0,
        dies_with_parent: bool = True,
    ) -> None:
        self.folder = Path(folder)
        self.users = dict(users or {})
        self.workers = dict(workers or {})
        self.readers = tuple(readers)
        self.hosts = dict(hosts or {})
        self.queues_bytes = queues_bytes
        self.host = HOST
        self.port = port or free_port()
        self.monitor = monitor
        self.name = name or f"signalbox-{os.getpid()}"
        self.cluster = cluster
        self.tls = tls
        self.tail: collections.deque[str] = collections.deque(maxlen=200)
        self._start_timeout_s = start_timeout_s
        self._dies_with_parent = dies_with_parent
        self._process: asyncio.subprocess.Process | None = None
        self._reading = Background()
        self._ready = asyncio.Event()
        self._is_serving = False
        self._reloaded: asyncio.Future[str] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"{'tls' if self.tls else 'nats'}://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the running server, 0 if it does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Run the server and wait until it serves. Raises :class:`Unavailable` with its last words."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "nats.conf"
        config.write_text(self._configuration(), encoding="utf-8")
        config.chmod(0o600)
        self._ready.clear()
        self._is_serving = False
        self._process = await asyncio.create_subprocess_exec(
            natsserver.binary(),
            "-c",
            str(config),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=die_with_parent if self._dies_with_parent else None,
        )
        assert self._process.stderr is not None
        self._reading.start(self._read(self._process.stderr), name="nats-server log")
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await self._ready.wait()
        except TimeoutError:
            await self.kill()
            raise Unavailable(f"nats-server did not start: {self._last_words()}") from None
        if not self._is_serving:
            await self.kill()
            raise Unavailable(f"nats-server ended at once: {self._last_words()}")

    def _configuration(self) -> str:
        rendered = natsserver.render(
            self.folder / "store",
            port=self.port,
            users=self.users,
            name=self.name,
            workers=self.workers,
            readers=self.readers,
            queues_bytes=self.queues_bytes,
            hosts=self.hosts,
        )
        parts = [
            rendered,
            f'http: "{self.monitor}"' if self.monitor else "",
            f"cluster {{\n{self.cluster}\n}}" if self.cluster else "",
            f"tls {{ {self.tls} }}" if self.tls else "",
        ]
        return "\n".join(part for part in parts if part) + "\n"

    async def stop(self) -> None:
        """End it in an orderly way. Idempotent."""
        await self._end(signal.SIGTERM)

    async def reload(self) -> None:
        """Write its configuration anew, and have it read that; returns when it has. Raises with what it refuses."""
        assert self._process is not None
        (self.folder / "nats.conf").write_text(self._configuration(), encoding="utf-8")
        self._reloaded = asyncio.get_running_loop().create_future()
        self._process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(self._start_timeout_s):
            fault = await self._reloaded
        if fault:
            raise Unavailable(f"nats-server refuses its configuration: {fault}")

    async def kill(self) -> None:
        """End it with SIGKILL, as a crash would. Idempotent."""
        await self._end(signal.SIGKILL)

    async def restart(self) -> None:
        """Start again on the same port and store (stops a running one first)."""
        await self.stop()
        await self.start()

    async def _end(self, sig: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(sig)
        await self._reap()

    async def _reap(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await self._reading.finish()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        """Read its log while it runs: a full pipe would stop the server."""
        while line := await stream.readline():
            self.tail.append(line.decode(errors="replace").rstrip())
            if self._reloaded is not None and not self._reloaded.done() and (found := _RELOADED.search(line)):
                self._reloaded.set_result((found["fault"] or b"").decode(errors="replace"))
            if (_ROUTES if self.cluster else _READY) in line:
                self._is_serving = True
                self._ready.set()
        self._ready.set()

    def _last_words(self) -> str:
        faults = [line for line in self.tail if "[FTL]" in line or "[ERR]" in line]
        return " / ".join(faults or list(self.tail)[-3:]) or "no output"


def die_with_parent() -> None:
    """For a child, before its program starts: the kernel kills it with the thread that started it."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
