"""Documents that a table keeps encoded."""

import msgspec
import pytest

from signalbox.bus import packed
from signalbox.bus.packed import Packed
from signalbox.wire.messages import Model


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
