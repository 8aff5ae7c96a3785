"""Redis streams at equal fsync beside: XADD, and XREADGROUP with XACK and XDEL, by plain connections without HTTP."""

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from signalbox.ops.ports import HOST, free_port

BODY: Final = b"x" * 256
_STREAM, _GROUP = b"items", b"eas"
_READY_S: Final = 10.0


def measure(folder: Path, consumers: Mapping[int, int], seconds: float) -> None:
    """Print rates by connections; consumers: how many, and the items that all of them take."""
    binary = shutil.which("redis-server")
    if binary is None:
        print("Redis streams: skipped, no redis-server on the path", flush=True)
        return
    folder.mkdir(parents=True)
    port = free_port()
    options = (
        "--port",
        str(port),
        "--dir",
        str(folder),
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--save",
        "",
    )
    server = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
    try:
        _connected(port)(b"XGROUP", b"CREATE", _STREAM, _GROUP, b"0", b"MKSTREAM")
        for number in consumers:
            print(f"Redis XADD, {number} connections: {_added(port, number, seconds):.0f}/s", flush=True)
        _connected(port)(b"XTRIM", _STREAM, b"MAXLEN", b"0")
        for number, items in consumers.items():
            print(
                f"Redis XREADGROUP, XACK and XDEL, {number} connections: {_read(port, number, items):.0f}/s", flush=True
            )
    finally:
        server.terminate()
        server.wait()


Command = Callable[..., Any]


def _added(port: int, connections: int, seconds: float) -> float:
    ends, counts = time.perf_counter() + seconds, [0] * connections

    def add(number: int) -> None:
        command = _connected(port)
        while time.perf_counter() < ends:
            command(b"XADD", _STREAM, b"*", b"d", BODY)
            counts[number] += 1

    _in_threads(connections, add)
    return sum(counts) / seconds


def _read(port: int, connections: int, items: int) -> float:
    fill = _connected(port)
    for _ in range(items):
        fill(b"XADD", _STREAM, b"*", b"d", BODY)
    began = time.perf_counter()

    def read(number: int) -> None:
        command = _connected(port)
        while True:
            found = command(b"XREADGROUP", b"GROUP", _GROUP, b"%d" % number, b"COUNT", b"1", b"STREAMS", _STREAM, b">")
            if not isinstance(found, list):
                return
            index = found[0][1][0][0]
            command(b"XACK", _STREAM, _GROUP, index)
            command(b"XDEL", _STREAM, index)

    _in_threads(connections, read)
    return items / (time.perf_counter() - began)


def _in_threads(many: int, act: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=act, args=(number,)) for number in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _connected(port: int) -> Command:
    """Sends a command of one connection, and gives its answer."""
    sock = _dialled(port)
    answers = sock.makefile("rb")

    def command(*words: bytes) -> Any:
        sock.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
        return _answer(answers)

    return command


def _dialled(port: int) -> socket.socket:
    ends = time.monotonic() + _READY_S
    while True:
        try:
            return socket.create_connection((HOST, port))
        except OSError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.05)


def _answer(answers: BinaryIO) -> Any:
    line = answers.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        raise RuntimeError(rest.decode())
    if kind == b"$":
        length = int(rest)
        return None if length < 0 else answers.read(length + 2)[:-2]
    if kind == b"*":
        return None if int(rest) < 0 else [_answer(answers) for _ in range(int(rest))]
    return int(rest) if kind == b":" else rest
