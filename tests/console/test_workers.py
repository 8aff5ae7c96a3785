"""Pages of workers: who is here, what was asked of it, and a drain with its reason."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from msgspec.structs import replace

from console.audit.models import AuditEntry
from console.feed.feed import Feed
from console.feed.running import running
from console.fleet.models import DesiredState
from signalbox.bus import table, topology
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.eviction import ResidencyUse
from signalbox.wire.manifests import CachedFiles, HostCache
from signalbox.wire.names import Bucket
from signalbox.wire.workerdocs import Residency
from tests.console.conftest import submit
from tests.console.test_jobs import make
from tests.console.test_live_lanes import computing
from tests.console.test_live_view import worker
from tests.rigs.natsserver import NatsServer

Browser = Callable[[str], Client]


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """The live feed of this process: one worker holds its GPU, one is lost."""
    feed = Feed(Wire())
    held = worker("w1", token=41, models=(Residency(model="digits", version=2, state="ready"),))
    feed.view.presence("w1", held, 1_000_000.0)
    feed.view.presence("w2", worker("w2"), 1_000_000.0)
    feed.view.presence("w2", None, 1_000_010.0)
    monkeypatch.setattr(running, "feed", feed)
    monkeypatch.setattr(Feed, "is_blind", False)
    return feed


def test_the_list_names_every_worker_and_leads_to_its_page(browser: Browser, feed: Feed) -> None:
    client = browser("viewer")
    page = client.get("/workers").content.decode()
    assert page.index('href="/workers/w1"') < page.index('href="/workers/w2"')  # the lost come last
    assert "holds its GPU" in page
    assert ">lost<" in page
    shown = client.get("/workers/w1").content.decode()
    assert 'href="/models/digits"' in shown
    assert "/workers/w1/drain" not in shown  # a viewer may not


def test_a_worker_that_computes_or_loads_is_not_shown_as_one_that_holds_its_gpu_idle(
    browser: Browser, feed: Feed
) -> None:
    client = browser("viewer")
    for activity in ("computing", "loading"):
        run = computing(1_000_000.0, model="digits", activity=activity)
        feed.view.presence("w1", worker("w1", token=41, run=run), 1_000_005.0)
        for url in ("/workers", "/workers/w1"):
            page = client.get(url).content.decode()
            assert f'data-state="{activity}">{activity} digits:1<' in page
            assert 'data-state="held"' not in page
    feed.view.presence("w1", worker("w1", token=41), 1_000_010.0)
    assert 'data-state="held">holds its GPU, idle<' in client.get("/workers").content.decode()


def test_speed_is_of_a_model_and_memory_is_of_all_its_processes(browser: Browser, feed: Feed) -> None:
    busy = worker(
        "w1",
        models=tuple(Residency(model=name, version=1, state="ready") for name in ("half", "digits", "new")),
        rates={"digits": 52.0, "half": 900.0},
        rss_bytes=60 << 20,
        runner_rss_bytes=540 << 20,
    )
    feed.view.presence("w1", busy, 1_000_005.0)
    row = {each.id: each for each in feed.view.workers()}["w1"]
    assert (row.ran, row.jobs_per_s) == ("digits", 52.0), "of the model that ran last, not of all together"
    page = browser("viewer").get("/workers/w1").content.decode()
    speeds = re.findall(r'data-label="Speed" class="num nowrap">([^<]*)<', page)
    assert speeds == ["900/s", "52/s", "–"]
    assert "600.0 MiB" in page


def test_a_worker_is_drained_with_a_reason_and_resumed_on_its_page(browser: Browser, feed: Feed) -> None:
    client = browser("operator")
    assert 'data-confirm-title="Drain w1"' in client.get("/workers/w1").content.decode()
    sent = submit(client, "/workers/w1/drain", {"draining": "1", "reason": "new driver"})
    page = client.get(sent["Location"]).content.decode()
    assert sent["Location"] == "/workers/w1"
    assert 'data-confirm-title="Resume w1"' in page
    assert "new driver" in page
    assert "has not begun it yet" in page
    assert "drain asked by operator" in client.get("/workers").content.decode()
    feed.view.presence("w1", worker("w1", state="draining"), 1_000_020.0)
    assert "has not begun it yet" not in client.get("/workers/w1").content.decode()
    submit(client, "/workers/w1/drain", {"draining": "0"})
    assert not DesiredState.objects.get().is_on
    entry = AuditEntry.objects.filter(act="workers.drain").earliest("pk")
    assert (entry.href, entry.reason) == ("/workers/w1", "new driver")


def test_a_worker_that_has_gone_keeps_its_page_and_one_that_never_was_has_none(
    browser: Browser, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(1, worker="old")
    client = browser("operator")
    assert "sends no heartbeat" in client.get("/workers/old").content.decode()
    assert client.get("/workers/never").status_code == 404
    assert submit(client, "/workers/never/drain", {"draining": "1"}).status_code == 404
    submit(client, "/workers/old/drain", {"draining": "1"})
    assert "Asked to drain, and not here" in client.get("/workers").content.decode()
    monkeypatch.setattr(running, "feed", None)
    assert "Workers are not known now" in client.get("/workers").content.decode()
    assert client.get("/workers/never").status_code == 503


@pytest.fixture
def near(settings: Any, shared_server: NatsServer) -> Callable[..., None]:
    """A console that reaches NATS, and a way to put what caches of hosts hold there; what others put is removed."""
    settings.CONSOLE = replace(settings.CONSOLE, nats_url=shared_server.url)

    def put(*caches: HostCache) -> None:
        async def lay() -> None:
            async with await Bus.connect(Wire(nats_url=shared_server.url), role="admin") as bus:
                await topology.apply(bus)
                await bus.request_json(f"$JS.API.STREAM.PURGE.{Bucket.CACHES.stream}")
                for cache in caches:
                    await table.put(bus, Bucket.CACHES, names.token(cache.host), cache, ttl_s=60)

        asyncio.run(lay())

    return put


def cached(model: str, version: int = 1, *, digest: str = "d" * 64) -> CachedFiles:
    return CachedFiles(model, version, "zoo", 1 << 20, 1_000_000, digest)


def cache_of(host: str, *versions: CachedFiles, count: int = 0) -> HostCache:
    used = len(versions) << 20
    return HostCache(
        host=host,
        name=f"{host}.example",
        at=1_000_000.0,
        used_bytes=used,
        limit_bytes=1 << 30,
        count=count or len(versions),
        versions=versions,
    )


def test_a_host_s_cache_is_shown_with_what_its_workers_say_of_each_version(
    browser: Browser, feed: Feed, near: Callable[..., None]
) -> None:
    states = {"cat": "ready", "dog": "fetching", "fox": "failed"}
    residencies = tuple(
        Residency(model=name, version=1, state=state, error="" if state == "ready" else f"why {name}")
        for name, state in states.items()
    )
    feed.view.presence("w1", worker("w1", host="h1/boot", models=residencies), 1_000_005.0)
    feed.view.presence("w3", worker("w3", host="h2/boot"), 1_000_005.0)
    near(cache_of("h1", *(cached(name) for name in (*states, "owl")), cached("half", digest=""), count=9))
    client = browser("viewer")
    listed = client.get("/workers/-/hosts").content.decode()
    assert listed.index("h1.example") > listed.index('href="/workers/-/hosts/h2"')
    assert "5.0 MiB of 1.0 GiB" in listed
    shown = client.get("/api/hosts/h1").json()
    assert {row["model"]: (row["state"], row["why"], row["workers"]) for row in shown["versions"]} == {
        "cat": ("loaded", "", ["w1"]),
        "dog": ("fetching", "why dog", ["w1"]),
        "fox": ("failed", "why fox", ["w1"]),
        "owl": ("cached", "", []),
        "half": ("partial", "", []),
    }
    first = shown["versions"][0]
    assert (first["version"], first["repository"], first["size_bytes"], first["digest"]) == (
        1,
        "zoo",
        1 << 20,
        "d" * 64,
    )
    assert first["used_at"] == "1970-01-12T13:46:40Z"
    assert shown["cache"] == {"at": "1970-01-12T13:46:40Z", "used_bytes": 5 << 20, "limit_bytes": 1 << 30, "count": 9}
    page = client.get("/workers/-/hosts/h1").content.decode()
    assert "the 5 used last are listed" in page
    parts = ("/workers/w1", "/models/owl/versions/1", "/repositories/zoo")
    for part in (*(f'href="{part}"' for part in parts), "why fox", ">cannot be fetched<"):
        assert part in page
    assert 'href="/workers/-/hosts/h1"' in client.get("/workers/w1").content.decode()
    brings = worker("w2", host="h1/boot", models=(Residency(model="dog", version=1, state="fetching"),))
    feed.view.presence("w2", brings, 1_000_005.0)
    (dog,) = client.get("/api/hosts/h1?q=dog").json()["versions"]
    assert (dog["state"], dog["why"], dog["workers"]) == ("fetching", "", ["w1", "w2"])


def test_thousands_of_cached_versions_come_in_pages_and_are_filtered(
    browser: Browser, feed: Feed, near: Callable[..., None]
) -> None:
    resident = Residency(model="m0007", version=1, state="spare")
    feed.view.presence("w1", worker("w1", host="h1/boot", models=(resident,)), 1_000_005.0)
    near(cache_of("h1", *(cached(f"m{number:04}") for number in range(3000))))
    client = browser("viewer")
    seen, number = [], 1
    while number:
        found = client.get(f"/api/hosts/h1?q=M01&size=60&page={number}").json()
        assert found["found"] == 100
        seen += [row["model"] for row in found["versions"]]
        number = found["next"]
    assert seen == [f"m{number:04}" for number in range(100, 200)], "as the cache has them: the last used first"
    assert [row["model"] for row in client.get("/api/hosts/h1?state=loaded").json()["versions"]] == ["m0007"]
    assert client.get("/api/hosts/h1?repository=other").json()["versions"] == []
    page = client.get("/workers/-/hosts/h1?q=m01&page=2").content.decode()
    assert "m0150" in page
    assert "m0149" not in page
    assert 'href="?q=m01&amp;repository=&amp;state=" rel="prev"' in page
    assert "No version matches" in client.get("/workers/-/hosts/h1?state=failed").content.decode()
    assert client.get("/workers/-/hosts/h1?state=odd").status_code == 400
    assert client.get("/api/hosts/h1?state=odd").status_code == 400


def test_a_host_without_a_cache_and_one_whose_cache_is_empty_say_what_to_do(
    browser: Browser, feed: Feed, near: Callable[..., None]
) -> None:
    feed.view.presence("w1", worker("w1", host="h1/boot"), 1_000_005.0)
    near(cache_of("h2"))
    client = browser("viewer")
    assert client.get("/api/hosts/h1").json()["cache"] is None
    page = client.get("/workers/-/hosts/h1").content.decode()
    assert "This host has no disk cache" in page
    assert "SIGNALBOX_WORKER_CACHE_DIR" in page
    empty = client.get("/workers/-/hosts/h2").content.decode()
    assert "The cache is empty" in empty
    assert "none now" in empty
    assert client.get("/workers/-/hosts/h9").status_code == client.get("/api/hosts/h9").status_code == 404


def test_without_nats_the_pages_of_caches_say_so(browser: Browser, feed: Feed) -> None:
    for path in ("/workers/-/hosts/h1", "/api/hosts"):
        answer = browser("viewer").get(path)
        assert (answer.status_code, "NATS" in answer.content.decode()) == (503, True), path


def test_what_leaves_a_worker_s_memory_next_and_why_is_shown_in_the_order_that_it_decides_by(
    browser: Browser, feed: Feed
) -> None:
    def resident(name: str, *use: Any, state: str = "ready", size_bytes: int = 10**7) -> Residency:
        return Residency(model=name, version=1, state=state, size_bytes=size_bytes, use=ResidencyUse(*use))

    models = (
        resident("again", 50.0, 90.0, 2.0),
        resident("busy", 0.5, 20.0, 2.0, True),
        resident("once", 1.0, None, 2.0),
        resident("spare", 1.0, 3.0, 2.0, state="spare"),
        resident("waited", 900.0, 990.0, 2.0),
        Residency(model="broken", version=1, state="failed", error="no such file"),
        Residency(model="untold", version=1, state="ready", size_bytes=5),
    )
    seen = worker("w1", models=models, waiting={"waited": 3}, budget_bytes=10**8)
    feed.view.presence("w1", seen, 1_000_005.0)
    client = browser("viewer")
    told = client.get("/api/workers/w1").json()
    assert [(one["model"], one["turn"]) for one in told["versions"]] == [
        ("spare", 1),
        ("once", 2),
        ("again", 3),
        ("waited", 4),
        ("busy", 0),
        ("untold", 0),
        ("broken", 0),
    ]
    versions = {one["model"]: one for one in told["versions"]}
    assert versions["once"]["why"] == "not asked for twice within an hour; idle for 1.0 s, 9.5 MiB, 2.0 s to bring back"
    assert versions["once"]["used_at"] == "1970-01-12T13:46:39Z"
    assert versions["once"]["return_s"] == 2.0
    assert versions["busy"]["why"] == "stays: in use"
    assert versions["untold"]["why"] == "its worker had no room to say"
    assert (versions["broken"]["why"], versions["broken"]["used_at"]) == ("", None)
    assert (told["budget_bytes"], told["loaded_bytes"], told["host"]) == (10**8, 50_000_005, "north")
    page = client.get("/workers/w1").content.decode()
    assert page.index(">spare<") < page.index("next<") < page.index(">once<")
    assert "47.7 MiB of 95.4 MiB" in page
    listed = client.get("/api/workers").json()
    assert [(one["id"], one["state"]) for one in listed] == [("w1", "ready"), ("w2", "lost")]
    assert client.get("/api/workers/w9").status_code == 404
