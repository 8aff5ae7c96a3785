"""Child processes of the conformance suite, and the fronts put together from them."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from signalbox.ops.ports import HOST, free_port
from tests.rigs.runningstack import RunningStack

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "tyk"
READY_S = 60.0
STOP_S = 10.0


def tyk_binary() -> str | None:
    """A Tyk gateway, if there is one; redis-server must be there as well."""
    found = shutil.which(os.environ.get("SIGNALBOX_TYK_BIN") or "tyk")
    return found if found and shutil.which("redis-server") else None


class Program:
    """One child process. It is ready when a line of its output matches ``ready``."""

    def __init__(
        self, argv: Sequence[str], *, ready: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT
    ) -> None:
        self.argv = list(argv)
        self.tail: deque[str] = deque(maxlen=200)
        self._ready = re.compile(ready)
        self._env = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self._cwd = cwd
        self._process: subprocess.Popen[str] | None = None
        self._is_ready = threading.Event()
        self._reader = threading.Thread()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self._is_ready.clear()
        self._process = subprocess.Popen(
            self.argv,
            env=self._env,
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._pump, args=(self._process,), daemon=True)
        self._reader.start()
        if not self._is_ready.wait(READY_S) or not self.is_alive:
            self.stop()
            raise AssertionError(f"{self.argv} is not ready:\n" + "".join(self.tail))

    def _pump(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self.tail.append(line)
                if self._ready.search(line):
                    self._is_ready.set()
        process.wait()  # before start() looks: its last words come before its end
        self._is_ready.set()

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._process is not None and self.is_alive:
            self._process.kill()
            self._process.wait(STOP_S)
            self._reader.join(STOP_S)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL."""
        if self._process is None or not self.is_alive:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
            self._reader.join(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()


class Service:
    """A program of a stack that runs already: killed by us, started again by the stack."""

    def __init__(self, stack: RunningStack, name: str) -> None:
        self._stack = stack
        self._name = name
        self._killed = 0

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._killed = self._stack.pids()[self._name]
        watch = os.pidfd_open(self._killed)
        try:
            os.kill(self._killed, signal.SIGKILL)
            assert select.select([watch], [], [], STOP_S)[0]
        finally:
            os.close(watch)

    def start(self) -> None:
        """Wait until the stack has started it again."""
        deadline = time.monotonic() + READY_S
        while self._stack.pids().get(self._name, self._killed) == self._killed:
            assert time.monotonic() < deadline, f"{self._name} is not back"
            time.sleep(0.05)


def redis(port: int, folder: Path) -> Program:
    """A Redis that keeps nothing on disk."""
    return Program(
        ["redis-server", "--bind", HOST, "--port", str(port), "--save", "", "--dir", str(folder)],
        ready="Ready to accept connections",
    )


def tyk(
    binary: str,
    *,
    port: int,
    control_port: int,
    redis_port: int,
    plugin: str,
    upstream: Mapping[str, int],
    files: Path,
    folder: Path,
    **more: str,
) -> Program:
    """A Tyk gateway on the files of ``tyk/``; but for the APIs' ports, what this machine needs are variables.

    upstream: its ports by the scheme of ``target_url``.
    """
    apps = folder / "apps"
    apps.mkdir()
    for path in (files / "apps").glob("*.json"):
        definition = json.loads(path.read_bytes()) | {"listen_port": port}
        scheme, _, host = definition["proxy"]["target_url"].partition("://")
        if host.startswith("plugin:"):
            definition["proxy"]["target_url"] = f"{scheme}://{HOST}:{upstream[scheme]}"
        (apps / path.name).write_text(json.dumps(definition))
    fields = {
        "LISTENADDRESS": HOST,
        "LISTENPORT": str(free_port()),
        "CONTROLAPIPORT": str(control_port),
        "SECRET": "conformance",
        "NODESECRET": "conformance",
        "APPPATH": str(apps),
        "TEMPLATEPATH": str(files / "templates"),
        "PIDFILELOCATION": str(folder / "tyk.pid"),
        "STORAGE_HOST": HOST,
        "STORAGE_PORT": str(redis_port),
        "COPROCESSOPTIONS_COPROCESSGRPCSERVER": plugin,
        **more,
    }
    return Program(
        [binary, "--conf", str(files / "tyk.conf")],
        ready="API reload complete",
        env={f"TYK_GW_{name}": value for name, value in fields.items()},
        cwd=folder,
    )


def upstream(ports: Mapping[str, int]) -> Program:
    """An upstream that tells what it got; see ``upstreamprobe.py``."""
    argv = [sys.executable, str(Path(__file__).with_name("upstreamprobe.py"))]
    for scheme, port in ports.items():
        argv += [f"--{scheme}", f"{HOST}:{port}"]
    return Program(argv, ready="upstream is ready", env={"PYTHONPATH": str(ROOT)})
