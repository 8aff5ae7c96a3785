"""Answers whether this process can do its work now, and if not, why: ``GET /readyz`` beside its metrics.

What a process depends on adds itself as a source. No other program is asked, so the answer comes at once and from any
thread.
"""

import weakref
from collections.abc import Sequence
from typing import Final, Protocol

NOT_YET: Final = "The program has not reached NATS yet."


class Source(Protocol):
    """Something that this process depends on."""

    def faults(self) -> Sequence[str]:
        """Cause and mend of each fault that stands now, a sentence or two; called in any thread."""


_sources: Final[weakref.WeakSet[Source]] = weakref.WeakSet()


def add(source: Source) -> None:
    """Ask ``source`` from now on, for as long as it lives or until :func:`remove`. Idempotent."""
    _sources.add(source)


def remove(source: Source) -> None:
    """Ask ``source`` no more. Idempotent."""
    _sources.discard(source)


def faults() -> list[str]:
    """Every fault that stands now, each once."""
    sources = list(_sources)
    return sorted({fault for source in sources for fault in source.faults()}) if sources else [NOT_YET]
