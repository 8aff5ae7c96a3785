"""What stands on the command line for a model's inputs, and for instants."""

import contextlib
import io
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.client import Submission
from signalbox.ops.calls import arrays, inputs, many, times
from signalbox.ops.calls.inputs import Inputs
from signalbox.program.errors import InvalidInput, InvalidRequest, SignalboxError

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def only() -> str:
    return "x"


def nobody() -> str:
    raise AssertionError("nobody asks for the name")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1.0, 2.0]", Inputs(instances=[1.0, 2.0])),
        ('{"a": [1], "b": [2]}', Inputs(inputs={"a": [1], "b": [2]})),
        ('{"instances": [1]}', Inputs(instances=[1])),
        ('{"inputs": [1], "signature_name": "s"}', Inputs(inputs=[1], signature="s")),
    ],
)
def test_json_is_rows_inputs_or_a_whole_body(
    text: str, expected: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "given.json").write_text(text)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    for option in (text, str(tmp_path / "given.json"), "-"):
        assert inputs.read([option], nobody) == expected


def test_arrays_come_by_name_and_one_without_gets_that_of_the_models_input(tmp_path: Path) -> None:
    x = np.arange(3, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "both.npz", a=x, b=x + 1)
    found = inputs.read([f"{tmp_path}/both.npz"], nobody).inputs
    assert {name: one.tolist() for name, one in found.items()} == {"a": [0, 1, 2], "b": [1, 2, 3]}
    assert list(inputs.read([f"{tmp_path}/x.npy"], only).inputs) == ["x"]
    found = inputs.read([f"image={tmp_path}/x.npy", "scale=[2.0]"], nobody).inputs
    assert (found["image"].tolist(), found["scale"]) == ([0, 1, 2], [2.0])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "Give the inputs"),
        (["nowhere.json"], "nowhere.json cannot be read"),
        (["[1,"], "--input is neither JSON nor arrays"),
        (['{"instances": [1], "models": 2}'], "has models beside"),
        (["[1]", "[2]"], "Name each"),
    ],
)
def test_what_cannot_be_an_input_is_refused_with_the_mend(options: list[str], why: str) -> None:
    with pytest.raises(InvalidInput, match=why.replace("[", r"\[")):
        inputs.read(options, only)


def test_arrays_of_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidInput, match="without objects"):
        inputs.read([f"x={tmp_path}/x.npy"], only)


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04 and no archive",
        b"[" * 100_000,
        b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999,)}",
    ],
    ids=("archive", "deep", "shape"),
)
def test_a_damaged_file_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(InvalidInput, match="x is neither JSON nor arrays"):
        inputs.read([f"{tmp_path}/x"], only)


@given(st.text(), st.binary())
def test_whatever_is_typed_is_an_input_or_refused(text: str, data: bytes) -> None:
    for act in (lambda: inputs.read([text], only), lambda: inputs._parsed(data, "standard input")):
        with contextlib.suppress(SignalboxError):
            act()


def test_saved_arrays_are_what_numpy_reads(tmp_path: Path) -> None:
    given_arrays = {"y": np.array([1.5, 2.5], np.float32), "text": np.array([b"a", b"bc"], dtype=object)}
    arrays.put(given_arrays, str(tmp_path / "y.npz"), is_json=False)
    with np.load(tmp_path / "y.npz") as found:
        assert {name: one.tolist() for name, one in found.items()} == {"y": [1.5, 2.5], "text": [b"a", b"bc"]}
    arrays.put({"y": given_arrays["y"]}, str(tmp_path / "y.npy"), is_json=False)
    assert np.load(tmp_path / "y.npy").tolist() == [1.5, 2.5]
    arrays.put(given_arrays, str(tmp_path / "y.json"), is_json=False)
    assert json.loads((tmp_path / "y.json").read_text()) == {"y": [1.5, 2.5], "text": ["a", "bc"]}
    with pytest.raises(InvalidInput, match="save it as"):
        arrays.put(given_arrays, str(tmp_path / "both.npy"), is_json=False)
    with pytest.raises(InvalidInput, match="are saved as"):
        arrays.check("y.txt")


def test_an_array_whose_name_is_that_of_an_argument_of_numpy_is_saved(tmp_path: Path) -> None:
    arrays.put({"file": np.array([1.0])}, str(tmp_path / "y.npz"), is_json=False)
    with np.load(tmp_path / "y.npz") as found:
        assert found["file"].tolist() == [1.0]


def test_a_line_of_many_says_what_differs_from_the_options() -> None:
    base = Submission("digits", label="stable", tags=("night",))
    (rows, other, named), (last,) = many._chunks(
        io.BytesIO(
            b'[[1]]\n\n{"model": "slow", "version": 3, "inputs": [2]}\n'
            b'{"instances": [3], "tags": ["day"], "signature_name": "s"}\n' + b"[" + b"1," * many.MOST_BYTES + b"1]\n"
        ),
        base,
    )
    assert rows == Submission("digits", instances=[[1]], label="stable", tags=("night",))
    assert other == Submission("slow", inputs=[2], version=3, tags=("night",))
    assert named == Submission("digits", instances=[3], label="stable", tags=["day"], signature="s")
    assert last.instances is not None


@pytest.mark.parametrize(
    ("line", "why"),
    [(b"{", "Line 1 is no JSON"), (b'{"instances": [], "x": 1}', "Line 1: The"), (b"[" * 100_000, "no JSON")],
)
def test_a_line_that_cannot_be_read_is_named(line: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        list(many._chunks(io.BytesIO(line), Submission("digits")))


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("+10m", 600), ("2h", 7200), ("1.5d", 129_600)])
def test_spans_are_before_or_after_now(text: str, seconds: float) -> None:
    assert times.ahead(text, NOW) - NOW == timedelta(seconds=seconds) == NOW - times.ago(text, NOW)


def test_an_instant_is_taken_as_it_is_and_anything_else_refused() -> None:
    assert times.ago("2026-01-31T13:00:00+01:00", NOW) == NOW
    assert times.ahead("2026-01-31T12:00:00", NOW).tzinfo is not None
    for text in ("soon", "999999d", "0001-01-01T00:00:00"):
        with pytest.raises(InvalidRequest, match=f"'{text}' is no time"):
            times.ago(text, NOW)
