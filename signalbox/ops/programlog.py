"""Where a program's output goes under ``signalbox up``: a file that is rotated while the program runs.

The program writes into a pipe, a thread of ours copies it. So the file is cut between two lines whatever the
program is (NATS, Tyk and the interpreter's own last words have no handler of ours), and a program that writes
without end, or onto a full disk, neither fills the disk nor stands still. It does stand still while we do, once the
pipe is full: ``signalbox up`` ignores Ctrl-Z, but no process can ignore SIGSTOP.
"""

import contextlib
import fcntl
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

LIMIT_BYTES: Final = 8 * 1024 * 1024
"""Of one file. It is exceeded by the rest of a line at most."""
KEPT: Final = 4
"""Older files, ``<program>.log.1`` (the newest) and up."""
LONGEST_LINE_BYTES: Final = 1024 * 1024
"""A longer line is cut: a program that never ends a line must not fill the disk either."""
PIPE_BYTES: Final = 1024 * 1024
"""What a program may write while we do nothing; the most that Linux gives to anyone who asks."""
_NEWLINE: Final = ord("\n")
_READ_BYTES: Final = 65_536
_TAIL_BYTES: Final = 16_384


class ProgramLog:
    """The log of one program across its restarts: ``path``, and ``KEPT`` older files beside it.

    on_output: gets each piece of output before it is written, in whatever thread copies it; must not block or raise.
    """

    def __init__(
        self,
        path: Path,
        *,
        limit_bytes: int = LIMIT_BYTES,
        kept: int = KEPT,
        on_output: Callable[[bytes], None] | None = None,
    ) -> None:
        self._on_output = on_output
        self._file = _RotatingFile(path, limit_bytes, kept)
        self._pipes: set[int] = set()
        self._lock = threading.Lock()

    def open(self) -> int:
        """A descriptor for the output of one process; close it once the program has it.

        It is copied until the last process that holds it has ended.
        """
        pipe, given = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(pipe, False)
        with contextlib.suppress(OSError):  # the user's pipes may be used up: then it is a small one
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        with self._lock:
            self._file.open()
            self._pipes.add(pipe)
        name = f"log of {self._file.path.stem}"
        threading.Thread(target=self._copy, args=(pipe,), name=name, daemon=True).start()
        return given

    def catch_up(self) -> None:
        """Copy what has been written until now."""
        with self._lock:
            for pipe in list(self._pipes):
                with contextlib.suppress(BlockingIOError, EOFError):
                    for _ in range(PIPE_BYTES // _READ_BYTES):  # of a program that goes on writing, no more
                        self._copy_piece(pipe)

    def tail(self, lines: int) -> str:
        """The last lines, also those that the latest rotation has put aside."""
        self.catch_up()
        ends = b"".join(map(_end, (self._file.named(1), self._file.path)))
        return "\n".join(ends.decode(errors="replace").splitlines()[-lines:])

    def _copy(self, pipe: int) -> None:
        """Until the end. Only this thread closes the pipe: closed by another, its number may already be a different
        file, and a poll holds the file it waits for open, so that the other end of a pipe never sees it closed.
        """
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while True:
            poll.poll()
            with self._lock:
                try:
                    self._copy_piece(pipe)
                except BlockingIOError:
                    continue
                except EOFError:
                    self._pipes.remove(pipe)
                    os.close(pipe)
                    if not self._pipes:
                        self._file.close()
                    return

    def _copy_piece(self, pipe: int) -> None:
        """Raises BlockingIOError where there is none now, EOFError where none will come."""
        data = os.read(pipe, _READ_BYTES)
        if not data:
            raise EOFError
        if self._on_output is not None:
            self._on_output(data)
        self._file.write(data)


class Shown:
    """Writes a program's output, line by line, to a descriptor that others write to as well; see :class:`ProgramLog`.

    What finds no room there is left out: whoever reads a container's output too slowly stops no program. It is in the
    log.
    """

    _lock: Final = threading.Lock()

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def __call__(self, data: bytes) -> None:
        """Write the lines that end with this piece; a longer line than :data:`PIPE_BYTES` is cut."""
        whole, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if len(self._rest) > PIPE_BYTES:
            whole, newline, self._rest = whole + newline + self._rest, b"\n", b""
        with self._lock, contextlib.suppress(OSError):
            for line in (whole + newline).splitlines(keepends=True):
                for start in range(0, len(line), select.PIPE_BUF):
                    if not self._poll.poll(0):
                        return
                    os.write(self._fd, line[start : start + select.PIPE_BUF])


class _RotatingFile:
    """Appends, and begins a new file at the first line end after ``limit_bytes``."""

    def __init__(self, path: Path, limit_bytes: int, kept: int) -> None:
        self.path = path
        self._limit_bytes = limit_bytes
        self._kept = kept
        self._fd = -1
        self._size = 0
        self._is_at_line_start = True
        self._lost = 0

    def open(self) -> None:
        """Open it. Idempotent."""
        if self._fd < 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close it. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def write(self, data: bytes) -> None:
        """Append; what a full disk does not take is counted, and said once it takes something again."""
        while data:
            if self._is_full:
                self._rotate()
            cut = self._cut(data)
            self._append(data[:cut])
            self._is_at_line_start = data[cut - 1] == _NEWLINE
            data = data[cut:]

    @property
    def _is_full(self) -> bool:
        """Whether a new file is due: after a line, or in the middle of one that is too long."""
        most = self._limit_bytes + (0 if self._is_at_line_start else LONGEST_LINE_BYTES)
        return self._size >= most

    def _cut(self, data: bytes) -> int:
        """How much of ``data`` belongs into this file."""
        room = max(0, self._limit_bytes - self._size)
        if len(data) <= room:
            return len(data)
        end = data.find(b"\n", room) + 1
        most = max(0, self._limit_bytes + LONGEST_LINE_BYTES - self._size)
        return min(end or len(data), most)

    def _append(self, data: bytes) -> None:
        if self._lost:
            note = b'\n{"event": "log.lost", "level": "error", "bytes": %d}\n' % self._lost
            if self._written(note) < len(note):
                self._lost += len(data)
                return
            self._lost = 0
        self._lost = len(data) - self._written(data)

    def _written(self, data: bytes) -> int:
        """How much of ``data`` the disk has taken."""
        done = 0
        with contextlib.suppress(OSError):
            self.open()
            while done < len(data):
                done += os.write(self._fd, data[done:])
        self._size += done
        return done

    def _rotate(self) -> None:
        try:
            for number in range(self._kept, 0, -1):
                older = self.named(number - 1)
                if older.exists():
                    older.replace(self.named(number))
            self.close()
            self.open()
        except OSError:  # nothing can be made here now: what follows is appended, or lost and counted
            self._size = 0

    def named(self, number: int) -> Path:
        """The file that has been put aside ``number`` times."""
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path


def _end(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read()
    except FileNotFoundError:
        return b""
