"""What counts as flapping: a change that is taken back within its window."""

import pytest

from benchmarks.scale.series import Series


def series(*steps: tuple[float, int]) -> Series:
    made = Series()
    for at_s, number in steps:
        made.note(at_s, number)
    return made


@pytest.mark.parametrize(
    ("steps", "flaps"),
    [
        ([(0.0, 1), (1.0, 4), (20.0, 1), (40.0, 0)], 0),
        ([(0.0, 4), (9.0, 3)], 1),  # taken down within ten seconds of growing
        ([(0.0, 4), (10.0, 3)], 0),
        ([(0.0, 4), (12.0, 3), (16.0, 4)], 1),  # and up again within five
        ([(0.0, 4), (12.0, 3), (17.0, 4), (18.0, 3)], 1),
    ],
)
def test_only_what_is_taken_back_within_its_window_is_flapping(steps: list[tuple[float, int]], flaps: int) -> None:
    assert len(series(*steps).reversals(up_s=5.0, down_s=10.0)) == flaps


def test_a_number_that_is_told_again_is_no_change() -> None:
    made = series((0.0, 1), (1.0, 1), (2.0, 3))
    assert [(change.before, change.after) for change in made.changes()] == [(0, 1), (1, 3)]
    assert (made.most, made.words(0.0)) == (3, "0, 1 at 0.0 s, 3 at 2.0 s")
