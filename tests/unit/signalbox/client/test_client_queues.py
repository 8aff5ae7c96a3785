"""Queues of the client, against a real socket that answers what a test tells it."""

import asyncio
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.client import AsyncClient, Client, errors
from signalbox.client.queues import Found, Item, Receipt
from signalbox.client.queues.items import item_of, items_of
from tests.rigs.queuefront import Answer, Asked, QueueFront, Watcher, frame, frames

DONE = Answer(200)


def taken(_: Asked) -> Answer:
    return Answer(200, b"7", {"X-Eas-Queueservice-Request-Id": "r7"})


async def test_a_put_sends_the_data_as_it_is_and_returns_its_index_and_request_id() -> None:
    async with QueueFront(taken).serving() as front, AsyncClient(front.url, "sbx") as client:
        queue = client.queue("my sums", group="g", uid="u")
        assert await queue.put(b"\x00\xff", tags={"kind": "a b"}, high=True) == Receipt(7, "r7")
        assert await queue.sink.put(b"") == Receipt(7, "r7")
    first, second = front.asked
    assert (first.method, first.path, first.body) == ("POST", "/v1/queues/my sums", b"\x00\xff")
    assert first.query == {"kind": "a b", "_priority_": "1"}
    assert first.headers["authorization"] == "Bearer sbx"
    assert first.headers["x-eas-queueservice-redis-uid"] == "u"
    assert first.headers["x-eas-queueservice-redis-gid"] == "g"
    assert (second.path, second.query, second.body) == ("/v1/queues/my sums/sink", {}, b"")


async def test_a_tag_that_would_be_a_verb_is_refused_and_nothing_sent() -> None:
    async with QueueFront(taken).serving() as front, AsyncClient(front.url, "sbx") as client:
        with pytest.raises(errors.InvalidRequest, match="underscore"):
            await client.queue("q").put(b"", tags={"_eos_": "true"})
    assert front.asked == []


@pytest.mark.parametrize(("code", "asked"), [("ambiguous", 1), ("unavailable", 3)])
async def test_a_put_is_repeated_only_where_nothing_was_put(code: str, asked: int) -> None:
    answer = Answer(503, b'{"code": "%s", "detail": "d"}' % code.encode(), {"Retry-After": "0"})
    async with QueueFront(lambda _: answer).serving() as front, AsyncClient(front.url, "sbx", retries=2) as client:
        with pytest.raises(errors.Unavailable) as caught:
            await client.queue("q").put(b"1")
    assert caught.value.code == code
    assert len(front.asked) == asked


async def test_a_get_says_what_it_wants_and_gives_items() -> None:
    body = frames(frame(3, b"a", {"requestId": "r", "_reason_": "why"}), frame(300, b""))
    async with QueueFront(lambda _: Answer(200, body)).serving() as front, AsyncClient(front.url, "k") as client:
        found = await client.queue("q").sink.get(
            index=-1, length=2, timeout_s=1.5, tags={"t": "v"}, request_id="r", delete=False, rear=True
        )
    assert found == [Item(3, b"a", {"requestId": "r"}, {"_reason_": "why"}), Item(300)]
    assert found[0].request_id == "r"
    (asked,) = front.asked
    assert asked.path == "/v1/queues/q/sink"
    assert asked.query.pop("_timeout_") in {f"{ms}ms" for ms in range(1300, 1501)}
    what = {"_index_": "-1", "_length_": "2", "_auto_delete_": "false", "_raw_": "false"}
    assert asked.query == {"t": "v", "requestId": "r", **what}
    assert asked.headers["accept"] == "application/vnd.google.protobuf"
    assert asked.headers["x-eas-queueservice-access-rear"] == "true"


async def test_a_get_asks_again_until_there_is_something_or_its_time_is_up() -> None:
    answers = iter([b"", b"", frames(frame(1, b"x"))])

    def late(_: Asked) -> Answer:
        return Answer(204 if not (body := next(answers)) else 200, body)

    async with QueueFront(late).serving() as front, AsyncClient(front.url, "k") as client:
        assert await client.queue("q").get(timeout_s=60) == [Item(1, b"x")]
        assert len(front.asked) == 3
    async with QueueFront(lambda _: Answer(204)).serving() as front, AsyncClient(front.url, "k") as client:
        assert await client.queue("q").get(timeout_s=0) == []
        assert await client.queue("q").get(timeout_s=60, rear=True) == []
    assert front.asked[0].query["_timeout_"] == "0ms"
    assert len(front.asked) == 2


async def test_every_other_verb_says_what_the_wire_says() -> None:
    answers = {
        "_search_": Answer(200, b'{"IsPending": true, "WaitCount": 2}'),
        "_count_": Answer(200, b"5"),
        "_attrs_": Answer(200, b'{"meta.name": "q", "stream.length": "5"}'),
    }

    def answer(asked: Asked) -> Answer:
        return next((given for name, given in answers.items() if name in asked.query), DONE)

    async with QueueFront(answer).serving() as front, AsyncClient(front.url, "k") as client:
        queue = client.queue("q")
        item = Item(4)
        await queue.commit(item, 5)
        await queue.nack(6, code="Later", reason="busy & so")
        await queue.delete(7, rear=True)
        await queue.truncate(9)
        await queue.forget_group()
        await queue.end(force=True)
        assert await queue.search(3) == Found(is_pending=True, wait_count=2)
        assert await queue.count(tags={"t": "v"}, high=False) == 5
        assert await queue.attributes() == {"meta.name": "q", "stream.length": "5"}
        await queue.commit()
        await queue.delete()
    assert item.is_settled
    assert [(one.method, one.query) for one in front.asked] == [
        ("PUT", {"_indexes_": "4,5"}),
        ("PUT", {"_indexes_": "6", "_negative_": "true"}),
        ("DELETE", {"_indexes_": "7"}),
        ("DELETE", {"_index_": "9", "_trunc_": "true"}),
        ("DELETE", {"_forget_": "true"}),
        ("POST", {"_eos_": "true", "_force_": "true"}),
        ("GET", {"_search_": "true", "_index_": "3"}),
        ("GET", {"t": "v", "_count_": "true", "_priority_": "0"}),
        ("GET", {"_attrs_": "true"}),
    ]
    assert front.asked[1].body == b"_code_=Later&_reason_=busy+%26+so"
    assert front.asked[2].headers["x-eas-queueservice-access-rear"] == "true"


async def _three(watcher: Watcher) -> None:
    for index in (1, 2, 3):
        await watcher.give(frame(index, b"%d" % index))
    await watcher.gone.wait()


async def test_a_watch_commits_an_item_once_the_next_is_asked_for() -> None:
    async with QueueFront(lambda _: DONE, _three).serving() as front, AsyncClient(front.url, "k") as client:
        items = client.queue("q", uid="u").watch(window=3, index=-1, tags={"t": "v"})
        assert (await anext(items)).data == b"1"
        assert [one.method for one in front.asked] == ["WATCH"]
        assert (await anext(items)).data == b"2"
        await items.aclose()
    watch, commit = front.asked
    how = {"_index_": "-1", "_window_": "3", "_index_only_": "false", "_auto_commit_": "false"}
    assert watch.query == {"t": "v", "_watch_": "true", **how}
    assert (watch.headers["authorization"], watch.headers["x-eas-queueservice-redis-uid"]) == ("Bearer k", "u")
    assert (commit.method, commit.query) == ("PUT", {"_indexes_": "1"})


async def test_what_was_committed_or_given_back_in_the_loop_is_not_committed_again() -> None:
    async def ended(watcher: Watcher) -> None:
        await watcher.give(frame(1))
        await watcher.give(frame(2))
        await watcher.close(1000)

    async with QueueFront(lambda _: DONE, ended).serving() as front, AsyncClient(front.url, "k") as client:
        queue = client.queue("q")
        async for item in queue.watch(window=2):
            await (queue.commit(item) if item.index == 1 else queue.nack(item, code="No"))
    assert [one.query["_indexes_"] for one in front.asked if one.method == "PUT"] == ["1", "2"]


@pytest.mark.parametrize("options", [{"commits": False}, {"auto_commit": True}])
async def test_a_watch_that_is_not_to_commit_does_not(options: dict[str, bool]) -> None:
    async with QueueFront(lambda _: DONE, _three).serving() as front, AsyncClient(front.url, "k") as client:
        items = client.queue("q").watch(window=3, **options)  # type: ignore[arg-type]
        assert [(await anext(items)).index for _ in range(3)] == [1, 2, 3]
        await items.aclose()
    assert [one.method for one in front.asked] == ["WATCH"]


async def test_an_item_whose_work_raised_is_not_committed_and_its_watch_is_closed() -> None:
    closed = asyncio.Event()

    async def watched(watcher: Watcher) -> None:
        await _three(watcher)
        closed.set()

    async with QueueFront(lambda _: DONE, watched).serving() as front, AsyncClient(front.url, "k") as client:

        async def work() -> None:
            async for item in client.queue("q").watch():
                _ = 1 // (item.index - 1)

        with pytest.raises(ZeroDivisionError):
            await work()
        await asyncio.wait_for(closed.wait(), 10)
    assert [one.method for one in front.asked] == ["WATCH"]


@pytest.mark.parametrize("code", [1001, 1011, None])
async def test_a_watch_that_breaks_is_opened_again_under_the_same_uid(code: int | None) -> None:
    async def breaks(watcher: Watcher) -> None:
        await watcher.give(frame(1))
        await committed.wait()
        if code is None:
            raise OSError("the front is killed")
        await watcher.close(code)

    async def goes_on(watcher: Watcher) -> None:
        await watcher.give(frame(2))
        await watcher.close(1000)

    def answer(_: Asked) -> Answer:
        committed.set()
        return DONE

    committed = asyncio.Event()
    async with QueueFront(answer, breaks, goes_on).serving() as front, AsyncClient(front.url, "k") as client:
        queue = client.queue("q")
        assert [item.index async for item in queue.watch()] == [1, 2]
    watches = [one for one in front.asked if one.method == "WATCH"]
    assert [one.headers["x-eas-queueservice-redis-uid"] for one in watches] == [queue.uid] * 2
    assert watches[0].query == watches[1].query


@pytest.mark.parametrize(("keeps", "given"), [(False, [1, 2]), (True, [1, 2, 2])])
async def test_what_lay_unread_when_a_watch_broke_is_given_once_unless_it_was_committed_as_it_was_sent(
    keeps: bool, given: list[int]
) -> None:
    async def breaks(watcher: Watcher) -> None:
        await watcher.give(frame(1))
        await begun.wait()
        await watcher.give(frame(2))
        await watcher.close(1001)
        await watcher.gone.wait()
        broken.set()

    async def goes_on(watcher: Watcher) -> None:
        await watcher.give(frame(2))
        await watcher.close(1000)

    begun, broken = asyncio.Event(), asyncio.Event()
    async with QueueFront(lambda _: DONE, breaks, goes_on).serving() as front, AsyncClient(front.url, "k") as client:
        seen = []
        async for item in client.queue("q").watch(window=2, auto_commit=keeps):
            seen.append(item.index)
            begun.set()
            await broken.wait()
    assert seen == given


async def test_an_item_that_went_to_another_consumer_is_passed_over() -> None:
    async def ended(watcher: Watcher) -> None:
        await watcher.give(frame(1))
        await watcher.close(1000)

    answer = Answer(409, b'{"code": "conflict", "detail": "Not given out."}')
    async with QueueFront(lambda _: answer, ended).serving() as front, AsyncClient(front.url, "k") as client:
        queue = client.queue("q")
        assert [item.index async for item in queue.watch()] == [1]
        with pytest.raises(errors.Conflict, match="Not given out"):
            await queue.commit(1)


@pytest.mark.parametrize(
    ("code", "reason", "kind", "said"),
    [
        (1008, "unauthorized: The key has ended.", errors.Unauthorized, "The key has ended."),
        (1008, "Another watch has this uid.", errors.Conflict, "Another watch has this uid."),
        (4000, "", errors.Conflict, "closed the watch .4000."),
    ],
)
async def test_a_watch_that_is_ended_for_good_says_why(
    code: int, reason: str, kind: type[errors.SignalboxError], said: str
) -> None:
    async def ends(watcher: Watcher) -> None:
        await watcher.close(code, reason)

    async with QueueFront(lambda _: DONE, ends).serving() as front, AsyncClient(front.url, "k") as client:
        with pytest.raises(kind, match=said) as caught:
            await anext(client.queue("q").watch())
    assert type(caught.value) is kind


async def test_a_watch_that_is_refused_says_why_and_is_not_opened_again() -> None:
    async with QueueFront(lambda _: DONE).serving() as front, AsyncClient(front.url, "k") as client:
        with pytest.raises(errors.NotFound, match="no queue sums"):
            await anext(client.queue("sums").watch())
    assert len(front.asked) == 1


async def test_without_asyncio_a_queue_does_the_same() -> None:
    async def ended(watcher: Watcher) -> None:
        await watcher.give(frame(1, b"a"))
        await watcher.give(frame(2, b"b"))
        await watcher.close(1000)

    def plainly(url: str) -> list[bytes]:
        with Client(url, "k") as client:
            queue = client.queue("q")
            assert queue.put(b"x") == queue.sink.put(b"x") == Receipt(7, "r7")
            items: Iterator[Item] = queue.watch(window=2)
            return [item.data for item in items]

    async with QueueFront(taken, ended).serving() as front:
        assert await asyncio.to_thread(plainly, front.url) == [b"a", b"b"]
    assert [one.query.get("_indexes_") for one in front.asked] == [None, None, None, "1", "2"]


async def test_without_asyncio_a_refused_watch_says_why() -> None:
    def plainly(url: str) -> None:
        with Client(url, "k") as client, pytest.raises(errors.NotFound, match="no queue sums"):
            next(client.queue("sums").watch())

    async with QueueFront(taken).serving() as front:
        await asyncio.to_thread(plainly, front.url)


async def test_without_its_extra_a_watch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "signalbox.client.sockets", None)
    async with AsyncClient("http://127.0.0.1:1", "k") as client:
        with pytest.raises(ImportError, match="pip install"):
            await anext(client.queue("q").watch())
    with Client("http://127.0.0.1:1", "k") as plain, pytest.raises(ImportError, match="pip install"):
        next(plain.queue("q").watch())


@pytest.mark.parametrize("uid", ["", "a b", "é", "x" * 65])
async def test_a_uid_that_no_front_takes_is_refused(uid: str) -> None:
    async with AsyncClient("http://127.0.0.1:1", "k") as client:
        with pytest.raises(ValueError, match="letters, digits"):
            client.queue("q", uid=uid)


@given(
    st.integers(0, 2**63),
    st.binary(max_size=300),
    st.dictionaries(st.text(min_size=1).filter(lambda name: name[0] != "_"), st.text()),
)
def test_what_a_front_writes_is_read_again(index: int, data: bytes, tags: dict[str, str]) -> None:
    wanted = Item(index, data, tags)
    assert item_of(frame(index, data, tags)) == wanted
    unknown = b"\x2a\x01x\x31" + b"\0" * 8 + b"\x3d" + b"\0" * 4
    assert items_of(frames(frame(index, data, tags) + unknown, frame(1))) == [wanted, Item(1)]


@given(st.binary(max_size=60))
def test_bytes_that_are_no_items_are_a_bug_of_the_front_and_nothing_else(body: bytes) -> None:
    for read in (items_of, item_of):
        try:
            read(body)
        except (errors.Bug, UnicodeDecodeError):
            continue
