"""Which queues a key may use, and for what."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway_plugin.queues.items import Consumer
from gateway_plugin.queues.reading import Get
from gateway_plugin.queues.watching.openwatch import Watch
from gateway_plugin.service.queues import GET, MANAGE, PUT, WATCH, Queues
from signalbox.program.errors import Forbidden, InvalidRequest, NotFound
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.queues import Queue

MINE = Queue(name="mine", account_id="a")
THEIRS = Queue(name="theirs", account_id="b")
ME = Consumer("eas", "me")
ALL = (PUT, GET, WATCH, MANAGE)


class Anything:
    """A part that must not be reached."""

    def __getattr__(self, name: str) -> Any:
        def called(*_: object, **__: object) -> None:
            raise AssertionError(f"{name} was called")

        return called


class Parts:
    """Of two queues, of two accounts."""

    def __init__(self) -> None:
        self.tables = self.made = self
        self.store = self.reader = self.watches = self.presence = self.bus = Anything()

    async def require(self, queue: Queue, _side: str) -> None:
        """Only a queue of the key's is asked for at NATS."""
        assert queue is MINE

    def find(self, name: str) -> Queue | None:
        return {queue.name: queue for queue in (MINE, THEIRS)}.get(name)


QUEUES = Queues(Parts())  # type: ignore[arg-type]  # a stand-in

VERBS: dict[str, tuple[str, Callable[[ApiKey, str], Awaitable[object]]]] = {
    "put": (PUT, lambda key, name: QUEUES.put(key, name, "source", b"", {})),
    "get": (GET, lambda key, name: QUEUES.get(key, name, "source", Get())),
    "search": (GET, lambda key, name: QUEUES.search(key, name, "source", "eas", 1)),
    "count": (GET, lambda key, name: QUEUES.count(key, name, "source", {})),
    "attributes": (GET, lambda key, name: QUEUES.attributes(key, name, "source")),
    "watch": (WATCH, lambda key, name: QUEUES.watch(key, name, "source", ME, Watch())),
    "commit": (WATCH, lambda key, name: QUEUES.commit(key, name, "source", "eas", [1])),
    "negative": (WATCH, lambda key, name: QUEUES.negative(key, name, "source", ME, [1])),
    "delete": (MANAGE, lambda key, name: QUEUES.delete(key, name, "source", [1])),
    "truncate": (MANAGE, lambda key, name: QUEUES.truncate(key, name, "source", 1)),
    "forget": (MANAGE, lambda key, name: QUEUES.forget(key, name, "source", "g")),
    "end": (MANAGE, lambda key, name: QUEUES.end(key, name, "source")),
}


def key(*scopes: str, queues: tuple[str, ...] = ()) -> ApiKey:
    return ApiKey(id="k", account_id="a", hmac="", scopes=scopes, queues=queues)


@pytest.mark.parametrize("scope", ALL)
def test_a_key_finds_a_queue_of_its_account_with_the_right_scope(scope: str) -> None:
    assert QUEUES.find(key(scope), "mine", scope) is MINE
    with pytest.raises(Forbidden, match=scope):
        QUEUES.find(key(*(other for other in ALL if other != scope)), "mine", scope)


@pytest.mark.parametrize("queues", [("mine",), ("m*",), ("other", "mine")])
def test_a_key_for_some_queues_finds_those(queues: tuple[str, ...]) -> None:
    assert QUEUES.find(key(GET, queues=queues), "mine", GET) is MINE


def test_a_key_for_other_queues_is_refused() -> None:
    with pytest.raises(Forbidden, match="mine"):
        QUEUES.find(key(GET, queues=("other", "min")), "mine", GET)


@pytest.mark.parametrize("verb", VERBS)
async def test_every_verb_needs_its_scope_and_a_queue_of_the_account(verb: str) -> None:
    scope, call = VERBS[verb]
    for name in ("theirs", "nobody's"):
        with pytest.raises(NotFound, match="or it is not yours"):
            await call(key(*ALL), name)
    with pytest.raises(Forbidden, match=scope):
        await call(key(*(other for other in ALL if other != scope)), "mine")


async def test_what_a_caller_may_not_ask_for_reaches_no_queue() -> None:
    with pytest.raises(InvalidRequest):
        await QUEUES.put(key(*ALL), "mine", "source", b"", {"_index_": "1"})
    with pytest.raises(InvalidRequest):
        await QUEUES.get(key(*ALL), "mine", "source", Get(tags={"_index_": "1"}))
    with pytest.raises(InvalidRequest):
        await QUEUES.count(key(*ALL), "mine", "source", {"_index_": "1"})
    with pytest.raises(InvalidRequest):
        await QUEUES.watch(key(*ALL), "mine", "source", ME, Watch(tags={"_index_": "1"}))
    for count in (0, 1001):
        indexes = range(1, count + 1)
        with pytest.raises(InvalidRequest):
            await QUEUES.delete(key(*ALL), "mine", "source", indexes)
        with pytest.raises(InvalidRequest):
            await QUEUES.commit(key(*ALL), "mine", "source", "eas", indexes)
        with pytest.raises(InvalidRequest):
            await QUEUES.negative(key(*ALL), "mine", "source", ME, indexes)
