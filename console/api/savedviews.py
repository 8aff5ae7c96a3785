"""REST: saved views of lists."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.accounts.models import User
from console.api.base import Endpoint
from console.api.strict import Strict
from console.bounds import MOST_LETTERS, number
from console.views import services


class ViewIn(Strict):
    """A view to save: an own one of this list and name gets the filter."""

    list = serializers.ChoiceField(choices=services.LISTS)
    name = serializers.CharField(max_length=services.MOST_NAME)
    query = serializers.CharField(
        max_length=MOST_LETTERS, allow_blank=True, default="", help_text="As in the list's URL: `q=state%3Afailed`."
    )
    is_shared = serializers.BooleanField(default=False, help_text="With every operator.")


class ViewOut(serializers.Serializer[Any]):
    """A saved view."""

    id = serializers.IntegerField()
    list = serializers.CharField(source="of_list")
    name = serializers.CharField()
    query = serializers.CharField()
    is_shared = serializers.BooleanField()
    owner = serializers.CharField(source="owner.username")


class Views(Endpoint):
    """Own views of lists, and those that are shared."""

    @extend_schema(operation_id="views_list", responses=ViewOut(many=True))
    def index(self, request: Request) -> Response:
        """List the caller's views and those that are shared."""
        self.sees(request, Act.SYSTEM_VIEW)
        user = request.user
        found = services.seen_by(user) if isinstance(user, User) else ()
        return Response(ViewOut(found, many=True).data)

    @extend_schema(operation_id="views_save", request=ViewIn, responses={201: ViewOut})
    def save(self, request: Request) -> Response:
        """Save a view."""
        data = self.given(request, ViewIn)
        view = services.save(self.actor(request), data.pop("list"), **data)
        return Response(ViewOut(view).data, status=201)

    @extend_schema(operation_id="views_remove", responses=ViewOut)
    def remove(self, request: Request, view_id: str) -> Response:
        """Remove a view."""
        return Response(ViewOut(services.remove(self.actor(request), number(view_id, "view"))).data)
