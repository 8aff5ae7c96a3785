"""Placement: the same for everyone, stable, and spread over hosts."""

from hypothesis import given
from hypothesis import strategies as st

from signalbox.wire.messages import Device, Model, Worker
from signalbox.wire.placement import devices_of, homes, homes_of
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
