"""A storm: load from two accounts, one fault after another, then calm, and judgement over what was written down."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from signalbox.program.errors import SignalboxError
from signalbox.wire.messages import Limits
from tests.rigs import models
from tests.rigs.outage import becomes, floats
from verification.chaos.evidence.final import jobs_left, snapshot
from verification.chaos.evidence.history import History, accepted
from verification.chaos.evidence.journal import Journal
from verification.chaos.faults import power
from verification.chaos.faults.catalogue import catalogue
from verification.chaos.faults.fault import Fault
from verification.chaos.laws import checks
from verification.chaos.laws.checks import Violation
from verification.chaos.rig.rig import SHORT, Rig, rig
from verification.chaos.traffic.account import Account
from verification.chaos.traffic.load import CANARY, Load

MODELS: Final = ("half", "slow")
CALLERS: Final = 20
"""Per account, unless told otherwise."""
STUCK_S: Final = 240.0
"""A fault that is not over by then has found something."""
HEAL_S: Final = 120.0
"""After the last fault every job ends within this."""


class StormPlan(NamedTuple):
    """What to do. A storm lasts until ``minutes`` have passed, or until ``faults`` and ``jobs`` are reached.

    at_most: minutes after which it ends whatever was reached, 0 = never. only: kinds of fault, empty = all.
    callers: per account. has_disks: every node has a disk whose power is cut too.
    """

    seed: int
    minutes: float = 0.0
    faults: int = 0
    jobs: int = 0
    at_most: float = 0.0
    nodes: int = 1
    workers: int = 3
    only: tuple[str, ...] = ()
    engine: str = "tensorflow"
    callers: int = 12
    has_disks: bool = False


class StormOutcome(NamedTuple):
    """What came of it."""

    plan: StormPlan
    history: History
    violations: list[Violation]
    kinds: Counter[str]
    left_out: dict[str, str]
    jobs: int
    answers: Counter[tuple[str, int]]
    seconds: float


async def run(plan: StormPlan, folder: Path) -> StormOutcome:
    """One storm in ``folder``, which afterwards holds its history and every log."""
    began = time.monotonic()
    powers = power.catalogue(nodes=plan.nodes, has_disks=plan.has_disks)
    known = [*catalogue(nodes=plan.nodes), *powers]
    left_out = {fault.kind: fault.why_not for fault in known if fault.why_not}
    usable = [fault for fault in known if (fault.kind in plan.only if plan.only else not fault.why_not)]
    async with rig(
        folder,
        workers=plan.workers,
        nodes=plan.nodes,
        engine=plan.engine,
        programs=SHORT if plan.nodes == 1 else {},
        is_networked=any(fault.kind == "packets lost" for fault in usable),
        has_disks=any(fault in powers for fault in usable),
    ) as made:
        load, ledger = await _load(made, plan)
        load.start()
        kinds = await _blow(made, plan, usable, load)
        answers = await _clear_up(made, load, ledger)
    survivors = await _survivors(str(folder))
    found = History.of_run(folder)
    violations = [
        *checks.check(found),
        *(Violation("orphans", f"{argv} ({pid}) is still there") for pid, argv in survivors.items()),
    ]
    return StormOutcome(
        plan, found, violations, kinds, left_out, len(accepted(found.ledger)), answers, time.monotonic() - began
    )


async def _load(made: Rig, plan: StormPlan) -> tuple[Load, Journal]:
    """Models, two accounts, and the proof that both are served."""
    # A storm kills more runners under one job than a sane day does: a strike must not end it here.
    limits = Limits(max_delivery=1000, sync_wait_s=10.0, deadline_s=3600.0)
    await made.add_model("half", models.half_plus_two(), floats(), limits=limits)
    await made.add_model("slow", models.slow(), floats("seconds"), limits=limits)
    ledger = Journal(made.history / "ledger.jsonl")
    accounts = []
    for name in ("ann", "bob"):
        key = await made.add_key(name=name)
        accounts.append(Account(name, made.front_url, key, ledger, callers=plan.callers))

    async def are_served() -> bool:
        for account in accounts:
            for model, value in (("half", float(CANARY)), ("slow", 0.01)):
                got = await account.call("POST", f"/v1/models/{model}:predict", {"instances": [value]})
                if got is None or got.status != 200:
                    return False
        return True

    await becomes(are_served, limit_s=180)
    return Load(accounts, ledger, plan.seed, callers=plan.callers), ledger


async def _blow(made: Rig, plan: StormPlan, usable: Sequence[Fault[Rig]], load: Load) -> Counter[str]:
    """One fault after another until there were enough, of jobs too."""
    rng = random.Random(plan.seed)
    first = list(usable)
    rng.shuffle(first)
    kinds: Counter[str] = Counter()
    ends_at = time.monotonic() + plan.minutes * 60
    cut_at = time.monotonic() + plan.at_most * 60

    def is_enough() -> bool:
        if plan.at_most and time.monotonic() > cut_at:
            return True
        if plan.minutes and time.monotonic() < ends_at:
            return False
        return kinds.total() >= plan.faults and len(load.accepted) >= plan.jobs

    while not (is_enough() or made.broken):
        if plan.faults and not plan.minutes and kinds.total() >= plan.faults:
            await asyncio.sleep(0.1)  # faults enough, jobs not yet
            continue
        fault = first.pop() if first else rng.choices(usable, [f.weight for f in usable])[0]
        try:
            async with asyncio.timeout(STUCK_S):
                await fault.strike(made, rng)
        except (AssertionError, TimeoutError, SignalboxError, OSError) as error:
            made.finding(f"{fault.kind}: {type(error).__name__} {error}")
        kinds[fault.kind] += 1
        if kinds.total() % 100 == 0:
            print(f"{kinds.total()} faults, {len(load.accepted)} jobs", flush=True)
    return kinds


async def _clear_up(made: Rig, load: Load, ledger: Journal) -> Counter[tuple[str, int]]:
    """Calm: everything is healed, every job ends, and what is known at the end is written down."""
    await made.calm()
    while made.tasks:
        await asyncio.wait(made.tasks)
    try:
        async with asyncio.timeout(HEAL_S):
            await load.end()
        await load.drained(limit_s=HEAL_S)
    except TimeoutError:
        left = [job for account in load.accounts for job in account.open]
        made.finding(f"{len(left)} jobs have not ended {HEAL_S:g} s after the last fault: {left[:5]}")

    async def is_empty() -> bool:
        return not await jobs_left(made.bus)

    try:
        await becomes(is_empty, limit_s=HEAL_S)
    except AssertionError:
        made.finding(f"still queued: {await jobs_left(made.bus)}")
    await snapshot(made.bus, made.history / "final.jsonl", {"left": await jobs_left(made.bus)})
    made.census.look()
    for account in load.accounts:
        await account.pool.close()
    ledger.close()
    return load.answers


async def _survivors(mark: str) -> dict[int, str]:
    """Processes of this storm that outlived it, though given the time to die."""
    began = time.monotonic()
    while (found := _alive(mark)) and time.monotonic() - began < 10:  # noqa: ASYNC110  no event tells
        await asyncio.sleep(0.1)
    return found


def _alive(mark: str) -> dict[int, str]:
    found = {}
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if mark in argv and ("guard" in argv or "runner" in argv or "nats-server" in argv):
            found[pid] = argv[:120]
    return found


def report(outcome: StormOutcome) -> str:
    """The table a person reads."""
    plan, found = outcome.plan, outcome.history
    lines = [
        f"storm: seed {plan.seed}, {plan.nodes} NATS node(s), {plan.workers} workers on one GPU, engine {plan.engine}",
        f"{outcome.kinds.total()} faults over {outcome.jobs} accepted jobs in {outcome.seconds:.0f} s",
        "",
        "faults " + ", ".join(f"{kind} {n}" for kind, n in sorted(outcome.kinds.items())),
    ]
    lines += [f"left out: {kind} ({why})" for kind, why in outcome.left_out.items()]
    lines += ["answers " + ", ".join(f"{op} {status}: {n}" for (op, status), n in sorted(outcome.answers.items())), ""]
    broken = Counter(violation.law for violation in outcome.violations)
    lines += [f"  {law:<22}{broken[law]}" for law in checks.LAWS]
    ends = Counter(entry["state"] for entry in found.final if "state" in entry)
    attempts = max((entry["attempt"] for entry in found.final if "attempt" in entry), default=0)
    lines += [
        "",
        "ends " + ", ".join(f"{state} {n}" for state, n in sorted(ends.items())) + f"; most attempts {attempts}",
    ]
    lines += judged(found)
    lines += figures(found)
    lines += ["", *(f"VIOLATION {v.law}: {v.text}" for v in outcome.violations[:40])]
    return "\n".join(lines)


def judged(found: History) -> list[str]:
    """What the laws had to look at, where that may be little or nothing."""
    return [f"NOT JUDGED: {law} ({why})" for law, why in checks.unjudged(found).items()]


def figures(found: History) -> list[str]:
    """Percentiles of everything that was measured."""
    return [
        f"  {what:<46} n {len(s):<5}p50 {checks.percentile(s, 0.5):7.3f}  p99 {checks.percentile(s, 0.99):7.3f}"
        f"  max {max(s):7.3f} s"
        for what, s in sorted(checks.measured(found).items())
    ]


def summary(outcome: StormOutcome) -> dict[str, Any]:
    """The same for a program."""
    return {
        "seed": outcome.plan.seed,
        "nodes": outcome.plan.nodes,
        "faults": outcome.kinds.total(),
        "kinds": dict(outcome.kinds),
        "jobs": outcome.jobs,
        "seconds": round(outcome.seconds, 1),
        "violations": [violation._asdict() for violation in outcome.violations],
        "takeover_s": [f["s"] for f in outcome.history.faults if f["event"] == "measured" and f["what"] == "takeover"],
    }
