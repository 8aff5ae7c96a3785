"""Finds how far nested lists are as they should be, by whole levels: a bad body must not cost more than a good one."""

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any


def leading(values: Sequence[Any], kinds: Collection[type]) -> int:
    """How many values, from the first on, are of one of these types."""
    found = list(map(type, values))
    return min((found.index(kind) for kind in set(found).difference(kinds)), default=len(found))


def leading_whole(values: Sequence[Any], low: int, end: int) -> int:
    """How many values, from the first on, are whole numbers of at least ``low`` and below ``end``."""
    whole = values[: leading(values, (int,))]
    if not whole or (low <= min(whole) and max(whole) < end):
        return len(whole)
    return next(index for index, value in enumerate(whole) if not low <= value < end)


def leading_rows(rows: Sequence[Any], shape: Sequence[int]) -> tuple[int, list[Any], int]:
    """How many rows, from the first on, are lists of this shape; their elements, and how many each row has."""
    count, size, level = len(rows), 1, list(rows)
    for wanted in shape:
        lists = level[: leading(level, (list,))]
        lengths = list(map(len, lists))
        if set(lengths) != {wanted}:
            lists = lists[: next((n for n, length in enumerate(lengths) if length != wanted), len(lists))]
        count = len(lists) // size
        level = list(chain.from_iterable(lists[: count * size]))
        size *= wanted
        if not size:
            return count, [], 0
    return count, level, size
