"""Repositories are listed and what they hold is registered: folders and a real S3, on a real NATS."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from msgspec.structs import replace

from console.accounts.models import System
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog import inspection, judging, services
from console.catalog.models import ModelVersion, ServedModel
from console.config import ConsoleSettings
from console.controller import readiness
from console.database import DATABASE_FAULTS
from console.noticing import digests, listing
from console.noticing.graphs import Graphs
from console.noticing.leadership import Leadership
from console.noticing.listing import Place
from console.noticing.loop import Noticing
from console.noticing.plan import Step
from console.outbox.models import OutboxEntry
from console.outbox.publisher import Publisher
from console.repositories.models import Listing, Repository
from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put
from signalbox.program.settings import Wire
from signalbox.repositories.store import ObjectStore
from signalbox.wire import messages, names
from signalbox.wire.names import Bucket
from tests.console.conftest import in_thread
from tests.rigs.models import half_plus_two, half_plus_two_v1, picky
from tests.rigs.natsserver import NatsServer
from tests.rigs.objectstore import ObjectStoreServer
from tests.unit.workers.runner.test_model_gate import field

pytestmark = pytest.mark.django_db(transaction=True)
GRAPH = "saved_model.pb"
LIMIT_S = 60.0


class Rig:
    """A repository and what notices it, with a clock of the test's own."""

    def __init__(self, bus: Bus, console: ConsoleSettings, url: str) -> None:
        self.bus = bus
        self.url = url
        self.now = float(int(time.time()) + 3600)  # a database rounds
        self.noticing = Noticing(bus, console, clock=lambda: self.now)

    async def listed(self, **values: Any) -> Listing:
        """What the listing says after one more of it; values: of the repository."""
        return await in_thread(self._found, await self._notice(values))

    async def _notice(self, values: dict[str, Any]) -> Repository:
        row = await in_thread(self.row, **values)
        await self.noticing.notice(row)
        return row

    def row(self, **values: Any) -> Repository:
        """The repository ``zoo``, which waits for nothing."""
        defaults = {"url": self.url, "settle_s": 0.0, "added_by": "ann", "changed_by": "ann", **values}
        return Repository.objects.update_or_create(name="zoo", defaults=defaults)[0]

    def _found(self, row: Repository) -> Listing:
        return Listing.objects.get(repository=row)

    async def manifest(self, model: str, version: int) -> messages.Manifest:
        """Of a version, as hosts read it."""
        subject = names.key(Bucket.MANIFESTS, names.version_key(model, version))
        stored = await self.bus.direct_get(Bucket.MANIFESTS.stream, subject)
        assert stored is not None
        return messages.decode(messages.Manifest, stored.data)


class Published:
    """The documents of models, as NATS has them."""

    def __init__(self, table: Table[messages.Model]) -> None:
        self._table = table
        self._changed = asyncio.Event()
        table.on_change(lambda *_: self._changed.set())

    async def of(self, count: int) -> None:
        """Return when there are so many."""
        while len(self._table.items()) < count:
            self._changed.clear()
            await self._changed.wait()

    async def where(self, is_so: Callable[[messages.Model], bool]) -> messages.Model:
        """The first for which it is so."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                self._changed.clear()
                for doc in self._table.items().values():
                    if is_so(doc):
                        return doc
                await self._changed.wait()


@asynccontextmanager
async def running(*parts: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Parts of a program, meanwhile."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def documents(bus: Bus) -> AsyncIterator[Published]:
    """What is published, with what publishes it."""
    table = Table(bus, Bucket.MODELS, messages.Model)
    published = Published(table)
    await table.start()
    try:
        async with running(Publisher(bus, 0.1).run()):
            yield published
    finally:
        await table.close()


def lay(folder: Path, model: Path, version: Path | None = None) -> Path:
    """Copy a SavedModel to ``folder``."""
    shutil.copytree(version or half_plus_two(), folder / model)
    return folder / model


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """A folder with the versions 1 and 2 of a model ``half``."""
    folder = tmp_path / "zoo"
    lay(folder, Path("half/1"), half_plus_two_v1())
    lay(folder, Path("half/2"))
    return folder


@pytest.fixture
def rig(bus: Bus, console: ConsoleSettings, zoo: Path) -> Rig:
    """A repository in a folder."""
    return Rig(bus, console, f"file://{zoo}")


@pytest.fixture
def s3(bus: Bus, console: ConsoleSettings, tmp_path: Path, zoo: Path, object_store: ObjectStoreServer) -> Rig:
    """A repository in a bucket of S3, below a prefix."""
    bucket = object_store.bucket()
    object_store.put_folder(bucket, "models/zoo", zoo)
    credentials = object_store.credentials(tmp_path / "credentials", "zoo")
    return Rig(bus, replace(console, repository_credentials=str(credentials)), f"s3://{bucket}/models/zoo")


def document(name: str = "half") -> messages.Model:
    """The newest decision on a model."""
    return messages.decode(messages.Model, OutboxEntry.objects.filter(key=name).latest("pk").body)


def served(name: str = "half") -> list[int]:
    """Versions that the newest decision has."""
    return [version.version for version in document(name).versions]


def failures() -> list[str]:
    """What the audit says of registrations that failed."""
    return list(AuditEntry.objects.filter(result=AuditEntry.FAILED).values_list("message", flat=True))


def files_of(folder: str) -> dict[str, bytes]:
    """A SavedModel of its own in ``folder``: its graph is like no other."""
    model = half_plus_two()
    files = {path.relative_to(model).as_posix(): path.read_bytes() for path in model.rglob("*") if path.is_file()}
    files[GRAPH] += field(15, folder.encode())
    return {f"{folder}/{path}": data for path, data in files.items()}


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Write them below ``folder``."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


async def test_models_in_a_folder_are_served_by_themselves(bus: Bus, console: ConsoleSettings, zoo: Path) -> None:
    rig = Rig(bus, console, f"file://{zoo}")
    await in_thread(rig.row, access=Repository.EVERYBODY)
    async with documents(bus) as published, running(rig.noticing.run()):
        found = await published.where(lambda doc: len(doc.versions) == 2)
        manifest = await rig.manifest("half", 2)
    assert [(v.version, v.path, v.repository, v.digest) for v in found.versions] == [
        (1, f"{zoo}/half/1", "zoo", ""),
        (2, f"{zoo}/half/2", "zoo", ""),
    ]
    whole = await in_thread(inspection.inspect, half_plus_two())
    assert (found.versions[1].signatures, found.versions[1].size_bytes) == (whole.signatures, whole.size_bytes)
    assert found.access.is_open
    assert (manifest.repository, manifest.url) == ("zoo", f"file://{zoo}/half/2")
    assert {file.path: file.size_bytes for file in manifest.files} == {
        path.relative_to(zoo / "half/2").as_posix(): path.stat().st_size
        for path in (zoo / "half/2").rglob("*")
        if path.is_file()
    }
    entry = await in_thread(AuditEntry.objects.get)
    assert (entry.actor_name, entry.target, entry.after["versions"]) == ("system:repository:zoo", "half", [1, 2])


async def test_models_in_a_bucket_are_registered_by_a_page_and_one_read_of_each_new_graph(
    s3: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages, read = ObjectStore.pages, ObjectStore.read
    asked: list[str] = []

    async def counted_pages(self: ObjectStore, start_after: str = "") -> AsyncIterator[Any]:
        async for page in pages(self, start_after):
            asked.append("page")
            yield page

    async def counted_read(self: ObjectStore, path: str, **others: Any) -> bytes:
        asked.append(path)
        return await read(self, path, **others)

    monkeypatch.setattr(ObjectStore, "pages", counted_pages)
    monkeypatch.setattr(ObjectStore, "read", counted_read)
    listing = await s3.listed()
    assert (listing.error, listing.models_found, listing.versions_found, listing.waiting) == ("", 1, 2, 0)
    assert sorted(asked) == ["half/1/saved_model.pb", "half/2/saved_model.pb", "page"]
    found = await in_thread(document)
    assert [(v.version, v.path) for v in found.versions] == [(1, f"{s3.url}/half/1"), (2, f"{s3.url}/half/2")]
    manifest = await s3.manifest("half", 2)
    assert manifest.url == f"{s3.url}/half/2"
    assert all(file.etag for file in manifest.files)
    asked.clear()
    await s3.listed()
    assert asked == ["page"]
    assert await in_thread(AuditEntry.objects.count) == 1
    model = await in_thread(ServedModel.objects.get)
    assert model.base_path == f"{s3.url}/half"


async def test_a_bad_version_is_refused_with_the_reason_once_and_costs_no_other(rig: Rig, zoo: Path) -> None:
    (zoo / "bad" / "1").mkdir(parents=True)
    (zoo / "bad" / "1" / GRAPH).write_bytes(b"no model at all")
    shutil.rmtree(lay(zoo, Path("part/1")) / "variables")
    lay(zoo, Path("..half/1"))
    listing = await rig.listed()
    assert await in_thread(served) == [1, 2]
    assert listing.refused["bad/1"] == "saved_model.pb is damaged, cut short, or no SavedModel."
    assert listing.refused["part/1"] == "Its graph names files that are not there: variables/variables.index."
    assert len(listing.refused) == listing.refusals == 3
    assert (listing.models_found, listing.waiting) == (3, 0)
    again = await rig.listed()
    assert again.refused == listing.refused
    assert await in_thread(failures) == []
    shutil.copytree(half_plus_two() / "variables", zoo / "part/1/variables")
    assert "part/1" not in (await rig.listed()).refused
    assert await in_thread(served, "part") == [1]


async def test_a_name_that_another_has_is_refused_by_name(rig: Rig, zoo: Path, admin: Actor) -> None:
    await in_thread(services.register, admin, "half", str(zoo / "half"))
    lay(zoo, Path("other/1"))
    listing = await rig.listed()
    assert listing.refused == {
        "half": "half is the name of a model whose versions people add. Rename the model in the repository."
    }
    assert await in_thread(served, "other") == [1]
    twin = await in_thread(lambda: Repository.objects.create(name="twin", url=rig.url, settle_s=0.0))
    await rig.noticing.notice(twin)
    refused = (await in_thread(Listing.objects.get, repository=twin)).refused
    assert refused["other"].startswith("other is the name of a model whose versions repository zoo brings.")


async def test_what_has_vanished_is_withdrawn_after_the_grace_and_is_back_with_its_files(rig: Rig, zoo: Path) -> None:
    await rig.listed(grace_s=100.0)
    (zoo / "half" / "2").rename(zoo.parent / "aside")
    await rig.listed(grace_s=100.0)
    rig.now += 99
    await rig.listed(grace_s=100.0)
    assert await in_thread(served) == [1, 2]
    assert (await in_thread(ModelVersion.objects.get, number=2)).vanished_at is not None
    rig.now += 1
    await rig.listed(grace_s=100.0)
    assert await in_thread(served) == [1]
    (zoo.parent / "aside").rename(zoo / "half" / "2")
    await rig.listed(grace_s=100.0)
    assert await in_thread(served) == [1, 2]
    row = await in_thread(ModelVersion.objects.get, number=2)
    assert (row.vanished_at, row.is_withdrawn) == (None, False)


async def test_a_listing_that_fails_or_empties_withdraws_nothing_and_says_so(rig: Rig, zoo: Path) -> None:
    await rig.listed(grace_s=0.0)
    shutil.move(zoo, zoo.parent / "aside")
    failed = await rig.listed(grace_s=0.0)
    assert failed.error.startswith(f"The folder {zoo} cannot be read")
    assert failed.alarm == "The listing failed: nothing that has vanished is withdrawn."
    assert failed.models_found == 1, "as it was found last"
    await asyncio.to_thread(zoo.mkdir)
    await rig.listed(grace_s=0.0)
    emptied = await rig.listed(grace_s=0.0)
    assert emptied.alarm.startswith("The listing has 0 versions, and 2 were there: nothing is withdrawn.")
    assert emptied.error == ""
    assert await in_thread(served) == [1, 2]
    (zoo.parent / "aside" / "half").rename(zoo / "half")
    assert (await rig.listed(grace_s=0.0)).alarm == ""


async def test_an_operator_who_saves_the_repository_confirms_that_it_has_emptied(rig: Rig, zoo: Path) -> None:
    await rig.listed(grace_s=0.0)
    shutil.rmtree(zoo / "half")
    assert (await rig.listed(grace_s=0.0)).alarm
    row = await in_thread(rig.row, grace_s=0.0)
    row.updated_at = row.updated_at.fromtimestamp(rig.now + 1, tz=row.updated_at.tzinfo)
    await in_thread(row.save)
    for _ in range(2):
        rig.now += 2
        assert (await rig.listed(grace_s=0.0)).alarm == ""
    assert await in_thread(served) == []


async def test_an_object_store_that_is_away_costs_nothing_that_serves(
    bus: Bus, console: ConsoleSettings, tmp_path: Path, zoo: Path, object_store: ObjectStoreServer
) -> None:
    credentials = object_store.credentials(tmp_path / "c", "zoo", endpoint="http://127.0.0.1:1")
    rig = Rig(bus, replace(console, repository_credentials=str(credentials)), f"s3://{object_store.bucket()}")
    failed = await rig.listed()
    assert (failed.error, bool(failed.alarm), failed.listed_at) != ("", False, None)
    object_store.credentials(tmp_path / "c", "zoo", secret_access_key="wrong")
    failed = await rig.listed()
    assert "refuses its credentials" in failed.error


async def test_new_files_of_a_version_that_never_loaded_are_registered_with_a_new_manifest(rig: Rig, zoo: Path) -> None:
    await rig.listed()
    before = await rig.manifest("half", 2)
    (zoo / "half/2/notes.txt").write_bytes(b"12345")
    shutil.copy(half_plus_two_v1() / GRAPH, zoo / "half/2" / GRAPH)
    size_bytes = (await in_thread(document)).versions[1].size_bytes
    await rig.listed()
    after = await rig.manifest("half", 2)
    assert {file.path for file in after.files} == {"notes.txt", *(file.path for file in before.files)}
    document_size = (await in_thread(document)).versions[1].size_bytes
    assert document_size == sum(file.size_bytes for file in after.files) != size_bytes


async def test_a_version_that_has_loaded_keeps_its_row_and_says_what_has_changed(rig: Rig, zoo: Path) -> None:
    await rig.listed()
    await in_thread(readiness.note, [("half", 1), ("half", 2)])
    rows = await in_thread(lambda: list(ModelVersion.objects.values_list("size_bytes", "signatures", "added_at")))
    for graph in (zoo / "half/1" / GRAPH, zoo / "half/2" / GRAPH):
        os.utime(graph, ns=(1, 1))
    with (zoo / "half/2" / GRAPH).open("ab") as file:
        file.write(b"more")
    listing = await rig.listed()
    assert listing.refused.keys() == {"half/2"}
    assert "put the new files under another number" in listing.refused["half/2"]
    etags = [{file.path: file.etag for file in (await rig.manifest("half", number)).files}[GRAPH] for number in (1, 2)]
    assert etags[0].startswith("1-"), "the same names and sizes: hosts fetch again and compare"
    assert not etags[1].startswith("1-")
    assert rows == await in_thread(
        lambda: list(ModelVersion.objects.values_list("size_bytes", "signatures", "added_at"))
    )


async def test_a_graph_that_changes_after_the_listing_waits_for_the_next_one(
    s3: Rig, object_store: ObjectStoreServer
) -> None:
    repositories = s3.noticing._repositories
    place = Place("zoo", s3.url)
    found = await repositories.find(place)
    steps = [Step("half", number, version, "") for number, version in found.models["half"].versions.items()]
    bucket, prefix = s3.url.removeprefix("s3://").split("/", 1)
    object_store.put(bucket, {f"{prefix}/half/2/{GRAPH}": b"other"})
    graphs = Graphs(repositories)
    said, refused = await graphs.read(place, steps)
    assert (list(said), refused) == ([("half", 1)], {})
    object_store.delete(bucket, f"{prefix}/half")
    assert (await graphs.read(place, steps)) == (said, {}), "what its ETag names was read"


async def test_a_graph_that_is_too_large_is_refused_unread(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_GRAPH_BYTES", 1000)
    refused = (await rig.listed()).refused
    assert refused.keys() == {"half/1", "half/2"}
    assert refused["half/1"].endswith("bytes; at most 1000 are read.")


async def test_where_no_inspector_runs_the_listing_says_so_and_all_comes_later(
    bus: Bus, console: ConsoleSettings, settings: Any, zoo: Path
) -> None:
    rig = Rig(bus, console, f"file://{zoo}")
    settings.CONSOLE = replace(console, inspect_command="/no/such/program")
    assert "does not start" in (await rig.listed()).error
    settings.CONSOLE = console
    assert (await rig.listed()).error == ""
    assert await in_thread(served) == [1, 2]


async def test_a_version_with_forbidden_operations_waits_for_a_person(rig: Rig, zoo: Path) -> None:
    shutil.copytree(picky(), zoo / "picky" / "1")
    await rig.listed()
    assert await in_thread(served, "picky") == []
    assert (await in_thread(ModelVersion.objects.get, model__name="picky")).listed_ops.keys() == {"Abort"}


async def test_nothing_is_registered_whose_manifest_nats_does_not_have(
    own_nats: NatsServer, console: ConsoleSettings, zoo: Path
) -> None:
    bus = await Bus.connect(Wire(nats_url=own_nats.url, request_timeout_s=1.0), role="admin")
    try:
        rig = Rig(bus, console, f"file://{zoo}")
        await rig.listed()
        lay(zoo, Path("late/1"))
        await own_nats.stop()
        listing = await rig.listed()
        assert (bool(listing.error), listing.alarm, listing.models_found) == (True, "", 2)
        assert not await in_thread(ServedModel.objects.filter(name="late").exists)
    finally:
        await bus.close()
    await own_nats.start()


async def test_manifests_that_nats_lost_are_written_again(rig: Rig, bus: Bus) -> None:
    await rig.listed()
    before = await rig.manifest("half", 2)
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Bucket.MANIFESTS.stream}")
    rig.noticing._doubt_manifests()  # as after a reconnect
    rig.now += 1
    await rig.listed()
    assert (await rig.manifest("half", 2)).files == before.files
    assert await in_thread(AuditEntry.objects.count) == 1


async def test_one_controller_of_several_lists_and_another_one_takes_over() -> None:
    first, second, third = Leadership(), Leadership(), Leadership()
    is_shared = connection.vendor == "postgresql"
    assert await in_thread(first.is_ours)
    assert await in_thread(first.is_ours)
    assert await in_thread(second.is_ours) is not is_shared
    await in_thread(first.resign)
    assert await in_thread(second.is_ours)
    assert not await in_thread(first.is_ours)
    assert await in_thread(third.is_ours) is not is_shared
    if is_shared:
        await in_thread(_end_sessions_with_a_lock)
        with pytest.raises(DATABASE_FAULTS):
            await in_thread(second.is_ours)
        assert await in_thread(third.is_ours)
    for each in (second, third):
        await in_thread(each.resign)


def _end_sessions_with_a_lock() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'")


async def test_requests_are_spaced_so_that_no_second_has_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    pace = listing.Pace(50.0)
    for _ in range(101):
        await pace.turn()
    assert 1.0 < slept[-1] <= 2.0


async def test_read_only_mode_stops_noticing(rig: Rig) -> None:
    await in_thread(System(is_read_only=True).save)
    await in_thread(rig.row)
    assert await rig.noticing._noticed() == []
    await rig.listed()
    assert not await in_thread(ServedModel.objects.exists), "what a listing found meanwhile is not registered"
    await in_thread(System().save)
    assert [row.name for row in await rig.noticing._noticed()] == ["zoo"]
    await in_thread(rig.noticing._leadership.resign)  # or its session of PostgreSQL would be left open


async def test_a_digest_that_a_host_wrote_is_noted_and_published(rig: Rig, bus: Bus, zoo: Path) -> None:
    await rig.listed()
    await put(bus, Bucket.DIGESTS, names.version_key("half", 1), messages.VersionDigest(digest="d" * 64), expect=0)
    async with documents(bus) as published, running(digests.keep_noted(bus)):
        await published.where(lambda doc: doc.versions[0].digest == "d" * 64)
        await put(bus, Bucket.DIGESTS, names.version_key("half", 2), messages.VersionDigest(digest="e" * 64), expect=0)
        await published.where(lambda doc: doc.versions[1].digest == "e" * 64)
    (zoo / "half/2/notes.txt").write_bytes(b"new")
    assert (await rig.listed()).refused.keys() == {"half/2"}, "a host has the bytes of before"


async def test_versions_are_judged_anew_by_another_list(rig: Rig) -> None:
    await rig.listed()
    await in_thread(ModelVersion.objects.update, rules="an older list")
    assert await in_thread(judging.judge_anew) == 0, "their files are in the repository alone"
    await rig.listed()
    rules = await in_thread(inspection.rules)
    assert await in_thread(lambda: set(ModelVersion.objects.values_list("rules", flat=True))) == {rules}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("place", "count"), [("rig", 10_000), ("s3", 2_000)])
async def test_thousands_of_models_are_noticed(
    place: str, count: int, request: pytest.FixtureRequest, bus: Bus, zoo: Path, object_store: ObjectStoreServer
) -> None:
    rig: Rig = request.getfixturevalue(place)
    parts = [f"m{number}/1" for number in range(count)]
    if place == "s3":
        bucket, prefix = rig.url.removeprefix("s3://").split("/", 1)
        copies = [{f"{prefix}/{key}": data for key, data in files_of(part).items()} for part in parts]
        groups = [dict(chain.from_iterable(copy.items() for copy in copies[n::8])) for n in range(8)]
        await asyncio.gather(*(asyncio.to_thread(object_store.put, bucket, group) for group in groups))
    else:
        await asyncio.to_thread(write, zoo, dict(chain.from_iterable(files_of(part).items() for part in parts)))
    async with documents(bus) as published:
        begun = time.monotonic()
        listing = await rig.listed(grace_s=0.0)
        noticed_s = time.monotonic() - begun
        await published.of(count + 1)
        published_s = time.monotonic() - begun
        await rig.listed(grace_s=0.0)
        again = await rig.listed(grace_s=0.0)
    print(
        f"{place}: noticed in {noticed_s:.0f} s, published in {published_s:.0f} s, listed again in {again.took_s:.1f} s"
    )
    assert (listing.models_found, listing.refusals, listing.waiting) == (count + 1, 0, 0)
    assert await in_thread(ModelVersion.objects.filter(source="repository").count) == count + 2
