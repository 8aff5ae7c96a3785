"""How much a key or an account was used, over an hour, a day or 30 days: sums, reasons of refusals, and steps."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from django.db.models import F, Q, QuerySet, Sum

from console.keys.models import KeyUse
from console.keys.usage import HOUR_S, MINUTE_S


class Span(NamedTuple):
    """A time that ends now. step_s: of one bar; kept_s: of the rows it is summed from."""

    name: str
    words: str
    steps: int
    step_s: int
    kept_s: int

    def since(self, now: float) -> int:
        """When its first step begins, unix seconds; its last one is under way."""
        return int(now) // self.step_s * self.step_s - (self.steps - 1) * self.step_s


SPANS: Final = {
    "hour": Span("hour", "last hour", 60, MINUTE_S, MINUTE_S),
    "day": Span("day", "last day", 24, HOUR_S, HOUR_S),
    "month": Span("month", "last 30 days", 30, 24 * HOUR_S, HOUR_S),
}


class Step(NamedTuple):
    """One bar: calls of the time that begins at ``at``, and how many of them were refused."""

    at: int
    calls: int
    refused: int


@dataclass
class Calls:
    """Calls as reported. reasons: of the refused ones, the most frequent first."""

    calls: int = 0
    refused: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)


def of_key(kid: str, span: Span, now: float) -> Calls:
    """Of one key."""
    return _summed(KeyUse.objects.filter(key_id=kid), span, now)


def of_account(account_id: str, span: Span, now: float) -> Calls:
    """Of all keys of an account, ended ones too."""
    return _summed(KeyUse.objects.filter(key__account_id=account_id), span, now)


def by_account(span: Span, now: float) -> dict[str, Calls]:
    """Of every account that was used: without steps and reasons."""
    rows = (
        _within(KeyUse.objects.all(), span, now)
        .values_list("key__account_id")
        .annotate(made=Sum("calls", filter=Q(reason="")), refused=Sum("calls", filter=~Q(reason="")))
    )
    return {account_id: Calls(made or 0, refused or 0) for account_id, made, refused in rows}


def _within(rows: QuerySet[KeyUse], span: Span, now: float) -> QuerySet[KeyUse]:
    return rows.filter(step_s=span.kept_s, at__gte=span.since(now))


def _summed(rows: QuerySet[KeyUse], span: Span, now: float) -> Calls:
    since = span.since(now)
    found = Calls()
    refused, calls = [0] * span.steps, [0] * span.steps
    reasons: dict[str, int] = {}
    of_step = F("at") / span.step_s  # of whole numbers, so without a rest
    for number, reason, count in _within(rows, span, now).values_list(of_step, "reason").annotate(n=Sum("calls")):
        index = min(max(0, number - since // span.step_s), span.steps - 1)
        if reason:
            refused[index] += count
            reasons[reason] = reasons.get(reason, 0) + count
        else:
            calls[index] += count
    found.calls, found.refused = sum(calls), sum(refused)
    found.reasons = dict(sorted(reasons.items(), key=lambda each: -each[1]))
    found.steps = [Step(since + i * span.step_s, calls[i], refused[i]) for i in range(span.steps)]
    return found
