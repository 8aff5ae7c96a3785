"""A day in an hour: retentions are shortened so that all that is kept turns over with each turn, at full rate.

``python -m benchmarks day --turns 5 --turn-s 600``. A first stretch fills; then each turn prints jobs a second, bytes
of streams and of NATS on the disk, rows and bytes of the database, memory and open files of each program. At the end
each figure is said to be level, or by how much it grows with each turn. Then a fresh stack is brought up beside it, and
both are asked in turn. The exit status is 1 where a figure is not level, or the rate is not that of the fresh stack.

With ``--up FILE`` it measures a stack that runs already, whose programs must have been started with the settings that
``--settings`` prints: ``env $(python -m benchmarks day --settings) python -m verification.production``.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.day import fresh, stacks
from benchmarks.day.figures import MARGIN, Turn, highest, shown, table, verdicts
from benchmarks.day.load import USUAL, Load
from benchmarks.day.samples import Site, keep_sampling, pool, sample
from benchmarks.rig.bed import headers_of
from benchmarks.rig.load import Figures
from signalbox.program.errors import SignalboxError

FILLED_S: Final = 300.0
"""What is kept for two minutes is there, records for a minute longer than their messages, the console has deleted once,
which it does each minute, and the server has given disk back, within two minutes."""
_TIMEOUT_S: Final = 1.0
"""Of a run of the slow model: a job that asks for more becomes a dead letter."""
_SHOWN_FROM: Final = 10


class Plan(NamedTuple):
    """turns of turn_s seconds, after fill_s. letters: dead letters a turn."""

    turns: int
    turn_s: float
    fill_s: float
    letters: int
    load: Load

    @property
    def letter_every_s(self) -> float:
        """Pause between two dead letters; 0 = none are made."""
        return self.turn_s / self.letters if self.letters else 0.0


def main(arguments: list[str]) -> int:
    """Run it. Returns 1 where a figure is not level."""
    asked = _parser().parse_args(arguments)
    settings = stacks.shortened(asked.turn_s)
    print("\n".join(f"{name}={value}" for name, value in settings.items()), flush=True)
    if asked.settings:
        return 0
    fill_s = max(asked.turn_s, FILLED_S) if asked.fill_s is None else asked.fill_s
    plan = Plan(asked.turns, asked.turn_s, fill_s, asked.letters, Load(asked.predicts, asked.submits))
    try:
        measured = _running(asked.up, settings, plan, asked.margin) if asked.up else _ours(settings, plan, asked.margin)
        return 0 if asyncio.run(measured) else 1
    except SignalboxError as error:
        print(f"benchmarks: {error.public_message}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks day", description=__doc__)
    add = parser.add_argument
    add("--turns", type=int, default=5, help="after the one that fills (%(default)s)")
    add("--turn-s", type=float, default=600.0, help="seconds each (%(default)s)")
    add("--fill-s", type=float, help=f"before them (a turn, at least {FILLED_S:g})")
    add(
        "--letters",
        type=int,
        default=10,
        help="dead letters a turn (%(default)s); each ends a runner, and the device waits for the next one",
    )
    add("--predicts", type=int, default=USUAL.predicts, help="calls in flight (%(default)s)")
    add("--submits", type=int, default=USUAL.jobs, help="jobs in flight (%(default)s)")
    add("--margin", type=float, default=MARGIN, help="of the first turn's figure (%(default)s)")
    add("--up", type=Path, help="up.json of a stack that runs already")
    add("--settings", action="store_true", help="only print the settings such a stack needs")
    return parser


async def _running(up: Path, settings: Mapping[str, str], plan: Plan, margin: float) -> bool:
    """Whether a stack that runs already stays level."""
    token = up.parent / "secrets" / "operator_token"
    site = Site(up, token.read_text() if token.exists() else "")
    controller = site.read()["processes"]["controller"]
    stacks.check_started_with(settings, Path(f"/proc/{controller}/environ"))
    return _is_level(await _turns(site, plan), margin)


async def _ours(settings: Mapping[str, str], plan: Plan, margin: float) -> bool:
    """Whether a stack of our own stays level, and does what a fresh one does."""
    async with stacks.running(settings) as site:
        is_level = _is_level(await _turns(site, plan), margin)
        share = await fresh.share(site, settings, plan.load)
    is_as_fresh = share >= fresh.LEAST
    verdict = "as promised" if is_as_fresh else "NOT MET"
    print(f"{share:.3f} of a fresh stack's rate (at least {fresh.LEAST}: {verdict})", flush=True)
    return is_level and is_as_fresh


def _is_level(turns: Sequence[Turn], margin: float) -> bool:
    """Print the verdict of each figure; whether all are level."""
    found = verdicts(turns, margin)
    print(f"\nfrom the first turn to the last:\n{table(found)}")
    bad = [one.figure for one in found if not one.is_level]
    print(f"not level: {', '.join(bad)}" if bad else "every figure is level", flush=True)
    return not bad


# ------------------------------------------------------------------------------ turns


async def _turns(site: Site, plan: Plan) -> list[Turn]:
    if plan.letters and not await _short_runs(site):
        plan = plan._replace(letters=0)
        print("no operator token beside up.json: no dead letters are made", flush=True)
    if plan.fill_s:
        await _turn(site, "fills", plan.fill_s, plan)
    return [await _turn(site, f"turn {number + 1}", plan.turn_s, plan) for number in range(plan.turns)]


async def _turn(site: Site, name: str, seconds: float, plan: Plan) -> Turn:
    samples: list[dict[str, float]] = []
    letters: Counter[int] = Counter()
    beside = [asyncio.create_task(keep_sampling(site, samples))]
    if plan.letters:
        beside.append(asyncio.create_task(_make_letters(site, letters, plan.letter_every_s)))
    try:
        found = await plan.load.drive(site, seconds)
        samples.append(await sample(site))
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    turn = Turn({what: one.rate for what, one in found.items()}, highest(samples))
    _print(name, turn, found, letters)
    return turn


def _print(name: str, turn: Turn, found: Mapping[str, Figures], letters: Counter[int]) -> None:
    total = sum(turn.rates.values())
    reported = ", ".join(
        f"{what} {one.rate:.0f}/s ({' '.join(f'{s}:{n}' for s, n in sorted(one.statuses.items()))})"
        for what, one in found.items()
    )
    print(f"\n{time.strftime('%H:%M:%S')} {name}: {total:.0f} jobs/s: {reported}; letters {dict(letters)}")
    for kind in dict.fromkeys(name.split()[0] for name in turn.most):
        parts = [
            f"{figure.removeprefix(kind).strip() or 'all'} {shown(kind, value)}"
            for figure, value in turn.most.items()
            if figure.split()[0] == kind and value >= _SHOWN_FROM
        ]
        print(f"  {kind:<9} {', '.join(parts)}")
    sys.stdout.flush()


# ------------------------------------------------------------------------------ dead letters


async def _short_runs(site: Site) -> bool:
    """Have runs of the slow model end soon; whether that could be asked for."""
    if not site.token:
        return False
    headers = {"Authorization": f"Bearer {site.token}", "Content-Type": "application/json"}
    body = json.dumps({"timeout_s": _TIMEOUT_S, "reason": "dead letters for a benchmark"}).encode()
    async with pool(site.read()["console"]) as console:
        answer = await console.request("PATCH", "/api/models/slow", body, headers)
    return answer.status in {200, 202}


async def _make_letters(site: Site, asked: Counter[int], every_s: float) -> None:
    """One job after another that takes too long, so that its runner is killed; no two have the same input."""
    doc = site.read()
    headers = {**headers_of(doc["api_key"]), "Prefer": "respond-async, wait=60"}
    async with pool(doc["front"], timeout_s=90.0) as front:
        while True:
            body = json.dumps({"inputs": [30.0 + time.time() % 1000 / 1000]}).encode()
            try:
                answer = await front.request("POST", "/v1/models/slow:predict", body, headers)
                asked[answer.status] += 1
            except SignalboxError:
                asked[0] += 1
            await asyncio.sleep(every_s)
