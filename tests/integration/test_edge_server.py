"""The edge's own server: where it listens, how it ends, what its command says."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from gateway_plugin.edge.server import EdgeServer
from gateway_plugin.proto.coprocess_pb2 import HookType, Object
from signalbox.program.errors import Misconfigured

ROOT = Path(__file__).resolve().parents[2]


class Plugin:
    """Answers when it is let go."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.was_cancelled = False

    async def call(self, obj: Object) -> Object:
        if obj.hook_type == HookType.CustomKeyCheck:
            obj.session.metadata["token"] = "t"
            return obj
        self.asked.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        obj.request.return_overrides.response_code = 200
        obj.request.return_overrides.response_body = "done"
        return obj


async def test_a_request_in_flight_is_answered_before_the_end() -> None:
    plugin = Plugin()
    server = await EdgeServer.start(plugin.call, listen="127.0.0.1:0")
    async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=60) as client:
        asked = asyncio.create_task(client.get("/v1/x"))
        await asyncio.wait_for(plugin.asked.wait(), 60)
        closing = asyncio.create_task(server.close(5))
        with pytest.raises(httpx.ConnectError):
            async with httpx.AsyncClient() as late:
                await late.get(f"http://{server.address}/v1/x")
        plugin.go.set()
        answer = await asked
        await asyncio.wait_for(closing, 60)
    assert (answer.status_code, answer.text) == (200, "done")
    assert answer.headers["connection"] == "close"


async def test_request_that_outlasts_the_grace_is_cut() -> None:
    plugin = Plugin()
    server = await EdgeServer.start(plugin.call, listen="127.0.0.1:0")
    async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=60) as client:
        asked = asyncio.create_task(client.get("/v1/x"))
        await asyncio.wait_for(plugin.asked.wait(), 60)
        await asyncio.wait_for(server.close(0.1), 60)
        with pytest.raises(httpx.TransportError):
            await asked
    assert plugin.was_cancelled


async def test_idle_connections_do_not_hold_the_end_up() -> None:
    plugin = Plugin()
    server = await EdgeServer.start(plugin.call, listen="127.0.0.1:0")
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"http://{server.address}/hello")).status_code == 200
        await asyncio.wait_for(server.close(600), 60)


@pytest.mark.parametrize("listen", ["8080", "127.0.0.1:http", "127.0.0.1:1:2"])
async def test_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(Misconfigured):
        await EdgeServer.start(Plugin().call, listen=listen)


async def test_taken_port_is_said_so() -> None:
    first = await EdgeServer.start(Plugin().call, listen="127.0.0.1:0")
    with pytest.raises(Misconfigured, match=first.address):
        await EdgeServer.start(Plugin().call, listen=first.address)
    await first.close(0)


def test_command_shows_its_settings_and_refuses_wrong_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gateway_plugin.edge", "--listen", "127.0.0.1:7", "--check-config"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert "SIGNALBOX_EDGE_LISTEN=127.0.0.1:7" in shown.stdout.splitlines()
    refused = subprocess.run(
        [*command, "--files", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert refused.returncode == 2
    assert "tyk.conf" in refused.stderr


def test_more_connections_than_open_files_are_refused_at_start() -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "gateway_plugin.edge", "--listen", "127.0.0.1:0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "SIGNALBOX_EDGE_HTTP_CONNECTIONS": "2000000000"},
    )
    assert refused.returncode == 2
    assert "SIGNALBOX_EDGE_HTTP_CONNECTIONS" in refused.stderr
    assert "ulimit -n" in refused.stderr
