"""The OpenID Connect provider that operators sign on with: authorization code, PKCE, and an ID token that is checked.

The protocol is Authlib's and joserfc's. What they leave to their caller is here: the document is the issuer's own, its
addresses are HTTPS, keys and algorithms are those of signatures, an answer has a size and a time.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from django.conf import settings

from console.config import ConsoleSettings, is_trusted_url
from signalbox.program import log
from signalbox.program.errors import Forbidden, SignalboxError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

T = TypeVar("T")
_ANSWER_S: Final = 5.0
"""Longest wait for the provider's whole answer; a login page waits for it."""
_ANSWER_BYTES: Final = 1024 * 1024
_KEPT_S: Final = 3600.0
"""How long its document and keys are used before they are read again; unknown keys are asked for at once."""
_AWAY_S: Final = 5.0
"""How long a provider that did not answer is not asked again."""
_CLOCK_S: Final = 60
"""How far its clock may be from ours."""
_ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
"""Signatures by a key pair: what the client's secret or nothing signs is refused, whatever the document offers."""
_KEYS: Final = frozenset({"RSA", "EC", "OKP"})
_REFUSED: Final = "Your provider's answer was refused: {}. Sign on again; if it stays so, tell an admin."


class Attempt(NamedTuple):
    """One sign-on under way: what the answer has to fit. again: the operator has to show who they are anew."""

    redirect_uri: str
    state: str
    nonce: str
    verifier: str
    again: bool
    began: int


class Provider:
    """One provider. Its document and keys are read when first needed, and kept for an hour."""

    def __init__(self, config: ConsoleSettings) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, dict[str, Any]]] = {}
        self._away_until = 0.0

    def address(self, attempt: Attempt) -> str:
        """Where the browser is sent. Raises :class:`Unavailable` while the provider is away."""
        endpoint = self._endpoint("authorization_endpoint")
        more = {"prompt": "login", "max_age": "0"} if attempt.again else {}
        url, _ = self._client(None).create_authorization_url(
            endpoint,
            state=attempt.state,
            code_verifier=attempt.verifier,
            redirect_uri=attempt.redirect_uri,
            scope=" ".join(dict.fromkeys(("openid", *self._config.oidc_scopes))),
            nonce=attempt.nonce,
            **more,
        )
        return str(url)

    def claims(self, attempt: Attempt, code: str) -> dict[str, Any]:
        """What the provider says of who signed on. Raises :class:`Forbidden` for an answer that is not to be trusted,
        and :class:`Unavailable` while the provider is away.
        """
        from authlib.common.errors import AuthlibBaseError

        with self._connection() as connection:
            try:
                token = self._asked(lambda: self._token(connection, attempt, code))
            except (AuthlibBaseError, ValueError) as error:
                raise _refused("it gave no token", error) from error
            claims = self._checked(str(token.get("id_token", "")), attempt)
            named = {self._config.oidc_name_claim, self._config.oidc_role_claim.partition(".")[0]}
            if not named <= claims.keys() and "userinfo_endpoint" in self._document() and token.get("access_token"):
                more = self._userinfo(connection, str(token["access_token"]))
                if more.get("sub") != claims["sub"]:
                    raise _refused("it speaks of two people")
                claims = {**more, **claims}
        return claims

    def _token(self, connection: "httpx.Client", attempt: Attempt, code: str) -> Mapping[str, Any]:
        import httpx

        methods = self._document().get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        identity, secret = self._config.oidc_client_id, self._config.oidc_client_secret
        how: dict[str, Any] = {"auth": httpx.Auth(), "client_id": identity, "client_secret": secret}
        if secret and "client_secret_basic" in methods:
            how = {"auth": httpx.BasicAuth(quote(identity, safe=""), quote(secret, safe=""))}
        found: Mapping[str, Any] = self._client(connection).fetch_token(
            self._endpoint("token_endpoint"),
            grant_type="authorization_code",
            code=code,
            redirect_uri=attempt.redirect_uri,
            code_verifier=attempt.verifier,
            **how,
        )
        return found

    def _checked(self, text: str, attempt: Attempt) -> dict[str, Any]:
        """The claims of an ID token that this issuer signed for us, now, in answer to this attempt."""
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError
        from joserfc.jwk import KeySet

        try:
            try:
                token = jwt.decode(text, KeySet.import_key_set(self._keys()), list(_ALGORITHMS))
            except InvalidKeyIdError:  # it has new keys
                token = jwt.decode(text, KeySet.import_key_set(self._keys(anew=True)), list(_ALGORITHMS))
            claims = CodeIDToken(
                token.claims,
                token.header,
                {
                    "iss": {"essential": True, "value": self._config.oidc_issuer},
                    "aud": {"essential": True, "value": self._config.oidc_client_id},
                    "sub": {"essential": True},
                },
                {"nonce": attempt.nonce, "client_id": self._config.oidc_client_id},
            )
            claims.validate(leeway=_CLOCK_S)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise _refused(_why(error), error) from error
        if attempt.again:
            at = claims.get("auth_time")
            if not isinstance(at, int | float) or at < attempt.began - _CLOCK_S:
                raise _refused("it did not ask you who you are again (auth_time)")
        return dict(claims)

    def _userinfo(self, connection: "httpx.Client", access_token: str) -> dict[str, Any]:
        url = self._endpoint("userinfo_endpoint")
        return self._asked(lambda: _json(connection.get(url, headers={"Authorization": f"Bearer {access_token}"})))

    def _endpoint(self, name: str) -> str:
        url = self._document().get(name)
        if not isinstance(url, str) or not is_trusted_url(url):
            raise self._unfit(f"has no {name} at an https:// address")
        return url

    def _document(self) -> dict[str, Any]:
        found = self._read(f"{self._config.oidc_issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != self._config.oidc_issuer:
            raise self._unfit("names another issuer")
        return found

    def _keys(self, *, anew: bool = False) -> Any:
        """Its public keys for signatures; sets hold others too."""
        found = self._read(self._endpoint("jwks_uri"), fresh_s=_AWAY_S if anew else _KEPT_S)
        keys = [key for key in found.get("keys", []) if isinstance(key, dict) and key.get("kty") in _KEYS]
        return {"keys": [key for key in keys if key.get("use", "sig") == "sig"]}

    def _read(self, url: str, fresh_s: float = _KEPT_S) -> dict[str, Any]:
        """A document of the provider's, kept; one caller reads it, the others wait for that."""
        if not self._lock.acquire(timeout=_ANSWER_S + 1):
            raise _away()
        try:
            kept = self._kept.get(url)
            if kept and time.monotonic() - kept[0] < fresh_s:
                return kept[1]
            with self._connection() as connection:
                found = self._asked(lambda: _json(connection.get(url)))
            self._kept[url] = (time.monotonic(), found)
            return found
        finally:
            self._lock.release()

    def _asked(self, ask: "Callable[[], T]") -> T:
        """What the provider answers. Raises :class:`Unavailable`: at once, for seconds after it did not answer."""
        import httpx

        if time.monotonic() < self._away_until:
            raise _away()
        try:
            return ask()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self._away_until = time.monotonic() + _AWAY_S
            log.warning("signon.provider_away", reason=f"{type(error).__name__}: {error}"[:200])
            raise _away() from error

    def _connection(self) -> "httpx.Client":
        import httpx

        return httpx.Client(transport=_bounded(), timeout=_ANSWER_S, follow_redirects=False)

    def _client(self, connection: "httpx.Client | None") -> Any:
        from authlib.oauth2.client import OAuth2Client

        return OAuth2Client(
            connection, client_id=self._config.oidc_client_id, code_challenge_method="S256", response_type="code"
        )

    def _unfit(self, what: str) -> SignalboxError:
        log.error("signon.provider_unfit", issuer=self._config.oidc_issuer, what=what)
        return Unavailable(
            f"The sign-on is set up wrong: the provider's document {what}. An admin compares"
            " SIGNALBOX_CONSOLE_OIDC_ISSUER with it; local logins go on."
        )


@cache
def _of(config: ConsoleSettings) -> Provider:
    return Provider(config)


def provider() -> Provider | None:
    """The provider of this process, or None where operators have local logins alone."""
    return _of(settings.CONSOLE) if settings.CONSOLE.oidc_issuer else None


def _bounded() -> Any:
    """A transport whose answers end at a size and at a time, however slowly they drip."""
    import httpx

    class Bounded(httpx.SyncByteStream):
        def __init__(self, inner: httpx.SyncByteStream, until: float) -> None:
            self._inner, self._until, self._left = inner, until, _ANSWER_BYTES

        def __iter__(self) -> Iterator[bytes]:
            for part in self._inner:
                self._left -= len(part)
                if self._left < 0 or time.monotonic() > self._until:
                    raise httpx.ReadError("The answer is too long, or comes too slowly.")
                yield part

        def close(self) -> None:
            self._inner.close()

    class Transport(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            until = time.monotonic() + _ANSWER_S
            request.headers["Accept-Encoding"] = "identity"  # the bound is of what is read
            answer = super().handle_request(request)
            assert isinstance(answer.stream, httpx.SyncByteStream)
            answer.stream = Bounded(answer.stream, until)
            return answer

    return Transport()


def _json(answer: "httpx.Response") -> dict[str, Any]:
    import httpx

    answer.raise_for_status()
    try:
        found = answer.json()
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise httpx.DecodingError("The answer is no JSON.") from error
    if not isinstance(found, dict):
        raise httpx.DecodingError("The answer is no JSON object.")
    return found


def _away() -> Unavailable:
    return Unavailable(
        "Your provider cannot be reached from here. Try again in a minute, or log in with a local password.",
        retry_after_s=_AWAY_S,
    )


def _why(error: Exception) -> str:
    claim = getattr(error, "claim", None)
    return {
        "nonce": "it belongs to another sign-on (nonce)",
        "aud": "it is meant for another program (aud)",
        "azp": "it is meant for another program (azp)",
        "iss": "it is from another issuer (iss)",
        "exp": "it has expired (exp); the clocks may differ",
    }.get(str(claim), "it has expired (exp); the clocks may differ" if "xpired" in type(error).__name__ else str(error))


def _refused(why: str, error: Exception | None = None) -> Forbidden:
    log.warning("signon.refused", why=why, reason=f"{type(error).__name__}: {error}"[:200] if error else "")
    return Forbidden(_REFUSED.format(why[:120]))
