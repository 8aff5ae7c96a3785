"""Faults: named actions on a running stack, each of which ends when a condition holds, not after a time.

It says what it does, to whom, and what it measured. Those a storm chooses from stand in
:func:`verification.chaos.faults.catalogue.catalogue`.
"""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from verification.chaos.rig.site import Site

W_contra = TypeVar("W_contra", bound=Site, contravariant=True)
Strike = Callable[[W_contra, random.Random], Awaitable[None]]


class Fault(NamedTuple, Generic[W_contra]):
    """One kind of harm. weight: how often it is chosen. why_not: why it is left out here, empty where it is not."""

    kind: str
    weight: int
    strike: Strike[W_contra]
    why_not: str = ""


@asynccontextmanager
async def struck(rig: Site, kind: str, target: str, **facts: Any) -> AsyncIterator[None]:
    """Writes down when a fault began and when it was over."""
    rig.faults.note(event="begin", kind=kind, target=target, **facts)
    try:
        yield
    finally:
        rig.faults.note(event="end", kind=kind, target=target)


def measured(rig: Site, kind: str, target: str, what: str, seconds: float, bound_s: float, **facts: float) -> None:
    """A figure and what it must not exceed."""
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
