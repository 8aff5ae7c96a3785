"""What a worker tells of itself, for tests that need a worker only as far as others see it."""

from typing import Any

from signalbox.wire.workerdocs import Device, Worker


def presence(worker_id: str, device: str = "CPU-test-0", **fields: Any) -> Worker:
    """A worker that is ready, unless told otherwise, on a virtual device."""
    known = {"boot": "b", "host": "h", "pid": 1, "state": "ready", "started_at": 0.0, "beat_at": 0.0}
    return Worker(**{"id": worker_id, "device": Device(id=device, kind="cpu", name=device), **known, **fields})
