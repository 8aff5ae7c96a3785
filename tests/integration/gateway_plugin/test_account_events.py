"""All ends of an account as a stream: what comes, for whom, and where it goes on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import httpx_sse
import pytest
from msgspec.structs import replace

from gateway_plugin.service import following
from signalbox.bus import table
from signalbox.wire import jobids, outboundnames
from signalbox.wire.messages import State, encode
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.outbound import End, Subscription, Webhook
from tests.integration.gateway_plugin.test_job_events import Stream as Events
from tests.integration.gateway_plugin.test_job_events import open_streams
from tests.integration.gateway_plugin.test_job_results import Edge, edge
from tests.rigs.gateway import Key, key, reached
from tests.rigs.natsserver import NatsServer


@pytest.fixture
def mine() -> Key:
    return key()


@pytest.fixture
async def at(nats: NatsServer, tmp_path: Path, mine: Key) -> AsyncIterator[Edge]:
    async with edge(nats, tmp_path, mine) as made:
        yield made


async def subscribe(at: Edge, **fields: object) -> None:
    doc = Subscription(id="s1", **fields)  # type: ignore[arg-type]
    await reached(at.made.gateway._subscriptions, "s1", await table.put(at.made.bus, Bucket.SUBSCRIPTIONS, "s1", doc))


async def end(at: Edge, account: str, number: int, prediction: object = None) -> int:
    """Write an end as the outbound program does."""
    job_id = jobids.new_job_id(1_700_000_000 + number, number)
    doc = End(
        request_id=job_id,
        prediction=prediction,
        state=State.SUCCEEDED,
        account=account,
        model="half",
        version=1,
        created_at=1.0,
        finished_at=2.0,
    )
    return await at.made.bus.write(outboundnames.result(account, "half", job_id), encode(doc), expect=0)


@asynccontextmanager
async def following_of(at: Edge, last: str = "", **headers: str) -> AsyncIterator[Events]:
    sent = {**({"Last-Event-ID": last} if last else {}), **headers}
    async with httpx_sse.aconnect_sse(at.client, "GET", "/v1/events", headers=sent) as source:
        assert source.response.status_code == 200, await source.response.aread()
        yield Events(source)


async def test_ends_come_in_order_once_each_and_go_on_after_the_last_one_that_was_read(at: Edge, mine: Key) -> None:
    account = mine.stored.account_id
    await subscribe(at, account_id=account)
    seqs = [await end(at, account, number, {"y": [number]}) for number in range(200)]
    await end(at, "another", 1)
    async with following_of(at, "0") as stream:
        assert await stream.next() == ("begin", {"after": 0})
        for number, seq in enumerate(seqs[:150]):
            name, doc = await stream.next()
            assert (name, stream.last_id, doc["prediction"]) == ("end", str(seq), {"y": [number]})
    seen: list[str] = []
    async with following_of(at, str(seqs[149])) as stream:
        await stream.next()
        live = [asyncio.create_task(end(at, account, number)) for number in range(200, 260)]
        for _ in range(110):
            await stream.next()
            seen.append(stream.last_id)
        written = sorted(await asyncio.gather(*live))
    assert seen == [str(seq) for seq in (*seqs[150:], *written)]


async def test_without_an_id_it_begins_now_and_says_where(at: Edge, mine: Key) -> None:
    account = mine.stored.account_id
    await subscribe(at)  # of every account
    before = await end(at, account, 1)
    async with following_of(at) as stream:
        assert await stream.next() == ("begin", {"after": before})
        assert stream.last_id == str(before)
        after = await end(at, account, 2)
        _, doc = await stream.next()
        assert (stream.last_id, doc["account"]) == (str(after), account)
    late = await at.client.get("/v1/events", headers={"Last-Event-ID": "x"})
    assert (late.status_code, late.json()["code"]) == (400, "invalid_request")


async def test_nothing_is_missed_where_no_event_comes(
    own_nats: NatsServer, tmp_path: Path, mine: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with edge(own_nats, tmp_path, mine) as at:
        account = mine.stored.account_id
        await subscribe(at, account_id=account)
        monkeypatch.setattr(following, "HEARTBEAT_S", 0.2)
        monkeypatch.setattr(outboundnames, "event_of_results", lambda *_: "evt.results.none.none.none")
        async with following_of(at) as stream:
            await stream.next()
            seq = await end(at, account, 1)
            await stream.next()
            assert stream.last_id == str(seq)


async def test_without_a_subscription_it_says_how_to_get_one(at: Edge, mine: Key) -> None:
    account = mine.stored.account_id
    refused = await at.client.get("/v1/events")
    assert (refused.status_code, refused.headers["Content-Type"]) == (409, "application/problem+json")
    assert "Subscriptions" in refused.json()["detail"]
    await subscribe(at, account_id="another")
    assert (await at.client.get("/v1/events")).status_code == 409
    await subscribe(at, account_id=account, is_enabled=False)
    assert (await at.client.get("/v1/events")).status_code == 409
    hook = Webhook(id="h1", account_id=account, url="https://example.org/")
    await reached(at.made.gateway._webhooks, "h1", await table.put(at.made.bus, Bucket.WEBHOOKS, "h1", hook))
    async with following_of(at) as stream:
        await stream.next()
    other, writer = key(), key(scopes=("jobs:submit",), account_id=account)
    await at.made.publish(other, writer)
    foreign = await at.client.get("/v1/events", headers={"Authorization": f"Bearer {other.text}"})
    unread = await at.client.get("/v1/events", headers={"Authorization": f"Bearer {writer.text}"})
    assert (foreign.status_code, unread.status_code) == (409, 403)
    async with httpx.AsyncClient(base_url=at.client.base_url) as page:
        assert (await page.options("/v1/events")).headers["Access-Control-Allow-Origin"] == "*"


async def test_a_key_that_ends_and_a_plugin_that_is_replaced_end_it_and_its_place_is_free(
    at: Edge, mine: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_S", 0.05)
    await subscribe(at, account_id=mine.stored.account_id)
    async with following_of(at) as stream:
        await stream.next()
        assert open_streams() == 1
        at.made.gateway.end_streams()
        rest = await stream.rest()
    assert [one.event for one in rest if one.data] == []
    at.made.gateway._ends.is_over = False
    async with following_of(at) as stream:
        await stream.next()
        await at.made.publish(mine._replace(stored=replace(mine.stored, revoked_at=1.0)))
        rest = [one for one in await stream.rest() if one.data]
    assert [(one.event, json.loads(one.data)["code"]) for one in rest] == [("error", "unauthorized")]
    async with asyncio.timeout(60):
        while open_streams():
            await at.client.get("/hello")
    assert at.made.gateway._ends._accounts == {}
    info = await at.made.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.RESULTS}")
    assert info["state"]["messages"] == 0
