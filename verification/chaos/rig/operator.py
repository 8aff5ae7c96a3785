"""An operator of the running console: models and keys for the load, and what the console shows meanwhile."""

import io
import re
import tarfile
from pathlib import Path
from typing import Any, Final

import httpx

SCOPES: Final = ("jobs:submit", "jobs:read", "jobs:cancel")
MODELS: Final = "/var/lib/signalbox/models"
"""Where the console's container has them, by docker-compose.yml."""
_LOGIN_S: Final = 60.0


class Operator:
    """Logs in with a password, and again where the session is gone. Raises ``httpx.HTTPError`` for every refusal."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=_LOGIN_S)
        self._who = {"username": user, "password": password}

    async def close(self) -> None:
        """No more calls."""
        await self._client.aclose()

    async def answers(self) -> bool:
        """Whether the console shows its login, as its health check asks."""
        try:
            return (await self._client.get("/login", timeout=5.0)).status_code < 400  # 302: we are logged in
        except httpx.HTTPError:
            return False

    async def shows(self, job: str) -> str:
        """The state that the console's list has of a job; empty where it has none, or is away."""
        try:
            return str((await self._call("GET", f"/api/jobs/{job}"))["job"]["state"])
        except (httpx.HTTPError, KeyError):
            return ""

    async def add_model(self, name: str, version: Path, settings: dict[str, Any]) -> None:
        """Upload one version of a model, unless it is there, and set what is asked for."""
        known = await self._call("GET", f"/api/models?q={name}")
        if name not in {row["name"] for row in known["models"]}:
            files = {"archive": (f"{name}.tar.gz", _packed(version), "application/gzip")}
            try:
                await self._call("POST", f"/api/models/{name}/versions", files=files)
            except httpx.HTTPStatusError as error:
                if error.response.status_code != 409:
                    raise  # else its folder is there, of before the database was lost
                await self._call("POST", "/api/models", json={"name": name, "path": f"{MODELS}/{name}"})
        await self._call("PATCH", f"/api/models/{name}", json=settings)

    async def add_key(self, name: str) -> str:
        """A key that may do everything, of an account of its own; its text."""
        made = await self._call("POST", "/api/keys", json={"name": name, "scopes": SCOPES})
        return str(made["key"])

    async def _call(self, method: str, path: str, **body: Any) -> Any:
        for is_last in (False, True):
            token = self._client.cookies.get("signalbox_csrf") or ""
            headers = {"X-CSRFToken": token, "Referer": str(self._client.base_url)}
            got = await self._client.request(method, path, headers=headers, **body)
            if got.status_code in {401, 403} and not is_last:
                await self._log_in()
                continue
            if got.is_error:
                text = f"{method} {path}: {got.status_code} {got.text[:300]}"
                raise httpx.HTTPStatusError(text, request=got.request, response=got)
            return got.json() if got.content else {}
        raise AssertionError

    async def _log_in(self) -> None:
        page = await self._client.get("/login")
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        form = {**self._who, "csrfmiddlewaretoken": found[1] if found else ""}
        done = await self._client.post("/login", data=form, headers={"Referer": str(page.url)})
        if done.status_code not in {200, 302}:
            done.raise_for_status()


def _packed(version: Path) -> bytes:
    """A version's folder as the archive that the console takes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(version, arcname=version.name)
    return buffer.getvalue()
