"""Placement: the same for everyone, stable, and spread over hosts."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from signalbox.wire.modeldocs import Model
from signalbox.wire.placement import devices_of, homes, homes_of, kept_models
from signalbox.wire.workerdocs import Device, Residency, Worker
from tests.rigs.presence import presence

DEVICES = st.dictionaries(st.text("abc", min_size=1, max_size=6), st.sampled_from("xyz"), max_size=12)


@given(devices=DEVICES, replicas=st.integers(0, 15))
def test_it_gives_as_many_homes_as_asked_or_as_there_are(devices: dict[str, str], replicas: int) -> None:
    found = homes("m", 1, devices, replicas)
    assert len(found) == len(set(found)) == min(replicas, len(devices))
    assert set(found) <= set(devices)
    assert found == homes("m", 1, dict(reversed(devices.items())), replicas)


@given(devices=DEVICES, replicas=st.integers(1, 12))
def test_no_host_gets_two_while_another_has_none(devices: dict[str, str], replicas: int) -> None:
    found = homes("m", 1, devices, replicas)
    used = [devices[device] for device in found]
    hosts = set(devices.values())
    assert len(set(used)) == min(len(hosts), len(found))


@given(devices=DEVICES.filter(lambda d: len(d) > 1), data=st.data())
def test_losing_a_device_moves_only_what_lived_there(devices: dict[str, str], data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from(sorted(devices)))
    left = {device: host for device, host in devices.items() if device != lost}
    for number in range(20):
        before = homes(f"m{number}", 1, devices, 1)
        if before != (lost,):
            assert homes(f"m{number}", 1, left, 1) == before


def test_models_are_spread_evenly() -> None:
    devices = {f"GPU-{n}": f"h{n}" for n in range(4)}
    counts = dict.fromkeys(devices, 0)
    for number in range(2000):
        counts[homes(f"model{number}", 1, devices, 1)[0]] += 1
    assert all(400 < count < 600 for count in counts.values())


def test_two_workers_at_one_device_are_one_place_and_a_draining_one_is_none() -> None:
    gpu = Device(id="GPU-1", kind="cpu", name="c")
    other = Device(id="GPU-2", kind="cpu", name="c")

    def worker(name: str, device: Device, state: str) -> Worker:
        return Worker(id=name, boot="b", host="h", pid=1, state=state, device=device, started_at=0.0, beat_at=0.0)

    found = devices_of([worker("a", gpu, "ready"), worker("b", gpu, "ready"), worker("c", other, "draining")])
    assert found == {"GPU-1": "h"}


def test_a_device_is_no_home_for_a_model_that_its_workers_refuse() -> None:
    model = Model(name="m", replicas=2)
    able, picky, leaving = (
        presence(name, name, host=name, state=state, serves=serves)
        for name, state, serves in (("a", "ready", ()), ("b", "ready", ("other",)), ("c", "draining", ()))
    )
    assert homes_of(model, [able, picky, leaving]) == ("a",)


MODELS = {name: Model(name=name, replicas=1) for name in ("m", "n")}
LEAVING = presence("w1", "CPU-1", is_leaving=True, token=1, models=(Residency(model="m", version=1, state="ready"),))


def _find(name: str, version: int) -> Model | None:
    return MODELS[name] if version == 1 else None


def _other(name: str, state: str = "ready", *, version: int = 1, **fields: object) -> Worker:
    """A worker that holds the device ``CPU-<name>`` and has a model in that state."""
    models = (Residency(model="m", version=version, state=state),)
    return presence(name, f"CPU-{name}", **{"token": 2, "models": models, **fields})


def test_a_device_whose_workers_leave_is_nobody_s_home() -> None:
    assert homes_of(MODELS["m"], [LEAVING, presence("w2", "CPU-2")]) == ("CPU-2",)
    assert homes_of(MODELS["m"], [LEAVING]) == ("CPU-1",)  # while there is no other


def test_a_worker_that_leaves_keeps_what_is_not_in_memory_where_it_is_placed() -> None:
    assert kept_models(LEAVING, [_other("w2", "loading")], _find) == {"m"}
    assert kept_models(LEAVING, [_other("w2", version=2)], _find) == {"m"}
    assert kept_models(LEAVING, [presence("w2", "CPU-w2")], _find) == {"m"}
    assert not kept_models(LEAVING, [_other("w2")], _find)
    others = [_other("w2"), _other("w3")]
    spare = (Residency(model="m", version=1, state="spare"), Residency(model="n", version=2, state="spare"))
    assert kept_models(replace(LEAVING, models=spare), [_other("w2", "loading")], _find) == {"m"}  # requests get it
    (home,) = homes_of(MODELS["m"], others)
    away = [_other(each.id, "ready" if each.device.id != home else "loading") for each in others]
    assert kept_models(LEAVING, away, _find) == {"m"}  # in memory where it may go as soon as room is needed


def test_a_worker_that_leaves_waits_for_nobody_where_there_is_none() -> None:
    assert not kept_models(LEAVING, [], _find)
    assert not kept_models(LEAVING, [presence("w2", "CPU-1")], _find)  # of the same device
    assert not kept_models(LEAVING, [_other("w2", "loading", is_leaving=True)], _find)
    assert not kept_models(LEAVING, [replace(_other("w2", "loading"), state="draining")], _find)
    assert not kept_models(LEAVING, [_other("w2", "loading", serves=("n",))], _find)
    assert not kept_models(LEAVING, [_other("w2", "loading")], lambda *_: None)  # no longer in the catalog
