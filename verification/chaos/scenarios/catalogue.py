"""Every scenario by name, with its usual rounds and what it promises: one fault, again and again, on a healthy stack.

``python -m verification.chaos NAME --rounds N``. Every program has its default settings, but for the quantum of
``split``: what is measured here is what is promised. Each ends with the laws over its history, which holds what the
scenario itself found wrong (:meth:`verification.chaos.rig.rig.Rig.finding`).
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from verification.chaos.evidence.history import History
from verification.chaos.evidence.journal import Journal
from verification.chaos.laws import checks
from verification.chaos.laws.checks import Violation
from verification.chaos.scenarios import holders, keys, outages, runs, soak, split
from verification.chaos.scenarios.outages import FENCE_S, SERVING_BOUND_S

ACCEPTING_S: Final = 10.0
"""Longest time without an accepted job when one node of three is away."""
SCENARIOS: Final[Mapping[str, tuple[Callable[[Path, int, int], Awaitable[None]], int]]] = {
    "takeover": (holders.takeover, 300),
    "freeze": (holders.freeze, 20),
    "restart": (runs.restart, 60),
    "cancel": (runs.cancel, 100),
    "leader": (outages.leader, 30),
    "stop": (outages.stop, 6),
    "majority": (outages.majority, 3),
    "split": (split.split, 6),
    "loss": (outages.loss, 600),
    "halfloss": (outages.halfloss, 600),
    "soak": (soak.soak, 600),
    "revoke": (keys.revoke, 500),
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
    "takeover": {
        "takeover: SIGKILL to new holder": holders.TAKEOVER_S,
        "takeover: freed to new holder": holders.TAKEOVER_S,
    },
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
        "revoke: revoked to first 401": (keys.REVOKED_S, keys.REVOKED_S),
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
