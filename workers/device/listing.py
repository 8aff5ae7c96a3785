"""The devices of this machine as one document, for whoever starts workers (``python -m workers --devices``)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from signalbox.wire.workerdocs import Device
from workers.device import devices
from workers.host.identity import host_of

_LABEL_CHARACTERS: Final = 20


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A device. setting: what a worker is to be given to serve it. label: short, for the names of its workers."""

    setting: str
    label: str
    device: Device


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What workers would find here. host: as their presence has it. cache_dir: the folder of the disk cache."""

    host: str
    cache_dir: str
    devices: tuple[Listed, ...]


async def listing(names: Sequence[str], *, lock_dir: Path, cache_dir: Path) -> Listing:
    """The devices that are named, as settings name them; none = every GPU and MIG instance that answers.

    Raises :class:`Misconfigured` for one that there is not.
    """
    found = [_listed(name, await devices.find(name, lock_dir)) for name in names]
    if not names:
        found = [_listed(f"gpu:{number}", device) for number, device in await devices.gpus()]
    return Listing(host=host_of(lock_dir), cache_dir=str(cache_dir), devices=tuple(found))


def _listed(name: str, device: Device) -> Listed:
    """A GPU is given by its id: numbers of GPUs may change."""
    setting = name if device.kind == "cpu" else device.id
    label = device.id if device.id.startswith("MIG-") else name.replace(":", "")
    return Listed(setting=setting, label=label[:_LABEL_CHARACTERS], device=device)
