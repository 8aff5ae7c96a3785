"""A day in an hour: retentions are shortened so that all that is kept turns over with each turn, at full rate.

``python -m benchmarks day --turns 5 --turn-s 600``. A first stretch fills; then each turn prints jobs a second, bytes
of streams and of NATS on the disk, rows and bytes of the database, memory and open files of each program. It ends with
1 where the last turn is worse than the first. With ``--up FILE`` it takes a stack that runs already, whose programs
must have been started with the settings that it prints.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.bed import headers_of
from benchmarks.dayfigures import MARGIN, Turn, highest, shown, worse
from benchmarks.front import BODY, PATH
from benchmarks.load import Figures, prepare, run
from benchmarks.processes import cost, descendants
from signalbox.errors import SignalboxError
from signalbox.http1 import Pool
from signalbox.ports import free_port
from signalbox.up.ground import DataDir
from signalbox.up.main import bring_up
from signalbox.up.options import Options
from signalbox.up.stack import Stack

PREDICTS: Final = 24
SUBMITS: Final = 8
"""In flight: calls that wait, whose records are short-lived, and jobs that are waited for, whose records are not."""
FILLED_S: Final = 300.0
"""What is kept for two minutes is there, records for a minute longer than their messages, the console has deleted once,
which it does each minute, and the server has given disk back, within two minutes."""
LOOK_EVERY_S: Final = 10.0
_TIMEOUT_S: Final = 1.0
"""Of a run of the slow model: whoever asks for more becomes a dead letter."""
_SHOWN_FROM: Final = 10
_STREAMS: Final = "signalbox_stream_bytes"
_ROWS: Final = "signalbox_console_rows"
_DATABASE: Final = "signalbox_console_database_bytes"


class Plan(NamedTuple):
    """turns of turn_s seconds, after fill_s. letters: dead letters a turn."""

    turns: int
    turn_s: float
    fill_s: float
    letters: int


class Site(NamedTuple):
    """A running stack, as its ``up.json`` tells. file: read anew for each look, as programs are started again."""

    file: Path
    token: str

    def read(self) -> dict[str, Any]:
        """What it says now."""
        found: dict[str, Any] = json.loads(self.file.read_text())
        return found


def main(arguments: list[str]) -> int:
    """Run it. Returns 1 where the last turn is worse than the first."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks day", description=__doc__)
    parser.add_argument(
        "--turns", type=int, default=5, help="after the one that fills (%(default)s)"
    )
    parser.add_argument("--turn-s", type=float, default=600.0, help="seconds each (%(default)s)")
    parser.add_argument("--fill-s", type=float, help=f"before them (a turn, at least {FILLED_S:g})")
    parser.add_argument(
        "--letters", type=int, default=10,
        help="dead letters a turn (%(default)s); each costs a runner and the device the time until another is there",
    )  # fmt: skip
    parser.add_argument("--margin", type=float, default=MARGIN, help="(%(default)s)")
    parser.add_argument("--up", type=Path, help="up.json of a stack that runs already")
    asked = parser.parse_args(arguments)
    settings = shortened(asked.turn_s)
    fill_s = max(asked.turn_s, FILLED_S) if asked.fill_s is None else asked.fill_s
    plan = Plan(asked.turns, asked.turn_s, fill_s, asked.letters)
    print("\n".join(f"{name}={value}" for name, value in settings.items()), flush=True)
    try:
        turns = asyncio.run(_measure(asked.up, settings, plan))
    except SignalboxError as error:
        print(f"benchmarks: {error.public_message}", file=sys.stderr)
        return 1
    found = list(worse(turns[0], turns[-1], asked.margin))
    print("\n".join(found) if found else "the last turn is as the first", flush=True)
    return 1 if found else 0


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


async def _measure(up: Path | None, settings: Mapping[str, str], plan: Plan) -> list[Turn]:
    if up is not None:
        token = up.parent / "secrets" / "operator_token"
        return await _turns(Site(up, token.read_text() if token.exists() else ""), plan)
    ports = {"SIGNALBOX_METRICS_PORT": str(free_port())}
    with (
        tempfile.TemporaryDirectory(prefix="signalbox-day-") as folder,
        _environment({**settings, **ports}),
    ):
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
    options = Options(data=folder, front_port=0, console_port=0, nats_port=0, front="edge")
    with DataDir(folder) as data:
        stack = Stack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        try:
            shown_ = await bring_up(stack)
            doc = {
                "front": stack.front_url, "console": stack.console_url, "api_key": shown_.api_key,
                "metrics": stack.metrics(), "data": str(folder),
            }  # fmt: skip
            file = folder / "up.json"

            def note() -> None:
                file.write_text(json.dumps({**doc, "processes": stack.pids()}))

            note()
            keeping = asyncio.create_task(stack.keep(note))
            yield Site(file, await stack.operator_token())
            keeping.cancel()
        finally:
            await stack.stop()


# ------------------------------------------------------------------------------ turns


async def _turns(site: Site, plan: Plan) -> list[Turn]:
    every_s = plan.turn_s / plan.letters if plan.letters else 0.0
    if every_s and not await _short_runs(site):
        every_s = 0.0
        print("no operator token beside up.json: no dead letters are made", flush=True)
    if plan.fill_s:
        await _turn(site, "fills", plan.fill_s, every_s)
    return [
        await _turn(site, f"turn {number + 1}", plan.turn_s, every_s)
        for number in range(plan.turns)
    ]


async def _turn(site: Site, name: str, seconds: float, letter_every_s: float) -> Turn:
    samples: list[dict[str, float]] = []
    asked: Counter[int] = Counter()
    beside = [asyncio.create_task(_keep_looking(site, samples))]
    if letter_every_s:
        beside.append(asyncio.create_task(_make_letters(site, asked, letter_every_s)))
    doc = site.read()
    headers = headers_of(doc["api_key"])
    predicts = prepare(doc["front"], PATH, BODY, headers)
    submits = prepare(doc["front"], PATH, BODY, {**headers, "Prefer": "respond-async, wait=30"})
    try:
        figures = await asyncio.gather(
            asyncio.to_thread(run, predicts, PREDICTS, seconds=seconds, warm_s=0.0),
            asyncio.to_thread(run, submits, SUBMITS, seconds=seconds, warm_s=0.0),
        )
        samples.append(await _look(site))
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    turn = Turn(
        dict(zip(("predicts", "jobs"), (one.rate for one in figures), strict=True)),
        highest(samples),
    )
    _print(name, turn, figures, asked)
    return turn


def _print(name: str, turn: Turn, figures: tuple[Figures, Figures], letters: Counter[int]) -> None:
    total = sum(turn.rates.values())
    told = ", ".join(
        f"{what} {one.rate:.0f}/s ({' '.join(f'{s}:{n}' for s, n in sorted(one.statuses.items()))})"
        for what, one in zip(turn.rates, figures, strict=True)
    )
    print(
        f"\n{time.strftime('%H:%M:%S')} {name}: {total:.0f} jobs/s: {told}; letters {dict(letters)}"
    )
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
    async with _pool(site.read()["console"]) as pool:
        answer = await pool.request("PATCH", "/api/models/slow", body, headers)
    return answer.status in {200, 202}


async def _make_letters(site: Site, asked: Counter[int], every_s: float) -> None:
    """One job after another that takes too long, so that its runner is killed; no two have the same input."""
    doc = site.read()
    headers = {**headers_of(doc["api_key"]), "Prefer": "respond-async, wait=60"}
    async with _pool(doc["front"], timeout_s=90.0) as pool:
        while True:
            body = json.dumps({"inputs": [30.0 + time.time() % 1000 / 1000]}).encode()
            try:
                answer = await pool.request("POST", "/v1/models/slow:predict", body, headers)
                asked[answer.status] += 1
            except SignalboxError:
                asked[0] += 1
            await asyncio.sleep(every_s)


@asynccontextmanager
async def _pool(url: str, timeout_s: float = 20.0) -> AsyncIterator[Pool]:
    pool = Pool(url, size=1, timeout_s=timeout_s)
    try:
        yield pool
    finally:
        await pool.close()


# ------------------------------------------------------------------------------ looks


async def _keep_looking(site: Site, samples: list[dict[str, float]]) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        samples.append(await _look(site))


async def _look(site: Site) -> dict[str, float]:
    """Each figure as it is now."""
    doc = site.read()
    found = await asyncio.to_thread(_of_machine, doc)
    return found | await _of_metrics(doc["metrics"]["controller"])


def _of_machine(doc: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {"disk of NATS": _disk_bytes(Path(doc["data"]))}
    for name, pid in doc["processes"].items():
        # What ``signalbox up`` runs has names of its own.
        family = (pid, *(descendants(pid) if name != "up" else ()))
        for each in family if pid else ():
            try:
                rss, files = cost(each).rss_bytes, len(os.listdir(f"/proc/{each}/fd"))  # noqa: PTH208  only how many
            except (FileNotFoundError, ProcessLookupError):
                continue
            found[f"rss {name}"] = found.get(f"rss {name}", 0) + rss
            found[f"files {name}"] = found.get(f"files {name}", 0) + files
    return found


def _disk_bytes(data: Path) -> int:
    """What all stores of JetStream below ``data`` take, of every node; a file may go while it is looked at."""
    size = 0
    for store in data.rglob("jetstream"):
        for path in store.rglob("*"):
            try:
                size += path.stat().st_blocks * 512
            except FileNotFoundError:
                continue
    return size


async def _of_metrics(url: str) -> dict[str, float]:
    """Streams and rows, as the controller counts them every half minute."""
    base, _, path = url.partition("//")[2].partition("/")
    async with _pool(f"http://{base}") as pool:
        text = (await pool.request("GET", f"/{path or 'metrics'}", b"", {})).body.decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == _STREAMS:
                found[f"stream {sample.labels['stream']}"] = sample.value
            elif sample.name == _ROWS:
                found[f"rows {sample.labels['table']}"] = sample.value
            elif sample.name == _DATABASE:
                found["database"] = sample.value
    return found
