"""``python -m gateway_plugin`` as a process: its settings, its end, its replacement, and NATS going away."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import grpc.aio
import httpx
import pytest

from gateway_plugin.hooks.calls import SERVICE
from gateway_plugin.hooks.health import check_health, end_stuck
from gateway_plugin.proto.coprocess_pb2 import Object
from gateway_plugin.request import Request
from signalbox.bus import table
from signalbox.bus.client import Bus, Message
from signalbox.jobs.records import Records
from signalbox.ops.ports import free_port
from signalbox.program import health
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.messages import decode
from signalbox.wire.names import Bucket, Header
from signalbox.wire.refused import RefusedConnections
from tests.rigs.gateway import PEPPER, Key, Rig, ScriptedWorker, key, model, reply_of, rig
from tests.rigs.hostileclients import LIMIT_S, dial
from tests.rigs.natsserver import NatsServer
from tests.rigs.processes import stop

ROOT = Path(__file__).parents[3]


def environment(url: str, listen: str, *, metrics_port: int = 0, **settings: object) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SIGNALBOX_")}
    return {
        **clean,
        "PYTHONPATH": str(ROOT),
        "SIGNALBOX_NATS_URL": url,
        "SIGNALBOX_KEY_PEPPER": PEPPER,
        "SIGNALBOX_GATEWAY_LISTEN": listen,
        "SIGNALBOX_METRICS_PORT": str(metrics_port),
        **{f"SIGNALBOX_GATEWAY_{name.upper()}": str(value) for name, value in settings.items()},
    }


class Process:
    """One plugin process and what it has logged."""

    def __init__(self, process: asyncio.subprocess.Process, listen: str) -> None:
        self.process = process
        self.listen = listen

    async def said(self, event: str) -> dict[str, Any]:
        """The next log line of an event."""
        assert self.process.stderr is not None
        seen = []
        async with asyncio.timeout(60):
            while line := await self.process.stderr.readline():
                seen.append(line)
                try:
                    doc: dict[str, Any] = json.loads(line)
                except ValueError:
                    continue
                if doc["event"] == event:
                    return doc
        raise AssertionError(f"never said {event}: {seen}")

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        line = next(row for row in status.splitlines() if row.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


@asynccontextmanager
async def plugin(url: str, listen: str, **settings: Any) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway_plugin",
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
        env=environment(url, listen, **settings),
    )
    made = Process(process, listen)
    try:
        await made.said("gateway.ready")
        yield made
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Front:
    """A gateway that dials one plugin address and keeps its connection."""

    def __init__(self, listen: str, text: str) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{listen.removeprefix('unix://')}")
        self._call = self._channel.unary_unary(
            f"/{SERVICE}/Dispatch", request_serializer=Object.SerializeToString, response_deserializer=Object.FromString
        )
        self._text = text

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    async def hook(self, name: str, method: str, path: str, body: bytes, kid: str) -> Object:
        spec = {"APIID": "signalbox", "OrgID": "signalbox"}
        obj = Object(hook_name=name, metadata={"key_id": kid}, spec=spec)
        obj.request.method, obj.request.url, obj.request.raw_body = method, path, body
        obj.request.headers["Authorization"] = self._text
        obj.request.return_overrides.response_code = -1
        answered: Object = await self._call(obj, timeout=30)
        return answered


async def published(url: str) -> tuple[Bus, Key]:
    bus = await Bus.connect(Wire(nats_url=url), role="admin")
    mine = key()
    await table.put(bus, Bucket.MODELS, names.token("half"), model())
    await table.put(bus, Bucket.KEYS, mine.stored.id, mine.stored)
    return bus, mine


def run(url: str, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    listen = str(settings.pop("listen", "127.0.0.1:0"))
    return subprocess.run(
        [sys.executable, "-m", "gateway_plugin", *arguments],
        cwd=ROOT,
        text=True,
        timeout=60,
        capture_output=True,
        check=False,
        env=environment(url, listen, **settings),
    )


async def test_a_full_edge_says_so_once_in_its_log_and_to_the_board(own_nats: NatsServer) -> None:
    port = free_port()
    bus, _ = await published(own_nats.url)
    reported: asyncio.Queue[RefusedConnections] = asyncio.Queue()

    def receive(message: Message) -> None:
        if Header.FRONT in message.headers:
            reported.put_nowait(decode(RefusedConnections, message.headers[Header.FRONT]))

    await bus.subscribe(names.KEY_USE, receive)
    async with plugin(own_nats.url, "", edge_listen=f"127.0.0.1:{port}", http_connections=16) as process:
        held = [await dial(("127.0.0.1", port)) for _ in range(18)]
        for reader, _ in held[16:]:
            async with asyncio.timeout(LIMIT_S):
                assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        said = await process.said("front.connections_refused")
        assert (said["open"], said["bound"]) == (16, 16)
        async with asyncio.timeout(LIMIT_S):
            report = await reported.get()
        assert (report.open <= report.bound, report.bound) == (True, 16)
        assert report.refused == {"unavailable:connections": 2}
        for _, writer in held:
            writer.close()
    await bus.close()


async def test_a_new_plugin_has_the_upstreams_ports_before_the_old_one_ends(nats: NatsServer, tmp_path: Path) -> None:
    bus, _ = await published(nats.url)
    await bus.close()
    listen, http = f"unix://{tmp_path}/p.sock", f"127.0.0.1:{free_port()}"
    settings = {"grpc_listen": f"127.0.0.1:{free_port()}", "upstream_listen": http, "max_connection_age_s": 0.1}
    async with plugin(nats.url, listen, **settings) as old, plugin(nats.url, listen, **settings):
        old.process.terminate()
        async with asyncio.timeout(60):
            await old.process.wait()
        assert await check_health(str(settings["grpc_listen"]), 5)
        async with httpx.AsyncClient(timeout=60) as client:
            assert (await client.get(f"http://{http}/v2/health/live")).json() == {"live": True}


def test_check_config_prints_every_setting_and_no_secret() -> None:
    done = run("nats://127.0.0.1:1", "--check-config", secret="between us")
    assert done.returncode == 0
    assert "SIGNALBOX_GATEWAY_SECRET=(set)" in done.stdout
    assert "SIGNALBOX_KEY_PEPPER=(set)" in done.stdout
    assert PEPPER not in done.stdout


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listen": "0.0.0.0:9111"}, "not a loopback address"),
        ({"listen": ""}, "no caller could reach"),
        ({"listen": "0.0.0.0:9111", "allow_remote": "on"}, "SECRET must be set"),
        ({"listen": "127.0.0.1:9111"}, "set it, or listen on unix://"),
        ({"listen": "localhost:9111"}, "SECRET must be set"),
        ({"grpc_listen": "0.0.0.0:9112"}, "GRPC_LISTEN=0.0.0.0:9112 is not a loopback address; set"),
        (
            {"edge_listen": "0.0.0.0:8080"},
            "EDGE_LISTEN=0.0.0.0:8080 is not a loopback address; set SIGNALBOX_GATEWAY_ALLOW",
        ),
        ({"edge_listen": "8080"}, "write host:port"),
        ({"upstream_listen": "10.0.0.1:9113"}, "UPSTREAM_LISTEN=10.0.0.1:9113 is not a loopback address; set"),
        ({"grpc_listen": "unix:///g.sock"}, "write host:port"),
        ({"upstream_listen": "9113"}, "write host:port"),
        ({"max_upstream_bytes": 128 << 20}, "MAX_MESSAGE_BYTES must exceed SIGNALBOX_GATEWAY_MAX_UPSTREAM_BYTES"),
        ({"max_bodies_bytes": 63 << 20}, "MAX_BODIES_BYTES must be at least SIGNALBOX_GATEWAY_MAX_UPSTREAM_BYTES"),
        ({"max_waiting": 5000}, "MAX_WAITING"),
        ({"listn": "x"}, "did you mean SIGNALBOX_GATEWAY_LISTEN"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(settings: dict[str, object], words: str) -> None:
    done = run("nats://127.0.0.1:1", "--check-config", **settings)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_unix_socket_needs_no_secret() -> None:
    assert run("nats://127.0.0.1:1", "--check-config", listen="unix:///p.sock").returncode == 0


def test_without_nats_it_says_so_and_ends() -> None:
    done = run("nats://127.0.0.1:1", secret="between us")
    assert done.returncode == 2
    assert "NATS cannot be reached" in done.stderr


def test_a_socket_that_anybody_could_replace_is_not_listened_on(nats: NatsServer, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    asyncio.run(_topology(nats.url))
    done = run(nats.url, listen=f"unix://{folder}/p.sock")
    assert done.returncode == 2
    assert "chmod o-w" in done.stderr
    assert list(folder.iterdir()) == []


async def _topology(url: str) -> None:
    bus, _ = await published(url)
    await bus.close()


async def test_a_process_serves_is_small_and_leaves_no_socket_behind(nats: NatsServer, tmp_path: Path) -> None:
    bus, mine = await published(nats.url)
    listen = f"unix://{tmp_path}/p.sock"
    async with plugin(nats.url, listen) as process, Front(listen, mine.text) as front:
        assert (tmp_path / "p.sock").stat().st_mode & 0o777 == 0o660
        assert await check_health(listen, 5)
        async with ScriptedWorker(bus, "half"):
            got = reply_of(
                await front.hook(
                    "SignalboxPost", "POST", "/v1/models/half:predict", b'{"instances": [1.0]}', mine.stored.id
                )
            )
        assert got is not None
        assert got.doc == {"predictions": [2.5]}
        assert process.rss_mib() < 120
        process.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.process.wait(), 60) == 0
        assert os.listdir(tmp_path) == []  # noqa: PTH208  pathlib would be a false alarm of ASYNC240
        assert not await check_health(listen, 1)
    await bus.close()


async def test_a_process_that_takes_connections_and_answers_none_is_killed_by_its_health_check(
    nats: NatsServer, tmp_path: Path
) -> None:
    bus, _ = await published(nats.url)
    listen, pid_file = f"unix://{tmp_path}/p.sock", tmp_path / "pid"
    async with plugin(nats.url, listen, pid_file=pid_file) as process:
        assert await end_stuck(listen, pid_file, 60)
        await stop(process.process.pid)
        assert not await end_stuck(listen, tmp_path / "another", 0.5)
        assert process.process.returncode is None
        assert not await end_stuck(listen, pid_file, 0.5)
        assert await asyncio.wait_for(process.process.wait(), 60) == -signal.SIGKILL
        assert not await end_stuck(listen, pid_file, 60), "nothing listens, and no process is killed"
    await bus.close()


def test_a_health_check_that_may_kill_needs_the_file_that_says_whom(nats: NatsServer) -> None:
    done = run(nats.url, "--health", "--end-stuck", listen="unix:///nowhere/p.sock")
    assert done.returncode == 2
    assert "SIGNALBOX_GATEWAY_PID_FILE" in done.stderr


async def test_a_caller_who_waits_through_a_restart_gets_the_job_s_id(nats: NatsServer, tmp_path: Path) -> None:
    bus, mine = await published(nats.url)
    accepted = asyncio.Event()
    listening = await bus.subscribe("evt.jobs.>", lambda _: accepted.set())
    listen = f"unix://{tmp_path}/p.sock"
    async with plugin(nats.url, listen, drain_s=0.2) as process, Front(listen, mine.text) as front:
        call = asyncio.create_task(
            front.hook("SignalboxPost", "POST", "/v1/models/half:predict", b'{"instances": [1.0]}', mine.stored.id)
        )
        await asyncio.wait_for(accepted.wait(), 60)
        process.process.send_signal(signal.SIGTERM)
        got = reply_of(await call)
        assert await asyncio.wait_for(process.process.wait(), 60) == 0
    assert got is not None
    assert got.status == 503
    job_id = got.headers["X-Signalbox-Job-Id"]
    assert await Records(bus).queued(job_id) is not None
    assert await bus.leader_get("STATE", names.state(job_id)) is None
    await listening.close()
    await bus.close()


async def test_who_follows_a_job_is_sent_to_another_plugin_at_once_when_one_ends(nats: NatsServer) -> None:
    port = free_port()
    bus, mine = await published(nats.url)
    address, headers = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {mine.text}"}
    async with (
        plugin(nats.url, "", edge_listen=f"127.0.0.1:{port}", drain_s=600) as process,
        httpx.AsyncClient(base_url=address, headers=headers, timeout=60) as client,
    ):
        job = (await client.post("/v1/jobs", json={"model": "half", "input": {"x": [1.0]}})).json()
        async with client.stream("GET", job["urls"]["events"]) as got, asyncio.timeout(60):
            lines = got.aiter_lines()
            while not (await anext(lines)).startswith("data: "):
                pass
            process.process.send_signal(signal.SIGTERM)
            rest = [line async for line in lines if line]
            assert await process.process.wait() == 0
    assert [line.partition(":")[0] for line in rest] == ["", "retry"]
    await bus.close()


async def test_a_new_process_takes_the_socket_over_before_the_old_one_leaves(nats: NatsServer, tmp_path: Path) -> None:
    bus, mine = await published(nats.url)
    listen = f"unix://{tmp_path}/p.sock"
    aged = {"max_connection_age_s": 0.5}
    async with plugin(nats.url, listen, **aged) as old, Front(listen, mine.text) as front:
        assert reply_of(await front.hook("SignalboxAuth", "GET", "/v1/models", b"", "")) is None
        async with plugin(nats.url, listen, **aged):
            old.process.send_signal(signal.SIGTERM)
            while old.process.returncode is None:
                got = await front.hook("SignalboxPost", "GET", "/v1/models", b"", mine.stored.id)
                assert status_of(got) == 200
            got = await front.hook("SignalboxPost", "GET", "/v1/models", b"", mine.stored.id)
            assert status_of(got) == 200
            assert await check_health(listen, 5)
    await bus.close()


def status_of(obj: Object) -> int:
    return obj.request.return_overrides.response_code


async def test_nats_away_is_503_and_what_was_accepted_ends(own_nats: NatsServer, tmp_path: Path) -> None:
    async with rig(own_nats.url, tmp_path, stale_keys_s=1.0, request_timeout_s=1.0) as front:
        mine = key()
        await front.publish(model(), mine)
        body = {"model": "half", "instances": [1.0]}
        before = await front.call("POST", "/v1/jobs", body, key=mine)
        assert before.status == 202
        await own_nats.kill()
        statuses = await statuses_until_stale(front, mine, body)
        assert set(statuses) == {503}
        back = asyncio.Event()
        front.bus.on_reconnect(back.set)
        await own_nats.restart()
        await asyncio.wait_for(back.wait(), 60)
        await accepted_again(front, mine, body)
        async with ScriptedWorker(front.bus, "half") as worker:
            await asyncio.wait_for(worker.finished.wait(), 60)
            done = await front.call("GET", before.headers["Location"], key=mine)
    assert done.doc["state"] == "succeeded"


async def test_a_key_table_that_is_not_current_is_told_to_everyone_who_asks(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    health.READY.clear()  # of tests before this one
    async with rig(nats.url, tmp_path) as front:
        listen = f"unix://{tmp_path}/plugin.sock"
        assert (health.READY.faults(), front.gateway.faults()) == ([], [])
        assert await check_health(listen, 5)
        with monkeypatch.context() as patched:
            patched.setattr(table.Table, "synced_age_s", 1e9)
            assert not await check_health(listen, 5)
            (fault,) = health.READY.faults()
            assert "API keys" in fault
            assert front.gateway.faults() == [fault]
            answer = front.gateway.open_inference.rest.keyless(Request("GET", "/v2/health/ready", {}, b""))
            assert answer is not None
            assert answer.status == 503
        gateway = front.gateway
    assert not [source for source in health.READY._sources if source is gateway]


async def test_a_disk_of_nats_without_room_takes_no_front_away_from_who_reads_results(
    nats: NatsServer, tmp_path: Path
) -> None:
    health.READY.clear()  # of tests before this one
    async with rig(nats.url, tmp_path, nats_store=str(tmp_path), nats_reserve_bytes=2**62) as front:
        assert ["disk of NATS" in fault for fault in health.READY.faults()] == [True]
        assert await check_health(f"unix://{tmp_path}/plugin.sock", 5)
        assert front.gateway.is_healthy


async def statuses_until_stale(front: Rig, mine: Key, body: dict[str, Any]) -> list[int]:
    """What submissions get from the moment NATS is away until the key table counts as outdated."""
    statuses = []
    async with asyncio.timeout(60):
        while front.gateway.is_healthy or front.gateway._keys.synced_age_s <= 1.0:
            reply = await front.call("POST", "/v1/jobs", body, key=mine)
            statuses.append(reply.status)
            assert "Retry-After" in reply.headers
    reply = await front.call("POST", "/v1/jobs", body, key=mine)
    return [*statuses, reply.status]


async def accepted_again(front: Rig, mine: Key, body: dict[str, Any]) -> None:
    """Return when a submission is accepted; until then only 503 is right."""
    async with asyncio.timeout(60):
        while True:
            reply = await front.call("POST", "/v1/jobs", body, key=mine)
            if reply.status == 202:
                return
            assert reply.status == 503


async def test_a_frozen_nats_leaves_one_job_under_the_id_that_was_answered(
    own_nats: NatsServer, tmp_path: Path
) -> None:
    async with rig(own_nats.url, tmp_path, request_timeout_s=0.5) as front:
        mine = key()
        await front.publish(model(), mine)
        body = {"model": "half", "instances": [1.0]}
        first = await front.call("POST", "/v1/jobs", body, key=mine)
        assert first.status == 202
        await stop(own_nats.pid)
        try:
            unknown = await front.call("POST", "/v1/jobs", body, key=mine)
        finally:
            os.kill(own_nats.pid, signal.SIGCONT)
        assert (unknown.status, unknown.doc["code"]) == (503, "ambiguous")
        job_id = unknown.headers["X-Signalbox-Job-Id"]
        await front.bus.flush()
        found = await front.call("GET", f"/v1/jobs/{job_id}", key=mine)
        assert (found.status, found.doc["state"]) == (200, "queued")
        info = await front.bus.request_json("$JS.API.STREAM.INFO.JOBS")
        assert info["state"]["messages"] == 2
