"""What a worker shows of its device: memory, residents, and how the time goes that it is held."""

import pytest
from prometheus_client.exposition import generate_latest

from signalbox.program import metrics
from signalbox.program.metrics import REGISTRY
from signalbox.wire.workerdocs import Device, Residency, Worker
from workers.device.devices import Gpu
from workers.device.foreign import Watch
from workers.host import devicegauges
from workers.host.devicegauges import DeviceGauges

GPU = Device(id="GPU-gauged", kind="nvidia", name="Device", memory_bytes=1000)


class Clock:
    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


def worker(*models: Residency, computing_s: float = 0.0, loading_s: float = 0.0) -> Worker:
    return Worker(
        id="w",
        boot="b",
        host="h",
        pid=1,
        state="ready",
        device=GPU,
        started_at=1.0,
        beat_at=1.0,
        models=models,
        computing_s=computing_s,
        loading_s=loading_s,
        budget_bytes=800,
    )


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"signalbox_{name}", labels)


def test_time_is_counted_while_the_device_is_held_and_not_twice() -> None:
    clock = Clock()
    shown = DeviceGauges(clock)
    before = value("worker_hold_seconds_count") or 0.0
    shown.begin_hold()
    clock.now += 4
    shown.show(worker(computing_s=1.5, loading_s=0.5))
    shown.show(worker(computing_s=1.5, loading_s=0.5))
    clock.now += 2
    shown.end_hold()
    shown.end_hold()
    clock.now += 100
    shown.show(worker(computing_s=2.0, loading_s=0.5))
    found = [value(f"device_{what}_seconds_total", device=GPU.id) for what in ("held", "computing", "loading")]
    assert found == [6.0, 2.0, 0.5]
    assert value("worker_hold_seconds_count") == before + 1


def test_versions_are_shown_while_they_are_in_memory() -> None:
    shown = DeviceGauges()
    shown.show(
        worker(
            Residency(model="gauged", version=1, state="ready", size_bytes=300),
            Residency(model="gauged", version=2, state="loading", size_bytes=50),
            Residency(model="gauged", version=3, state="spare", size_bytes=100),
        )
    )
    sizes = [value("worker_resident_bytes", model="gauged", version=str(version)) for version in (1, 2, 3)]
    assert sizes == [300, None, 100]
    assert value("device_resident_bytes", device=GPU.id) == 400
    assert value("device_budget_bytes", device=GPU.id) == 800
    assert [value("worker_versions", state=state) for state in ("ready", "loading", "spare", "failed")] == [1, 1, 1, 0]
    shown.show(worker())
    assert value("worker_resident_bytes", model="gauged", version="1") is None
    assert value("device_resident_bytes", device=GPU.id) == 0


def test_where_models_share_one_series_it_has_their_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devicegauges.VERSION_BYTES, "is_joined", True)
    residents = [Residency(model=f"joined{n}", version=1, state="ready", size_bytes=10) for n in range(7)]
    DeviceGauges().show(worker(*residents))
    try:
        assert value("worker_resident_bytes", model=metrics.ALL_MODELS, version=metrics.ALL_VERSIONS) == 70
        assert b"joined3" not in generate_latest(REGISTRY)
    finally:
        devicegauges.VERSION_BYTES.clear()


def test_memory_in_use_is_what_the_driver_says_while_the_device_is_held() -> None:
    watch = Watch(GPU, lambda: 0, lambda: None)
    watch._judge([Gpu(index=0, uuid=GPU.id, name="Device", memory_bytes=1000, used_bytes=700)])
    DeviceGauges().show(worker())
    assert value("device_used_bytes", device=GPU.id) == 700
    watch._judge([Gpu(index=0, uuid=GPU.id, name="Device", fault="fell off the bus")])
    assert value("device_used_bytes", device=GPU.id) == 700
    watch.stop()
    assert value("device_used_bytes", device=GPU.id) is None
