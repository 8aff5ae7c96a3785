"""Every call of a queue as steps: what is sent, when again, and what the answers mean. Without I/O.

The wire is in docs/queues.md, and is eas-prediction's.
"""

import math
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlencode

from signalbox.client.delivery import Delivery
from signalbox.client.exchange import Closed, Emit, Pause, Receive, Request, Response, Steps, Upgrade
from signalbox.client.faults import document, kind
from signalbox.client.queues.items import REQUEST_ID, Found, Item, Receipt, item_of, items_of
from signalbox.program.errors import (
    Conflict,
    DeadlineExceeded,
    InvalidRequest,
    LimitExceeded,
    SignalboxError,
    Unavailable,
)

UID: Final = "X-EAS-QueueService-Redis-Uid"
GID: Final = "X-EAS-QueueService-Redis-Gid"
REAR: Final = "X-EAS-QueueService-Access-Rear"
REQUEST: Final = "x-eas-queueservice-request-id"
PROTOBUF: Final = "application/vnd.google.protobuf"
ASKED_S: Final = 30.0
"""How long a front is asked to wait for items before it answers."""
GRACE_S: Final = 10.0
"""Beyond that, until its answer has to be there."""
EARLY_S: Final = 0.5
"""How much earlier than asked a front may answer that there is nothing."""
PAUSE_S: Final = 0.2
"""Before a broken watch is opened again, doubled each time."""
LONGEST_PAUSE_S: Final = 5.0
ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_COMPLETE, _LEAVES = 1000, frozenset({1001, 1005, 1006, 1011, 1012, 1013})
"""Close codes: the stream has ended; and those of fronts that stop, break or are busy, after which another is asked."""

Tags = Mapping[str, str]


class QueueCalls:
    """Calls of one side of a queue, by one consumer. timeout_s: of a call without its own. clock: seconds that grow."""

    def __init__(
        self,
        delivery: Delivery,
        name: str,
        *,
        group: str,
        uid: str | None,
        timeout_s: float,
        is_sink: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.uid = uuid.uuid4().hex if uid is None else uid
        for one in (group, self.uid):
            if not ID.match(one):
                raise ValueError(f"a group or uid is 1 to 64 letters, digits and _.-, not {one!r}")
        self._delivery = delivery
        self._name, self._group = name, group
        self._timeout_s = timeout_s
        self._is_sink = is_sink
        self._clock = clock

    def other(self, *, is_sink: bool) -> "QueueCalls":
        """Calls of the other side, by the same consumer."""
        return QueueCalls(
            self._delivery,
            self._name,
            group=self._group,
            uid=self.uid,
            timeout_s=self._timeout_s,
            is_sink=is_sink,
            clock=self._clock,
        )

    def put(self, data: bytes, tags: Tags | None, *, is_high: bool) -> Steps[Receipt]:
        """The index of the item, which is durable. A repeat would put it twice, so that is the caller's to decide."""
        query = {**_plain(tags), **({"_priority_": "1"} if is_high else {})}
        response = yield from self._ask("POST", query, data, is_once=True)
        return Receipt(int(response.body), response.headers[REQUEST])

    def get(
        self,
        index: int,
        length: int,
        timeout_s: float,
        tags: Tags | None,
        request_id: str | None,
        *,
        is_deleting: bool,
        is_rear: bool,
    ) -> Steps[list[Item]]:
        """Items, as soon as there is one; none after ``timeout_s``."""
        ends = self._clock() + timeout_s
        query = {**_plain(tags), "_index_": index, "_length_": length, "_auto_delete_": _word(is_deleting)}
        query |= {"_raw_": "false"} | ({REQUEST_ID: request_id} if request_id else {})
        while True:
            began = self._clock()
            asked_s = max(0.0, min(ASKED_S, ends - began))
            query["_timeout_"] = f"{math.ceil(asked_s * 1000)}ms"
            response = yield from self._ask(
                "GET", query, headers=_rear(is_rear), timeout_s=asked_s + GRACE_S, is_once=is_deleting
            )
            found = items_of(response.body)
            now = self._clock()
            if found or is_rear or ends - now < EARLY_S:  # nobody waits for dead items
                return found
            # A front that answers at once without having waited is not asked in a loop.
            yield Pause(max(0.0, min(PAUSE_S, asked_s / 2 - (now - began))))

    def watch(
        self, index: int, window: int, tags: Tags | None, *, is_index_only: bool, is_auto_commit: bool, commits: bool
    ) -> Steps[None]:
        """Emits items as they are given out, until the stream is complete. A broken watch is opened again."""
        query = {**_plain(tags), "_watch_": "true", "_index_": index, "_window_": window}
        query |= {"_index_only_": _word(is_index_only), "_auto_commit_": _word(is_auto_commit)}
        request, failures, has_opened = self._request("GET", query), 0, False
        while True:
            try:
                yield from self._delivery.send(request, self._timeout_s, how=Upgrade)
                has_opened = True
                while not isinstance(got := (yield Receive(is_auto_commit)), Closed):
                    failures, item = 0, item_of(got)
                    yield Emit(item)
                    if commits and not is_auto_commit:
                        yield from self._handled(item)
                if got.code == _COMPLETE:
                    return
                if got.code not in _LEAVES:
                    raise _refusal(got)
            except (Unavailable, LimitExceeded, DeadlineExceeded):  # any front goes on with the watch
                if not has_opened:
                    raise
            failures += 1
            yield Pause(min(PAUSE_S * 2 ** min(failures, 8), LONGEST_PAUSE_S))

    def _handled(self, item: Item) -> Steps[None]:
        """Commit what the caller has come back from. What went to another consumer meanwhile is that one's now."""
        if not item.is_settled:
            try:
                yield from self.commit([item])
            except Conflict:
                return

    def commit(self, items: Sequence[Item | int]) -> Steps[None]:
        """Returns once the items are the group's no more."""
        if items:
            yield from self._ask("PUT", {"_indexes_": _indexes(items)})
        _settle(items)

    def nack(self, items: Sequence[Item | int], code: str, reason: str) -> Steps[None]:
        """Give items back, to be given out again."""
        form = urlencode({"_code_": code, "_reason_": reason}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        query = {"_indexes_": _indexes(items), "_negative_": "true"}
        yield from self._ask("PUT", query, form, headers=headers)
        _settle(items)

    def delete(self, items: Sequence[Item | int], *, is_rear: bool) -> Steps[None]:
        """Take items away from every group."""
        if items:
            yield from self._ask("DELETE", {"_indexes_": _indexes(items)}, headers=_rear(is_rear))

    def truncate(self, below: int) -> Steps[None]:
        """Take away all items with a lower index."""
        yield from self._ask("DELETE", {"_index_": below, "_trunc_": "true"})

    def forget_group(self) -> Steps[None]:
        """Have this consumer's group forgotten, where nobody watches for it."""
        yield from self._ask("DELETE", {"_forget_": "true"})

    def end(self, *, is_forced: bool) -> Steps[None]:
        """Take no more items; watches are complete once all is committed."""
        yield from self._ask("POST", {"_eos_": "true"} | ({"_force_": "true"} if is_forced else {}))

    def search(self, index: int) -> Steps[Found]:
        """Where an item is, for this consumer's group."""
        answer = document((yield from self._ask("GET", {"_search_": "true", "_index_": index})))
        return Found(bool(answer["IsPending"]), int(answer["WaitCount"]))

    def count(self, tags: Tags | None, is_high: bool | None) -> Steps[int]:
        """How many items match."""
        query = {**_plain(tags), "_count_": "true"} | ({} if is_high is None else {"_priority_": int(is_high)})
        return int((yield from self._ask("GET", query)).body)

    def attributes(self) -> Steps[dict[str, str]]:
        """How the queue stands, in the product's words."""
        answer = document((yield from self._ask("GET", {"_attrs_": "true"})))
        return {name: str(value) for name, value in answer.items()}

    def _ask(
        self,
        method: str,
        query: Mapping[str, object],
        body: bytes = b"",
        *,
        headers: Tags | None = None,
        timeout_s: float | None = None,
        is_once: bool = False,
    ) -> Steps[Response]:
        request = self._request(method, query, body, headers, is_once=is_once)
        return self._delivery.send(request, self._timeout_s if timeout_s is None else timeout_s)

    def _request(
        self,
        method: str,
        query: Mapping[str, object],
        body: bytes = b"",
        headers: Tags | None = None,
        *,
        is_once: bool = False,
    ) -> Request:
        path = f"/v1/queues/{quote(self._name, safe='')}{'/sink' if self._is_sink else ''}"
        who = {UID: self.uid, GID: self._group, "Accept": PROTOBUF if method == "GET" else "*/*"}
        path += f"?{urlencode(query)}" if query else ""
        return Request(method, path, body, {**who, **(headers or {})}, is_once=is_once)


def _plain(tags: Tags | None) -> dict[str, object]:
    """Tags as parameters. Raises :class:`InvalidRequest` for one that would be a verb of the queue's."""
    for name in tags or {}:
        if name.startswith("_"):
            raise InvalidRequest(f"A tag's name does not begin with an underscore, as {name!r} does.")
    return dict(tags or {})


def _refusal(closed: Closed) -> SignalboxError:
    """Why a front ended the watch for good: another has its identity, the key has ended, the queue is gone."""
    code, _, text = closed.reason.partition(": ")
    return kind(code if text else None, 409)(text or closed.reason or f"The front closed the watch ({closed.code}).")


def _indexes(items: Sequence[Item | int]) -> str:
    return ",".join(str(one.index if isinstance(one, Item) else one) for one in items)


def _settle(items: Sequence[Item | int]) -> None:
    for one in items:
        if isinstance(one, Item):
            one.is_settled = True


def _rear(is_rear: bool) -> dict[str, str]:
    return {REAR: "true"} if is_rear else {}


def _word(is_so: bool) -> str:
    return "true" if is_so else "false"
