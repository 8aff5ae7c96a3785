"""One fault after another under load, then calm, and judgement over what was written down.

A storm draws faults by weight over a rig of its own and waits for none of them to be over. Over a production stack each
fault comes once, and the next when all effects of the one before are over, which is measured.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from signalbox.program.errors import SignalboxError
from signalbox.wire.modeldocs import Limits
from tests.rigs.outage import becomes
from verification.chaos.evidence import journal
from verification.chaos.evidence.final import standing
from verification.chaos.evidence.history import History, accepted
from verification.chaos.evidence.journal import now
from verification.chaos.faults import catalogue, power, services
from verification.chaos.faults.fault import WIDE_S, Fault, measured, struck
from verification.chaos.laws.checks import Violation
from verification.chaos.rig.composed import BACK_S, Production
from verification.chaos.rig.rig import SHORT, Rig, rig
from verification.chaos.rig.site import Site
from verification.chaos.scenarios.catalogue import judge
from verification.chaos.scenarios.scene import LEDGER, SILENT, finished, longest_silence, more_accepted, served

UP: Final = Path(".signalbox/production/up.json")
STUCK_S: Final = 300.0
"""A fault that is not over by then has found something."""
PATIENT: Final = Limits(max_delivery=1000, sync_wait_s=10.0, deadline_s=3600.0)
"""A storm kills more runners under one job than a sane day does: a strike must not end it here."""
REMEMBER_S: Final = 120.0
"""A fifth of what ``SIGNALBOX_SYNC_RESULTS_KEPT_S`` is by default."""
ENDED_MORE: Final = 5
ACCEPTING_S: Final = 10.0
"""Without an accepted job while anything but the front itself is away, and again after the front was: promised."""
FAILURES: Final = (AssertionError, TimeoutError, SignalboxError, OSError, httpx.HTTPError)


class Plan(NamedTuple):
    """What to do. A storm lasts until ``minutes`` have passed, or until ``faults`` and ``jobs`` are reached.

    at_most: minutes after which no fault begins, whatever was reached; 0 = never. only: kinds or names of faults,
    empty = all. callers: per account. has_disks: every node has a disk whose power is cut too. is_sample: over a
    production stack, one fault of each kind.
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
    is_sample: bool = False


class Outcome(NamedTuple):
    """What came of it. skipped: faults there was no time for."""

    title: str
    history: History
    violations: list[Violation]
    kinds: Counter[str]
    left_out: dict[str, str]
    skipped: list[str]
    jobs: int
    answers: Counter[tuple[str, int]]
    seconds: float


async def storm(plan: Plan, folder: Path) -> Outcome:
    """One storm in ``folder``, which afterwards holds its history and every log."""
    began = time.monotonic()
    powers = power.catalogue(nodes=plan.nodes, has_disks=plan.has_disks)
    known = [*catalogue.catalogue(nodes=plan.nodes), *powers]
    usable = [fault for fault in known if (fault.kind in plan.only if plan.only else not fault.why_not)]
    async with rig(
        folder,
        workers=plan.workers,
        nodes=plan.nodes,
        engine=plan.engine,
        programs=SHORT if plan.nodes == 1 else {},
        limits=PATIENT,
        is_networked=any(fault.kind == "packets lost" for fault in usable),
        has_disks=any(fault in powers for fault in usable),
    ) as made:
        made.load = await served(made, plan.seed, callers=plan.callers)
        made.load.start()
        kinds = await _blow(made, plan, usable)
        await finished(made)
    found = History.of_run(folder)
    survivors = await _survivors(str(folder))
    return Outcome(
        f"storm: seed {plan.seed}, {plan.nodes} NATS node(s), {plan.workers} workers on one GPU, engine {plan.engine}",
        found,
        [*judge(found), *(Violation("findings", f"{argv} ({pid}) is still there") for pid, argv in survivors.items())],
        kinds,
        {fault.name: fault.why_not for fault in known if fault.why_not},
        [],
        len(accepted(found.ledger)),
        made.load.answers,
        time.monotonic() - began,
    )


async def _blow(made: Rig, plan: Plan, usable: Sequence[Fault[Rig]]) -> Counter[str]:
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
        return kinds.total() >= plan.faults and len(made.load.accepted) >= plan.jobs

    while not (is_enough() or made.broken):
        if plan.faults and not plan.minutes and kinds.total() >= plan.faults:
            await asyncio.sleep(0.1)  # faults enough, jobs not yet
            continue
        fault = first.pop() if first else rng.choices(usable, [f.weight for f in usable])[0]
        try:
            async with asyncio.timeout(STUCK_S):
                await fault.strike(made, rng)
        except FAILURES as error:
            made.finding(f"{fault.kind}: {type(error).__name__} {error}")
        kinds[fault.kind] += 1
        if kinds.total() % 100 == 0:
            print(f"{kinds.total()} faults, {len(made.load.accepted)} jobs", flush=True)
    return kinds


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


# -- over a production stack ---------------------------------------------------------------------------


async def production(plan: Plan, folder: Path, up: Path) -> Outcome:
    """One run in ``folder``, which afterwards holds its history and the logs of the stack."""
    began = time.monotonic()
    done: Counter[str] = Counter()
    async with Production(up, folder) as stack:
        stack.faults.note(event="stack", name="production")
        known = services.catalogue(stack)
        chosen = _chosen(known, plan)
        stack.load = load = await served(stack, plan.seed, callers=plan.callers, names=("ann", "bob", "eve"))
        prober = load.accounts.pop()
        load.start()
        load.accounts.append(prober)
        beside = [asyncio.create_task(work) for work in (load.probe_on(prober), _remember(stack))]
        rng = random.Random(plan.seed)
        for fault in chosen:
            if plan.at_most and time.monotonic() - began > plan.at_most * 60:
                break
            await _try(stack, fault, rng)
            done[fault.name] += 1
            print(f"[{time.monotonic() - began:6.1f} s] {fault.name}, {len(load.accepted)} jobs", flush=True)
        for task in beside:
            task.cancel()
        await asyncio.wait(beside)
        await finished(stack)
        await _console_knows(stack)
    found = History.of_run(folder)
    return Outcome(
        f"production: seed {plan.seed}",
        found,
        judge(found),
        done,
        {fault.name: fault.why_not for fault in known if fault.why_not},
        [fault.name for fault in chosen if fault.name not in done],
        len(load.accepted),
        load.answers,
        time.monotonic() - began,
    )


def _chosen(known: Sequence[Fault[Production]], plan: Plan) -> list[Fault[Production]]:
    """What is tried, in an order that the seed chooses."""
    wanted = [
        fault
        for fault in known
        if not fault.why_not and (not plan.only or fault.kind in plan.only or fault.name in plan.only)
    ]
    random.Random(plan.seed).shuffle(wanted)
    return list({fault.kind: fault for fault in wanted}.values()) if plan.is_sample else wanted


async def _try(stack: Production, fault: Fault[Production], rng: random.Random) -> None:
    """One fault and all that follows from it; what it should have shown and did not is a finding."""
    try:
        async with asyncio.timeout(STUCK_S):
            await stack.whole(limit_s=STUCK_S)
            await more_accepted(stack, 10, limit_s=STUCK_S)
            async with struck(stack, fault.name, "all"):
                began = now()
                await fault.strike(stack, rng)
                healed = now()
                await _recovers(stack, fault, healed)
            promised_s = ACCEPTING_S + (healed - began if fault.is_silent else 0.0)
            silent_s = longest_silence(stack, began, now())
            measured(stack, fault.name, fault.about, SILENT, silent_s, WIDE_S, promised_s=promised_s)
    except FAILURES as error:
        stack.finding(f"{fault.name}: {type(error).__name__} {error}")
        await stack.calm()


async def _recovers(stack: Production, fault: Fault[Production], healed: float) -> None:
    """Jobs are accepted, jobs end, every program is at work, and the console shows the newest job."""

    def over(what: str, promised_s: float) -> None:
        measured(stack, fault.name, fault.about, what, now() - healed, WIDE_S, promised_s=promised_s)

    ended = stack.recorder.ended
    await more_accepted(stack, ENDED_MORE, limit_s=STUCK_S)
    over("accepting again", ACCEPTING_S)
    await stack.until(lambda: stack.recorder.ended >= ended + ENDED_MORE, limit_s=STUCK_S, what="jobs that end")
    over("jobs end again", BACK_S)
    await stack.whole(limit_s=STUCK_S)
    over("all at work again", BACK_S)
    job = stack.load.accounts[0].latest

    async def is_shown() -> bool:
        return bool(await stack.operator.shows(job))

    await becomes(is_shown, limit_s=STUCK_S)
    over("console shows the newest job", BACK_S)


async def _remember(stack: Site) -> None:
    """Look at all records, until cancelled, more often than those of synchronous calls are thrown away."""
    while True:
        with suppress(SignalboxError):
            stack.kept |= await standing(stack.bus, after=stack.began_after)
        await asyncio.sleep(REMEMBER_S)


async def _console_knows(stack: Production) -> None:
    """The console shows the end of a sample of the promised jobs, but for what its lost database held."""
    final = {e["job"]: e["state"] for e in journal.read(stack.history / "final.jsonl") if "job" in e}
    lost_at = max((f["at"] for f in journal.read(stack.history / "faults.jsonl") if f["event"] == "lost"), default=0)
    promised = accepted(e for e in journal.read(stack.history / LEDGER) if e["at"] > lost_at)
    sample = random.Random(0).sample(sorted(promised), min(50, len(promised)))
    for job in sample:

        async def is_right(job: str = job) -> bool:
            return await stack.operator.shows(job) == str(final.get(job))

        try:
            await becomes(is_right, limit_s=BACK_S)
        except AssertionError:
            shown = await stack.operator.shows(job)
            stack.finding(f"the console shows {job} as {shown or 'nothing'}; it is {final.get(job)}")
