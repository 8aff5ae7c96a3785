"""``signalbox queues``: what a service.json means, what is refused by name, and what asks for the count first."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from signalbox.ops import cli
from signalbox.ops.http import Rest
from signalbox.ops.queues import servicefile
from signalbox.program.errors import InvalidRequest
from tests.rigs.queuefront import Answer, QueueFront

WHOLE = {
    "metadata": {"name": "orders", "role": "Queue", "group": "g", "instance": 2, "resource": "r"},
    "queue": {
        "resource": "r",
        "cpu": 2,
        "memory": 8000,
        "min_replica": 1,
        "max_delivery": 3,
        "max_idle": "5m",
        "dead_message_policy": "Drop",
        "source": {"max_length": 10, "auto_evict": True},
        "sink": {"max_payload_size_kb": 64, "memory_ratio": 0.3, "auto_evict": False},
    },
}


def side(length: int, rear: int = 0) -> dict[str, Any]:
    """A side as REST shows it."""
    found = {"length": length, "bytes": 8 * length, "rear": rear}
    return found | {"oldest_at": None, "is_ended": False, "groups": [], "consumers": []}


class Console:
    """Answers as the console does, and remembers what it was asked."""

    def __init__(self, length: int = 0, rear: int = 0) -> None:
        self.rear = rear
        self.accounts: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str, Any]] = []
        bounds = {"most_items": 9, "most_bytes": 8192, "auto_evict": False}
        self.queue: dict[str, Any] = {"name": "orders", "account": "a", "services": [], "unpublished": "", "key": ""}
        self.queue |= {"state": {"words": "running", "why": "", "source": side(length, rear), "sink": side(0)}}
        self.queue |= {"source": bounds, "sink": bounds}
        self.queue |= dict.fromkeys(("group", "max_idle", "dead_message_policy", "resource"), "")
        self.queue |= dict.fromkeys(("instance", "memory", "max_delivery", "cpu", "min_replica"), 1)

    def ask(self, method: str, path: str, doc: Any = None, *, query: Any = None) -> Any:
        """The answer to one call."""
        self.asked.append((method, path, doc))
        if path == "/api/accounts":
            return self.accounts
        if method == "GET":
            return self.queue if path.endswith("/orders") else [self.queue]
        if path.endswith("/purge"):
            return {"items": doc["items"]}
        if path.endswith("/redrive"):
            now = min(doc["most"], self.rear)
            self.rear -= now
            return {"items": now}
        return self.queue if path == "/api/queues" else None

    def posted(self) -> list[tuple[str, str, Any]]:
        """What changes something."""
        return [one for one in self.asked if one[0] != "GET"]


@pytest.fixture
def token(tmp_path: Path) -> str:
    """File with a token."""
    file = tmp_path / "token"
    file.write_text("sbo_x")
    return str(file)


def typed(monkeypatch: pytest.MonkeyPatch, token: str, console: Console, *words: str) -> int:
    """The exit status of a command line at a console."""
    monkeypatch.setattr(Rest, "ask", lambda _, *args, **kwargs: console.ask(*args, **kwargs))
    return cli.main(["queues", *words, "--console", "http://console.example", "--token-file", token])


def test_a_service_json_is_sent_under_the_products_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "service.json"
    file.write_text(json.dumps(WHOLE))
    console = Console()
    assert typed(monkeypatch, token, console, "create", str(file), "--account", "a", "--service", "m") == 0
    (asked,) = console.posted()
    queue = WHOLE["queue"]
    wanted = {"name": "orders", "group": "g", "instance": 2, "account": "a", "services": ["m"], "key": ""}
    assert asked == ("POST", "/api/queues", wanted | queue)
    assert "takes 9 items" in capsys.readouterr().out


def account(id_: str, name: str, state: str = "active") -> dict[str, Any]:
    """An account as REST shows it."""
    return {"id": id_, "name": name, "state": state}


def test_the_only_account_gets_the_queue_and_of_several_one_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "service.json"
    file.write_text(json.dumps(WHOLE))
    console = Console()
    assert typed(monkeypatch, token, console, "create", str(file)) == 2
    assert "make an API key" in capsys.readouterr().err
    console.accounts = [account("a1", "demo"), account("a2", "gone", "deleted")]
    assert typed(monkeypatch, token, console, "create", str(file)) == 0
    (asked,) = console.posted()
    assert asked[2]["account"] == "a1"
    console.accounts += [account(f"b{number}", "more") for number in range(11)]
    assert typed(monkeypatch, token, console, "create", str(file)) == 2
    assert "--account. There are a1 (demo), b0 (more)" in (said := capsys.readouterr().err)
    assert said.rstrip().endswith("b8 (more) and 2 more.")
    assert len(console.posted()) == 1


@pytest.mark.parametrize(
    ("doc", "said"),
    [
        (
            {"metadata": {"name": "q", "role": "Queue"}, "queue": {"max_delivrey": 3}},
            "did you mean queue.max_delivery?",
        ),
        (
            {"metadata": {"name": "q", "role": "Queue"}, "queue": {"sink": {"memory": 3}}},
            "queue.sink.memory: there is no",
        ),
        ({"metadata": {"name": "q", "role": "Queue"}, "name": "q"}, "name: there is no such field"),
        ({"metadata": {"name": "q"}}, "metadata.role: "),
        ({"metadata": {"name": "q", "role": "Service"}}, "metadata.role: "),
        ({"metadata": {"role": "Queue"}}, "metadata.name: "),
        ({"metadata": ["q"]}, "metadata: an object"),
        ({"metadata": {"name": "q", "role": "Queue", "resource": "a"}, "queue": {"resource": "b"}}, "queue.resource: "),
    ],
)
def test_what_a_service_json_may_not_have_is_refused_by_its_name(doc: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        servicefile.terms_of(doc)
    assert said in refused.value.public_message


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": 1, "a": 2}', "[" * 100_000, " " * (servicefile.MOST_FILE_BYTES + 1)]
)
def test_a_file_that_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "service.json"
    file.write_text(text)
    with pytest.raises(InvalidRequest):
        servicefile.read(file)


def test_a_purge_says_the_count_and_does_it_only_when_told_the_count(
    monkeypatch: pytest.MonkeyPatch, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(length=1203, rear=7)
    assert typed(monkeypatch, token, console, "purge", "orders") == 2
    assert "--items 1203" in capsys.readouterr().err
    assert typed(monkeypatch, token, console, "purge", "orders", "--rear") == 2
    assert "7 dead items in the rear queue of the source" in capsys.readouterr().err
    assert console.posted() == []
    assert typed(monkeypatch, token, console, "purge", "orders", "--items", "1203", "--reason", "old") == 0
    body = {"side": "source", "rear": False, "items": 1203, "reason": "old"}
    assert console.posted() == [("POST", "/api/queues/orders/purge", body)]
    assert typed(monkeypatch, token, console, "purge", "orders", "--sink") == 0
    assert "is empty" in capsys.readouterr().out


def test_a_queue_with_items_is_deleted_only_when_told_how_many(
    monkeypatch: pytest.MonkeyPatch, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(length=3, rear=2)
    assert typed(monkeypatch, token, console, "delete", "orders") == 2
    assert "--items 5" in capsys.readouterr().err
    assert typed(monkeypatch, token, console, "delete", "orders", "--items", "5") == 0
    assert console.posted() == [("DELETE", "/api/queues/orders", None)]
    console.queue["state"] = None
    assert typed(monkeypatch, token, console, "delete", "orders", "--items", "9") == 2


def test_a_redrive_goes_on_in_parts_until_all_that_was_there_is_back(
    monkeypatch: pytest.MonkeyPatch, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(rear=2500)
    assert typed(monkeypatch, token, console, "redrive", "orders") == 0
    assert [doc["most"] for _, _, doc in console.posted()] == [1000, 1000, 500]
    assert "2500 items" in capsys.readouterr().out.replace(" ", " ").replace(",", "")
    few = Console(rear=2500)
    assert typed(monkeypatch, token, few, "redrive", "orders", "--most", "10") == 0
    assert [doc["most"] for _, _, doc in few.posted()] == [10]


def test_lists_say_what_is_known_and_what_is_not(
    monkeypatch: pytest.MonkeyPatch, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(length=4)
    assert typed(monkeypatch, token, console, "list") == 0
    assert "4/9" in capsys.readouterr().out
    assert typed(monkeypatch, token, console, "show", "orders") == 0
    assert "source: 4 items" in capsys.readouterr().out
    assert typed(monkeypatch, token, console, "reopen", "orders", "--sink") == 0
    assert console.posted()[-1][2] == {"side": "sink", "reason": ""}
    console.queue["state"] = None
    assert typed(monkeypatch, token, console, "list") == 0
    assert "not known" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("put", "orders", "--text", "x", "--tag", "red"), "NAME=VALUE"),
        (("put", "orders", "--file", "/nowhere"), "cannot be read"),
        (("watch", "orders", "--group", "a b"), "--group"),
    ],
)
def test_items_that_cannot_be_meant_are_refused_before_anything_is_sent(
    token: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert cli.main(["queues", *words, "--front", "http://127.0.0.1:1", "--key-file", token]) == 2
    assert said in capsys.readouterr().err


async def test_a_group_is_forgotten_at_the_front(token: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with QueueFront(lambda _: Answer(200)).serving() as front:
        words = ["queues", "forget", "orders", "--sink", "--group", "audit", "--front", front.url, "--key-file", token]
        assert await asyncio.to_thread(cli.main, words) == 0
    assert "The group audit of orders is gone." in capsys.readouterr().out
    (asked,) = front.asked
    assert (asked.method, asked.path, asked.query) == ("DELETE", "/v1/queues/orders/sink", {"_forget_": "true"})
    assert asked.headers["x-eas-queueservice-redis-gid"] == "audit"
