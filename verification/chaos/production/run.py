"""A run over a production stack: load through its front, one trial after another, calm, and judgement."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from signalbox.program.errors import SignalboxError
from tests.rigs import models
from tests.rigs.outage import becomes
from verification.chaos.evidence import journal
from verification.chaos.evidence.final import standing
from verification.chaos.evidence.history import History, accepted
from verification.chaos.evidence.journal import Journal, now
from verification.chaos.faults.fault import measured, struck
from verification.chaos.production import judge, promises
from verification.chaos.production.report import ProductionOutcome
from verification.chaos.production.stack import BACK_S, Production
from verification.chaos.production.trials import Trial, trials
from verification.chaos.scenarios.scene import LEDGER, finished, longest_silence, more_accepted, settled
from verification.chaos.traffic.account import Account
from verification.chaos.traffic.load import CANARY, Load

UP: Final = Path(".signalbox/production/up.json")
CALLERS: Final = 6
"""Per account, unless told otherwise."""
SLOW: Final = "linger"
"""The demonstration has a ``slow`` of its own."""
REMEMBER_S: Final = 120.0
"""A fifth of what ``SIGNALBOX_SYNC_RESULTS_KEPT_S`` is by default."""
PROBE_S: Final = 0.5
MOST_PROBES: Final = 60
"""Calls that may wait for an answer at once, so that those without one do not hold up the others."""
STUCK_S: Final = 300.0
"""A trial that is not over by then has found something."""
ENDED_MORE: Final = 5
SETTINGS: Final = {"max_delivery": 20, "sync_wait_s": 10.0, "deadline_s": 3600.0}
"""A run kills more runners under one job than a sane day does: a strike must not end it here."""


class ProductionPlan(NamedTuple):
    """only: kinds, empty = all. is_sample: one of each kind. at_most_s: no trial begins after it, 0 = all do."""

    seed: int
    only: tuple[str, ...] = ()
    is_sample: bool = False
    at_most_s: float = 0.0
    callers: int = CALLERS


async def run(up: Path, folder: Path, plan: ProductionPlan) -> ProductionOutcome:
    """One run in ``folder``, which afterwards holds its history and the logs of the stack."""
    began = time.monotonic()
    done: list[str] = []
    async with Production(up, folder) as stack:
        known = trials(stack)
        chosen = _chosen(known, plan)
        left_out = {trial.name: trial.why_not for trial in known if trial.why_not}
        load, prober, ledger = await _load(stack, plan)
        load.start()
        load.accounts.append(prober.account)
        beside = [asyncio.create_task(work) for work in (prober.keep(), _remember(stack))]
        rng = random.Random(plan.seed)
        for trial in chosen:
            if plan.at_most_s and time.monotonic() - began > plan.at_most_s:
                break
            await _try(stack, load, trial, rng)
            done.append(trial.name)
            print(f"[{time.monotonic() - began:6.1f} s] {trial.name}, {len(load.accepted)} jobs", flush=True)
        await stack.calm()
        await settled(stack)
        for task in beside:
            task.cancel()
        await asyncio.wait(beside)
        await finished(stack, load, ledger)
        await _console_knows(stack)
        for account in load.accounts:
            await account.pool.close()
    found = History.of_run(folder)
    skipped = [trial.name for trial in chosen if trial.name not in done]
    return ProductionOutcome(
        found, judge.judged(found), done, left_out, skipped, len(load.accepted), load.answers, time.monotonic() - began
    )


def _chosen(known: Sequence[Trial], plan: ProductionPlan) -> list[Trial]:
    """What is tried, in an order that the seed chooses."""
    rng = random.Random(plan.seed)
    wanted = [
        trial
        for trial in known
        if not trial.why_not and (not plan.only or trial.kind in plan.only or trial.name in plan.only)
    ]
    rng.shuffle(wanted)
    if plan.is_sample:
        by_kind = {trial.kind: trial for trial in wanted}
        wanted = list(by_kind.values())
    return wanted


async def _try(stack: Production, load: Load, trial: Trial, rng: random.Random) -> None:
    """One trial; what it should have shown and did not is a finding."""
    try:
        async with asyncio.timeout(STUCK_S):
            await stack.whole(limit_s=STUCK_S)
            await more_accepted(stack, load, 10, limit_s=STUCK_S)
            async with struck(stack, trial.name, "all"):
                began = now()
                await trial.act(stack, rng)
                healed = now()
                await _recovers(stack, load, trial, healed)
            silent_s = longest_silence(stack, began, now())
            away_s = healed - began if trial.is_silent else 0.0
            _measured(stack, trial, promises.SILENT, silent_s, away_s=away_s)
    except (AssertionError, TimeoutError, SignalboxError, OSError, httpx.HTTPError) as error:
        stack.finding(f"{trial.name}: {type(error).__name__} {error}")
        await stack.calm()


async def _recovers(stack: Production, load: Load, trial: Trial, healed: float) -> None:
    """Jobs are accepted, jobs end, every program is at work, and the console shows the newest job."""
    ended = stack.recorder.ended
    await more_accepted(stack, load, ENDED_MORE, limit_s=STUCK_S)
    _measured(stack, trial, promises.ACCEPTING, now() - healed)
    await stack.until(lambda: stack.recorder.ended >= ended + ENDED_MORE, limit_s=STUCK_S, what="jobs that end")
    _measured(stack, trial, promises.ENDING, now() - healed)
    await stack.whole(limit_s=STUCK_S)
    _measured(stack, trial, promises.WHOLE, now() - healed)
    job = load.accounts[0].latest

    async def is_shown() -> bool:
        return bool(await stack.operator.shows(job))

    await becomes(is_shown, limit_s=STUCK_S)
    _measured(stack, trial, promises.SHOWN, now() - healed)


def _measured(stack: Production, trial: Trial, what: str, seconds: float, **facts: float) -> None:
    measured(stack, trial.name, trial.about, what, seconds, promises.WIDE_S, **facts)


async def _load(stack: Production, plan: ProductionPlan) -> tuple[Load, "Prober", Journal]:
    """Models and keys by the console's API, three accounts that are served; no load yet."""
    await stack.operator.add_model("half", models.half_plus_two(), SETTINGS)
    await stack.operator.add_model(SLOW, models.slow(), SETTINGS)
    ledger = Journal(stack.history / LEDGER)
    accounts = []
    for name in ("ann", "bob", "eve"):
        key = await stack.operator.add_key(f"{name}-{plan.seed}-{time.time_ns() % 10**9}")
        stack.secrets[f"the key of {name}"] = key
        callers = plan.callers if name != "eve" else MOST_PROBES
        accounts.append(Account(name, stack.front, key, ledger, callers=callers))

    async def are_served() -> bool:
        for account in accounts:
            for model, value in (("half", float(CANARY)), (SLOW, 0.01)):
                body = {"instances": [value]}
                got = await account.call("POST", f"/v1/models/{model}:predict", body)
                if got is None or got.status != 200:
                    return False
        return True

    await becomes(are_served, limit_s=240)
    load = Load(accounts[:2], ledger, plan.seed, callers=plan.callers, slow=SLOW)
    return load, Prober(load, accounts[2]), ledger


class Prober:
    """Asks for a job twice a second, whether or not those before were answered: shows that jobs are accepted."""

    def __init__(self, load: Load, account: Account) -> None:
        self.account = account
        self._load = load
        self._waiting: set[asyncio.Task[int]] = set()

    async def keep(self) -> None:
        """Until it is cancelled; what is on its way then is answered first."""
        try:
            while True:
                if len(self._waiting) < MOST_PROBES:
                    task = asyncio.create_task(self._load.probe(self.account))
                    self._waiting.add(task)
                    task.add_done_callback(self._waiting.discard)
                await asyncio.sleep(PROBE_S)
        finally:
            if self._waiting:
                await asyncio.wait(self._waiting)


async def _remember(stack: Production) -> None:
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
