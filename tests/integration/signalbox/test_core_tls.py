"""What says ``tls://`` is never spoken to in the clear, and what does not is not spoken to where TLS is asked for."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import certifi
import msgspec
import pytest
import uvloop

from signalbox.bus.client import Bus
from signalbox.bus.transport.connection import Connection
from signalbox.program.errors import Misconfigured, Unavailable
from signalbox.program.settings import Wire
from tests.rigs.natsserver import NatsServer

WAIT_S = 1.0
ARRIVAL_S = 60.0
SCRIPT = Path(__file__).resolve().parents[3] / "deploy" / "make_secrets.py"
PIECE = bytes(1_000_000)


class Listener:
    """Greets as it is told to, and keeps what it receives. received: of each connection, once it ended."""

    def __init__(self, **info: Any) -> None:
        self.received: asyncio.Queue[bytes] = asyncio.Queue()
        self.address = ""
        known = {"server_id": "x", "version": "2.12.0", "max_payload": 1_048_576, "headers": True}
        self._info = f"INFO {json.dumps(known | info)}\r\n".encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._info)
        said = await reader.read(1024)
        self.received.put_nowait(said)
        writer.close()


class Silent(Listener):
    """Asks for TLS and says nothing more. received: what came before it is left or leaves."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._info)
        self.received.put_nowait(await reader.read(1024))
        await reader.read()
        writer.close()


@asynccontextmanager
async def listening(kind: type[Listener] = Listener, **info: Any) -> AsyncIterator[Listener]:
    listener = kind(**info)
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    listener.address = f"{host}:{port}"
    async with server:
        yield listener


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What make_secrets.py makes."""
    folder = tmp_path_factory.mktemp("made") / "secrets"
    subprocess.run([sys.executable, SCRIPT, "--folder", folder], check=True, timeout=60)
    return folder


def sealed(folder: Path, certified: Path) -> NatsServer:
    """A server that asks for TLS, under the names of ``nats-1`` and of this machine."""
    file = certified / "tls" / "nats-1" / "node.pem"
    return NatsServer(folder, tls=f'cert_file: "{file}", key_file: "{file}"')


def wire(url: str, **fields: object) -> Wire:
    known = {"connect_timeout_s": WAIT_S, "nats_user": "gateway", "nats_password": "hunter22"}
    return Wire(nats_url=url, **{**known, **fields})  # type: ignore[arg-type]


async def refusal(asked: Wire) -> str:
    """What a program is told that cannot connect. A busy machine's server may not have answered in the first wait."""
    reported = "no answer"
    for patience_s in (WAIT_S, 10 * WAIT_S, ARRIVAL_S):
        if "no answer" in reported:
            with pytest.raises(Unavailable) as error:
                await Bus.connect(msgspec.structs.replace(asked, connect_timeout_s=patience_s), role="admin")
            reported = str(error.value)
    return reported


async def test_a_server_without_tls_is_told_no_password_and_the_error_says_why() -> None:
    async with listening() as listener:
        assert "the server offers no TLS" in await refusal(wire(f"tls://{listener.address}"))
        assert await asyncio.wait_for(listener.received.get(), 60) == b""


@pytest.mark.parametrize("url", ["{}", "nats://{}", "nats://{},tls://127.0.0.1:1"])
async def test_an_authority_or_one_tls_address_of_several_asks_for_it_too(url: str) -> None:
    async with listening() as listener:
        ca_file = "" if "tls" in url else certifi.where()
        asked = wire(url.format(listener.address), nats_ca_file=ca_file)
        with pytest.raises(Unavailable):
            await Bus.connect(asked, role="gateway")
        assert await asyncio.wait_for(listener.received.get(), 60) == b""


async def test_without_either_the_password_is_sent() -> None:
    async with listening(auth_required=True) as listener:
        with pytest.raises(Unavailable):
            await Bus.connect(wire(f"nats://{listener.address}"), role="gateway")
        assert b"hunter22" in await asyncio.wait_for(listener.received.get(), 60)


async def test_without_either_a_server_that_asks_for_tls_is_told_nothing_and_the_error_says_why() -> None:
    async with listening(auth_required=True, tls_required=True) as listener:
        reported = await refusal(wire(f"nats://{listener.address}"))
        assert "Write tls:// in SIGNALBOX_NATS_URL" in reported
        assert await asyncio.wait_for(listener.received.get(), 60) == b""


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_an_address_that_a_server_tells_of_is_not_connected_to(scheme: str) -> None:
    other_way = scheme == "nats"  # so that both are refused, and tried again
    async with (
        listening(tls_required=other_way) as other,
        listening(tls_required=other_way, connect_urls=[other.address]) as listener,
    ):
        asked = wire(f"{scheme}://{listener.address}", connect_timeout_s=ARRIVAL_S, reconnect_wait_s=0.01)
        connecting = asyncio.create_task(Bus.connect(asked, role="gateway"))
        for _ in range(4):
            await asyncio.wait_for(listener.received.get(), ARRIVAL_S)
        connecting.cancel()
        await asyncio.wait([connecting])
        assert other.received.empty()


async def test_a_real_server_without_tls_is_refused(nats: NatsServer) -> None:
    url = nats.url.replace("nats://", "tls://")
    assert "the server offers no TLS" in await refusal(Wire(nats_url=url))


@pytest.mark.parametrize("text", [None, "no certificate"])
async def test_an_authority_s_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "ca.pem"
    if text:
        path.write_text(text)
    with pytest.raises(Misconfigured, match=r"SIGNALBOX_NATS_CA_FILE: .*ca\.pem cannot be read"):
        await Bus.connect(wire("tls://127.0.0.1:1", nats_ca_file=str(path)), role="gateway")


async def test_a_server_is_believed_for_its_authority_and_its_name_alone(
    tmp_path: Path, certified: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr("signalbox.program.log.error", lambda event, **_: logged.append(event))
    ours = str(certified / "tls_ca")
    async with sealed(tmp_path / "nats", certified) as server:
        bus = await Bus.connect(Wire(nats_url=server.url, nats_ca_file=ours), role="admin")
        await bus.flush()
        await bus.close()
        for url, ca_file, why in (
            (server.url, certifi.where(), "local issuer"),
            (server.url, "", "local issuer"),
            (f"tls://127.1:{server.port}", ours, "Hostname mismatch"),
        ):
            reported = await refusal(Wire(nats_url=url, nats_ca_file=ca_file))
            assert re.search(f"certificate is refused: .*{why}.* names", reported)
            assert set(logged) == {"bus.certificate_refused"}
        plain = server.url.replace("tls://", "nats://")
        assert "the server asks for TLS" in await refusal(Wire(nats_url=plain))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_end_of_a_server_is_nothing_to_warn_of_but_once(
    tmp_path: Path, certified: Path, caplog: pytest.LogCaptureFixture, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Also that TLS works on the loop of the programs."""

    async def see_it_end() -> None:
        async with sealed(tmp_path / "nats", certified) as server, asyncio.timeout(ARRIVAL_S):
            trusted = str(certified / "tls_ca")
            bus = await Bus.connect(Wire(nats_url=server.url, nats_ca_file=trusted), role="admin")
            lost, back = asyncio.Event(), asyncio.Event()
            bus.on_disconnect(lost.set)
            bus.on_reconnect(back.set)
            await server.stop()
            await lost.wait()
            await server.start()
            await back.wait()
            await bus.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(see_it_end())
    assert [one.message for one in caplog.records if one.name == "asyncio"] == []


@contextmanager
def frozen(server: NatsServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, server.pid, os.WSTOPPED | os.WNOWAIT)  # until then its other threads go on
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.fixture
def endless_goodbyes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python waits for the other end's goodbye for 30 s; for hours here, so that one who waits is found out."""
    monkeypatch.setattr("asyncio.constants.SSL_SHUTDOWN_TIMEOUT", 36_000.0)


@pytest.mark.usefixtures("endless_goodbyes")
@pytest.mark.parametrize("is_sealed", [True, False])
async def test_a_server_that_stands_still_holds_nobody_back(
    tmp_path: Path, certified: Path, *, is_sealed: bool
) -> None:
    folders = (tmp_path / "a", tmp_path / "b")
    async with asyncio.timeout(ARRIVAL_S):
        servers = [sealed(one, certified) if is_sealed else NatsServer(one) for one in folders]
        first, second = servers
        async with first, second:
            bus = await Bus.connect(
                Wire(
                    nats_url=f"{first.url},{second.url}",
                    ping_interval_s=0.2,
                    nats_ca_file=str(certified / "tls_ca") if is_sealed else "",
                ),
                role="admin",
            )
            back = asyncio.Event()
            bus.on_reconnect(back.set)
            while (at := connected_to(bus, servers)) is None:  # noqa: ASYNC110  no event tells
                await asyncio.sleep(0.01)
            with frozen(at):
                for _ in range(16):  # more than the two sockets hold
                    bus.send("nobody.receives", b"", b"", PIECE)
                await back.wait()
                assert connected_to(bus, servers) not in {None, at}
            after = cast("NatsServer", connected_to(bus, servers))
            with frozen(after):
                for _ in range(16):
                    bus.send("nobody.receives", b"", b"", PIECE)
                await bus.close()


async def test_a_handshake_that_is_not_answered_is_left_and_tried_again() -> None:
    async with listening(Silent, tls_required=True) as silent, asyncio.timeout(ARRIVAL_S):
        asked = wire(
            f"tls://{silent.address}", request_timeout_s=0.1, reconnect_wait_s=0.01, connect_timeout_s=ARRIVAL_S
        )
        connecting = asyncio.create_task(Bus.connect(asked, role="gateway"))
        for _ in range(3):
            assert b"hunter22" not in await silent.received.get()
        connecting.cancel()
        await asyncio.wait([connecting])


@pytest.mark.parametrize("patience_s", [0.1, ARRIVAL_S])
async def test_a_program_that_gives_up_in_a_handshake_ends(patience_s: float) -> None:
    async with listening(Silent, tls_required=True) as silent, asyncio.timeout(ARRIVAL_S):
        with pytest.raises(Unavailable, match="no answer"):
            await Bus.connect(wire(f"tls://{silent.address}", request_timeout_s=patience_s), role="gateway")


async def test_a_connection_that_is_closed_in_a_handshake_ends(tmp_path: Path, certified: Path) -> None:
    async with listening(Silent, tls_required=True) as silent, asyncio.timeout(ARRIVAL_S):
        async with sealed(tmp_path / "nats", certified) as server:
            asked = Wire(
                nats_url=f"{server.url},tls://{silent.address}",
                nats_ca_file=str(certified / "tls_ca"),
                request_timeout_s=0.5,
                connect_timeout_s=ARRIVAL_S,
                reconnect_wait_s=0.01,
            )
            bus = await Bus.connect(asked, role="admin")
            while not silent.received.empty():  # it was tried first
                silent.received.get_nowait()
        await silent.received.get()
        await bus.close()


def connected_to(bus: Bus, servers: list[NatsServer]) -> NatsServer | None:
    url = cast("Connection", bus.connection).connected_url
    return next((one for one in servers if url and one.port == url.port), None)


@pytest.mark.parametrize(
    ("url", "ca_file", "reported"),
    [
        ("nats://10.255.255.1:4222,nats://127.0.0.1:1", "", ["10.255.255.1"]),
        ("tls://10.255.255.1:4222", "", None),
        ("10.255.255.1:4222", certifi.where(), None),
        ("nats://127.0.0.1:1,nats://localhost:1", "", None),
    ],
)
async def test_a_way_others_can_read_is_warned_of_at_the_start(
    url: str, ca_file: str, reported: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, object]] = []
    monkeypatch.setattr(
        "signalbox.program.log.warning", lambda event, **fields: said.append((event, fields.get("servers")))
    )
    asked = wire(url, nats_ca_file=ca_file, connect_timeout_s=0.05)
    with pytest.raises(Unavailable):
        await Bus.connect(asked, role="gateway")
    assert said == ([("bus.unencrypted", reported)] if reported else [])
