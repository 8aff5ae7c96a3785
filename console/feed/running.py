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


running: Final = RunningFeed()
"""Set by :mod:`console.live.lifespan`."""
