"""A stack whose workers a host's agent starts and ends: NATS, the edge, the console, and ``signalbox host``."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.scale.series import Series
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.ops import probes
from signalbox.ops.up.child import Child
from signalbox.ops.up.consoleclient import ConsoleClient
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import WORKER_READY_S, UpStack
from signalbox.program.errors import Unavailable
from signalbox.program.tasks import TaskGroup
from signalbox.wire.names import SCALE, Bucket, token
from signalbox.wire.scaling import Host, Scale
from signalbox.wire.workerdocs import Worker

HOST: Final = "h1"
MODEL: Final = "slow"


class ScaledStack:
    """What runs, and who asks of it. key: of the API."""

    def __init__(self, stack: UpStack, console: ConsoleClient, key: str) -> None:
        self.stack = stack
        self.console = console
        self.key = key

    async def start_worker(self, number: int) -> float:
        """Start a worker as the agent does, and end it; seconds until it was ready."""
        name = f"alone-{number}"
        env = {**self._env("worker"), "SIGNALBOX_WORKER_ID": name, "SIGNALBOX_WORKER_DEVICE": "cpu:0"}
        ready = partial(probes.serves, self.stack.bus, name)
        began = time.monotonic()
        child = await self.stack.start(
            self.stack.spec(name, "workers", env=env, ready=ready, ready_s=WORKER_READY_S)._replace(stop_s=20.0)
        )
        took_s = time.monotonic() - began
        await child.stop()
        self.stack.children.remove(child)
        return took_s

    async def start_host(self, devices: int) -> Child:
        """The agent of a host with so many virtual devices, one worker for each."""
        arguments = [part for number in range(devices) for part in ("--device", f"cpu:{number}")]
        folder = self.stack.data.path / "host"
        command = ("host", *arguments, "--id", HOST, "--per-device", "1", "--data", str(folder))
        spec = self.stack.spec(HOST, "signalbox", *command, env=self._env("host"))
        return await self.stack.start(spec._replace(stop_s=60.0))

    def _env(self, role: str) -> Mapping[str, str]:
        """Of a worker, or of a host, whose workers have the user of workers."""
        stack = self.stack
        return {
            **stack.env(role),
            "SIGNALBOX_HOST_WORKER_NATS_USER": "worker",
            "SIGNALBOX_HOST_WORKER_NATS_PASSWORD": stack.data.secret("nats_worker").read_text(),
            "SIGNALBOX_WORKER_MODEL_FOLDERS": ",".join(map(str, stack.model_folders())),
            "SIGNALBOX_WORKER_CACHE_DIR": str(stack.data.path / "cache"),
            "SIGNALBOX_WORKER_LOCK_DIR": str(stack.data.path / "locks"),
        }

    async def scale(self, **settings: float) -> None:
        """Have the model's devices follow its load."""
        await of(
            self.console, "PATCH", f"/api/models/{MODEL}", {**settings, "autoscale": True, "reason": "a benchmark"}
        )


async def of(console: ConsoleClient, method: str, path: str, doc: object = None) -> Any:
    """What the console answers. Raises :class:`Unavailable` where it refuses."""
    answer = await console.request(method, path, b"" if doc is None else json.dumps(doc).encode())
    if answer.status >= 300:
        raise Unavailable(f"The console answered {method} {path} with {answer.status}: {answer.body.decode()[:500]}")
    return json.loads(answer.body)


@asynccontextmanager
async def standing(folder: Path) -> AsyncIterator[ScaledStack]:
    """A stack with the model registered and a key made, and no worker."""
    options = UpOptions(data=folder, workers=0, front_port=0, console_port=0, nats_port=0, has_demo=False)
    with DataDir(folder) as data:
        stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        try:
            await stack.start_nats()
            async with TaskGroup() as group:
                group.create_task(_made(stack))
                group.create_task(stack.start_edge())
                group.create_task(stack.start_console())
            async with ConsoleClient(stack.console_url, await stack.operator_token()) as console:
                await console.register(MODEL, data.path / "models" / MODEL, "")
                yield ScaledStack(stack, console, await console.create_key("benchmark"))
        finally:
            await stack.stop()


async def _made(stack: UpStack) -> None:
    command = (str(stack.data.path / "models"), "--only", MODEL)
    await stack.run_to_end("models", "workers.demo_models", *command, env=stack.env("worker"))


class Seen:
    """What NATS tells of the fleet while it changes.

    needed: devices of the model; wanted: devices with workers; ready: workers. pids: of all workers of the host.
    """

    def __init__(self, bus: Bus) -> None:
        self.needed, self.wanted, self.ready = Series(), Series(), Series()
        self.pids: set[int] = set()
        self.first_start_s = 0.0
        """Of the worker that was ready first."""
        self._is_decided = False
        self._changed = asyncio.Event()
        self._scale = Table(bus, Bucket.DESIRED, Scale)
        self._workers = Table(bus, Bucket.WORKERS, Worker)
        self._hosts = Table(bus, Bucket.HOSTS, Host)

    async def start(self) -> "Seen":
        """Follow all three."""
        self._scale.on_change(lambda key, scale, _: self._on_scale(scale) if key == SCALE else None)
        self._workers.on_change(lambda *_: self._on_worker())
        self._hosts.on_change(lambda _key, host, _: self._on_host(host))
        for table in (self._scale, self._workers, self._hosts):
            await table.start()
        return self

    async def close(self) -> None:
        """Follow nothing more."""
        for table in (self._scale, self._workers, self._hosts):
            await table.close()

    @property
    def is_idle(self) -> bool:
        """Whether the host is there, has no worker, and shall have none, as the controller has decided."""
        host = self._hosts.get(token(HOST))
        has_worker = host is None or bool(host.workers or self._workers.items())
        return self._is_decided and not self.wanted.now and not has_worker

    async def until(self, is_so: Callable[[], object], limit_s: float) -> None:
        """Wait. Raises :class:`TimeoutError`."""
        async with asyncio.timeout(limit_s):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    def _on_scale(self, scale: Scale | None) -> None:
        if scale is not None:
            now, self._is_decided = time.monotonic(), True
            self.wanted.note(now, sum(one.wanted for one in scale.classes.values()))
            self.needed.note(now, scale.models[MODEL].needed if MODEL in scale.models else 0)
        self._changed.set()

    def _on_worker(self) -> None:
        workers = self._workers.items().values()
        self.ready.note(time.monotonic(), sum(worker.state == "ready" for worker in workers))
        self._changed.set()

    def _on_host(self, host: Host | None) -> None:
        for worker in host.workers if host is not None else ():
            self.pids |= {worker.pid} - {0}
            if worker.state == "ready" and not self.first_start_s:
                self.first_start_s = time.time() - worker.since
        self._changed.set()
