"""Use of a key or an account as pages show it: sums, a chart with its table, and why calls were refused."""

import time
from datetime import UTC, datetime
from typing import Final, NamedTuple

from django.http import HttpRequest

from console.keys import figures
from console.keys.figures import Figures, Span, Step
from signalbox.program.errors import MEANINGS

WIDTH: Final = 900
HEIGHT: Final = 160
_GAP: Final = 2.0
_REASONS: Final = {
    "unauthorized:ended": "The key has ended, or its account is disabled.",
    "unauthorized:address": "The key is not for the network the call came from.",
    "limit_exceeded:rate": "The rate of the key was reached.",
    "limit_exceeded:quota": "The quota of the key was used up.",
    "other": "Rarer reasons together.",
}


class Bar(NamedTuple):
    """One step of the chart: what was served stands on what was refused. what: for a pointer that rests on it."""

    x: float
    width: float
    served_y: float
    served: float
    refused_y: float
    refused: float
    what: str


class Use(NamedTuple):
    """All of it. rows: the table, the newest first. reasons: code, words and how often."""

    span: Span
    spans: list[Span]
    figures: Figures
    bars: list[Bar]
    top: int
    half: int
    axis: list[str]
    rows: list[tuple[str, Step]]
    reasons: list[tuple[str, str, int]]


def asked_span(request: HttpRequest) -> Span:
    """The span that a page's address names, or the usual one."""
    return figures.SPANS.get(request.GET.get("span", ""), figures.DEFAULT)


def of_key(request: HttpRequest, kid: str) -> Use:
    """Of one key, over the span that was asked for."""
    span = asked_span(request)
    return _shown(span, figures.of_key(kid, span, time.time()))


def of_account(request: HttpRequest, account_id: str) -> Use:
    """Of one account, over the span that was asked for."""
    span = asked_span(request)
    return _shown(span, figures.of_account(account_id, span, time.time()))


def _shown(span: Span, found: Figures) -> Use:
    top = _round_up(max(step.calls for step in found.steps))
    labels = [_label(span, step.at) for step in found.steps]
    return Use(
        span=span,
        spans=list(figures.SPANS.values()),
        figures=found,
        bars=[_bar(place, len(labels), step, top, labels[place]) for place, step in enumerate(found.steps)],
        top=top,
        half=top // 2,
        axis=[labels[0], labels[len(labels) // 2], "now"],
        rows=list(reversed(list(zip(labels, found.steps, strict=True)))),
        reasons=[(reason, _words(reason), count) for reason, count in found.reasons.items()],
    )


def _bar(place: int, of: int, step: Step, top: int, label: str) -> Bar:
    width = WIDTH / of
    refused = min(step.refused, step.calls) / top * HEIGHT
    served = (step.calls - min(step.refused, step.calls)) / top * HEIGHT
    return Bar(
        x=round(place * width, 1),
        width=round(width - _GAP, 1),
        served_y=round(HEIGHT - refused - served, 1),
        served=round(served, 1),
        refused_y=round(HEIGHT - refused, 1),
        refused=round(refused, 1),
        what=f"{label}: {step.calls} calls, {step.refused} refused",
    )


def _round_up(value: int) -> int:
    """The next of 2, 4, 10, 20, 40, 100 and so on that is not below: half of it is a whole number."""
    power = 1
    while True:
        for first in (2, 4, 10):
            if first * power >= value:
                return first * power
        power *= 10


def _label(span: Span, at: int) -> str:
    begun = datetime.fromtimestamp(at, UTC)
    return f"{begun:%d %b}" if span.name == "month" else f"{begun:%H:%M} UTC"


def _words(reason: str) -> str:
    if reason in _REASONS:
        return _REASONS[reason]
    code = reason.partition(":")[0]
    return f"{MEANINGS[code].title}." if code in MEANINGS else ""  # empty: of a gateway of a newer release
