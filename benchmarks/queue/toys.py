"""The stack of the queue's benchmarks: NATS as ``signalbox up`` starts it, and workers whose runners are toys.

Everything of a worker is the real one but what computes, so that TensorFlow's time hides nothing.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.rig.processes import Cost, cost, descendants
from signalbox.bus import table
from signalbox.bus.client import Bus
from signalbox.ops import probes
from signalbox.ops.httppool import ConnectionPool
from signalbox.ops.ports import HOST, free_port
from signalbox.ops.up.child import Child
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import WORKER_READY_S, UpStack
from signalbox.program.settings import Wire
from signalbox.wire.modeldocs import Batching, Model, Signature, Version
from signalbox.wire.names import Bucket, Stream, token

PROGRAM: Final = "verification.chaos.rig.toyworker"
REPEATED: Final = "signalbox_worker_redelivered_total"
STORAGE_BYTES: Final = 48 * 2**30
"""What all streams may take; nothing of it is taken before it is needed."""


@asynccontextmanager
async def standing(folder: Path) -> AsyncIterator[UpStack]:
    """NATS with our streams, with room for a million jobs of some kilobytes in ``JOBS``."""
    options = UpOptions(data=folder, front_port=0, console_port=0, nats_port=0)
    with DataDir(folder) as data:
        data.write_json("storage.json", {"bytes": STORAGE_BYTES})  # where ``up`` keeps what it has chosen
        stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        try:
            await stack.start_nats()
            yield stack
        finally:
            await stack.stop()


async def limit_jobs(stack: UpStack, most: int) -> None:
    """Let ``JOBS`` take so many messages, -1 = any number. A worker starts only where it is as declared."""
    info = await stack.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
    await stack.bus.request_json(f"$JS.API.STREAM.UPDATE.{Stream.JOBS}", {**info["config"], "max_msgs": most})


async def connected(stack: UpStack) -> Bus:
    """A connection beside the stack's own."""
    password = stack.data.secret("nats_admin").read_text()
    wire = Wire(nats_url=stack.nats_url, nats_user="admin", nats_password=password)
    return await Bus.connect(wire, role="admin", name="bench")


async def register(
    stack: UpStack,
    models: Iterable[str],
    *,
    replicas: int = 1,
    max_batch: int = 32,
    signatures: Mapping[str, Signature] = MappingProxyType({}),
) -> None:
    """Put models where the console would; the toys know every name. signatures: for callers of the front."""
    path = str(stack.data.path)
    version = Version(version=1, path=path, size_bytes=1, joined=("serving_default",), signatures=dict(signatures))
    for name in models:
        doc = Model(
            name=name,
            versions=(version,),
            default_version=1,
            replicas=replicas,
            batching=Batching(max_size=max_batch, rows_independent=True),
        )
        await table.put(stack.bus, Bucket.MODELS, token(name), doc)


class ToyWorker:
    """One worker that runs. Made by :meth:`started`."""

    def __init__(self, child: Child, metrics: str) -> None:
        self.child = child
        self._metrics = metrics

    @classmethod
    async def started(
        cls, stack: UpStack, name: str, device: str = "cpu:0", settings: Mapping[str, str] = MappingProxyType({})
    ) -> "ToyWorker":
        """Return when it stands by."""
        port = free_port()
        env = {
            **stack.env("worker"),
            **settings,
            "SIGNALBOX_WORKER_ID": name,
            "SIGNALBOX_WORKER_DEVICE": device,
            "SIGNALBOX_WORKER_LOCK_DIR": str(stack.data.path / "locks"),
            "SIGNALBOX_METRICS_PORT": str(port),
        }
        ready = partial(probes.serves, stack.bus, name)
        spec = stack.spec(name, PROGRAM, env=env, ready=ready, ready_s=WORKER_READY_S)
        return cls(await stack.start(spec._replace(stop_s=20.0)), f"http://{HOST}:{port}")

    async def stopped(self, stack: UpStack) -> None:
        """End it."""
        await self.child.stop()
        stack.children.remove(self.child)

    async def counted(self) -> Counter[str]:
        """Its counters and sums of histograms now, over all models; those with an outcome by ``name outcome``."""
        async with ConnectionPool(self._metrics, size=1, timeout_s=20.0) as pool:
            text = (await pool.request("GET", "/metrics")).body.decode()
        found: Counter[str] = Counter()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.endswith(("_total", "_sum", "_count")):
                    outcome = sample.labels.get("outcome", "")
                    found[f"{sample.name} {outcome}".strip()] += int(sample.value)
        return found


def summed(counters: Sequence[Counter[str]]) -> Counter[str]:
    """All of them together."""
    return sum(counters, Counter())


def costs(stack: UpStack) -> dict[str, Cost]:
    """Every program of the stack, and by ``name/all`` what it has started."""
    found = {}
    for name, pid in stack.pids().items():
        found[name] = cost(pid)
        below = [cost(each) for each in descendants(pid)]
        if below:
            cpu_s, rss, pss = (sum(each[n] for each in below) for n in (1, 2, 3))
            found[f"{name}/runner"] = Cost(below[0].pid, cpu_s, int(rss), int(pss))
    return found
