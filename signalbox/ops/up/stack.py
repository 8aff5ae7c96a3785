"""The programs of the stack: how each is started, and in which order they come and go."""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

import signalbox
from signalbox.bus.client import Bus
from signalbox.bus.disk import Room
from signalbox.ops import natsserver, probes
from signalbox.ops.host import machine
from signalbox.ops.host.agent import Agent, Plan
from signalbox.ops.host.machine import Machine
from signalbox.ops.host.settings import HostSettings
from signalbox.ops.ports import HOST, choose_port
from signalbox.ops.up.child import Child, Spec, at_once
from signalbox.ops.up.datadir import DataDir, metrics_port, write_private
from signalbox.ops.up.natskeeper import NatsKeeper
from signalbox.ops.up.options import (
    USUAL_CONSOLE_PORT,
    USUAL_FRONT_PORT,
    USUAL_GRPC_PORT,
    USUAL_NATS_PORT,
    UpOptions,
)
from signalbox.ops.up.streams import Streams
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import PREFIX, Wire, load
from signalbox.program.tasks import Background, TaskGroup
from signalbox.wire import roles
from signalbox.wire.assets import AGES, STORAGE_BYTES
from signalbox.wire.names import MAIN_ACCOUNT, MODEL_NAME

ROOT: Final = Path(signalbox.__file__).resolve().parents[1]
_LOCAL: Final = {"SIGNALBOX_WEBHOOK_NETWORKS": "127.0.0.0/8,::1/128", "SIGNALBOX_WEBHOOK_PLAIN": "on"}
"""Receivers of webhooks on this machine may be called, as a stack on one machine is one to try things with."""
ADMIN: Final = "admin"
_NATS: Final = "nats"
DAYS_VALID: Final = "366"
WORKER_READY_S: Final = 120.0
"""A worker is ready when its standby runner has imported TensorFlow, which a cold disk makes slow."""

_OURS: Final = tuple(
    PREFIX + field.upper()
    for field in ("nats_reserve_bytes", "results_kept_s", *dict.fromkeys(field for field, _ in AGES.values()))
)
"""Settings of every program that ``signalbox up`` itself uses too."""


class UpStack:
    """A whole Signalbox as child processes. say: called with sentences a person should read.

    grpc_address: ``host:port`` where gRPC clients call, once the front runs.
    """

    def __init__(self, options: UpOptions, data: DataDir, say: Callable[[str], None]) -> None:
        self.options = options
        self.data = data
        self.say = say
        self.children: list[Child] = []
        self.nats_port = choose_port(options.nats_port, USUAL_NATS_PORT, "--nats-port")
        self.console_port = choose_port(options.console_port, USUAL_CONSOLE_PORT, "--console-port")
        self.front_port = choose_port(options.front_port, USUAL_FRONT_PORT, "--port")
        self.grpc_address = f"{HOST}:{self.front_port}"
        self._bus: Bus | None = None
        self._streams: Streams | None = None
        self._host_bus: Bus | None = None
        self._agent: Agent | None = None
        self._running = Background()
        self._beside: list[Callable[[], Coroutine[Any, Any, None]]] = []

    @property
    def nats_url(self) -> str:
        """Where programs reach NATS."""
        return f"nats://{HOST}:{self.nats_port}"

    @property
    def front_url(self) -> str:
        """Where API consumers call."""
        return f"http://{HOST}:{self.front_port}"

    @property
    def console_url(self) -> str:
        """Where operators go."""
        return f"http://{HOST}:{self.console_port}"

    @property
    def bus(self) -> Bus:
        """Our own connection, once :meth:`start_nats` has returned."""
        assert self._bus is not None
        return self._bus

    async def start_nats(self) -> None:
        """NATS with one user per role, our streams and buckets, and our own connection to it."""
        folder = self.data.path / "nats"
        folder.mkdir(exist_ok=True)
        config = folder / "nats.conf"
        if natsserver.name_main_account(folder / "store"):
            self.say(f"what NATS keeps has moved into its account {MAIN_ACCOUNT}, beside the one of queues")
        users = {str(user): self._password(user).read_text() for user in roles.USERS}
        storage_bytes, queues_bytes = self._storage()
        text = natsserver.render(
            folder / "store", port=self.nats_port, users=users, name="up", queues_bytes=queues_bytes
        )
        write_private(config, text)
        argv = (natsserver.binary(), "-c", str(config))
        inherited = _inherited()
        keeper = NatsKeeper(Room(folder, inherited.nats_reserve_bytes), self.say)
        ready = partial(probes.says, partial(asyncio.open_connection, HOST, self.nats_port), b"INFO")
        spec = Spec(_NATS, argv, {**os.environ}, ready, ready_s=30.0, on_output=keeper.receive)
        server = await self.start(spec)
        password = self._password("admin").read_text()
        wire = replace(inherited, nats_url=self.nats_url, nats_user="admin", nats_password=password)
        self._bus = await Bus.connect(wire, role="admin", name="up")
        self._streams = Streams(
            self._bus,
            self.data,
            keeper,
            storage_bytes=storage_bytes,
            say=self.say,
            without_programs=self._without_programs,
        )
        await self._streams.make()
        self._beside += [self._streams.keep, lambda: keeper.run(server, self.bus)]

    def _storage(self) -> tuple[int, int]:
        """Bytes that our streams may take and that queues may: half and a quarter of what was free on the first start,
        then always the same."""
        kept = self.data.read_json("storage.json")
        if not kept.keys() >= {"bytes", "queues"}:
            free = shutil.disk_usage(self.data.path).free
            kept = {
                "bytes": min(STORAGE_BYTES, free // 2),
                "queues": min(natsserver.QUEUES_BYTES, max(natsserver.LEAST_QUEUES_BYTES, free // 4)),
            } | kept
            self.data.write_json("storage.json", kept)
        return int(kept["bytes"]), int(kept["queues"])

    async def start_console(self) -> None:
        """The database, its first admin, and the console's three programs."""
        env = self._console_env()
        await self.run_to_end("bootstrap", "console", "bootstrap", env=env)
        ready = partial(probes.http, self.console_url, "/login")
        async with TaskGroup() as group:
            group.create_task(self.start(self.spec("console", "console", "serve", env=env, ready=ready)))
            for name in ("controller", "projector"):
                group.create_task(self.start(self.spec(name, "console", name, env=env)))

    async def operator_token(self, *, anew: bool = False) -> str:
        """A token of the first admin for the console's REST API. Kept; :meth:`start_console` first.

        anew: the one that is kept is of no use: it has expired, or the database that knew it is gone.
        """
        path = self.data.path / "secrets" / "operator_token"
        if anew or not path.exists():
            arguments = ("token", "signalbox up", "--user", ADMIN, "--days", DAYS_VALID)
            printed = await self.run_to_end("token", "console", *arguments, env=self._console_env())
            write_private(path, printed.split()[-1])
            (self.data.path / "logs" / "token.log").unlink()  # a secret is no log
        return path.read_text()

    async def start_host(self) -> None:
        """The agent that keeps the workers; those that are wanted now are ready when this returns."""
        shared, turns = self.options.devices, range(1, self.options.workers + 1)
        devices = list(dict.fromkeys(shared[(n - 1) % len(shared)] for n in turns))
        if not devices:
            return
        found = await self._machine(devices)
        settings = {place.device.id: setting for place, setting in zip(found.devices, devices, strict=True)}

        def make(device: str) -> list[Child]:
            return [
                self._child(self._worker_spec(n)) for n in turns if shared[(n - 1) % len(shared)] == settings[device]
            ]

        plan = Plan(
            id=HostSettings().host_id,
            host=found.host,
            devices=machine.classed(found.devices, {}, ""),
            cache_dir=Path(found.cache_dir),
        )
        password = self._password("host").read_text()
        wire = replace(_inherited(), nats_url=self.nats_url, nats_user="host", nats_password=password)
        self._host_bus = await Bus.connect(wire, role="host", name="up")
        self._agent = agent = Agent(self._host_bus, plan, make, say=self.say)
        self._running.start(agent.run(), name="agent")
        await agent.ready()

    async def _machine(self, devices: Sequence[str]) -> Machine:
        """What workers find at these devices, each asked as its worker is run: of virtual ones the locks are ours."""
        specs = [self._made(self._worker_spec(self.options.devices.index(device) + 1)) for device in devices]
        asked = (machine.ask(spec.argv, spec.env, [device]) for spec, device in zip(specs, devices, strict=True))
        found = await asyncio.gather(*asked)
        return replace(found[0], devices=tuple(place for one in found for place in one.devices))

    async def start_worker(self, number: int) -> None:
        """Worker ``number`` (from 1) on the device whose turn it is, without an agent."""
        ready = partial(probes.serves, self.bus, f"worker-{number}")
        await self.start(self._worker_spec(number)._replace(ready=ready))

    def _worker_spec(self, number: int) -> Spec:
        name = f"worker-{number}"
        device = self.options.devices[(number - 1) % len(self.options.devices)]
        env = {**self.env("worker"), "SIGNALBOX_WORKER_ID": name, "SIGNALBOX_WORKER_DEVICE": device}
        env.setdefault("SIGNALBOX_WORKER_MODEL_FOLDERS", ",".join(map(str, self.model_folders())))
        env.setdefault("SIGNALBOX_WORKER_CACHE_DIR", str(self.data.path / "cache"))
        if device.startswith("cpu:"):  # two stacks on one host share its GPUs, not virtual devices
            env["SIGNALBOX_WORKER_LOCK_DIR"] = str(self.data.path / "locks")
        return self.spec(name, "workers", env=env, ready_s=WORKER_READY_S)._replace(stop_s=20.0)

    async def start_edge(self) -> None:
        """The plugin with the edge inside: the front where no Tyk is. gRPC has a port of its own then."""
        self.grpc_address = f"{HOST}:{choose_port(self.options.grpc_port, USUAL_GRPC_PORT, '--grpc-port')}"
        env = {
            **self.env("gateway"),
            "SIGNALBOX_GATEWAY_LISTEN": "",
            "SIGNALBOX_GATEWAY_EDGE_LISTEN": f"{HOST}:{self.front_port}",
            "SIGNALBOX_GATEWAY_GRPC_LISTEN": self.grpc_address,
        }
        ready = partial(probes.http, self.front_url, "/hello")
        await self.start(self.spec("gateway", "gateway_plugin", env=env, ready=ready))

    async def start_outbound(self) -> None:
        """The program that sends results out."""
        env = {**self.env("outbound"), "SIGNALBOX_OUTBOUND_ID": "outbound"}
        await self.start(self.spec("outbound", "gateway_plugin.outbound", env=env))

    async def start(self, spec: Spec) -> Child:
        """Run one program; it is ready when this returns, and will be ended by :meth:`stop`."""
        child = self._child(spec)
        self.children.append(child)
        await child.start()
        return child

    def _child(self, spec: Spec) -> Child:
        spec = self._made(spec)
        port = metrics_port(spec.name)
        env = {**spec.env, "SIGNALBOX_METRICS_PORT": str(port)} if port else spec.env
        return Child(spec._replace(env=env), self.data.path / "logs", self.say)

    def _made(self, spec: Spec) -> Spec:
        """What is run for it: another program in tests."""
        return spec

    @property
    def running(self) -> list[Child]:
        """All programs, those that the agent keeps included."""
        kept = [worker.child for worker in self._agent.workers] if self._agent is not None else []
        return [*self.children, *kept]

    async def keep(self, changed: Callable[[], None]) -> None:
        """Start again what dies, until :meth:`stop`. changed: called after each end and each restart."""
        async with TaskGroup() as group:
            if self._agent is not None:
                self._agent.on_change = changed
            beside = [group.create_task(work()) for work in self._beside]
            try:
                async with TaskGroup() as kept:
                    for child in self.children:
                        kept.create_task(child.keep(changed))
            finally:
                if self._agent is not None:
                    self._agent.on_change = lambda: None  # from now on nothing is noted
                for task in beside:
                    task.cancel()

    @contextlib.asynccontextmanager
    async def _without_programs(self) -> AsyncIterator[None]:
        """All but NATS are ended; :meth:`keep` starts them again once this is left."""
        programs = [child for child in self.running if child.spec.name != _NATS]
        async with contextlib.AsyncExitStack() as held:
            await asyncio.gather(*(held.enter_async_context(one.ended()) for one in programs))
            yield

    async def stop(self) -> None:
        """End everything: front and console first, workers together, NATS last."""
        if self._bus is not None:
            if self._streams is not None:
                with contextlib.suppress(OSError):
                    self._streams.note()
            with contextlib.suppress(SignalboxError, OSError):
                await self._bus.close()
        for wave in range(3):
            if wave == 1:
                await self._end_host()
            await asyncio.gather(*(child.stop() for child in self.children if _wave(child.spec.name) == wave))

    async def _end_host(self) -> None:
        await self._running.cancel()
        if self._host_bus is not None:
            await self._host_bus.close()

    def env(self, role: str) -> dict[str, str]:
        """Environment of a program of ``role``: its own NATS user, or one in each account, and the shared secrets."""
        queues = roles.queue_role(role)
        users = {"SIGNALBOX_NATS_USER": role, "SIGNALBOX_NATS_PASSWORD_FILE": str(self._password(role))}
        if queues:
            users["SIGNALBOX_QUEUES_NATS_USER"] = queues
            users["SIGNALBOX_QUEUES_NATS_PASSWORD_FILE"] = str(self._password(queues))
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.getenv("PYTHONPATH")))),
            "PYTHONUNBUFFERED": "1",
            "SIGNALBOX_NATS_URL": self.nats_url,
            **users,
            "SIGNALBOX_NATS_STORE": str(self.data.path / "nats"),
            "SIGNALBOX_KEY_PEPPER_FILE": str(self.data.secret("pepper")),
            **{name: os.environ.get(name, text) for name, text in _LOCAL.items()},
        }

    def model_folders(self) -> list[Path]:
        """Models are read below these and nothing else is. Made where they are not there yet."""
        own = [self.data.path / "models", self.data.path / "console" / "models"]
        for folder in own:
            folder.mkdir(parents=True, exist_ok=True)
        read_in_place = [Path(urlsplit(url).path) for url in self.options.repositories if url.startswith("file:")]
        return [*own, *(folder.resolve() for folder in (*self.options.model_folders, *read_in_place))]

    def _model_roots(self) -> list[str]:
        """Folders of models for the console, with names: what lies below a folder with a name may move with it.

        A folder given with ``--models`` is called as it is, unless another has that name too. Those of ``--repository``
        are none: people register models from these, and nothing is noticed there.
        """
        own = self.data.path / "models"
        given = [folder.resolve() for folder in self.options.model_folders]
        names = ["models", "uploads", *(folder.name for folder in given)]
        named = [
            f"{folder.name}={folder}"
            if MODEL_NAME.match(folder.name) and names.count(folder.name) == 1
            else str(folder)
            for folder in given
        ]
        return [f"models={own}", *named]

    def metrics(self) -> dict[str, str]:
        """Where programs serve metrics, by name; empty unless ``SIGNALBOX_METRICS_PORT`` is set."""
        names = [child.spec.name for child in self.running]
        return {name: f"http://{HOST}:{port}/metrics" for name in names if (port := metrics_port(name))}

    def pids(self) -> dict[str, int]:
        """Process ids by name, of running programs only: a signal to process 0 would reach the sender's own group."""
        return {child.spec.name: child.pid for child in self.running if child.pid}

    def _console_env(self) -> dict[str, str]:
        return {
            **self.env("console"),
            "SIGNALBOX_CONSOLE_LISTEN": f"{HOST}:{self.console_port}",
            "SIGNALBOX_CONSOLE_DATA_DIR": str(self.data.path / "console"),
            "SIGNALBOX_CONSOLE_REPOSITORY_ROOTS": ",".join(self._model_roots()),
            "SIGNALBOX_CONSOLE_REPOSITORY_URLS": ",".join(self.options.repositories),
            **({"SIGNALBOX_CONSOLE_UPLOADS_URL": self.options.uploads} if self.options.uploads else {}),
            "SIGNALBOX_CONSOLE_FRONT_URL": self.front_url,
            "SIGNALBOX_CONSOLE_ADMIN_USER": ADMIN,
            "SIGNALBOX_CONSOLE_ADMIN_PASSWORD_FILE": str(self.data.admin_password()),
        }

    def _password(self, role: str) -> Path:
        return self.data.secret(f"nats_{role}")

    def spec(
        self,
        name: str,
        module: str,
        *arguments: str,
        env: Mapping[str, str],
        ready: Callable[[], Awaitable[bool]] = at_once,
        ready_s: float = 60.0,
    ) -> Spec:
        """A program of ours: ``python -m module arguments``."""
        return Spec(name, (sys.executable, "-m", module, *arguments), env, ready, ready_s=ready_s)

    async def run_to_end(
        self, name: str, module: str, *arguments: str, env: dict[str, str], limit_s: float = 300.0
    ) -> str:
        """Run a command that ends by itself; returns what it printed.

        Raises :class:`Unavailable` with the end of its log when it fails.
        """
        spec = self.spec(name, module, *arguments, env=env, ready_s=limit_s)
        child = Child(spec, self.data.path / "logs", self.say)
        child.log.unlink(missing_ok=True)
        await child.run_to_end()
        return child.log.read_text(errors="replace")


def _inherited() -> Wire:
    """Settings of this process, from the environment that its programs inherit."""
    given = {name: os.environ[name] for name in _OURS if name in os.environ}
    return load(Wire, PREFIX, given)


def _wave(name: str) -> int:
    """When a program is ended: first those that people and callers reach, NATS last."""
    if name in {"gateway", "tyk", "console"}:
        return 0
    return 2 if name == _NATS else 1
