from signalbox.wire.messages import Desired, Model, Version, Worker
from signalbox.wire.names import token
from tests.rigs.presence import presence
from workers.host.fleet import assigned_models


def worker(name: str, device: str, *, state: str = "ready", serves: tuple[str, ...] = ()) -> Worker:
    return presence(name, device, host=name, state=state, serves=serves)


def model(name: str, *, replicas: int = 1, is_enabled: bool = True, has_version: bool = True) -> Model:
    versions = (Version(version=1, path="/m/1"),) if has_version else ()
    return Model(name=name, versions=versions, replicas=replicas, is_enabled=is_enabled)


def names(
    *models: Model,
    workers: list[Worker],
    device: str = "d1",
    allowed: frozenset[str] = frozenset(),
    desired: dict[str, Desired] | None = None,
) -> set[str]:
    return set(assigned_models(models, workers, desired or {}, device=device, allowed=allowed))


def test_each_model_has_as_many_homes_as_replicas() -> None:
    workers = [worker("w1", "d1"), worker("w2", "d2"), worker("w3", "d3")]
    for replicas in range(4):
        found = [d for d in ("d1", "d2", "d3") if names(model("m", replicas=replicas), workers=workers, device=d)]
        assert len(found) == replicas


def test_two_workers_on_one_device_are_one_home() -> None:
    workers = [worker("w1", "d1"), worker("w2", "d1")]
    assert names(model("m", replicas=2), workers=workers) == {"m"}


def test_disabled_paused_empty_and_foreign_models_are_left_out() -> None:
    workers = [worker("w1", "d1")]
    models = [model("on"), model("off", is_enabled=False), model("void", has_version=False), model("held")]
    desired = {f"model.{token('held')}": Desired(is_paused=True)}
    assert names(*models, workers=workers, desired=desired) == {"on"}
    assert names(*models, workers=workers, allowed=frozenset({"held"})) == {"held"}


def test_a_model_moves_when_the_only_worker_of_its_home_drains() -> None:
    both = [worker("w1", "d1"), worker("w2", "d2")]
    home = "d1" if names(model("m"), workers=both, device="d1") else "d2"
    other = "d2" if home == "d1" else "d1"
    left = [w if w.device.id == other else worker(w.id, w.device.id, state="draining") for w in both]
    assert names(model("m"), workers=left, device=other) == {"m"}
    assert names(model("m"), workers=left, device=home) == set()
