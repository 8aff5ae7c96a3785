"""This checkout against another one: both embedded stacks up, two models, under load in turn, in short windows.

``python -m benchmarks.against FOLDER`` takes the other checkout, of a commit that has ``benchmarks/shortest``. What
else the machine does meets both; equal runs one after the other differed by a quarter.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.rig.bed import headers_of
from benchmarks.rig.load import prepare, run
from benchmarks.rig.processes import cost, descendants
from benchmarks.shortest import ratio
from signalbox.ops.up.consoleclient import ConsoleClient
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.main import bring_up
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack

OURS: Final = Path(__file__).parents[1]
GOAL: Final = 0.95
UP_S: Final = 300.0
WARM_S: Final = 0.3


class Standing(NamedTuple):
    """A stack of one checkout."""

    front: str
    key: str
    pids: Mapping[str, int]

    def load(self, model: str, in_flight: int, seconds: float, warm_s: float) -> Counter[int]:
        """Answers by status."""
        target = prepare(self.front, f"/v1/models/{model}:predict", ratio.BODIES[model], headers_of(self.key))
        return Counter(run(target, in_flight, seconds=seconds, warm_s=warm_s).statuses)

    def cpu_s(self) -> float:
        """Processor seconds of all its programs so far."""
        return sum(cost(each).cpu_s for pid in self.pids.values() for each in (pid, *descendants(pid)))


def main() -> None:
    """Compare two checkouts, or (``--stand``) be the stack of one until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("folder", type=Path, help="the other checkout")
    parser.add_argument("--seconds", type=float, default=1.2, help="of a window (%(default)s)")
    parser.add_argument("--rounds", type=int, default=24, help="windows of each, by model and number in flight")
    parser.add_argument("--stand", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stand:
        asyncio.run(_stand(options.folder, options.stand))
        return
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as base, ExitStack() as stack:
        before = stack.enter_context(_standing(options.folder.resolve(), Path(base) / "before"))
        now = stack.enter_context(_standing(OURS, Path(base) / "now"))
        for model in ratio.BODIES:
            for each in (before, now):
                _warm(each, model)
            for in_flight in ratio.IN_FLIGHT:
                _compare(model, in_flight, before, now, options.rounds, options.seconds)


def _warm(stack: Standing, model: str) -> None:
    """Return when the model answers and every size of batch was run."""
    deadline = time.monotonic() + UP_S
    while set(stack.load(model, 1, WARM_S, 0.0)) != {200}:
        if time.monotonic() > deadline:
            raise SystemExit(f"{model} does not answer.")
    stack.load(model, max(ratio.IN_FLIGHT), 3.0, 0.0)


def _compare(model: str, in_flight: int, before: Standing, now: Standing, rounds: int, seconds: float) -> None:
    rates: dict[str, list[float]] = {before.front: [], now.front: []}
    spent = dict.fromkeys((before.front, now.front), 0.0)
    for number in range(rounds):
        for each in (before, now) if number % 2 else (now, before):
            began = each.cpu_s()
            statuses = each.load(model, in_flight, seconds, WARM_S)
            spent[each.front] += each.cpu_s() - began
            if set(statuses) != {200}:
                raise SystemExit(f"{model}: answered {dict(statuses)}")
            rates[each.front].append(statuses[200] / seconds)
    shares = [new / old for new, old in zip(rates[now.front], rates[before.front], strict=True)]
    low, median, high = statistics.quantiles(shares, n=4)
    means = [statistics.mean(rates[each.front]) for each in (before, now)]
    share = means[1] / means[0]
    cpu = [spent[each.front] / (sum(rates[each.front]) * seconds) * 1e3 for each in (before, now)]
    print(
        f"{model}, {in_flight} in flight: {means[1]:.0f}/s of {means[0]:.0f}, {share:.2f} (at least {GOAL}: "
        f"{'as promised' if share >= GOAL else 'NOT MET'}); windows {low:.2f}, {median:.2f}, {high:.2f}; "
        f"CPU, ms a request (warm-up included): {cpu[1]:.2f} of {cpu[0]:.2f}",
        flush=True,
    )


@contextmanager
def _standing(checkout: Path, folder: Path) -> Iterator[Standing]:
    """The stack of a checkout, its models loaded. This file is what starts it there."""
    reported = folder.with_suffix(".json")
    command = [sys.executable, "-P", __file__, str(folder), "--stand", str(reported)]
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    with folder.with_suffix(".log").open("w") as log_file:
        process = subprocess.Popen(
            command, cwd=checkout, env=env, stdin=subprocess.PIPE, stdout=log_file, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + UP_S
        while not reported.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{checkout} did not come up:\n{folder.with_suffix('.log').read_text()[-2000:]}")
            time.sleep(0.2)
        yield Standing(**json.loads(reported.read_text()))
    finally:
        process.communicate()
        process.wait(UP_S)


async def _stand(folder: Path, reported: Path) -> None:
    options = UpOptions(data=folder, workers=1, front="edge", front_port=0, console_port=0, nats_port=0)
    with DataDir(folder) as data:
        stack = UpStack(options, data, lambda sentence: print(sentence, flush=True))
        try:
            key = (await bring_up(stack)).api_key
            path = folder / "models" / "mlp"
            arguments = ("benchmarks.shortest.programs", "mlp", str(path / "1"))
            await stack.run_to_end("mlp", *arguments, env=stack.env("worker"))
            async with ConsoleClient(stack.console_url, await stack.operator_token()) as console:
                await console.register("mlp", path, "784-128-10.", rows_independent=True)
            part = reported.with_suffix(".part")
            part.write_text(json.dumps(Standing(stack.front_url, key, stack.pids())._asdict()))
            part.rename(reported)
            await asyncio.to_thread(sys.stdin.read)
        finally:
            await stack.stop()


if __name__ == "__main__":
    main()
