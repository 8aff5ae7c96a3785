"""Jobs whose records are to be read: their order, and how many there are of each class."""

from types import SimpleNamespace
from typing import Any, cast

from workers.serving.unexamined import UnexaminedJobs


def held(model: str) -> Any:
    return cast("Any", SimpleNamespace(job=SimpleNamespace(model=model, priority="mid")))


def test_jobs_leave_in_order_of_arrival_and_are_counted_by_class() -> None:
    unexamined = UnexaminedJobs()
    first, second, third = jobs = [held("a"), held("b"), held("a")]
    unexamined.add(jobs)
    assert unexamined.first(2) == [first, second]
    assert (unexamined.count("a", "mid"), unexamined.count("b", "mid"), unexamined.count("a", "hi")) == (2, 1, 0)
    unexamined.drop(2)
    assert unexamined.first(2) == [third]
    assert (unexamined.count("a", "mid"), unexamined.count("b", "mid")) == (1, 0)


def test_what_was_cleared_while_it_was_examined_is_not_dropped_again() -> None:
    unexamined = UnexaminedJobs()
    unexamined.add([held("a")])
    examined = unexamined.first(1)
    assert unexamined.clear() == examined
    unexamined.drop(len(examined))
    assert not unexamined
    assert unexamined.count("a", "mid") == 0
