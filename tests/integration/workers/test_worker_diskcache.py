"""Models of repositories in an object store: fetched by real workers from a real S3 into the host's disk cache."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
import pytest_asyncio

from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put, remove
from signalbox.jobs.times import FETCH, LOAD, QUEUE, VERIFY
from signalbox.jobs.waiting import Decision, hindrance
from signalbox.ops.ports import HOST, free_port
from signalbox.wire import names
from signalbox.wire.manifests import HostCache, VersionDigest
from signalbox.wire.messages import State, decode
from signalbox.wire.modeldocs import Limits, Model, Version
from signalbox.wire.names import Bucket, Header
from signalbox.wire.workerdocs import Residency, Worker
from tests.rigs import lightworker, models, workerhouse
from tests.rigs.lightrunner import KIND, LIE
from tests.rigs.objectstore import SECRET, ObjectStoreServer
from tests.rigs.remotemodels import HALF, REPOSITORY, RemoteModels
from tests.rigs.submit import Ledger, floats, read_floats, register
from tests.rigs.workerprocess import WorkerProcess
from verification.chaos.environment.proxy import CALM, Proxy, Weather
from verification.chaos.environment.smalldisk import SmallDisk
from workers.diskcache import pinned
from workers.runner import savedmodel

HELD = Weather(held=frozenset({"down"}))
"""The store takes what it is asked for, and answers nothing."""


class Presence:
    """What workers tell of themselves."""

    def __init__(self, bus: Bus) -> None:
        self.table = Table(bus, Bucket.WORKERS, Worker)
        self._changed = asyncio.Event()
        self.table.on_change(lambda *_: self._changed.set())

    def workers(self) -> list[Worker]:
        return list(self.table.items().values())

    def of(self, model: str, *, worker: str = "") -> list[Residency]:
        return [r for one in self.workers() if worker in {"", one.id} for r in one.models if r.model == model]

    def coming(self) -> int:
        """How many versions are told of whose bytes have begun to come."""
        return sum(told.fetch_bytes > 0 for worker in self.workers() for told in worker.models)

    async def until(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        """Wait until ``condition()`` holds, looked at after each document."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def fault(self, model: str, words: str) -> None:
        """Wait until a worker says that it fetches the model, and of its trouble these words, as jobs are told."""
        await self.until(lambda: any(r.state == "fetching" and words in r.error for r in self.of(model)))
        why = hindrance(model, 1, Decision(is_enabled=True, replicas=1, is_paused=False), self.workers())
        assert words.lower() in why.lower()


class Host(NamedTuple):
    """Workers of one host with toy runners, the cache that they share, and the way from there to the store."""

    bus: Bus
    ledger: Ledger
    presence: Presence
    remote: RemoteModels
    proxy: Proxy
    url: str
    folder: Path

    def worker(self, name: str = "w1", **settings: Any) -> WorkerProcess:
        known = {"program": lightworker.PROGRAM, **self.remote.settings(self.folder / "cache")}
        return WorkerProcess(self.url, self.folder, name, **(known | settings))

    def cached(self, model: str, version: int = 1) -> Path:
        return self.folder / "cache" / REPOSITORY / model / str(version)

    async def local(self, model: str) -> None:
        """A model whose files lie on the host."""
        await register(self.bus, model, lightworker.version("half"))

    async def submit(self, model: str, **more: Any) -> str:
        return await self.ledger.submit(model, floats(4.0), **more)

    async def answered(self, *ids: str) -> None:
        """These jobs have run."""
        records = await self.ledger.ended(*ids)
        assert [(record.state, record.error) for record in records] == [(State.SUCCEEDED, None)] * len(ids)


@pytest_asyncio.fixture
async def declared(tmp_path: Path) -> AsyncIterator[tuple[str, Bus]]:
    async with workerhouse.declared(tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def host(tmp_path: Path, declared: tuple[str, Bus], object_store: ObjectStoreServer) -> AsyncIterator[Host]:
    async with made_host(tmp_path, declared, object_store) as made:
        yield made


@asynccontextmanager
async def made_host(folder: Path, declared: tuple[str, Bus], store: ObjectStoreServer) -> AsyncIterator[Host]:
    url, bus = declared
    target = urlsplit(store.endpoint)
    assert target.hostname
    assert target.port
    async with Proxy((target.hostname, target.port)) as proxy:
        remote = RemoteModels(bus, store, folder, endpoint=f"http://{proxy.host}:{proxy.port}")
        presence = Presence(bus)
        await presence.table.start()
        try:
            yield Host(bus, await Ledger(bus).start(), presence, remote, proxy, url, folder)
        finally:
            await presence.table.close()


def seen(worker: WorkerProcess, event: str) -> list[dict[str, Any]]:
    return [line for line in worker.lines if line.get("event") == event]


async def test_a_job_of_a_model_in_an_object_store_is_answered(host: Host) -> None:
    folder = models.half_plus_two()
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    await host.remote.publish("half_plus_two", files)
    confined: dict[str, Any] = {"worker_model_folders": host.folder / "models", "log_level": "DEBUG"}
    async with host.worker(program="workers", **confined) as worker:
        job = await host.submit("half_plus_two")
        await host.answered(job)
        await host.ledger.until(lambda: job in host.ledger.reported)
        assert read_floats(host.ledger.reported[job]) == (4.0,)
        assert seen(worker, "cache.fetched")
        assert seen(worker, "model.staged")[0]["how"].keys() <= {"cloned", "linked"}, "nothing is copied"


async def test_a_cold_job_s_record_says_how_long_its_files_were_fetched_verified_and_loaded(host: Host) -> None:
    host.proxy.change(HELD)
    await host.remote.publish("far")
    async with host.worker():
        await host.presence.until(host.presence.workers)
        jobs = [await host.submit("far"), await host.submit("far")]
        await host.presence.fault("far", "")
        began = time.time()
        await host.presence.until(lambda: any(worker.beat_at > began + 0.2 for worker in host.presence.workers()))
        (told,) = host.presence.of("far")
        assert (told.fetched_bytes, told.fetch_bytes) == (0, sum(map(len, HALF.values())))
        host.proxy.change(CALM)
        await host.answered(*jobs, warm := await host.submit("far"))
        cold, second, later = await host.ledger.ended(*jobs, warm)
        assert {FETCH, VERIFY, LOAD} <= cold.parts.keys()
        for record in (cold, second):
            assert record.parts[FETCH] > 200
            assert record.parts[QUEUE] < record.parts[FETCH], "what is fetch is not queue"
        await host.presence.until(lambda: host.presence.workers()[0].load_s)
        (worker,) = host.presence.workers()
        assert worker.load_s.keys() == {"far"}
        assert worker.load_rate > 0
        assert worker.fetch_rates[REPOSITORY] > 0
        for record in (cold, second, later):
            assert sum(record.parts.values()) == pytest.approx(record.phases["done"], abs=0.05)


async def test_a_fetch_that_takes_long_delays_no_other_model_and_claims_no_job(host: Host) -> None:
    host.proxy.change(HELD)
    await host.remote.publish("far")
    await host.local("near")
    async with host.worker():
        waiting = await host.submit("far")
        await host.presence.fault("far", "")
        loaded = await host.submit("near")
        await host.answered(loaded)
        await host.answered(await host.submit("near"))
        assert host.ledger.last(waiting) is None, "no attempt of it has begun"
        host.proxy.change(CALM)
        await host.answered(waiting)


async def test_a_job_of_a_version_that_is_not_here_waits_unclaimed_beside_one_that_is(host: Host) -> None:
    first = await host.remote.publish("two")
    async with host.worker():
        await host.answered(await host.submit("two"))
        host.proxy.change(HELD)
        url = host.remote.put("two", HALF, version=2)
        await host.remote.list("two", version=2)
        later = Version(version=2, path=url, repository=REPOSITORY, joined=())
        await put(
            host.bus, Bucket.MODELS, "two", Model(name="two", versions=(*first.versions, later), default_version=1)
        )
        waiting = await host.submit("two", version=2)
        await host.presence.until(lambda: ("fetching", 2) in [(r.state, r.version) for r in host.presence.of("two")])
        await host.answered(await host.submit("two"))
        assert host.ledger.last(waiting) is None
        host.proxy.change(CALM)
        await host.answered(waiting)


async def test_two_workers_of_a_host_make_one_download(host: Host) -> None:
    host.proxy.change(HELD)
    await host.remote.publish("shared", replicas=2)
    async with host.worker("w1") as one, host.worker("w2", worker_device="cpu:1") as other:
        await one.ready()
        await other.ready()
        jobs = [await host.submit("shared") for _ in range(8)]
        await host.presence.until(lambda: len(host.presence.of("shared")) == 2)
        host.proxy.change(CALM)
        await host.presence.until(lambda: [r.state for r in host.presence.of("shared")] == ["ready"] * 2)
        await host.answered(*jobs)
        assert len(seen(one, "cache.fetched") + seen(other, "cache.fetched")) == 1


async def test_hosts_that_share_no_disk_fetch_each_for_themselves_and_have_the_same_bytes(host: Host) -> None:
    elsewhere = host._replace(folder=host.folder / "elsewhere")
    elsewhere.folder.mkdir()
    await host.remote.publish("spread", replicas=2)
    async with host.worker("w1") as one, elsewhere.worker("w2", worker_device="cpu:1") as other:
        await one.ready()
        await other.ready()
        jobs = [await host.submit("spread") for _ in range(8)]
        await host.presence.until(lambda: [r.state for r in host.presence.of("spread")] == ["ready"] * 2)
        await host.answered(*jobs)
        assert len({worker.host for worker in host.presence.workers()}) == 2
        assert all(seen(worker, "cache.fetched") for worker in (one, other))
    known = await digest_of(host.bus, "spread")
    for cached in (host.cached("spread"), elsewhere.cached("spread")):
        assert savedmodel.manifest(cached)[1] == known.digest


async def test_of_hosts_that_have_all_bytes_at_once_one_says_the_digest_for_all(host: Host) -> None:
    async def agree(name: str, key: tuple[str, int], found: str) -> str:
        try:
            await pinned.agree(host.bus, key, found, registered="", host=name)
        except pinned.OtherBytes as error:
            return error.public_message
        return ""

    for number in range(1, 11):
        key = ("raced", number)
        said = await asyncio.gather(agree("h1", key, "a" * 64), agree("h2", key, "b" * 64), agree("h3", key, "a" * 64))
        known = await pinned.digest(host.bus, key)
        assert known is not None
        assert [not words for words in said] == [each == known.digest[0] for each in "aba"]
        assert all(f"which {known.host} was the first to have" in words for words in said if words)


async def test_so_many_versions_of_a_repository_come_at_a_time(host: Host) -> None:
    host.proxy.change(HELD)
    names = ("first", "second", "third")
    for name in names:
        await host.remote.publish(name)
    async with host.worker(worker_fetches=2):
        jobs = [await host.submit(name) for name in names]
        await host.presence.until(lambda: host.presence.coming() == 2 and all(map(host.presence.of, names)))
        began = time.time()
        await host.presence.until(lambda: any(worker.beat_at > began + 0.2 for worker in host.presence.workers()))
        assert host.presence.coming() == 2
        host.proxy.change(CALM)
        await host.answered(*jobs)


async def test_what_nobody_has_asked_for_is_neither_fetched_nor_loaded(host: Host) -> None:
    for name in ("asked", "unasked"):
        await host.remote.publish(name)
    await host.local("near")
    async with host.worker() as worker:
        await host.presence.until(lambda: [r.state for r in host.presence.of("near")] == ["ready"])
        await host.answered(await host.submit("asked"))
        assert not host.presence.of("unasked")
        await worker.kill()
    async with host.worker("w2"):
        await host.presence.until(lambda: host.presence.of("asked", worker="w2"))
        assert not host.presence.of("unasked"), "what was used lies here, and is loaded ahead"
        assert not host.cached("unasked").parent.exists()


async def test_a_worker_that_waits_for_the_device_takes_no_ticket_for_what_is_being_fetched(host: Host) -> None:
    host.proxy.change(HELD)
    await host.remote.publish("far")
    await host.local("near")
    async with host.worker("w1") as holder:
        await holder.said("lease.acquired")
        async with host.worker("w2") as other:
            await other.ready()
            waiting = await host.submit("far")
            await host.presence.until(lambda: [r.state for r in host.presence.of("far")] == ["fetching"] * 2)
            await host.answered(await host.submit("near"))
            host.proxy.change(CALM)
            await host.answered(waiting)
            assert not seen(other, "lease.acquired")


async def test_a_fetch_goes_on_after_a_crash_and_by_the_list_that_is_published_anew(host: Host) -> None:
    big, small = "variables/variables.data-00000-of-00001", KIND
    await host.remote.publish("resumed")
    host.remote.put("resumed", {small: b"half"[::-1]})
    async with host.worker(worker_fetch_streams=1) as worker:
        job = await host.submit("resumed")
        await host.presence.fault("resumed", f"{small} has changed in the repository")
        await worker.kill()
    assert (host.cached("resumed").with_name("1.part") / big).read_bytes() == HALF[big]
    host.remote.put("resumed", {small: b"half"})
    await host.remote.list("resumed")
    host.remote.server.delete(host.remote.bucket, f"models/resumed/1/{Path(big).parent}")
    async with host.worker("w2"):
        await host.answered(job)


async def test_the_least_recently_used_version_leaves_and_what_is_loaded_stays(host: Host) -> None:
    size = sum(map(len, HALF.values()))
    for name in ("lru-a", "lru-b", "lru-c"):
        await host.remote.publish(name)
    one_in_memory: dict[str, Any] = {"worker_memory_budget_bytes": 1 << 20, "worker_is_warm": False}
    port = free_port()
    async with host.worker(worker_cache_bytes=2 * size, metrics_port=port, **one_in_memory) as worker:
        for name in ("lru-a", "lru-b", "lru-c"):
            await host.answered(await host.submit(name))
        await host.answered(await host.submit("lru-c"))
        await host.answered(await host.submit("lru-b"))
        async with httpx.AsyncClient() as client:
            served = (await client.get(f"http://{HOST}:{port}/metrics")).text.splitlines()
        assert {
            f'signalbox_worker_cache_fetched_bytes_total{{model="lru-a"}} {size:.1f}',
            'signalbox_worker_cache_evictions_total{model="lru-a",reason="room"} 1.0',
            'signalbox_worker_cache_misses_total{model="lru-b"} 1.0',
            'signalbox_worker_cache_hits_total{model="lru-b"} 1.0',
            'signalbox_worker_cache_fetch_seconds_count{model="lru-a"} 1.0',
            'signalbox_worker_load_seconds_count{model="lru-a"} 1.0',
            'tfservingcache_cache_total{model="lru-c",version="1"} 2.0',
            'tfservingcache_cache_misses_total{model="lru-c",version="1"} 1.0',
            'tfservingcache_cache_hits_total{model="lru-c",version="1"} 1.0',
            'tfservingcache_cache_duration_seconds_count{model="lru-c",version="1"} 2.0',
            'tfservingcache_cache_fetch_duration_seconds_count{model="lru-c",version="1"} 1.0',
        } <= set(served)
        assert [host.cached(name).exists() for name in ("lru-a", "lru-b", "lru-c")] == [False, True, True]
        assert [line["model"] for line in seen(worker, "cache.evicted")] == ["lru-a"]
        assert not list((host.folder / "cache" / ".gone").iterdir())
    async with host.worker("w2", worker_cache_bytes=size, **one_in_memory):
        await host.answered(await host.submit("lru-a"))
        assert [host.cached(name).exists() for name in ("lru-a", "lru-b", "lru-c")] == [True, False, False]


async def test_what_the_catalog_drops_is_unloaded_and_leaves_the_cache(host: Host) -> None:
    kept = await host.remote.publish("kept")
    two = await host.remote.publish("kept", version=2, versions=())
    url = host.remote.put("kept", HALF, version=2)
    later = Version(version=2, path=url, repository=REPOSITORY, joined=())
    both = msgspec.structs.replace(two, versions=(*kept.versions, later))
    await put(host.bus, Bucket.MODELS, "kept", both)
    await host.remote.publish("gone")
    async with host.worker(worker_cache_dropped_s=0) as worker:
        for job in ("kept", "gone"):
            await host.answered(await host.submit(job))
        await host.answered(await host.submit("kept", version=2))
        await put(host.bus, Bucket.MODELS, "kept", kept)
        await remove(host.bus, Bucket.MODELS, "gone")
        await worker.said("cache.evicted", count=2)
        evicted = {(line["model"], line["version"], line["reason"]) for line in seen(worker, "cache.evicted")}
        assert evicted == {("kept", 2, "dropped"), ("gone", 1, "dropped")}
        assert not host.cached("kept", 2).exists()
        assert not host.cached("gone").exists()
        assert host.cached("kept").exists()
        await host.presence.until(
            lambda: {(r.model, r.version) for w in host.presence.workers() for r in w.models} == {("kept", 1)}
        )


async def test_a_worker_that_was_away_evicts_what_was_dropped_meanwhile_and_nothing_of_a_lost_catalog(
    host: Host,
) -> None:
    for name in ("gone", "lost", "here"):
        await host.remote.publish(name)
    async with host.worker():
        await host.answered(*[await host.submit(name) for name in ("gone", "lost", "here")])
    await remove(host.bus, Bucket.MODELS, "gone")
    lost = {"filter": names.key(Bucket.MODELS, "lost")}
    await host.bus.request_json(f"$JS.API.STREAM.PURGE.{Bucket.MODELS.stream}", lost)
    async with host.worker("w2", worker_cache_dropped_s=0) as worker:
        await worker.said("cache.evicted")
        await host.answered(await host.submit("here"))
    assert [line["model"] for line in seen(worker, "cache.evicted")] == ["gone"]
    assert [host.cached(name).exists() for name in ("gone", "lost", "here")] == [False, True, True]


async def test_idle_models_leave_memory_where_their_files_leave_no_room_for_what_a_job_waits_for(host: Host) -> None:
    size = sum(map(len, HALF.values()))
    for name in ("idle-a", "idle-b", "cold"):
        await host.remote.publish(name)
    async with host.worker(worker_cache_bytes=2 * size + 1000) as worker:
        for name in ("idle-a", "idle-b", "cold"):
            await host.answered(await host.submit(name))
        assert [line["model"] for line in seen(worker, "model.unloaded")] == ["idle-a"]
        assert [host.cached(name).exists() for name in ("idle-a", "idle-b", "cold")] == [False, True, True]


async def test_a_version_larger_than_the_cache_is_refused_with_the_reason(host: Host) -> None:
    await host.remote.publish("vast", limits=Limits(max_delivery=1))
    async with host.worker(worker_cache_bytes=1000):
        (record,) = await host.ledger.ended(await host.submit("vast"))
        assert record.error is not None
        assert record.error.code == "not_serving"
        assert "SIGNALBOX_WORKER_CACHE_BYTES" in record.error.message
        await host.presence.until(lambda: [r.state for r in host.presence.of("vast")] == ["failed"])


async def test_an_endpoint_that_is_away_costs_its_models_alone(host: Host) -> None:
    host.proxy.change(Weather(is_refusing=True))
    await host.remote.publish("away")
    await host.local("here")
    async with host.worker():
        waiting = await host.submit("away")
        await host.presence.fault("away", "away")
        await host.answered(await host.submit("here"))
        host.proxy.change(CALM)
        await host.answered(waiting)


async def test_wrong_credentials_are_said_and_taken_when_they_are_right(host: Host) -> None:
    sent: list[bytes] = []
    subscription = await host.bus.subscribe(">", lambda message: sent.append(message.data))
    host.remote.write_credentials(secret_access_key="nobody-sees-this")
    await host.remote.publish("locked")
    async with host.worker(log_level="DEBUG") as worker:
        waiting = await host.submit("locked")
        await host.presence.fault("locked", "credentials")
        host.remote.write_credentials()
        await host.answered(waiting)
        assert seen(worker, "cache.not_fetched")
        for secret in ("nobody-sees-this", SECRET):
            assert secret not in str(worker.lines)
            assert secret.encode() not in b"\n".join(sent)
    await subscription.close()


@pytest.mark.parametrize("disk", ["cache"], indirect=True)
async def test_a_full_disk_is_said_and_the_fetch_goes_on_when_there_is_room(
    declared: tuple[str, Bus], object_store: ObjectStoreServer, tmp_path: Path, disk: SmallDisk
) -> None:
    async with made_host(tmp_path, declared, object_store) as host:
        await host.remote.publish("full")
        disk.fill()
        async with host.worker(worker_cache_dir=disk.folder, worker_staging_dir=tmp_path / "staging"):
            waiting = await host.submit("full")
            await host.presence.fault("full", "The disk of the cache is full")
            disk.free()
            await host.answered(waiting)


async def test_other_bytes_under_the_same_number_are_refused_and_the_cached_ones_serve_on(host: Host) -> None:
    changed = HALF | {"variables/variables.data-00000-of-00001": b"another" * 1000}
    await host.remote.publish("pinned", limits=Limits(max_delivery=1))
    async with host.worker() as worker:
        await host.answered(await host.submit("pinned"))
        known = await digest_of(host.bus, "pinned")
        host.remote.put("pinned", changed)
        await host.remote.list("pinned")
        await worker.kill()
    async with host.worker("w2"):
        await host.answered(await host.submit("pinned"))
    async with host.worker("w3", worker_cache_dir=host.folder / "another host"):
        (record,) = await host.ledger.ended(await host.submit("pinned"))
        assert record.error is not None
        assert record.error.code == "not_serving"
        assert "The files have changed" in record.error.message
        assert known.digest[:12] in record.error.message
        assert known.host in record.error.message
    assert await digest_of(host.bus, "pinned") == known


async def test_the_same_bytes_under_another_etag_are_fetched_again_compared_and_served(host: Host) -> None:
    big = "variables/variables.data-00000-of-00001"
    await host.remote.publish("twice", limits=Limits(max_delivery=1))
    before = await host.remote.list("twice")
    async with host.worker():
        await host.answered(await host.submit("twice"))
    known = await digest_of(host.bus, "twice")
    host.remote.server.put_in_parts(host.remote.bucket, f"models/twice/1/{big}", HALF[big])
    after = await host.remote.list("twice")
    assert [file.path for file in after.files if file not in before.files] == [big]
    async with host.worker("w2", worker_cache_dir=host.folder / "another host") as other:
        await host.answered(await host.submit("twice"))
        assert seen(other, "cache.fetched")
    assert await digest_of(host.bus, "twice") == known


async def test_damaged_files_in_the_cache_are_fetched_again(host: Host) -> None:
    await host.remote.publish("damaged")
    async with host.worker() as worker:
        await host.answered(await host.submit("damaged"))
        await worker.kill()
    (host.cached("damaged") / KIND).write_text("half?")
    async with host.worker("w2"):
        await host.answered(await host.submit("damaged"))
    assert (host.cached("damaged") / KIND).read_text() == "half"


async def test_the_first_host_that_loads_a_version_in_place_says_its_digest_and_others_compare(host: Host) -> None:
    folder = host.folder / "models"
    folder.mkdir()
    (folder / KIND).write_text("half")
    version = Version(version=1, path=str(folder), repository="roots", joined=())
    await put(
        host.bus, Bucket.MODELS, "placed", Model(name="placed", versions=(version,), limits=Limits(max_delivery=1))
    )
    async with host.worker():
        await host.answered(await host.submit("placed"))
    known = await digest_of(host.bus, "placed")
    assert known.digest
    (folder / "more").write_text("more")
    async with host.worker("w2"):
        (record,) = await host.ledger.ended(await host.submit("placed"))
        assert record.error is not None
        assert "their digest differs" in record.error.message
    assert await digest_of(host.bus, "placed") == known


async def test_what_a_runner_says_of_files_is_never_written_as_their_digest(host: Host) -> None:
    folder = host.folder / "models"
    folder.mkdir()
    (folder / KIND).write_text("half")
    (folder / LIE).write_text("f" * 64)
    version = Version(version=1, path=str(folder), repository="roots", joined=())
    model = Model(name="hostile", versions=(version,), limits=Limits(max_delivery=1))
    await put(host.bus, Bucket.MODELS, "hostile", model)
    async with host.worker(worker_is_warm=False):
        (record,) = await host.ledger.ended(await host.submit("hostile"))
        assert record.error is not None
        assert "their digest is ffffffffffff" in record.error.message
    assert (await digest_of(host.bus, "hostile")).digest == savedmodel.manifest(folder)[1]


async def digest_of(bus: Bus, model: str) -> VersionDigest:
    """What is pinned of the bytes of version 1."""
    subject = names.key(Bucket.DIGESTS, names.version_key(model, 1))
    stored = await bus.leader_get(Bucket.DIGESTS.stream, subject)
    assert stored is not None
    return decode(VersionDigest, stored.data)


async def test_what_the_cache_of_a_host_holds_is_reported_with_each_change(host: Host) -> None:
    written: asyncio.Queue[HostCache] = asyncio.Queue()
    subject = names.key(Bucket.CACHES, "*")
    subscription = await host.bus.subscribe(subject, lambda m: written.put_nowait(decode(HostCache, m.data)))

    async def holds(*models: str) -> HostCache:
        async with asyncio.timeout(30):
            while True:
                found = await written.get()
                if {one.model for one in found.versions if one.digest}.issuperset(models):
                    return found

    size = sum(map(len, HALF.values()))
    for name in ("first", "second", "third"):
        await host.remote.publish(name)
    settings: dict[str, Any] = {"worker_cache_bytes": 2 * size, "worker_is_warm": False}
    async with host.worker(**settings):
        empty = await holds()
        assert (empty.used_bytes, empty.limit_bytes, empty.count) == (0, 2 * size, 0)
        await host.answered(await host.submit("first"))
        await host.answered(await host.submit("second"))
        two = await holds("first", "second")
        assert (two.used_bytes, two.count) == (2 * size, 2)
        assert {(one.repository, one.size_bytes) for one in two.versions} == {(REPOSITORY, size)}
        [worker] = host.presence.table.items().values()
        assert worker.host.startswith(f"{two.host}/")
    async with host.worker("w2", **settings):
        await host.answered(await host.submit("third"))
        assert (await holds("third")).host == two.host, "one document for all workers of a host"
    (stored,) = [one async for page in host.bus.list_pages(Bucket.CACHES.stream, [subject]) for one in page]
    assert stored.headers[Header.TTL] == "180", "a host that is gone leaves"
    await subscription.close()
