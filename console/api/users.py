"""REST calls on operators: who there is, with which role, and who may log in."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import ROLES, Act
from console.api import serializers as wire
from console.api.base import Endpoint
from console.api.strict import Strict
from console.operators import services


class UserOut(serializers.Serializer[Any]):
    """An operator. is_service: for programs, with tokens alone. is_active: may log in, and its tokens work.
    models: names, or beginnings of names, of those it is limited to; empty: all.
    """

    username = serializers.CharField()
    role = serializers.CharField()
    is_service = serializers.BooleanField()
    models = serializers.ListField(child=serializers.CharField(), source="only_models")
    is_active = serializers.BooleanField()
    last_login = serializers.DateTimeField(allow_null=True)


class UserIn(Strict):
    """A new operator. password: at least 12 characters, for programs too."""

    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=1000, trim_whitespace=False)
    role = serializers.ChoiceField(choices=list(ROLES))
    is_service = serializers.BooleanField(required=False, default=False)


class RoleIn(wire.ReasonIn):
    """Another role, and why."""

    role = serializers.ChoiceField(choices=list(ROLES))


class ModelsIn(wire.ReasonIn):
    """The models that an operator is limited to, by name or beginning (``team-*``), and why. Empty: all."""

    models = serializers.ListField(child=serializers.CharField(max_length=100), max_length=services.MODELS_MAX)


class Users(Endpoint):
    """Operators."""

    @extend_schema(operation_id="users_list", responses=UserOut(many=True))
    def index(self, request: Request) -> Response:
        """List operators by name."""
        self.sees(request, Act.USERS_VIEW)
        return Response(UserOut(services.listed(), many=True).data)

    @extend_schema(request=UserIn, responses={201: UserOut})
    def create(self, request: Request) -> Response:
        """Create an operator with a role."""
        self.confirmed(request)
        given: dict[str, Any] = self.given(request, UserIn)
        return Response(UserOut(services.create_user(self.actor(request), **given)).data, status=201)

    @extend_schema(responses=UserOut)
    def show(self, request: Request, username: str) -> Response:
        """Show an operator."""
        self.sees(request, Act.USERS_VIEW)
        return Response(UserOut(services.find(username)).data)

    @extend_schema(request=RoleIn, responses=UserOut)
    def set_role(self, request: Request, username: str) -> Response:
        """Give an operator another role; its sessions end."""
        self.confirmed(request)
        data = self.given(request, RoleIn)
        return Response(UserOut(services.set_role(self.actor(request), username, **data)).data)

    @extend_schema(request=ModelsIn, responses=UserOut)
    def set_models(self, request: Request, username: str) -> Response:
        """Limit an operator to some models; its sessions end."""
        self.confirmed(request)
        data = self.given(request, ModelsIn)
        return Response(UserOut(services.set_models(self.actor(request), username, **data)).data)

    @extend_schema(request=wire.SwitchIn, responses=UserOut)
    def set_active(self, request: Request, username: str) -> Response:
        """Let an operator in (``on``), or lock it out: its sessions end and its tokens do not work."""
        self.confirmed(request)
        data = self.given(request, wire.SwitchIn)
        user = services.set_active(self.actor(request), username, is_active=data["on"], reason=data["reason"])
        return Response(UserOut(user).data)
