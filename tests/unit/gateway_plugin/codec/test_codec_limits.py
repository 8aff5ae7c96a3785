"""What a body may be before anybody looks at what it means: size, count, depth, names, digits, inflation."""

import gzip
import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.codec.decoder import inflate
from gateway_plugin.codec.inputs import decode, plans
from signalbox.front.jsonbody import FREE_BYTES, MAX_DEPTH, MAX_RATIO, NAME_ELEMENTS, Bounds, _distinct, parse
from signalbox.program.errors import InvalidInput, InvalidJson, InvalidRequest, TooLarge
from signalbox.wire.modeldocs import Signature, TensorSpec
from signalbox.wire.tensors import ITEM_SIZE

BOUNDS = Bounds(1_000_000, 5_000)


def nested(depth: int) -> bytes:
    """An object of ``depth`` levels, in lists and objects by turns."""
    pairs = [("[", "]") if level % 2 else ('{"a":', "}") for level in range(depth - 1)]
    inner = "".join(o for o, _ in pairs) + "0" + "".join(c for _, c in reversed(pairs))
    return f'{{"inputs": [1.0], "other": {inner}}}'.encode()


def test_a_body_may_be_thirty_two_levels_deep_and_no_deeper() -> None:
    assert parse(nested(MAX_DEPTH), BOUNDS).doc
    with pytest.raises(InvalidJson) as caught:
        parse(nested(MAX_DEPTH + 1), BOUNDS)
    assert caught.value.facts["bound"] == "depth"


@pytest.mark.parametrize("depth", [33, 70, 1_000])
def test_depth_is_measured_also_where_strings_hold_brackets(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    with pytest.raises(InvalidJson):
        parse(f'{{"text": "]]]]", "inputs": {deep}}}'.encode(), BOUNDS)
    assert parse(f'{{"text": "{deep}{"[" * 500}", "inputs": [[1]]}}'.encode(), BOUNDS).doc


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


class Compared(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_name_given_twice_is_found_in_one_pass() -> None:
    names = [Compared(number) for number in (*range(500), 499)]
    Compared.times = 0
    with pytest.raises(InvalidJson, match="'499' twice"):
        _distinct([(name, None) for name in names])
    assert Compared.times < 10 * len(names), "every name was compared with every other"


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


LONG = "a" * 500
AMONG_NUMBERS = [
    f'{{"inputs": ["{LONG}", "b", "c"]}}',
    f'{{"inputs": [[1, 2], [3, "{LONG}"]]}}',
    f'{{"instances": [1, "{LONG}"], "signature_name": "serving_default"}}',
    f'{{"instances": [{{"x": ["{LONG}"]}}]}}',
    f'{{"inputs": {{"x": [1, "{LONG}"]}}, "a": "b:", "c\\"": ":\\""}}',
    f'{{"inputs": "{LONG}"}}',
    f'{{"inputs": [NaN, "{LONG}"]}}',
    f'{{"inputs": [1, ["{LONG}", 2]]}}',
    f'{{"inputs": [[], "{LONG}"]}}',
]


@pytest.mark.parametrize("body", AMONG_NUMBERS)
@pytest.mark.parametrize("dtype", sorted(ITEM_SIZE))
def test_a_string_among_numbers_is_refused_before_numpy_makes_all_as_wide(
    dtype: str, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("numpy was given the string")

    spec = {"x": TensorSpec(dtype=dtype, shape=None)}
    available = plans({"serving_default": Signature(inputs=spec, outputs=spec)})
    parsed = parse(body.encode(), BOUNDS)
    monkeypatch.setattr(np, "array", never)
    with pytest.raises(InvalidInput, match="expected"):
        decode(parsed, available, 1 << 20)


def test_strings_for_one_input_do_not_keep_another_from_its_numbers() -> None:
    dtypes = {"i": "int32", "f": "float32", "b": "bool", "c": "complex64", "s": "string"}
    spec = {name: TensorSpec(dtype=dtype, shape=None) for name, dtype in dtypes.items()}
    available = plans({"serving_default": Signature(inputs=spec, outputs=spec)})
    rows = [{"i": [n], "f": [n + 0.5, 1], "b": True, "c": [[1, 2]], "s": "a"} for n in range(40)]
    found = decode(parse(json.dumps({"instances": rows}).encode(), BOUNDS), available, 1 << 20)
    shapes = {t.name: t.shape for t in found.tensors}
    assert shapes == {"i": (40, 1), "f": (40, 2), "b": (40,), "c": (40, 1), "s": (40,)}


@given(
    st.dictionaries(
        st.text(max_size=4),
        st.recursive(
            st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["", 'a"b', ":", "é"]),
            lambda inner: (
                st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", '"', 'b":']), inner, max_size=3)
            ),
            max_leaves=20,
        ),
        max_size=4,
    )
)
def test_a_body_called_plain_holds_no_string_or_boolean_below_its_top(doc: dict[str, Any]) -> None:
    level = [inner for value in doc.values() for inner in inside(value)]
    while level:
        if any(isinstance(value, str | bool) for value in level):
            assert not parse(json.dumps(doc).encode(), BOUNDS).is_plain
            return
        level = [inner for value in level for inner in inside(value)]


def inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


@pytest.mark.parametrize(
    ("body", "is_plain"),
    [
        ('{"instances": [[1.5, 2], [3, null]]}', True),
        ('{"instances": [1], "signature_name": "serving_default"}', True),
        ('{"model": "digits", "input": {"x": [1], "y": [NaN]}}', True),
        ('{"instances": [' + '{"x": 1},' * 99 + '{"x": 2}]}', True),
        ('{"instances": [' + '{"x": 1},' * 99 + '{"x": "2"}]}', False),
        ('{"instances": [1, true]}', False),
        ('{"instances": ["1"]}', False),
    ],
)
def test_bodies_of_numbers_need_no_check_of_each(body: str, is_plain: bool) -> None:
    assert parse(body.encode(), BOUNDS).is_plain is is_plain


def test_too_many_elements_and_too_many_bytes_are_refused_before_parsing() -> None:
    with pytest.raises(TooLarge) as caught:
        parse(b"[" + b"," * 6_000, BOUNDS)
    assert caught.value.facts["bound"] == "elements"
    with pytest.raises(TooLarge) as caught:
        parse(b"\xff" * 1_000_001, BOUNDS)
    assert caught.value.facts["bound"] == "bytes"


HOPELESS = {
    "names": b'{"instances": [{' + b",".join(b'"n%d" : 1' % n for n in range(5_001)) + b"}]}",
    "depth": b'{"text": "]", "instances": [' + b"[" * 40 + b"]" * 40 + b"]}",
    "elements": b'{"instances": [' + b"1," * 8_001 + b"1]}",
}


@pytest.mark.parametrize("bound", HOPELESS)
def test_a_hopeless_body_is_refused_before_it_is_parsed(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the body was parsed")

    monkeypatch.setattr(orjson, "loads", never)
    monkeypatch.setattr(json, "loads", never)
    with pytest.raises((TooLarge, InvalidJson)) as caught:
        parse(HOPELESS[bound], Bounds(1_000_000, 8_000))
    assert caught.value.facts["bound"] == bound


def test_names_are_counted_and_not_the_colons_in_strings() -> None:
    texts = {"inputs": ["12:30:11"] * 1_000, "a": {"b": 1}}
    elements = 1_001  # as commas and brackets count them
    assert parse(json.dumps(texts).encode(), Bounds(1_000_000, elements + 3 * NAME_ELEMENTS)).doc == texts
    with pytest.raises(TooLarge) as caught:
        parse(json.dumps(texts).encode(), Bounds(1_000_000, elements + 3 * NAME_ELEMENTS - 1))
    assert caught.value.facts["limit_names"] == 2


@pytest.mark.parametrize("form", ['{{"instances": [{{{}}}]}}', '{{"inputs": {{{}}}}}'])
def test_a_refusal_shows_some_of_a_caller_s_names_and_not_all(form: str) -> None:
    names = ",".join(f'"{"n" * 500}{number}": 1' for number in range(1_000))
    spec = {name: TensorSpec(dtype="float32", shape=(-1,)) for name in ("x", "y")}
    available = plans({"serving_default": Signature(inputs=spec, outputs=spec)})
    with pytest.raises(InvalidInput) as caught:
        decode(parse(form.format(names).encode(), Bounds(1_000_000, 10_000)), available, 1 << 20)
    assert len(json.dumps(caught.value.facts)) < 4_000


def test_strings_without_an_end_are_gone_through_once() -> None:
    endless = b'{"a": ' + b"[" * 70 + b'"' + b'\\"' * 400_000
    with pytest.raises(InvalidJson):
        parse(endless, BOUNDS)


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
