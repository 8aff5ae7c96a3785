"""How long the GPU stands still when it changes hands: release -> the other's first use of the device.

Two live workers in processes of their own, a real nats-server with ``sync_interval: always``, real
runners with TensorFlow and the model already in the memory of both. Printed per way of handing over:
``kept`` (the runner of a virtual device leaves and lives on) and ``ended`` (it dies first, as on
a GPU). ``python -m benchmarks.handover --help``
"""

import argparse
import asyncio
import itertools
import json
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.program.settings import Wire
from signalbox.wire import tensors
from signalbox.wire.tensors import Tensor
from tests.rigs.natsserver import NatsServer
from verification.chaos.evidence import intervals
from workers.device import devices
from workers.device.leased import LeasedDevice
from workers.device.settings import DeviceSettings
from workers.host.identity import WorkerIdentity

_LIMIT_S: Final = 120.0
_JOB: Final = tensors.encode([Tensor("x", "float32", (1,), struct.pack("<f", 1.0))])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.handover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="with a kept runner (%(default)s)")
    parser.add_argument("--ended-rounds", type=int, default=4, help="with an ended one (%(default)s)")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        asyncio.run(_work(json.loads(options.worker)))
    else:
        asyncio.run(_measure(options.rounds, options.ended_rounds))


async def _measure(rounds: int, ended_rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as name:
        folder = Path(name)
        model = folder / "half_plus_two" / "1"
        await _make_model(model)
        async with NatsServer(folder / "nats") as server:
            wire = Wire(nats_url=server.url)
            bus = await Bus.connect(wire, role="admin")
            await topology.apply(bus)
            await bus.close()
            for label, is_kept, count in (("kept", True, rounds), ("ended", False, ended_rounds)):
                took = await _series(folder / label, wire, str(model), is_kept, count)
                _print(label, took)


async def _series(folder: Path, wire: Wire, model: str, is_kept: bool, rounds: int) -> list[float]:
    """Seconds of ``rounds`` hand-overs between two workers that both always want the device."""
    facts = {
        "wire": msgspec.to_builtins(wire),
        "lock_dir": str(folder),
        "is_kept": is_kept,
        "model": model,
        "rounds": rounds,
    }
    workers = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.handover",
            "--worker",
            json.dumps({**facts, "name": name}),
            stdout=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.PIPE,
        )
        for name in ("a", "b")
    ]
    stays: list[tuple[int, float]] = []
    try:
        await asyncio.gather(*(_line_of(worker) for worker in workers))  # both runners ready
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(b"go\n")
        for lines in await asyncio.gather(*(_lines_of(worker, rounds // 2 + 1) for worker in workers)):
            stays += [(line["token"], line["released"]) for line in lines]
    finally:
        for worker in workers:
            if worker.returncode is None:
                worker.terminate()
            await worker.wait()
    first_use: dict[int, float] = {}
    for line in intervals.read(folder / "intervals"):
        if line.kind == "use":
            first_use.setdefault(line.token, line.t_in)
    stays.sort()
    pairs = itertools.pairwise(stays)
    return [first_use[after[0]] - before[1] for before, after in pairs if after[0] in first_use][1:]


async def _line_of(worker: asyncio.subprocess.Process) -> dict[str, Any]:
    assert worker.stdout is not None
    async with asyncio.timeout(_LIMIT_S):
        line: dict[str, Any] = json.loads(await worker.stdout.readline())
    return line


async def _lines_of(worker: asyncio.subprocess.Process, count: int) -> list[dict[str, Any]]:
    return [await _line_of(worker) for _ in range(count)]


async def _work(facts: dict[str, Any]) -> None:
    """One worker: hold, use the device once, release, again; it tells when it used and released."""
    log.configure("ERROR")
    bus = await Bus.connect(msgspec.convert(facts["wire"], Wire), role="worker")
    lock_dir = Path(facts["lock_dir"])
    leased = LeasedDevice(
        bus,
        devices.virtual(0, lock_dir),
        WorkerIdentity.of_this_process(facts["name"], lock_dir),
        DeviceSettings(
            lock_dir=lock_dir, is_runner_kept=facts["is_kept"], idle_s=0.0, interval_log=str(lock_dir / "intervals")
        ),
    )
    await leased.start()
    await leased.runner.ready.wait()
    _say(ready=True)
    await asyncio.to_thread(sys.stdin.readline)
    leased.want(True)
    while True:
        hold = await leased.held()
        if ("half", 1) not in hold.runner.loaded:
            await hold.runner.load("half", 1, facts["model"])  # not part of what is measured
        await hold.runner.run("half", 1, "serving_default", [_JOB])
        await hold.yield_asked.wait()
        released = _now()
        _say(token=hold.token, released=released)
        await hold.release()


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


async def _make_model(path: Path) -> None:
    code = (
        "import sys, tensorflow as tf\n"
        "m = tf.Module()\n"
        "f = tf.function(lambda x: {'y': x / 2 + 2}, "
        "input_signature=[tf.TensorSpec([None], tf.float32, name='x')])\n"
        "tf.saved_model.save(m, sys.argv[1], signatures=f.get_concrete_function())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(path), stderr=asyncio.subprocess.DEVNULL
    )
    async with asyncio.timeout(_LIMIT_S):
        if await process.wait() != 0:
            raise SystemExit("handover: the model could not be built; is TensorFlow installed?")


def _print(label: str, took: list[float]) -> None:
    ms = sorted(second * 1000 for second in took)
    p99 = ms[min(len(ms) - 1, int(len(ms) * 0.99))]
    print(
        f"hand-over, runner {label}: p50 {statistics.median(ms):.2f} ms, p99 {p99:.2f} ms, "
        f"max {ms[-1]:.2f} ms, n {len(ms)}",
        flush=True,
    )


if __name__ == "__main__":
    main()
