"""Request bodies: our own JSON and TensorFlow Serving's, plain and gzip, through parsing, decoding and rendering.

A body is either refused with an error that is the caller's (4xx) or decoded into tensors whose bytes are exactly
what dtype and shape say, within the bounds, from JSON that reads in one way only; rendering them is JSON again.
"""

import json
import math
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

import orjson

from gateway_plugin.admission.submission import read_options
from gateway_plugin.api.jobs.body import target_of
from gateway_plugin.codec.decoder import INPUT_FIELDS, inflate
from gateway_plugin.codec.inputs import COLUMNAR, ROW, decode, plans
from gateway_plugin.codec.many import FIELD, decode_one, jobs_of, require_object
from gateway_plugin.codec.outputs import render, split_strings
from gateway_plugin.jsonresponses import problem
from signalbox.front.jsonbody import MAX_DEPTH, Bounds, parse
from signalbox.program.errors import InvalidRequest, SignalboxError, meaning
from signalbox.wire.modeldocs import Signature, TensorSpec
from signalbox.wire.tensors import ITEM_SIZE, Tensor

SEEDS: Final = Path(__file__).parent / "corpus" / "json_bodies"
SHARE: Final = 90_000
TOKENS: Final = tuple(
    word.encode()
    for word in (
        '"instances"',
        '"inputs"',
        '"input"',
        '"signature_name"',
        '"serving_default"',
        '"pair"',
        '"text"',
        '"image"',
        '"scalar"',
        '"flags"',
        '"z"',
        '"halves"',
        '"wide"',
        '"x"',
        '"a"',
        '"b"',
        '"b64"',
        '{"b64": "aGk="}',
        '"model"',
        '"version"',
        '"label"',
        '"priority"',
        '"hi"',
        '"deadline_s"',
        "NaN",
        "-Infinity",
        "Infinity",
        "null",
        "true",
        "false",
        "[[",
        "]]",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        '":',
        '"',
        "\\u0000",
        "\\ud800",
        "\\ud83d\\ude00",
        "\u00e9",
        "\ufeff",
        "1e400",
        "-0.0",
        "0x1",
        "01",
        "1.",
        ".5",
        "+1",
        "\x1f\x8b",
    )
)
BOUNDS: Final = Bounds(65_536, 20_000)
LIMIT_BYTES: Final = 100_000


def _spec(dtype: str, *shape: int) -> TensorSpec:
    return TensorSpec(dtype=dtype, shape=shape)


SIGNATURES: Final = {
    "serving_default": Signature(inputs={"x": _spec("float32", -1)}, outputs={}),
    "pair": Signature(inputs={"a": _spec("int32", -1, 2), "b": _spec("uint64", -1)}, outputs={}),
    "text": Signature(inputs={"b64": _spec("string", -1)}, outputs={}),
    "image": Signature(inputs={"x": _spec("uint8", -1, 2, 2)}, outputs={}),
    "scalar": Signature(inputs={"x": _spec("float64")}, outputs={}),
    "flags": Signature(inputs={"x": TensorSpec(dtype="bool", shape=None), "s": _spec("string", -1, -1)}, outputs={}),
    "z": Signature(inputs={"x": _spec("complex64", -1)}, outputs={}),
    "halves": Signature(inputs={"a": _spec("bfloat16", -1), "b": _spec("float16", -1)}, outputs={}),
    "wide": Signature(inputs={"x": TensorSpec(dtype="int64", shape=None)}, outputs={}),
    "nothing": Signature(inputs={}, outputs={}),
}
PLANS: Final = plans(SIGNATURES)
_VARYING: Final = re.compile(r'\d+|"[^"]*"|\[[^\]]*\]')


def one(data: bytes) -> Hashable:
    """Raises AssertionError where a promise is broken, or whatever the code raised that it must not."""
    try:
        text = inflate(data, BOUNDS.body_bytes) if data[:2] == b"\x1f\x8b" else data
        body = parse(text, BOUNDS)
        for read in (target_of, read_options):
            _read_fields(read, body.doc)
        if FIELD in body.doc:
            return _many(body.doc)
        found = decode(body, PLANS, LIMIT_BYTES)
    except SignalboxError as error:
        return _check_refusal(error)
    _check_reading(text)
    for tensor in found.tensors:
        _check_tensor(tensor)
    assert sum(len(tensor.data) for tensor in found.tensors) <= LIMIT_BYTES
    assert found.style in {ROW, COLUMNAR}
    _check_rendering(found.tensors, found.style)
    return found.signature, found.style, tuple(len(tensor.shape) for tensor in found.tensors)


def _many(doc: dict[str, Any]) -> Hashable:
    """A body with many jobs: each has its tensors, or an error of its own."""
    outcomes: list[Hashable] = []
    for job in jobs_of(doc):
        try:
            require_object(job)
            outcomes.append(decode_one(job, PLANS, LIMIT_BYTES).signature)
        except SignalboxError as error:
            outcomes.append(_check_refusal(error))
    return tuple(outcomes[:3])


def _read_fields(read: Any, doc: dict[str, Any]) -> None:
    try:
        read({name: value for name, value in doc.items() if name not in INPUT_FIELDS})
    except InvalidRequest as error:
        _check_refusal(error)


def _check_refusal(error: SignalboxError) -> Hashable:
    """The caller's fault, in words that can be shown to the caller."""
    status = meaning(error.code).http
    assert 400 <= status < 500, f"{status} for a bad body: {error.public_message}"
    orjson.dumps(problem(error))
    return error.code, _VARYING.sub("", error.public_message)[:60]


def _check_reading(text: bytes) -> None:
    """What was accepted means one thing only, and is no deeper than we say."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        assert len(names) == len(set(names)), f"{names} were accepted"
        return dict(pairs)

    doc = json.loads(text, object_pairs_hook=once, parse_int=float)
    level, depth = [doc], 0
    while level:
        depth += 1
        inner = (v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list))
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    assert depth <= MAX_DEPTH, f"depth {depth} was accepted"


def _check_tensor(tensor: Tensor) -> None:
    count = math.prod(tensor.shape)
    if tensor.dtype == "string":
        assert len(split_strings(tensor.data)) == count, tensor.shape
    else:
        assert len(tensor.data) == count * ITEM_SIZE[tensor.dtype], tensor.shape


def _check_rendering(tensors: list[Tensor], style: str) -> None:
    try:
        json.loads(render(tensors, style))
    except InvalidRequest as error:
        _check_refusal(error)
