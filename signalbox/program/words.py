"""Counts in words."""


def counted(count: float, one: str, many: str = "") -> str:
    """``1 job``, ``2 jobs``; with a verb: ``counted(n, "job waits", "jobs wait")``. many: default ``one`` with an s."""
    return f"{count:.15g} {one if count == 1 else many or f'{one}s'}"
