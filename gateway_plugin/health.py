"""Whether a running plugin serves: what a container's health check asks, a new process every few seconds.

So this imports nothing of the plugin but its settings, and gRPC, which the plugin itself does without, only to ask.
"""

from typing import Final

from gateway_plugin.settings import UNIX

HEALTH: Final = "/grpc.health.v1.Health/Check"
SERVING: Final = b"\x08\x01"
NOT_SERVING: Final = b"\x08\x02"


async def check_health(listen: str, timeout_s: float) -> bool:
    """Whether the server at ``listen`` says it serves."""
    import grpc.aio

    address = f"unix:{listen.removeprefix(UNIX)}" if listen.startswith(UNIX) else listen
    async with grpc.aio.insecure_channel(address) as channel:
        check = channel.unary_unary(HEALTH, request_serializer=bytes, response_deserializer=bytes)
        try:
            return bool(await check(b"", timeout=timeout_s) == SERVING)
        except grpc.aio.AioRpcError:
            return False
