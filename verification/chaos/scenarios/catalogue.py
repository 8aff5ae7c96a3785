"""Every scenario: which faults, in turn and again and again, on which rig, under which load, and what is promised.

``python -m verification.chaos NAME --rounds N``. Every program has its default settings, but for the quantum of
``split``: what is measured here is what is promised. Each ends with the laws over its history, which holds what the
scenario itself found wrong (:meth:`verification.chaos.rig.rig.Rig.finding`).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from tests.rigs.outage import becomes
from verification.chaos.evidence.history import History
from verification.chaos.evidence.journal import now
from verification.chaos.faults import catalogue, connections, power, servers, workers
from verification.chaos.faults.fault import FENCE_S, HELD_S, WIDE_S, Strike, measured
from verification.chaos.laws import checks
from verification.chaos.laws.checks import Violation
from verification.chaos.rig.rig import Rig, rig
from verification.chaos.scenarios import rounds
from verification.chaos.scenarios.scene import (
    SILENT,
    finished,
    longest_silence,
    more_accepted,
    note_fenced,
    served,
    settled,
)
from verification.chaos.scenarios.split import DEVICES, LEADERS, PATIENT, split

OPEN_S: Final = 2.0
"""A job that runs for so long is promised right before each strike, so that one is open then."""
ACCEPTING: Final = (10.0, 10.0)
FENCED: Final = (FENCE_S, FENCE_S)
SERVING: Final = (60.0, 60.0)
LIVED_THROUGH: Final = frozenset(
    {
        *("kill guard", "kill runner", "ask release", "delete lease", "reset"),
        *("hang up", "refuse", "half open", "one way", "latency"),
    }
)
"""Kinds that every program must live through; a stopped one would be late through no fault of its own."""


class Scenario(NamedTuple):
    """strikes: taken in turn. rounds: usually. promised: p50 and p99 in seconds of figures it must have measured.

    load: none; accounts that are served and do not call (idle); or that call (busy). keeps_leases: none may be lost.
    every_s: a round takes so long at least. after: with the rig, before the load ends.
    """

    strikes: Sequence[Strike[Rig]]
    rounds: int
    promised: Mapping[str, tuple[float, float]]
    rig: Mapping[str, Any]
    load: Literal["none", "idle", "busy"] = "busy"
    keeps_leases: bool = False
    every_s: float = 0.0
    after: Callable[[Rig], Awaitable[None]] | None = None


def _of_three(strike: Callable[..., Awaitable[None]]) -> Sequence[Strike[Rig]]:
    return [partial(strike, stream=stream) for stream in LEADERS]


TOYS: Final = {"engine": "toy"}
PAIR: Final = {"workers": 2, **TOYS}
THREE_NODES: Final = {**PAIR, "nodes": 3}
DISKS: Final = {**PAIR, "has_disks": True}
SCENARIOS: Final[Mapping[str, Scenario]] = {
    "takeover": Scenario(
        [workers.kill_supervisor],
        300,
        {"kill supervisor: takeover": (0.150, 1.0)},
        {"workers": 3, **TOYS, "ballast_mb": 2048},
        load="idle",
    ),
    "freeze": Scenario(
        [workers.freeze_supervisor, connections.partition],
        40,
        {"freeze supervisor: fenced": FENCED, "partition: fenced": FENCED},
        PAIR,
        load="idle",
    ),
    "restart": Scenario(
        [rounds.restart], 60, {"restart: SIGKILL to running again": (0.25, 0.5)}, {"workers": 3, **TOYS}, load="idle"
    ),
    "cancel": Scenario(
        [partial(rounds.cancel, run_s=rounds.BRIEF_S), partial(rounds.cancel, run_s=rounds.ENDLESS_S)],
        100,
        {f"cancel: cancellation to the end of a run that {how}": (3.0, 3.0) for how in ("ends", "does not")},
        {"workers": 1, **TOYS},
        load="idle",
    ),
    "leader": Scenario(
        _of_three(servers.kill_leader), 30, {f"leader: {SILENT}": ACCEPTING}, THREE_NODES, keeps_leases=True
    ),
    "stop": Scenario(_of_three(servers.stop_leader), 6, {f"stop: {SILENT}": ACCEPTING}, THREE_NODES, keeps_leases=True),
    "majority": Scenario(
        [rounds.majority],
        3,
        {
            "majority: majority killed to runner dead": FENCED,
            "majority: restart to accepted jobs": SERVING,
            "majority: restart to both runners inside": SERVING,
        },
        {**THREE_NODES, "devices": DEVICES},
    ),
    "split": Scenario(
        [partial(split, is_leader=is_leader) for is_leader in (False, True)],
        6,
        {
            "split: cut to runner dead": FENCED,
            "split: cut to another holder": (HELD_S, HELD_S),
            f"split: the others {SILENT}": ACCEPTING,
            "split: healed to all replicas current": SERVING,
            "split: healed to accepted jobs": SERVING,
        },
        {"workers": 3, "nodes": 3, **TOYS, "devices": DEVICES, "programs": PATIENT, "has_routes": True},
    ),
    "halfloss": Scenario(
        [rounds.lossy],
        10,
        {"halfloss: from beat to beat": FENCED},
        {**PAIR, "devices": DEVICES, "is_networked": True},
        keeps_leases=True,
    ),
    "soak": Scenario(
        [fault.strike for fault in catalogue.catalogue(nodes=1) if fault.kind in LIVED_THROUGH],
        60,
        {"soak: loop lag, p99": (0.05, 0.05)},
        {"workers": 3, "engine": "mixed", "has_metrics": True},
        every_s=10.0,
        after=rounds.lags,
    ),
    "revoke": Scenario(
        [partial(rounds.revoke, is_cut_off=is_first) for is_first in (True, *[False] * 49)],
        500,
        {"revoke: revoked to first 401": (1.0, 1.0), "revoke: cut off: revoked to first refusal": FENCED},
        {"workers": 0},
        load="none",
    ),
    "disk": Scenario([rounds.disk_full], 5, {"disk: restart to accepted jobs": SERVING}, {**PAIR, "disk_mb": 96}),
    "power": Scenario([power.power_cut], 30, {"power cut: serving again": SERVING}, DISKS),
    "rack": Scenario([power.rack_power_cut], 30, {"rack power cut: serving again": SERVING}, {**DISKS, "nodes": 3}),
    "lie": Scenario([power.lying_disk], 10, {}, DISKS),
}


async def run(name: str, folder: Path, times: int | None, seed: int) -> History:
    """One scenario in ``folder``, and what it wrote down."""
    row = SCENARIOS[name]
    times = times or row.rounds
    rng = random.Random(seed)
    async with rig(folder, **row.rig) as made:
        made.faults.note(event="scenario", name=name, rounds=times, seed=seed)
        if row.load == "none":
            await made.publish_models()
        else:
            made.load = await served(made, seed)
        if row.load == "busy":
            made.load.start()
        for number in range(times):
            await _round(made, name, row, row.strikes[number % len(row.strikes)], rng)
            print(f"{number + 1} of {times}", flush=True)
        if row.load == "busy":
            await more_accepted(made, 51)
        if row.after is not None:
            await row.after(made)
        if row.load != "none":
            await finished(made)
        for worker in made.workers if row.keeps_leases else ():
            note_fenced(made, worker)
        await settled(made)
    return History.of_run(folder)


async def _round(made: Rig, name: str, row: Scenario, strike: Strike[Rig], rng: random.Random) -> None:
    """One strike at a stack that is well."""
    if made.node_count > 1:
        await becomes(made.is_replicated, limit_s=180)
    await made.until(made.is_settled, limit_s=120, what="a holder of each device with its runner inside")
    await asyncio.sleep(rng.uniform(0, 2.0))  # at any time in a heartbeat: right after a change no death is provable
    if row.load == "busy":
        await more_accepted(made, 51)
        await made.load.run(made.load.accounts[0], OPEN_S)
    began = now()
    await strike(made, rng)
    what = f"{name}: {SILENT}"
    if what in row.promised:
        measured(made, name, "all", SILENT, longest_silence(made, began, now()), WIDE_S)
    await asyncio.sleep(max(0.0, began + row.every_s - now()))


def judge(found: History) -> list[Violation]:
    """The laws, and what docs/guarantees.md promises: of single figures, and of those a scenario has to measure."""
    violations = checks.check(found)
    violations += [
        Violation("promised", f"{f['kind']}: {f['what']} {f['s']:.2f} s, {f['promised_s']:g} s promised")
        for f in found.faults
        if f["event"] == "measured" and f["s"] > f.get("promised_s", f["s"])
    ]
    name = next((entry["name"] for entry in found.faults if entry["event"] == "scenario"), "")
    by_what = checks.measured(found)
    for what, (p50, p99) in SCENARIOS[name].promised.items() if name else ():
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
