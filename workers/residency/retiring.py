"""Versions that requests no longer get, until they leave. Pure: time is passed in.

Jobs that were accepted for such a version may still wait, so it leaves when it has not been used for a while. A version
that a request names by its number later is loaded for it, and is none of these.
"""

from collections.abc import Collection, Iterable

Key = tuple[str, int]
"""Model name and version."""


class Retiring:
    """after_s: how long a version must have been idle."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._targets: dict[str, tuple[int, ...]] = {}
        self._idle_since_s: dict[Key, float] = {}

    def follow(self, targets: Iterable[Key], now_s: float) -> None:
        """What the models placed here shall have in memory from now on. A model placed elsewhere retires nothing."""
        grouped: dict[str, tuple[int, ...]] = {}
        alone: dict[int, tuple[int, ...]] = {}  # most models have one version, and it is of the same number
        for name, version in targets:
            known = grouped.get(name)
            grouped[name] = (*known, version) if known else alone.setdefault(version, (version,))
        for name, versions in grouped.items():
            for version in self._targets.get(name, ()):
                if version not in versions:
                    self._idle_since_s[name, version] = now_s
        self._targets = grouped
        self._idle_since_s = {
            key: since_s
            for key, since_s in self._idle_since_s.items()
            if key[0] in grouped and key[1] not in grouped[key[0]]
        }

    def used(self, key: Key, now_s: float) -> None:
        """A run began or ended."""
        if key in self._idle_since_s:
            self._idle_since_s[key] = now_s

    def gone(self, key: Key) -> None:
        """Note that a version has left the memory."""
        self._idle_since_s.pop(key, None)

    def targets(self, model: str) -> Collection[int]:
        """The versions of a model that stay."""
        return self._targets.get(model, ())

    def due(self, now_s: float) -> list[Key]:
        """Those that have been idle for long enough."""
        return [key for key, since_s in self._idle_since_s.items() if now_s - since_s >= self._after_s]

    def next_in_s(self, now_s: float) -> float | None:
        """Seconds until something may be due, None if nothing retires. What is overdue is looked at every so often."""
        if not self._idle_since_s:
            return None
        left_s = min(self._idle_since_s.values()) + self._after_s - now_s
        return left_s if left_s > 0 else self._after_s
