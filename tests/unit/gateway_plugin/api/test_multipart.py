"""multipart/form-data as it comes: the same fields wherever the body is cut, and a bound for each thing."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.api.openai.multipart import Began, Multipart
from signalbox.program.errors import InvalidRequest

TYPE = 'multipart/form-data; boundary="x-y"'
DATA = b"first\r\n--x-\r\n--x-z\r\n\r\n"
BODY = (
    b'before\r\n--x-y\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--x-y\r\nContent-Disposition: form-data; name="file"; filename="a\\"b.jsonl"\r\nContent-Type: text/plain\r\n\r\n'
    + DATA
    + b'\r\n--x-y\r\nContent-Disposition: form-data; name="none"\r\n\r\n\r\n--x-y--\r\nafter'
)


def fields(parts: list[bytes]) -> list[tuple[str, str | None, bytes]]:
    reader, found = Multipart(TYPE), []
    for part in parts:
        for one in reader.feed(part):
            if isinstance(one, Began):
                found.append((one.name, one.filename, b""))
            else:
                name, filename, data = found[-1]
                found[-1] = (name, filename, data + one)
    assert reader.is_over
    return found


@given(st.lists(st.integers(0, len(BODY)), max_size=12))
def test_a_body_says_the_same_wherever_it_is_cut(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(BODY)]
    parts = [BODY[start:end] for start, end in pairwise(ends)]
    assert fields(parts) == [("purpose", None, b"batch"), ("file", 'a"b.jsonl', DATA), ("none", None, b"")]


def test_byte_after_byte_it_holds_no_more_than_a_delimiter() -> None:
    reader = Multipart(TYPE)
    for place in range(len(BODY)):
        list(reader.feed(BODY[place : place + 1]))
        assert len(reader._buffer) < 200
    assert reader.is_over


def test_a_name_may_stand_without_quotes() -> None:
    body = b"--x-y\r\nContent-Disposition: form-data; name=file; filename=a.jsonl; filename*=utf-8''a.jsonl\r\n\r\n1"
    assert next(iter(Multipart(TYPE).feed(body))) == Began("file", "a.jsonl")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b""),
        ("multipart/form-data", b""),
        (TYPE, b"--x-yz\r\n"),
        (TYPE, b"--x-y\r\nContent-Disposition: form-data\r\n\r\n"),
        (TYPE, b"--x-y\r\n" + b"a" * 9000),
        (TYPE, b'--x-y\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 40),
    ],
)
def test_what_is_none_is_refused(kind: str, body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        list(Multipart(kind).feed(body))
