"""A server of a test's own as child process, which says in its log when it serves."""

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.rigs.natsserver import die_with_parent

_START_S: Final = 60.0


class LoggedServer:
    """``with LoggedServer(argv, "ready", folder):``. ready: part of the line that it prints once it serves."""

    def __init__(self, argv: Sequence[str], ready: str, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self._argv, self._ready, self._folder = argv, ready, folder
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread()
        self._is_up = threading.Event()
        self._tail: deque[str] = deque(maxlen=50)

    @property
    def pid(self) -> int:
        """Process id of the running server, to freeze it."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Return when it serves."""
        self._is_up.clear()
        self._process = subprocess.Popen(  # it is ended by stop, and by the kernel with the thread that starts it
            self._argv,
            cwd=self._folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=die_with_parent,  # noqa: PLW1509  it calls the kernel once and no Python besides
        )
        self._reader = threading.Thread(target=self._read, name=f"{self._argv[0]} log")
        self._reader.start()
        is_ready = self._is_up.wait(_START_S) and self._process.poll() is None
        if not is_ready:
            self.stop()
        assert is_ready, f"{self._argv[0]} did not start: {list(self._tail)[-10:]}"

    def stop(self) -> None:
        """End at once, as a crash would; a frozen one too. The data stay. Idempotent."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(_START_S)
            self._reader.join(_START_S)
            self._process = None

    def _read(self) -> None:
        """Read its log while it runs: a full pipe would stop the server."""
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as log:
            for line in log:
                self._tail.append(line.rstrip())
                if self._ready in line:
                    self._is_up.set()
        self._is_up.set()
