"""Devices: their page, the log of their lease from NATS, their use, what leaves next, and asking for one."""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from msgspec.structs import replace

from console.audit.models import AuditEntry
from console.board.holds import Hold, log
from console.feed import history
from console.feed.feed import Feed
from console.feed.running import running
from console.fleet import software
from console.outbox.models import OutboxEntry
from signalbox.bus import table, topology
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from signalbox.wire.eviction import ResidencyUse
from signalbox.wire.names import Bucket, Stream, token
from signalbox.wire.workerdocs import Device, Lease, Residency
from tests.console.conftest import Call, submit
from tests.console.test_live_view import GPU, worker
from tests.rigs.natsserver import NatsServer

Browser = Callable[[str], Client]
MB = 1 << 20
T0 = 1_000_000.0


def _held(owner: str, number: int, beats: int = 0, since: float = T0) -> Lease:
    return Lease(state="HELD", gpu=GPU, owner=owner, token=number, since=since, beats=beats)


def test_a_log_tells_each_hold_once_with_its_renewals_and_its_end() -> None:
    free = Lease(state="FREE", gpu=GPU)
    written = [
        (T0, _held("a", 0), 7),
        (T0 + 2, _held("a", 7, 1), 8),
        (T0 + 4, _held("a", 7, 2), 9),
        (T0 + 5, replace(free, next="b"), 10),
        (T0 + 6, _held("b", 0, since=T0 + 6), 11),
        (T0 + 20, None, 12),
        (T0 + 21, _held("c", 0, since=T0 + 21), 13),
        (T0 + 30, _held("d", 0, since=T0 + 30), 14),
        (T0 + 31, free, 15),
        (T0 + 40, _held("a", 0, since=T0 + 40), 16),
    ]
    assert log(written) == [
        Hold(16, "a", T0 + 40, None, 0, "holds it"),
        Hold(14, "d", T0 + 30, T0 + 31, 0, "released"),
        Hold(13, "c", T0 + 21, T0 + 30, 0, "taken over"),
        Hold(11, "b", T0 + 6, T0 + 20, 0, "ran out"),
        Hold(7, "a", T0, T0 + 5, 2, "handed to b"),
    ]
    assert [hold.is_lost for hold in log(written)] == [False, False, True, True, False]
    assert log([]) == []


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """One worker holds its device with two versions in its memory, another one waits."""
    feed = Feed(Wire())
    use = ResidencyUse(idle_s=100.0, return_s=1.0)
    models = (
        Residency(model="digits", version=2, state="ready", size_bytes=30 * MB, use=ResidencyUse(is_used=True)),
        Residency(model="half", version=1, state="ready", size_bytes=10 * MB, use=use),
    )
    device = Device(id=GPU, kind="nvidia", name="H200", memory_bytes=1000 * MB, driver="580.1", cuda="13.0")
    holds = worker(
        "w1",
        token=41,
        device=device,
        models=models,
        budget_bytes=800 * MB,
        rss_bytes=60 * MB,
        runner_rss_bytes=540 * MB,
        restarts=2,
        software="0.1.0",
        tensorflow="2.21.0",
    )
    now = time.time()
    feed.view.presence("w1", replace(holds, beat_at=now - 10), now)
    feed.view.presence("w1", replace(holds, beat_at=now - 5, computing_s=4.0), now)
    feed.view.presence("w2", worker("w2", device=device, software="0.1.0", tensorflow="2.20.0"), now)
    lease = Lease(state="HELD", gpu=GPU, owner="w1", token=41, since=now - 60, beats=30)
    feed.view.lanes.lease(GPU, lease, revision=50, at=now, ttl_s=20.0, now=now)
    monkeypatch.setattr(running, "feed", feed)
    monkeypatch.setattr(Feed, "is_blind", False)
    return feed


@pytest.mark.usefixtures("feed")
def test_its_page_says_who_holds_it_what_is_in_its_memory_and_what_leaves_next(browser: Browser) -> None:
    page = browser("viewer").get(f"/workers/-/devices/{GPU}").content.decode()
    assert 'href="/workers/w1"' in page
    assert "30 renewals" in page
    assert "40.0 MiB of 800.0 MiB" in page
    assert "1000.0 MiB" in page
    assert re.search(r'leaves next: <a href="/models/half">half:1</a>', page)
    assert "580.1, CUDA 13.0" in page
    assert 'class="lane-computing"' in page
    assert "NATS" in page, "the log is not known"
    assert f"/workers/-/devices/{GPU}/release" not in page, "a viewer may not ask for it"
    assert browser("viewer").get("/workers/-/devices/none").status_code == 404


@pytest.mark.usefixtures("feed")
def test_a_worker_says_its_runner_its_memory_and_software_that_differs(browser: Browser) -> None:
    client = browser("viewer")
    page = client.get("/workers/w1").content.decode()
    assert "died 2 times" in page
    assert "of it the runner 540.0 MiB" in page
    assert "40.0 MiB of 800.0 MiB" in page
    assert f'href="/workers/-/devices/{GPU}"' in page
    listed = client.get("/workers").content.decode()
    assert "TensorFlow is not the same on all workers" in listed
    assert "NVIDIA driver is not" not in listed


def test_the_usual_software_is_what_most_run(feed: Feed) -> None:
    feed.view.presence("w3", worker("w3", software="0.1.0", tensorflow="2.20.0"), T0)
    rows = feed.view.workers()
    (w1,) = (row for row in rows if row.id == "w1")
    assert [(one.name, one.usual) for one in software.of(w1, rows)] == [
        ("Signalbox", ""),
        ("TensorFlow", "2.20.0"),
        ("NVIDIA driver", ""),
        ("CUDA", ""),
    ]
    assert software.differing(rows) == {"TensorFlow": {"2.21.0": ["w1"], "2.20.0": ["w2", "w3"]}}


@pytest.mark.usefixtures("feed")
def test_a_device_is_asked_for_on_its_page_and_on_its_holders(browser: Browser, call: Callable[[str], Call]) -> None:
    client = browser("operator")
    for url, back in ((f"/workers/-/devices/{GPU}", f"/workers/-/devices/{GPU}"), ("/workers/w1", "/workers/w1")):
        assert "Ask w1 to release its device" in client.get(url).content.decode()
        assert submit(client, f"{url}/release", {"reason": "a trial"})["Location"] == back
    refused = submit(client, "/workers/w2/release")
    assert (refused.status_code, b"holds no GPU" in refused.content) == (409, True)
    api = call("operator")
    assert api("post", "workers/w1/release", {}).status_code == 202
    assert api("post", f"devices/{GPU}/release", {"reason": "again"}).status_code == 202
    assert api("post", "workers/none/release", {}).status_code == 404
    assert [entry.key for entry in OutboxEntry.objects.filter(kind=OutboxEntry.RELEASE)] == [GPU] * 4
    rows = AuditEntry.objects.filter(act="lanes.release").order_by("number")
    assert [(row.target_kind, row.target, row.result) for row in rows] == [
        ("lane", GPU, "done"),
        ("worker", "w1", "done"),
        ("worker", "w2", "failed"),
        ("worker", "w1", "done"),
        ("lane", GPU, "done"),
        ("worker", "none", "failed"),
    ]
    assert rows[0].href == f"/workers/-/devices/{GPU}"


@pytest.mark.usefixtures("feed")
def test_the_log_of_its_lease_is_read_from_nats(
    browser: Browser, call: Callable[[str], Call], settings: Any, shared_server: NatsServer
) -> None:
    settings.CONSOLE = replace(settings.CONSOLE, nats_url=shared_server.url)

    async def lay() -> None:
        async with await Bus.connect(Wire(nats_url=shared_server.url), role="admin") as bus:
            await topology.apply(bus)
            for number, owner in enumerate(("w9", "w1"), start=1):
                await table.put(bus, Bucket.LEASES, token(GPU), _held(owner, 0, since=time.time()))
                while len(await history.holds(bus, GPU, time.time() - 600)) < number:  # EVENTS reads its source
                    await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.EVENTS}")

    asyncio.run(lay())
    page = browser("viewer").get(f"/workers/-/devices/{GPU}").content.decode()
    log_of = page.partition('id="log"')[2]
    assert log_of.index('href="/workers/w1"') < log_of.index('href="/workers/w9"')
    assert "taken over" in log_of
    api = call("viewer")
    shown = api("get", f"devices/{GPU}").json()
    assert (shown["holder"], shown["holds"][0]["holder"], shown["holds"][1]["end"]) == ("w1", "w1", "taken over")
    assert [one["id"] for one in api("get", "devices").json()] == [GPU]
    detail = api("get", "workers/w1").json()
    assert (detail["restarts"], detail["software"]["tensorflow"], detail["drain"]) == (2, "2.21.0", None)
