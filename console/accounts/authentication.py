"""``Authorization: Bearer sbo_…``: a program acts with the rights of the operator whose token it holds."""

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from console.accounts import tokens
from console.accounts.models import OperatorToken, User


class OperatorTokenAuthentication(BaseAuthentication):
    """Resolves the bearer token. Without the header, another class (the session's) may identify the caller."""

    def authenticate(self, request: Request) -> tuple[User, OperatorToken] | None:
        """The operator and the token. Raises for a token that is not live."""
        kind, _, text = get_authorization_header(request).partition(b" ")
        if kind.lower() != b"bearer":
            return None
        token = tokens.resolve(text.decode("latin-1").strip())
        if token is None:
            raise AuthenticationFailed("No such token, or it is revoked or expired.")
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """Makes the answer without a token 401 rather than 403."""
        return 'Bearer realm="signalbox console"'
