"""Figures of a model's versions as its page shows them."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.utils import timezone

from console.catalog.models import ServedModel
from console.rollups import causes, reading
from console.rollups.causes import Cause
from console.rollups.models import MINUTE_S
from console.rollups.reading import VersionFigures

_SPANS: Final = (("Last hour", timedelta(hours=1), 60), ("Last day", timedelta(days=1), 1800))
_WIDTH: Final = 120.0
_HEIGHT: Final = 26.0


class Part(NamedTuple):
    """One part of a bar, in per cent; x: where it begins."""

    name: str
    ms: float
    x: float
    percent: float


class VersionRow(NamedTuple):
    """One version. jobs, failed: lines of its sparkline. most: jobs of its busiest step."""

    figures: VersionFigures
    jobs: str
    failed: str
    most: int
    parts: list[Part]
    causes: list[Cause]


class Span(NamedTuple):
    """One time, with every version of which a job ended in it. step: what a point of a sparkline is of."""

    title: str
    since: datetime
    step: str
    rows: list[VersionRow]


def of_models(page: Iterable[tuple[ServedModel, object]]) -> dict[str, VersionFigures]:
    """The last hour of the models of a list, by name; of those that nobody called there is none."""
    return reading.models([model.name for model, _ in page], timezone.now() - _SPANS[0][1])


def spans(model: str) -> list[Span]:
    """The last hour and the last day."""
    now = timezone.now()
    return [
        Span(
            title,
            now - length,
            "minute" if step_s == MINUTE_S else "half an hour",
            [_row(one) for one in reading.versions(model, now - length, now, step_s)],
        )
        for title, length, step_s in _SPANS
    ]


def _row(figures: VersionFigures) -> VersionRow:
    jobs = [point.jobs for point in figures.points]
    failed = [point.failed for point in figures.points]
    most = max(jobs)
    has_failed = any(failed)
    return VersionRow(
        figures,
        _line(jobs, most),
        _line(failed, most) if has_failed else "",
        most,
        _parts(figures),
        causes.of(figures),
    )


def _line(counts: Sequence[int], most: int) -> str:
    """Points of an SVG polyline."""
    step = _WIDTH / max(1, len(counts) - 1)
    room = _HEIGHT - 5
    return " ".join(
        f"{place * step:.1f},{_HEIGHT - 2 - count / max(1, most) * room:.1f}" for place, count in enumerate(counts)
    )


def _parts(figures: VersionFigures) -> list[Part]:
    whole = sum(figures.parts.values())
    found: list[Part] = []
    x = 0.0
    for name, ms in figures.parts.items():
        percent = 100 * ms / whole
        found.append(Part(name, ms / figures.jobs, round(x, 3), round(percent, 3)))
        x += percent
    return found
