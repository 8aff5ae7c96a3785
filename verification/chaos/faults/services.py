"""Faults of the services of a production stack. Each returns when nothing hinders any more."""

import asyncio
import random
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.rigs.outage import becomes
from verification.chaos.environment import namespace
from verification.chaos.evidence.journal import now
from verification.chaos.faults import workers
from verification.chaos.faults.fault import Fault, Strike
from verification.chaos.faults.holder import Holder
from verification.chaos.rig.composed import ONCE, Production

STOPPED_S: Final = 12.0
"""NATS elects another leader within this (4 to 9 s)."""
CUT_S: Final = 12.0
FENCED_S: Final = 24.0
"""A worker that is cut off or stopped: its fence, and another holder."""
MINUTE_S: Final = 60.0
HOST_S: Final = 30.0
FRONT: Final = "tyk"
CONSOLE: Final = ("console", "projector", "controller")
WAYS: Final = ("in", "out", "both")

Act = Strike[Production]


def catalogue(stack: Production) -> Sequence[Fault[Production]]:
    """Every one, those that cannot be done here with the reason."""
    lasting = [name for name in stack.services if name not in ONCE]
    plugins = _plugins(stack)
    no_filter = namespace.reason_against()
    unseen = "" if stack.doc.get("intervals") else "its workers keep no intervals"
    rows: list[tuple[str, str, Act, str]] = [
        *(("kill", name, _kill(name), "") for name in lasting),
        *(("stop", name, _stop(name), "") for name in lasting),
        *(
            (f"cut {way}", f"{one} from {who}", _cut(one, others, way), no_filter)
            for one, who, others in links(stack)
            for way in WAYS
        ),
        *(
            ("refuse", f"{one} from {who}", _refuse(one, others), no_filter)
            for one, who, others in links(stack)
            if who == "nats"
        ),
        *(("lossy", name, _lossy(name), no_filter) for name in (*stack.workers, *plugins)),
        ("away", "nats", _away, no_filter),
        ("host gone", "console", _host_gone, no_filter),
        *(("restart", name, _restart(name), "") for name in ("postgres", "redis")),
        ("lose", "postgres", _lose_postgres, ""),
        ("lose", "redis", _lose_redis, ""),
        *(("roll", name, _restart(name), "") for name in (FRONT, *plugins)),
        *((kind, "", _of_storm(strike), "") for kind, strike in STORM.items()),
        ("freeze successor", "", _of_storm(workers.freeze_successor), unseen),
        ("latency", "", _kill(""), "the kernel has no netem here"),
    ]
    silent = {("kill", FRONT), ("stop", FRONT), ("roll", FRONT), *(("stop", name) for name in plugins)}
    return [
        Fault(kind, 1, act, why_not, about=about, is_silent=(kind, about) in silent)
        for kind, about, act, why_not in rows
    ]


STORM: Final[dict[str, Strike[Production]]] = {
    "kill supervisor": workers.kill_supervisor,
    "kill standby": workers.kill_standby,
    "kill guard": workers.kill_guard,
    "kill runner": workers.kill_runner,
    "pause supervisor": workers.pause_supervisor,
    "pause runner": workers.pause_runner,
    "freeze guard": workers.freeze_guard,
    "roll worker": workers.roll_worker,
    "ask release": workers.ask_release,
    "delete lease": workers.delete_lease,
}
"""The storm's own faults of workers, by the same code."""


def links(stack: Production) -> list[tuple[str, str, tuple[str, ...]]]:
    """Who talks to whom: one end, the other's name, and who that is."""
    plugins, nodes = _plugins(stack), stack.nodes
    found: list[tuple[str, str, tuple[str, ...]]] = []
    found += [("tyk", name, (name,)) for name in (*plugins, "redis")]
    found += [(name, "nats", nodes) for name in (*plugins, *stack.workers, *CONSOLE)]
    found += [(name, "postgres", ("postgres",)) for name in CONSOLE]
    found += [(node, "the other nodes", tuple(other for other in nodes if other != node)) for node in nodes]
    return found


def _plugins(stack: Production) -> tuple[str, ...]:
    return tuple(name for name in stack.services if name.startswith("plugin-"))


# -- processes ---------------------------------------------------------------------------------------


def _kill(name: str) -> Act:
    async def act(stack: Production, _rng: random.Random) -> None:
        watch = Holder(stack, name)
        await stack.kill(name)
        await watch.moved(since=now())
        await stack.until(lambda: bool(stack.pid_of(name)), what=f"{name} started again")

    return act


def _restart(name: str) -> Act:
    """SIGTERM, as for a deployment."""

    async def act(stack: Production, _rng: random.Random) -> None:
        await stack.end(name, signal.SIGINT if name == "postgres" else signal.SIGTERM)
        await stack.until(lambda: bool(stack.pid_of(name)), what=f"{name} started again")

    return act


def _stop(name: str) -> Act:
    """SIGSTOP to all of a service's processes that are not a worker's runner, then on."""

    async def act(stack: Production, _rng: random.Random) -> None:
        watch, pid, began = Holder(stack, name), stack.pid_of(name), now()
        stack.signal(pid, signal.SIGSTOP)
        try:
            await watch.fenced(began)
            await _last(began, FENCED_S if watch.is_holder else STOPPED_S)
        finally:
            stack.signal(pid, signal.SIGCONT)

    return act


def _of_storm(strike: Strike[Production]) -> Act:
    async def act(stack: Production, rng: random.Random) -> None:
        await strike(stack, rng)
        while stack.tasks:
            await asyncio.wait(stack.tasks)

    return act


# -- the network -------------------------------------------------------------------------------------


def _cut(one: str, others: Sequence[str], way: str) -> Act:
    async def act(stack: Production, _rng: random.Random) -> None:
        watch, began = Holder(stack, one), now()
        async with _severed(stack, (one,), others, way):
            await watch.fenced(began)
            await _last(began, FENCED_S if watch.is_holder else CUT_S)

    return act


@asynccontextmanager
async def _severed(stack: Production, ours: Sequence[str], theirs: Sequence[str], way: str) -> AsyncIterator[None]:
    """What one side sends does not reach the other. A packet is dropped where it arrives: who sent it is not told."""
    ends = [(ours, theirs)] if way == "in" else [(theirs, ours)]
    if way == "both":
        ends.append((ours, theirs))
    deaf = {name: stack.addresses(*senders) for receivers, senders in ends for name in receivers}

    def cut() -> None:
        for name, addresses in deaf.items():
            stack.filter(name).drop(incoming="all", peers=addresses)

    def heal() -> None:
        for name in deaf:
            stack.filter(name).heal()

    try:
        await asyncio.to_thread(cut)
        yield
    finally:
        await asyncio.to_thread(heal)


def _refuse(one: str, others: Sequence[str]) -> Act:
    """RST on every connection, and on every new one for a moment."""

    async def act(stack: Production, rng: random.Random) -> None:
        await asyncio.to_thread(stack.filter(one).refuse, stack.addresses(*others))
        try:
            await asyncio.sleep(rng.uniform(0.5, 3.0))
        finally:
            await asyncio.to_thread(stack.filter(one).heal)

    return act


def _lossy(name: str) -> Act:
    """Three packets in ten that it is sent are lost."""

    async def act(stack: Production, _rng: random.Random) -> None:
        await asyncio.to_thread(stack.filter(name).drop, incoming="30")
        try:
            await asyncio.sleep(CUT_S)
        finally:
            await asyncio.to_thread(stack.filter(name).heal)

    return act


async def _away(stack: Production, _rng: random.Random) -> None:
    """The machine of the node that leads the queue is unplugged for a minute."""
    node = await stack.leader_name("JOBS")
    assert node in stack.nodes, f"JOBS is led by {node!r}"
    async with _severed(stack, (node,), _but(stack, (node,)), "both"):
        await asyncio.to_thread(stack.filter(node).drop, incoming="all")  # nor do we reach it
        await asyncio.sleep(MINUTE_S)


async def _host_gone(stack: Production, _rng: random.Random) -> None:
    """The machine with the console, its programs and its database is unplugged; they go on reaching each other."""
    host = (*CONSOLE, "postgres")
    async with _severed(stack, host, _but(stack, host), "both"):
        await asyncio.sleep(HOST_S)


def _but(stack: Production, names: Sequence[str]) -> list[str]:
    """All other services that last."""
    return [name for name in stack.services if name not in names and name not in ONCE]


# -- data --------------------------------------------------------------------------------------------


async def _lose_redis(stack: Production, _rng: random.Random) -> None:
    """Its volume is empty when it starts again: quotas begin anew, nothing else was in it."""
    await _lose(stack, "redis", "redis")


async def _lose_postgres(stack: Production, rng: random.Random) -> None:
    """Its volume is empty when it starts again; ``docker compose up`` then runs the bootstrap once more."""
    await _lose(stack, "postgres", "postgres")

    async def is_made() -> bool:
        try:
            await stack.beside("controller", "python", "-m", "console", "bootstrap")
        except (AssertionError, OSError) as error:
            stack.faults.note(event="said", text=str(error)[-300:])
            await asyncio.sleep(1.0)
            return False
        return True

    await becomes(is_made, limit_s=120)
    stack.faults.note(event="lost", what="the console's database")
    key = await stack.operator.add_key(f"after-{rng.randrange(10**9)}")
    stack.secrets[f"a key made after the loss {len(stack.secrets)}"] = key


async def _lose(stack: Production, name: str, volume: str) -> None:
    stack.signal(stack.pid_of(name), signal.SIGSTOP)  # or it would write what is removed
    await asyncio.to_thread(_empty, stack.volume(volume))
    await stack.kill(name)
    await stack.until(lambda: bool(stack.pid_of(name)), what=f"{name} started again")


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


async def _last(began: float, seconds: float) -> None:
    """Returns when so long has passed since ``began``."""
    await asyncio.sleep(max(0.0, began + seconds - now()))
