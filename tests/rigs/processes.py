"""What a test asks of processes; they need not be its children where nothing else is said."""

import asyncio
import os
import signal
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether ``pid`` still does anything; a zombie that nobody has reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between opening and reading
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def resident_bytes(pid: int) -> int:
    """Resident memory of ``pid``."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def stop(*children: int) -> None:
    """SIGSTOP to children of ours, all at one instant; returns when none of their threads runs any more.

    The kernel has one thread take the signal and tell the others: until it gets a processor, and until another's sync
    has returned, a server of several threads goes on answering.
    """
    for pid in children:
        os.kill(pid, signal.SIGSTOP)
    for pid in children:
        await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


async def gone(pid: int, limit_s: float = 60.0) -> None:
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
