"""What a queue says of itself."""

import pytest

from gateway_plugin.queues.attributes import described, duration
from signalbox.wire.queues import GroupState, Queue, QueueMark, WatchState

QUEUE = Queue(name="mine", account_id="a")
STREAM = {"messages": 3, "first_seq": 5, "last_seq": 9}


def test_a_queue_describes_itself_in_the_products_words() -> None:
    told = described(QUEUE, "source", STREAM, None, [], [GroupState(name="eas", pending=2, left=1, index=7)], 1 << 20)
    assert told == {
        "meta.name": "mine",
        "meta.backend": "jetstream",
        "meta.state": "Normal",
        "meta.maxPayloadBytes": "8192",
        "meta.header.user": "X-EAS-QueueService-Redis-Uid",
        "meta.header.group": "X-EAS-QueueService-Redis-Gid",
        "meta.header.priority": "X-EAS-QueueService-Priority",
        "stream.length": "3",
        "stream.approxMaxLength": "230399",
        "stream.firstEntry": "5",
        "stream.lastEntry": "9",
        "consumers.stats.total": "0",
        "groups.list.[0]": "Id: eas, Index: 7, Pending: 2, Waiting: 1, Consumers: 0",
    }


def test_consumers_are_listed_with_their_windows() -> None:
    watches = [
        WatchState(queue="mine", side="source", group="eas", uid="b", index=7, pending=2, window=5, slots=3),
        WatchState(
            queue="mine",
            side="source",
            group="eas",
            uid="a",
            idle_s=102.7,
            status="Complete",
            is_auto_commit=True,
            tags={"k": "v", "a": "b c"},
        ),
    ]
    told = described(QUEUE, "source", STREAM, None, watches, [GroupState(name="eas")], 1 << 20)
    assert told["consumers.stats.total"] == "2"
    assert told["consumers.list.[0]"] == (
        "Id: eas.a, Index: 0, Pending: 0, Status: Complete, Idle: 1m42s, Window: 1, Slots: 0, AutoCommit: true, "
        "Tags: k=v&a=b+c"
    )
    assert told["consumers.list.[1]"] == (
        "Id: eas.b, Index: 7, Pending: 2, Status: Running, Idle: 0s, Window: 5, Slots: 3, AutoCommit: false"
    )
    assert told["groups.list.[0]"].endswith("Consumers: 2")


def test_an_empty_side_that_has_ended_names_its_last_index_alone() -> None:
    told = described(
        QUEUE, "sink", {"messages": 0, "first_seq": 10, "last_seq": 9}, QueueMark(ended_at=1.0), [], [], 4096
    )
    assert (told["meta.state"], told["stream.firstEntry"], told["stream.lastEntry"]) == ("Ended", "0", "9")
    assert told["meta.maxPayloadBytes"] == "4096"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (-1, "0s"), (59.9, "59s"), (60, "1m0s"), (3605, "1h0m5s"), (90_000, "25h0m0s")]
)
def test_times_have_the_products_form(seconds: float, text: str) -> None:
    assert duration(seconds) == text
