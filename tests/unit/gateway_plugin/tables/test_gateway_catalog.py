"""The gateway's catalog remembers what it made ready for as long as the model's document stays the same."""

from typing import TypeVar

import pytest

from gateway_plugin.tables.catalog import Catalog
from signalbox.bus.table import Table
from signalbox.program.errors import NotFound
from signalbox.wire.messages import Model, Serving, Signature, TensorSpec, Version
from signalbox.wire.names import token

T = TypeVar("T")
SIGNATURES = {
    "serving_default": Signature(
        inputs={"x": TensorSpec(dtype="float32", shape=(-1,))}, outputs={"y": TensorSpec(dtype="float32", shape=(-1,))}
    )
}
NAME = "half.two"


class Documents(Table[T]):
    """A table that follows no bucket."""

    def __init__(self, **items: T) -> None:
        self._items = items
        self.get = items.get
        self._callbacks = []

    def publish(self, key: str, document: T | None) -> None:
        if document is None:
            del self._items[key]
        else:
            self._items[key] = document
        for callback in self._callbacks:
            callback(key, document, 1)


def document(*numbers: int) -> Model:
    versions = tuple(Version(version=n, path=f"/m/{n}", signatures=SIGNATURES) for n in numbers)
    return Model(name=NAME, versions=versions, default_version=numbers[-1])


def test_what_was_made_ready_is_used_again_until_the_document_changes() -> None:
    models = Documents(**{token(NAME): document(1, 2)})
    catalog = Catalog(models, Documents[Serving]())
    first = catalog.ready(NAME, 1)
    assert catalog.ready(NAME, 1) is first
    models.publish(token(NAME), document(2))
    with pytest.raises(NotFound):
        catalog.ready(NAME, 1)
    assert catalog.ready(NAME, 2).version.version == 2


def test_a_removed_model_is_not_remembered() -> None:
    models = Documents(**{token(NAME): document(1)})
    catalog = Catalog(models, Documents[Serving]())
    catalog.ready(NAME, 1)
    models.publish(token(NAME), None)
    with pytest.raises(NotFound):
        catalog.ready(NAME, 1)
    assert not catalog._asked


def test_what_requests_get_follows_the_record_of_what_is_served() -> None:
    serving = Documents[Serving]()
    catalog = Catalog(Documents(**{token(NAME): document(1, 2)}), serving)
    assert catalog.ready(NAME).version.version == 2
    serving.publish(token(NAME), Serving(publication=1, default=1))
    assert catalog.ready(NAME).version.version == 1
