"""The lease handle: what a worker that holds a device may ask and do until it gives the device up."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from workers.device.foreign import Watch
from workers.runner.link import RunnerLink


class HeldDevice(Protocol):
    """What a lease handle needs of its leased device."""

    @property
    def may_begin(self) -> bool:
        """Whether its lease handle lets something begin."""

    def release(self, handle: "LeaseHandle") -> None:
        """Begin to give the device up, if ``handle`` is the present one."""


class LeaseHandle:
    """The lease of one device, from its acquisition to its release or loss.

    token: fencing token, for every record written meanwhile. lost: set when the lease is lost and the runner is dead
    or dying: abandon the work. yield_asked: set when another worker waits and the quantum is over or this worker is
    idle: finish the batch and :meth:`release`. on_change: called when ``may_begin`` or ``may_load`` has changed.
    """

    def __init__(self, device: HeldDevice, *, token: int, gpu: str, runner: RunnerLink, watch: Watch) -> None:
        self.token = token
        self.gpu = gpu
        self.runner = runner
        self.lost = asyncio.Event()
        self.yield_asked = asyncio.Event()
        self.ended = asyncio.Event()
        self.on_change: Callable[[], None] | None = None
        self._device, self._watch = device, watch

    @property
    def may_begin(self) -> bool:
        """Whether work may begin: not where no heartbeat was confirmed for half of the fence. What runs goes on.

        Nor where the whole fence has passed unnoticed, as the process or its machine slept.
        """
        return self._device.may_begin

    def may_load(self) -> bool:
        """Whether a version may be loaded: not where a foreign process computes on the GPU. What is loaded may run."""
        return not self._watch.pids

    async def release(self) -> None:
        """Give the GPU to the first waiter; returns when this runner is out of the device. Idempotent."""
        self._device.release(self)
        await self.ended.wait()
