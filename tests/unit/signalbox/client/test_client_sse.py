"""Server-sent events, however their bytes come."""

import pytest

from signalbox.client.sse import Reader, ServerSent

STREAM = (
    b": hello\n\nretry: 1500\nid: 7\nevent: state\ndata: {\ndata: }\n\n"
    b"data:no space\r\n\r\nevent: lost\n\nid: 8\n: nothing new\ndata: \xc3\xa9\n\ndata: unfinished"
)
EVENTS = [ServerSent("7", "state", "{\n}"), ServerSent("7", "message", "no space"), ServerSent("8", "message", "é")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_read_from_parts_of_any_size(size: int) -> None:
    reader = Reader()
    found = [one for at in range(0, len(STREAM), size) for one in reader.feed(STREAM[at : at + size])]
    assert found == EVENTS
    assert reader.retry_s == 1.5
