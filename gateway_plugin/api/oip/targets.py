"""Finds the models and versions that requests name."""

from collections.abc import Iterator, Mapping
from typing import Final

from gateway_plugin.admission.keyring import require_model
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.tables.catalog import Catalog
from signalbox.program.errors import NotFound
from signalbox.wire.access import is_listed
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.modeldocs import Model

_LARGEST: Final = 2**63 - 1
_MOST_DIGITS: Final = 19
_SHOWN: Final = 120


class Targets:
    """Looks models up for the keys that may use them."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def model(self, key: ApiKey, name: str) -> Model:
        """A model's document. Raises :class:`Forbidden` and :class:`NotFound`."""
        require_model(key, name)
        return self._model(name, key)

    def knows(self, key: ApiKey, name: str) -> bool:
        """Whether there is a model of this name that a key may use."""
        return is_listed(key, name) and self._catalog.find(name, key) is not None

    def version(self, key: ApiKey, name: str, version: str) -> PreparedVersion:
        """A version made ready.

        version: its number, or a label, which the protocol has no other place for; empty = what requests get now.
        Raises as :meth:`model`, :class:`NotFound`, and :class:`InvalidRequest` for an unknown label.
        """
        require_model(key, name)
        return self._version(name, version, key)

    def chosen(self, key: ApiKey, headers: Mapping[str, str], name: str, version: str) -> PreparedVersion:
        """The version that a request runs on. Raises as :meth:`version`."""
        require_model(key, name)
        self._model(name, key)
        return self._catalog.chosen(key, headers, name, *_named(name, version))

    def version_for_anybody(self, name: str, version: str) -> PreparedVersion:
        """The version asked for, where no key is needed. Raises :class:`NotFound` and :class:`InvalidRequest`."""
        return self._version(name, version, None)

    def _version(self, name: str, version: str, key: ApiKey | None) -> PreparedVersion:
        self._model(name, key)
        return self._catalog.ready(name, *_named(name, version))

    def versions(self, key: ApiKey, name: str, version: str) -> list[tuple[str, int]]:
        """The model, and the version that a request names, or all of them. Raises as :meth:`version`."""
        if version:
            return [(name, self.version(key, name, version).version.version)]
        return [(name, one.version) for one in self.model(key, name).versions]

    def all(self, key: ApiKey) -> Iterator[Model]:
        """The models that a key may use."""
        return self._catalog.all(key)

    def _model(self, name: str, key: ApiKey | None) -> Model:
        found = self._catalog.find(name, key)
        if found is None:
            raise NotFound(f"Request for unknown model: '{name[:_SHOWN]}' is not found.", model=name[:_SHOWN])
        return found


def _named(name: str, version: str) -> tuple[int | None, str | None]:
    """The number, or the label, that is asked for. Raises :class:`NotFound` for a number that no version has."""
    if not version:
        return None, None
    if not (version.isascii() and version.isdigit()):
        return None, version[:_SHOWN]
    number = int(version) if len(version) <= _MOST_DIGITS else _LARGEST + 1
    if number > _LARGEST:
        raise NotFound(f"Request for unknown model: '{name}' has no version {version[:_SHOWN]}.", model=name)
    return number, None
