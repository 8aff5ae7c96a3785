"""Repositories in a real S3 (SeaweedFS): pages, pieces, and what its refusals mean."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, urlsplit

import pytest

from signalbox.program.errors import Conflict, Misconfigured, NotFound, TooLarge, Unavailable
from signalbox.repositories import gaps
from signalbox.repositories.entry import PAGE
from signalbox.repositories.faults import UnlistableKey
from signalbox.repositories.location import Location
from signalbox.repositories.store import ObjectStore, Patience
from tests.rigs.objectstore import ObjectStoreServer
from tests.rigs.processes import stop

HASTY = Patience(connect_s=2.0, read_s=0.5, answer_s=3.0, retries=1, pause_s=0.05)


@pytest.fixture
def bucket(object_store: ObjectStoreServer) -> str:
    return object_store.bucket()


def opened(server: ObjectStoreServer, folder: Path, url: str, patience: Patience | None = None) -> ObjectStore:
    return ObjectStore.open(Location.parse(url), server.credentials(folder, "zoo"), "zoo", patience=patience)


async def paths(store: ObjectStore, start_after: str = "") -> list[str]:
    return [entry.path async for page in store.pages(start_after) for entry in page]


async def whole(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


async def test_what_lies_below_a_prefix_is_listed_by_its_path_from_there(
    object_store: ObjectStoreServer, bucket: str, tmp_path: Path
) -> None:
    object_store.put(bucket, {"zoo/m/1/saved_model.pb": b"12", "zoology/m/1/saved_model.pb": b"1", "top": b""})
    store = opened(object_store, tmp_path, f"s3://{bucket}/zoo")
    (page,) = [page async for page in store.pages()]
    (entry,) = page
    assert (entry.path, entry.size_bytes) == ("m/1/saved_model.pb", 2)
    assert entry.etag


async def test_a_store_that_the_machine_s_environment_names_is_read_without_a_file(
    object_store: ObjectStoreServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    object_store.put(bucket, {"m/1/saved_model.pb": b"12"})
    for name, value in object_store.environment().items():
        monkeypatch.setenv(name, value)
    assert await paths(ObjectStore.open(Location.parse(f"s3://{bucket}/m"), None, "zoo")) == ["1/saved_model.pb"]


async def test_a_listing_comes_in_pages_and_goes_on_after_a_path(
    object_store: ObjectStoreServer, bucket: str, tmp_path: Path
) -> None:
    object_store.put(bucket, {f"{number:04}": b"" for number in range(1001)})
    store = opened(object_store, tmp_path, f"s3://{bucket}")
    assert [len(page) async for page in store.pages()] == [1000, 1]
    assert await paths(store, "0998") == ["0999", "1000"]


async def test_an_empty_prefix_of_a_bucket_has_no_files(
    object_store: ObjectStoreServer, bucket: str, tmp_path: Path
) -> None:
    object_store.put(bucket, {"other": b""})
    assert await paths(opened(object_store, tmp_path, f"s3://{bucket}/nothing/here")) == []


async def test_a_file_is_read_whole_up_to_a_size(object_store: ObjectStoreServer, bucket: str, tmp_path: Path) -> None:
    object_store.put(bucket, {"m/1/saved_model.pb": b"graph"})
    store = opened(object_store, tmp_path, f"s3://{bucket}/m")
    assert await store.read("1/saved_model.pb", most_bytes=5) == b"graph"
    with pytest.raises(TooLarge, match="5 bytes"):
        await store.read("1/saved_model.pb", most_bytes=4)


async def test_a_file_comes_in_pieces_from_where_it_is_asked_for(
    object_store: ObjectStoreServer, bucket: str, tmp_path: Path
) -> None:
    data = os.urandom(5_000_000)
    object_store.put(bucket, {"big": data})
    store = opened(object_store, tmp_path, f"s3://{bucket}")
    ((entry,),) = [page async for page in store.pages()]
    pieces = [piece async for piece in store.stream("big", etag=entry.etag)]
    assert len(pieces) > 1
    assert b"".join(pieces) == data
    assert await whole(store.stream("big", etag=entry.etag, start=4_000_000)) == data[4_000_000:]
    assert await whole(store.stream("big", etag=entry.etag, start=10, end=4_000_000)) == data[10:4_000_000]
    assert await whole(store.stream("big", etag=entry.etag, end=10)) == data[:10]


async def test_a_file_that_changed_since_it_was_listed_is_a_conflict(
    object_store: ObjectStoreServer, bucket: str, tmp_path: Path
) -> None:
    object_store.put(bucket, {"file": b"old bytes"})
    store = opened(object_store, tmp_path, f"s3://{bucket}")
    ((entry,),) = [page async for page in store.pages()]
    object_store.put(bucket, {"file": b"new"})
    with pytest.raises(Conflict):
        await whole(store.stream("file", etag=entry.etag))
    with pytest.raises(Conflict):
        await store.read("file", most_bytes=100, etag=entry.etag)
    with pytest.raises(Conflict, match="shorter"):
        await whole(store.stream("file", etag="", start=3))
    assert await whole(store.stream("file", etag="")) == b"new"


async def test_a_file_that_is_not_there_is_not_found(
    object_store: ObjectStoreServer, bucket: str, tmp_path: Path
) -> None:
    object_store.put(bucket, {"file": b""})
    store = opened(object_store, tmp_path, f"s3://{bucket}")
    for path in ("other", "file/../other"):
        with pytest.raises(NotFound):
            await store.read(path, most_bytes=1)


async def test_a_bucket_that_does_not_exist_is_a_fault_of_the_repository(
    object_store: ObjectStoreServer, bucket: str, tmp_path: Path
) -> None:
    store = opened(object_store, tmp_path, f"s3://{bucket}")
    with pytest.raises(Misconfigured, match="The bucket of repository zoo does not exist"):
        await paths(store)
    with pytest.raises(Misconfigured, match="The bucket of repository zoo does not exist"):
        await store.read("file", most_bytes=1)


async def test_wrong_keys_are_a_fault_of_the_repository_until_its_file_is_exchanged(
    object_store: ObjectStoreServer, bucket: str, tmp_path: Path
) -> None:
    object_store.put(bucket, {"file": b""})
    folder = object_store.credentials(tmp_path, "zoo", secret_access_key="not between us")
    store = ObjectStore.open(Location.parse(f"s3://{bucket}"), folder, "zoo")
    for asked in (paths(store), store.read("file", most_bytes=1)):
        with pytest.raises(Misconfigured, match="repository zoo refuses its credentials") as refused:
            await asked
        assert "between us" not in repr(refused.value)
    object_store.credentials(tmp_path, "zoo")
    assert await paths(store) == ["file"]


async def test_a_store_that_is_away_or_stands_still_is_unavailable(tmp_path: Path) -> None:
    with ObjectStoreServer(tmp_path / "store") as server:
        bucket = server.bucket()
        server.put(bucket, {"file": b"1"})
        store = opened(server, tmp_path, f"s3://{bucket}", HASTY)
        assert await store.read("file", most_bytes=1) == b"1"
        await stop(server.pid)
        with pytest.raises(Unavailable):
            await store.read("file", most_bytes=1)
        server.stop()
        for asked in (paths(store), store.read("file", most_bytes=1), whole(store.stream("file", etag=""))):
            with pytest.raises(Unavailable):
                await asked
        await asyncio.to_thread(server.start)
        store = opened(server, tmp_path, f"s3://{bucket}")
        assert await store.read("file", most_bytes=1) == b"1"


FILE = 'Connection: close\r\nETag: "e"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n'


class Answers:
    """A server that answers every request with the same words. lacks: bytes that are promised and never sent."""

    def __init__(self, status: str, body: str, lacks: int = 0) -> None:
        self.endpoint = ""
        self.asked = 0
        self._answer = f"HTTP/1.1 {status}\r\n{FILE}Content-Length: {len(body) + lacks}\r\n\r\n{body}".encode()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        writer.write(self._answer)
        await writer.drain()
        writer.close()

    def store(self, folder: Path) -> ObjectStore:
        keys = {"access_key_id": "a", "secret_access_key": "b", "endpoint": self.endpoint, "allow_http": True}
        (folder / "zoo.json").write_text(json.dumps(keys))
        return ObjectStore.open(Location.parse("s3://bucket"), folder, "zoo", patience=HASTY)


async def test_an_endpoint_of_the_environment_that_is_no_url_is_a_fault_of_the_repository(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "store:9000")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    store = ObjectStore.open(Location.parse("s3://bucket"), None, "zoo")
    with pytest.raises(Misconfigured, match="endpoint"):
        await paths(store)


async def test_a_store_that_throttles_is_tried_again_and_then_unavailable(tmp_path: Path) -> None:
    async with Answers("503 Slow Down", "<Error><Code>SlowDown</Code></Error>") as server:
        with pytest.raises(Unavailable, match=r"503 SlowDown"):
            await paths(server.store(tmp_path))
        assert server.asked == 1 + HASTY.retries


async def test_a_file_that_ends_before_its_end_is_unavailable_after_what_has_come(tmp_path: Path) -> None:
    async with Answers("200 OK", "x" * 1_500_000, lacks=9) as server:
        pieces = server.store(tmp_path).stream("file", etag="e")
        assert (await anext(pieces)).startswith(b"x" * 1_000_000)
        with pytest.raises(Unavailable):
            await whole(pieces)


async def test_a_key_that_no_path_can_be_fails_the_listing_by_its_name(tmp_path: Path) -> None:
    content = "<Key>m//b</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>0</Size>"
    listing = f"<ListBucketResult><IsTruncated>false</IsTruncated><Contents>{content}</Contents></ListBucketResult>"
    async with Answers("200 OK", listing) as server:
        with pytest.raises(Misconfigured, match=r"'m//b'\. Rename it"):
            await paths(server.store(tmp_path))


class Keys(Answers):
    """A bucket with these keys, whatever they are: SeaweedFS takes no odd ones."""

    def __init__(self, keys: Iterable[str], prefix: str = "") -> None:
        super().__init__("200 OK", "")
        self._keys = sorted(keys, key=str.encode)
        self._prefix = prefix

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        line = (await reader.readuntil(b"\r\n\r\n")).decode().split()[1]
        asked = dict(parse_qsl(urlsplit(line).query))
        prefix, after = asked.get("prefix", ""), asked.get("continuation-token") or asked.get("start-after", "")
        left = [key for key in self._keys if key.startswith(prefix) and key > after]
        folders: set[str] = set()
        if asked.get("delimiter"):
            folders = {prefix + key[len(prefix) :].partition("/")[0] + "/" for key in left if "/" in key[len(prefix) :]}
            left = [key for key in left if "/" not in key[len(prefix) :]]
        page, is_cut = left[:PAGE], len(left) > PAGE
        contents = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size></Contents>"
            for key in page
        )
        contents += "".join(f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>" for each in sorted(folders))
        more = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if is_cut else ""
        body = f"<ListBucketResult><IsTruncated>{str(is_cut).lower()}</IsTruncated>{more}{contents}</ListBucketResult>"
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    def store(self, folder: Path) -> ObjectStore:
        keys = {"access_key_id": "a", "secret_access_key": "b", "endpoint": self.endpoint, "allow_http": True}
        (folder / "zoo.json").write_text(json.dumps(keys))
        url = f"s3://bucket/{self._prefix}".rstrip("/")
        return ObjectStore.open(Location.parse(url), folder, "zoo", patience=HASTY)


@pytest.mark.parametrize("prefix", ["", "models/new"])
async def test_a_key_that_no_path_can_be_costs_its_folder_alone(tmp_path: Path, prefix: str) -> None:
    good = [f"m{number:04}{end}/1/{name}" for number in range(900) for end in ("", "-b") for name in ("a", "b")]
    good += ["readme.txt", "m0500-b.txt"]
    bad = ["m0500//x", "m0500/2/a", "m0777/1/../c", "m0899//z", "m0500/./y"]
    inside = f"{prefix}/" if prefix else ""
    async with Keys([inside + key for key in good + bad] + ["other//x"] * bool(prefix), prefix) as server:
        unlisted: dict[str, str] = {}
        turns: list[int] = []

        async def turn() -> None:
            turns.append(server.asked)

        found = [entry.path async for page in gaps.pages(server.store(tmp_path), unlisted, turn) for entry in page]
        hidden = {"m0500", "m0777", "m0899"}
        assert unlisted.keys() == hidden
        assert f"'{inside}m0777/1/../c'. Rename it" in unlisted["m0777"]
        assert found == sorted(key for key in good if key.partition("/")[0] not in hidden)
        assert server.asked < 1000, "no request a model, but of the pages that do not come"
        assert all(asked <= turn for turn, asked in enumerate(turns)), "each in its turn"
        assert server.asked <= len(turns)


async def pause() -> None:
    """Wait for nothing."""


async def test_a_key_that_lies_in_no_folder_fails_the_listing(tmp_path: Path) -> None:
    async with Keys(["a/1/saved_model.pb", "//x"]) as server:
        with pytest.raises(UnlistableKey, match=r"'//x'\. Rename it"):
            [page async for page in gaps.pages(server.store(tmp_path), {}, pause)]


@pytest.mark.parametrize(
    ("status", "body", "match"),
    [
        ("301 Moved", "", "another region"),
        ("400 Bad", "<Error><Code>InvalidBucketName</Code></Error>", "400 InvalidBucketName"),
    ],
)
async def test_what_the_store_will_never_answer_is_a_fault_of_the_repository(
    tmp_path: Path, status: str, body: str, match: str
) -> None:
    async with Answers(status, body) as server:
        with pytest.raises(Misconfigured, match=match):
            await paths(server.store(tmp_path))
