"""How full NATS is: on the board, and for a Prometheus that scrapes the controller."""

import asyncio
import os
import sys
import urllib.request
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from console.controller.storage import measure
from console.feed.health import STORAGE_EVERY_S, StorageFigure
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.storage import NEARLY_FULL
from signalbox.ops.ports import free_port
from signalbox.program.metrics import REGISTRY
from signalbox.program.settings import Wire
from signalbox.wire import names, outboundnames
from signalbox.wire.assets import MIB, STREAMS
from signalbox.wire.names import Bucket, Stream
from tests.console.mirror import Viewer
from tests.console.test_live_feed import watching
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes


@pytest.fixture
async def small(own_nats: NatsServer) -> AsyncIterator[Bus]:
    """A NATS of 20 MiB, of which dead letters may take 1.6."""
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    await topology.apply(bus, storage_bytes=20 * MIB)
    yield bus
    await bus.close()


async def fill(bus: Bus) -> None:
    for part in range(2):
        await bus.write(names.dead_letter("m", str(part)), bytes(700_000))


async def test_the_figure_is_asked_for_now_and_then_and_names_the_fullest_stream(small: Bus) -> None:
    figure = StorageFigure()
    first = await figure.read(small, 0.0)
    assert (first.state, first.value) == ("ok", "0%")
    await fill(small)
    assert await figure.read(small, STORAGE_EVERY_S - 1) == first
    then = await figure.read(small, STORAGE_EVERY_S)
    assert (then.state, then.value, then.note) == ("late", "83%", "DLQ is nearly full")


@pytest.mark.parametrize(
    ("stream", "subject", "size"),
    [
        (Stream.EVENTS, names.key(Bucket.LEASES, "GPU-1"), 20_000),
        (Stream.DELIVERIES, outboundnames.delivery("hook", "job", 1), 12_000),
    ],
)
async def test_history_that_is_full_by_design_is_no_reason_to_look(
    small: Bus, stream: Stream, subject: str, size: int
) -> None:
    async def is_full() -> bool:
        info = await small.request_json(f"$JS.API.STREAM.INFO.{stream}")
        return bool(info["state"]["bytes"] > NEARLY_FULL * info["config"]["max_bytes"])

    async with asyncio.timeout(60):
        while not await is_full():
            await small.write(subject, bytes(size))
    assert (await StorageFigure().read(small, 0.0)).state == "ok"


async def test_without_an_answer_the_figure_is_unknown(small: Bus) -> None:
    await small.request_json("$JS.API.STREAM.DELETE.DLQ")
    assert (await StorageFigure().read(small, 0.0)).state == "unknown"


async def test_the_board_shows_it(own_nats: NatsServer, small: Bus) -> None:
    await fill(small)

    def is_late(viewer: Viewer) -> bool:
        return bool(viewer.row("health", "storage").get("state") == "late")

    async with watching(Wire(nats_url=own_nats.url)) as (_, viewer):
        await viewer.until(lambda: is_late(viewer))


async def test_the_controller_s_figures_are_scraped(own_nats: NatsServer, small: Bus, tmp_path: Path) -> None:
    await fill(small)
    port = free_port()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    env = clean | {
        "SIGNALBOX_NATS_URL": own_nats.url,
        "SIGNALBOX_METRICS_PORT": str(port),
        "SIGNALBOX_CONSOLE_DATA_DIR": str(tmp_path / "console"),
    }
    program = (sys.executable, "-m", "console")
    quiet: dict[str, Any] = {"env": env, "stdout": DEVNULL, "stderr": DEVNULL}
    bootstrap = await asyncio.create_subprocess_exec(*program, "bootstrap", **quiet)
    assert await bootstrap.wait() == 0
    controller = await asyncio.create_subprocess_exec(*program, "controller", **quiet)

    async def is_reported() -> bool:
        found = await asyncio.to_thread(scraped, port)
        used = found.get('signalbox_stream_bytes{stream="DLQ"}', 0.0)
        limit = found.get('signalbox_stream_limit_bytes{stream="DLQ"}', 1.0)
        return used / limit > 0.8

    try:
        await becomes(is_reported)
    finally:
        controller.kill()
        await controller.wait()


async def test_what_nats_does_not_tell_any_more_is_not_told_on(small: Bus) -> None:
    def limit() -> float | None:
        return REGISTRY.get_sample_value("signalbox_stream_limit_bytes", {"stream": "DLQ"})

    await measure(small)
    assert limit()
    await small.request_json("$JS.API.STREAM.DELETE.DLQ")
    await measure(small)
    assert limit() is None


async def test_late_replicas_are_told_of_every_stream_and_bucket(small: Bus) -> None:
    await measure(small)
    name = "signalbox_stream_late_replicas"
    assert {REGISTRY.get_sample_value(name, {"stream": each["name"]}) for each in STREAMS} == {0.0}


def scraped(port: int) -> dict[str, float]:
    """What is served, by name and labels; nothing while no worker serves."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}
