"""Which models' queues are to be opened, each by one task at a time, and how often in a row one refused. Pure."""

from typing import Final

LONGEST_PAUSE_S: Final = 2.0
"""Before a queue that refuses each request is opened again."""


class Openings:
    """The openings of one session."""

    def __init__(self) -> None:
        self._requested: dict[str, bool] = {}
        """Models whose consumers are to be had, and whether they are to be made anew."""
        self._working: set[str] = set()
        self._refused: dict[str, int] = {}

    def request(self, model: str, *, is_anew: bool) -> bool:
        """A model's queue is to be opened. Returns whether to begin with it: nobody does."""
        self._requested[model] = is_anew or self._requested.get(model, False)
        if model in self._working:
            return False
        self._working.add(model)
        return True

    def is_working(self, model: str) -> bool:
        """Whether a model's queue is being opened."""
        return model in self._working

    def take(self, model: str) -> bool | None:
        """Whether the consumers of a model are to be made anew; None: it need not be opened."""
        return self._requested.pop(model, None)

    def end(self, model: str) -> None:
        """A model's queue is not being opened any more."""
        self._working.discard(model)

    def forget(self) -> None:
        """Open none any more."""
        self._requested.clear()

    def refused(self, model: str) -> None:
        """A model's queue refused what was asked of it. Its classes count once."""
        if model not in self._working:
            self._refused[model] = self._refused.get(model, 0) + 1

    def answered(self, model: str) -> None:
        """A model's queue answered what was asked of it."""
        if self._refused:
            self._refused.pop(model, None)

    def pause_s(self, model: str) -> float:
        """How long to wait before it is opened, so that it does not spin, whatever refuses."""
        refused = self._refused.get(model, 0)
        return min(LONGEST_PAUSE_S, 2.0 ** (refused - 5)) if refused > 1 else 0.0
