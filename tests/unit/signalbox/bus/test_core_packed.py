"""Documents that a table keeps encoded."""

import msgspec
import pytest

from signalbox.bus import packed
from signalbox.bus.packed import Packed
from signalbox.wire.modeldocs import Model, Signature, TensorSpec, Version


def test_a_document_is_decoded_once_until_it_is_another() -> None:
    models = Packed(Model)
    models["a"] = Model(name="a", replicas=2)
    first = models["a"]
    assert (first, models.get("a")) == (Model(name="a", replicas=2), first)
    assert models["a"] is first
    models["a"] = Model(name="a", replicas=3)
    assert models["a"].replicas == 3
    assert models.pop("a").replicas == 3
    assert models.get("a") is None
    assert "a" not in models


def test_so_many_stay_decoded_and_all_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MOST_DECODED", 3)
    models = Packed(Model)
    for number in range(10):
        models[f"m{number}"] = Model(name=f"m{number}")
    assert [model.name for model in models.values()] == list(models)
    assert (len(models), len(models._decoded)) == (10, 1)


def test_a_number_that_cannot_be_kept_is_said() -> None:
    models = Packed(Model)
    with pytest.raises(msgspec.ValidationError):
        models["a"] = Model(name="a", replicas=1 << 70)


def test_documents_that_are_alike_take_little_and_others_are_kept_as_well() -> None:
    tensors = {f"x{number}": TensorSpec(dtype="float32", shape=(-1, number)) for number in range(1000)}
    signatures = {"serving_default": Signature(inputs={"x": tensors["x1"]}, outputs={"y": tensors["x2"]})}
    alike = [
        Model(name=f"m{number}", versions=(Version(version=1, path="/models/m/1", signatures=signatures),))
        for number in range(10)
    ]
    large = Model(
        name="large", versions=(Version(version=1, path="/", signatures={"f": Signature(inputs=tensors, outputs={})}),)
    )
    models = Packed(Model)
    for model in (*alike, large, Model(name="")):
        models[model.name] = model
    assert all(len(models._packed[model.name]) < 32 for model in alike[1:])
    assert [*models.values()] == [*alike, large, Model(name="")]
