"""Models of a repository in a real S3, published as the console would: files, their list, and the model's document."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.repositories.location import Location
from signalbox.repositories.store import ObjectStore
from signalbox.wire import names
from signalbox.wire.manifests import Manifest, ManifestFile
from signalbox.wire.modeldocs import Model, Version
from signalbox.wire.names import Bucket
from tests.rigs.lightrunner import KIND
from tests.rigs.objectstore import ObjectStoreServer

REPOSITORY: Final = "shop"
HALF: Final = {KIND: b"half", "variables/variables.data-00000-of-00001": b"weights" * 1000}
"""Files of a version that the toy engine runs as ``half``."""


class RemoteModels:
    """A bucket of its own, and the folder with its credentials. endpoint: where workers reach it; empty = at itself."""

    def __init__(self, bus: Bus, server: ObjectStoreServer, folder: Path, *, endpoint: str = "") -> None:
        self.server = server
        self.bucket = server.bucket()
        self.credentials = folder / "credentials"
        self._bus = bus
        self._own = server.credentials(folder / "own", REPOSITORY)
        self.write_credentials(endpoint=endpoint or server.endpoint)

    def write_credentials(self, **more: str | bool) -> None:
        """The file that workers read."""
        self.server.credentials(self.credentials, REPOSITORY, **more)

    def settings(self, folder: Path) -> dict[str, Any]:
        """Of a worker whose host's cache is ``folder``."""
        return {"worker_cache_dir": folder, "worker_repository_credentials": self.credentials}

    async def publish(self, name: str, files: Mapping[str, bytes] = HALF, *, version: int = 1, **more: Any) -> Model:
        """Put a model's version into the store, and where the console would. more: of the model's document."""
        url = self.put(name, files, version=version)
        await self.list(name, version=version)
        one = Version(
            version=version, path=url, repository=REPOSITORY, size_bytes=sum(map(len, files.values())), joined=()
        )
        model = Model(name=name, default_version=version, updated_at=time.time(), **{"versions": (one,), **more})
        await put(self._bus, Bucket.MODELS, names.token(name), model)
        return model

    def put(self, name: str, files: Mapping[str, bytes], *, version: int = 1) -> str:
        """Write the files of a version; its URL."""
        self.server.put(self.bucket, {f"models/{name}/{version}/{path}": data for path, data in files.items()})
        return f"s3://{self.bucket}/models/{name}/{version}"

    async def list(self, name: str, *, version: int = 1) -> Manifest:
        """Publish the list of a version's files as the store has them now."""
        url = f"s3://{self.bucket}/models/{name}/{version}"
        store = ObjectStore.open(Location.parse(url), self._own, REPOSITORY)
        files = [entry async for page in store.pages() for entry in page]
        manifest = Manifest(
            repository=REPOSITORY,
            url=url,
            files=tuple(ManifestFile(entry.path, entry.size_bytes, entry.etag) for entry in files),
        )
        await put(self._bus, Bucket.MANIFESTS, names.version_key(name, version), manifest)
        return manifest
