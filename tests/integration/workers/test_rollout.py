"""A new version is published while two gateways take predictions: a real NATS, a real worker around a toy engine."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from signalbox.bus.table import Table, remove
from signalbox.wire.modeldocs import Model, Serving, Version
from signalbox.wire.names import Bucket, token
from signalbox.wire.workerdocs import Worker
from tests.rigs import gateway as gatewayrig
from tests.rigs.gateway import HALF_PLUS_TWO, Key, Rig
from tests.rigs.natsserver import NatsServer
from tests.rigs.workerprocess import WorkerProcess

NAME = "rolling"
MIB = 1 << 20


class Site(NamedTuple):
    """Two gateways, one worker and what both say. folder: of the versions."""

    url: str
    gateways: list[Rig]
    worker: WorkerProcess
    key: Key
    folder: Path
    presence: Table[Worker]
    serving: Table[Serving]
    changed: asyncio.Event

    def version(self, number: int, **files: str) -> Version:
        """A version of 2 MiB whose load does what the files say; see :mod:`tests.rigs.lightrunner`."""
        path = self.folder / str(number)
        path.mkdir(exist_ok=True)
        for name, text in {"size": str(2 * MIB), **files}.items():
            (path / name).write_text(text)
        return Version(version=number, path=str(path), signatures={"serving_default": HALF_PLUS_TWO})

    async def publish(self, *versions: Version, default: int, **fields: object) -> None:
        """What the console publishes: all versions, and which one requests shall get."""
        model = Model(name=NAME, versions=versions, default_version=default, **fields)  # type: ignore[arg-type]  # of the test
        await self.gateways[0].publish(model)

    def states(self) -> dict[int, str]:
        """Version -> state on the worker."""
        found = self.presence.get(token("w1"))
        return {r.version: r.state for r in found.models} if found is not None else {}

    async def until(self, condition: Callable[[], object], timeout_s: float = 30.0) -> None:
        """Wait until ``condition()`` holds, looked at after each document."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def predict(self, gateway: int, path: str = "") -> int:
        """The version that answers."""
        got = await self.gateways[gateway].call(
            "POST", f"/v1/models/{NAME}{path}:predict", {"instances": [0.0]}, key=self.key
        )
        assert got.status == 200, got
        return int(got.doc["predictions"][0])

    async def listed(self, gateway: int) -> tuple[int, dict[str, int]]:
        """The default version and the labels, as the list of models shows them."""
        got = await self.gateways[gateway].call("GET", "/v1/models", key=self.key)
        (shown,) = got.doc["details"]
        return shown["default_version"], shown["labels"]


class Caller:
    """Asks both gateways in turn, one request after another, and writes down who answered."""

    def __init__(self, site: Site, path: str = "") -> None:
        self.versions: list[int] = []
        self._site, self._path = site, path
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._call())

    async def _call(self) -> None:
        while True:
            self.versions.append(await self._site.predict(len(self.versions) % 2, self._path))
            self._changed.set()

    async def answered(self, count: int, version: int) -> None:
        """Wait for so many more answers, all from one version."""
        begun = len(self.versions)
        await self.until(lambda: len(self.versions) >= begun + count)
        assert set(self.versions[begun : begun + count]) == {version}

    async def reached(self, version: int) -> None:
        """Wait for an answer from a version."""
        await self.until(lambda: self.versions[-1:] == [version])

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until ``condition()`` holds, looked at after each answer."""
        async with asyncio.timeout(60):
            while not condition():
                if self._task.done():
                    self._task.result()
                self._changed.clear()
                await self._changed.wait()

    async def end(self) -> list[int]:
        """All answers."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()
        return self.versions


@asynccontextmanager
async def site(url: str, folder: Path, **settings: object) -> AsyncIterator[Site]:
    """A site whose model has version 1, which is ready."""
    changed = asyncio.Event()
    key = gatewayrig.key()
    for name in "ab":
        (folder / name).mkdir()
    async with (
        WorkerProcess(
            url, folder, "w1", program="verification.chaos.rig.toyworker", worker_retire_s=0.5, **settings
        ) as worker,
        gatewayrig.rig(url, folder / "a") as first,
        gatewayrig.rig(url, folder / "b") as second,
    ):
        bus = first.bus
        presence, serving = Table(bus, Bucket.WORKERS, Worker), Table(bus, Bucket.SERVING, Serving)
        for table in (presence, serving):
            table.on_change(lambda *_: changed.set())
            await table.start()
        made = Site(url, [first, second], worker, key, folder, presence, serving, changed)
        try:
            await worker.said("lease.acquired")
            for rig in made.gateways:
                await rig.publish(key)
            await made.publish(made.version(1), default=1)
            await made.until(lambda: made.states() == {1: "ready"} and serving.get(token(NAME)))
            yield made
        finally:
            await presence.close()
            await serving.close()


def events(worker: WorkerProcess) -> list[tuple[str, int]]:
    """Loads and unloads, in order."""
    wanted = {"model.loaded", "model.unloaded"}
    return [(line["event"], line["version"]) for line in worker.lines if line["event"] in wanted]


async def test_no_caller_waits_for_the_load_of_a_new_version_and_none_sees_the_old_one_again(
    nats: NatsServer, tmp_path: Path
) -> None:
    async with site(nats.url, tmp_path) as made:
        callers = [Caller(made) for _ in range(3)]
        for caller in callers:
            await caller.answered(4, version=1)
        await made.publish(made.version(1), made.version(2, wait=""), default=2)
        await made.until(lambda: made.states() == {1: "ready", 2: "loading"})
        for caller in callers:
            await caller.answered(20, version=1)
        assert made.states() == {1: "ready", 2: "loading"}, "they were answered beside the load"
        (made.folder / "2" / "wait").unlink()
        for caller in callers:
            await caller.reached(2)
        await made.until(lambda: made.states() == {2: "ready"})
        for caller in callers:
            await caller.answered(4, version=2)
        for caller in callers:
            versions = await caller.end()
            assert versions == sorted(versions)
        assert events(made.worker) == [("model.loaded", 1), ("model.loaded", 2), ("model.unloaded", 1)]
        record = made.serving.get(token(NAME))
        assert record is not None
        assert (record.default, record.labels, record.failed) == (2, {}, ())
        assert await made.predict(0, "/versions/1") == 1, "who asks for it by its number gets it"


async def test_a_version_that_does_not_load_leaves_the_old_one_to_the_callers(nats: NatsServer, tmp_path: Path) -> None:
    async with site(nats.url, tmp_path) as made:
        caller = Caller(made)
        await made.publish(made.version(1), made.version(2, broken=""), default=2)
        await made.until(lambda: made.states() == {1: "ready", 2: "failed"})
        await made.until(lambda: (r := made.serving.get(token(NAME))) and r.failed == (2,))
        await caller.answered(10, version=1)
        (made.folder / "2" / "broken").unlink()
        await made.publish(made.version(1), made.version(2), default=2)
        await caller.reached(2)
        versions = await caller.end()
        assert versions == sorted(versions)


async def test_a_version_that_takes_the_runner_down_leaves_the_old_one_to_the_callers(
    nats: NatsServer, tmp_path: Path
) -> None:
    async with site(nats.url, tmp_path) as made:
        caller = Caller(made)
        await caller.answered(4, version=1)
        await made.publish(made.version(1), made.version(2, fatal=""), default=2)
        await made.until(lambda: (r := made.serving.get(token(NAME))) and r.failed == (2,))
        await made.until(lambda: made.states() == {1: "ready", 2: "failed"})
        await caller.answered(10, version=1)
        assert set(await caller.end()) == {1}


@pytest.mark.parametrize(
    ("known_bytes", "budget", "files"),
    [(2 * MIB, 3 * MIB, {}), (0, 3 * MIB, {}), (0, 9 * MIB, {"alone": ""})],
    ids=["by the catalog", "by what its load took", "by the memory of the device"],
)
async def test_where_only_one_version_fits_requests_move_at_once(
    nats: NatsServer, tmp_path: Path, known_bytes: int, budget: int, files: dict[str, str]
) -> None:
    async with site(nats.url, tmp_path, worker_memory_budget_bytes=budget) as made:
        caller = Caller(made)
        await caller.answered(4, version=1)
        new = replace(made.version(2, **files), size_bytes=known_bytes)
        await made.publish(made.version(1), new, default=2)
        await caller.reached(2)
        await made.until(lambda: made.states() == {2: "ready"})
        versions = await caller.end()
        assert versions == sorted(versions)


async def test_a_worker_that_starts_anew_serves_the_new_version_at_once(nats: NatsServer, tmp_path: Path) -> None:
    async with site(nats.url, tmp_path) as made:
        await made.publish(made.version(1), made.version(2, wait=""), default=2)
        await made.until(lambda: made.states() == {1: "ready", 2: "loading"})
        waiting = asyncio.create_task(made.predict(0))
        assert await waiting == 1
        await made.worker.kill()
        (made.folder / "2" / "wait").unlink()
        async with WorkerProcess(made.url, tmp_path, "w1", program="verification.chaos.rig.toyworker"):
            await made.until(lambda: (r := made.serving.get(token(NAME))) and r.default == 2)
            assert await made.predict(1) == 2


async def test_a_label_moves_when_its_version_is_ready_and_a_rollback_is_a_move_like_any_other(
    nats: NatsServer, tmp_path: Path
) -> None:
    async with site(nats.url, tmp_path) as made:
        one, two = made.version(1), made.version(2, wait="")
        await made.publish(one, default=1, labels={"stable": 1})
        caller = Caller(made, "/labels/stable")
        await caller.answered(4, version=1)
        await made.publish(one, two, default=1, labels={"stable": 2})
        await made.until(lambda: made.states() == {1: "ready", 2: "loading"})
        await caller.answered(10, version=1)
        assert await made.listed(0) == (1, {"stable": 1}), "the list says what requests get now"
        (made.folder / "2" / "wait").unlink()
        await caller.reached(2)
        assert await made.predict(0) == 1, "the default still is version 1, and is in memory"
        await made.publish(one, two, default=1, labels={"stable": 1})
        await caller.reached(1)
        await made.until(lambda: made.states() == {1: "ready"})
        versions = await caller.end()
        assert [version for version, _ in itertools.groupby(versions)] == [1, 2, 1]


async def test_the_record_of_a_model_leaves_with_it(nats: NatsServer, tmp_path: Path) -> None:
    async with site(nats.url, tmp_path) as made:
        name = token(NAME)
        await made.until(lambda: made.serving.get(name))
        await remove(made.gateways[0].bus, Bucket.MODELS, name)
        await made.until(lambda: made.serving.get(name) is None)
