"""The controller changes published replicas by what waits in NATS, and tells hosts how many workers are wanted."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from console.accounts.rights import system_actor
from console.audit.models import AuditEntry
from console.catalog import modelsettings
from console.catalog import scaling as catalog_scaling
from console.catalog.models import ModelVersion, ServedModel
from console.config import ConsoleSettings
from console.outbox.publisher import Publisher
from console.scaling import keeper as module
from console.scaling.keeper import Keeper
from console.scaling.rules import NO_CAPACITY
from signalbox.bus.client import Bus
from signalbox.bus.table import put, remove
from signalbox.program.metrics import REGISTRY
from signalbox.wire import messages, names
from signalbox.wire.names import SCALE, Bucket
from signalbox.wire.queues import DEFAULT_GROUP, GroupState, Queue, QueueState, SideState
from signalbox.wire.scaling import Host, HostDevice, Scale
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Device, Residency, Worker
from tests.console.conftest import in_thread
from tests.console.traffic import accepted, submit
from tests.rigs.presence import presence

Until = Callable[[Callable[[Scale], bool]], Coroutine[Any, Any, Scale]]
pytestmark = pytest.mark.django_db(transaction=True)
ME = system_actor("tests")
FAST = {"autoscale": True, "autoscale_min": 0, "autoscale_max": 4, "queue_backlog": 5.0, "scale_down_window_s": 0.2}


def make(name: str) -> None:
    model = ServedModel.objects.create(name=name, base_path=f"/{name}")
    ModelVersion.objects.create(model=model, number=1, path=f"/{name}/1", source="path", added_by="tests")


async def with_devices(bus: Bus, count: int) -> None:
    """A host with so many devices."""
    each = (Device(id=f"cpu-{n}", kind="cpu", name=f"cpu:{n}") for n in range(count))
    devices = tuple(HostDevice(device=device, class_="t4") for device in each)
    host = Host(id="h", host="h", devices=devices, started_at=time.time(), beat_at=time.time())
    await put(bus, Bucket.HOSTS, names.token("h"), host, ttl_s=60)


async def read(bus: Bus) -> Scale:
    stored = await bus.leader_get(Bucket.DESIRED.stream, names.key(Bucket.DESIRED, SCALE))
    return messages.decode(Scale, stored.data) if stored is not None and stored.data else Scale()


@contextlib.asynccontextmanager
async def keeping(bus: Bus, console: ConsoleSettings) -> AsyncIterator[Until]:
    """A keeper and a publisher at work; what is given waits until the published scale is as wished."""
    changed = asyncio.Event()
    heard = await bus.subscribe(names.event_of_key(Bucket.DESIRED), lambda _: changed.set())
    publisher = asyncio.create_task(Publisher(bus).run())
    keeper = asyncio.create_task(Keeper(bus, console).run())

    async def until(is_so: Callable[[Scale], bool]) -> Scale:
        async with asyncio.timeout(20):
            while not is_so(found := await read(bus)):
                await changed.wait()
                changed.clear()
        return found

    try:
        yield until
    finally:
        for task in (keeper, publisher):
            task.cancel()
        await asyncio.gather(keeper, publisher, return_exceptions=True)
        await heard.close()


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUND_S", 0.05)


async def test_a_model_that_begins_to_scale_is_found_though_no_event_told_of_it(
    bus: Bus, console: ConsoleSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.2)
    monkeypatch.setattr(module, "event_of_key", lambda *_: "evt.lost")
    await in_thread(make, "digits")
    await with_devices(bus, 3)
    async with keeping(bus, console) as until:
        await asyncio.sleep(0.5)  # so that the look at the start found nothing
        await in_thread(modelsettings.change_settings, ME, "digits", FAST)
        await until(lambda scale: "digits" in scale.models)


async def test_jobs_that_wait_raise_published_replicas_and_hosts_are_told(bus: Bus, console: ConsoleSettings) -> None:
    await in_thread(make, "digits")
    await in_thread(modelsettings.change_settings, ME, "digits", FAST)
    await with_devices(bus, 3)
    async with keeping(bus, console) as until:
        await until(lambda scale: "digits" in scale.models and not scale.classes["t4"].wanted)
        acts = await in_thread(AuditEntry.objects.count)
        for _ in range(12):
            await submit(bus, accepted("digits"))
        found = await until(lambda scale: scale.models["digits"].wanted == 3)
        assert (found.models["digits"].needed, found.classes["t4"].wanted) == (3, 3)
        assert found.models["digits"].reason == "12 jobs wait"
        assert await in_thread(lambda: ServedModel.objects.get().replicas) == 3
        assert await in_thread(AuditEntry.objects.count) == acts  # the log has it
        await in_thread(modelsettings.change_settings, ME, "digits", {"autoscale": False})
        await until(lambda scale: scale == Scale())  # nothing scales: each device has workers again


async def test_jobs_of_a_paused_model_ask_for_no_device_until_it_is_resumed(bus: Bus, console: ConsoleSettings) -> None:
    await in_thread(make, "digits")
    await in_thread(modelsettings.change_settings, ME, "digits", FAST)
    await with_devices(bus, 3)
    await put(bus, Bucket.DESIRED, "model.digits", Desired(is_paused=True))
    async with keeping(bus, console) as until:
        await until(lambda scale: "digits" in scale.models and not scale.classes["t4"].wanted)
        for _ in range(12):
            await submit(bus, accepted("digits"))
        await asyncio.sleep(0.5)  # so that it would have grown by now
        assert (await read(bus)).models["digits"].needed == 0
        await remove(bus, Bucket.DESIRED, "model.digits")
        await until(lambda scale: scale.models["digits"].wanted == 3)


async def test_items_that_wait_in_queues_of_a_service_raise_its_replicas_and_keep_it_from_zero(
    bus: Bus, console: ConsoleSettings
) -> None:
    await in_thread(make, "digits")
    await in_thread(modelsettings.change_settings, ME, "digits", FAST)
    await with_devices(bus, 3)
    key = names.token("sums")
    queue = Queue(name="sums", account_id="mine", services=("digits",))

    async def holds(left: int, sink: SideState | None = None) -> None:
        source = SideState(length=left, groups=(GroupState(name=DEFAULT_GROUP, left=left),))
        state = QueueState(state="running", source=source, sink=sink or SideState())
        await put(bus, Bucket.QUEUE_STATES, key, state)

    await put(bus, Bucket.QUEUES, key, queue)
    await holds(12)
    async with keeping(bus, console) as until:
        found = await until(lambda scale: "digits" in scale.models and scale.models["digits"].wanted == 3)
        assert (found.models["digits"].needed, found.classes["t4"].wanted) == (3, 3)
        assert found.models["digits"].reason == "12 items of queues wait"
        await holds(1)
        await until(lambda scale: scale.models["digits"].wanted == 1)
        await holds(12)
        await until(lambda scale: scale.models["digits"].wanted == 3)
        await holds(12, SideState(length=queue.room("sink").length))  # its service has stopped
        await until(lambda scale: scale.models["digits"].wanted == 1)
        await holds(12)
        await until(lambda scale: scale.models["digits"].wanted == 3)
        await holds(12, SideState(is_ended=True))
        await until(lambda scale: scale.models["digits"].wanted == 1)
    await remove(bus, Bucket.QUEUE_STATES, key)
    await remove(bus, Bucket.QUEUES, key)


async def test_an_item_that_waits_too_long_raises_the_replicas_of_its_service(
    bus: Bus, console: ConsoleSettings
) -> None:
    await in_thread(make, "digits")
    await in_thread(modelsettings.change_settings, ME, "digits", {**FAST, "queue_backlog": 0, "target_wait_s": 10.0})
    await with_devices(bus, 1)
    ready = presence("w", "cpu-0", token=1, models=(Residency(model="digits", version=1, state="ready"),))
    await put(bus, Bucket.WORKERS, names.token("w"), ready, ttl_s=60)
    key = names.token("sums")
    await put(bus, Bucket.QUEUES, key, Queue(name="sums", account_id="mine", services=("digits",)))

    async def waits_with(*others: str) -> None:
        groups = (GroupState(name=DEFAULT_GROUP, left=1), *(GroupState(name=name) for name in others))
        source = SideState(length=1, oldest_at=time.time() - 60, groups=groups)
        await put(bus, Bucket.QUEUE_STATES, key, QueueState(state="running", source=source))

    async with keeping(bus, console) as until:
        await waits_with()
        found = await until(lambda scale: "digits" in scale.models and scale.models["digits"].wanted == 4)
        assert found.models["digits"].reason.startswith("the oldest waits 6")
        await waits_with("auditors")  # what only these have not committed is none that the service has
        await until(lambda scale: scale.models["digits"].wanted == 1)
    for bucket in (Bucket.QUEUE_STATES, Bucket.QUEUES):
        await remove(bus, bucket, key)
    await remove(bus, Bucket.WORKERS, names.token("w"))


async def test_a_bound_of_a_class_is_told_with_what_was_asked_for(bus: Bus, console: ConsoleSettings) -> None:
    await in_thread(make, "digits")
    await in_thread(modelsettings.change_settings, ME, "digits", {"replicas": 3})
    await with_devices(bus, 3)

    def told() -> list[float | None]:
        names_of = ("asked", "wanted", "actual")
        return [REGISTRY.get_sample_value(f"signalbox_scaling_devices_{name}", {"class": "t4"}) for name in names_of]

    async with keeping(bus, replace(console, classes=("t4=2",))) as until:
        found = (await until(lambda scale: bool(scale.classes) and scale.classes["t4"].asked == 3)).classes
        assert told() == [3, 2, 0]
    assert (found["t4"].wanted, found["t4"].reason) == (2, f"{NO_CAPACITY}: 3 asked for, at most 2")
    assert told() == [None, None, None], "another controller decides"


async def test_while_there_are_more_workers_than_wanted_hosts_are_told_again(
    bus: Bus, console: ConsoleSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORDS_S", 0.1)
    await in_thread(make, "digits")
    await in_thread(modelsettings.change_settings, ME, "digits", FAST)
    await with_devices(bus, 1)
    async with keeping(bus, console) as until:
        scale = await until(lambda scale: bool(scale.classes) and not scale.classes["t4"].wanted)
        assert not scale.classes["t4"].actual
        device = Device(id="cpu-0", kind="cpu", name="cpu:0")
        first = Worker(
            id="h-1", boot="b", host="h", pid=1, device=device, state="ready", started_at=1.0, beat_at=time.time()
        )
        await put(bus, Bucket.WORKERS, names.token("h-1"), first)
        told = await until(lambda scale: scale.classes["t4"].actual == 1)
        await until(lambda scale: scale.at > told.at)


def test_only_a_model_that_scales_and_takes_jobs_is_changed_and_no_audit_row_is_written(db: None) -> None:
    make("digits")
    assert catalog_scaling.scale("digits", 3, "why") is None
    assert catalog_scaling.scale("gone", 3, "why") is None
    modelsettings.change_settings(ME, "digits", FAST)
    before = AuditEntry.objects.count()
    assert catalog_scaling.scale("digits", 3, "why") == 1
    assert catalog_scaling.scale("digits", 3, "why") is None
    modelsettings.change_settings(ME, "digits", {"replicas": 0})
    assert catalog_scaling.scale("digits", 3, "why") is None
    assert ServedModel.objects.get().replicas == 0
    assert AuditEntry.objects.count() == before + 1
