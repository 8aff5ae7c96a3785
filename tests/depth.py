"""How far proofs go: a little way in ``make test``, all the way in ``make verify`` (``pytest --depth full``)."""

from typing import Final, TypeVar

T = TypeVar("T")
SHORT: Final = "short"
FULL: Final = "full"
_chosen = SHORT


def choose(depth: str) -> None:
    """For all tests of this run, before they are collected."""
    global _chosen  # noqa: PLW0603  tests are made when their modules are read, which take no arguments
    _chosen = depth


def at(*, short: T, full: T) -> T:
    """What a proof does at the depth that was chosen."""
    return full if _chosen == FULL else short
