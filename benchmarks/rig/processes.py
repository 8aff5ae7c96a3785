"""Reads the cost of processes from /proc: processor seconds, memory, descendants, disk syncs."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

TICKS: Final = os.sysconf("SC_CLK_TCK")
SYNCS: Final = ("fsync", "fdatasync", "sync_file_range", "msync")
ATTACH_S: Final = 10.0
WORKER_PARTS: Final = ("guard", "runner")
_COUNTED: Final = re.compile(r"-\d+$")
"""The number at the end of the names of programs that there are several of."""
_SYNC: Final = re.compile(rf" ({'|'.join(SYNCS)})\(\d+<([^>]*)>")
_STREAM_PART: Final = re.compile(r"/streams/([^/]+)/(msgs|batches|obs)")
_RAFT_PART: Final = "/_js_/"
"""The Raft log of three nodes is written there before a message is in a stream."""
_PARTS: Final = {"msgs": "", "batches": " batches", "obs": " consumers"}


class Cost(NamedTuple):
    """One process. cpu_s: user and system time so far. rss_bytes: resident; pss_bytes: its share."""

    pid: int
    cpu_s: float
    rss_bytes: int
    pss_bytes: int


def cost(pid: int) -> Cost:
    """What ``pid`` alone has used. Raises :class:`FileNotFoundError` or :class:`ProcessLookupError` when it is gone."""
    proc = Path(f"/proc/{pid}")
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / TICKS
    sizes = {"Rss": 0, "Pss": 0}
    for line in (proc / "smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in sizes:
            sizes[name] = int(rest.split()[0]) * 1024
    return Cost(pid, cpu_s, sizes["Rss"], sizes["Pss"])


def descendants(pid: int) -> list[int]:
    """Every living process below ``pid``."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents.setdefault(parent, []).append(int(folder.name))
    found, open_ = [], [pid]
    while open_:
        children = parents.get(open_.pop(), [])
        found += children
        open_ += children
    return found


def title(pid: int) -> str:
    """Its command line, for people."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


def by_program(pids: Mapping[str, int]) -> dict[str, Cost]:
    """Programs with all they have started: nodes, plugins and workers added up, the parts of a worker apart."""
    found: dict[str, Cost] = {}
    for name, pid in pids.items():
        program = _COUNTED.sub("", name)
        for each in (pid, *descendants(pid)):
            try:
                spent = cost(each)
            except (FileNotFoundError, ProcessLookupError):  # a connection's process of PostgreSQL
                continue
            place = _part(program, each) if each != pid else program
            old = found.get(place, Cost(pid, 0.0, 0, 0))
            found[place] = Cost(
                old.pid, old.cpu_s + spent.cpu_s, old.rss_bytes + spent.rss_bytes, old.pss_bytes + spent.pss_bytes
            )
    return found


def _part(program: str, pid: int) -> str:
    words = title(pid).replace(".", " ").replace("/", " ").split()
    part = next((each for each in WORKER_PARTS if each in words or f"{each}py" in words), "")
    return f"{program}/{part}" if part else program


class SyncCounter:
    """Counts a process's disk syncs with strace. It slows each sync, so time nothing meanwhile."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._strace: subprocess.Popen[bytes] | None = None
        self._file = Path(tempfile.mkstemp(prefix="signalbox-strace-")[1])

    @staticmethod
    def is_possible() -> bool:
        """Whether strace is there."""
        return shutil.which("strace") is not None

    def __enter__(self) -> Self:
        self._strace = subprocess.Popen(
            [
                "strace",
                "-f",
                "-y",
                "-qq",
                "-e",
                f"trace={','.join(SYNCS)}",
                "-e",
                "signal=none",
                "-o",
                str(self._file),
                "-p",
                str(self._pid),
            ]
        )
        self._wait_until_attached()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._strace is not None:
            self._strace.send_signal(signal.SIGINT)
            self._strace.wait(ATTACH_S)

    def counts(self) -> Counter[str]:
        """Syncs seen, once it has been left: by stream, and what of it in atomic batches and consumers."""
        found = Counter(
            _kind_of(match[2])
            for line in self._file.read_text(errors="replace").splitlines()
            if (match := _SYNC.search(line))
        )
        self._file.unlink()
        return found

    def _wait_until_attached(self) -> None:
        end = time.monotonic() + ATTACH_S
        while time.monotonic() < end:
            text = Path(f"/proc/{self._pid}/status").read_text()
            if "TracerPid:\t0\n" not in text:
                return
            time.sleep(0.05)
        raise RuntimeError("strace could not attach (is ptrace allowed here?)")


def _kind_of(path: str) -> str:
    if _RAFT_PART in path:
        return "raft"
    match = _STREAM_PART.search(path)
    return f"{match[1]}{_PARTS[match[2]]}" if match else "other"
