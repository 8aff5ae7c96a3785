"""REST calls on figures of ended jobs."""

from datetime import timedelta
from typing import Any, Final

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api.base import Endpoint
from console.api.strict import Strict
from console.catalog import lookup
from console.rollups import causes, reading
from console.rollups.adding import HOURS_KEPT_S
from console.rollups.models import MINUTE_S
from console.rollups.reading import VersionFigures

_COUNTS: Final = ("succeeded", "failed", "cancelled", "expired", "retried", "bytes_in", "bytes_out")


class FiguresQuery(Strict):
    """Which time, up to now, and in what steps."""

    seconds = serializers.IntegerField(
        required=False, default=3600, min_value=MINUTE_S, max_value=HOURS_KEPT_S, help_text="How far back."
    )
    step_s = serializers.IntegerField(
        required=False,
        default=MINUTE_S,
        min_value=MINUTE_S,
        max_value=HOURS_KEPT_S,
        help_text=f"Length of a step; at most {reading.MOST_STEPS} steps. Older than three days: an hour or more.",
    )


class PointOut(serializers.Serializer[Any]):
    """Jobs that ended in one step. at: when it began."""

    at = serializers.DateTimeField()
    jobs = serializers.IntegerField()
    failed = serializers.IntegerField()


class CauseOut(serializers.Serializer[Any]):
    """What makes calls slow. share: of the time of all, or of the jobs where they are retried."""

    name = serializers.CharField()
    share = serializers.FloatField()
    text = serializers.CharField()


class FiguresOut(serializers.Serializer[Any]):
    """One version. failed_share: of those that were not cancelled. device_s: runs, each shared out by the jobs that ran
    together. parts_ms: of all jobs together, by part of a job's time. Null: no job had one.
    """

    version = serializers.IntegerField()
    jobs = serializers.IntegerField()
    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()
    expired = serializers.IntegerField()
    retried = serializers.IntegerField()
    bytes_in = serializers.IntegerField()
    bytes_out = serializers.IntegerField()
    per_s = serializers.FloatField()
    failed_share = serializers.FloatField(allow_null=True)
    device_s = serializers.FloatField()
    wait_p50_ms = serializers.FloatField(allow_null=True)
    wait_p99_ms = serializers.FloatField(allow_null=True)
    run_p50_ms = serializers.FloatField(allow_null=True)
    run_p99_ms = serializers.FloatField(allow_null=True)
    parts_ms = serializers.DictField(child=serializers.FloatField())
    causes = CauseOut(many=True)
    points = PointOut(many=True)


class ModelFiguresOut(serializers.Serializer[Any]):
    """Every version of which a job ended in that time, the newest first."""

    versions = FiguresOut(many=True)


class Figures(Endpoint):
    """Rates, waits, runs and errors."""

    @extend_schema(parameters=[FiguresQuery], responses=ModelFiguresOut)
    def of_model(self, request: Request, name: str) -> Response:
        """Show the figures of a model's versions."""
        self.sees(request, Act.MODELS_VIEW)
        asked = self.asked(request, FiguresQuery)
        now = timezone.now()
        found = reading.versions(
            lookup.find(name).name, now - timedelta(seconds=asked["seconds"]), now, asked["step_s"]
        )
        return Response(ModelFiguresOut({"versions": [_shown(one) for one in found]}).data)


def _shown(one: VersionFigures) -> dict[str, Any]:
    (wait_p50, wait_p99), (run_p50, run_p99) = one.wait_ms, one.run_ms
    return {
        **{name: getattr(one.sums, name) for name in _COUNTS},
        "version": one.version,
        "jobs": one.jobs,
        "per_s": one.per_s,
        "failed_share": one.failed_share,
        "device_s": one.device_s,
        "wait_p50_ms": wait_p50,
        "wait_p99_ms": wait_p99,
        "run_p50_ms": run_p50,
        "run_p99_ms": run_p99,
        "parts_ms": one.parts,
        "causes": causes.of(one),
        "points": one.points,
    }
