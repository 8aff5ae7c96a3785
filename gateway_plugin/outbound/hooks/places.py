"""Who may send at once: each webhook always has a place of its own, and those of all are for whoever has more to send.

So a receiver that is slow holds its own place and some of the common ones, never another webhook's last.
"""


class Places:
    """The places that webhooks share."""

    def __init__(self, size: int) -> None:
        self._free = size

    @property
    def free(self) -> int:
        """Places that nobody has."""
        return self._free

    def take(self) -> bool:
        """Take a place; False if there is none."""
        if not self._free:
            return False
        self._free -= 1
        return True

    def give_back(self, count: int) -> None:
        """Give back places that were taken."""
        self._free += count


class Share:
    """The places one webhook holds. most: it has no more, its own included."""

    def __init__(self, places: Places, most: int) -> None:
        self._places = places
        self._most = most
        self._held = 0

    def take(self) -> bool:
        """Hold one more; the first is always there. False if there is none now."""
        if self._held >= self._most or (self._held and not self._places.take()):
            return False
        self._held += 1
        return True

    def keep(self, count: int) -> None:
        """Hold no more than ``count`` from now on."""
        if count < self._held:
            self._places.give_back(max(0, self._held - 1) - max(0, count - 1))
            self._held = count
