"""The three-node NATS of docker-compose.yml, from its own file, as three real servers."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.ops.natsserver import binary
from signalbox.ops.ports import HOST, free_port
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from signalbox.wire.names import Bucket
from signalbox.wire.steering import Desired
from tests.conformance.programs import Program

ROOT = Path(__file__).resolve().parents[3]
NODES = ("nats-1", "nats-2", "nats-3")


class Cluster:
    """Three servers; they differ from compose in addresses and folders alone."""

    def __init__(self, folder: Path) -> None:
        self.ports = {name: free_port() for name in NODES}
        self.routes = routes = {name: free_port() for name in NODES}
        self.secrets = folder / "secrets"
        self.make_secrets()
        lines = (self.secrets / "nats.env").read_text().splitlines()
        passwords = dict(line.split("=", 1) for line in lines)
        self.nodes: dict[str, Program] = {}
        for name in NODES:
            text = (ROOT / "deploy" / "nats" / "nats.conf").read_text()
            text = text.replace("0.0.0.0:4222", f"{HOST}:{self.ports[name]}")
            text = text.replace("127.0.0.1:8222", f"{HOST}:{free_port()}")
            text = text.replace("0.0.0.0:6222", f"{HOST}:{routes[name]}")
            text = re.sub(r"//(nats-\d):6222", lambda m: f"//{HOST}:{routes[m[1]]}", text)
            text = text.replace('"/data"', f'"{folder / name}"')
            text = text.replace("/run/tls/", f"{self.secrets / 'tls' / name}/")
            text = text.replace("advertise: $HOSTNAME", f'advertise: "{HOST}:{routes[name]}"')
            home = folder / f"{name}-conf"
            home.mkdir()
            (home / "nats.conf").write_text(text)
            (home / "users.conf").write_text((ROOT / "deploy/nats/users.conf").read_text())
            self.nodes[name] = Program(
                [binary(), "-c", str(home / "nats.conf")], ready="Server is ready", env={**passwords, "HOSTNAME": name}
            )

    def make_secrets(self, *arguments: str) -> None:
        script = ROOT / "deploy" / "make_secrets.py"
        subprocess.run([sys.executable, script, "--folder", self.secrets, *arguments], check=True)

    @property
    def url(self) -> str:
        return ",".join(f"tls://{HOST}:{port}" for port in self.ports.values())

    def wire(self, role: str, **fields: object) -> Wire:
        password = (self.secrets / f"nats_{role}").read_text()
        known = {
            "nats_url": self.url,
            "nats_ca_file": str(self.secrets / "tls_ca"),
            "nats_user": role,
            "nats_password": password,
        }
        return Wire(**{**known, **fields})  # type: ignore[arg-type]

    def topology(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """``signalbox topology ...`` as compose runs it."""
        return subprocess.run(
            [sys.executable, "-m", "signalbox", "topology", *arguments],
            env={
                "PYTHONPATH": str(ROOT),
                "SIGNALBOX_NATS_URL": self.url,
                "SIGNALBOX_NATS_CA_FILE": str(self.secrets / "tls_ca"),
                "SIGNALBOX_NATS_USER": "admin",
                "SIGNALBOX_NATS_PASSWORD_FILE": str(self.secrets / "nats_admin"),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path)
    async with AsyncExitStack() as stack:
        for node in made.nodes.values():
            stack.enter_context(node)
        yield made


async def test_three_nodes_take_the_topology_and_outlive_the_loss_of_one(cluster: Cluster) -> None:
    applied = await asyncio.to_thread(tries, cluster, "apply", "--replicas", "3")
    assert applied.returncode == 0, applied.stderr + applied.stdout
    async with AsyncExitStack() as stack:
        for role in ("gateway", "worker-1", "console"):
            bus = await Bus.connect(cluster.wire(role), role=role.split("-")[0])
            stack.push_async_callback(bus.close)
            await topology.require(bus)
        admin = await Bus.connect(cluster.wire("admin"), role="admin")
        stack.push_async_callback(admin.close)
        info = await admin.request_json("$JS.API.STREAM.INFO.JOBS")
        assert info["config"]["num_replicas"] == 3
        assert len(info["cluster"]["replicas"]) == 2
        cluster.nodes["nats-2"].kill()
        async with asyncio.timeout(60):
            while not await writes(admin):  # noqa: ASYNC110  no event tells of an election
                await asyncio.sleep(0.2)
    checked = await asyncio.to_thread(tries, cluster, "check")
    assert checked.returncode == 0, checked.stderr + checked.stdout


async def test_role_with_another_role_s_password_is_refused(cluster: Cluster) -> None:
    password = (cluster.secrets / "nats_gateway").read_text()
    stranger = cluster.wire("worker-1", nats_password=password)
    with pytest.raises(SignalboxError):
        await Bus.connect(stranger, role="worker")


def tries(cluster: Cluster, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Until the cluster has its leaders again, as compose's restart on failure does."""
    for _ in range(20):
        if cluster.topology(*arguments).returncode == 0:
            break
    return cluster.topology(*arguments)


async def writes(bus: Bus) -> bool:
    try:
        await put(bus, Bucket.DESIRED, "worker.w1", Desired(actor="test"))
    except SignalboxError:
        return False
    return True
