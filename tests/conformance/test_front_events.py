"""A job's events through every front: for a program, for a page of another origin, and for nobody else."""

import asyncio
import json
from typing import Any

import httpx
import httpx_sse
import pytest
from playwright.async_api import async_playwright

from signalbox.bus.client import Bus
from tests.conformance import test_signalbox_front as signalbox
from tests.conformance.conftest import RUNNING
from tests.conformance.test_signalbox_front import House, bearer
from tests.e2e.browser import CHROMIUM, FLAGS
from tests.rigs.gateway import Key

house, bus, client, mine = signalbox.house, signalbox.bus, signalbox.client, signalbox.mine
FOLLOW = """
    url => new Promise((resolve, reject) => {
        const seen = []
        const source = new EventSource(url)
        const note = (event) => seen.push([event.type, event.lastEventId, JSON.parse(event.data)])
        source.addEventListener("state", (event) => { note(event); window.states = seen.length })
        source.addEventListener("end", (event) => { note(event); source.close(); resolve(seen) })
        source.onerror = () => { if (source.readyState === 2) reject(new Error("refused")) }
    })
"""


async def submitted(house: House, client: httpx.AsyncClient, mine: Key) -> Any:
    """A new job, as its owner reads it."""
    body = {"model": house.model, "input": {"x": [1.0, 2.0]}}
    got = await client.post("/v1/jobs", json=body, headers=bearer(mine))
    assert got.status_code == 202, got.text
    return got.json()


async def test_a_program_follows_a_job_with_its_key(
    house: House, bus: Bus, client: httpx.AsyncClient, mine: Key
) -> None:
    job = await submitted(house, client, mine)
    path = job["urls"]["self"] + "/events"
    async with httpx_sse.aconnect_sse(client, "GET", path, headers=bearer(mine)) as source, asyncio.timeout(60):
        events = source.aiter_sse()
        first = await anext(events)
        assert (first.event, json.loads(first.data)["id"]) == ("state", job["id"])
        async with house.serving(bus):
            rest = [(one.event, json.loads(one.data)["state"]) async for one in events]
    assert rest[-2:] == [("state", "succeeded"), ("end", "succeeded")]
    again = await client.get(path, headers=bearer(mine) | {"Last-Event-ID": first.id})
    assert "event: end" in again.text


@pytest.mark.browser
async def test_a_browsers_event_source_follows_a_job_with_the_token_of_its_address(
    house: House, bus: Bus, client: httpx.AsyncClient, mine: Key
) -> None:
    job = await submitted(house, client, mine)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = await browser.new_page()
        await page.goto(house.url.replace("127.0.0.1", "localhost") + "/hello")  # another origin
        following = asyncio.ensure_future(page.evaluate(FOLLOW, house.url + job["urls"]["events"]))
        await page.wait_for_function("window.states === 1")
        async with house.serving(bus):
            seen = await following
        await browser.close()
    assert [kind for kind, *_ in seen[-2:]] == ["state", "end"]
    assert (seen[0][1], seen[0][2]["state"]) == ("0", "queued")
    assert (int(seen[-1][1]) > 0, seen[-1][2]["state"]) == (True, "succeeded")


async def test_a_token_is_for_one_job_and_its_path_alone(house: House, client: httpx.AsyncClient, mine: Key) -> None:
    one, other = [await submitted(house, client, mine) for _ in range(2)]
    url = one["urls"]["events"]
    asked = await client.options(url, headers={"Origin": "http://page.test", "Access-Control-Request-Method": "GET"})
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, "*")
    for path in (url.replace(one["id"], other["id"]), url.replace("/events", "/result"), url[:-1]):
        got = await client.get(path)
        assert (got.status_code, got.json()["code"]) == (401, "unauthorized")


async def test_no_log_has_a_token_whole(house: House, client: httpx.AsyncClient, mine: Key) -> None:
    url = (await submitted(house, client, mine))["urls"]["events"]
    async with httpx_sse.aconnect_sse(client, "GET", url) as source, asyncio.timeout(60):
        assert (await anext(source.aiter_sse())).event == "state"
    refused = await client.get(url.replace("sbe_", "sbe_X"))
    assert refused.status_code == 401
    lines = [line for program in house.programs for line in program.tail]
    assert lines or house.kind == RUNNING
    assert not [line for line in lines if url[-43:] in line]
