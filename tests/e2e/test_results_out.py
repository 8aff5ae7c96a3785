"""Results that go out of a whole stack, while each of its programs is killed in turn."""

import asyncio
import base64
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from standardwebhooks import Webhook as Verifier

from signalbox.bus import table
from signalbox.wire import outboundnames
from signalbox.wire.modeldocs import Limits
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.outbound import End, HookSecret, Subscription, Webhook
from tests.rigs import lightworker, outage
from tests.rigs.outage import Caller, House, becomes, floats
from tests.rigs.receiver import OK, Receiver, answer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
SECRET = "whsec_" + base64.b64encode(os.urandom(24)).decode()
JOBS = 500
LINES = 5_000
KILLED = ("outbound", "worker-1", "gateway", "nats", "outbound")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    settings = {
        "outbound": {"SIGNALBOX_OUTBOUND_DUTY_S": "2", "SIGNALBOX_OUTBOUND_HOOK_RETRIES_S": "1,1,1,2,2,4,4,8,8"}
    }
    async with outage.house(tmp_path_factory.mktemp("out") / "data", settings, is_light=True) as made:
        await made.add_model("half", lightworker.version("half"), floats(), limits=Limits(sync_wait_s=8))
        await made.start_outbound()
        await made.set_workers(2)
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def caller(house: House) -> AsyncIterator[Caller]:
    """Somebody with a key, whose jobs run."""
    async with house.caller(await house.add_key(account_id="shop")) as made:

        async def is_served() -> bool:
            return await made.predict("half", 0.0) == 200

        await becomes(is_served, limit_s=90)
        yield made


async def subscribe(house: House, url: str) -> None:
    """As the console does, and return when the outbound program has a consumer for the webhook."""
    await table.put(house.bus, Bucket.SUBSCRIPTIONS, "s1", Subscription(id="s1", account_id="shop"))
    await table.put(house.bus, Bucket.HOOK_SECRETS, outboundnames.hook_secret("h1", "1"), HookSecret(secret=SECRET))
    await table.put(house.bus, Bucket.WEBHOOKS, "h1", Webhook(id="h1", account_id="shop", url=url, secret="1"))

    async def is_there() -> bool:
        asked = await house.bus.listed(f"$JS.API.CONSUMER.NAMES.{Stream.RESULTS}", "consumers")
        return outboundnames.hook_consumer("h1") in asked

    await becomes(is_there)


async def ends(house: House) -> list[End]:
    """What lies in RESULTS of the account."""
    found = await house.bus.list_latest(Stream.RESULTS, [outboundnames.results("shop")])
    return [msgspec.json.decode(stored.data, type=End) for stored in found]


@pytest.mark.slow
async def test_each_end_is_in_the_stream_once_and_told_at_least_once_whatever_is_killed(
    house: House, caller: Caller
) -> None:
    async with Receiver(OK, answer("500 Oh"), OK).serving() as receiver:
        await subscribe(house, receiver.url)
        step = JOBS // (len(KILLED) + 1)
        for name in (*KILLED, ""):
            submitted = asyncio.create_task(submit(caller, len(caller.accepted), step))
            if name:
                await caller.until(lambda: caller.count("submit", 202) % step > step // 4, limit_s=60)
                await house.kill(name)
                await house.revive(name)
            await submitted
        jobs = await caller.endings(limit_s=120)
        assert {job["state"] for job in jobs.values()} == {"succeeded"}
        told = Counter[str]()

        async def are_all_told() -> bool:
            told.clear()
            told.update(verified(one.body, one.headers) for one in receiver.received)
            return jobs.keys() <= told.keys()

        await becomes(are_all_told, limit_s=120)
        found = {end.request_id: end for end in await ends(house)}
    assert found.keys() >= jobs.keys(), "each end is in the stream"
    info = await house.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.RESULTS}")
    assert info["state"]["messages"] == info["state"]["last_seq"] - info["state"]["first_seq"] + 1 == len(found), "once"
    for job_id, value in caller.accepted.items():
        assert found[job_id].prediction == [value / 2 + 2]
    ids = {one.headers["webhook-id"] for one in receiver.received}
    assert len(ids) == len(told), "however often a job's end is told, it has one id"


@pytest.mark.slow
async def test_each_line_of_a_batch_is_done_once_whatever_is_killed(house: House, caller: Caller) -> None:
    path = "/v1/models/half:predict"
    lines = "".join(
        json.dumps({"custom_id": f"r{n}", "method": "POST", "url": path, "body": {"instances": [float(n)]}}) + "\n"
        for n in range(LINES)
    )
    sent = await caller.call("POST", "/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", lines)})
    assert sent.status_code == 200, sent.text
    body = {"input_file_id": sent.json()["id"], "endpoint": path, "completion_window": "24h"}
    made = await caller.call("POST", "/v1/batches", json=body)
    assert made.status_code == 200, made.text
    for number, name in enumerate(KILLED):
        await becomes(partial(is_done, caller, made.json()["id"], LINES * number // (len(KILLED) + 1) + 1), limit_s=120)
        await house.kill(name)
        await house.revive(name)
    await becomes(partial(is_done, caller, made.json()["id"], LINES), limit_s=120)
    batch = await found(caller, made.json()["id"])
    await becomes(partial(is_ended, caller, batch["id"]))
    batch = await found(caller, batch["id"])
    assert (batch["status"], batch["request_counts"]) == (
        "completed",
        {"total": LINES, "completed": LINES, "failed": 0},
    )
    got = await caller.call("GET", f"/v1/files/{batch['output_file_id']}/content")
    answers = {one["custom_id"]: one["response"]["body"] for one in map(json.loads, got.text.splitlines())}
    assert len(got.text.splitlines()) == LINES, "no line twice"
    assert answers == {f"r{n}": {"predictions": [n / 2 + 2]} for n in range(LINES)}


async def found(caller: Caller, batch: str) -> dict[str, Any]:
    """A batch, as its owner sees it; empty where the front is away."""
    try:
        got = await caller.call("GET", f"/v1/batches/{batch}")
    except httpx.TransportError:
        return {}
    return dict(got.json()) if got.status_code == 200 else {}


async def is_done(caller: Caller, batch: str, lines: int) -> bool:
    """Whether so many lines of it have ended."""
    return bool((doc := await found(caller, batch)) and doc["request_counts"]["completed"] >= lines)


async def is_ended(caller: Caller, batch: str) -> bool:
    """Whether its files are complete."""
    return bool((doc := await found(caller, batch)) and doc["status"] == "completed")


def verified(body: bytes, headers: dict[str, str]) -> str:
    """The job whose end was told."""
    Verifier(SECRET).verify(body, headers)
    job_id: str = json.loads(body)["data"]["request_id"]
    return job_id


async def submit(caller: Caller, first: int, count: int) -> None:
    """Have so many jobs accepted, trying again where the front or NATS is away."""
    until = len(caller.accepted) + count
    while len(caller.accepted) < until:
        if await caller.submit("half", float(first + len(caller.accepted))) != 202:
            await asyncio.sleep(outage.PACE_S)
