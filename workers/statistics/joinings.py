"""Which requests may be joined: the owner's word, and what a worker has found of the version. No clock, no I/O."""

from collections.abc import Callable
from typing import Final

from signalbox.wire.modeldocs import Model, Version
from signalbox.wire.workerdocs import Joining
from workers.statistics.lru import Lru

_MOST_KNOWN: Final = 4096
Key = tuple[str, int]
"""Model name and version."""


class Joinings:
    """What this worker has found of versions that it tried, until the model's document says it.

    It is of the files with one digest: others are another version.
    """

    def __init__(self) -> None:
        self._found: Lru[Key, Joining] = Lru(_MOST_KNOWN)

    def note(self, key: Key, found: Joining) -> None:
        """Note what came of a trial."""
        self._found[key] = found

    def is_due(self, model: Model, version: Version) -> bool:
        """Whether the model asks for joined requests, and nobody knows what comes of them with this version."""
        return _asks(model) and version.joined is None and self._of(model, version) is None

    def may_join(self, model: Model, version: int, signature: str) -> bool:
        """Whether requests of a signature may be joined. The one place that decides."""
        if not _asks(model):
            return False
        return any(signature in self._signatures(model, one) for one in model.versions if one.version == version)

    def joins(self, model: Model) -> bool:
        """Whether requests of some version may be joined."""
        return _asks(model) and any(self._signatures(model, version) for version in model.versions)

    def unreported(self, key: Key, find: Callable[[str], Model | None]) -> Joining | None:
        """What was found here and does not stand in the model's document, which ``find`` gives."""
        model = find(key[0]) if key in self._found else None
        if model is None or not _asks(model):
            return None
        for version in model.versions:
            if version.version == key[1] and version.joined is None:
                return self._of(model, version)
        self._found.pop(key, None)
        return None

    def retry_untried(self, model: str) -> None:
        """The model was published again: what could not be tried is tried again, unless its document says that."""
        for key in [key for key, found in self._found.items() if key[0] == model and found.untried]:
            del self._found[key]

    def _of(self, model: Model, version: Version) -> Joining | None:
        found = self._found.get((model.name, version.version))
        return found if found is not None and found.digest == version.digest else None

    def _signatures(self, model: Model, version: Version) -> tuple[str, ...]:
        if version.joined is not None:
            return version.joined
        found = self._of(model, version)
        return found.joined if found is not None else ()


def _asks(model: Model) -> bool:
    return model.batching.rows_independent and model.batching.max_size > 1
