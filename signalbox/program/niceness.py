"""How a program lets others go first where processors are short."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_GROUP: Final = Path("/proc/self/autogroup")


def give_way(nice: int) -> None:
    """Take a smaller part of processors that others want too, and all of them where nobody does.

    nice: 0 to 19, see sched(7). Where Linux shares by session first, that of this process has the same if it leads it:
    others in it are somebody's shell. Containers, which share by their own weights, are not changed by it.
    """
    os.nice(nice)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):  # a kernel without groups of sessions, or a /proc that is not written to
            _GROUP.write_text(str(nice))
