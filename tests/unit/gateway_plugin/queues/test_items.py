"""What an item is made of, and what a caller may say of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.queues.items import (
    MOST_TAG_BYTES,
    Consumer,
    consumer_of,
    headers_of,
    item_of,
    require_tags,
    subject_id,
)
from signalbox.bus.client import Delivery, Stored
from signalbox.bus.jetstream import header_fields
from signalbox.bus.transport.frames import parse_headers
from signalbox.program.errors import InvalidRequest
from signalbox.wire import queuenames

KEYS = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,63}\Z", fullmatch=True)
TAGS = st.dictionaries(KEYS, st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=8)


@given(TAGS)
def test_tags_come_back_from_the_header_as_they_were_given(tags: dict[str, str]) -> None:
    require_tags(tags)
    block = b"NATS/1.0\r\n" + header_fields(headers_of(tags, "")) + b"\r\n"
    stored = Stored(queuenames.queue_item("q", "source", "lo"), 7, 1.5, parse_headers(block), b"data")
    assert item_of(stored).tags == tags


def test_an_item_tells_its_rank_its_request_and_how_often_it_was_delivered() -> None:
    subject = queuenames.queue_item("q", "source", "hi", "r1")
    head = b"NATS/1.0\r\n" + header_fields(headers_of({"colour": "red"}, "r1")) + b"\r\n"
    item = item_of(Delivery(subject, b"$JS.ACK.Q_q_source.eas-hi.3.7.9.1500000000.0", head, b"data"))
    assert (item.index, item.data, item.request_id, item.is_high, item.time, item.deliveries) == (
        7,
        b"data",
        "r1",
        True,
        1.5,
        3,
    )
    assert item.tags == {"colour": "red", "requestId": "r1"}


def test_a_result_keeps_the_request_that_it_is_of() -> None:
    headers = headers_of({"requestId": "theirs"}, "of the put")
    item = item_of(Stored(queuenames.queue_item("q", "sink", "lo", "theirs"), 7, 1.5, headers, b""))
    assert (item.tags, item.request_id) == ({"requestId": "theirs"}, "of the put")
    assert subject_id(item.tags, item.request_id) == "theirs"


def test_tags_of_another_form_count_as_none() -> None:
    headers = {"Sb-Tags": '["a"]'}
    assert item_of(Stored("rear.q.source.-", 7, 1.5, headers, b"")).tags == {}


@pytest.mark.parametrize(
    "tags",
    [
        {"_index_": "1"},
        {"1a": "1"},
        {"a" * 65: "1"},
        {"": "1"},
        {"a b": "1"},
        {"a": "é" * 129},
        {f"a{number}": "1" for number in range(33)},
    ],
)
def test_tags_out_of_bounds_are_refused(tags: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        require_tags(tags)


def test_tags_that_take_too_much_room_as_they_are_stored_are_refused() -> None:
    tags = {f"a{number}": "\x01" * 256 for number in range(32)}
    require_tags(tags)
    with pytest.raises(InvalidRequest, match=str(MOST_TAG_BYTES)):
        headers_of(tags, "")


def test_a_consumer_without_a_group_is_of_the_default_one() -> None:
    assert consumer_of("", "u.1-2_3") == Consumer("eas", "u.1-2_3")


@pytest.mark.parametrize(
    ("group", "uid"), [("eas", ""), ("eas", "a" * 65), ("a b", "u"), ("eas", "u>"), ("eas", "u\n")]
)
def test_ids_that_no_consumer_has_are_refused(group: str, uid: str) -> None:
    with pytest.raises(InvalidRequest):
        consumer_of(group, uid)
