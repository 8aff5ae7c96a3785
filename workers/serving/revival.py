"""The generations of the runner under one lease: which one a batch runs in, and one restart for each that died."""

import asyncio

from signalbox.program.errors import LeaseLost
from workers.residency.versions import ResidentVersions
from workers.runner.link import RunnerLink


class Revival:
    """Restarts the runner, once for all tasks that met the same death. generation: the number of the present one."""

    def __init__(self, runner: RunnerLink, residency: ResidentVersions) -> None:
        self.generation = 0
        self._runner = runner
        self._residency = residency
        self._ended_by_us = -1
        self._one_at_a_time = asyncio.Lock()

    def is_ended_by_us(self, generation: int) -> bool:
        """Whether this worker has ended that runner itself."""
        return generation == self._ended_by_us

    async def admitted(self) -> None:
        """Wait for a runner inside the device, where one is being replaced. Raises :class:`LeaseLost`."""
        if not self._runner.entered.is_set():
            self._residency.forget()
            await self._runner.entered.wait()  # bounded by the lease: its loss wakes all tasks that wait
            if not self._runner.token:
                raise LeaseLost("The lease was lost while the runner was replaced.")

    async def after(self, generation: int) -> None:
        """Return when a later runner than that is there. Raises :class:`LeaseLost`."""
        async with self._one_at_a_time:
            if generation == self.generation:
                self._residency.forget()
                await self._runner.restart()
                self.generation += 1

    async def renew(self) -> None:
        """Replace the runner by a fresh one; what ran in it is not at fault. Raises :class:`LeaseLost`."""
        self._ended_by_us = self.generation
        await self.after(self.generation)

    def kill(self) -> None:
        """End the present runner; what ran in it is not at fault."""
        self._ended_by_us = self.generation
        self._runner.kill()
