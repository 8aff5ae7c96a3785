"""The key that a first start makes: a newcomer tries jobs and queues with it."""

from pathlib import Path
from typing import Any, Self

import pytest

from console.keys.services import SCOPES
from signalbox.ops.up import consoleclient, first
from signalbox.ops.up.consoleclient import ConsoleClient
from signalbox.ops.up.datadir import DataDir
from signalbox.program import keys
from signalbox.program.errors import Conflict, NotFound


async def test_the_first_key_may_do_with_queues_what_their_docs_begin_with(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, dict[str, Any]]] = []

    async def call(_: object, method: str, path: str, doc: dict[str, Any]) -> dict[str, str]:
        asked.append((method, path, doc))
        return {"key": "sbx_live_text"}

    monkeypatch.setattr(ConsoleClient, "_call", call)
    console = ConsoleClient("http://console.example", "token")
    assert await console.create_key("demo") == "sbx_live_text"
    await console.close()
    ((method, path, doc),) = asked
    assert (method, path, doc["name"]) == ("POST", "/api/keys", "demo")
    assert set(doc["scopes"]) <= set(SCOPES), "the console knows them"
    assert {scope for scope in SCOPES if scope.startswith("queues:")} <= set(consoleclient.SCOPES)
    assert "jobs:urgent" not in doc["scopes"], "nobody else's jobs are overtaken"


class Front:
    """Takes every key."""

    def __init__(self, *_: object, **__: object) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def models(self) -> None: ...


class Stack:
    """A stack with its folder; what it says is kept."""

    front_url = "http://front.example"

    def __init__(self, folder: Path) -> None:
        self.data = DataDir(folder)
        self.said: list[str] = []
        self.say = self.said.append


@pytest.mark.parametrize(
    ("known", "is_kept"),
    [
        ({"scopes": [*consoleclient.SCOPES, "jobs:urgent"], "account": "shop"}, True),
        (None, True),
        ({"scopes": ["jobs:submit", "jobs:read", "jobs:cancel"], "account": "shop"}, False),
    ],
)
async def test_a_kept_key_that_may_less_than_a_new_one_is_followed_by_one_of_its_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: dict[str, Any] | None, is_kept: bool
) -> None:
    kept, kid = keys.mint()
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "api_key").write_text(kept)
    made: list[dict[str, Any]] = []

    async def call(_: object, method: str, path: str, doc: dict[str, Any] | None = None) -> dict[str, Any]:
        if method == "GET":
            assert path == f"/api/keys/{kid}"
            if known is None:
                raise NotFound("The console has lost its database.")
            return known
        assert doc is not None
        if doc["name"] == "demo":
            raise Conflict("There is one.")
        made.append(doc)
        return {"key": "sbx_live_new"}

    monkeypatch.setattr(ConsoleClient, "_call", call)
    monkeypatch.setattr(first, "AsyncClient", Front)
    console, stack = ConsoleClient("http://console.example", "token"), Stack(tmp_path)
    found = await first._key(stack, console)  # type: ignore[arg-type]  # a stand-in
    await console.close()
    assert (tmp_path / "secrets" / "api_key").read_text() == found == (kept if is_kept else "sbx_live_new")
    assert [one["account"] for one in made] == ([] if is_kept else ["shop"])
    assert [("lacks queues:put, queues:get" in one) for one in stack.said] == ([] if is_kept else [True])
