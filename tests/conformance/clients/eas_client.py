"""The queue product's own SDK: its client of queues, and its client of predictions."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eas_prediction import PredictClient, PredictException, QueueClient, StringRequest, TFRequest

from tests.conformance.clients.steps import WRONG_KEY, Target, take

QUEUE = "chat"
MODEL = "half"
HIGH = {"_priority_": "1"}


def _queue(target: Target, suffix: str = "", key: str = "", **given: Any) -> QueueClient:
    """A client as its users make one."""
    client = QueueClient(target.url, QUEUE)
    client.set_token(key or target.key)
    client.set_retry_count(0)
    client.set_timeout(60_000)
    client.init(path_suffix=suffix, **given)
    return client


def _group() -> str:
    return f"g-{uuid.uuid4().hex}"


@contextmanager
def _emptied(target: Target) -> Iterator[tuple[QueueClient, QueueClient]]:
    """Both sides of the queue, with nothing in them."""
    sides = _queue(target), _queue(target, "sink")
    for side in sides:
        side.truncate(2**62)
    yield sides


def _watched(client: QueueClient, most: int, *, commits: bool = True, **asked: Any) -> list[Any]:
    """The first items of a watch, committed as they come unless they are not to be."""
    watcher = client.watch(**{"index": 0, "window": 2, **asked})
    found: list[Any] = []
    frames = watcher.run()
    for item in frames:
        found.append(item)
        if commits:
            client.commit(item.index)
        if len(found) == most:
            break
    watcher.close()
    return found


def _consumers(attributes: dict[str, str], group: str) -> list[str]:
    return [text for name, text in attributes.items() if name.startswith("consumers.list.") and group in text]


def put_and_get(target: Target) -> Any:
    """In, and out again: the client counts on the header and on the index being a number."""
    with _emptied(target) as (source, _):
        first, request_id = source.put("one", {"kind": "cat"})
        second, _ = source.put(b"\x00two", {"kind": "dog"})
        urgent, _ = source.put("urgent", HIGH)
        kept = source.get(index=0, length=3, auto_delete=False)
        newest = source.get(index=-1, auto_delete=False)
        dog = source.get(tags={"kind": "dog"}, auto_delete=False)
        taken = source.get(index=int(first))
        gone = source.get(index=int(first), timeout="1s", auto_delete=False)
    return {
        "ordered": int(first) < int(second) < int(urgent),
        "kept": [item.data.decode() for item in kept],
        "indexes": [item.index == int(text) for item, text in zip(kept, (first, second, urgent), strict=True)],
        "tags": [kept[0].tags["kind"], kept[0].tags["requestId"] == request_id, len(kept[0].tags)],
        "newest": [item.data.decode() for item in newest],
        "dog": [item.data.decode() for item in dog],
        "taken": [item.data.decode() for item in taken],
        "then": gone[0].data.decode(),
    }


def a_result_by_its_request(target: Target) -> Any:
    """A worker hands on the tag; the caller waits in the sink."""
    with _emptied(target) as (source, sink):
        _, request_id = source.put("question")
        sink.put("another's", {"requestId": "other"})
        (asked,) = source.get()
        sink.put("answer", {"requestId": asked.tags["requestId"]})
        found = sink.get(request_id=request_id)
    return {"data": [item.data.decode() for item in found], "same": found[0].tags["requestId"] == request_id}


def an_empty_poll(target: Target) -> Any:
    """The read timeout is as long as the poll: the answer comes a little before."""
    with _emptied(target):
        client = _queue(target)
        client.set_timeout(2000)
        began = time.monotonic()
        found = client.get(timeout="2s")
    return {"found": len(found), "in_time": time.monotonic() - began < 2.0}


def a_watch(target: Target) -> Any:
    """Each item once, the high one first; a known group goes on where it stood."""
    group = _group()
    with _emptied(target) as (source, _):
        for number in range(5):
            source.put(str(number))
        source.put("urgent", HIGH)
        client = _queue(target, uid="u1", gid=group)
        first = _watched(client, 4, window=1)
        rest = _watched(_queue(target, uid="u2", gid=group), 2, window=1)
    return {
        "first": [item.data.decode() for item in first],
        "rest": [item.data.decode() for item in rest],
    }


def a_watch_that_leaves(target: Target) -> Any:
    """What was not committed goes to the next consumer of its group, in full."""
    group = _group()
    with _emptied(target) as (source, _):
        for number in range(3):
            source.put(str(number))
        held = _watched(_queue(target, uid="u1", gid=group), 2, commits=False)
        again = _watched(_queue(target, uid="u2", gid=group), 3)
    return {
        "held": [item.data.decode() for item in held],
        "again": sorted(item.data.decode() for item in again),
    }


def other_watches(target: Target) -> Any:
    """Without data, with commits of its own, with a filter, from the end, of a list of indexes."""
    with _emptied(target) as (source, _):
        for number in range(4):
            source.put(str(number), {"odd": str(number % 2 == 1)})
        bare = _watched(_queue(target, gid=_group()), 1, index_only=True)
        auto = _watched(_queue(target, gid=_group()), 4, commits=False, window=1, auto_commit=True)
        odd = _watched(_queue(target, gid=_group()), 2, tags={"odd": "True"})
        client, group = _queue(target, gid=_group()), []
        watcher = client.watch(0, 3)
        for item in watcher.run():
            group.append(item.index)
            if len(group) == 3:
                client.commit(group)
            if len(group) == 4:
                break
        watcher.close()
        late_group = _group()
        late: list[Any] = []
        thread = threading.Thread(target=lambda: late.extend(_watched(_queue(target, gid=late_group), 1, index=-1)))
        thread.start()
        while not any(late_group in text for text in source.attributes().values()):
            time.sleep(0.05)
        source.put("new")
        thread.join(60)
    return {
        "bare": [[item.data.decode(), item.tags["odd"]] for item in bare],
        "auto": [item.data.decode() for item in auto],
        "odd": [item.data.decode() for item in odd],
        "group": len(set(group)),
        "late": [item.data.decode() for item in late],
    }


def looks(target: Target) -> Any:
    """What the queue says of itself and of an item."""
    with _emptied(target) as (source, _):
        indexes = [int(source.put(str(number))[0]) for number in range(3)]
        client = _queue(target, uid="u1", gid=(group := _group()))
        watcher = client.watch(0, 1)
        frames = watcher.run()
        next(frames)
        while not (mine := _consumers(attributes := client.attributes(), group)):
            time.sleep(0.05)
        pending, waiting = client.search(indexes[0]), client.search(indexes[2])
        frames.close()
        watcher.close()
        length = int(attributes["stream.length"])
    return {
        "name": attributes["meta.name"],
        "length": length,
        "room": int(attributes["meta.maxPayloadBytes"]),
        "user": attributes["meta.header.user"],
        "mine": [part for part in mine[0].split(", ") if not part.startswith(("Id", "Index", "Idle"))],
        "pending": pending,
        "waiting": waiting,
        "nonsense": client.search("x"),
    }


def removals(target: Target) -> Any:
    """One, several, and all below an index."""
    with _emptied(target) as (source, _):
        indexes = [int(source.put(str(number))[0]) for number in range(6)]
        deleted = source.delete(indexes[0])
        source.delete([indexes[1], indexes[2]])
        source.delete(indexes[0])  # once more
        source.truncate(indexes[4])
        left = source.get(length=10, auto_delete=False)
    return {"deleted": deleted, "left": [item.data.decode() for item in left]}


def refusals(target: Target) -> dict[str, Any]:
    """The client raises what the server said, and nothing else."""

    def refused(call: Any) -> Any:
        try:
            return {"answered": str(call())}
        except PredictException as error:
            return error.code

    other = QueueClient(target.url, "nobody-s")
    other.set_token(target.key)
    other.set_retry_count(0)
    other.init()
    source = _queue(target)
    index, _ = source.put("never given out")
    return {
        "wrong key": refused(lambda: _queue(target, key=WRONG_KEY).put("x")),
        "no such queue": refused(lambda: other.put("x")),
        "tag of ours": refused(lambda: source.put("x", {"_mine_": "1"})),
        "too large": refused(lambda: source.put("x" * 20_000)),
        "not given out": refused(lambda: source.commit(index)),
    }


def predictions(target: Target) -> Any:
    """The same address without a word of queues is a prediction."""
    client = PredictClient(target.url, MODEL)
    client.add_extra_headers({"Authorization": target.key})
    client.set_timeout(60_000)
    client.init()
    text = client.predict(StringRequest('{"instances": [1.0, 2.0]}'))
    request = TFRequest("serving_default")
    request.add_feed("x", [3], TFRequest.DT_FLOAT, [1.0, 2.0, 3.0])
    request.add_fetch("y")
    found = client.predict(request)
    named = PredictClient(custom_url=f"{target.url}/api/predict/{MODEL}")
    named.set_token(target.key)
    named.set_timeout(60_000)
    named.init()
    same = named.predict(StringRequest('{"instances": [4.0]}'))
    return {
        "text": text.response_data.decode(),
        "values": list(found.get_values("y")),
        "shape": found.get_tensor_shape("y"),
        "custom_url": same.response_data.decode(),
    }


if __name__ == "__main__":
    take(__name__)
