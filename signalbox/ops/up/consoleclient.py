"""The console's REST API, as far as a first start needs it."""

import json
from pathlib import Path
from typing import Any, Final

from signalbox.ops.httppool import ConnectionPool
from signalbox.program import keys
from signalbox.program.errors import Conflict, NotFound, Unauthorized, Unavailable

SLOW_S: Final = 180.0
"""Registering a model reads all of its files, in a process of its own."""
SCOPES: Final = (
    *("jobs:submit", "jobs:read", "jobs:cancel"),
    *("queues:put", "queues:get", "queues:watch", "queues:manage"),
)
"""Of the first key: what one may do with one's own account. None that goes beyond it, as ``jobs:urgent`` does."""


class ConsoleClient(ConnectionPool):
    """An operator's session with the console. token: one of that operator's."""

    def __init__(self, url: str, token: str) -> None:
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json",
        }
        super().__init__(url, headers=headers, timeout_s=SLOW_S)

    async def name(self) -> str:
        """The operator that the token belongs to. Raises :class:`Unauthorized`."""
        return str((await self._call("GET", "/api/me"))["name"])

    async def has(self, model: str) -> bool:
        """Whether a model of this name is registered."""
        try:
            await self._call("GET", f"/api/models/{model}")
        except NotFound:
            return False
        return True

    async def register(self, name: str, path: Path, description: str, *, rows_independent: bool = False) -> None:
        """Register every version below ``path``. rows_independent: requests of several callers may share a run."""
        settings = {"rows_independent": rows_independent}
        body = {"name": name, "path": str(path), "description": description, "settings": settings}
        await self._call("POST", "/api/models", body)

    async def repositories(self) -> dict[str, str]:
        """URL of each repository by its name."""
        return {row["name"]: row["url"] for row in await self._call("GET", "/api/repositories")}

    async def add_repository(self, name: str, url: str) -> None:
        """Have the models below ``url`` noticed; everybody may call them."""
        await self._call("POST", "/api/repositories", {"name": name, "url": url, "access": "everybody"})

    async def import_config(self, files: dict[str, str]) -> dict[str, Any]:
        """Have the console serve what a configuration of TensorFlow Serving names; what became of each model."""
        found: dict[str, Any] = await self._call("POST", "/api/imports", files)
        return found

    async def create_key(self, name: str, account: str = "") -> str:
        """A new API key for jobs and queues; its text. account: whose, empty = a new one's."""
        doc = await self._call("POST", "/api/keys", {"name": name, "scopes": SCOPES, "account": account})
        return str(doc["key"])

    async def lacking(self, key: str) -> tuple[list[str], str]:
        """The scopes that a key has not of those that :meth:`create_key` gives, and its account; none of a key that
        the console does not know."""
        try:
            doc = await self._call("GET", f"/api/keys/{keys.parse(key).kid}")
        except NotFound:
            return [], ""
        return [scope for scope in SCOPES if scope not in doc["scopes"]], str(doc["account"])

    async def _call(self, method: str, path: str, doc: dict[str, Any] | None = None) -> Any:
        body = json.dumps(doc).encode() if doc is not None else b""
        response = await self.request(method, path, body)
        text = response.body.decode(errors="replace")
        if response.status == 401:
            raise Unauthorized(f"The console refused {method} {path}: {response.status} {text[:500]}")
        if response.status == 404:
            raise NotFound(f"The console has nothing at {path}: {text[:500]}")
        if response.status == 409:
            raise Conflict(f"The console refused {method} {path}: {text[:500]}")
        if response.status >= 400:
            raise Unavailable(f"The console refused {method} {path}: {response.status} {text[:500]}")
        return json.loads(text) if text else {}
