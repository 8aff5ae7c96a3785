"""What this worker counts of its device for Prometheus: memory, what is resident, how the time goes that it is held.

Set from the presence document at each heartbeat, so a scrape is as old as presence.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import prometheus_client

from signalbox.program import metrics
from signalbox.wire.workerdocs import Worker

MEMORY: Final = metrics.gauge("device_memory_bytes", "Memory of the device; 0 for a virtual one.", "device")
BUDGET: Final = metrics.gauge("device_budget_bytes", "Of the device's memory that versions may take.", "device")
RESIDENT: Final = metrics.gauge("device_resident_bytes", "Measured sizes of the versions in memory.", "device")
USED: Final = metrics.gauge(
    "device_used_bytes",
    "Memory of the device in use, by whomever, as its driver says while this worker holds it; of a virtual one: of the "
    "runner.",
    "device",
)
HELD: Final = metrics.counter("device_held_seconds", "Time that this worker has held the device's lease.", "device")
COMPUTING: Final = metrics.counter("device_computing_seconds", "Time that runs have taken.", "device")
LOADING: Final = metrics.counter("device_loading_seconds", "Time that loads have taken, beside runs or not.", "device")
HOLD_SECONDS: Final = metrics.histogram("worker_hold_seconds", "How long a lease was held.")
VERSION_BYTES: Final = metrics.gauge(
    "worker_resident_bytes", "Measured size of a version in the device's memory.", "model", "version"
)
VERSIONS: Final = metrics.gauge("worker_versions", "Versions that this worker tells of, by their state.", "state")
STATES: Final = ("ready", "loading", "fetching", "spare", "crowded", "failed")
IN_MEMORY: Final = frozenset({"ready", "spare"})


class DeviceGauges:
    """Shows one worker's presence. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held_since_s: float | None = None
        self._counted_s: dict[str, float] = {}
        self._ended_s = 0.0
        self._residents: dict[tuple[str, str], int] = {}

    def begin_hold(self) -> None:
        """The lease was given to this worker."""
        self._held_since_s = self._clock()

    def end_hold(self) -> None:
        """The lease has ended."""
        if self._held_since_s is not None:
            held_s = self._clock() - self._held_since_s
            self._held_since_s = None
            self._ended_s += held_s
            HOLD_SECONDS.observe(held_s)

    def show(self, worker: Worker) -> None:
        """Set all that the document tells."""
        device = worker.device.id
        in_memory = {(r.model, str(r.version)): r.size_bytes for r in worker.models if r.state in IN_MEMORY}
        MEMORY.labels(device).set(worker.device.memory_bytes)
        BUDGET.labels(device).set(worker.budget_bytes)
        RESIDENT.labels(device).set(sum(in_memory.values()))
        if worker.device.kind == "cpu":
            USED.labels(device).set(worker.runner_rss_bytes)
        under_way_s = self._clock() - self._held_since_s if self._held_since_s is not None else 0.0
        self._count("held", HELD.labels(device), self._ended_s + under_way_s)
        self._count("computing", COMPUTING.labels(device), worker.computing_s)
        self._count("loading", LOADING.labels(device), worker.loading_s)
        states = Counter(r.state for r in worker.models)
        for state in STATES:
            VERSIONS.labels(state).set(states[state])
        self._show_residents(in_memory)

    def _count(self, what: str, counter: prometheus_client.Counter, seconds: float) -> None:
        """Raise a counter to what there has been since this process started."""
        before = self._counted_s.get(what, 0.0)
        if seconds > before:
            counter.inc(seconds - before)
            self._counted_s[what] = seconds

    def _show_residents(self, in_memory: dict[tuple[str, str], int]) -> None:
        """Set what has changed: with many versions a heartbeat changes few. All in one, where models are joined."""
        before, self._residents = self._residents, in_memory
        for key in before.keys() - in_memory.keys():
            VERSION_BYTES.remove(*key)
        for key, size in in_memory.items():
            if before.get(key) != size:
                VERSION_BYTES.labels(*key).set(size)
        if metrics.is_joined(VERSION_BYTES):
            VERSION_BYTES.labels(metrics.ALL_MODELS, metrics.ALL_VERSIONS).set(sum(in_memory.values()))


DEVICE: Final = DeviceGauges()
