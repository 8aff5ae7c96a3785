"""What a body may be before anybody looks at what it means: size, count, depth, names, digits, inflation."""

import gzip
import json

import pytest

from gateway_plugin.decoder import inflate
from signalbox.errors import InvalidJson, InvalidRequest, TooLarge
from signalbox.jsonbody import FREE_BYTES, MAX_DEPTH, MAX_RATIO, Bounds, parse

BOUNDS = Bounds(1_000_000, 5_000)


def nested(depth: int) -> bytes:
    """An object of ``depth`` levels, in lists and objects by turns."""
    pairs = [("[", "]") if level % 2 else ('{"a":', "}") for level in range(depth - 1)]
    inner = "".join(o for o, _ in pairs) + "0" + "".join(c for _, c in reversed(pairs))
    return f'{{"inputs": [1.0], "other": {inner}}}'.encode()


def test_a_body_may_be_thirty_two_levels_deep_and_no_deeper() -> None:
    assert parse(nested(MAX_DEPTH), BOUNDS)
    with pytest.raises(InvalidJson) as caught:
        parse(nested(MAX_DEPTH + 1), BOUNDS)
    assert caught.value.facts["bound"] == "depth"


@pytest.mark.parametrize("depth", [33, 70, 1_000])
def test_depth_is_measured_also_where_strings_hold_brackets(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    with pytest.raises(InvalidJson):
        parse(f'{{"text": "]]]]", "inputs": {deep}}}'.encode(), BOUNDS)
    assert parse(f'{{"text": "{deep}{"[" * 500}", "inputs": [[1]]}}'.encode(), BOUNDS)


def test_a_bomb_of_brackets_is_refused_without_recursion() -> None:
    for text in (b"[" * 500_000, b'{"a":' * 900, b'{"instances": [NaN, ' + b"[" * 900):
        with pytest.raises((InvalidJson, TooLarge)):
            parse(text, BOUNDS)


@pytest.mark.parametrize(
    "text",
    [
        '{"inputs": [1], "inputs": [2]}',
        '{"inputs": {"a": 1, "a": 2}}',
        '{"instances": [{"a": 1, "b": 2}, {"a": 1, "b": 2, "b" : 3}]}',
        '{"a": 1, "\\u0061": 2}',
        '{"inputs": [NaN], "inputs": [2]}',
        '{"x": {"": 1, "": 1}, "note": "a: b"}',
    ],
)
def test_a_name_given_twice_is_refused(text: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        parse(text.encode(), BOUNDS)
    assert caught.value.facts["bound"] == "names"


@pytest.mark.parametrize(
    "doc",
    [
        {"inputs": ["a: b", 'say "x": y', ":::"]},
        {"instances": [{"a": "1:2", "b": ["x:y"]}, {"a": "", "b": []}]},
        {"a:b": {"c:d": {}}, "e": [[{"f": 1}]]},
    ],
)
def test_colons_in_strings_are_no_names(doc: dict[str, object]) -> None:
    assert parse(json.dumps(doc).encode(), BOUNDS).doc == doc


def test_too_many_elements_and_too_many_bytes_are_refused_before_parsing() -> None:
    with pytest.raises(TooLarge) as caught:
        parse(b"[" + b"," * 6_000, BOUNDS)
    assert caught.value.facts["bound"] == "elements"
    with pytest.raises(TooLarge) as caught:
        parse(b"\xff" * 1_000_001, BOUNDS)
    assert caught.value.facts["bound"] == "bytes"


def test_long_whole_numbers_are_floats_and_cost_no_quadratic_time() -> None:
    for number in ("18446744073709551616", "100000000000000000000", "9" * 300):
        plain = parse(f'{{"inputs": [{number}]}}'.encode(), BOUNDS).doc["inputs"]
        with_nan = parse(f'{{"inputs": [{number}, NaN]}}'.encode(), BOUNDS).doc["inputs"]
        assert plain[0] == with_nan[0] == float(number)
    for extra in ("", ", NaN"):
        with pytest.raises(InvalidJson):
            parse(f'{{"inputs": [{"9" * 400_000}{extra}]}}'.encode(), BOUNDS)


@pytest.mark.parametrize("extra", ["", ", NaN"])
def test_a_lone_surrogate_is_refused_by_either_parser(extra: str) -> None:
    with pytest.raises(InvalidRequest):
        parse(f'{{"model": "\\ud800", "inputs": [1{extra}]}}'.encode(), BOUNDS)


def test_a_gzip_body_may_grow_a_hundredfold_or_to_a_mebibyte() -> None:
    limit = 32 * FREE_BYTES
    small = gzip.compress(b" " * FREE_BYTES)
    assert len(inflate(small, limit)) == FREE_BYTES
    bomb = gzip.compress(b" " * (8 * FREE_BYTES))
    assert len(bomb) * MAX_RATIO < 8 * FREE_BYTES
    with pytest.raises(TooLarge) as caught:
        inflate(bomb, limit)
    assert caught.value.facts["bound"] == "ratio"
    with pytest.raises(TooLarge) as caught:
        inflate(small, FREE_BYTES // 2)
    assert caught.value.facts["bound"] == "bytes"


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b"x" + b])
def test_a_gzip_body_that_is_cut_or_followed_by_something_is_refused(spoil: object) -> None:
    assert callable(spoil)
    with pytest.raises(InvalidRequest):
        inflate(spoil(gzip.compress(b"{}")), 1_000)
