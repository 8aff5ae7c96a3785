"""A production stack on this machine: its files, its networks, its services, and where they are reached."""

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from signalbox.bus.client import Bus
from signalbox.ops import natsserver, probes
from signalbox.ops.ports import HOST, choose_port
from signalbox.ops.up.child import Child, Spec
from signalbox.ops.up.datadir import DataDir, write_private
from signalbox.ops.up.first import TRAIN_S
from signalbox.ops.up.stack import ADMIN, DAYS_VALID, ROOT
from signalbox.program.errors import Unavailable
from signalbox.program.settings import Wire
from verification.production import compose as composed
from verification.production import images, machine, variants
from verification.production.compose import Compose
from verification.production.forward import forwarded
from verification.production.launch import DEPLOYED, Builder
from verification.production.network import Network
from verification.production.options import COMPOSE_FILE, ProductionOptions
from verification.production.services import Services

FRONT: Final = "tyk"
CONSOLE: Final = "console"
NATS: Final = "nats:"
AUTHORITY: Final = "tls_ca"
"""The secret that says who signs the certificates of NATS, where the file has it use TLS."""
MODELS: Final = "models"
MODELS_INSIDE: Final = Path("/var/lib/signalbox/models")
METERED: Final = {"SIGNALBOX_METRICS_PORT": "9100", "SIGNALBOX_METRICS_HOST": "0.0.0.0"}
"""Variables of the file unless this process has them: only this machine reaches the containers' networks."""
ANSWERS_S: Final = 180.0
POLL_S: Final = 0.25
TOKEN_S: Final = 120.0
SECRETS_S: Final = 60.0


class ProductionStack:
    """What the compose file declares. say: called with sentences a person should read."""

    def __init__(self, options: ProductionOptions, data: DataDir, say: Callable[[str], None]) -> None:
        self.data = data
        self.say = say
        self._machine = machine.describe()
        filed = composed.read(ROOT / COMPOSE_FILE, {**METERED, **os.environ})
        declared = variants.with_plugins(filed, options.plugins)
        declared = variants.with_devices(declared, options.devices)
        self._has_intervals = options.has_intervals
        if options.has_intervals:
            declared = variants.with_intervals(declared)
        self._ports = _published(declared, has_any=options.has_any_ports)
        moved = {theirs: ours for theirs, ours, _ in self._ports.values()}
        self.compose = variants.with_front_at(declared, moved)
        self._is_as_filed = variants.workers(self.compose) == variants.workers(filed)
        self.network = Network(self.compose, self._machine.tools["ip"])
        self._services: Services | None = None
        self._open = AsyncExitStack()

    @property
    def services(self) -> Services:
        """The services, once :meth:`make` has returned."""
        assert self._services is not None
        return self._services

    @property
    def front_url(self) -> str:
        """Where API consumers call."""
        return f"http://{HOST}:{self._ports[FRONT][1]}"

    @property
    def grpc_address(self) -> str:
        """``host:port`` where gRPC clients call."""
        return self.front_url.rpartition("/")[2]

    @property
    def console_url(self) -> str:
        """Where operators go."""
        return f"http://{HOST}:{self._ports[CONSOLE][1]}"

    @property
    def direct_front_url(self) -> str:
        """The front without the loopback's forwarder in between."""
        return f"http://{self.network.address(FRONT)}:{self._ports[FRONT][2]}"

    @property
    def nats_url(self) -> str:
        """Where this machine reaches NATS."""
        scheme = "tls" if self.nats_ca else "nats"
        return ",".join(f"{scheme}://{self.network.address(name)}:4222" for name in self._nodes())

    @property
    def nats_ca(self) -> str:
        """File of the authority of its certificates; empty where it has none."""
        has_any = AUTHORITY in self.compose.secrets
        return str(self.data.path / "secrets" / AUTHORITY) if has_any else ""

    def left_out(self) -> list[str]:
        """What of the file does not hold here, in sentences."""
        reported = []
        image = self.compose.services[self._nodes()[0]].image
        wanted = image.partition(":")[2].partition("-")[0]
        if wanted != self._machine.nats_version:
            reported.append(f"NATS is {self._machine.nats_version}; the file names {wanted}")
        limited = [name for name, each in self.compose.services.items() if each.mem_limit]
        if limited:
            reported.append(f"left out: mem_limit of {', '.join(limited)}, which takes an engine")
        reported.append("left out: the way from the network front to the outside")
        return reported

    async def make(self) -> None:
        """Networks, secrets, and a box for each service; nothing runs yet."""
        self._open.enter_context(self.network)
        await self._make_secrets()
        replaced = {DEPLOYED: self.data.path / "secrets"}
        if not self._is_as_filed:
            replaced["deploy/nats"] = self._nats_files()
        builder = Builder(self.compose, self._machine, self.data.path, ROOT, replaced)
        boxes = {}
        for name, service in self.compose.services.items():
            image = images.find(name, service, self._machine, ROOT)
            boxes[name] = builder.box(
                name, image, namespace=self.network.namespace(name), hosts=self.network.hosts(name)
            )
        self._services = Services(self.compose, boxes, builder, self.network, self.data.path / "logs", self.say)
        for name, (_, ours, inside) in self._ports.items():
            to = (self.network.address(name), inside)
            await self._open.enter_async_context(forwarded(ours, to))

    async def until_ready(self) -> None:
        """Until every service is, the front answers and every worker serves."""
        await self.services.until_ready()
        try:
            async with asyncio.timeout(ANSWERS_S):
                while not await probes.http(self.front_url, "/hello"):  # noqa: ASYNC110  it tells nobody
                    await asyncio.sleep(POLL_S)
                await self._until_workers_serve()
        except TimeoutError:
            raise Unavailable(f"Not ready within {ANSWERS_S:g} s of the last start.") from None

    async def stop(self) -> None:
        """End every service and take the networks down. Idempotent."""
        try:
            if self._services is not None:
                await self._services.stop()
        finally:
            await self._open.aclose()

    async def operator_token(self, *, anew: bool = False) -> str:
        """A token of the first admin for the console's REST API, made in the console's container. Kept."""
        path = self.data.path / "secrets" / "operator_token"
        if anew or not path.exists():
            argv = ("python", "-m", "console", "token", "make production", "--user", ADMIN, "--days", DAYS_VALID)
            status, said = await self.services.all[CONSOLE].run_beside(argv, TOKEN_S)
            if status:
                raise Unavailable(f"The console made no token: {said.decode(errors='replace')}")
            write_private(path, said.decode().split()[-1])
        return path.read_text()

    def document(self) -> dict[str, Any]:
        """What ``up.json`` tells of it."""
        return {
            "front": self.front_url,
            "direct_front": self.direct_front_url,
            "grpc": self.grpc_address,
            "console": self.console_url,
            "nats": self.nats_url,
            "nats_ca": self.nats_ca,
            "metrics": self._metrics(),
            "processes": {"production": os.getpid(), **self.services.pids()},
            "addresses": {name: self.network.address(name) for name in self.compose.services},
            "namespaces": {name: self.network.namespace(name) for name in self.compose.services},
            "links": {name: {link.network: link.host for link in links} for name, links in self.network.links.items()},
            "intervals": self._intervals(),
            "data": str(self.data.path),
        }

    def _metrics(self) -> dict[str, str]:
        """Where this machine reads each program's metrics, by name; empty without a port for them."""
        ports = {
            name: service.environment.get("SIGNALBOX_METRICS_PORT")
            for name, service in self.compose.services.items()
            if not service.ends
        }
        return {
            name: f"http://{self.network.address(name)}:{port}/metrics"
            for name, port in ports.items()
            if port not in {None, "0"}
        }

    def _intervals(self) -> str:
        """The file in which workers note who was in a device; empty without ``--intervals``."""
        path = self.data.path / "volumes" / variants.LOCKS / variants.INTERVALS
        return str(path) if self._has_intervals else ""

    async def _make_secrets(self) -> None:
        """What docs/deploy.md has an operator make; the nodes are reached by address too, from this machine."""
        script = ROOT / "deploy" / "make_secrets.py"
        argv = [sys.executable, str(script), "--folder", str(self.data.path / "secrets")]
        for worker in variants.workers(self.compose):
            argv += ["--worker", worker]
        for node in self._nodes():
            argv += ["--node", f"{node}={self.network.address(node)}"]
        await self._run("secrets", tuple(argv), SECRETS_S)

    def _nodes(self) -> list[str]:
        services = self.compose.services
        return [name for name, service in services.items() if service.image.startswith(NATS)]

    async def train(self) -> None:
        """The demonstration models, laid into the volume that console and workers mount."""
        folder = self.data.path / "volumes" / MODELS
        link = self.data.path / MODELS  # where `signalbox demo` looks for the digits
        if not link.is_symlink():
            link.symlink_to(Path("volumes") / MODELS)
        if not (folder / "digits").exists():
            self.say("training the demonstration models (once)")
        await self._run("demo-models", (sys.executable, "-m", "workers.demo_models", str(folder)), TRAIN_S)
        owner = images.find(CONSOLE, self.compose.services[CONSOLE], self._machine, ROOT)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner.uid, owner.gid)

    def _nats_files(self) -> Path:
        """The configuration of NATS with a user for each worker there is, as docs/deploy.md tells it."""
        folder = self.data.path / "run" / "nats"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ROOT / "deploy" / "nats", folder)
        ids: dict[str, tuple[str, ...]] = dict.fromkeys(variants.workers(self.compose), ())
        users = natsserver.users(ids)
        (folder / "users.conf").write_text(users + "\n", encoding="utf-8")
        return folder

    async def _run(self, name: str, argv: tuple[str, ...], limit_s: float) -> None:
        spec = Spec(name, argv, {**os.environ, "PYTHONPATH": str(ROOT)}, ready_s=limit_s)
        await Child(spec, self.data.path / "logs", self.say).run_to_end()

    async def _until_workers_serve(self) -> None:
        password = (self.data.path / "secrets" / "nats_admin").read_text().strip()
        wire = Wire(nats_url=self.nats_url, nats_user="admin", nats_password=password, nats_ca_file=self.nats_ca)
        async with await Bus.connect(wire, role="admin", name="production") as bus:
            for worker in variants.workers(self.compose):
                while not await probes.serves(bus, worker):  # noqa: ASYNC110  in NATS it announces itself once
                    await asyncio.sleep(POLL_S)


def _published(compose: Compose, *, has_any: bool) -> dict[str, tuple[int, int, int]]:
    """By service: the port declared for this machine, the one chosen, the one inside."""
    found = {}
    for name, service in compose.services.items():
        for text in service.ports:
            *_, theirs, inside = text.split(":")
            chosen = choose_port(0 if has_any else None, int(theirs), "--ports")
            found[name] = (int(theirs), chosen, int(inside))
    return found
