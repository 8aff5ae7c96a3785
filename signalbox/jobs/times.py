"""Splits a job's time into parts, from the phases of its record. All programs that show times use it.

**wait** is from acceptance to ``started``. Its parts: **queue** until a worker pulled the job, **prepare** for its
batch, the lease and the runner, and **load**, if its version had to be loaded. **run** is from ``started`` to
``computed``, **commit** from there to ``done``. Phases are milliseconds since acceptance. Clocks differ, and a claim is
written while the run goes on, so no part is negative.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec


class Part(msgspec.Struct, frozen=True):
    """One part of a job's time, in milliseconds since acceptance."""

    name: str
    start_ms: float
    end_ms: float


class Times(NamedTuple):
    """Milliseconds of an attempt; None what is not known or has not come yet."""

    wait_ms: float | None = None
    run_ms: float | None = None
    total_ms: float | None = None


def started_ms(phases: Mapping[str, float]) -> float | None:
    """When the run began; None if it never did.

    Only a job's end says when. Until then, and in failures recorded by older workers, its claim stands for it: it is
    written as the run begins or soon after.
    """
    return phases.get("started", phases.get("claimed"))


def wait_ms(phases: Mapping[str, float]) -> float | None:
    """How long the job waited for its last attempt; one that ended without a run has only waited."""
    started = started_ms(phases)
    return phases.get("done") if started is None else started


def split(phases: Mapping[str, float]) -> Times:
    """The times of a record's last attempt."""
    done = phases.get("done")
    started = started_ms(phases)
    computed = phases.get("computed", done)
    run_ms = None if started is None or computed is None else max(0.0, computed - started)
    return Times(wait_ms(phases), run_ms, done)


def parts(phases: Mapping[str, float]) -> list[Part]:
    """The parts of an ended job's time, in order and without a gap from 0 to its end; empty while it is open."""
    done = phases.get("done")
    if done is None:
        return []
    started = started_ms(phases)
    begun = done if started is None else started  # what never began has waited to its end
    waited = "prepare" if "pulled" in phases else "queue"
    is_loaded = "loading" in phases and started is not None
    marks = (
        ("queue", phases.get("pulled")),
        (waited, phases["loading"] if is_loaded else begun),
        ("load", begun if is_loaded else None),
        ("run", None if started is None else phases.get("computed", done)),
        ("commit", None if started is None or "computed" not in phases else done),
    )
    found: list[Part] = []
    last = 0.0
    for name, mark in marks:
        if mark is not None:
            end = min(max(last, mark), done)
            found.append(Part(name, last, end))
            last = end
    return found
