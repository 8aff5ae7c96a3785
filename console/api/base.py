"""What every endpoint of the REST API has: the actor, and parsing that drops nothing of what it was sent."""

import time
from collections.abc import Mapping
from typing import Any, TypeVar

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.viewsets import ViewSet

from console.accounts.acts import Act
from console.accounts.models import OperatorToken
from console.accounts.rights import Actor, authorize
from console.accounts.sessions import is_confirmed
from console.api.schema import taken
from console.api.strict import Strict, refuse_odd_query, refuse_unknown
from console.web.guards import place_of
from console.web.middleware import actor_of
from signalbox.program.errors import Forbidden

Form = TypeVar("Form", bound=Strict)


class Endpoint(ViewSet):
    """Base of every endpoint. What the OpenAPI document does not say of an operation, it does not take."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Who calls is known now. Raises a 400 for what the document does not have, and for a parameter given twice."""
        super().initial(request, *args, **kwargs)
        match = request.resolver_match
        takes = taken((request.method or "").lower(), match.route) if match is not None else None
        if takes is None:
            return  # the framework answers: no such method here
        refuse_odd_query(request, takes.query)
        if not takes.body:
            if not isinstance(request.data, Mapping):
                raise ValidationError("This operation takes no body.")
            refuse_unknown(request.data, (), "field")

    def actor(self, request: Request) -> Actor:
        """Who acts: by token or by session."""
        django_request = request._request  # noqa: SLF001  DRF's own way to the request below
        django_request.user = request.user
        return actor_of(django_request, via="token" if isinstance(request.auth, OperatorToken) else "api")

    def sees(self, request: Request, what: Act) -> None:
        """Raises :class:`Forbidden` unless the actor may see this."""
        authorize(self.actor(request), what, place=place_of(request._request))  # noqa: SLF001  as above

    def confirmed(self, request: Request) -> None:
        """Raises :class:`Forbidden` for a session whose password was entered too long ago. Tokens are programs'."""
        if isinstance(request.auth, OperatorToken):
            return
        if not is_confirmed(request._request.session, time.time()):  # noqa: SLF001  as above
            raise Forbidden("Enter your password again on the page /confirm, then repeat.")

    def given(self, request: Request, form: type[Form], **options: Any) -> dict[str, Any]:
        """The validated body. Raises a 400 naming each faulty or unknown field."""
        return _validated(form(data=request.data, **options))

    def asked(self, request: Request, form: type[Form]) -> dict[str, Any]:
        """The validated query, by the form that the document names as its parameters."""
        return _validated(form(data=request.query_params.dict()))


def _validated(parsed: Strict) -> dict[str, Any]:
    parsed.is_valid(raise_exception=True)
    return dict(parsed.validated_data)
