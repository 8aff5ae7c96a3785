"""A day in an hour: retentions are shortened so that all that is kept turns over with each turn, at full rate.

``python -m benchmarks day --turns 5 --turn-s 600``. A first stretch fills; then each turn prints jobs a second, bytes
of streams and of NATS on the disk, rows and bytes of the database, memory and open files of each program. At the end
each figure is said to be level, or by how much it grows with each turn; the exit status is 1 where one is not level.

With ``--up FILE`` it measures a stack that runs already, whose programs must have been started with the settings that
``--settings`` prints: ``env $(python -m benchmarks day --settings) python -m signalbox production``.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.day.figures import MARGIN, Turn, highest, shown, table, verdicts
from benchmarks.day.looks import Site, keep_looking, look, pool
from benchmarks.front.path import BODY, PATH
from benchmarks.rig.bed import headers_of
from benchmarks.rig.load import Figures, prepare, run
from signalbox.ops.ports import free_port
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.main import bring_up
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program.errors import Misconfigured, SignalboxError

PREDICTS: Final = 24
SUBMITS: Final = 8
"""In flight: calls that wait, whose records are short-lived, and jobs that are waited for, whose records are not."""
FILLED_S: Final = 300.0
"""What is kept for two minutes is there, records for a minute longer than their messages, the console has deleted once,
which it does each minute, and the server has given disk back, within two minutes."""
_TIMEOUT_S: Final = 1.0
"""Of a run of the slow model: a job that asks for more becomes a dead letter."""
_SHOWN_FROM: Final = 10


class Plan(NamedTuple):
    """turns of turn_s seconds, after fill_s. letters: dead letters a turn. predicts, submits: in flight."""

    turns: int
    turn_s: float
    fill_s: float
    letters: int
    predicts: int
    submits: int

    @property
    def letter_every_s(self) -> float:
        """Pause between two dead letters; 0 = none are made."""
        return self.turn_s / self.letters if self.letters else 0.0


def main(arguments: list[str]) -> int:
    """Run it. Returns 1 where a figure is not level."""
    asked = _parser().parse_args(arguments)
    settings = shortened(asked.turn_s)
    print("\n".join(f"{name}={value}" for name, value in settings.items()), flush=True)
    if asked.settings:
        return 0
    fill_s = max(asked.turn_s, FILLED_S) if asked.fill_s is None else asked.fill_s
    plan = Plan(asked.turns, asked.turn_s, fill_s, asked.letters, asked.predicts, asked.submits)
    try:
        turns = asyncio.run(_measure(asked.up, settings, plan))
    except SignalboxError as error:
        print(f"benchmarks: {error.public_message}", file=sys.stderr)
        return 1
    return _judge(turns, asked.margin)


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
    add("--predicts", type=int, default=PREDICTS, help="calls in flight (%(default)s)")
    add("--submits", type=int, default=SUBMITS, help="jobs in flight (%(default)s)")
    add("--margin", type=float, default=MARGIN, help="of the first turn's figure (%(default)s)")
    add("--up", type=Path, help="up.json of a stack that runs already")
    add("--settings", action="store_true", help="only print the settings such a stack needs")
    return parser


def _judge(turns: Sequence[Turn], margin: float) -> int:
    """Print the verdict of each figure; the exit status."""
    found = verdicts(turns, margin)
    print(f"\nfrom the first turn to the last:\n{table(found)}")
    bad = [one.figure for one in found if not one.is_level]
    print(f"not level: {', '.join(bad)}" if bad else "every figure is level", flush=True)
    return 1 if bad else 0


def shortened(turn_s: float) -> dict[str, str]:
    """Settings under which all that is kept turns over within a turn, or the two minutes that it fills.

    Records of synchronous calls go sooner than others, or they would go with them.
    """
    kept_s = f"{max(120.0, turn_s / 2):g}"
    return {
        "SIGNALBOX_RECORDS_KEPT_S": kept_s,
        "SIGNALBOX_RESULTS_KEPT_S": "60",
        "SIGNALBOX_SYNC_RESULTS_KEPT_S": "60",
        "SIGNALBOX_DEAD_LETTERS_KEPT_S": kept_s,
        "SIGNALBOX_HISTORY_KEPT_S": "600",
        "SIGNALBOX_CONSOLE_JOBS_KEPT_DAYS": f"{float(kept_s) / 86_400:.6f}",
    }


def check_started_with(settings: Mapping[str, str], environ: Path) -> None:
    """Raise :class:`Misconfigured` unless the process whose ``/proc/PID/environ`` is given has all settings."""
    has = {os.fsdecode(each) for each in environ.read_bytes().split(b"\0")}
    if lacking := [f"{k}={v}" for k, v in settings.items() if f"{k}={v}" not in has]:
        raise Misconfigured(f"The stack was started without {' '.join(lacking)}.")


async def _measure(up: Path | None, settings: Mapping[str, str], plan: Plan) -> list[Turn]:
    if up is not None:
        token = up.parent / "secrets" / "operator_token"
        site = Site(up, token.read_text() if token.exists() else "")
        controller = site.read()["processes"]["controller"]
        check_started_with(settings, Path(f"/proc/{controller}/environ"))
        return await _turns(site, plan)
    ports = {"SIGNALBOX_METRICS_PORT": str(free_port())}
    with tempfile.TemporaryDirectory(prefix="signalbox-day-") as folder, _environment({**settings, **ports}):
        async with _stack(Path(folder)) as site:
            return await _turns(site, plan)


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """The programs of a stack inherit it."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@asynccontextmanager
async def _stack(folder: Path) -> AsyncIterator[Site]:
    """An embedded stack of our own."""
    options = UpOptions(data=folder, front_port=0, console_port=0, nats_port=0, front="edge")
    with DataDir(folder) as data:
        stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        try:
            facts = {
                "api_key": (await bring_up(stack)).api_key,
                "front": stack.front_url,
                "console": stack.console_url,
                "metrics": stack.metrics(),
                "data": str(folder),
            }
            file = folder / "up.json"

            def note() -> None:
                file.write_text(json.dumps({**facts, "processes": stack.pids()}))

            note()
            keeping = asyncio.create_task(stack.keep(note))
            yield Site(file, await stack.operator_token())
            keeping.cancel()
        finally:
            await stack.stop()


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
    beside = [asyncio.create_task(keep_looking(site, samples))]
    if plan.letters:
        beside.append(asyncio.create_task(_make_letters(site, letters, plan.letter_every_s)))
    doc = site.read()
    headers = headers_of(doc["api_key"])
    waiting = {**headers, "Prefer": "respond-async, wait=30"}
    loads = {
        "predicts": (prepare(doc["front"], PATH, BODY, headers), plan.predicts),
        "jobs": (prepare(doc["front"], PATH, BODY, waiting), plan.submits),
    }
    try:
        figures = await asyncio.gather(
            *(
                asyncio.to_thread(run, target, in_flight, seconds=seconds, warm_s=0.0)
                for target, in_flight in loads.values()
            )
        )
        samples.append(await look(site))
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    found = dict(zip(loads, figures, strict=True))
    turn = Turn({what: one.rate for what, one in found.items()}, highest(samples))
    _print(name, turn, found, letters)
    return turn


def _print(name: str, turn: Turn, found: Mapping[str, Figures], letters: Counter[int]) -> None:
    total = sum(turn.rates.values())
    told = ", ".join(
        f"{what} {one.rate:.0f}/s ({' '.join(f'{s}:{n}' for s, n in sorted(one.statuses.items()))})"
        for what, one in found.items()
    )
    print(f"\n{time.strftime('%H:%M:%S')} {name}: {total:.0f} jobs/s: {told}; letters {dict(letters)}")
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
