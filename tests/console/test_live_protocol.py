"""The live protocol: whatever a network does to frames, a browser ends with the server's state."""

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from console.board.protocol import BACKLOG, RING_S, Backlog, Frame, Topic, Topics
from tests.console.mirror import Mirror


class Note(msgspec.Struct, frozen=True):
    """A row of these tests."""

    value: int


def server() -> Topics:
    """Two topics of rows and one of entries."""
    return Topics("e1", [Topic("a"), Topic("b"), Topic("t", is_list=True)])


def state_of(topics: Topics) -> dict[str, Any]:
    """What a faithful mirror holds."""
    held: dict[str, Any] = {
        name: {key: {"value": row.value} for key, row in topic.rows.items() if isinstance(row, Note)}
        for name, topic in topics.topics.items()
        if not topic.is_list
    }
    return held | {"t": [{"value": e.value} for e in topics.topics["t"].entries if isinstance(e, Note)]}


changes = st.tuples(st.sampled_from(["a", "b", "t"]), st.sampled_from(["x", "y", "z"]), st.none() | st.integers(0, 9))
fates = st.sampled_from(["arrives", "arrives", "arrives", "lost", "twice", "late"])


@given(st.lists(st.tuples(st.lists(changes, max_size=4), fates, st.booleans()), max_size=40))
@settings(max_examples=300)
def test_a_mirror_equals_the_server_after_cuts_repeats_and_reordering(
    steps: list[tuple[list[tuple[str, str, int | None]], str, bool]],
) -> None:
    topics, mirror = server(), Mirror()
    now = 100.0
    for name in topics.topics:
        mirror.take(topics.snapshot(name, now).text)
    late: list[Frame] = []
    for edits, fate, is_asking in steps:
        now += 1
        for name, key, value in edits:
            if name == "t":
                topics.topics["t"].append(Note(value or 0))
            elif value is None:
                topics.topics[name].remove(key)
            else:
                topics.topics[name].set(key, Note(value))
        for frame in topics.flush(now):
            if fate == "late":
                late.append(frame)
            for _ in range({"arrives": 1, "twice": 2}.get(fate, 0)):
                mirror.take(frame.text)
        if fate == "twice":
            for frame in reversed(late):
                mirror.take(frame.text)
            late.clear()
        if is_asking:
            _answer(topics, mirror, now)
    mirror.take(topics.tick(now, {}).text)
    _answer(topics, mirror, now)
    assert mirror.rows == {k: v for k, v in state_of(topics).items() if k != "t"}
    assert mirror.entries["t"] == state_of(topics)["t"]
    assert not mirror.wants


def _answer(topics: Topics, mirror: Mirror, now: float) -> None:
    for name in sorted(mirror.wants):
        for frame in topics.resume(name, mirror.epoch, mirror.seqs.get(name), now):
            mirror.take(frame.text)
        mirror.wants.discard(name)


@given(st.lists(changes, max_size=30), st.integers(0, 30))
@settings(max_examples=200)
def test_a_snapshot_taken_between_flushes_loses_nothing(edits: list[tuple[str, str, int | None]], cut: int) -> None:
    topics, mirror = server(), Mirror()
    for at, (name, key, value) in enumerate(edits):
        if at == cut:
            for topic in topics.topics:
                mirror.take(topics.snapshot(topic, 1.0).text)
        if name == "t":
            topics.topics["t"].append(Note(value or 0))
        elif value is None:
            topics.topics[name].remove(key)
        else:
            topics.topics[name].set(key, Note(value))
    if cut >= len(edits):
        for topic in topics.topics:
            mirror.take(topics.snapshot(topic, 1.0).text)
    for frame in topics.flush(2.0):
        mirror.take(frame.text)
    assert mirror.rows == {k: v for k, v in state_of(topics).items() if k != "t"}
    assert mirror.entries["t"] == state_of(topics)["t"]


def test_a_viewer_of_another_epoch_gets_a_snapshot() -> None:
    topics = server()
    topics.topics["a"].set("x", Note(1))
    topics.flush(1.0)
    (frame,) = topics.resume("a", "another", 1, 2.0)
    assert json.loads(frame.text)["t"] == "snap"


def test_a_viewer_that_missed_little_gets_only_the_deltas() -> None:
    topics = server()
    for value in range(5):
        topics.topics["a"].set("x", Note(value))
        topics.flush(1.0 + value)
    frames = topics.resume("a", "e1", 3, 6.0)
    assert [json.loads(f.text)["seq"] for f in frames] == [4, 5]


def test_the_ring_forgets_after_thirty_seconds() -> None:
    topics = server()
    topics.topics["a"].set("x", Note(1))
    topics.flush(1.0)
    topics.topics["a"].set("x", Note(2))
    topics.flush(1.0 + RING_S + 1)
    (frame,) = topics.resume("a", "e1", 0, 40.0)
    assert json.loads(frame.text)["t"] == "snap"


def test_an_unchanged_row_makes_no_delta() -> None:
    topic = Topic("a")
    topic.set("x", Note(1))
    assert topic.flush(1.0) is not None
    topic.set("x", Note(1))
    assert topic.flush(2.0) is None


def test_what_was_skipped_comes_with_a_snapshot() -> None:
    topics, mirror = server(), Mirror()
    mirror.take(topics.snapshot("a", 0.0).text)
    topics.topics["a"].set("x", Note(1))
    topics.skip()
    assert topics.flush(1.0) == []
    mirror.take(topics.tick(1.0, {}).text)
    assert mirror.wants == {"a"}
    topics.topics["a"].set("y", Note(2))
    topics.flush(2.0)
    for frame in topics.resume("a", "e1", mirror.seqs["a"], 2.0):
        mirror.take(frame.text)
    assert mirror.rows["a"] == {"x": {"value": 1}, "y": {"value": 2}}


def test_changes_of_one_row_between_flushes_become_one() -> None:
    topic = Topic("a")
    for value in range(9):
        topic.set("x", Note(value))
    frame = topic.flush(1.0)
    assert frame is not None
    assert json.loads(frame.text)["set"] == {"x": {"value": 8}}


def test_a_reader_that_never_reads_costs_a_bounded_backlog() -> None:
    backlog = Backlog()
    for seq in range(10_000):
        backlog.push(Frame("a", seq, float(seq), "{}"))
        assert len(backlog) <= BACKLOG + 1
    assert backlog.overflows
    assert backlog.behind_since is not None


def test_an_overflow_becomes_one_snapshot_of_each_topic_concerned() -> None:
    topics = server()
    backlog = Backlog(limit=4)
    for seq in range(4):
        backlog.push(Frame("ab"[seq % 2], seq, 1.0, "{}"))
    backlog.push(Frame("t", 1, 1.0, "{}"))
    first, second, third = (backlog.pop() for _ in range(3))
    assert {first, second, third} == set(topics.topics)
    assert backlog.pop() is None
    backlog.push(Frame("a", 9, 2.0, "{}"))
    assert isinstance(backlog.pop(), Frame)


@given(st.lists(st.sampled_from(["edit", "edit", "edit", "read", "tick"]), max_size=200))
@settings(max_examples=200)
def test_a_slow_reader_still_ends_with_the_servers_state(moves: list[str]) -> None:
    topics, mirror, backlog = server(), Mirror(), Backlog(limit=5)
    for name in topics.topics:
        backlog.push(topics.snapshot(name, 0.0))
    for at, move in enumerate(moves):
        now = float(at)
        if move == "edit":
            topics.topics["ab"[at % 2]].set("x", Note(at))
            topics.topics["t"].append(Note(at))
            for frame in topics.flush(now):
                backlog.push(frame)
        elif move == "tick":
            backlog.push(topics.tick(now, {}))
        else:
            _read(backlog, topics, mirror, now)
    while len(backlog):
        _read(backlog, topics, mirror, 999.0)
    assert mirror.rows == {k: v for k, v in state_of(topics).items() if k != "t"}
    assert mirror.entries["t"] == state_of(topics)["t"]


def _read(backlog: Backlog, topics: Topics, mirror: Mirror, now: float) -> None:
    item = backlog.pop()
    if item is not None:
        mirror.take(topics.snapshot(item, now).text if isinstance(item, str) else item.text)
