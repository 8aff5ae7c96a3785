"""The stack of ``signalbox up`` under chaos: every program behind a proxy of its own, one NATS node or three."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from signalbox.ops.ports import HOST, free_port
from signalbox.ops.up.child import Child, Spec
from signalbox.ops.up.datadir import DataDir
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.wire.messages import decode
from signalbox.wire.modeldocs import Limits
from signalbox.wire.names import Bucket, key, token
from signalbox.wire.workerdocs import Worker
from tests.rigs import models
from tests.rigs.outage import floats
from tests.rigs.processes import resident_bytes
from verification.chaos.environment.disk import Disk
from verification.chaos.environment.namespace import Namespace
from verification.chaos.environment.smalldisk import SmallDisk
from verification.chaos.evidence.journal import SECRETS
from verification.chaos.rig.bed import Bed

GPU: Final = "cpu:0"
KEEP_S: Final = 0.5
QUICK: Final = {"SIGNALBOX_PING_INTERVAL_S": "1", "SIGNALBOX_REQUEST_TIMEOUT_S": "1"}
SHORT_LEASE: Final = {
    **QUICK,
    "SIGNALBOX_WORKER_HEARTBEAT_S": "1",
    "SIGNALBOX_WORKER_FENCE_S": "6",
    "SIGNALBOX_WORKER_FAILOVER_S": "0",
    "SIGNALBOX_WORKER_LEASE_TTL_S": "12",
    "SIGNALBOX_WORKER_MARGIN_S": "3",
    "SIGNALBOX_WORKER_TRUSTED_S": "15",
    "SIGNALBOX_WORKER_QUANTUM_S": "3",
}
SHORT: Final = {"worker": SHORT_LEASE, "gateway": QUICK}
"""Settings by role: the relations of production with smaller numbers, so that a freeze takes seconds.

For the storm on one node, which has no elections and needs many short faults. All other runs use the defaults."""


class Rig(Bed):
    """Everything a fault can be done to. history: folder of what happened. nodes: of NATS, 1 or 3.

    engine: ``tensorflow``, ``toy`` (:mod:`verification.chaos.rig.toyrunner`), or ``mixed``: worker 1 has the real one.
    ballast_mb: memory of a toy runner. devices: which workers share in turn. programs: further settings, by role.
    limits: of the models. has_metrics: programs serve theirs, at :attr:`metrics_ports`. has_routes: see :class:`Bed`.
    """

    def __init__(
        self,
        data: DataDir,
        history: Path,
        *,
        nodes: int = 1,
        engine: str = "tensorflow",
        ballast_mb: int = 0,
        devices: tuple[str, ...] = (GPU,),
        programs: Mapping[str, Mapping[str, str]] | None = None,
        limits: Limits | None = None,
        has_metrics: bool = False,
        has_routes: bool = False,
    ) -> None:
        super().__init__(data, history, node_count=nodes, has_routes=has_routes, settings=programs or {})
        self.options = replace(self.options, devices=devices)
        self.ended: list[str] = []
        self.metrics_ports: dict[str, int] = {}
        """Ports, by program."""
        self._engine, self._ballast_mb = engine, ballast_mb
        self._limits, self._has_metrics = limits, has_metrics

    # -- coming and going ------------------------------------------------------------------------------

    async def start(self, spec: Spec) -> Child:
        """A program of the stack, with proxies of its own and, where one was made for it, a network of its own."""
        space = self.namespaces.get(spec.name)
        if spec.name not in self.proxies:
            await self._build_proxies(spec.name, space.outside if space is not None else HOST)
        env = {
            # The ledger is held against the records at the end, however long the run was.
            **spec.env,
            "SIGNALBOX_SYNC_RESULTS_KEPT_S": "86400",
            **self._settings.get(spec.name, {}),
            "SIGNALBOX_NATS_URL": ",".join(proxy.url for proxy in self.proxies[spec.name]),
        }
        argv, ready = spec.argv, spec.ready
        if spec.name.startswith("worker-"):
            is_toy = self._engine == "toy" or (self._engine == "mixed" and spec.name != "worker-1")
            ready = self._is_this_life_ready(spec.name)
            env["SIGNALBOX_WORKER_INTERVAL_LOG"] = str(self.history / "intervals.log")
            if is_toy:
                argv = (sys.executable, "-m", "verification.chaos.rig.toyworker")
                env["TF_CHAOS_BALLAST_MB"] = str(self._ballast_mb)
        if self._has_metrics:
            self.metrics_ports[spec.name] = free_port()
            env["SIGNALBOX_METRICS_PORT"] = str(self.metrics_ports[spec.name])
        if space is not None:
            argv = (*space.prefix, *argv)
        return await super().start(spec._replace(env=env, argv=argv, ready=ready))

    def _is_this_life_ready(self, name: str) -> Callable[[], Awaitable[bool]]:
        """Presence outlives a killed worker for some seconds: that of an earlier life does not count."""

        async def ready() -> bool:
            bucket = Bucket.WORKERS
            try:
                found = await self.bus.leader_get(bucket.stream, key(bucket, token(name)))
                worker = decode(Worker, found.data) if found is not None else None
            except (SignalboxError, msgspec.MsgspecError):
                return False
            return worker is not None and (worker.pid, worker.state) == (self.child(name).pid, "ready")

        return ready

    async def end(self) -> None:
        """Stop everything, in order."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.calm()
        await self.stop()
        await self.end_nats()
        self._keep_secrets()
        self.faults.close()

    def _keep_secrets(self) -> None:
        """Beside the history, so that its logs can be judged again. They open nothing: the stack is gone."""
        files = (path for path in self.data.path.glob("secrets/*") if path.is_file())
        known = self.secrets | {path.name: path.read_text().strip() for path in files}
        path = self.history.parent / SECRETS
        path.touch(mode=0o600)
        path.write_bytes(msgspec.json.encode(known))

    async def publish_models(self) -> None:
        """As the console publishes them."""
        await self.add_model("half", models.half_plus_two(), floats(), limits=self._limits)
        await self.add_model(self.slow, models.slow(), floats("seconds"), limits=self._limits)

    async def add_key(self, **fields: Any) -> str:
        """As the stack's; the key may stand in no log."""
        text = await super().add_key(**fields)
        self.secrets[f"the key of {fields.get('name')}"] = text
        return text

    # -- the programs ----------------------------------------------------------------------------------

    @property
    def workers(self) -> list[str]:
        """Names of all workers."""
        return [c.spec.name for c in self.children if c.spec.name.startswith("worker-")]

    def pid_of(self, name: str) -> int:
        """Process id of a program, 0 while it does not run."""
        return self.child(name).pid

    def is_settled(self) -> bool:
        """Whether every device has a holder whose runner is inside, with all of its memory."""
        holders = [str(held["owner"]) for held in self.recorder.holders.values()]
        return (
            len(holders) == (len(self.options.devices) if self.workers else 0)
            and self.are_inside()
            and all(resident_bytes(self.runner_of(name)) >= self._ballast_mb << 20 for name in holders)
        )

    async def bring_back(self, name: str) -> None:
        """A dead program is started again until it is ready; a start that meets another fault is repeated."""
        child = self.child(name)
        if name in self.coming_back or self.pids().get(name):
            await self.until(lambda: name not in self.coming_back, limit_s=300, what=f"{name} back")
            return
        self.coming_back.add(name)
        try:
            for _ in range(10):
                try:
                    await child.start()
                except Unavailable as error:
                    self.said.append(error.public_message)
                    if child.pid:
                        await self.kill(name)
                    await asyncio.sleep(0.2)
                else:
                    return
        finally:
            self.coming_back.discard(name)
        raise AssertionError(f"{name} does not start: {child.tail()}")

    async def supervise(self) -> None:
        """Start ended programs again, whatever ended them, as ``signalbox up`` does."""
        while self._bus is not None:
            await asyncio.sleep(KEEP_S)
            for child in self.children:
                if not child.pid and child.spec.name not in self.coming_back:
                    self.ended.append(child.spec.name)
                    self.background(self.bring_back(child.spec.name))


@asynccontextmanager
async def rig(folder: Path, *, workers: int, **options: Any) -> AsyncIterator[Rig]:
    """A rig that is up: NATS, the front and ``workers`` workers on one GPU.

    disk_mb: NATS' disk is so small. has_disks: every node has a disk whose power can be cut. is_networked: the packets
    of worker 1 can be lost.
    """
    history = folder / "history"
    history.mkdir(parents=True, exist_ok=True)
    is_networked, disk_mb = options.pop("is_networked", False), options.pop("disk_mb", 0)
    has_disks = options.pop("has_disks", False)
    with DataDir(folder / "data") as data, ExitStack() as spaces:
        made = Rig(data, history, **options)
        try:
            if is_networked:
                made.namespaces["worker-1"] = spaces.enter_context(Namespace(1))
            if disk_mb:
                made.disk = spaces.enter_context(SmallDisk(data.path / "nats-0", disk_mb))
            if has_disks:
                folders = [data.path / f"nats-{n}" for n in range(options.get("nodes", 1))]
                made.disks = [spaces.enter_context(Disk(folder)) for folder in folders]
            await made.start_nats()
            await made.start_edge()
            await asyncio.gather(*(made.start_worker(number + 1) for number in range(workers)))
            keeping = asyncio.create_task(made.supervise(), name="supervise")
            try:
                yield made
            finally:
                keeping.cancel()
                await asyncio.wait([keeping])
        finally:
            await made.end()
