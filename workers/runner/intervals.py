"""The interval log: which runner was inside a device and when, so that a test can prove that no two overlapped.

Every runner appends JSON lines to one O_APPEND file (``SIGNALBOX_WORKER_INTERVAL_LOG``); times are
CLOCK_BOOTTIME seconds, which all processes of a machine share:

* ``in`` and ``out``: a stay begins and ends (a killed runner leaves no ``out``);
* ``use``: the device was used from ``t_in`` to ``t_out`` (a load or a run);
* ``overlap``: on entering, the witness was held by another process that was alive.

The witness is a kernel lock as well, of another kind and on another file than the one guards hold: a confined runner
may not call flock. It names its holder, for the kernel lets go of a dying process's descriptions one after another:
where guard and runner are killed at once, the lock can be free a moment before the dead runner's witness is, and a
process that is exiting uses nothing.
"""

import fcntl
import os
import struct
import time
from pathlib import Path
from typing import Final

import msgspec

TAKE: Final = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_LET_GO: Final = struct.pack("hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)
"""``struct flock`` of the whole file. Source: fcntl_locking(2)."""
_PID_BYTES: Final = 12
_PF_EXITING: Final = 0x4
_DYING_S: Final = 5.0
"""A process that takes longer to die than this is taken for one that lives."""
_POLL_S: Final = 0.005


class DeviceInterval(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of the log: a stay of a runner in a device, or a use of the device."""

    kind: str
    gpu: str
    pid: int
    token: int
    t_in: float
    t_out: float = 0.0


def now() -> float:
    """CLOCK_BOOTTIME in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Intervals:
    """The log of one runner on one device. Without a path it does nothing."""

    def __init__(self, path: str, gpu: str) -> None:
        self._gpu, self._token, self._t_in = gpu, 0, 0.0
        self._log = self._witness = -1
        if path:
            flags = os.O_CREAT | os.O_CLOEXEC
            self._log = os.open(path, flags | os.O_WRONLY | os.O_APPEND, 0o644)
            self._witness = os.open(f"{path}.{gpu}.inside", flags | os.O_RDWR, 0o644)

    @property
    def is_on(self) -> bool:
        """Whether anything is written."""
        return self._log >= 0

    def enter(self, token: int) -> None:
        """Log that the runner enters the device under ``token``."""
        self._token, self._t_in = token, now()
        if self.is_on:
            if not self._take_witness():
                self._append("overlap", self._t_in)
            self._append("in", self._t_in)

    def _take_witness(self) -> bool:
        """Take the lock on the witness file; False where a process that lives holds it."""
        while True:
            try:
                fcntl.fcntl(self._witness, fcntl.F_OFD_SETLK, TAKE)
            except BlockingIOError:
                text = os.pread(self._witness, _PID_BYTES, 0).strip()
                if now() > self._t_in + _DYING_S or not text.isdigit() or not _is_dying(int(text)):
                    return False
                time.sleep(_POLL_S)
            else:
                os.pwrite(self._witness, b"%-*d" % (_PID_BYTES, os.getpid()), 0)
                return True

    def leave(self) -> None:
        """Log that the runner leaves the device."""
        if self.is_on:
            self._append("out", self._t_in, now())
            fcntl.fcntl(self._witness, fcntl.F_OFD_SETLK, _LET_GO)

    def use(self, t_in: float) -> None:
        """Log that the device was used from ``t_in`` until now."""
        if self.is_on:
            self._append("use", t_in, now())

    def _append(self, kind: str, t_in: float, t_out: float = 0.0) -> None:
        line = DeviceInterval(kind=kind, gpu=self._gpu, pid=os.getpid(), token=self._token, t_in=t_in, t_out=t_out)
        os.write(self._log, msgspec.json.encode(line) + b"\n")  # one write: lines never mix


def _is_dying(pid: int) -> bool:
    """Whether a process is gone or will never run its own code again (proc_pid_stat(5), ``flags``)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return fields[0] in {b"Z", b"X"} or bool(int(fields[6]) & _PF_EXITING)
