"""Faults: named actions on a running stack, each of which ends when a condition holds, not after a time.

It says what it does, to whom, and what it measured. Those a run chooses from stand in
:mod:`verification.chaos.faults.catalogue` and, of a production stack, in :mod:`verification.chaos.faults.services`.
"""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, NamedTuple, TypeVar

from verification.chaos.rig.site import Site

W_contra = TypeVar("W_contra", bound=Site, contravariant=True)
Strike = Callable[[W_contra, random.Random], Awaitable[None]]
FENCE_S: Final = 15.0
"""From the last thing a holder was answered by NATS to its runner's end: promised."""
HELD_S: Final = 22.0
"""From a cut, or a stop, to another holder: promised."""
WIDE_S: Final = 120.0
"""What the law "bounds" allows a figure that has a promise besides, on however busy a machine."""


class Fault(NamedTuple, Generic[W_contra]):
    """One kind of harm. weight: how often a storm chooses it. about: to whom.

    why_not: why it is left out here, empty where it is not. is_silent: no caller is answered until it is over.
    """

    kind: str
    weight: int
    strike: Strike[W_contra]
    why_not: str = ""
    about: str = ""
    is_silent: bool = False

    @property
    def name(self) -> str:
        """As it is written down."""
        return f"{self.kind} {self.about}".strip()


@asynccontextmanager
async def struck(rig: Site, kind: str, target: str, **facts: Any) -> AsyncIterator[None]:
    """Writes down when a fault began and when it was over."""
    rig.faults.note(event="begin", kind=kind, target=target, **facts)
    try:
        yield
    finally:
        rig.faults.note(event="end", kind=kind, target=target)


def measured(rig: Site, kind: str, target: str, what: str, seconds: float, bound_s: float, **facts: float) -> None:
    """A figure and what it must not exceed. promised_s: what docs/guarantees.md promises of this very figure."""
    rig.faults.note(
        event="measured", kind=kind, target=target, what=what, s=round(seconds, 4), bound_s=bound_s, **facts
    )


async def a_holder(rig: Site) -> str:
    """A holder that runs, with another worker that is ready to take over and waits for the flock."""

    def is_there() -> bool:
        alive = running(rig)
        return rig.holder() in alive and any(rig.is_poised(name) for name in alive if name != rig.holder())

    await rig.until(is_there, limit_s=120, what="a holder and a standby that is ready")
    return rig.holder()


def running(rig: Site) -> list[str]:
    """Workers that are up."""
    return [n for n in rig.workers if rig.pid_of(n) and n not in rig.coming_back]


async def a_worker(rig: Site, rng: random.Random) -> str:
    """Any worker that runs while another does too."""
    await a_holder(rig)
    return rng.choice(running(rig))


async def pause(rig: Site, rng: random.Random, kind: str, pid: int) -> None:
    """SIGSTOP for less than the fence, then on."""
    async with struck(rig, kind, rig.holder() if "nats" not in kind else "all", pid=pid):
        if rig.signal(pid, signal.SIGSTOP):
            await asyncio.sleep(rng.uniform(0.2, 1.2))
            rig.signal(pid, signal.SIGCONT)
