"""Settings of a worker: ``SIGNALBOX_WORKER_<FIELD>`` and the shared ``SIGNALBOX_<FIELD>``."""

import os
import re
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, cast, get_args

from msgspec import Meta

from signalbox.program.errors import Misconfigured
from signalbox.program.settings import Wire
from workers.device.settings import DeviceSettings
from workers.diskcache.settings import CacheSettings
from workers.runner.wire import FROZEN_S, LOAD_S
from workers.sandbox.confinement import Mode, Sandbox
from workers.serving.results import MAX_RESULT_BYTES

PREFIX: Final = "SIGNALBOX_WORKER_"
_DEVICE: Final = re.compile(r"(cpu:\d+|gpu:\d+|GPU-[0-9a-f-]+|MIG-[0-9a-f-]+)\Z")
_WORKER_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")
_MOST_NAMES_BYTES: Final = 16 * 1024
"""Of the models a worker is restricted to. They stand in its presence, and placement needs them all."""


class WorkerSettings(Wire, frozen=True, kw_only=True):
    """What one worker process needs to know. One process serves one device."""

    id: Annotated[str, Meta(description="Name of this worker, unique in the fleet; empty = host name and device.")] = ""
    device: Annotated[
        str,
        Meta(
            description="Device to serve: `cpu:0` (virtual, shared by all workers of a host), `gpu:0`"
            " or an NVIDIA UUID."
        ),
    ] = "cpu:0"
    models: Annotated[tuple[str, ...], Meta(description="Serve only these models; empty = all placed here.")] = ()
    memory_budget_bytes: Annotated[
        int, Meta(ge=0, description="Memory for models; 0 = four fifths of the device, 4 GiB on a virtual one.")
    ] = 0
    most_versions: Annotated[
        int,
        Meta(
            ge=0,
            description="Most versions in the device's memory at once, however small they are; 0 = as many as the"
            " budget holds.",
        ),
    ] = 0
    pin_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Share of the memory for models that pinned versions may keep; those pinned later stay only"
            " while they have room.",
        ),
    ] = 0.5
    load_s: Annotated[
        float,
        Meta(
            ge=1,
            description="Longest time to lay a version's files out for its load, and longest time of the load with its"
            " warm-up requests. A load that takes longer is a failed one, and its runner is ended.",
        ),
    ] = LOAD_S
    lock_dir: Annotated[
        str,
        Meta(
            description="Directory of the kernel locks: local, and the same for every worker of this"
            " host; empty = `signalbox-locks` in the directory for temporary files."
        ),
    ] = ""
    is_warm: Annotated[bool, Meta(description="Load placed models before the first job asks for them.")] = True
    retire_s: Annotated[
        float,
        Meta(gt=0, description="A version that requests no longer get leaves the memory after so long without a run."),
    ] = 10.0
    in_flight_bytes: Annotated[
        int, Meta(ge=1_048_576, description="Inputs that may wait in this process, in bytes.")
    ] = 67_108_864
    max_result_bytes: Annotated[
        int,
        Meta(
            ge=1_048_576,
            description="Most bytes kept as the result of one job; a larger one is the job's failure, "
            "`result_too_large`.",
        ),
    ] = MAX_RESULT_BYTES
    patience_s: Annotated[float, Meta(gt=0, description="A job must wait so long before a standby takes a ticket.")] = (
        0.5
    )
    recheck_s: Annotated[
        float, Meta(gt=0, description="Period of the slow check of queues and lease, as a backstop.")
    ] = 5.0
    presence_s: Annotated[float, Meta(gt=0, description="Period of the presence heartbeat.")] = 2.0
    presence_ttl_s: Annotated[int, Meta(ge=1, description="Presence without a heartbeat for so long is gone.")] = 8
    trusted_s: Annotated[
        float,
        Meta(
            gt=0,
            description="A job without a record is believed not to have ended for so long after its delivery; a record"
            " is kept twice as long as its job's message.",
        ),
    ] = 30.0
    drain_s: Annotated[float, Meta(gt=0, description="Longest wait for running jobs after SIGTERM.")] = 25.0
    cancel_grace_s: Annotated[
        float, Meta(gt=0, description="A cancelled job's run may go on so long before the runner is ended.")
    ] = 2.0
    slow_job_s: Annotated[
        float, Meta(gt=0, description="A job that takes longer from being pulled to its end is logged at INFO.")
    ] = 5.0
    frozen_s: Annotated[
        float,
        Meta(
            ge=1,
            description="A runner that shows no sign of life for so long is ended; its jobs run again without a strike."
            " One that computes shows them, however long it takes.",
        ),
    ] = FROZEN_S
    heartbeat_s: Annotated[float, Meta(gt=0, description="Period of the lease heartbeat.")] = 2.0
    fence_s: Annotated[
        float, Meta(gt=0, description="The runner is killed so long after the last confirmed heartbeat.")
    ] = 12.0
    kill_s: Annotated[float, Meta(gt=0, description="Time a kill may take.")] = 3.0
    margin_s: Annotated[float, Meta(ge=0, description="Reserve for clock rate and scheduling in the lease's sums.")] = (
        5.0
    )
    lease_ttl_s: Annotated[int, Meta(ge=1, description="A lease without a heartbeat for so long is free.")] = 20
    quantum_s: Annotated[float, Meta(gt=0, description="A holder yields to a waiter after so long.")] = 30.0
    idle_s: Annotated[float, Meta(gt=0, description="An idle holder yields to a waiter after so long.")] = 0.2
    reserved_s: Annotated[
        float, Meta(gt=0, description="A released GPU is kept so long for the one it was named to.")
    ] = 2.0
    failover_s: Annotated[float, Meta(ge=0, description="Longest NATS leader election that must not cost a lease.")] = (
        9.0
    )
    intra_threads: Annotated[
        int, Meta(ge=0, description="TensorFlow threads within an operation; 0 = its own choice.")
    ] = 1
    inter_threads: Annotated[
        int,
        Meta(
            ge=0,
            description="TensorFlow threads across operations, for each loaded version; 0 = its own choice, for all.",
        ),
    ] = 1
    interval_log: Annotated[
        str, Meta(description="File the runners append their times inside the device to; empty = none.")
    ] = ""

    sandbox: Annotated[
        str,
        Meta(
            description="Confinement of the process that runs models: `auto` uses what the kernel has,"
            " `strict` refuses to start without all of it, `off`. See docs/sandbox.md."
        ),
    ] = "auto"
    gpu_idle_bytes: Annotated[int, Meta(ge=0, description="Memory that the idle GPU shows as used, in bytes.")] = 0
    runner_user: Annotated[
        str, Meta(description="User that runs models, where the worker is root; empty = the worker's own user.")
    ] = ""
    model_folders: Annotated[
        tuple[str, ...],
        Meta(
            description="Versions are taken from below these folders only, and a model reads the files of its own"
            " version, while it is loaded, and nothing else; empty = from anywhere, and a model may read whatever"
            " its user may."
        ),
    ] = ()
    staging_dir: Annotated[
        str,
        Meta(
            description="Folder in which a version's files are laid out while it is loaded: by reference where it lies"
            " on the models' file system and that can do so, else as a copy; empty = in the disk cache where"
            " `SIGNALBOX_WORKER_CACHE_DIR` is set, else the directory for temporary files."
        ),
    ] = ""
    cache_dir: Annotated[
        str,
        Meta(
            description="Folder of the disk cache, the same for all workers of this host, on a local disk: what"
            " repositories in object stores have is fetched into it; empty = `signalbox-cache` in the directory for"
            " temporary files."
        ),
    ] = ""
    cache_bytes: Annotated[
        int, Meta(ge=0, description="Most bytes of all versions in the disk cache; 0 = half of its file system.")
    ] = 0
    cache_dropped_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="Seconds after which a version leaves the disk cache that the catalog has no more: longer than"
            " the console takes to publish again what NATS has lost.",
        ),
    ] = 30.0
    repository_credentials: Annotated[
        str,
        Meta(
            description="Folder with a file `<repository>.json` for each repository that needs credentials; empty = the"
            " machine's own identity."
        ),
    ] = ""
    fetches: Annotated[
        int, Meta(ge=1, le=64, description="Versions of one repository that this worker fetches at a time.")
    ] = 4
    fetch_streams: Annotated[
        int, Meta(ge=1, le=64, description="Requests for files, or pieces of files, of one version at a time.")
    ] = 8

    @property
    def worker_id(self) -> str:
        """The name of this worker."""
        return self.id or f"{socket.gethostname().split('.')[0]}-{self.device.replace(':', '')}"

    @property
    def lock_folder(self) -> Path:
        """Where the kernel locks are."""
        return Path(self.lock_dir or Path(tempfile.gettempdir()) / "signalbox-locks")

    @property
    def cache_folder(self) -> Path:
        """Where the disk cache is."""
        return Path(self.cache_dir or Path(tempfile.gettempdir()) / "signalbox-cache")

    def disk_cache(self) -> CacheSettings:
        """The disk cache's part."""
        return CacheSettings(
            folder=self.cache_folder,
            is_made=bool(self.cache_dir),
            limit_bytes=self.cache_bytes,
            dropped_s=self.cache_dropped_s,
            credentials=Path(self.repository_credentials) if self.repository_credentials else None,
            fetches=self.fetches,
            streams=self.fetch_streams,
        )

    def problems(self) -> Iterator[str]:
        """Rules between the fields; the lease's own sums are checked by the leased."""
        yield from super().problems()
        if not _DEVICE.match(self.device):
            yield f"{PREFIX}DEVICE={self.device} is neither cpu:N, gpu:N nor an NVIDIA UUID"
        if self.id and not _WORKER_ID.match(self.id):
            yield f"{PREFIX}ID may hold up to 64 letters, digits and _.:- only"
        if self.ping_interval_s * 3 >= self.fence_s:
            yield (
                f"SIGNALBOX_PING_INTERVAL_S must fit three times into {PREFIX}FENCE_S: a dead connection has to be"
                " noticed before a healthy runner is killed for it"
            )
        if self.presence_s * 3 > self.presence_ttl_s:
            yield f"{PREFIX}PRESENCE_S must fit three times into {PREFIX}PRESENCE_TTL_S"
        if self.sandbox not in get_args(Mode):
            yield f"{PREFIX}SANDBOX={self.sandbox} is none of {', '.join(get_args(Mode))}"
        if sum(len(name) + 3 for name in self.models) > _MOST_NAMES_BYTES:
            yield (
                f"{PREFIX}MODELS: the names take more than {_MOST_NAMES_BYTES} bytes together, which this"
                " worker's presence has no room for; leave it empty, or spread the models over workers"
            )
        for name, folders in (
            ("MODEL_FOLDERS", self.model_folders),
            ("STAGING_DIR", (self.staging_dir,) if self.staging_dir else ()),
            ("CACHE_DIR", (self.cache_dir,) if self.cache_dir else ()),
            ("REPOSITORY_CREDENTIALS", (self.repository_credentials,) if self.repository_credentials else ()),
        ):
            for folder in folders:
                if not Path(folder).is_absolute():
                    yield f"{PREFIX}{name}: {folder} is not an absolute path"

    @property
    def device_kind(self) -> str:
        """``cpu`` or ``nvidia``."""
        return "cpu" if self.device.startswith("cpu:") else "nvidia"

    def confinement(self) -> Sandbox:
        """What the runner is confined to."""
        folders = (*self.model_folders, str(self.cache_folder)) if self.model_folders else ()
        return Sandbox(mode=cast("Mode", self.sandbox), user=self.runner_user, model_folders=folders)

    @property
    def _staging_folder(self) -> Path | None:
        if self.staging_dir:
            return Path(self.staging_dir)
        return self.cache_folder / ".staging" if self.cache_dir else None

    def leased_device(self) -> DeviceSettings:
        """The lease's part. Raises :class:`Misconfigured` naming the sums that do not fit."""
        if not os.access(self.lock_folder.parent, os.W_OK | os.X_OK) and not self.lock_folder.exists():
            raise Misconfigured(f"{PREFIX}LOCK_DIR: {self.lock_folder} cannot be made.")
        return DeviceSettings(
            lock_dir=self.lock_folder,
            heartbeat_s=self.heartbeat_s,
            fence_s=self.fence_s,
            kill_s=self.kill_s,
            margin_s=self.margin_s,
            failover_s=self.failover_s,
            ttl_s=self.lease_ttl_s,
            reserved_s=self.reserved_s,
            quantum_s=self.quantum_s,
            idle_s=self.idle_s,
            recheck_s=self.recheck_s,
            intra_threads=self.intra_threads,
            inter_threads=self.inter_threads,
            interval_log=self.interval_log,
            sandbox=self.confinement(),
            gpu_idle_bytes=self.gpu_idle_bytes,
            staging_dir=self._staging_folder,
            frozen_s=self.frozen_s,
        )
