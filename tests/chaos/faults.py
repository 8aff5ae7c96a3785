"""Everything that is done to a running stack, as named objects that end when a condition holds, not a time.

A fault says what it does, to whom, and what it measured; :func:`catalogue` lists those this machine allows
and why the others are left out.
"""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

from signalbox import names
from signalbox.errors import SignalboxError
from signalbox.names import Bucket, Header
from tests.chaos import network
from tests.chaos.history import now
from tests.chaos.proxy import Weather
from tests.chaos.rig import Rig
from tests.outagerig import becomes
from tests.processes import is_alive

TAKEOVER_BOUND_S: Final = 20.0
"""In a storm: far above what is promised for one fault (1 s), far below what a broken fast path costs with others."""
FREEZE_BOUND_S: Final = 30.0
"""In a storm, where a holder may be frozen before its runner was let in: then the record's time to live counts."""
HEIR_BOUND_S: Final = 60.0
"""Time to live of the record, the flock's own deadline, and the start of another worker on a busy machine."""
Strike = Callable[[Rig, random.Random], Awaitable[None]]


class Fault(NamedTuple):
    """One kind of harm. weight: how often it is chosen. why_not: why it is left out here, empty where it is not."""

    kind: str
    weight: int
    strike: Strike
    why_not: str = ""


@asynccontextmanager
async def struck(rig: Rig, kind: str, target: str, **facts: Any) -> AsyncIterator[None]:
    """Writes down when a fault began and when it was over."""
    rig.faults.note(event="begin", kind=kind, target=target, **facts)
    try:
        yield
    finally:
        rig.faults.note(event="end", kind=kind, target=target)


def measured(rig: Rig, kind: str, target: str, what: str, seconds: float, bound_s: float) -> None:
    """A figure and what it must not exceed."""
    rig.faults.note(
        event="measured", kind=kind, target=target, what=what, s=round(seconds, 4), bound_s=bound_s
    )


# -- workers -----------------------------------------------------------------------------------------


async def a_holder(rig: Rig) -> str:
    """A holder that runs, with another worker that is ready to take over and waits for the flock."""

    def is_there() -> bool:
        alive = running(rig)
        return rig.holder() in alive and any(
            rig.is_poised(name) for name in alive if name != rig.holder()
        )

    await rig.until(is_there, limit_s=120, what="a holder and a standby that is ready")
    return rig.holder()


def running(rig: Rig) -> list[str]:
    """Workers that are up."""
    return [n for n in rig.workers if rig.child(n).pid and n not in rig.coming_back]


async def a_worker(rig: Rig, rng: random.Random) -> str:
    """Any worker that runs while another does too."""
    await a_holder(rig)
    return rng.choice(running(rig))


async def kill_supervisor(rig: Rig, rng: random.Random) -> None:
    """SIGKILL to whoever holds the GPU: somebody else holds it next."""
    name = await a_holder(rig)
    token = rig.newest_token()
    async with struck(rig, "kill supervisor", name):
        began = now()
        await rig.kill(name)
        rig.background(rig.bring_back(name))
        await rig.new_holder(token)
        measured(rig, "kill supervisor", name, "takeover", now() - began, TAKEOVER_BOUND_S)


async def kill_standby(rig: Rig, rng: random.Random) -> None:
    """SIGKILL to a worker that waits."""
    holder = await a_holder(rig)
    name = rng.choice([other for other in running(rig) if other != holder])
    async with struck(rig, "kill standby", name):
        await rig.kill(name)
        rig.background(rig.bring_back(name))


async def kill_guard(rig: Rig, rng: random.Random) -> None:
    """SIGKILL to a guard: its runner goes with it, the lease moves on or comes back."""
    name = await a_holder(rig)
    token, guard = rig.newest_token(), rig.guard_of(name)
    runner = rig.runner_of(name)
    async with struck(rig, "kill guard", name, pid=guard):
        began = now()
        if not rig.signal(guard, signal.SIGKILL):
            return
        if runner:
            await rig.until(lambda: not is_alive(runner), what="the runner's end")
            measured(rig, "kill guard", name, "runner dead", now() - began, TAKEOVER_BOUND_S)
        await rig.new_holder(token)


async def kill_runner(rig: Rig, rng: random.Random) -> None:
    """SIGKILL to the runner: guard and lease stay, another runner enters."""
    name = await a_holder(rig)
    runner = rig.runner_of(name)
    async with struck(rig, "kill runner", name, pid=runner):
        if not rig.signal(runner, signal.SIGKILL):
            return
        await rig.until(
            lambda: rig.runner_of(name) not in {0, runner} or not rig.child(name).pid,
            what="another runner",
        )


async def pause_supervisor(rig: Rig, rng: random.Random) -> None:
    """SIGSTOP for less than the fence: nothing may happen."""
    await _pause(rig, rng, "pause supervisor", rig.child(await a_holder(rig)).pid)


async def pause_runner(rig: Rig, rng: random.Random) -> None:
    """SIGSTOP to the runner in the middle of a batch, then on."""
    await _pause(rig, rng, "pause runner", rig.runner_of(await a_holder(rig)))


async def _pause(rig: Rig, rng: random.Random, kind: str, pid: int) -> None:
    async with struck(rig, kind, rig.holder() if "nats" not in kind else "all", pid=pid):
        if rig.signal(pid, signal.SIGSTOP):
            await asyncio.sleep(rng.uniform(0.2, 1.2))
            rig.signal(pid, signal.SIGCONT)


async def freeze_supervisor(rig: Rig, rng: random.Random) -> None:
    """SIGSTOP until its guard has killed its runner and another holds the GPU; then it thaws."""
    name = await a_holder(rig)
    token, pid, runner = rig.newest_token(), rig.child(name).pid, rig.runner_of(name)
    async with struck(rig, "freeze supervisor", name, pid=pid):
        began = now()
        rig.signal(pid, signal.SIGSTOP)
        try:
            if runner:
                await rig.until(
                    lambda: not is_alive(runner) or rig.newest_token() > token, what="the fence"
                )
                measured(rig, "freeze supervisor", name, "fenced", now() - began, FREEZE_BOUND_S)
            await rig.new_holder(token)
        finally:
            rig.signal(pid, signal.SIGCONT)


async def freeze_heir(rig: Rig, rng: random.Random) -> None:
    """The holder is killed and its heir frozen as soon as its record is there, often before its runner is inside.

    Another must be inside soon, although the frozen one's guard may have had the flock.
    """
    name = await a_holder(rig)
    token = rig.newest_token()
    async with struck(rig, "freeze heir", "all"):
        await rig.kill(name)
        rig.background(rig.bring_back(name))
        await rig.new_holder(token)
        heir, token = rig.holder(), rig.newest_token()
        if not heir:  # it has given it up again
            return
        pid, began = rig.child(heir).pid, now()
        rig.signal(pid, signal.SIGSTOP)
        try:
            await rig.until(lambda: rig.entered() > token, limit_s=90, what="another inside")
            measured(rig, "freeze heir", heir, "another inside", now() - began, HEIR_BOUND_S)
        finally:
            rig.signal(pid, signal.SIGCONT)


async def freeze_guard(rig: Rig, rng: random.Random) -> None:
    """SIGSTOP to a guard: its supervisor gets no answer and replaces it."""
    name = await a_holder(rig)
    guard = rig.guard_of(name)
    async with struck(rig, "freeze guard", name, pid=guard):
        began = now()
        if not rig.signal(guard, signal.SIGSTOP):
            return
        await rig.until(lambda: not is_alive(guard), what="the frozen guard's end")
        measured(rig, "freeze guard", name, "guard replaced", now() - began, TAKEOVER_BOUND_S)


async def roll_worker(rig: Rig, rng: random.Random) -> None:
    """SIGTERM: it drains, ends by itself with 0, and is started again, as a deployment does."""
    name = await a_worker(rig, rng)
    child = rig.child(name)
    pid = child.pid
    async with struck(rig, "roll worker", name, pid=pid):
        began = now()
        rig.signal(pid, signal.SIGTERM)
        await rig.until(lambda: child.pid != pid, what=f"{name}'s end after SIGTERM")
        measured(rig, "roll worker", name, "drained", now() - began, 60.0)
        rig.background(rig.bring_back(name))


async def ask_release(rig: Rig, rng: random.Random) -> None:
    """An operator asks the holder to hand over, and again while it does not: a core message may be lost."""
    name = await a_holder(rig)
    token = rig.newest_token()
    async with struck(rig, "ask release", name):
        began = now()
        while rig.newest_token() <= token:
            for gpu in list(rig.recorder.holders):
                await rig.bus.publish(names.ask_release(gpu))
            with suppress(AssertionError):
                await rig.new_holder(token, limit_s=2.0)
            if now() - began > 60:
                raise AssertionError(f"{name} does not hand over")


async def delete_lease(rig: Rig, rng: random.Random) -> None:
    """Somebody purges the lease key by hand: its holder is refused at its next heartbeat; the flock holds meanwhile."""
    name = await a_holder(rig)
    token, gpu = rig.newest_token(), next(iter(rig.recorder.holders))
    async with struck(rig, "delete lease", name):
        with suppress(SignalboxError):
            await rig.bus.write(
                names.key(Bucket.LEASES, names.token(gpu)),
                headers={Header.KV_OPERATION: "PURGE", Header.ROLLUP: "sub"},
            )
            await rig.new_holder(token)


# -- front and NATS ----------------------------------------------------------------------------------


async def kill_gateway(rig: Rig, rng: random.Random) -> None:
    """SIGKILL to the plugin with the edge inside; started again at once."""
    async with struck(rig, "kill gateway", "gateway"):
        if rig.child("gateway").pid:
            await rig.kill("gateway")
        await rig.bring_back("gateway")


async def pause_gateway(rig: Rig, rng: random.Random) -> None:
    """SIGSTOP for a moment."""
    pid = rig.child("gateway").pid
    async with struck(rig, "pause gateway", "gateway", pid=pid):
        if rig.signal(pid, signal.SIGSTOP):
            await asyncio.sleep(rng.uniform(0.2, 1.2))
            rig.signal(pid, signal.SIGCONT)


async def kill_nats(rig: Rig, rng: random.Random) -> None:
    """SIGKILL to a node, started again on what it had written."""
    node = rng.choice(rig.nodes)
    if len(rig.nodes) > 1:
        await becomes(rig.is_replicated, limit_s=120)
    async with struck(rig, "kill nats", "all", node=node.name):
        began = now()
        await node.kill()
        await asyncio.sleep(rng.choice((0.0, 0.0, 0.5, 2.0)))
        await rig.start_node(node)
        await rig.nats_serves()
        await rig.refresh()
        measured(rig, "kill nats", node.name, "serving again", now() - began, 60.0)


async def kill_leader(rig: Rig, rng: random.Random) -> None:
    """SIGKILL to the node that leads a stream, of three."""
    stream = rng.choice(("JOBS", "STATE", "KV_leases", "KV_waiters", "KV_keys"))
    await becomes(rig.is_replicated, limit_s=120)
    node = await rig.leader_of(stream)
    if node is None:
        return
    async with struck(rig, "kill leader", "all", node=node.name, stream=stream):
        began = now()
        await node.kill()
        await rig.nats_serves()
        measured(rig, "kill leader", stream, "another leader", now() - began, 60.0)
        await rig.start_node(node)
        await becomes(rig.is_replicated, limit_s=120)
        await rig.refresh()


async def pause_nats(rig: Rig, rng: random.Random) -> None:
    """SIGSTOP to a node: requests time out and may yet be carried out."""
    node = rng.choice(rig.nodes)
    await _pause(rig, rng, "pause nats", node.pid)
    await rig.nats_serves()
    await rig.refresh()


# -- the network, by proxy ---------------------------------------------------------------------------


async def somebody(rig: Rig, rng: random.Random) -> str:
    """The front or a worker, the holder most of the time."""
    choice = rng.random()
    if choice < 0.35:
        return "gateway"
    return await a_holder(rig) if choice < 0.8 else rng.choice(rig.workers)


async def reset(rig: Rig, rng: random.Random) -> None:
    """RST on every connection of one program."""
    name = await somebody(rig, rng)
    async with struck(rig, "reset", name):
        before = _connections(rig, name)
        for proxy in rig.proxies[name]:
            proxy.reset()
        await _reconnected(rig, name, before)


async def hang_up(rig: Rig, rng: random.Random) -> None:
    """FIN on every connection of one program."""
    name = await somebody(rig, rng)
    async with struck(rig, "hang up", name):
        before = _connections(rig, name)
        for proxy in rig.proxies[name]:
            proxy.hang_up()
        await _reconnected(rig, name, before)


async def refuse(rig: Rig, rng: random.Random) -> None:
    """RST, and no way back for a while."""
    name = await somebody(rig, rng)
    async with struck(rig, "refuse", name):
        rig.weather(name, Weather(is_refusing=True))
        before = _connections(rig, name)
        for proxy in rig.proxies[name]:
            proxy.reset()
        await _reconnected(rig, name, before + rng.randint(0, 3))  # so many tries are refused
        rig.weather(name, Weather())
        await _reconnected(rig, name, _connections(rig, name))


async def half_open(rig: Rig, rng: random.Random) -> None:
    """Nothing passes and nobody is told, until the program gives the connection up; what it sent may arrive then."""
    name = await somebody(rig, rng)
    is_late = rng.random() < 0.6
    async with struck(rig, "late delivery" if is_late else "half open", name):
        began = now()
        stranded = [proxy.strand() for proxy in rig.proxies[name]]
        await rig.until(
            lambda: all(s.is_given_up for s in stranded), what=f"{name} notices a dead connection"
        )
        measured(rig, "half open", name, "noticed", now() - began, 30.0)
        for each in stranded:
            if is_late:
                each.deliver_late()
            else:
                each.drop()


async def one_way(rig: Rig, rng: random.Random) -> None:
    """Bytes pass in one direction only, for a while."""
    name, way = await somebody(rig, rng), rng.choice(("up", "down"))
    async with struck(rig, f"one way {way}", name):
        rig.weather(name, Weather(held=frozenset({way})))  # type: ignore[arg-type]
        await asyncio.sleep(rng.uniform(0.3, 1.8))
        rig.weather(name, Weather())


async def latency(rig: Rig, rng: random.Random) -> None:
    """Every chunk is late, both ways, for a while."""
    name = await somebody(rig, rng)
    async with struck(rig, "latency", name):
        rig.weather(name, Weather(delay_s=rng.uniform(0.02, 0.3)))
        await asyncio.sleep(rng.uniform(0.3, 1.2))
        rig.weather(name, Weather())


async def partition(rig: Rig, rng: random.Random) -> None:
    """The holder is cut off until its guard has ended its runner and another holds the GPU."""
    name = await a_holder(rig)
    token, runner = rig.newest_token(), rig.runner_of(name)
    async with struck(rig, "partition", name):
        began = now()
        rig.weather(name, Weather(held=frozenset({"up", "down"}), is_deaf=True))
        try:
            if runner:
                await rig.until(
                    lambda: not is_alive(runner) or rig.newest_token() > token, what="the fence"
                )
                measured(rig, "partition", name, "fenced", now() - began, FREEZE_BOUND_S)
            await rig.new_holder(token)
        finally:
            rig.weather(name, Weather())
            for proxy in rig.proxies[name]:
                proxy.reset()


# -- the network, by the kernel ----------------------------------------------------------------------


async def drop_packets(rig: Rig, rng: random.Random) -> None:
    """The kernel drops packets of one worker: all of a direction, of both, or a share."""
    ((name, space),) = rig.namespaces.items()
    shares: tuple[tuple[str, str, str], ...] = (
        ("in", "all", ""), ("out", "", "all"), ("both ways", "all", "all"), ("some", "30", "30"),
    )  # fmt: skip
    what, incoming, outgoing = rng.choice(shares)
    async with struck(rig, f"packets lost {what}", name):
        space.drop(incoming=incoming, outgoing=outgoing)
        try:
            await asyncio.sleep(rng.uniform(0.3, 1.8))
        finally:
            space.heal()


def _connections(rig: Rig, name: str) -> int:
    return sum(proxy.connections for proxy in rig.proxies[name])


async def _reconnected(rig: Rig, name: str, before: int) -> None:
    """It has tried again, or is itself dead."""
    await rig.until(
        lambda: _connections(rig, name) > before or not rig.child(name).pid,
        what=f"{name} connects again",
    )


def catalogue(*, nodes: int) -> Sequence[Fault]:
    """Every kind, those that cannot be done here with the reason."""
    of_three = "" if nodes > 1 else "one node has no other to lead"
    return (
        Fault("kill supervisor", 14, kill_supervisor),
        Fault("kill standby", 4, kill_standby),
        Fault("kill guard", 6, kill_guard),
        Fault("kill runner", 6, kill_runner),
        Fault("pause supervisor", 6, pause_supervisor),
        Fault("pause runner", 5, pause_runner),
        Fault("freeze supervisor", 2, freeze_supervisor),
        Fault("freeze heir", 2, freeze_heir),
        Fault("freeze guard", 2, freeze_guard),
        Fault("roll worker", 4, roll_worker),
        Fault("ask release", 6, ask_release),
        Fault("delete lease", 5, delete_lease),
        Fault("kill gateway", 5, kill_gateway),
        Fault("pause gateway", 4, pause_gateway),
        Fault("kill nats", 5, kill_nats),
        Fault("kill leader", 6, kill_leader, of_three),
        Fault("pause nats", 4, pause_nats),
        Fault("reset", 8, reset),
        Fault("hang up", 5, hang_up),
        Fault("refuse", 4, refuse),
        Fault("half open", 4, half_open),
        Fault("one way", 6, one_way),
        Fault("latency", 5, latency),
        Fault("partition", 2, partition),
        Fault("packets lost", 5, drop_packets, network.reason_against()),
    )
