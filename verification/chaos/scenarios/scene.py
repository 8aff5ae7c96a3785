"""Shared parts of scenarios: a load, its end, and checks of a run in progress."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from tests.rigs import models
from tests.rigs.outage import becomes, floats
from verification.chaos.evidence import journal
from verification.chaos.evidence.final import snapshot
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


async def loaded(made: Rig, seed: int) -> tuple[Load, Journal]:
    """Two accounts that are served; the load has begun."""
    load, ledger = await served(made, seed)
    load.start()
    return load, ledger


async def served(made: Rig, seed: int) -> tuple[Load, Journal]:
    """Two accounts that are served and do not call yet."""
    await made.add_model("half", models.half_plus_two(), floats())
    await made.add_model("slow", models.slow(), floats("seconds"))
    ledger = Journal(made.history / LEDGER)
    accounts = [
        Account(name, made.front_url, await made.add_key(name=name), ledger, callers=CALLERS) for name in ("ann", "bob")
    ]

    async def are_served() -> bool:
        for account in accounts:
            got = await account.call("POST", "/v1/models/half:predict", {"instances": [float(CANARY)]})
            if got is None or got.status != 200:
                return False
        return True

    await becomes(are_served, limit_s=180)
    return Load(accounts, ledger, seed, callers=CALLERS), ledger


async def finished(made: Site, load: Load, ledger: Journal) -> None:
    """No more load; every job that was promised ends within :data:`HEAL_S` and stands in the final snapshot."""
    try:
        async with asyncio.timeout(HEAL_S):
            await load.end()
            await load.drained(limit_s=HEAL_S)
    except TimeoutError:
        left = [job for account in load.accounts for job in account.open]
        made.finding(f"{len(left)} jobs have not ended {HEAL_S:g} s after the load: {left[:5]}")
    await snapshot(made.bus, made.history / "final.jsonl", {}, after=made.began_after, kept=made.kept)
    ledger.close()
    print(f"{len(load.accepted)} jobs accepted")


async def settled(made: Site) -> None:
    """What goes on in the background has ended, and who lives has been counted."""
    while made.tasks:
        await asyncio.wait(made.tasks)
    made.census.look()


async def more_accepted(made: Site, load: Load, count: int, *, limit_s: float = 60.0) -> None:
    """Returns when so many more jobs were promised."""
    was = len(load.accepted)
    await made.until(lambda: len(load.accepted) >= was + count, limit_s=limit_s, what="accepted jobs")


def refused(load: Load) -> int:
    """How often callers were told 503."""
    return sum(n for (_, status), n in load.answers.items() if status == 503)


def longest_silence(made: Site, since: float, until: float) -> float:
    """Seconds of the longest time in which nothing was accepted."""
    return checks.longest_silence(journal.read(made.history / LEDGER), since, until)


def note_fenced(made: Rig) -> None:
    """Note each lease lost so far as a finding: its worker was healthy."""
    for name in made.workers:
        for why in fences(made, name):
            made.finding(f"a healthy runner was fenced: {name}: {why}")


def fences(made: Rig, name: str) -> list[str]:
    """Why a worker lost its lease, each time it did up to now."""
    return [str(line.get("why")) for line in _lines(made, name) if line.get("event") == "lease.lost"]


def beats(made: Site, worker: str, since: float, until: float) -> list[Entry]:
    """Revisions of the lease that a worker wrote between two instants."""
    return [
        entry
        for entry in journal.read(made.history / "leases.jsonl")
        if entry.get("owner") == worker and since <= entry["at"] <= until
    ]


def say(number: int, rounds: int) -> None:
    """How far it is."""
    if (number + 1) % 25 == 0 or number + 1 == rounds:
        print(f"{number + 1} of {rounds}", flush=True)


def _lines(made: Rig, name: str) -> list[Mapping[str, Any]]:
    found = []
    for path in (made.data.path / "logs").glob(f"{name}.log*"):
        for line in path.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found
