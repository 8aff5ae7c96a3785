"""Rolls a split back by itself, by one fixed rule, and keeps the evidence (:mod:`console.splits.rule`)."""

from functools import partial
from typing import Final

from console.catalog.models import VersionSplit
from console.config import ConsoleSettings
from console.database import repeat
from console.splits import acts, figures
from console.splits.rule import Bounds, why_rolled_back
from signalbox.program import log
from signalbox.program.errors import SignalboxError

EVERY_S: Final = 2.0
"""Between two looks: a candidate that takes runners down gets few jobs meanwhile."""


async def keep_judged(console: ConsoleSettings) -> None:
    """Until cancelled."""
    bounds = Bounds(console.canary_error_points, console.canary_run_factor, console.canary_run_floor_ms)
    await repeat(partial(judge, bounds), EVERY_S, "canaries.not_judged")


def judge(bounds: Bounds) -> None:
    """Look once at every split that runs."""
    running = VersionSplit.objects.filter(halted_at=None, model__deleted_at=None).select_related("model")
    for split in running:
        candidate, other = figures.last(split)
        why = why_rolled_back(candidate, other, bounds)
        if not why:
            continue
        evidence = {
            "candidate": {"version": split.candidate, **candidate._asdict()},
            "other": {"version": split.base, **other._asdict()},
            "bounds": bounds._asdict(),
        }
        try:
            is_done = acts.halt(split.model.name, split.target, split.started_at, why, evidence)
        except SignalboxError as error:  # an operator was first
            log.warning("canaries.not_rolled_back", model=split.model.name, why=str(error))
            continue
        if is_done:
            log.warning("canaries.rolled_back", model=split.model.name, target=split.target, why=why)
