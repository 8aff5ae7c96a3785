"""The gateway's catalog remembers what it made ready for as long as the model's document stays the same."""

from typing import TypeVar

import pytest
from msgspec.structs import replace

from gateway_plugin.tables.catalog import Catalog
from signalbox.bus.table import Table
from signalbox.program.errors import InvalidRequest, NotFound, SignalboxError
from signalbox.wire.access import may_use
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.modeldocs import Access, Model, Serving, Signature, TensorSpec, Version
from signalbox.wire.names import token
from signalbox.wire.splits import Split

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


def test_of_very_many_models_that_are_asked_for_some_stay_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway_plugin.tables.catalog._MOST_KEPT", 2)
    names = ["a", "b", "c", "d"]
    catalog = Catalog(Documents(**{name: replace(document(1), name=name) for name in names}), Documents[Serving]())
    made = {name: catalog.ready(name) for name in names}
    assert [catalog.ready(name) is made[name] for name in ("d", "a")] == [True, False]
    assert catalog.ready("a").model.name == "a"


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


@pytest.mark.parametrize(
    ("own", "shared", "access", "is_let_in"),
    [
        ((), (), Access(), True),
        (("half.*",), (), Access(), True),
        (("half.two",), ("half.*",), Access(), True),
        (("hal",), (), Access(), False),
        (("*",), ("other*",), Access(), False),
        (("half.two.*",), (), Access(), False),
        ((), (), Access(is_open=False), False),
        ((), ("half.two",), Access(is_open=False), False),
        (("half.two",), (), Access(is_open=False), True),
        (("other", "half*"), (), Access(is_open=False), True),
        (("*",), (), Access(is_open=False), True),
        (("half.two",), ("other",), Access(is_open=False), False),
        ((), (), Access(is_open=False, accounts=("shop",)), True),
        ((), (), Access(is_open=False, accounts=("bank",)), False),
        ((), ("half.*",), Access(is_open=False, accounts=("shop",)), True),
        (("other",), (), Access(is_open=False, accounts=("shop",)), False),
        ((), ("other",), Access(is_open=False, accounts=("shop",)), False),
    ],
)
def test_a_key_may_use_what_both_lists_have_and_is_open_to_it(
    own: tuple[str, ...], shared: tuple[str, ...], access: Access, *, is_let_in: bool
) -> None:
    key = ApiKey(id="k", account_id="shop", hmac="", models=own, account_models=shared)
    catalog = Catalog(Documents(**{token(NAME): replace(document(1), access=access)}), Documents[Serving]())
    assert may_use(key, replace(document(1), access=access)) is is_let_in
    assert (catalog.find(NAME, key) is not None) is is_let_in
    assert [model.name for model in catalog.all(key)] == ([NAME] if is_let_in else [])
    assert catalog.ready(NAME).version.version == 1, "the gateway itself finds it"


def test_a_key_is_told_of_a_closed_model_what_it_is_told_of_one_that_does_not_exist() -> None:
    key = ApiKey(id="k", account_id="shop", hmac="")
    closed = replace(document(1), access=Access(is_open=False), labels={"stable": 1})
    catalog = Catalog(Documents(**{token(NAME): closed}), Documents[Serving]())
    for version, label in ((None, None), (1, None), (7, None), (None, "stable")):
        with pytest.raises(SignalboxError) as refused:
            catalog.ready(NAME, version, label, key)
        with pytest.raises(SignalboxError) as unknown:
            catalog.ready("half.ten", version, label, key)
        assert type(refused.value) is type(unknown.value)
        assert refused.value.public_message == unknown.value.public_message.replace("half.ten", NAME)


@pytest.mark.parametrize(("target", "label"), [("", None), ("stable", "stable")])
def test_a_split_gives_part_of_the_callers_the_candidate_and_each_the_same_one_again(
    target: str, label: str | None
) -> None:
    split = Split(target=target, candidate=2, weight=0.5)
    model = replace(document(1, 2), default_version=1, labels={"stable": 1}, splits=(split,))
    serving = Documents(**{token(NAME): Serving(publication=1, default=1, labels={"stable": 1}, candidates=(2,))})
    gateways = [Catalog(Documents(**{token(NAME): model}), serving) for _ in range(2)]
    keys = [ApiKey(id=f"k{n}", account_id="shop", hmac="") for n in range(50)]
    chosen = [[gateway.chosen(key, {}, NAME, None, label).version.version for key in keys] for gateway in gateways]
    assert chosen[0] == chosen[1]
    assert set(chosen[0]) == {1, 2}
    for key in keys:
        assert gateways[0].ready(NAME, None, label, key).version.version == 1, "what is told of it"
        assert gateways[0].chosen(key, {}, NAME, 1).version.version == 1, "one that is named by its number"
    with pytest.raises(InvalidRequest, match="nope"):
        gateways[0].chosen(keys[0], {}, NAME, None, "nope")
