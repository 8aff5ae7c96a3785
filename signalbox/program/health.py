"""Answers whether this process can do its work now, and whether it has to be started again: ``GET /readyz`` and
``GET /livez`` beside its metrics.

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


class Health:
    """What several sources say. without: the fault where there is no source yet; empty = none."""

    def __init__(self, without: str = "") -> None:
        self._without = without
        self._sources: weakref.WeakSet[Source] = weakref.WeakSet()

    def add(self, source: Source) -> None:
        """Ask ``source`` from now on, for as long as it lives or until :meth:`remove`. Idempotent."""
        self._sources.add(source)

    def remove(self, source: Source) -> None:
        """Ask ``source`` no more. Idempotent."""
        self._sources.discard(source)

    def clear(self) -> None:
        """Ask nobody, as at the start."""
        self._sources.clear()

    def faults(self) -> list[str]:
        """Every fault that stands now, each once."""
        sources = list(self._sources)
        if not sources and self._without:
            return [self._without]
        return sorted({fault for source in sources for fault in source.faults()})


READY: Final = Health(NOT_YET)
"""Whether the process can do its work."""
ALIVE: Final = Health()
"""Whether another start is all that mends it, as where an event loop has not turned for long. NATS, a database or a
device that is away leaves a program alive: it comes back by itself, and would be no sooner ready after a start. A
program that holds its interpreter lock for good gives no answer at all."""
