"""A wire into a network namespace whose packets are lost and late, one by one, as ``netem`` would have it.

The kernels we had come without ``sch_netem``, and nft can drop a packet but not delay it. So the wire is two TUN
devices, and what one of them is given this program hands to the other: later, or never. The packets are the kernel's
own, on both ends: TCP sends again, waits longer each time, and sees some of them out of order.
"""

import asyncio
import fcntl
import os
import random
import shutil
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from verification.chaos.environment.namespace import Namespace, run

TUN: Final = Path("/dev/net/tun")
_TUNSETIFF: Final = 0x400454CA
_PLAIN_IP: Final = 0x1001
"""IFF_TUN | IFF_NO_PI: packets as they are."""
_PACKET_BYTES: Final = 65_536
_AT_ONCE: Final = 64
"""Packets handed over in one turn of the loop."""


def reason_against() -> str:
    """Why there can be no such wire here; empty where there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "ip not installed"
    return "" if TUN.exists() else f"the kernel has no {TUN}"


class LossyLink:
    """``with Link(n) as link``, in a running event loop. number: 1 to 255, unique while it exists on this machine.

    loss: share that is lost of the packets to the inside, and of those from it. jitter_s: each of the others is late by
    anything up to this.
    """

    def __init__(self, number: int, *, seed: int = 0) -> None:
        self.space = Namespace(number)
        self.heal()
        self.carried = self.lost = 0
        self._rng = random.Random(seed)
        self._ends: list[int] = []

    @property
    def outside(self) -> str:
        """Address of our end."""
        return self.space.outside

    @property
    def prefix(self) -> tuple[str, ...]:
        """What goes before a command so that it runs inside; its process id stays the same."""
        return self.space.prefix

    def __enter__(self) -> Self:
        space = self.space
        outer, inner = (f"{way}{os.getpid()}.{space.number}" for way in ("lo", "li"))
        self._ends = [_device(outer), _device(inner)]
        try:
            run("ip", "netns", "add", space.name)
            space.join(outer, inner)
        except BaseException:
            self.__exit__()
            raise
        loop = asyncio.get_running_loop()
        for way, (end, other) in enumerate((self._ends, self._ends[::-1])):
            loop.add_reader(end, self._carry, way, end, other)
        return self

    def __exit__(self, *_: object) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            asyncio.get_running_loop().remove_reader(end)
            os.close(end)  # and the device is gone
        subprocess.run(("ip", "netns", "del", self.space.name), check=False, capture_output=True, timeout=20)

    def heal(self) -> None:
        """Lose nothing and be on time."""
        self.loss, self.jitter_s = (0.0, 0.0), 0.0

    def _carry(self, way: int, end: int, other: int) -> None:
        """What came in at one end leaves at the other, or does not."""
        for _ in range(_AT_ONCE):
            try:
                packet = os.read(end, _PACKET_BYTES)
            except OSError:  # no more for now
                return
            self.carried += 1
            if self._rng.random() < self.loss[way]:
                self.lost += 1
                continue
            late_s = self._rng.uniform(0, self.jitter_s)
            asyncio.get_running_loop().call_later(late_s, self._deliver, other, packet)

    def _deliver(self, end: int, packet: bytes) -> None:
        if end in self._ends:
            with suppress(OSError):  # its side is down: lost after all
                os.write(end, packet)


def _device(name: str) -> int:
    """A TUN device of our own, which lives as long as this file is open."""
    file = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22s", name.encode(), _PLAIN_IP, b""))
    return file
