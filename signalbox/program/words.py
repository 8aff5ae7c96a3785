"""Counts in words."""

from typing import Final

_UNITS: Final = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "bytes"))


def counted(count: float, one: str, many: str = "") -> str:
    """``1 job``, ``2 jobs``; with a verb: ``counted(n, "job waits", "jobs wait")``. many: default ``one`` with an s."""
    return f"{count:.15g} {one if count == 1 else many or f'{one}s'}"


def bytes_of(done_bytes: int, size_bytes: int) -> str:
    """``41 of 100 MB``: in the unit of the whole, one decimal below ten."""
    unit, name = next((unit for unit in _UNITS if size_bytes >= unit[0]), _UNITS[-1])
    return f"{_figure(done_bytes / unit)} of {_figure(size_bytes / unit)} {name}"


def _figure(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if value < 9.95 else f"{value:.0f}"
