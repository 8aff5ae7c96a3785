"""What a test asks of processes that need not be its children."""

import asyncio
import os
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether ``pid`` still does anything; a zombie that nobody has reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (
        FileNotFoundError,
        ProcessLookupError,
    ):  # the latter if it ends between opening and reading
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def resident_bytes(pid: int) -> int:
    """Resident memory of ``pid``."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def gone(pid: int, limit_s: float = 5.0) -> None:
    """Wait for the end of ``pid``."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        async with asyncio.timeout(limit_s):
            await ended.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
