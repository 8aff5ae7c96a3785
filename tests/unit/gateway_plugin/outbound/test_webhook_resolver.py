"""A name whose lookup hangs costs its own receiver, and one thread."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from gateway_plugin.outbound.hooks.resolver import Resolver
from signalbox.program import egress
from signalbox.program.errors import InvalidRequest


async def test_a_name_that_hangs_keeps_one_thread_and_no_other_name() -> None:
    release = threading.Event()
    loop, hangs = asyncio.get_running_loop(), asyncio.Event()
    asked: list[str] = []

    def system(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        if host == "hangs.example.com":
            loop.call_soon_threadsafe(hangs.set)
            release.wait(20)
        return ["93.184.215.14"]

    resolver = Resolver(system)
    try:
        hanging = [asyncio.ensure_future(resolver("hangs.example.com", 443)) for _ in range(500)]
        await hangs.wait()
        target = await egress.resolve("https://well.example.com/", lookup=resolver)
        assert target.address == "93.184.215.14"
        assert asked == ["hangs.example.com", "well.example.com"]
        hanging[0].cancel()
        release.set()
        assert await hanging[1] == ["93.184.215.14"]
        await asyncio.gather(*hanging[1:])
    finally:
        release.set()
        resolver.close()


async def test_the_system_s_own_resolver_is_judged_like_any_other() -> None:
    resolver = Resolver()
    found = await resolver("localhost", 443)
    resolver.close()
    assert found
    for address in found:
        with pytest.raises(InvalidRequest):
            egress.check_address(address)


async def test_a_name_that_the_system_does_not_know_is_an_error_of_the_system() -> None:
    def system(host: str, port: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    resolver = Resolver(system)
    with pytest.raises(OSError, match="not known"):
        await resolver("gone.example.com", 443)
    resolver.close()
