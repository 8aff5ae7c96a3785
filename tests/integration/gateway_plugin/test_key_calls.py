"""Calls and refusals are counted by key, once each, whichever way they came, and told once a minute."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import msgspec
import pytest

from gateway_plugin.admission.usage import KeyCounts, KeyUse
from signalbox.bus.client import Bus, Message
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.messages import decode
from signalbox.wire.names import Header
from signalbox.wire.used import KeyCalls
from tests.rigs.edge import edge
from tests.rigs.gateway import Rig, key, model, rig
from tests.rigs.natsserver import NatsServer
from verification.chaos.environment.proxy import CALM, Proxy, Weather

BODY = {"model": "half", "input": {"x": [1.0]}}


class Reports:
    """What gateways have told."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.calls: Counter[str] = Counter()
        self.refused: dict[str, dict[str, int]] = {}
        self.heard = asyncio.Event()

    def receive(self, message: Message) -> None:
        self.ids += msgspec.json.decode(message.data, type=list[str])
        counted = decode(KeyCalls, message.headers[Header.CALLS])
        self.calls.update(counted.calls)
        self.refused |= counted.refused
        self.heard.set()


async def told(front: Rig) -> Reports:
    """What the plugin of a rig tells now."""
    reports = Reports()
    heard = await front.bus.subscribe(names.KEY_USE, reports.receive)
    await front.gateway._use.tell()
    async with asyncio.timeout(60):
        await reports.heard.wait()
    await heard.close()
    return reports


async def test_calls_through_the_hooks_of_a_gateway_are_counted_once(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front:
        mine, narrow = key(), key(scopes=("jobs:read",))
        await front.publish(model(), mine, narrow)
        assert [(await front.call("POST", "/v1/jobs", BODY, key=mine)).status for _ in range(3)] == [202] * 3
        assert (await front.call("POST", "/v1/jobs", BODY, key=narrow)).status == 403
        assert (await front.call("GET", "/v1/jobs/none", key=mine)).status == 404
        reports = await told(front)
    assert sorted(reports.ids) == sorted([mine.stored.id, narrow.stored.id])
    assert reports.calls == {mine.stored.id: 4, narrow.stored.id: 1}
    assert reports.refused == {mine.stored.id: {"not_found": 1}, narrow.stored.id: {"forbidden": 1}}


async def test_calls_at_the_edge_are_counted_with_what_their_limits_refuse(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front, edge(front) as client:
        mine = key(rate=2, per_s=3600)
        await front.publish(model(), mine)
        sent = {"Authorization": f"Bearer {mine.text}"}
        answers = [await client.post("/v1/jobs", json=BODY, headers=sent) for _ in range(2)]
        answers.append(await client.get("/v1/models", headers=sent))
        wrong = await client.get("/v1/models", headers={"Authorization": "Bearer sbx_wrong"})
        reports = await told(front)
    assert [answer.status_code for answer in (*answers, wrong)] == [202, 202, 429, 401]
    assert reports.calls == {mine.stored.id: 3}
    assert reports.refused == {mine.stored.id: {"limit_exceeded:rate": 1}}


async def test_calls_over_grpc_are_counted(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front:
        mine = key()
        await front.publish(model(), mine)
        upstream = front.gateway.grpc_upstream(is_front=True)
        port = await upstream.bind("127.0.0.1:0")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await _refused_over_grpc(channel, mine.text)
        await upstream.stop(1)
        reports = await told(front)
    assert reports.calls == {mine.stored.id: 1}
    assert list(reports.refused) == [mine.stored.id]


async def _refused_over_grpc(channel: grpc.aio.Channel, text: str) -> None:
    call: Any = channel.unary_unary(
        "/tensorflow.serving.PredictionService/Predict", request_serializer=bytes, response_deserializer=bytes
    )
    with pytest.raises(grpc.aio.AioRpcError):
        await call(b"", metadata=(("authorization", f"Bearer {text}"),), timeout=60)


async def test_a_key_of_a_disabled_account_is_refused_until_it_is_enabled(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front, edge(front) as client:
        mine = key()

        async def status() -> int:
            answer: httpx.Response = await client.get("/v1/models", headers={"Authorization": f"Bearer {mine.text}"})
            return answer.status_code

        found = []
        for is_disabled in (False, True, False):
            stored = msgspec.structs.replace(mine.stored, is_disabled=is_disabled)
            await front.publish(model(), mine._replace(stored=stored))
            found.append(await status())
    assert found == [200, 401, 200]


async def test_calls_are_told_again_once_nats_takes_something_again(nats: NatsServer, bus: Bus) -> None:
    reports, counts = Reports(), KeyCounts()
    await bus.subscribe(names.KEY_USE, reports.receive)
    async with Proxy((nats.host, nats.port)) as proxy:
        wire = Wire(nats_url=proxy.url, request_timeout_s=0.2)
        async with await Bus.connect(wire, role="gateway") as held:
            use = KeyUse(held, counts, every_s=0.05)
            proxy.change(Weather(held=frozenset({"up"})))
            for _ in range(48):  # more than a socket takes
                held.send("evt.nobody", b"", b"", bytes(held.connection.max_body_bytes))
            counts.note("first")
            use.start()
            await asyncio.sleep(0.5)
            proxy.change(CALM)
            async with asyncio.timeout(20):
                await reports.heard.wait()
                while "second" not in reports.ids:
                    reports.heard.clear()
                    counts.note("second")
                    await reports.heard.wait()
            await use.close()


async def test_what_is_refused_while_nats_is_away_is_told_when_it_is_back(nats: NatsServer, bus: Bus) -> None:
    reports, counts = Reports(), KeyCounts()
    await bus.subscribe(names.KEY_USE, reports.receive)
    async with (
        Proxy((nats.host, nats.port)) as proxy,
        await Bus.connect(Wire(nats_url=proxy.url), role="gateway") as cut,
    ):
        gone, back = asyncio.Event(), asyncio.Event()
        cut.on_disconnect(gone.set)
        cut.on_reconnect(back.set)
        use = KeyUse(cut, counts)
        proxy.change(Weather(is_refusing=True))
        proxy.reset()
        async with asyncio.timeout(20):
            await gone.wait()
            counts.note("mine")
            counts.refuse_for("mine", "unavailable")
            await use.tell()
            proxy.change(CALM)
            await back.wait()
            await use.tell()
            await reports.heard.wait()
    assert reports.refused == {"mine": {"unavailable": 1}}
