"""How much keys and accounts were used over an hour, a day or 30 days.

Calls and refusals are those that gateways reported; jobs, bytes and device time are added up from the jobs themselves.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from django.db.models import Q, QuerySet, Sum

from console.keys.models import KeyUse
from console.keys.usage import DAY_S, HOUR_S, MINUTE_S
from console.rollups import reading
from console.rollups.reading import Use


class Span(NamedTuple):
    """A time that ends now, in steps of ``step_s`` seconds, as use is kept."""

    name: str
    words: str
    steps: int
    step_s: int

    def since(self, now: float) -> int:
        """When its first step begins, unix seconds; its last one is under way."""
        return int(now) // self.step_s * self.step_s - (self.steps - 1) * self.step_s


SPANS: Final = {
    "hour": Span("hour", "Last hour", 60, MINUTE_S),
    "day": Span("day", "Last day", 24, HOUR_S),
    "month": Span("month", "Last 30 days", 30, DAY_S),
}
DEFAULT: Final = SPANS["day"]


@dataclass
class Sums:
    """Calls, those of them that were refused, and what the jobs that ended took. Of a key the calls alone are known."""

    calls: int = 0
    refused: int = 0
    jobs: int = 0
    failed: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    device_s: float = 0.0

    def add(self, use: Use) -> None:
        """Add what jobs took."""
        self.jobs += use.jobs
        self.failed += use.failed
        self.bytes_in += use.bytes_in
        self.bytes_out += use.bytes_out
        self.device_s += use.device_s


@dataclass
class Step(Sums):
    """Of the time that begins at ``at``, unix seconds."""

    at: int = 0


@dataclass
class Figures(Sums):
    """Of a whole span. reasons: of the refused calls, the most frequent first."""

    reasons: dict[str, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)


def of_key(kid: str, span: Span, now: float) -> Figures:
    """Calls with one key."""
    return _calls(KeyUse.objects.filter(key_id=kid), span, now)


def of_account(account_id: str, span: Span, now: float) -> Figures:
    """Of all keys of an account, ended ones too."""
    found = _calls(KeyUse.objects.filter(key__account_id=account_id), span, now)
    steps = {step.at: step for step in found.steps}
    since, until = _instant(span.since(now)), _instant(now)
    for use in reading.account(account_id, since, until, span.step_s):
        found.add(use)
        if step := steps.get(round(use.at.timestamp())):
            step.add(use)
    return found


def by_account(span: Span, now: float) -> dict[str, Sums]:
    """Of every account that was used, by its id."""
    found: dict[str, Sums] = {}
    rows = _within(KeyUse.objects.all(), span, now).values_list("key__account_id")
    for account_id, calls, refused in rows.annotate(
        made=Sum("calls", filter=Q(reason="")), refused=Sum("calls", filter=~Q(reason=""))
    ):
        found[account_id] = Sums(calls or 0, refused or 0)
    for account_id, use in reading.accounts(_instant(span.since(now)), _instant(now)).items():
        found.setdefault(account_id, Sums()).add(use)
    return found


def _within(rows: QuerySet[KeyUse], span: Span, now: float) -> QuerySet[KeyUse]:
    return rows.filter(step_s=span.step_s, at__gte=span.since(now))


def _calls(rows: QuerySet[KeyUse], span: Span, now: float) -> Figures:
    since = span.since(now)
    found = Figures(steps=[Step(at=since + i * span.step_s) for i in range(span.steps)])
    counted: Iterable[tuple[int, str, int]] = (
        _within(rows, span, now).values_list("at", "reason").annotate(n=Sum("calls"))
    )
    for at, reason, count in counted:
        step = found.steps[min((at - since) // span.step_s, span.steps - 1)]
        if reason:
            found.reasons[reason] = found.reasons.get(reason, 0) + count
            step.refused += count
            found.refused += count
        else:
            step.calls += count
            found.calls += count
    found.reasons = dict(sorted(found.reasons.items(), key=lambda each: -each[1]))
    return found


def _instant(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
