"""Who a worker process is, and which kernel it shares its locks with."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

_HOST_FILE = "host-id"


class WorkerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process.

    id: stable name. boot: random, new at every start. host: id of the lock directory and the kernel's
    boot id; equal ``host`` means the same flocks, which is what a seizure by proof of death needs.
    pid, pid_start: the process and its start time in clock ticks since boot (tells reused pids apart).
    """

    id: str
    boot: str
    host: str
    pid: int
    pid_start: int

    @classmethod
    def of_this_process(cls, worker_id: str, lock_dir: Path) -> "WorkerIdentity":
        """The identity of the calling process. Creates ``lock_dir`` and its host id where missing."""
        pid = os.getpid()
        return cls(id=worker_id, boot=secrets.token_hex(8), host=host_of(lock_dir), pid=pid, pid_start=pid_start(pid))


def host_of(lock_dir: Path) -> str:
    """``<id of the lock directory>/<boot id>``.

    Containers that mount one lock directory are one host, whatever their machine ids say: they are
    exactly those whose flocks exclude each other.
    """
    return f"{host_id(lock_dir)}/{boot_id()}"


def host_id(lock_dir: Path) -> str:
    """The id stored in ``lock_dir``, created once; of two processes that create it, one wins."""
    lock_dir.mkdir(parents=True, exist_ok=True)
    path = lock_dir / _HOST_FILE
    with suppress(FileNotFoundError):
        return path.read_text().strip()
    draft = lock_dir / f".{_HOST_FILE}.{secrets.token_hex(4)}"
    draft.write_text(f"{secrets.token_hex(8)}\n")
    with suppress(FileExistsError):
        os.link(draft, path)  # atomic, and never replaces what another process has linked
    draft.unlink()
    return path.read_text().strip()


def boot_id() -> str:
    """The kernel's boot id: changes when the machine restarts and every flock is gone."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_start(pid: int) -> int:
    """Start time of ``pid`` in clock ticks since boot (field 22 of ``/proc/<pid>/stat``)."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[19])
