"""Repositories are listed and what they hold is registered: folders and a real S3, on a real NATS."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from msgspec.structs import replace

from console.accounts.models import System
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog import inspection, judging, registration
from console.catalog.models import ModelVersion, ServedModel
from console.config import ConsoleSettings
from console.controller import readiness
from console.database import DATABASE_FAULTS
from console.deletion import leaving, versions, wholemodels
from console.live.database import unpublished
from console.noticing import digests
from console.noticing.graphs import Graphs
from console.noticing.leadership import Leadership
from console.noticing.listing import Pace, Place
from console.noticing.plan import Step
from console.repositories.models import Listing, Repository
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.program import metrics
from signalbox.program.settings import Wire
from signalbox.repositories.store import ObjectStore
from signalbox.wire import manifests, names
from signalbox.wire.names import Bucket
from tests.console.conftest import in_thread
from tests.console.noticing import (
    GRAPH,
    Rig,
    document,
    documents,
    failures,
    files_of,
    lay,
    running,
    served,
    write,
)
from tests.rigs.models import half_plus_two, half_plus_two_v1, picky
from tests.rigs.natsserver import NatsServer
from tests.rigs.objectstore import ObjectStoreServer

pytestmark = pytest.mark.django_db(transaction=True)


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


async def test_what_an_operator_has_deleted_is_never_noticed_again(rig: Rig, zoo: Path, admin: Actor) -> None:
    await rig.listed()
    await in_thread(versions.delete_version, admin, "half", 1)
    for files in ({}, {"half/1/notes.txt": b"other bytes"}):
        write(zoo, files)
        listing = await rig.listed()
        assert (await in_thread(served), listing.refusals, listing.waiting) == ([2], 0, 0)
    await in_thread(wholemodels.delete_model, admin, "half")
    lay(zoo, Path("half/3"))
    await rig.listed()
    for every in (ModelVersion, ServedModel):
        old = timezone.now() - timedelta(days=2)
        await in_thread(every.with_deleted.exclude(deleted_at=None).update, deleted_at=old)
    listing = await rig.listed()
    assert (listing.refusals, listing.error, listing.alarm) == (0, "", "")
    assert not await in_thread(ServedModel.objects.exists)
    await in_thread(leaving.sweep)
    assert all((zoo / "half" / number / GRAPH).exists() for number in "123"), "nothing there is touched"


async def test_a_version_that_is_deleted_while_it_is_inspected_is_not_registered(
    rig: Rig, zoo: Path, admin: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.listed()
    shutil.rmtree(zoo / "half/1")
    lay(zoo, Path("half/1"))  # no host has it, so that it is registered anew
    read = Graphs.read

    async def deleted_meanwhile(self: Graphs, place: Place, steps: Sequence[Step]) -> Any:
        await in_thread(versions.delete_version, admin, "half", 1)
        return await read(self, place, steps)

    monkeypatch.setattr(Graphs, "read", deleted_meanwhile)
    listing = await rig.listed()
    assert "was deleted by admin" in listing.refused["half/1"]
    assert await in_thread(served) == [2]
    monkeypatch.undo()
    assert (await rig.listed()).refusals == 0


async def test_a_version_settles_over_listings_and_one_that_grows_waits(rig: Rig, zoo: Path) -> None:
    assert (await rig.listed(settle_s=20.0)).waiting == 2
    assert not await in_thread(ServedModel.objects.exists)
    rig.now += 15
    write(zoo, {"half/2/notes.txt": b"more"})
    assert (await rig.listed(settle_s=20.0)).waiting == 2
    rig.now += 10
    assert (await rig.listed(settle_s=20.0)).waiting == 1
    assert await in_thread(served) == [1]
    rig.now += 10
    assert (await rig.listed(settle_s=20.0)).waiting == 0
    assert await in_thread(served) == [1, 2]


async def test_where_a_marker_is_agreed_on_a_version_is_taken_when_it_comes(rig: Rig, zoo: Path) -> None:
    assert (await rig.listed(marker="_SUCCESS", settle_s=3600.0)).waiting == 2
    write(zoo, {"half/2/_SUCCESS": b""})
    assert (await rig.listed(marker="_SUCCESS", settle_s=3600.0)).waiting == 1
    assert await in_thread(served) == [2]


async def test_a_bad_version_is_refused_with_the_reason_once_and_costs_no_other(rig: Rig, zoo: Path) -> None:
    (zoo / "bad" / "1").mkdir(parents=True)
    (zoo / "bad" / "1" / GRAPH).write_bytes(b"no model at all")
    shutil.rmtree(lay(zoo, Path("part/1")) / "variables")
    lay(zoo, Path("..half/1"))
    before = {reason: counted("refusals", reason=reason) for reason in ("graph", "incomplete", "layout")}
    listing = await rig.listed()
    assert await in_thread(served) == [1, 2]
    assert listing.refused["bad/1"] == "saved_model.pb is damaged, cut short, or no SavedModel."
    assert listing.refused["part/1"] == "Its graph names files that are not there: variables/variables.index."
    assert len(listing.refused) == listing.refusals == 3
    assert (listing.models_found, listing.waiting) == (3, 0)
    again = await rig.listed()
    assert again.refused == listing.refused
    assert {reason: counted("refusals", reason=reason) - was for reason, was in before.items()} == dict.fromkeys(
        before, 1
    )
    assert await in_thread(failures) == []
    shutil.copytree(half_plus_two() / "variables", zoo / "part/1/variables")
    assert "part/1" not in (await rig.listed()).refused
    assert await in_thread(served, "part") == [1]


async def test_a_name_that_another_has_is_refused_by_name(rig: Rig, zoo: Path, admin: Actor) -> None:
    await in_thread(registration.register, admin, "half", str(zoo / "half"))
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


async def test_a_link_that_leads_out_of_a_folder_is_refused_by_name(rig: Rig, zoo: Path) -> None:
    lay(zoo.parent, Path("beside/1"))
    (zoo / "beside").symlink_to(zoo.parent / "beside")
    assert (await rig.listed()).refused == {
        "beside": "It is a link that leads out of the repository: put the files here, or add a repository there."
    }


async def test_two_repositories_that_come_with_one_name_at_once_leave_the_first_its_files(rig: Rig, zoo: Path) -> None:
    lay(zoo.parent / "twin", Path("half/1"))
    url = f"file://{zoo.parent}/twin"
    twin = await in_thread(lambda: Repository.objects.create(name="twin", url=url, settle_s=0.0))
    row = await in_thread(rig.row)
    await asyncio.gather(rig.noticing.notice(row), rig.noticing.notice(twin))
    listings = {one.repository_id: one for one in await in_thread(lambda: list(Listing.objects.all()))}
    owner, other = (row, twin) if (await in_thread(document)).versions[0].path.startswith(str(zoo)) else (twin, row)
    assert (await rig.manifest("half", 1)).repository == owner.name
    (why,) = set(listings[other.pk].refused.values())
    assert why.startswith(f"half is the name of a model whose versions repository {owner.name} brings. Rename")
    assert listings[owner.pk].refused == {}


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


def counted(name: str, **labels: str) -> float:
    """What a metric of this process says now."""
    return metrics.REGISTRY.get_sample_value(f"signalbox_console_repository_{name}_total", labels) or 0.0


async def standing() -> str:
    """Alarms that the board has of what the database says."""
    found = await unpublished()
    assert found is not None
    return "\n".join(alarm.text for key, alarm in found.items() if not key.startswith("outbox:"))


async def test_a_listing_that_fails_or_empties_withdraws_nothing_and_says_so(rig: Rig, zoo: Path) -> None:
    await rig.listed(grace_s=0.0)
    shutil.move(zoo, zoo.parent / "aside")
    failures_before = counted("failures")
    failed = await rig.listed(grace_s=0.0)
    assert counted("failures") == failures_before + 1
    assert failed.error.startswith(f"The folder {zoo} cannot be read")
    assert failed.alarm == "The listing failed: nothing that has vanished is withdrawn."
    assert failed.models_found == 1, "as it was found last"
    assert f"Repository zoo: The folder {zoo} cannot be read" in await standing()
    await asyncio.to_thread(zoo.mkdir)
    await rig.listed(grace_s=0.0)
    emptied = await rig.listed(grace_s=0.0)
    assert emptied.alarm.startswith("The listing has 0 versions, and 2 were there: nothing is withdrawn.")
    assert emptied.error == ""
    assert "Repository zoo: The listing has 0 versions, and 2 were there" in await standing()
    assert await in_thread(served) == [1, 2]
    (zoo.parent / "aside" / "half").rename(zoo / "half")
    assert (await rig.listed(grace_s=0.0)).alarm == ""
    assert not await standing()


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
    s3: Rig, tmp_path: Path, object_store: ObjectStoreServer
) -> None:
    wrong: list[dict[str, str | bool]] = [{"endpoint": "http://127.0.0.1:1"}, {"secret_access_key": "wrong"}]
    never = [await with_credentials(s3, object_store, tmp_path, others) for others in wrong]
    assert [(bool(one.alarm), one.listed_at, one.models_found) for one in never] == [(True, None, 0)] * 2
    was = await with_credentials(s3, object_store, tmp_path, {})
    for others, why in zip(wrong, ("away or overloaded", "refuses its credentials"), strict=True):
        for _ in range(2):
            s3.now += 10
            failed = await with_credentials(s3, object_store, tmp_path, others)
            assert why in failed.error
            assert (failed.listed_at, failed.models_found) == (was.listed_at, 1), "as it was found last"
    assert await in_thread(served) == [1, 2]
    assert not (await with_credentials(s3, object_store, tmp_path, {})).error


async def with_credentials(rig: Rig, store: ObjectStoreServer, folder: Path, others: dict[str, str | bool]) -> Listing:
    """What the listing says with these credentials, without grace."""
    store.credentials(folder / "credentials", "zoo", **others)
    return await rig.listed(grace_s=0.0)


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
    monkeypatch.setattr("console.noticing.graphs.MOST_GRAPH_BYTES", 1000)
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
    pace = Pace(50.0)
    for _ in range(101):
        await pace.turn()
    assert 1.0 < slept[-1] <= 2.0


async def test_read_only_mode_stops_noticing_also_of_a_listing_under_way(rig: Rig, zoo: Path) -> None:
    await rig.listed(grace_s=0.0)
    await in_thread(System(is_read_only=True).save)
    assert await rig.noticing._noticed() == []
    lay(zoo, Path("half/3"))
    (zoo / "half" / "1").rename(zoo.parent / "aside")
    for _ in range(2):
        await rig.listed(grace_s=0.0)
        assert await in_thread(served) == [1, 2], "what a listing found meanwhile is not carried out"
    await in_thread(System().save)
    assert [row.name for row in await rig.noticing._noticed()] == ["zoo"]
    for _ in range(2):
        await rig.listed(grace_s=0.0)
    assert await in_thread(served) == [2, 3]
    await in_thread(System(is_read_only=True).save)
    (zoo.parent / "aside").rename(zoo / "half" / "1")
    await rig.listed(grace_s=0.0)
    assert await in_thread(served) == [2, 3], "nor is what is back served again"
    await in_thread(System().save)
    await in_thread(rig.noticing._leadership.resign)  # or its session of PostgreSQL would be left open


async def test_a_digest_that_a_host_wrote_is_noted_and_published(rig: Rig, bus: Bus, zoo: Path) -> None:
    await rig.listed()
    await put(bus, Bucket.DIGESTS, names.version_key("half", 1), manifests.VersionDigest(digest="d" * 64), expect=0)
    async with documents(bus) as published, running(digests.keep_noted(bus)):
        await published.where(lambda doc: doc.versions[0].digest == "d" * 64)
        await put(bus, Bucket.DIGESTS, names.version_key("half", 2), manifests.VersionDigest(digest="e" * 64), expect=0)
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
    bucket, prefix = rig.url.partition("://")[2].split("/", 1)
    if place == "s3":
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
    if place == "s3":
        await asyncio.to_thread(object_store.delete, bucket, prefix)
    else:
        await asyncio.to_thread(shutil.move, zoo, zoo.parent / "aside")
        await asyncio.to_thread(zoo.mkdir)
    for _ in range(2):
        assert (await rig.listed(grace_s=0.0)).alarm
    gone = ModelVersion.objects.exclude(vanished_at=None, is_withdrawn=False)
    assert not await in_thread(gone.exists), "of a listing that empties nothing is withdrawn"
