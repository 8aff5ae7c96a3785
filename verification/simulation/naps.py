"""Suspends machines and wakes them, drawn from a random stream of its own, so that a seed's other faults stay."""

import random
from typing import TYPE_CHECKING

from verification.simulation.hosts import Host
from verification.simulation.kernel import Machine
from verification.simulation.nats.link import Link

if TYPE_CHECKING:
    from verification.simulation.world import World

_LEAST_S, _LONGEST_S = 1.0, 90.0


class Naps:
    """All suspensions of one world. over_at: true time by which all machines are awake, later than the healing."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.chance = random.Random(f"naps {world.shape.seed}")
        self.over_at = 0.0
        self._is_heir_due = False

    def plan(self) -> None:
        """Draw none to three of them."""
        kinds = [self.suspend_machine, self.suspend_machine, self.suspend_heir]
        if self.world.shape.is_calm:
            kinds = [self.suspend_machine]
        for _ in range(self.chance.choice([0, 1, 1, 2, 3])):
            at_s = self.chance.uniform(0.5, self.world.shape.lull_s - 0.5)
            self.world.later(at_s, self.chance.choice(kinds))

    def suspend_machine(self) -> None:
        """Nothing on it runs; CLOCK_BOOTTIME goes on and CLOCK_MONOTONIC does not."""
        world = self.world
        hosts: list[Host] = [*world.gateways] if world.shape.is_calm else world.hosts
        self.suspend(self.chance.choice(hosts).machine, self._seconds(), "suspend_machine")

    def suspend_heir(self) -> None:
        """Suspend the machine of the next worker that gets a lease, before its runner enters or just after."""
        self._is_heir_due = True
        if self._on_held not in self.world.oracle.on_held:
            self.world.oracle.on_held.append(self._on_held)

    def _on_held(self, boot: str) -> None:
        if self._is_heir_due:
            self._is_heir_due = False
            machine = next(w.machine for w in self.world.workers if boot.startswith(f"{w.name}."))
            after_s = self.chance.choice([0.0, 0.01, 0.3]) * self.chance.random()
            self.world.later(after_s, self.suspend, machine, self._seconds(), "suspend_heir")

    def suspend(self, machine: Machine, seconds: float, name: str) -> None:
        """One nap. Each connection is kept, or its peer gives it up meanwhile, which is received on waking."""
        world = self.world
        if machine.is_asleep or world.loop.now >= world.shape.lull_s:
            return
        hosts = [host for host in world.hosts if host.machine is machine]
        world.note("FAULT suspend", machine=machine.name, seconds=round(seconds, 3))
        world.oracle.disturb(*(host.name for host in hosts))
        machine.suspend()
        for host in hosts:
            link = world.links.get(host.name)
            if link is not None and self.chance.random() < 0.5:
                world.later(self.chance.random() * seconds, self._give_up, machine, link)
        world.later(seconds, self._resume, machine, [host.name for host in hosts])
        self.over_at = max(self.over_at, world.loop.now + seconds)
        world.injected(name)

    def _give_up(self, machine: Machine, link: Link) -> None:
        if machine.is_asleep:
            link.cut()

    def _resume(self, machine: Machine, names: list[str]) -> None:
        self.world.note("resume", machine=machine.name)
        machine.resume()
        self.world.oracle.disturb(*names)

    def _seconds(self) -> float:
        """Shorter than a fence, about as long, or for most of two minutes."""
        fence_s = self.world.shape.rules.fence_s
        return self.chance.uniform(_LEAST_S, self.chance.choice([fence_s, fence_s * 2, _LONGEST_S]))
