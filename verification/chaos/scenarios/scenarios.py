"""The figures that a storm does not give: one fault each, again and again, on an otherwise healthy stack.

``python -m verification.chaos takeover|freeze|revoke --rounds N``, and those of the modules ``outages``, ``runs`` and
``split``. Every program has its default settings, but for the quantum of the last: what is measured here is what is
promised. Each ends with the laws over its history, which holds what the scenario itself found wrong
(:meth:`verification.chaos.rig.rig.Rig.finding`).
"""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from signalbox.bus import table
from signalbox.wire.messages import ApiKey, decode
from signalbox.wire.names import Bucket, key
from tests.rigs import models
from tests.rigs.outage import becomes, floats
from tests.rigs.processes import gone, is_alive, resident_bytes
from verification.chaos.environment.proxy import CUT, Weather
from verification.chaos.evidence.history import History
from verification.chaos.evidence.journal import Journal, now
from verification.chaos.faults.fault import a_holder, measured, struck
from verification.chaos.laws import checks
from verification.chaos.laws.checks import Violation
from verification.chaos.rig.rig import Rig, rig
from verification.chaos.scenarios import outages, runs, soak, split
from verification.chaos.scenarios.outages import FENCE_S, SERVING_BOUND_S
from verification.chaos.scenarios.scene import say, settled
from verification.chaos.traffic.clients import Tenant

BALLAST_MB: Final = 2048
TAKEOVER_S: Final = (0.150, 1.0)
"""p50 and p99 from SIGKILL to the new holder's record."""
REVOKED_S: Final = 1.0
ACCEPTING_S: Final = 10.0
"""Longest time without an accepted job when one node of three is away."""
DEVICES: Final = tuple(f"cpu:{number}" for number in range(6))


async def takeover(folder: Path, rounds: int, seed: int) -> None:
    """SIGKILL to the supervisor that holds the GPU, its runner 2 GB resident, until another's record is there."""
    async with rig(folder, workers=3, engine="toy", ballast_mb=BALLAST_MB) as made:
        for number in range(rounds):
            name = await a_holder(made)
            runner, token = made.runner_of(name), made.newest_token()
            if resident_bytes(runner) < BALLAST_MB << 20:
                raise AssertionError(f"the runner of {name} is not resident")
            # At any time in a heartbeat: for half a second after a change no worker can prove the new holder dead.
            await asyncio.sleep(random.Random(seed + number).uniform(0, 2.0))
            async with struck(made, "kill supervisor", name):
                made.signal(made.child(name).pid, signal.SIGKILL)
                freed, held = await asyncio.gather(_seconds(gone(runner, 30.0)), _seconds(made.new_holder(token)))
            for what, seconds in (
                ("SIGKILL to new holder", held),
                ("SIGKILL to 2 GB freed by the kernel", freed),
                ("freed to new holder", max(0.0, held - freed)),
            ):
                measured(made, "takeover", name, what, seconds, 15.0)
            made.background(made.bring_back(name))
            say(number, rounds)
        await settled(made)


async def freeze(folder: Path, rounds: int, seed: int) -> None:
    """SIGSTOP and partitions, six GPUs at a time, until each runner is dead."""
    async with rig(folder, workers=len(DEVICES), engine="toy", devices=DEVICES) as made:
        for number in range(rounds):
            await made.until(
                lambda: len(made.recorder.holders) == len(DEVICES) and made.are_inside(),
                limit_s=120,
                what="six holders with their runners inside",
            )
            await asyncio.sleep(random.Random(seed + number).uniform(0, 2.0))  # anywhere in a heartbeat
            async with asyncio.TaskGroup() as group:
                for place, name in enumerate(made.workers):
                    act = _frozen if (place + number) % 2 else _cut_off
                    group.create_task(act(made, name))
            say(number, rounds)
        await settled(made)


async def _seconds(work: Awaitable[object]) -> float:
    began = now()
    await work
    return now() - began


async def _frozen(made: Rig, name: str) -> None:
    pid, runner = made.child(name).pid, made.runner_of(name)
    async with struck(made, "freeze supervisor", name, pid=pid):
        began = now()
        made.signal(pid, signal.SIGSTOP)
        try:
            await made.until(lambda: not is_alive(runner), what="the frozen one's runner's end")
            measured(made, "freeze", name, "SIGSTOP to runner dead", now() - began, FENCE_S)
        finally:
            made.signal(pid, signal.SIGCONT)


async def _cut_off(made: Rig, name: str) -> None:
    runner = made.runner_of(name)
    async with struck(made, "partition", name):
        began = now()
        made.weather(name, CUT)
        try:
            await made.until(lambda: not is_alive(runner), what="the one cut off's runner's end")
            measured(made, "partition", name, "cut to runner dead", now() - began, FENCE_S)
        finally:
            made.weather(name, Weather())
            for proxy in made.proxies[name]:
                proxy.reset()


async def revoke(folder: Path, rounds: int, seed: int) -> None:
    """A key is revoked in KV, as the console's outbox does it, until 401; then the same with the front cut off."""
    async with rig(folder, workers=0) as made:
        await made.add_model("half", models.half_plus_two(), floats())
        for number in range(rounds):
            await _revoked(made, number, is_cut_off=False)
            say(number, rounds)
        for number in range(max(3, rounds // 50)):
            await _revoked(made, number, is_cut_off=True)
        await settled(made)


async def _revoked(made: Rig, number: int, *, is_cut_off: bool) -> None:
    text = await made.add_key(name=f"r{number}")
    ledger = Tenant("r", made.front_url, text, made.faults, callers=1)

    async def status() -> int:
        got = await ledger.call("GET", "/v1/models")
        return got.status if got is not None else 0

    async def is_let_in() -> bool:
        return await status() == 200

    await becomes(is_let_in, limit_s=60)
    stored = await made.bus.leader_get(Bucket.KEYS.stream, key(Bucket.KEYS, _kid(text)))
    assert stored is not None
    revoked = replace(decode(ApiKey, stored.data), revoked_at=time.time())
    if is_cut_off:
        made.weather("gateway", CUT)
    began = now()
    await table.put(made.bus, Bucket.KEYS, _kid(text), revoked)
    try:
        while await status() == 200:
            if now() - began > 60:
                raise AssertionError("a revoked key is let in for ever")
            if is_cut_off:
                await asyncio.sleep(0.02)
        last = await status()
        what = "cut off: revoked to first refusal" if is_cut_off else "revoked to first 401"
        measured(made, "revoke", "gateway", what, now() - began, FENCE_S if is_cut_off else 15.0)
        if last != (503 if is_cut_off else 401):
            made.finding(f"a revoked key got {last}")
    finally:
        if is_cut_off:
            made.weather("gateway", Weather())
            for proxy in made.proxies["gateway"]:
                proxy.reset()

    async def is_refused() -> bool:
        found = await status()
        if found == 200:
            made.finding("a revoked key was let in again after the front was reconnected")
        return found == 401

    await becomes(is_refused, limit_s=60)
    await ledger.pool.close()


def _kid(text: str) -> str:
    return text.split("_")[2]


SCENARIOS: Final[Mapping[str, tuple[Callable[[Path, int, int], Awaitable[None]], int]]] = {
    "takeover": (takeover, 300),
    "freeze": (freeze, 20),
    "restart": (runs.restart, 60),
    "cancel": (runs.cancel, 100),
    "leader": (outages.leader, 30),
    "stop": (outages.stop, 6),
    "majority": (outages.majority, 3),
    "split": (split.split, 6),
    "loss": (outages.loss, 600),
    "halfloss": (outages.halfloss, 600),
    "soak": (soak.soak, 600),
    "revoke": (revoke, 500),
    "disk": (outages.disk, 5),
    "power": (outages.power, 30),
    "rack": (outages.rack, 30),
    "lie": (outages.lie, 10),
}
"""With their usual rounds; ``loss``, ``halfloss`` and ``soak`` have one, of so many seconds."""
Figures = Mapping[str, tuple[float, float]]
"""p50 and p99 in seconds that are promised, of each figure a scenario must have measured."""
ACCEPTING: Final = (ACCEPTING_S, ACCEPTING_S)
FENCED: Final = (FENCE_S, FENCE_S)
PROMISED: Final[Mapping[str, Figures]] = {
    "takeover": {"takeover: SIGKILL to new holder": TAKEOVER_S, "takeover: freed to new holder": TAKEOVER_S},
    "freeze": {"freeze: SIGSTOP to runner dead": FENCED, "partition: cut to runner dead": FENCED},
    "restart": {"restart: SIGKILL to running again": runs.AGAIN_S},
    "cancel": {
        "cancel: DELETE to the end of a run that ends": runs.CANCELLED_S,
        "cancel: DELETE to the end of a run that does not": runs.CANCELLED_S,
    },
    "leader": {
        "leader: SIGKILL to accepted jobs": ACCEPTING,
        "kill leader: longest without an accepted job": ACCEPTING,
    },
    "stop": {"stop leader: longest without an accepted job": ACCEPTING},
    "majority": {
        "majority: majority killed to runner dead": FENCED,
        "majority: restart to accepted jobs": (SERVING_BOUND_S, SERVING_BOUND_S),
        "majority: restart to both runners inside": (SERVING_BOUND_S, SERVING_BOUND_S),
    },
    "split": {
        "split: cut to runner dead": FENCED,
        "split: cut to another holder": (split.HELD_S, split.HELD_S),
        "split: longest without an accepted job": ACCEPTING,
        "split: healed to all replicas current": (SERVING_BOUND_S, SERVING_BOUND_S),
        "split: healed to accepted jobs": (SERVING_BOUND_S, SERVING_BOUND_S),
    },
    "loss": {"loss: from beat to beat": FENCED},
    "halfloss": {"loss: from beat to beat": FENCED},
    "soak": {"soak: loop lag, p99": (soak.LAG_S, soak.LAG_S)},
    "revoke": {
        "revoke: revoked to first 401": (REVOKED_S, REVOKED_S),
        "revoke: cut off: revoked to first refusal": FENCED,
    },
    "disk": {"disk: restart to accepted jobs": (SERVING_BOUND_S, SERVING_BOUND_S)},
    "power": {"power cut: serving again": (SERVING_BOUND_S, SERVING_BOUND_S)},
    "rack": {"rack power cut: serving again": (SERVING_BOUND_S, SERVING_BOUND_S)},
    "lie": {},
}


async def run(name: str, folder: Path, rounds: int | None, seed: int) -> History:
    """One scenario in ``folder``, and what it wrote down."""
    act, usual = SCENARIOS[name]
    (folder / "history").mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / "history" / "faults.jsonl")
    journal.note(event="scenario", name=name, rounds=rounds or usual, seed=seed)
    journal.close()
    await act(folder, rounds or usual, seed)
    return History.of_run(folder)


def judge(found: History) -> list[Violation]:
    """The laws, and the promised percentiles of what a scenario, if it was one, has to measure."""
    violations = checks.check(found)
    name = next((entry["name"] for entry in found.faults if entry["event"] == "scenario"), "")
    by_what = checks.measured(found)
    for what, (p50, p99) in PROMISED.get(name, {}).items():
        if what not in by_what:
            violations.append(Violation("promised", f"{what}: nothing was measured"))
            continue
        for share, promised in ((0.5, p50), (0.99, p99)):
            seconds = checks.percentile(by_what[what], share)
            if seconds > promised:
                violations.append(
                    Violation("promised", f"{what}: p{share * 100:g} {seconds:.3f} s, {promised:g} s promised")
                )
    return violations
