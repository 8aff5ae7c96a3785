"""Samples a running stack: disk, memory and files from /proc, streams and rows from the controller's metrics."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.rig.processes import cost, descendants
from signalbox.ops.httppool import ConnectionPool
from signalbox.program.errors import Misconfigured

SAMPLE_EVERY_S: Final = 10.0
_SUPERVISORS: Final = frozenset({"up", "production"})
"""What started the others: they have names of their own."""
_STREAMS: Final = "signalbox_stream_bytes"
_ROWS: Final = "signalbox_console_rows"
_DATABASE: Final = "signalbox_console_database_bytes"


class Site(NamedTuple):
    """A running stack, as its ``up.json`` tells. file: read anew for each sample, as programs are started again."""

    file: Path
    token: str

    def read(self) -> dict[str, Any]:
        """What it says now. Raises :class:`Misconfigured` where no controller's metrics are named."""
        if not self.file.is_file():
            raise Misconfigured(f"There is no {self.file}; does the stack run?")
        found: dict[str, Any] = json.loads(self.file.read_text())
        if "controller" not in found["metrics"]:
            raise Misconfigured("The stack serves no metrics: start it with SIGNALBOX_METRICS_PORT.")
        return found


async def keep_sampling(site: Site, samples: list[dict[str, float]]) -> None:
    """Add a sample to ``samples`` every :data:`SAMPLE_EVERY_S`, until cancelled."""
    while True:
        await asyncio.sleep(SAMPLE_EVERY_S)
        samples.append(await sample(site))


async def sample(site: Site) -> dict[str, float]:
    """Each figure as it is now, ``kind name``."""
    doc = site.read()
    found = await asyncio.to_thread(_of_machine, doc)
    return found | await _of_metrics(doc["metrics"]["controller"])


@asynccontextmanager
async def pool(url: str, timeout_s: float = 20.0) -> AsyncIterator[ConnectionPool]:
    """One connection, closed at the end."""
    opened = ConnectionPool(url, size=1, timeout_s=timeout_s)
    try:
        yield opened
    finally:
        await opened.close()


def _of_machine(doc: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {"disk of NATS": _disk_bytes(Path(doc["data"]))}
    for name, pid in doc["processes"].items():
        family = (pid, *(() if name in _SUPERVISORS else descendants(pid)))
        for each in family if pid else ():
            try:
                share = cost(each).pss_bytes  # PostgreSQL's processes share most of theirs
                files = sum(1 for _ in Path(f"/proc/{each}/fd").iterdir())
            except (FileNotFoundError, ProcessLookupError):
                continue
            found[f"memory {_one(name)}"] = found.get(f"memory {_one(name)}", 0) + share
            found[f"files {_one(name)}"] = found.get(f"files {_one(name)}", 0) + files
    return found


def _one(name: str) -> str:
    """The figure that a program counts for. Workers take turns at a device, and with it at TensorFlow's memory."""
    return "workers" if name.startswith("worker") else name


def _disk_bytes(data: Path) -> int:
    """What all stores of JetStream below ``data`` take, of every node; a file may go while it is looked at."""
    size = 0
    for store in data.rglob("jetstream"):
        for path in store.rglob("*"):
            try:
                size += path.stat().st_blocks * 512
            except FileNotFoundError:
                continue
    return size


async def _of_metrics(url: str) -> dict[str, float]:
    """Streams and rows, as the controller counts them every half minute."""
    base, _, path = url.partition("//")[2].partition("/")
    async with pool(f"http://{base}") as opened:
        text = (await opened.request("GET", f"/{path or 'metrics'}", b"", {})).body.decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == _STREAMS:
                found[f"stream {sample.labels['stream']}"] = sample.value
            elif sample.name == _ROWS:
                found[f"rows {sample.labels['table']}"] = sample.value
            elif sample.name == _DATABASE:
                found["database"] = sample.value
    return found
