"""Counts the bytes of unfinished messages: of all connections, and of those that have not shown the secret."""


class Buffers:
    """Counts them. most: bytes of all. most_unproven: of connections that have not shown the secret, among them."""

    def __init__(self, most: int, most_unproven: int) -> None:
        self._most = most
        self._most_unproven = most_unproven
        self._held = 0
        self._unproven = 0

    def take(self, size: int, *, is_proven: bool) -> bool:
        """Take ``size`` bytes until :meth:`give_back`. False: there is no room, and nothing was taken."""
        if self._held + size > self._most:
            return False
        if not is_proven:
            if self._unproven + size > self._most_unproven:
                return False
            self._unproven += size
        self._held += size
        return True

    def give_back(self, size: int, *, is_proven: bool) -> None:
        """Give back what :meth:`take` took."""
        self._held -= size
        if not is_proven:
            self._unproven -= size

    def prove(self, size: int) -> None:
        """Count a connection's ``size`` held bytes as proven: it has shown the secret."""
        self._unproven -= size
