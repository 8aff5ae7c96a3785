"""What shadow runs of candidates have found on this worker, until their split has ended. No clock, no I/O."""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from signalbox.wire import rollout
from signalbox.wire.modeldocs import Model
from signalbox.wire.shadows import ShadowFigures, added
from signalbox.wire.splits import Split
from workers.statistics.lru import Lru

_MOST_KNOWN: Final = 256
Key = tuple[str, int]
"""Model name and version, of the candidate."""


def shadows(model: Model, version: int) -> list[Split]:
    """The splits whose candidates get batches of a version in shadow."""
    if not any(split.shadow > 0 for split in model.splits):
        return []
    named = rollout.wanted(model)
    return [
        one for one in model.splits if one.shadow > 0 and named.get(one.target) == version and one.candidate != version
    ]


class Shadowed:
    """The figures by candidate. Those of a split that begins anew begin anew."""

    def __init__(self) -> None:
        self._found: Lru[Key, ShadowFigures] = Lru(_MOST_KNOWN)

    def is_halted(self, model: str, split: Split, base: int) -> bool:
        """Whether the candidate is run here no more in shadow."""
        return bool(self._of(model, split, base).halted)

    def has_failed(self, model: str, split: Split, base: int) -> bool:
        """Whether the candidate has refused an input, or failed otherwise."""
        return self._of(model, split, base).failed > 0

    def add(self, model: str, split: Split, found: ShadowFigures) -> None:
        """Note what came of a run."""
        self._found[model, split.candidate] = added([self._of(model, split, found.base), found])

    def of(self, key: Key, find: Callable[[str], Model | None]) -> ShadowFigures | None:
        """What was found of a candidate, for presence; None where nothing was, or its split has ended."""
        found = self._found.get(key)
        model = find(key[0]) if found is not None else None
        if found is None or model is None:
            return None
        is_asked = any((one.candidate, one.since) == (key[1], found.since) and one.shadow > 0 for one in model.splits)
        rounded = replace(found, run_s=round(found.run_s, 4), base_run_s=round(found.base_run_s, 4))
        return rounded if is_asked else None

    def _of(self, model: str, split: Split, base: int) -> ShadowFigures:
        found = self._found.get((model, split.candidate))
        if found is None or (found.base, found.since) != (base, split.since):
            return ShadowFigures(base=base, since=split.since)
        return found
