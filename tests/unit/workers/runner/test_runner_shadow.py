"""What a candidate's outputs are compared with, and what counts as outside."""

import math
from typing import Any

import numpy as np
import pytest

from signalbox.wire import tensors
from signalbox.wire.shadows import MOST_DIFFERENCE, MOST_TENSORS
from workers.runner.arrays import Output
from workers.runner.shadow import Compared, compare

TOLERANCE = 1e-4


def frame(dtype: str = "float32", **outputs: object) -> bytes:
    made = {name: np.array(values, dtype=object if dtype == "string" else dtype) for name, values in outputs.items()}
    return tensors.encode([Output(dtype, values).tensor(name) for name, values in made.items()])


def found(one: bytes, other: bytes, tolerance: float = TOLERANCE) -> Compared:
    return compare([other], [one], {}, tolerance=tolerance)


def test_each_row_is_one_output_whatever_the_tensors_of_it_that_differ() -> None:
    one = frame(a=[1.0, 2.0, 3.0, 4.0], b=[[1.0, 1.0]] * 4)
    other = frame(a=[1.0, 2.5, 3.0, 4.0], b=[[1.0, 1.0], [1.0, 3.0], [1.0, 1.0], [2.0, 1.0]])
    assert found(one, other) == Compared(4, 2, 0, {"a": (1, 0.5), "b": (2, 2.0)})


@pytest.mark.parametrize(("tolerance", "outside"), [(1e-4, 1), (1e-2, 0)])
def test_a_difference_within_the_tolerance_is_not_outside_and_is_shown(tolerance: float, outside: int) -> None:
    got = found(frame(y=[100.0, 1.0]), frame(y=[100.5, 1.0]), tolerance)
    assert got == Compared(2, outside, 0, {"y": (outside, 0.5)})


def test_what_is_rounded_otherwise_is_not_outside() -> None:
    got = found(frame(y=[[1000.0, 1e-9]]), frame(y=[[1000.01, -1e-9]]))
    assert (got.compared, got.outside) == (1, 0)


@pytest.mark.parametrize(("dtype", "one", "other"), [("int64", [1, 2], [1, 3]), ("string", [b"a", b"b"], [b"a", b"c"])])
def test_numbers_that_are_whole_and_texts_have_to_be_equal(dtype: str, one: list[object], other: list[object]) -> None:
    got = found(frame(dtype, y=one), frame(dtype, y=other), tolerance=1.0)
    assert (got.compared, got.outside, got.tensors["y"][0]) == (2, 1, 1)


def test_another_shape_or_type_or_an_output_that_is_not_there_is_outside_in_each_row() -> None:
    one = frame(y=[1.0, 2.0])
    for other in (frame(y=[[1.0], [2.0]]), frame("float64", y=[1.0, 2.0]), frame(z=[1.0, 2.0])):
        assert found(one, other)[:3] == (2, 2, 0)


def test_outputs_without_rows_count_as_one() -> None:
    assert found(frame(y=3.0), frame(y=4.0)) == Compared(1, 1, 0, {"y": (1, 1.0)})


def test_no_number_is_like_no_number_and_its_difference_to_one_is_finite() -> None:
    assert found(frame(y=[math.nan, 1.0]), frame(y=[math.nan, 2.0]))[:3] == (2, 1, 0)
    got = found(frame(y=[1.0, math.inf]), frame(y=[math.inf, math.inf]))
    assert got == Compared(2, 1, 0, {"y": (1, MOST_DIFFERENCE)})


def test_what_the_candidate_refused_has_failed_and_is_outside() -> None:
    one, other = frame(y=[1.0, 2.0]), frame(y=[3.0])
    assert compare([b"", other], [one, other], {0}, tolerance=TOLERANCE) == Compared(3, 2, 2, {"y": (0, 0.0)})


def test_a_bounded_number_of_outputs_is_told_and_all_are_compared() -> None:
    names = [f"y{at:02}" for at in range(MOST_TENSORS + 1)]
    values: dict[str, Any] = {name: [1.0] for name in names}
    got = found(frame(**values), frame(**{**values, names[-1]: [2.0]}))
    assert (len(got.tensors), got.outside) == (MOST_TENSORS, 1)
