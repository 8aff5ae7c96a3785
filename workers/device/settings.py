"""How one device is leased and its runner is run."""

from pathlib import Path

from signalbox.wire.workerdocs import Device
from workers.lease.rules import Rules
from workers.runner.wire import FROZEN_S
from workers.sandbox.confinement import Sandbox


class DeviceSettings(Rules, frozen=True, kw_only=True):
    """The rules of the lease, and how the runner is run; :meth:`check` holds them against each other.

    lock_dir: directory of the flock files, shared by every worker of this host, on a local disk.
    ready_timeout_s: for a runner to import TensorFlow. frozen_s: for one without a beat to count as
    frozen. intra_threads, inter_threads: of TensorFlow, 0 = its own choice. frame_limit_bytes:
    largest batch on the runner's socket. is_runner_kept: whether a runner survives a hand-over,
    outside the device; ``None`` decides by device: a GPU's memory comes back only when the process
    ends, a virtual device has none to give.
    interval_log: see :mod:`workers.runner.intervals`. sandbox: what the runner is confined to.
    gpu_idle_bytes: what an idle GPU shows as used. staging_dir: below it lies what the runner is shown of
    versions; ``None`` = the directory for temporary files.
    """

    lock_dir: Path
    ready_timeout_s: float = 120.0
    frozen_s: float = FROZEN_S
    intra_threads: int = 1
    inter_threads: int = 1
    frame_limit_bytes: int = 1 << 30
    is_runner_kept: bool | None = None
    interval_log: str = ""
    sandbox: Sandbox = Sandbox()
    gpu_idle_bytes: int = 0
    staging_dir: Path | None = None

    def is_kept(self, device: Device) -> bool:
        """Whether a runner of ``device`` outlives a hand-over."""
        return device.kind == "cpu" if self.is_runner_kept is None else self.is_runner_kept
