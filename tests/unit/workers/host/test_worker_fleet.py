from collections.abc import Iterable

import pytest

from signalbox.wire.modeldocs import Model, Version
from signalbox.wire.names import token
from signalbox.wire.placement import homes_of
from signalbox.wire.workerdocs import Worker
from tests.rigs.presence import presence
from workers.host import fleet
from workers.host.fleet import AssignedModels, Assignment


def worker(name: str, device: str, *, state: str = "ready", serves: tuple[str, ...] = ()) -> Worker:
    return presence(name, device, host=name, state=state, serves=serves)


def model(name: str, *, replicas: int = 1, is_enabled: bool = True, has_version: bool = True) -> Model:
    versions = (Version(version=1, path="/m/1"),) if has_version else ()
    return Model(name=name, versions=versions, replicas=replicas, is_enabled=is_enabled)


def assignment(
    *models: Model, workers: list[Worker], device: str = "d1", allowed: frozenset[str] = frozenset()
) -> Assignment:
    made = Assignment({token(m.name): m for m in models}, device=device, allowed=allowed)
    for present in workers:
        made.worker_changed(present.id, present)
    return made


def names(*models: Model, workers: list[Worker], device: str = "d1", allowed: frozenset[str] = frozenset()) -> set[str]:
    made = assignment(*models, workers=workers, device=device, allowed=allowed)
    return set(made.current())


def test_each_model_has_as_many_homes_as_replicas() -> None:
    workers = [worker("w1", "d1"), worker("w2", "d2"), worker("w3", "d3")]
    for replicas in range(4):
        found = [d for d in ("d1", "d2", "d3") if names(model("m", replicas=replicas), workers=workers, device=d)]
        assert len(found) == replicas


def test_two_workers_on_one_device_are_one_home() -> None:
    workers = [worker("w1", "d1"), worker("w2", "d1")]
    assert names(model("m", replicas=2), workers=workers) == {"m"}


def test_disabled_empty_and_foreign_models_are_left_out() -> None:
    workers = [worker("w1", "d1")]
    models = [model("on"), model("off", is_enabled=False), model("void", has_version=False), model("held")]
    assert names(*models, workers=workers) == {"on", "held"}
    assert names(*models, workers=workers, allowed=frozenset({"held"})) == {"held"}


def test_a_model_moves_when_the_only_worker_of_its_home_drains() -> None:
    both = [worker("w1", "d1"), worker("w2", "d2")]
    home = "d1" if names(model("m"), workers=both, device="d1") else "d2"
    other = "d2" if home == "d1" else "d1"
    left = [w if w.device.id == other else worker(w.id, w.device.id, state="draining") for w in both]
    assert names(model("m"), workers=left, device=other) == {"m"}
    assert names(model("m"), workers=left, device=home) == set()


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that were placed, in order."""
    found: list[str] = []

    def noted(model: Model, workers: Iterable[Worker]) -> tuple[str, ...]:
        found.append(model.name)
        return homes_of(model, workers)

    monkeypatch.setattr(fleet, "homes_of", noted)
    return found


def test_a_change_costs_the_placement_of_what_changed(placed: list[str]) -> None:
    models: dict[str, Model] = {}
    made = Assignment(models, device="d1", allowed=frozenset())
    made.worker_changed("w1", worker("w1", "d1"))
    for number in range(1000):  # as a table tells of them while it is read
        name = f"m{number}"
        models[name] = model(name)
        made.model_changed(name)
    assert len(made.current()) == len(placed) == 1000
    placed.clear()
    assert not made.worker_changed("w1", worker("w1", "d1", state="starting")), "presence without news"
    made.current()
    assert not placed
    models["m7"] = model("m7", is_enabled=False)
    made.model_changed("m7")
    models["m8"] = model("m8", replicas=2)
    made.model_changed("m8")
    assert made.current()["m8"] == ("d1",)
    assert "m7" not in made.current()
    assert placed == ["m8"]


def test_workers_that_come_together_cost_one_placement_of_each_model(placed: list[str]) -> None:
    made = assignment(*(model(f"m{n}") for n in range(100)), workers=[worker(f"w{n}", f"d{n}") for n in range(8)])
    here = set(made.current())
    assert len(placed) == 100
    assert made.worker_changed("w2", None)
    assert here <= set(made.current()), "a device that leaves takes no model from the others"
    assert len(placed) == 200


def test_a_removed_model_is_nobody_s() -> None:
    models = {"m": model("m")}
    made = Assignment(models, device="d1", allowed=frozenset())
    made.worker_changed("w1", worker("w1", "d1"))
    made.model_changed("m")
    assert set(made.current()) == {"m"}
    del models["m"]
    made.model_changed("m")
    assert not made.current()


def test_assigned_models_are_as_last_published_until_they_are_removed() -> None:
    models = {token(name): model(name) for name in ("a.b", "c", "d")}
    assigned = AssignedModels(models, [token("a.b"), "c"])
    assert set(assigned) == {"a.b", "c"}
    models[token("a.b")] = model("a.b", replicas=2)
    assert assigned["a.b"].replicas == 2
    del models["c"]
    assert assigned.get("c") is None
    assert [m.name for m in assigned.values()] == ["a.b"]
