"""A job's events as a stream: what comes, for whom, and what ends it."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx_sse
import pytest
from msgspec.structs import replace

from gateway_plugin.hooks.dispatcher import UPSTREAM_AUTH
from gateway_plugin.jsonresponses import StreamResponse
from gateway_plugin.request import Request
from gateway_plugin.service import following
from gateway_plugin.upstream.server import HttpServer
from signalbox.bus import table
from signalbox.front import front as front_module
from signalbox.front.gate import Gate
from signalbox.program import metrics
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import ErrorInfo
from signalbox.wire.names import Bucket
from tests.integration.gateway_plugin.test_job_results import Edge, edge
from tests.rigs.edge import Held, app, counted
from tests.rigs.gateway import Key, ScriptedWorker, key, model, reply_of, rig
from tests.rigs.natsserver import NatsServer
from tests.rigs.presence import presence


@pytest.fixture
def mine() -> Key:
    return key()


@pytest.fixture
async def at(nats: NatsServer, tmp_path: Path, mine: Key) -> AsyncIterator[Edge]:
    async with edge(nats, tmp_path, mine) as made:
        yield made


class Stream:
    """The events of a stream, one after another."""

    def __init__(self, source: httpx_sse.EventSource) -> None:
        self.response = source.response
        self._events = source.aiter_sse()

    async def next(self) -> tuple[str, Any]:
        """The next one: its name and document."""
        async with asyncio.timeout(60):
            found = await anext(self._events)
        self.last_id = found.id
        return found.event, json.loads(found.data)

    async def state(self) -> Any:
        name, doc = await self.next()
        assert name == "state"
        return doc

    async def rest(self) -> list[httpx_sse.ServerSentEvent]:
        """All that comes until the stream ends."""
        async with asyncio.timeout(60):
            return [one async for one in self._events]


@asynccontextmanager
async def following_of(at: Edge, url: str, **headers: str) -> AsyncIterator[Stream]:
    async with httpx_sse.aconnect_sse(at.client, "GET", url, headers=headers) as source:
        assert source.response.status_code == 200, await source.response.aread()
        yield Stream(source)


def open_streams() -> float:
    return metrics.REGISTRY.get_sample_value("signalbox_event_streams") or 0


async def test_the_present_state_comes_at_once_then_each_change_and_the_end(at: Edge) -> None:
    job = await at.submit()
    async with following_of(at, f"{job}/events") as stream:
        assert stream.response.headers["Content-Type"] == "text/event-stream"
        first, first_id = await stream.state(), stream.last_id
        asked = (await at.client.get(job)).json()
        for doc in (first, asked):
            del doc["attempts"], doc["urls"]["events"]  # of which the time and the token change
        assert first == asked
        assert (first["state"], first["phase"]) == ("queued", "waiting: no worker serves half")
        worker = ScriptedWorker(at.made.bus, "half")
        worker.go.clear()
        async with worker:
            while (doc := await stream.state())["state"] == "queued":
                assert doc["phase"] != first["phase"]
            assert (doc["state"], doc["phase"]) == ("running", "running, attempt 1")
            worker.go.set()
            rest = await stream.rest()
    assert [one.event for one in rest] == ["state", "end"]
    ended, end = (json.loads(one.data) for one in rest)
    assert (ended["state"], "result" in ended) == ("succeeded", False)
    assert end["state"] == "succeeded"
    assert (await at.client.get(end["urls"]["result"])).json() == {"outputs": [2.5, 3.0, 4.5]}
    assert int(first_id) == 0 < int(rest[0].id) == int(rest[1].id)
    assert open_streams() == 0


async def test_a_job_that_has_ended_is_one_event_and_its_end_and_a_browser_does_not_come_back(at: Edge) -> None:
    async with ScriptedWorker(at.made.bus, "half", lambda _: ErrorInfo(code="model_error", message="no")):
        job = await at.submit()
        assert (await at.client.get(job, headers={"Prefer": "wait=60"})).json()["state"] == "failed"
    async with following_of(at, f"{job}/events") as stream:
        rest = await stream.rest()
    assert [one.event for one in rest] == ["state", "end"]
    assert json.loads(rest[0].data)["error"]["code"] == "model_error"
    again = await at.client.get(f"{job}/events", headers={"Last-Event-ID": rest[1].id})
    assert (again.status_code, again.content) == (204, b"")


async def test_phase_and_estimate_change_with_what_workers_report(at: Edge) -> None:
    job = await at.submit()
    async with following_of(at, f"{job}/events") as stream:
        assert (await stream.state())["phase"] == "waiting: no worker serves half"
        busy = presence("w1", rates={"half": 0.5}, token=1)
        await table.put(at.made.bus, Bucket.WORKERS, "w1", busy, ttl_s=60)
        assert (await stream.state())["phase"] == "waiting: next in line"
        await at.made.publish(model(is_enabled=False))
        assert (await stream.state())["phase"] == "waiting: the model half is disabled"


async def test_a_job_whose_deadline_passes_in_the_queue_ends_its_stream(at: Edge) -> None:
    job = await at.submit(deadline_s=1)
    async with following_of(at, f"{job}/events") as stream:
        rest = await stream.rest()
    assert [one.event for one in rest] == ["state", "state", "end"]
    assert json.loads(rest[2].data)["state"] == "expired"


async def test_what_was_missed_is_shown_after_a_reconnect(
    own_nats: NatsServer, tmp_path: Path, mine: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with edge(own_nats, tmp_path, mine) as at:
        job = await at.submit()
        monkeypatch.setattr(following.Follower, "hear", lambda *_: None)  # every event is lost
        async with following_of(at, f"{job}/events") as stream:
            await stream.state()
            await at.client.post(f"{job}/cancel")
            await own_nats.restart()
            rest = await stream.rest()
    assert json.loads(rest[-1].data)["state"] == "cancelled"


async def test_what_was_missed_without_a_word_from_the_connection_is_shown_with_a_heartbeat(
    at: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_S", 0.2)
    job = await at.submit()
    monkeypatch.setattr(following.Follower, "hear", lambda *_: None)  # every event is lost
    async with following_of(at, f"{job}/events") as stream:
        await stream.state()
        await at.client.post(f"{job}/cancel")
        async with asyncio.timeout(20):
            rest = await stream.rest()
    assert json.loads(rest[-1].data)["state"] == "cancelled"


async def test_a_reader_that_leaves_frees_its_place(at: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_S", 3600.0)  # which would find it out too
    job = await at.submit()
    before = at.made.gateway._following._followers
    async with following_of(at, f"{job}/events") as stream:
        await stream.state()
        assert (open_streams(), len(before)) == (1, 1)
    async with asyncio.timeout(60):
        while open_streams():
            await at.client.get("/hello")


async def test_a_reader_that_only_sends_no_more_reads_on_to_the_end(at: Edge) -> None:
    job = await at.submit()
    reader, writer = await asyncio.open_connection(at.client.base_url.host, at.client.base_url.port)
    writer.write(f"GET {job}/events HTTP/1.1\r\nHost: h\r\n".encode())
    writer.write(f"Authorization: {at.client.headers['Authorization']}\r\n\r\n".encode())
    async with asyncio.timeout(60):
        await reader.readuntil(b"event: state")
        writer.write_eof()
        await reader.readuntil(b": nothing new")
        await at.client.post(f"{job}/cancel")
        assert b"event: end" in await reader.read()
    writer.close()


async def test_streams_of_an_account_are_bounded(nats: NatsServer, tmp_path: Path, mine: Key) -> None:
    async with edge(nats, tmp_path, mine, max_streams=2) as at:
        job = await at.submit()
        async with following_of(at, f"{job}/events") as stream:
            await stream.state()
            refused = await at.client.get(f"{job}/events")
    assert (refused.status_code, refused.json()["bound"]) == (429, "streams")
    assert "Prefer: wait" in refused.json()["detail"]
    assert refused.headers["Access-Control-Allow-Origin"] == "*"


async def test_the_token_of_the_address_is_enough(at: Edge) -> None:
    job = await at.submit()
    url = (await at.client.get(job)).json()["urls"]["events"]
    async with httpx.AsyncClient(base_url=at.client.base_url) as page:
        async with httpx_sse.aconnect_sse(page, "GET", url, headers={"Origin": "https://example.org"}) as source:
            assert source.response.headers["Access-Control-Allow-Origin"] == "*"
            name, doc = await Stream(source).next()
        assert (name, doc["urls"]["events"].partition("=")[0]) == ("state", f"{job}/events?token")
        other = await at.submit()
        foreign = await page.get(url.replace(job, other))
        bare = await page.get(f"{job}/events")
        asked = await page.get(url.replace("/events", ""))
    assert (foreign.status_code, foreign.json()["code"]) == (401, "unauthorized")
    assert "urls.events" in foreign.json()["detail"]
    assert foreign.headers["Access-Control-Allow-Origin"] == "*"
    assert (bare.status_code, asked.status_code) == (401, 401)


async def test_a_page_may_send_its_key_here_and_nowhere_else(at: Edge) -> None:
    job = await at.submit()
    async with httpx.AsyncClient(base_url=at.client.base_url) as page:
        asked = await page.options(f"{job}/events", headers={"Origin": "https://example.org"})
        elsewhere = await page.options(job, headers={"Origin": "https://example.org"})
    assert (asked.status_code, asked.headers["Access-Control-Allow-Origin"]) == (204, "*")
    assert "Authorization" in asked.headers["Access-Control-Allow-Headers"]
    assert elsewhere.status_code == 401
    assert "Access-Control-Allow-Origin" not in elsewhere.headers


async def test_a_foreign_job_has_no_events_and_a_key_that_may_not_read_none(at: Edge) -> None:
    other, writer = key(), key(scopes=("jobs:submit",))
    await at.made.publish(other, writer)
    job = await at.submit()
    foreign = await at.client.get(f"{job}/events", headers={"Authorization": f"Bearer {other.text}"})
    unread = await at.client.get(f"{job}/events", headers={"Authorization": f"Bearer {writer.text}"})
    wrong = await at.client.post(f"{job}/events")
    assert (foreign.status_code, unread.status_code, wrong.status_code) == (404, 403, 405)
    assert wrong.headers["Allow"] == "GET"
    assert open_streams() == 0


async def test_a_revoked_key_ends_its_streams(at: Edge, mine: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_S", 0.05)
    job = await at.submit()
    async with following_of(at, f"{job}/events") as stream:
        await stream.state()
        await at.made.publish(mine._replace(stored=replace(mine.stored, revoked_at=1.0)))
        name, doc = await stream.next()
        assert (name, doc["code"]) == ("error", "unauthorized")
        assert await stream.rest() == []


async def test_a_plugin_that_is_replaced_ends_its_streams_and_says_when_to_connect_again(at: Edge) -> None:
    job = await at.submit()
    async with at.client.stream("GET", f"{job}/events") as got:
        lines = got.aiter_lines()
        async with asyncio.timeout(60):
            seen = [await anext(lines) for _ in range(4)]
            at.made.gateway.end_streams()
            rest = [line async for line in lines]
    assert seen[0] == "retry: 2000"
    assert [line.partition(":")[0] for line in rest if line] == ["", "retry"]
    late = await at.client.get(f"{job}/events")
    assert (late.status_code, "event:" in late.text, "retry: " in late.text) == (200, False, True)


async def test_silence_is_broken_by_heartbeats(at: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_S", 0.05)
    job = await at.submit()
    async with at.client.stream("GET", f"{job}/events") as got, asyncio.timeout(60):
        async for line in got.aiter_lines():
            if line == ": nothing new":
                break


class Flood(Held):
    """A dialect whose answer is a stream without an end. is_over: it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = asyncio.Event()

    async def answer(self, request: Request, key: ApiKey) -> StreamResponse:
        parts = self._parts()
        await anext(parts)
        return StreamResponse(200, {}, parts)

    async def _parts(self) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield bytes(262_144)
                await asyncio.sleep(0)
        finally:
            self.is_over.set()


async def test_a_reader_that_takes_nothing_is_cut_off_when_64_parts_wait() -> None:
    flood, before = Flood(), counted("limit_exceeded:stream_reader")
    server = await HttpServer.start(app(flood), listen="127.0.0.1:0")
    host, _, port = server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(b"GET /v1/x HTTP/1.1\r\nHost: h\r\n\r\n")
    async with asyncio.timeout(60):
        await flood.is_over.wait()
        got = await reader.read()
    assert not got.endswith(b"0\r\n\r\n"), "an answer that is cut does not look whole"
    writer.close()
    await server.close(1)
    assert counted("limit_exceeded:stream_reader") == before + 1


class Paced(Held):
    """A dialect whose answer is a stream that ends when ``go`` is set."""

    async def answer(self, request: Request, key: ApiKey) -> StreamResponse:
        parts = self._parts()
        await anext(parts)
        return StreamResponse(200, {}, parts)

    async def _parts(self) -> AsyncGenerator[bytes, None]:
        yield b""
        yield b"begun"
        await self.go.wait()
        yield b", ended"


async def test_a_stream_does_not_count_against_the_time_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    paced, checked, check = Paced(), asyncio.Semaphore(0), front_module._check

    def note(gate: Gate, now: float) -> None:
        check(gate, now)
        checked.release()

    monkeypatch.setattr(front_module, "_check", note)
    server = await HttpServer.start(app(paced, answer_s=0.5), listen="127.0.0.1:0")
    async with (
        asyncio.timeout(60),
        httpx.AsyncClient() as client,
        client.stream("GET", f"http://{server.address}/v1/x") as got,
    ):
        parts = got.aiter_bytes()
        assert await anext(parts) == b"begun"
        for _ in range(3):
            await checked.acquire()
        paced.go.set()
        assert [part async for part in parts] == [b", ended"]
    await server.close(1)


async def test_the_auth_hook_finds_the_key_behind_a_token_and_lets_a_page_ask(
    nats: NatsServer, tmp_path: Path, mine: Key
) -> None:
    async with rig(nats.url, tmp_path) as made:
        await made.publish(mine, model())
        submitted = await made.call("POST", "/v1/jobs", {"model": "half", "input": {"x": [1.0]}}, key=mine)
        url = submitted.doc["urls"]["events"]
        passed = await made.dispatch(made.object(UPSTREAM_AUTH, "GET", url, b"", {}))
        refused = reply_of(await made.dispatch(made.object(UPSTREAM_AUTH, "GET", url[:-1], b"", {})))
        asked = reply_of(await made.dispatch(made.object(UPSTREAM_AUTH, "OPTIONS", url.partition("?")[0], b"", {})))
    assert (reply_of(passed), passed.session.alias) == (None, mine.stored.id)
    assert refused is not None
    assert (refused.status, refused.headers["Access-Control-Allow-Origin"]) == (401, "*")
    assert asked is not None
    assert (asked.status, asked.headers["Access-Control-Allow-Origin"]) == (204, "*")


async def test_the_post_hook_says_where_a_stream_is_to_be_sent(nats: NatsServer, tmp_path: Path, mine: Key) -> None:
    async with rig(nats.url, tmp_path) as made:
        await made.publish(mine, model())
        job = (await made.call("POST", "/v1/jobs", {"model": "half", "input": {"x": [1.0]}}, key=mine)).doc["id"]
        got = await made.call("GET", f"/v1/jobs/{job}/events", key=mine)
    assert (got.status, got.doc["code"]) == (501, "unimplemented")
    assert "to the upstream" in got.doc["detail"]
    assert open_streams() == 0
