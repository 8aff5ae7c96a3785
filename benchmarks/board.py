"""Measures the board: from a record's event to its pixel, beside a hundred more sockets, and what an idle one costs."""

import asyncio
import json
import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from playwright.async_api import CDPSession, Page, async_playwright
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.front.path import BODY, PATH
from benchmarks.rig.bed import headers_of
from signalbox.ops.httppool import ConnectionPool
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.first import Greeting
from signalbox.ops.up.main import bring_up
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.wire import names

SOCKETS: Final = 100
JOBS: Final = 200
GAP_S: Final = 0.137
"""Between two jobs: no part of the 100 ms for which changes gather."""
IDLE_S: Final = 20.0
MOST_P95_MS: Final = 250.0
MOST_IDLE: Final = 0.02
"""Of a core."""
TOPICS: Final = ("lanes", "ticker", "queues", "workers", "alarms")
CHROMIUM: Final = "/usr/bin/chromium"
_WATCH: Final = """() => {
  window.seen = {};
  new MutationObserver((all) => requestAnimationFrame(() => setTimeout(() => {
    const at = (performance.timeOrigin + performance.now()) / 1000;
    for (const link of document.querySelectorAll("#ticker li:has([data-state=succeeded]) a"))
      window.seen[link.href.split("/").pop()] ??= at;
  }))).observe(document.getElementById("ticker"), { childList: true, subtree: true });
}"""
"""Notes when the frame that shows a job's end was painted: a task after the frame's begin runs after its painting."""


async def measure(folder: Path) -> bool:
    """Print both figures; returns whether they are as promised."""
    os.environ["SIGNALBOX_CONSOLE_LIVE_PER_USER"] = str(SOCKETS + 10)  # all are of one operator here
    options = UpOptions(data=folder, front_port=0, console_port=0, nats_port=0)
    with DataDir(folder) as data:
        stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        try:
            first = await bring_up(stack)
            async with _board(stack, first) as (page, session):
                idle = await _idle(session)
                p95 = await _to_pixel(stack, first, page)
        finally:
            await stack.stop()
    print(f"promised: p95 {MOST_P95_MS:.0f} ms, {MOST_IDLE:.0%} of a core", flush=True)
    return p95 <= MOST_P95_MS and idle <= MOST_IDLE


@asynccontextmanager
async def _board(stack: UpStack, first: Greeting) -> AsyncIterator[tuple[Page, CDPSession]]:
    """The board in a browser, and as many sockets of the same operator as other tabs would open."""
    async with async_playwright() as playwright, AsyncExitStack() as sockets:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = await browser.new_page(viewport={"width": 1440, "height": 1500})
            await page.goto(f"{stack.console_url}/login")
            await page.get_by_label("Username").fill(first.user)
            await page.get_by_label("Password").fill(first.password)
            await page.get_by_role("button", name="Log in").click()
            await page.locator("#ticker li").first.wait_for()
            cookie = "; ".join(f"{one['name']}={one['value']}" for one in await page.context.cookies())
            for _ in range(SOCKETS):
                await sockets.enter_async_context(_socket(stack.console_url, cookie))
            yield page, await page.context.new_cdp_session(page)
        finally:
            await browser.close()


@asynccontextmanager
async def _socket(console: str, cookie: str) -> AsyncIterator[None]:
    headers = {"Cookie": cookie, "Origin": console}
    async with connect(f"{console.replace('http', 'ws', 1)}/ws/live", additional_headers=headers) as socket:
        await socket.send(json.dumps({"t": "sub", "topics": TOPICS}))
        reading = asyncio.create_task(_read(socket))
        try:
            yield
        finally:
            reading.cancel()


async def _read(socket: ClientConnection) -> None:
    async for _ in socket:
        pass


async def _idle(session: CDPSession) -> float:
    """Share of a core of the page's thread while nothing happens."""
    await session.send("Performance.enable")
    await asyncio.sleep(5.0)  # what came with the page is over
    before, began = await _spent_s(session), time.perf_counter()
    await asyncio.sleep(IDLE_S)
    share = (await _spent_s(session) - before) / (time.perf_counter() - began)
    print(f"an idle board: {share:.2%} of a core over {IDLE_S:.0f} s, {SOCKETS} more sockets", flush=True)
    return share


async def _spent_s(session: CDPSession) -> float:
    metrics: dict[str, Any] = await session.send("Performance.getMetrics")
    return next(float(one["value"]) for one in metrics["metrics"] if one["name"] == "TaskDuration")


async def _to_pixel(stack: UpStack, first: Greeting, page: Page) -> float:
    """p95 in milliseconds from the record's event on NATS to the frame that shows the job's end."""
    told: dict[str, float] = {}
    await stack.bus.subscribe(names.event_of_state(), lambda message: _note(told, message.subject))
    await page.evaluate(_WATCH)
    pool = ConnectionPool(stack.front_url, timeout_s=30.0)
    try:
        for _ in range(JOBS):
            await pool.request("POST", PATH, BODY, headers_of(first.api_key))
            await asyncio.sleep(GAP_S)
    finally:
        await pool.close()
    await asyncio.sleep(1.0)  # the last frame
    seen: dict[str, float] = await page.evaluate("() => window.seen")
    took = sorted((seen[job] - told[job]) * 1000 for job in seen if job in told)
    if len(took) < 0.9 * JOBS:
        print(f"only {len(took)} of {JOBS} jobs were shown", flush=True)
        return float("inf")
    p50, p95 = statistics.median(took), took[int(len(took) * 0.95)]
    print(f"event to pixel: p50 {p50:.0f} ms, p95 {p95:.0f} ms, most {took[-1]:.0f} ms, {len(took)} jobs", flush=True)
    return p95


def _note(told: dict[str, float], subject: str) -> None:
    """The last change of a job that is seen is its end."""
    told[names.job_of(subject)] = time.time()
