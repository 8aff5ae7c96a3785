"""The REST call that takes an act back."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import serializers as wire
from console.api.base import Endpoint
from console.undo import services


class UndoneOut(serializers.Serializer[dict[str, str]]):
    """What was taken back. unpublished: why the fleet does not know it yet; empty once it does."""

    act = serializers.CharField()
    target_kind = serializers.CharField()
    target = serializers.CharField()
    unpublished = serializers.CharField()


class Undo(Endpoint):
    """Acts that can be taken back."""

    @extend_schema(request=wire.ReasonIn, responses={200: UndoneOut, 202: UndoneOut})
    def undo(self, request: Request, number: str) -> Response:
        """Put back what an act has changed, by the number of its entry in the audit: for a day, while it stands."""
        data = self.given(request, wire.ReasonIn)
        entry = services.find(self.actor(request), number)
        if entry.act in services.CONFIRMED:
            self.confirmed(request)
        why = services.undo(self.actor(request), entry, **data)
        said = {"act": entry.act, "target_kind": entry.target_kind, "target": entry.target, "unpublished": why}
        return Response(said, status=202 if why else 200)
