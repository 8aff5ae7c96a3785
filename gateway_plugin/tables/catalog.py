"""The models that exist, as the console last published them, with their signatures made ready.

Requests without a version get the one that the rollout's record names (:mod:`gateway_plugin.tables.rollouts`).
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gateway_plugin.codec.prepared import PreparedVersion
from signalbox.bus.table import Table
from signalbox.program.errors import InvalidRequest, NotFound, NotServing
from signalbox.wire import rollout
from signalbox.wire.access import may_use
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.modeldocs import Model, Serving
from signalbox.wire.names import MODEL_NAME, token, untoken

_RETRY_AFTER_S: Final = 10.0
_MOST_KEPT: Final = 2048
"""Most models that are kept ready."""


class _ModelInUse(NamedTuple):
    """A model that was asked for since it, or what is served of it, last changed. ready: the versions that were."""

    model: Model
    serving: Serving | None
    ready: dict[int, PreparedVersion]


class Catalog:
    """Looks models up and resolves versions and labels, as TF Serving means them. Tables' keys are ``token(name)``.

    A key finds no model that is closed to it: what it is answered is what it would be if there were none. key None: for
    the gateway itself.
    """

    def __init__(self, table: Table[Model], serving: Table[Serving]) -> None:
        self._table = table
        self._serving = serving
        self._asked: dict[str, _ModelInUse] = {}
        table.on_change(self._forget)
        serving.on_change(self._forget)

    def find(self, name: str, key: ApiKey | None = None) -> Model | None:
        """The document of a model, None if there is none."""
        asked = self._find(name, key)
        return asked.model if asked is not None else None

    def all(self, key: ApiKey) -> Iterator[Model]:
        """Every model that a key may use, by name, one in memory at a time: there may be very many.

        One that is removed before its turn is left out.
        """
        models = self._table.items()
        found = map(models.get, sorted(models, key=untoken))
        return (model for model in found if model is not None and may_use(key, model))

    def labelled(self, name: str, label: str, key: ApiKey | None = None) -> int:
        """The version that a label stands for now. Raises :class:`InvalidRequest`, for an unknown model too."""
        return _labelled(self._find(name, key), label)

    def chosen(
        self, key: ApiKey, headers: Mapping[str, str], name: str, version: int | None = None, label: str | None = None
    ) -> PreparedVersion:
        """The version that a prediction runs on: as :meth:`ready`, but on the caller's side where requests are split.

        headers: the request's, by canonical names. Every dialect asks this, and nothing else, for what is to be run.
        """
        asked = self._find(name, key)
        if version is None and asked is not None and asked.model.splits:
            if label is not None:
                _labelled(asked, label)
            version = rollout.choose(asked.model, asked.serving, label or rollout.DEFAULT, key.id, headers)
            label = None
        return _ready(asked, name, version, label)

    def ready(
        self, name: str, version: int | None = None, label: str | None = None, key: ApiKey | None = None
    ) -> PreparedVersion:
        """The version as asked for, else the one that its label or the default stand for now.

        Raises :class:`NotFound` for an unknown model or version and :class:`InvalidRequest` for an
        unknown label, in TF Serving's words.
        """
        return _ready(self._find(name, key), name, version, label)

    def current(self, model: Model, label: str = rollout.DEFAULT) -> int | None:
        """The version that requests by a label, or without one, get now; None for no such label, or no versions."""
        return rollout.resolve(model, self._serving.get(token(model.name)), label)

    def _find(self, name: str, key: ApiKey | None) -> _ModelInUse | None:
        asked = self._asked.get(name)
        if asked is None and MODEL_NAME.match(name) is not None:
            kept = token(name)
            model = self._table.get(kept)
            if model is not None:
                if len(self._asked) >= _MOST_KEPT:
                    self._asked.clear()  # each is made ready again when it is next asked for
                asked = self._asked[name] = _ModelInUse(model, self._serving.get(kept), {})
        return asked if asked is None or key is None or may_use(key, asked.model) else None

    def _forget(self, key: str, *_: object) -> None:
        self._asked.pop(untoken(key), None)


def _labelled(asked: _ModelInUse | None, label: str) -> int:
    version = rollout.resolve(asked.model, asked.serving, label) if asked is not None and label else None
    if version is None:
        raise InvalidRequest(f"Unrecognized servable version label: {label}")
    return version


def _ready(asked: _ModelInUse | None, name: str, version: int | None, label: str | None) -> PreparedVersion:
    if label is not None:
        version = _labelled(asked, label)
    if asked is None:
        raise NotFound(_no_servable(name, version), model=name)
    if version is None:
        version = rollout.resolve(asked.model, asked.serving, rollout.DEFAULT)
    if version is None:
        raise NotFound(f"Could not find any versions of model {name}", model=name)
    made = asked.ready.get(version)
    if made is not None:
        return made
    for candidate in asked.model.versions:
        if candidate.version == version:
            made = asked.ready[version] = PreparedVersion(asked.model, candidate)
            return made
    raise NotFound(_no_servable(name, version), model=name)


def require_open(model: Model) -> None:
    """Raise :class:`NotServing`, with the reason, if the console keeps this model from being used."""
    if not model.is_enabled:
        raise NotServing(
            f'The model "{model.name}" is disabled; an operator, or who unloaded it, has to enable it.',
            retry_after_s=_RETRY_AFTER_S,
            model=model.name,
        )
    if model.replicas <= 0:
        raise NotServing(
            f'The model "{model.name}" has no replicas (scaled to 0); an operator has to scale it up.',
            retry_after_s=_RETRY_AFTER_S,
            model=model.name,
        )


def _no_servable(name: str, version: int | None) -> str:
    wanted = f"Latest({name})" if version is None else f"Specific({name}, {version})"
    return f"Servable not found for request: {wanted}"
