"""Settings of a host's agent: ``SIGNALBOX_HOST_<FIELD>`` and the shared ``SIGNALBOX_<FIELD>``."""

import re
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

from msgspec import Meta

from signalbox.program.settings import Wire

PREFIX: Final = "SIGNALBOX_HOST_"
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,32}\Z")


class HostSettings(Wire, frozen=True, kw_only=True):
    """What one host's agent needs to know. Workers inherit its environment, with a NATS user of their own."""

    id: Annotated[
        str,
        Meta(
            description="Name of this host, unique in the fleet; empty = that of its key at NATS, else as the machine"
            " is called."
        ),
    ] = ""
    devices: Annotated[
        tuple[str, ...],
        Meta(
            description="Devices to keep workers at: `cpu:N`, `gpu:N` or an NVIDIA UUID, each with `=class` where it"
            " counts in another class than the others; empty = every GPU."
        ),
    ] = ()
    device_class: Annotated[
        str,
        Meta(
            description="Class that its devices count in where the console says how many of each have workers; empty ="
            " as the GPU is called, `cpu` for virtual ones."
        ),
    ] = ""
    per_device: Annotated[
        int, Meta(ge=1, le=8, description="Workers of each device: one holds it, the others stand by.")
    ] = 2
    data_dir: Annotated[str, Meta(description="Folder of the agent's lock and of the logs; one agent runs in it.")] = (
        ".signalbox-host"
    )
    shows_logs: Annotated[
        bool,
        Meta(description="Its log and its workers' go to its standard output too, where a container's are read."),
    ] = False
    worker: Annotated[
        str,
        Meta(
            description="Command that runs a worker; empty = `python -m workers` of the agent's own environment. An"
            " upgrade starts it anew, so it may lead through a link to another environment."
        ),
    ] = ""
    worker_nats_user: Annotated[str, Meta(description="NATS user of its workers; empty = the agent's own.")] = ""
    worker_nats_password: Annotated[str, Meta(description="Its password.", extra={"secret": True})] = ""
    ready_s: Annotated[
        float, Meta(ge=1, description="A worker that is not ready after so long is ended, and started again.")
    ] = 120.0
    stop_s: Annotated[
        float, Meta(ge=1, description="A worker that is to end has so long, then it is killed; more than its drain.")
    ] = 45.0
    warm_s: Annotated[
        float,
        Meta(
            ge=0,
            description="An upgrade goes on to the next worker, and a worker that is no longer wanted ends, after so"
            " long where a model is not in memory elsewhere.",
        ),
    ] = 300.0
    presence_s: Annotated[float, Meta(gt=0, description="Period of the presence heartbeat.")] = 2.0
    presence_ttl_s: Annotated[int, Meta(ge=1, description="Presence without a heartbeat for so long is gone.")] = 8

    @property
    def host_id(self) -> str:
        """The name of this host."""
        return (
            self.id
            or (self.nats_seed and self.nats_user)
            or re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname().partition(".")[0])[:32]
        )

    @property
    def worker_command(self) -> tuple[str, ...]:
        """What runs a worker."""
        return tuple(shlex.split(self.worker)) or (sys.executable, "-m", "workers")

    def device_classes(self) -> Mapping[str, str]:
        """Class of each device by its setting, empty = its own name."""
        named = (text.partition("=") for text in self.devices)
        return {device: name or self.device_class for device, _, name in named}

    def problems(self) -> Iterator[str]:
        """Rules between the fields."""
        yield from super().problems()
        if self.id and self.nats_seed and self.id != self.nats_user:
            yield f"{PREFIX}ID is another name than that of its key, SIGNALBOX_NATS_USER"
        if self.id and not _ID.match(self.id):
            yield f"{PREFIX}ID may hold up to 32 letters, digits and _.- only"
        if len(self.device_classes()) < len(self.devices):
            yield f"{PREFIX}DEVICES names a device twice"
        if self.presence_s * 3 > self.presence_ttl_s:
            yield f"{PREFIX}PRESENCE_S must fit three times into {PREFIX}PRESENCE_TTL_S"
