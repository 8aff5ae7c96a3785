"""What a host is: its devices, asked of the program that runs its workers, its disk, and its workers' environment."""

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from signalbox.program.errors import Misconfigured
from signalbox.wire.scaling import HostDevice
from signalbox.wire.workerdocs import Device

_ASKED_S: Final = 60.0
_CPU: Final = "cpu"
_OWN: Final = ("SIGNALBOX_NATS_USER", "SIGNALBOX_NATS_PASSWORD", "SIGNALBOX_NATS_SEED")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A device. setting: as a worker is to be told it. label: short, for the names of its workers."""

    setting: str
    label: str
    device: Device


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What workers find here. host: as their presence has it. cache_dir: of their disk cache."""

    host: str
    cache_dir: str
    devices: tuple[Place, ...]


class Disk(NamedTuple):
    """Bytes of a file system, and those that are free."""

    size: int
    free: int


async def ask(command: Sequence[str], env: Mapping[str, str], devices: Sequence[str]) -> Machine:
    """What the program that runs workers finds; devices: none = every GPU.

    A process that is thrown away: asking a driver may hang for good. Raises :class:`Misconfigured`.
    """
    what = " ".join(command)
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            "--devices",
            *devices,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise Misconfigured(f"`{what}` cannot be started: {error.strerror}.") from error
    try:
        async with asyncio.timeout(_ASKED_S):
            told, complaint = await process.communicate()
    except TimeoutError:
        process.kill()
        raise Misconfigured(f"`{what} --devices` did not end within {_ASKED_S:g} s.") from None
    if process.returncode:
        words = complaint.decode(errors="replace").strip().splitlines()
        raise Misconfigured(f"`{what} --devices`: {words[-1] if words else f'status {process.returncode}'}")
    try:
        return msgspec.json.decode(told, type=Machine)
    except msgspec.MsgspecError as error:
        raise Misconfigured(f"`{what} --devices` told no devices: {error}.") from error


def classed(places: Sequence[Place], classes: Mapping[str, str], otherwise: str) -> tuple[HostDevice, ...]:
    """The devices with their classes. classes: by setting as it was given, in the order of the devices."""
    given = list(classes.values()) or [otherwise] * len(places)
    return tuple(
        HostDevice(device=place.device, class_=name or _own_class(place.device))
        for place, name in zip(places, given, strict=True)
    )


def _own_class(device: Device) -> str:
    return _CPU if device.kind == _CPU else device.name


def environment(user: str, password: str) -> dict[str, str]:
    """Of workers: ours, with their NATS user in the place of ours where they have one."""
    env = {name: text for name, text in os.environ.items() if not name.startswith("SIGNALBOX_HOST_")}
    env.pop("SIGNALBOX_METRICS_PORT", None)
    if user:
        for name in _OWN:
            env.pop(name, None)
            env.pop(f"{name}_FILE", None)
        env |= {"SIGNALBOX_NATS_USER": user, "SIGNALBOX_NATS_PASSWORD": password}
    return env


def disk_of(folder: Path) -> Disk:
    """The file system that a folder lies on, or will once it is made; zeros where it cannot be asked."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        found = shutil.disk_usage(folder)
    except OSError:
        return Disk(0, 0)
    return Disk(found.total, found.free)
