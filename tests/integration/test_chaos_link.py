"""The wire that loses packets loses as many as it is told to, each way, and delays the others."""

import asyncio
import socket
import sys
import time
from collections.abc import Iterator

import pytest

from verification.chaos.environment import link
from verification.chaos.environment.link import LossyLink

PACKETS = 400
ECHO = """
import socket, sys
inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
inside.bind((sys.argv[1], 9))
print("ready", flush=True)
while True:
    data, sender = inside.recvfrom(64)
    inside.sendto(data, sender)
"""


@pytest.fixture
def outside() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setblocking(False)
        yield made


async def echoed(wire: LossyLink, outside: socket.socket) -> list[float]:
    """How long each packet took to the inside and back, of those that did."""
    echo = await asyncio.create_subprocess_exec(
        *wire.prefix, sys.executable, "-c", ECHO, wire.space.inside, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert echo.stdout is not None
        assert await echo.stdout.readline() == b"ready\n"
        took: list[float] = []
        sent: dict[bytes, float] = {}
        loop = asyncio.get_running_loop()

        def answered() -> None:
            data = outside.recv(64)
            took.append(time.monotonic() - sent[data])

        loop.add_reader(outside, answered)
        for number in range(PACKETS):
            data = str(number).encode()
            sent[data] = time.monotonic()
            outside.sendto(data, (wire.space.inside, 9))
            await asyncio.sleep(0.002)
        await asyncio.sleep(2 * wire.jitter_s + 0.2)
        loop.remove_reader(outside)
        return took
    finally:
        echo.kill()
        await echo.wait()


async def test_a_share_of_the_packets_is_lost_and_the_others_are_late(outside: socket.socket) -> None:
    if why := link.reason_against():
        pytest.skip(why)
    with LossyLink(3, seed=1) as wire:
        assert len(await echoed(wire, outside)) == PACKETS
        wire.loss, wire.jitter_s = (0.3, 0.3), 0.2
        took = await echoed(wire, outside)
        assert 0.39 * PACKETS < len(took) < 0.59 * PACKETS  # 0.7 of 0.7
        assert 0.15 < sum(took) / len(took) < 0.25  # half of 0.2 there, half of it back
        assert wire.lost > 0
        wire.heal()
        assert len(await echoed(wire, outside)) == PACKETS
