"""Shared parts of runs: a load, its end, and what was seen meanwhile."""

import asyncio
import json
from collections.abc import Sequence
from typing import Final

from tests.rigs.outage import becomes
from verification.chaos.evidence import journal
from verification.chaos.evidence.final import jobs_left, snapshot
from verification.chaos.evidence.journal import Entry, Journal
from verification.chaos.laws import checks
from verification.chaos.rig.rig import Rig
from verification.chaos.rig.site import Site
from verification.chaos.traffic.account import Account
from verification.chaos.traffic.load import CANARY, Load

CALLERS: Final = 6
"""Per account."""
HEAL_S: Final = 120.0
"""After the load every job ends within this."""
LEDGER: Final = "ledger.jsonl"
SILENT: Final = "longest without an accepted job"


async def served(made: Site, seed: int, *, callers: int = CALLERS, names: Sequence[str] = ("ann", "bob")) -> Load:
    """Accounts that are served and do not call yet."""
    await made.publish_models()
    ledger = Journal(made.history / LEDGER)
    accounts = [Account(name, made.front_url, await made.add_key(name=name), ledger) for name in names]

    async def are_served() -> bool:
        for account in accounts:
            for model, value in (("half", float(CANARY)), (made.slow, 0.01)):
                got = await account.call("POST", f"/v1/models/{model}:predict", {"instances": [value]})
                if got is None or got.status != 200:
                    return False
        return True

    await becomes(are_served, limit_s=240)
    return Load(accounts, ledger, seed, callers=callers, slow=made.slow)


async def finished(made: Site) -> None:
    """Calm, and no more load; every job that was promised ends within :data:`HEAL_S` and leaves the queue."""
    load = made.load
    await made.calm()
    await settled(made)
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
    values = {"left": await jobs_left(made.bus)}
    await snapshot(made.bus, made.history / "final.jsonl", values, after=made.began_after, kept=made.kept)
    for account in load.accounts:
        await account.pool.close()
    load.ledger.close()
    print(f"{len(load.accepted)} jobs accepted")


async def settled(made: Site) -> None:
    """What goes on in the background has ended."""
    while made.tasks:
        await asyncio.wait(made.tasks)


async def more_accepted(made: Site, count: int, *, limit_s: float = 60.0) -> None:
    """Returns when so many more jobs were promised."""
    was = len(made.load.accepted)
    await made.until(lambda: len(made.load.accepted) >= was + count, limit_s=limit_s, what="accepted jobs")


def refused(load: Load) -> int:
    """How often callers were told 503."""
    return sum(n for (_, status), n in load.answers.items() if status == 503)


def longest_silence(made: Site, since: float, until: float) -> float:
    """Seconds of the longest time in which nothing was accepted."""
    return checks.longest_silence(journal.read(made.history / LEDGER), since, until)


def note_fenced(made: Rig, name: str, since: int = 0) -> None:
    """Note each lease that a worker lost after the first ``since`` as a finding: it was healthy."""
    for why in fences(made, name)[since:]:
        made.finding(f"a healthy runner was fenced: {name}: {why}")


def fences(made: Rig, name: str) -> list[str]:
    """Why a worker lost its lease, each time it did up to now."""
    found = []
    for path in (made.data.path / "logs").glob(f"{name}.log*"):
        for text in path.read_text().splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if line.get("event") == "lease.lost":
                found.append(str(line.get("why")))
    return found


def beats(made: Site, worker: str, since: float, until: float) -> list[Entry]:
    """Revisions of the lease that a worker wrote between two instants."""
    return [
        entry
        for entry in journal.read(made.history / "leases.jsonl")
        if entry.get("owner") == worker and since <= entry["at"] <= until
    ]
