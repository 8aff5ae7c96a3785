"""REST calls on splits."""

from typing import Any, Final

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api.base import Endpoint
from console.api.serializers import ModelOut, ReasonIn
from console.bounds import MOST_NUMBER
from console.catalog import lookup, publishing
from console.catalog.models import VersionSplit
from console.splits import acts
from console.splits.figures import compare
from console.splits.shadow import report

DEFAULT: Final = "-"
"""The default, in a path: no label begins so."""


class SplitIn(ReasonIn):
    """What part of the requests gets which version, and by what callers stay on their side."""

    candidate = serializers.IntegerField(min_value=0, max_value=MOST_NUMBER)
    weight = serializers.FloatField(help_text="Above 0, at most 1; 0 where the candidate is run in shadow alone.")
    shadow = serializers.FloatField(
        required=False,
        default=None,
        allow_null=True,
        help_text="Part of the other version's batches, 0 to 1, that workers run on the candidate too and compare;"
        " null = as before.",
    )
    tolerance = serializers.FloatField(
        required=False,
        default=None,
        allow_null=True,
        help_text="Relative difference of numbers that counts as none, 0.0001 at first; null = as before.",
    )
    header = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=64,
        help_text="Callers stay on their side by its value; empty, or in a request without it: by their key.",
    )


class SampleOut(serializers.Serializer[Any]):
    """A version's newest calls, 200 at most. crashes: those that ended their runner. timed: those that succeeded, whose
    time in the runner p50 and p95 are of.
    """

    calls = serializers.IntegerField()
    failed = serializers.IntegerField()
    crashes = serializers.IntegerField()
    timed = serializers.IntegerField()
    run_p50_ms = serializers.FloatField(allow_null=True)
    run_p95_ms = serializers.FloatField(allow_null=True)


class SideOut(serializers.Serializer[Any]):
    """One version. calls, failed: since the split began, among the model's newest 20 000 jobs."""

    version = serializers.IntegerField()
    calls = serializers.IntegerField()
    failed = serializers.IntegerField()
    last = SampleOut()


class ComparisonOut(serializers.Serializer[Any]):
    """Both versions. counted_since: from when on calls are counted, where the split began before; null: from then."""

    candidate = SideOut()
    other = SideOut()
    counted_since = serializers.DateTimeField(allow_null=True)


class TensorOut(serializers.Serializer[Any]):
    """One output. outside: how often it was. largest: difference of two of its numbers."""

    outside = serializers.IntegerField()
    largest = serializers.FloatField()


class ShadowOut(serializers.Serializer[Any]):
    """What shadow runs have found. compared: outputs, one for each row of the inputs. outside: those that differ by
    more than the tolerance, or failed; share: of those compared. run_ms, base_run_ms: mean of a run of the candidate,
    and of the other version's of the same batch. halted: why a worker runs it in shadow no more.
    """

    compared = serializers.IntegerField()
    outside = serializers.IntegerField()
    failed = serializers.IntegerField()
    share = serializers.FloatField()
    runs = serializers.IntegerField()
    run_ms = serializers.FloatField(allow_null=True)
    base_run_ms = serializers.FloatField(allow_null=True)
    tensors = serializers.DictField(child=TensorOut())
    halted = serializers.CharField()


class SplitOut(serializers.ModelSerializer[VersionSplit]):
    """A split. target: the label; empty: the default. base: the other version. halted: why the controller has rolled it
    back by itself, at `halted_at`; `evidence` has the figures. differs: why the candidate, run in shadow, counts
    as unlike the other version; `found` is null before the first comparison.
    """

    evidence = serializers.DictField(read_only=True)
    figures = serializers.SerializerMethodField()
    found = serializers.SerializerMethodField()

    @extend_schema_field(ComparisonOut)
    def get_figures(self, split: VersionSplit) -> Any:
        """Both versions side by side."""
        return ComparisonOut(compare(split)).data

    @extend_schema_field(ShadowOut(allow_null=True))
    def get_found(self, split: VersionSplit) -> Any:
        """What shadow runs have found."""
        found = report(split.shadowed)
        return ShadowOut(found).data if found is not None else None

    class Meta:
        model = VersionSplit
        exclude = ("id", "model", "shadowed")


class SplitsOut(serializers.Serializer[Any]):
    """The splits of a model."""

    splits = SplitOut(many=True)


class Splits(Endpoint):
    """Splits of a model's default and labels. In a path `-` is the default."""

    @extend_schema(responses=SplitsOut)
    def index(self, request: Request, name: str) -> Response:
        """Show what is split."""
        self.sees(request, Act.MODELS_VIEW)
        return Response({"splits": SplitOut(lookup.find(name).splits.all(), many=True).data})

    @extend_schema(request=SplitIn, responses=SplitOut)
    def change(self, request: Request, name: str, target: str) -> Response:
        """Start a split, or change the weight of the one that runs."""
        data = self.given(request, SplitIn)
        split = acts.set_split(self.actor(request), name, _target(target), **data)
        publishing.why_unpublished(name)
        return Response(SplitOut(split).data)

    @extend_schema(request=ReasonIn, responses=ModelOut)
    def promote(self, request: Request, name: str, target: str) -> Response:
        """Let all requests get the candidate; the split ends."""
        model = acts.promote(self.actor(request), name, _target(target), **self.given(request, ReasonIn))
        publishing.why_unpublished(name)
        return Response(ModelOut(model).data)

    @extend_schema(request=ReasonIn, responses=ModelOut)
    def roll_back(self, request: Request, name: str, target: str) -> Response:
        """Let all requests get the other version; the split ends, also one that was rolled back by itself."""
        model = acts.roll_back(self.actor(request), name, _target(target), **self.given(request, ReasonIn))
        publishing.why_unpublished(name)
        return Response(ModelOut(model).data)


def _target(text: str) -> str:
    return "" if text == DEFAULT else text
