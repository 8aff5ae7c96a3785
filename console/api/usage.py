"""REST calls on the use of keys and accounts."""

import time
from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api.base import Endpoint
from console.api.strict import Strict
from console.keys import accounts, figures, services
from console.keys.figures import Figures, Span


class UsageQuery(Strict):
    """Which time, up to now."""

    span = serializers.ChoiceField(
        choices=list(figures.SPANS),
        required=False,
        default=figures.DEFAULT.name,
        help_text="An hour by the minute, a day by the hour, or 30 days (`month`) by the day (UTC).",
    )


class UsedOut(serializers.Serializer[Any]):
    """calls, refused: as gateways reported them. jobs, failed: those that ended. device_s: runs, each shared out by the
    jobs that ran together. Of a single key only the calls are known.
    """

    calls = serializers.IntegerField()
    refused = serializers.IntegerField()
    jobs = serializers.IntegerField()
    failed = serializers.IntegerField()
    bytes_in = serializers.IntegerField()
    bytes_out = serializers.IntegerField()
    device_s = serializers.FloatField()


class StepOut(UsedOut):
    """Use in one step. at: when it began, UTC seconds."""

    at = serializers.IntegerField()


class UsageOut(UsedOut):
    """Use over a time. since: UTC seconds. reasons: refused calls by the code of their error, with what was exceeded
    after a colon.
    """

    span = serializers.CharField()
    since = serializers.IntegerField()
    step_s = serializers.IntegerField()
    reasons = serializers.DictField(child=serializers.IntegerField())
    steps = StepOut(many=True)


class AccountUseOut(UsedOut):
    """Use of one account. account: its id."""

    account = serializers.CharField()
    name = serializers.CharField()


class Usage(Endpoint):
    """Who used how much."""

    @extend_schema(operation_id="usage_list", parameters=[UsageQuery], responses=AccountUseOut(many=True))
    def index(self, request: Request) -> Response:
        """List accounts by their use: those that took a device the longest first."""
        self.sees(request, Act.ACCOUNTS_VIEW)
        used = figures.by_account(_span(self.asked(request, UsageQuery)), time.time())
        names = dict(accounts.listed().values_list("pk", "name"))
        rows = [{"account": pk, "name": names[pk], **asdict(sums)} for pk, sums in used.items() if pk in names]
        return Response(AccountUseOut(sorted(rows, key=_most), many=True).data)

    @extend_schema(parameters=[UsageQuery], responses=UsageOut)
    def of_account(self, request: Request, account_id: str) -> Response:
        """Show the use of an account, all its keys together."""
        self.sees(request, Act.ACCOUNTS_VIEW)
        span = _span(self.asked(request, UsageQuery))
        account, now = accounts.find(account_id), time.time()
        return Response(_reported(figures.of_account(account.pk, span, now), span, now))

    @extend_schema(parameters=[UsageQuery], responses=UsageOut)
    def of_key(self, request: Request, kid: str) -> Response:
        """Show the calls with a key."""
        self.sees(request, Act.KEYS_VIEW)
        span = _span(self.asked(request, UsageQuery))
        key, now = services.find(kid), time.time()
        return Response(_reported(figures.of_key(key.pk, span, now), span, now))


def _span(asked: dict[str, Any]) -> Span:
    return figures.SPANS[asked["span"]]


def _most(row: dict[str, Any]) -> tuple[float, int]:
    return -row["device_s"], -row["calls"]


def _reported(found: Figures, span: Span, now: float) -> Any:
    told = {**asdict(found), "span": span.name, "since": span.since(now), "step_s": span.step_s}
    return UsageOut(told).data
