"""The served console as a process: with NATS away, back again, and ended by a signal."""

import asyncio
import contextlib
import http.cookiejar
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import websockets

from signalbox.bus import topology
from signalbox.bus.client import Bus, Message
from signalbox.ops.ports import free_port
from signalbox.program.settings import Wire
from signalbox.wire import keydocs, messages, names
from signalbox.wire.names import Bucket
from tests.rigs.hostileclients import (
    LIMIT_S,
    half_body,
    half_head,
    long_field,
    many_fields,
    nothing,
    refused_by,
    silent,
)
from tests.rigs.natsserver import NatsServer

PASSWORD = "correct horse battery staple"


class Visitor:
    """A browser without a screen."""

    def __init__(self, base: str, metrics_port: int) -> None:
        self.base = base
        self._metrics_port = metrics_port
        self._jar = http.cookiejar.CookieJar()
        jar = urllib.request.HTTPCookieProcessor(self._jar)
        self._open = urllib.request.build_opener(jar).open

    def get(self, path: str) -> str:
        """A page's text."""
        with self._open(self.base + path, timeout=60) as answer:
            return str(answer.read().decode())

    @property
    def address(self) -> tuple[str, int]:
        """Where the console listens."""
        parts = urllib.parse.urlsplit(self.base)
        return str(parts.hostname), int(parts.port or 0)

    @property
    def cookies(self) -> str:
        """What the browser shows."""
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in self._jar)

    def count(self, name: str) -> float:
        """What the process has counted under a name, as a Prometheus reads it. No password is asked for."""
        url = f"http://127.0.0.1:{self._metrics_port}/metrics"
        with urllib.request.build_opener().open(url, timeout=60) as answer:
            found = re.search(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.MULTILINE)
        assert found, f"{name} is not served."
        return float(found[1])

    def submit(self, page: str, path: str, **fields: str) -> str:
        """Fill the form on ``page`` and send it to ``path``."""
        found = re.search(r'csrfmiddlewaretoken" value="([^"]+)', self.get(page))
        assert found
        data = urllib.parse.urlencode({**fields, "csrfmiddlewaretoken": found[1]}).encode()
        with self._open(self.base + path, data, timeout=60) as answer:
            return str(answer.read().decode())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Visitor, str, subprocess.Popen[bytes]]]:
    """A console for all tests of a module, its visitor logged in, and where its NATS shall be."""
    nats = f"nats://127.0.0.1:{free_port()}"
    port = free_port()
    counted = free_port()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    env = clean | {
        "SIGNALBOX_NATS_URL": nats,
        "SIGNALBOX_KEY_PEPPER": "pepper",
        "SIGNALBOX_CONSOLE_DATA_DIR": str(tmp_path_factory.mktemp("served") / "console"),
        "SIGNALBOX_CONSOLE_LISTEN": f"127.0.0.1:{port}",
        "SIGNALBOX_CONSOLE_ADMIN_PASSWORD": PASSWORD,
        "SIGNALBOX_METRICS_PORT": str(counted),
        "SIGNALBOX_CONSOLE_HTTP_HEAD_S": "2",
        "SIGNALBOX_CONSOLE_HTTP_BODY_S": "2",
    }
    program = [sys.executable, "-m", "console"]
    subprocess.run([*program, "bootstrap"], env=env, check=True, capture_output=True, timeout=120)
    process = subprocess.Popen([*program, "serve"], env=env, stderr=subprocess.DEVNULL)
    try:
        visitor = Visitor(f"http://127.0.0.1:{port}", counted)
        _wait_for(port, process)
        visitor.submit("/login", "/login", username="admin", password=PASSWORD)
        yield visitor, nats, process
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            probe.setblocking(False)
            probe.connect_ex(("127.0.0.1", port))
            select.select([], [probe], [], 1)
            if probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                return
            threading.Event().wait(0.05)  # refused at once: give the process time to listen
    raise AssertionError("The console does not listen.")


async def test_without_nats_the_console_serves_says_so_and_tells_later_what_was_decided(
    served: tuple[Visitor, str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    visitor, url, _ = served
    for page in ("/", "/models", "/keys", "/jobs", "/audit", "/settings"):
        assert "<h1>" in visitor.get(page)
    assert "NATS cannot be reached" in visitor.get("/jobs")
    made = visitor.submit(
        "/keys/new",
        "/keys/new",
        name="early",
        scopes="jobs:submit",
        rate="0",
        per_s="1",
        quota="0",
        quota_window_s="86400",
        days="1",
    )
    text = re.findall(r"sbx_live_\w+", made)[0]
    kid = text.split("_")[2]
    assert "being published" in visitor.get(f"/keys/{kid}")
    server = NatsServer(tmp_path / "nats", port=int(url.rpartition(":")[2]))
    async with server:
        bus = await Bus.connect(Wire(nats_url=url), role="admin")
        try:
            reported: asyncio.Queue[keydocs.ApiKey] = asyncio.Queue()

            def take(message: Message) -> None:
                reported.put_nowait(messages.decode(keydocs.ApiKey, message.data))

            await bus.subscribe(names.event_of_key(Bucket.KEYS, kid), take)
            await topology.apply(bus)
            async with asyncio.timeout(60):
                assert (await reported.get()).id == kid
        finally:
            await bus.close()


def test_a_strangers_endless_body_is_cut_off(served: tuple[Visitor, str, subprocess.Popen[bytes]]) -> None:
    visitor, _, _ = served
    host, _, port = visitor.base.removeprefix("http://").partition(":")
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with socket.create_connection((host, int(port)), timeout=60) as stranger:
        stranger.sendall(b"POST /models/-/upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(1024):
            if select.select([stranger], [], [], 0)[0]:
                break
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stranger.sendall(chunk)
        else:
            raise AssertionError("64 MB were taken.")
        assert stranger.recv(65536).startswith(b"HTTP/1.1 413 ")
        assert "<h1>" in visitor.get("/models")


def board_of(visitor: Visitor) -> websockets.connect:
    """The live board's connection."""
    return websockets.connect(
        visitor.base.replace("http:", "ws:") + "/ws/live",
        additional_headers={"Cookie": visitor.cookies},
        origin=websockets.Origin(visitor.base),
    )


async def is_alive(board: websockets.ClientConnection) -> bool:
    """Whether the board answers."""
    async with asyncio.timeout(LIMIT_S):
        await board.send('{"t": "sub", "topics": ["health"]}')
        return bool(await board.recv())


async def test_strangers_cost_the_pages_and_the_board_nothing(
    served: tuple[Visitor, str, subprocess.Popen[bytes]],
) -> None:
    """Heads without end, and 500 clients each that say nothing, half a head or half a body."""
    visitor, _, _ = served
    async with board_of(visitor) as board:
        for attack in (long_field, many_fields):
            answers = await asyncio.gather(*(attack(visitor.address) for _ in range(4)))
            assert {refused_by(answer) for answer in answers} == {431}
            assert "<h1>" in await asyncio.to_thread(visitor.get, "/models")
        for said, status in ((nothing, None), (half_head, 408), (half_body, 408)):
            closing = asyncio.create_task(silent(visitor.address, said, 500))
            assert "<h1>" in await asyncio.to_thread(visitor.get, "/models")
            assert {refused_by(answer) for answer in await closing} == {status}
        assert await is_alive(board)  # it has been silent for longer than they were
    counted = 'signalbox_console_http_refused_total{reason="%s"}'
    assert visitor.count(counted % "too_large:head") == 8
    assert visitor.count(counted % "deadline_exceeded:head") == 1000
    assert visitor.count(counted % "deadline_exceeded:body") == 500


def test_a_client_that_offers_http2_and_sends_no_more_after_its_request_is_answered(
    served: tuple[Visitor, str, subprocess.Popen[bytes]],
) -> None:
    """The body is read, and nobody waits for the client's other half."""
    visitor = Visitor(served[0].base, 0)
    visitor.submit("/login", "/login", username="admin", password=PASSWORD)
    found = re.search(r'csrfmiddlewaretoken" value="([^"]+)', visitor.get("/settings"))
    assert found
    form = urllib.parse.urlencode({"csrfmiddlewaretoken": found[1]}).encode()
    with socket.create_connection(visitor.address, timeout=60) as client:
        client.sendall(
            b"POST /logout HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            b"HTTP2-Settings: AAEAAEAAAAIAAAAB\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            b"Cookie: %b\r\nContent-Length: %d\r\n\r\n%b" % (visitor.cookies.encode(), len(form), form)
        )
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as answer:
            lines = answer.read()
    assert b"HTTP/1.1 302 " in lines
    assert b"\r\nLocation: /login" in lines.replace(b"location:", b"Location:")


def test_what_the_web_process_counts_can_be_scraped(served: tuple[Visitor, str, subprocess.Popen[bytes]]) -> None:
    visitor, _, _ = served
    assert visitor.count("signalbox_console_origin_refused_total") == 0
    host, _, port = visitor.base.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as foreign:
        foreign.sendall(
            b"GET /ws/live HTTP/1.1\r\nHost: localhost\r\nOrigin: http://elsewhere.example\r\n"
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: c2lnbmFsYm94LXRlc3QtMQ==\r\n\r\n"
        )
        assert foreign.recv(65536).startswith(b"HTTP/1.1 403 ")
    assert visitor.count("signalbox_console_origin_refused_total") == 1


def test_sigterm_ends_the_console_in_time(served: tuple[Visitor, str, subprocess.Popen[bytes]]) -> None:
    _, _, process = served
    process.terminate()
    process.wait(15)
