"""Between and to the nodes of docker-compose.yml nothing is said in the clear, and certificates change under way."""

import asyncio
import contextlib
import json
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import certifi
import pytest

from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.ops.ports import HOST, free_port
from signalbox.program.errors import SignalboxError
from signalbox.wire.names import Bucket, key
from signalbox.wire.steering import Desired
from tests.conformance.programs import Program
from tests.integration.gateway_plugin.test_edge_nats_cluster import NODES, Cluster, cluster, tries
from tests.integration.signalbox.test_core_tls import refusal
from tests.rigs.natsserver import NatsServer

__all__ = ["cluster"]
ARRIVAL_S = 60.0
PAUSE_S = 0.05


def opened(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=ARRIVAL_S)


def greeting(found: socket.socket) -> Mapping[str, Any]:
    """The line in the clear that a server begins with to clients; nodes begin with the handshake."""
    line = b""
    while not line.endswith(b"\n"):
        piece = found.recv(1)
        assert piece, line
        line += piece
    said: Mapping[str, Any] = json.loads(line.removeprefix(b"INFO "))
    return said


def shown(cluster: Cluster, node: str, *, is_route: bool) -> int:
    """The serial number of the certificate that a node shows to clients, or to nodes as one of which we come."""
    context = ssl.create_default_context(cafile=str(cluster.secrets / "tls_ca"))
    found = opened((cluster.routes if is_route else cluster.ports)[node])
    if is_route:
        context.load_cert_chain(str(cluster.secrets / "tls" / node / "node.pem"))
    else:
        greeting(found)
    with context.wrap_socket(found, server_hostname=HOST) as sealed:
        return int(sealed.getpeercert()["serialNumber"], 16)  # type: ignore[index,arg-type]  # it was verified


async def test_a_client_that_does_not_encrypt_gets_nothing(cluster: Cluster) -> None:
    plain = cluster.url.replace("tls://", "nats://")
    asked = cluster.wire("admin", nats_url=plain, nats_ca_file="")
    assert "the server asks for TLS" in await refusal(asked)
    with opened(cluster.ports["nats-1"]) as found:
        assert greeting(found)["tls_required"]
        # and one that does not care is told nothing more
        found.sendall(b'CONNECT {"verbose":true}\r\nSUB > 1\r\nPING\r\n')
        assert b"PONG" not in await asyncio.to_thread(rest, found)


def rest(found: socket.socket) -> bytes:
    """What comes until the other end closes."""
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := found.recv(4096):
            answer += piece
    return answer


@pytest.mark.parametrize(("host", "ca_file"), [(HOST, certifi.where()), (HOST, ""), ("127.1", "tls_ca")])
async def test_a_node_of_another_authority_or_name_is_not_believed(cluster: Cluster, host: str, ca_file: str) -> None:
    url = f"tls://{host}:{cluster.ports['nats-1']}"
    known = str(cluster.secrets / ca_file) if ca_file else ""
    asked = cluster.wire("admin", nats_url=url, nats_ca_file=known)
    assert "certificate is refused" in await refusal(asked)


async def test_a_node_s_port_for_nodes_asks_for_a_certificate(cluster: Cluster) -> None:
    for port in cluster.routes.values():
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            await asyncio.to_thread(reads, port, cluster.secrets)


@pytest.mark.parametrize("is_sealed", [True, False])
async def test_a_fourth_node_does_not_join(cluster: Cluster, tmp_path: Path, *, is_sealed: bool) -> None:
    """Neither one that trusts ours and has no certificate, nor one that does not encrypt."""
    own, tls = free_port(), f'tls {{ ca_file: "{cluster.secrets / "tls_ca"}" }}, '
    fourth = NatsServer(
        tmp_path / "fourth",
        name="fourth",
        start_timeout_s=ARRIVAL_S,
        cluster=f'name: signalbox, listen: "{HOST}:{own}", {tls if is_sealed else ""}'
        f'routes: ["nats://{HOST}:{cluster.routes["nats-1"]}"]',
    )
    before = refused(cluster.nodes["nats-1"])
    async with fourth:
        await until(lambda: refused(cluster.nodes["nats-1"]) > before)
        assert not [line for line in fourth.tail if "Remote: nats-1" in line]


def refused(node: Program) -> int:
    """How often a node has broken off a handshake with who wanted to be one."""
    return sum("TLS route handshake error" in line for line in node.tail)


def reads(port: int, folder: Path) -> None:
    """Greets a node's route port as a node without a certificate would. Raises what the node answers with."""
    context = ssl.create_default_context(cafile=str(folder / "tls_ca"))
    with context.wrap_socket(opened(port), server_hostname=HOST) as sealed:
        sealed.recv(1)


@asynccontextmanager
async def writer(cluster: Cluster) -> AsyncIterator[list[str]]:
    """Writes without a pause; yields the names acknowledged so far. At the end each of them must be there."""
    bus = await Bus.connect(cluster.wire("admin"), role="admin")
    kept: list[str] = []

    async def write() -> None:
        number = 0
        while True:
            number += 1
            name = f"worker.w{number}"
            try:
                await put(bus, Bucket.DESIRED, name, Desired(actor="test"))
            except SignalboxError:
                await asyncio.sleep(PAUSE_S)  # a leader is elected
            else:
                kept.append(name)
                await asyncio.sleep(0.01)

    writing = asyncio.create_task(write())
    try:
        yield kept
        writing.cancel()
        await asyncio.wait([writing])
        # The leader is asked: another node may not have learned of what was acknowledged a moment ago.
        missing = [name for name in kept if not await bus.leader_get(Bucket.DESIRED.stream, key(Bucket.DESIRED, name))]
        assert not missing
    finally:
        writing.cancel()
        await asyncio.wait([writing])
        await bus.close()


async def until_more(kept: list[str], count: int = 10) -> None:
    goal = len(kept) + count
    await until(lambda: len(kept) >= goal)


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for what no event tells of: words in a log, other hands' writes, a server's next certificate."""
    async with asyncio.timeout(ARRIVAL_S):
        while not await asyncio.to_thread(is_so):  # noqa: ASYNC110  see above
            await asyncio.sleep(PAUSE_S)


def serials(cluster: Cluster) -> set[int]:
    """What every node shows to clients and to nodes."""
    return {shown(cluster, node, is_route=is_route) for node in NODES for is_route in (True, False)}


async def test_renewed_certificates_come_into_force_without_a_pause(cluster: Cluster) -> None:
    applied = await asyncio.to_thread(tries, cluster, "apply", "--replicas", "3")
    assert applied.returncode == 0, applied.stderr + applied.stdout
    old = await asyncio.to_thread(serials, cluster)
    assert len(old) == len(NODES)
    async with writer(cluster) as kept:
        await until_more(kept)
        await asyncio.to_thread(cluster.make_secrets, "--renew")
        routes = {name: ended(node) for name, node in cluster.nodes.items()}
        for node in cluster.nodes.values():
            node.signal(signal.SIGHUP)
        await until(lambda: not serials(cluster) & old)
        new = await asyncio.to_thread(serials, cluster)
        assert len(new) == len(NODES)
        await until_more(kept)
        # It cut off neither a node nor a program.
        assert {name: ended(node) for name, node in cluster.nodes.items()} == routes
        restarted = cluster.nodes["nats-2"]
        await asyncio.to_thread(restarted.stop)
        await until_more(kept)
        await asyncio.to_thread(restarted.start)
        assert shown(cluster, "nats-2", is_route=False) in new
        await until_more(kept)
        alone = f"tls://{HOST}:{cluster.ports['nats-2']}"
        bus = await Bus.connect(cluster.wire("admin", nats_url=alone), role="admin")
        await bus.flush()
        await bus.close()
    errors = [line for node in cluster.nodes.values() for line in node.tail if "x509" in line]
    assert not errors


def ended(node: Program) -> list[str]:
    """What a node said of routes to other nodes that ended."""
    return [line for line in node.tail if "Router connection closed" in line and "Remote:" in line]
