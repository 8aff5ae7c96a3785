"""The edge's connection to a plugin in another process."""

import asyncio
from pathlib import Path

from gateway_plugin.edge.remote import remote_plugin
from gateway_plugin.proto.coprocess_pb2 import Object
from tests.rigs.hookserver import rig
from verification.chaos.environment.proxy import CALM, Proxy, Weather


async def test_a_plugin_that_takes_long_to_greet_is_waited_for(tmp_path: Path) -> None:
    """gRPC takes the least pause between two attempts for the time that one may take, too."""
    async with rig(tmp_path, "grpc", listen="127.0.0.1:0") as made:
        host, _, port = made.served.address.rpartition(":")
        async with Proxy((host, int(port))) as proxy, remote_plugin(f"{proxy.host}:{proxy.port}") as call:
            proxy.change(Weather(held=frozenset({"down"})))
            asyncio.get_running_loop().call_later(0.5, proxy.change, CALM)
            sent = Object(hook_name="SignalboxPost")
            sent.request.raw_body = b"hello"
            assert (await call(sent)).request.return_overrides.response_body == "hello"
