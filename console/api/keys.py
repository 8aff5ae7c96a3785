"""REST calls on API keys."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api import serializers as wire
from console.api.base import Endpoint
from console.keys import services, unknown
from console.keys.models import ApiKey, UnknownKey


class Keys(Endpoint):
    """API keys, and those that NATS holds and this console's database does not know."""

    @extend_schema(operation_id="keys_list", responses=wire.KeyOut(many=True))
    def index(self, request: Request) -> Response:
        """List API keys."""
        self.sees(request, Act.KEYS_VIEW)
        return Response(wire.KeyOut(ApiKey.objects.select_related("account")[:1000], many=True).data)

    @extend_schema(request=wire.KeyIn, responses=wire.KEY_MADE)
    def create(self, request: Request) -> Response:
        """Create an API key. Only this answer contains its text."""
        self.confirmed(request)
        key, text = services.create(self.actor(request), services.KeyGrant(**self.given(request, wire.KeyIn)))
        return _made(key, text)

    @extend_schema(responses=wire.KeyOut)
    def show(self, request: Request, kid: str) -> Response:
        """Show an API key."""
        self.sees(request, Act.KEYS_VIEW)
        return Response(wire.KeyOut(services.find(kid)).data)

    @extend_schema(request=wire.RotationIn, responses=wire.KEY_MADE)
    def rotate(self, request: Request, kid: str) -> Response:
        """Create a key that replaces this one. Only this answer contains its text."""
        self.confirmed(request)
        key, text = services.rotate(self.actor(request), kid, **self.given(request, wire.RotationIn))
        return _made(key, text)

    @extend_schema(operation_id="unknown_keys_list", responses=wire.UnknownKeyOut(many=True))
    def index_unknown(self, request: Request) -> Response:
        """List keys that gateways accept and this console does not know, to adopt or revoke them."""
        self.sees(request, Act.KEYS_VIEW)
        return Response(wire.UnknownKeyOut(UnknownKey.objects.all()[:1000], many=True).data)

    @extend_schema(request=wire.ReasonIn, responses=wire.KeyOut)
    def adopt(self, request: Request, kid: str) -> Response:
        """Adopt a key that only NATS has: it becomes known to this console, unchanged."""
        self.confirmed(request)
        key = unknown.adopt(self.actor(request), kid, **self.given(request, wire.ReasonIn))
        return Response(wire.KeyOut(key).data)

    @extend_schema(request=wire.ReasonIn, responses=wire.KeyOut)
    def revoke(self, request: Request, kid: str) -> Response:
        """Revoke a key at once, also one that only NATS has. It cannot be undone."""
        key = services.revoke(self.actor(request), kid, **self.given(request, wire.ReasonIn))
        return Response(wire.KeyOut(key).data)


def _made(key: ApiKey, text: str) -> Response:
    why = services.why_unpublished(key)
    return Response({**wire.KeyOut(key).data, "key": text, "unpublished": why}, status=202 if why else 201)
