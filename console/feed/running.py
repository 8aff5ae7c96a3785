"""Holds the feed of this process, for acts, pages and the websocket."""

from typing import Final

from console.feed.feed import Feed


class RunningFeed:
    """feed: None in a program that serves no pages, and before the server has started."""

    def __init__(self) -> None:
        self.feed: Feed | None = None

    @property
    def is_blind(self) -> bool:
        """Whether this process cannot say what the fleet does now."""
        return self.feed is None or self.feed.is_blind

    def stopped_since(self, program: str) -> float | None:
        """Since when a background program of the console has stopped; None while it runs, or that is not known."""
        return self.feed.programs.stopped_since(program) if self.feed is not None else None


running: Final = RunningFeed()
"""Set by :mod:`console.live.lifespan`."""
