"""The models that exist, as the console last published them, with their signatures made ready.

Requests without a version get the one that the rollout's record names (:mod:`gateway_plugin.tables.rollouts`).
"""

from collections.abc import Iterator
from typing import Final

from gateway_plugin.codec.prepared import PreparedVersion
from signalbox.bus.table import Table
from signalbox.program.errors import InvalidRequest, NotFound, NotServing
from signalbox.wire import rollout
from signalbox.wire.messages import Model, Serving
from signalbox.wire.names import MODEL_NAME, token

_RETRY_AFTER_S: Final = 10.0


class Catalog:
    """Looks models up and resolves versions and labels, as TF Serving means them. Tables' keys are ``token(name)``."""

    def __init__(self, table: Table[Model], serving: Table[Serving]) -> None:
        self._table = table
        self._serving = serving
        self._tokens: dict[str, str] = {}
        self._ready: dict[str, tuple[Model, dict[int, PreparedVersion]]] = {}
        """By name: a model's document, and the versions that were asked for since it was published."""

    def find(self, name: str) -> Model | None:
        """The document of a model, None if there is none."""
        key = self._tokens.get(name)
        if key is None:
            if MODEL_NAME.match(name) is None:
                return None
            key = token(name)
        model = self._table.get(key)
        if model is not None:
            self._tokens[name] = key
        elif self._tokens.pop(name, None) is not None:  # it was removed
            self._ready.pop(name, None)
        return model

    def all(self) -> Iterator[Model]:
        """Every model, by name."""
        return iter(sorted(self._table.items().values(), key=lambda model: model.name))

    def labelled(self, name: str, label: str) -> int:
        """The version that a label stands for now. Raises :class:`InvalidRequest`, for an unknown model too."""
        model = self.find(name)
        version = self.current(model, label) if model is not None and label else None
        if version is None:
            raise InvalidRequest(f"Unrecognized servable version label: {label}")
        return version

    def ready(self, name: str, version: int | None = None, label: str | None = None) -> PreparedVersion:
        """The version a prediction runs on: as asked for, else the one that its label or the default stand for now.

        Raises :class:`NotFound` for an unknown model or version and :class:`InvalidRequest` for an
        unknown label, in TF Serving's words.
        """
        if label is not None:
            version = self.labelled(name, label)
        model = self.find(name)
        if model is None:
            raise NotFound(_no_servable(name, version), model=name)
        if version is None:
            version = self.current(model)
        if version is None:
            raise NotFound(f"Could not find any versions of model {model.name}", model=model.name)
        known = self._ready.get(name)
        if known is None or known[0] is not model:
            known = self._ready[name] = (model, {})
        made = known[1].get(version)
        if made is not None:
            return made
        for candidate in model.versions:
            if candidate.version == version:
                made = known[1][version] = PreparedVersion(model, candidate)
                return made
        raise NotFound(_no_servable(name, version), model=name)

    def current(self, model: Model, label: str = rollout.DEFAULT) -> int | None:
        """The version that requests by a label, or without one, get now; None for no such label, or no versions."""
        key = self._tokens.get(model.name) or token(model.name)
        return rollout.resolve(model, self._serving.get(key), label)


def require_open(model: Model) -> None:
    """Raise :class:`NotServing`, with the reason, if the console keeps this model from being used."""
    if not model.is_enabled:
        raise NotServing(
            f'The model "{model.name}" is disabled; an operator has to enable it.',
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
