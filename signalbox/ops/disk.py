"""Room on the disk that NATS keeps its streams on, as far as this machine can see that disk."""

import os
from pathlib import Path
from typing import NamedTuple


class Room(NamedTuple):
    """Room on the file system of ``folder``. reserve_bytes: what shall stay free."""

    folder: Path
    reserve_bytes: int

    def free_bytes(self) -> int | None:
        """What an ordinary user may still write; None where the folder cannot be looked at."""
        try:
            found = os.statvfs(self.folder)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    def is_low(self) -> bool:
        """Whether the reserve has been reached."""
        free = self.free_bytes()
        return free is not None and free < self.reserve_bytes
