"""``signalbox host``: keep the wanted workers on this machine's devices, until Ctrl-C or SIGTERM."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from signalbox.bus.client import Bus
from signalbox.ops import foreground
from signalbox.ops.host import adding, machine
from signalbox.ops.host.agent import NOT_BEGUN, Agent, Plan
from signalbox.ops.host.machine import Machine, Place
from signalbox.ops.host.settings import PREFIX, HostSettings
from signalbox.ops.programlog import Shown
from signalbox.ops.up.child import Child, Spec
from signalbox.ops.up.datadir import DataDir
from signalbox.program import health, metrics
from signalbox.program.errors import Misconfigured
from signalbox.program.heldfile import HeldFile
from signalbox.program.looplag import LoopWatch
from signalbox.program.settings import describe, load
from signalbox.wire.names import HOST_WORKERS, host_worker
from signalbox.wire.scaling import Measured

_MEASURED: Final = "measured.json"
_EXAMPLES: Final = """\
Reads SIGNALBOX_NATS_URL, _USER, _PASSWORD and SIGNALBOX_HOST_..., see docs/settings.md; what is given here comes first.
Workers inherit SIGNALBOX_WORKER_....

  signalbox host --device gpu:0 --device gpu:1 --class a100
  signalbox host --device cpu:0=small --per-device 1 --id h1
  signalbox host --upgrade
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = _EXAMPLES
    parser.add_argument("--id", help="name of this host in the fleet (as the machine is called)")
    parser.add_argument(
        "--device",
        action="append",
        metavar="DEVICE[=CLASS]",
        help="a device to keep workers at: cpu:N, gpu:N or an NVIDIA UUID; several (every GPU)",
    )
    parser.add_argument("--class", dest="device_class", help="class that the devices count in (as a GPU is called)")
    parser.add_argument("--per-device", help="workers of each device (2)")
    parser.add_argument("--data", metavar="DIR", help="folder of lock and logs (.signalbox-host)")
    parser.add_argument(
        "--upgrade",
        action="store_true",
        help="have the agent that runs in --data replace its workers one by one, and end",
    )
    acts = parser.add_subparsers(title="acts", metavar="ACT")
    add = acts.add_parser("add", help="set another machine up as a host, over ssh")
    adding.add_arguments(add)
    add.set_defaults(act=adding.run)
    parser.add_argument("--check-config", action="store_true", help="print the settings, secrets hidden, and end")


def run(arguments: argparse.Namespace) -> int:
    """Keep workers; the exit status. Raises :class:`Misconfigured`."""
    settings = load(HostSettings, PREFIX, _given(arguments, os.environ))
    if arguments.check_config:
        sys.stdout.write(f"{describe(settings, PREFIX)}\n")
        return 0
    folder = Path(settings.data_dir)
    if arguments.upgrade:
        return _ask_for_upgrade(folder)
    return foreground.run(
        "host",
        folder,
        lambda data, say: HostProgram(settings, data, say),
        HostProgram.work,
        shows_logs=settings.shows_logs,
    )


class HostProgram:
    """One agent, from its connection on. say: called with sentences a person should read."""

    def __init__(self, settings: HostSettings, data: DataDir, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._data = data
        self._say = say
        self._agent: Agent | None = None

    async def work(self) -> None:
        """Keep workers until cancelled; then end them."""
        settings = self._settings
        health.READY.add(self)
        watch = LoopWatch(abort_s=None).start()
        metrics.serve(settings.metrics_port, host=settings.metrics_host)  # first: to ask a driver may take a minute
        try:
            await self._work()
        finally:
            watch.stop()
            health.READY.remove(self)

    def faults(self) -> list[str]:
        """What is wanted here and not ready, see :mod:`signalbox.program.health`."""
        return self._agent.faults() if self._agent is not None else [NOT_BEGUN]

    async def _work(self) -> None:
        settings = self._settings
        env = machine.environment(settings.worker_nats_user, settings.worker_nats_password)
        found = await machine.ask(settings.worker_command, env, list(settings.device_classes()))
        if not found.devices:
            raise Misconfigured(f"There is no GPU here. Name devices: --device cpu:0, or {PREFIX}DEVICES.")
        if settings.nats_seed and len(found.devices) * settings.per_device > HOST_WORKERS:
            raise Misconfigured(
                f"A host's key is for {HOST_WORKERS} workers, and {len(found.devices)} devices with "
                f"{settings.per_device} each have more: set {PREFIX}PER_DEVICE or {PREFIX}DEVICES."
            )
        async with await Bus.connect(settings, role="host", name=settings.host_id) as bus:
            await self._keep(bus, found, env)

    async def stop(self) -> None:
        """Nothing is left: :meth:`work` ends what it has started."""

    async def _keep(self, bus: Bus, found: Machine, env: Mapping[str, str]) -> None:
        settings = self._settings
        places = {place.device.id: place for place in found.devices}
        agent = Agent(
            bus, _plan(settings, found), partial(self._children, places, env), say=self._say, measured=self._known()
        )
        self._agent = agent
        for place in found.devices:
            self._say(f"{place.setting}: {place.device.name}, {place.device.id}")
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, agent.upgrade)
        try:
            await agent.run()
        finally:
            with suppress(OSError):  # the disk may be full
                self._data.write_json(_MEASURED, msgspec.to_builtins(agent.workers.measured))

    def _known(self) -> Measured | None:
        """What an earlier agent has measured here."""
        with suppress(msgspec.MsgspecError):
            kept: dict[str, Any] = self._data.read_json(_MEASURED)
            return msgspec.convert(kept, Measured) if kept else None
        return None

    def _children(self, places: Mapping[str, Place], env: Mapping[str, str], device: str) -> list[Child]:
        numbers = range(1, self._settings.per_device + 1)
        return [self._child(places, env, device, number) for number in numbers]

    def _child(self, places: Mapping[str, Place], env: Mapping[str, str], device: str, number: int) -> Child:
        """Worker ``number`` of a device."""
        settings, place = self._settings, places[device]
        ordinal = list(places).index(device) * settings.per_device + number
        # A key has the rights of workers with a number; which devices there are was not known when it was made.
        name = host_worker(settings.host_id, ordinal if settings.nats_seed else f"{place.label}-{number}")
        own = {"SIGNALBOX_WORKER_ID": name, "SIGNALBOX_WORKER_DEVICE": place.setting}
        if settings.metrics_port:
            own["SIGNALBOX_METRICS_PORT"] = str(settings.metrics_port + ordinal)
        spec = Spec(
            name,
            settings.worker_command,
            {**env, **own},
            ready_s=settings.ready_s,
            stop_s=settings.stop_s,
            on_output=Shown(sys.stdout.fileno()) if settings.shows_logs else None,
        )
        return Child(spec, self._data.path / "logs", self._say)


def _plan(settings: HostSettings, found: Machine) -> Plan:
    return Plan(
        id=settings.host_id,
        host=found.host,
        devices=machine.classed(found.devices, settings.device_classes(), settings.device_class),
        cache_dir=Path(found.cache_dir),
        presence_s=settings.presence_s,
        presence_ttl_s=settings.presence_ttl_s,
        warm_s=settings.warm_s,
    )


def _given(arguments: argparse.Namespace, env: Mapping[str, str]) -> dict[str, str]:
    """The environment, with what the command line says in its place."""
    options = {
        "ID": arguments.id,
        "DEVICES": ",".join(arguments.device) if arguments.device else None,
        "DEVICE_CLASS": arguments.device_class,
        "PER_DEVICE": arguments.per_device,
        "DATA_DIR": arguments.data,
    }
    return {**env, **{f"{PREFIX}{name}": text for name, text in options.items() if text is not None}}


def _ask_for_upgrade(folder: Path) -> int:
    """Send SIGHUP to the agent that runs in a folder. Raises :class:`Misconfigured` where none does."""
    held = HeldFile(folder / "lock")
    if not folder.is_dir() or held.take():
        held.close()
        raise Misconfigured(f"No `signalbox host` runs in {folder}. Name its folder with --data.")
    os.kill(int(held.holder()), signal.SIGHUP)
    sys.stdout.write(f"asked: the agent replaces its workers one by one, see {folder / 'logs' / 'host.log'}\n")
    return 0
