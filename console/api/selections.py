"""REST calls on selections: an act on many jobs, frozen, run in the background, and stopped."""

from typing import Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api import serializers as wire
from console.api.base import Endpoint
from console.api.strict import Strict
from console.bounds import MOST_LETTERS, MOST_NUMBER
from console.selections import services
from console.selections.kinds import KINDS
from console.selections.models import Selection, SelectionItem
from signalbox.wire.names import PRIORITIES

_MOST_NAMED: Final = 10_000
"""Ids of one call; a filter chooses more."""


class SelectionIn(wire.ReasonIn):
    """Which jobs, by their ids or by a filter, and what is to be done to each.

    q: filter as of the job list; empty = every job. priority: of the act ``priority``. is_started: false = only
    chosen: it is started by ``start``, and forgotten after an hour.
    """

    act = serializers.ChoiceField(sorted(KINDS))
    jobs = serializers.ListField(
        child=serializers.CharField(max_length=36),
        required=False,
        default=None,
        allow_null=True,
        max_length=_MOST_NAMED,
    )
    q = serializers.CharField(max_length=MOST_LETTERS, required=False, default=None, allow_null=True, allow_blank=True)
    priority = serializers.ChoiceField(PRIORITIES[:-1], required=False, default=PRIORITIES[0])
    is_started = serializers.BooleanField(required=False, default=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """One way to choose."""
        if (attrs["jobs"] is None) is (attrs["q"] is None):
            raise ValidationError("Give either jobs, a list of ids, or q, a filter.")
        return attrs


class SelectionOut(serializers.ModelSerializer[Selection]):
    """A selection. words: which jobs. done, failed, left: how many were acted on, refused, and not begun.

    state: ``chosen`` (not started), ``waiting``, ``running``, ``stopped``, ``ended``.
    """

    left = serializers.IntegerField()

    class Meta:
        model = Selection
        exclude = ("actor", "holder", "held_until")


class ItemOut(serializers.ModelSerializer[SelectionItem]):
    """One job of a selection. outcome: ``done``, ``refused``, or empty as long as it is not acted on."""

    class Meta:
        model = SelectionItem
        fields = ("id", "job_id", "outcome", "note")


class ItemPageOut(serializers.Serializer[Any]):
    """A page of them. after: where the next page begins, null at the end."""

    items = ItemOut(many=True)
    after = serializers.IntegerField(allow_null=True)


class ItemsQuery(Strict):
    """Which of them. outcome: only those. after: the ``after`` of the page before."""

    outcome = serializers.ChoiceField(
        [SelectionItem.DONE, SelectionItem.REFUSED, "left"], required=False, default="", allow_blank=True
    )
    after = serializers.IntegerField(min_value=0, max_value=MOST_NUMBER, required=False, default=0)
    size = serializers.IntegerField(min_value=1, max_value=500, required=False, default=100)


class Selections(Endpoint):
    """Acts on many jobs."""

    @extend_schema(operation_id="selections_list", responses=SelectionOut(many=True))
    def index(self, request: Request) -> Response:
        """List the selections that are kept, newest first."""
        self.sees(request, Act.JOBS_VIEW)
        return Response(SelectionOut(Selection.objects.all(), many=True).data)

    @extend_schema(request=SelectionIn, responses={202: SelectionOut})
    def create(self, request: Request) -> Response:
        """Freeze which jobs are chosen, and act on each of them in the background."""
        data = self.given(request, SelectionIn)
        chosen = services.freeze(
            self.actor(request),
            data["act"],
            ids=data["jobs"] or (),
            filter_text=data["q"],
            options={"priority": data["priority"]},
            reason=data["reason"],
            is_started=data["is_started"],
        )
        return Response(SelectionOut(chosen).data, status=202)

    @extend_schema(responses=SelectionOut)
    def show(self, request: Request, selection_id: str) -> Response:
        """Show how far a selection is."""
        self.sees(request, Act.JOBS_VIEW)
        return Response(SelectionOut(services.find(selection_id)).data)

    @extend_schema(operation_id="selection_items_list", parameters=[ItemsQuery], responses=ItemPageOut)
    def items(self, request: Request, selection_id: str) -> Response:
        """List what came of each of its jobs."""
        self.sees(request, Act.JOBS_VIEW)
        asked = self.asked(request, ItemsQuery)
        found = services.find(selection_id).items.filter(pk__gt=asked["after"]).order_by("pk")
        if asked["outcome"]:
            found = found.filter(outcome="" if asked["outcome"] == "left" else asked["outcome"])
        rows = list(found[: asked["size"] + 1])
        more = rows[asked["size"] - 1].pk if len(rows) > asked["size"] else None
        return Response({"items": ItemOut(rows[: asked["size"]], many=True).data, "after": more})

    @extend_schema(request=wire.ReasonIn, responses={202: SelectionOut})
    def start(self, request: Request, selection_id: str) -> Response:
        """Start a selection that was only chosen."""
        chosen = services.start(self.actor(request), selection_id, **self.given(request, wire.ReasonIn))
        return Response(SelectionOut(chosen).data, status=202)

    @extend_schema(request=wire.ReasonIn, responses=SelectionOut)
    def stop(self, request: Request, selection_id: str) -> Response:
        """Leave the jobs of a selection that were not begun."""
        chosen = services.stop(self.actor(request), selection_id, **self.given(request, wire.ReasonIn))
        return Response(SelectionOut(chosen).data)
