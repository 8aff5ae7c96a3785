"""REST calls that delete models and versions, and bring them back."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console import bounds
from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.api.base import Endpoint
from console.api.serializers import ModelOut, ReasonIn
from console.audit.acts import Target, check
from console.catalog import publishing
from console.deletion import listing, versions, wholemodels


class UndoableOut(serializers.Serializer[Any]):
    """Something deleted that can be brought back. kind: ``repository``, ``model`` or ``version``. name: of the
    repository, or the model. until: when it is too late for that.
    """

    kind = serializers.CharField()
    name = serializers.CharField()
    version = serializers.IntegerField(allow_null=True)
    deleted_at = serializers.DateTimeField()
    deleted_by = serializers.CharField()
    until = serializers.DateTimeField()


class DeletedOut(UndoableOut):
    """What is deleted now. unpublished: why the fleet does not know it yet; empty once it does."""

    unpublished = serializers.CharField(allow_blank=True)


class Deletion(Endpoint):
    """Deletes, and brings back what was deleted."""

    @extend_schema(operation_id="deleted_list", responses=UndoableOut(many=True))
    def index(self, request: Request) -> Response:
        """List what was deleted and can be brought back, the newest deletion first."""
        self.sees(request, Act.MODELS_VIEW)
        return Response(UndoableOut(listing.undoable(only=self.actor(request).only_models), many=True).data)

    @extend_schema(request=ReasonIn, responses=ModelOut)
    def undo_model(self, request: Request, name: str) -> Response:
        """Bring a deleted model back, as it was."""
        actor = self._actor(request, name)
        model = wholemodels.undo_model(actor, name, reason=self.given(request, ReasonIn)["reason"])
        publishing.why_unpublished(name)
        return Response(ModelOut(model).data)

    @extend_schema(responses=ModelOut)
    def version(self, request: Request, name: str, number: str) -> Response:
        """Delete a version. Refused while the default, a label or an open job needs it."""
        actor = self._actor(request, name)
        model = versions.delete_version(actor, name, bounds.number(number, "version"))
        publishing.why_unpublished(name)
        return Response(ModelOut(model).data)

    @extend_schema(request=ReasonIn, responses=ModelOut)
    def undo_version(self, request: Request, name: str, number: str) -> Response:
        """Bring a deleted version back, as it was."""
        actor = self._actor(request, name)
        reason = self.given(request, ReasonIn)["reason"]
        model = versions.undo_version(actor, name, bounds.number(number, "version"), reason=reason)
        publishing.why_unpublished(name)
        return Response(ModelOut(model).data)

    def _actor(self, request: Request, name: str) -> Actor:
        """Who acts on which model. Whether they may is said before what is wrong with the request."""
        actor = self.actor(request)
        check(actor, Act.MODELS_DELETE, Target("model", name))
        self.confirmed(request)
        return actor
