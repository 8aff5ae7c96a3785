"""A leased device in a process of its own, for tests that kill or freeze it: commands on stdin, facts on stdout.

``python -m tests.rigs.devicehost JSON`` with ``url, worker, lock_dir, interval_log`` and device settings in
``rules``. The runner is that of :mod:`tests.rigs.lightrunner`. Prints one JSON object a line:
``{"event": "held", "token": 7, "at": <boottime>}``. Commands: ``want``, ``release``, ``run SECONDS``, ``half X``,
``restart``, ``usable``, ``close``, ``block SECONDS``.
"""

import asyncio
import json
import struct
import sys
import time
from pathlib import Path
from typing import Any

import workers.device.guardedrunner
from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from signalbox.wire import tensors
from signalbox.wire.tensors import Tensor
from signalbox.wire.workerdocs import Device
from tests.rigs import lightworker
from workers.device import devices
from workers.device.handle import LeaseHandle
from workers.device.leased import LeasedDevice
from workers.device.settings import DeviceSettings
from workers.host.identity import WorkerIdentity


def say(event: str, **facts: Any) -> None:
    """One fact, stamped."""
    at = time.clock_gettime(time.CLOCK_BOOTTIME)
    sys.stdout.write(json.dumps({"event": event, "at": at, **facts}) + "\n")
    sys.stdout.flush()


def guard_of(leased: LeasedDevice) -> int:
    """Process id of its guard; 0 while there is none."""
    guard = leased._guarded._guard
    return guard.pid if guard is not None else 0


def frame(name: str, value: float) -> bytes:
    """The input frame of one float."""
    return tensors.encode([Tensor(name, "float32", (1,), struct.pack("<f", value))])


class Host:
    """The device and what it is told to do with it."""

    def __init__(self, leased: LeasedDevice, *, is_yielding: bool) -> None:
        self.leased, self.is_yielding = leased, is_yielding

    async def follow(self) -> None:
        """Report every hold from its beginning to its end; yield when asked to."""
        while True:
            lease = await self.leased.held()
            say("held", token=lease.token, runner=lease.runner.pid, guard=guard_of(self.leased))
            if self.is_yielding:
                await asyncio.wait(
                    {asyncio.ensure_future(lease.yield_asked.wait()), asyncio.ensure_future(lease.ended.wait())},
                    return_when=asyncio.FIRST_COMPLETED,
                )
                await lease.release()
            else:
                await lease.ended.wait()
            say("lost" if lease.lost.is_set() else "released", token=lease.token)

    async def obey(self, line: str) -> None:
        """Carry out one command and report it."""
        verb, *words = line.split()
        if verb == "want":
            self.leased.want(True)
        elif verb == "release":
            lease = await self.leased.held()
            await lease.release()
        elif verb == "restart":
            lease = await self.leased.held()
            await lease.runner.restart()
            say("restarted", token=lease.token, runner=lease.runner.pid)
        elif verb == "usable":
            say("usable", is_left_alone=self.leased.is_left_alone)
        elif verb == "block":
            time.sleep(float(words[0]))  # noqa: ASYNC251  what is tested is a loop that does not turn
        elif verb in {"run", "half"}:
            lease = await self.leased.held()
            await self.infer(lease, verb, float(words[0]))

    async def infer(self, lease: LeaseHandle, verb: str, value: float) -> None:
        """One job on the slow model or on half_plus_two."""
        self.leased.busy()
        try:
            model, name = ("slow", "seconds") if verb == "run" else ("half", "x")
            await lease.runner.load(model, 1, str(lightworker.version(model)))
            say("started", token=lease.token)
            report = await lease.runner.run(model, 1, "serving_default", [frame(name, value)])
            (y,) = struct.unpack("<f", tensors.decode(report.frames[0])[0].data)
            say("answer", token=lease.token, y=y)
        except SignalboxError as error:
            say("failed", code=error.code)
        finally:
            self.leased.idle()


async def main(facts: dict[str, Any]) -> None:
    """Until stdin ends or says ``close``."""
    log.configure(program=facts["worker"])
    bus = await Bus.connect(Wire(nats_url=facts["url"]), role="worker")
    lock_dir = Path(facts["lock_dir"])
    settings = DeviceSettings(lock_dir=lock_dir, interval_log=facts.get("interval_log", ""), **facts.get("rules", {}))
    workers.device.guardedrunner.RUNNER = "tests.rigs.lightrunner"
    leased = LeasedDevice(
        bus,
        Device(**facts["device"]) if "device" in facts else devices.virtual(0, lock_dir),
        WorkerIdentity.of_this_process(facts["worker"], lock_dir),
        settings,
    )
    host = Host(leased, is_yielding=facts.get("is_yielding", False))
    await leased.start()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(host.follow())
        jobs: set[asyncio.Task[None]] = set()
        await leased.runner.ready.wait()
        say("ready", runner=leased.runner.pid, guard=guard_of(leased))
        while (line := (await reader.readline()).decode().strip()) not in {"", "close"}:
            jobs.add(group.create_task(host.obey(line)))
        for job in jobs:
            await job
        await leased.close()
        following.cancel()
    await bus.close()
    say("closed")


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
