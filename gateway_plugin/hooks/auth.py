"""The auth hook: from a credential in a header to the session the gateway enforces."""

import base64
from collections.abc import Mapping
from typing import Final

import orjson

from gateway_plugin.admission.addresses import forwarded_address
from gateway_plugin.admission.eventtokens import EventTokens
from gateway_plugin.admission.keyring import Keyring
from gateway_plugin.proto.coprocess_pb2 import Object, SessionState
from signalbox.wire.keydocs import ApiKey

TOKEN: Final = "token"  # noqa: S105  the field's name in Tyk
KEY_ID: Final = "key_id"
_MOST_SESSIONS: Final = 50_000
_SESSION_LIFETIME_S: Final = 3600


class Auth:
    """The SignalboxAuth hook.

    trusted_proxies: see :mod:`gateway_plugin.admission.addresses`. org_id: of the API definition; part of the token.
    """

    def __init__(
        self, keyring: Keyring, tokens: EventTokens, *, trusted_proxies: int = 0, org_id: str = "signalbox"
    ) -> None:
        self._trusted_proxies = trusted_proxies
        self._keyring = keyring
        self._tokens = tokens
        self._org_id = org_id
        self._sessions: dict[str, tuple[ApiKey, SessionState]] = {}

    def hook(self, obj: Object) -> None:
        """Fill in the session of a good key. Raises as :func:`key_of`."""
        session = self._session(obj.request.headers, obj.request.url)
        obj.session.CopyFrom(session)
        metadata = obj.metadata
        metadata[TOKEN] = session.metadata[TOKEN]
        metadata[KEY_ID] = session.alias

    def _session(self, headers: Mapping[str, str], url: str) -> SessionState:
        address = forwarded_address(headers, self._trusted_proxies)
        key = key_of(self._keyring, self._tokens, headers, url, address)
        known = self._sessions.get(key.id)
        if known is not None and known[0] is key:
            return known[1]
        if len(self._sessions) >= _MOST_SESSIONS:
            self._sessions.clear()
        made = session_of(key, self._org_id)
        self._sessions[key.id] = (key, made)
        return made


def key_of(keyring: Keyring, tokens: EventTokens, headers: Mapping[str, str], url: str, address: str) -> ApiKey:
    """The key that a request shows, or the one behind its token where it shows none.

    Raises as :meth:`Keyring.check` and :meth:`EventTokens.key_of`.
    """
    shown = credential(headers)
    found = tokens.key_of(url) if not shown else None
    return keyring.check(shown, address) if found is None else found


def credential(headers: Mapping[str, str]) -> str:
    """The key in ``Authorization: Bearer K``, ``Authorization: K`` or ``X-Api-Key: K``; "" if none."""
    text = headers.get("Authorization", "")
    if text:
        scheme, space, rest = text.partition(" ")
        return rest.strip() if space and scheme.lower() == "bearer" else text.strip()
    return headers.get("X-Api-Key", "").strip()


def session_of(key: ApiKey, org_id: str) -> SessionState:
    """What the gateway enforces for ``key``.

    The token names the key's public id in the form whose own ``h`` makes the gateway hash it with
    sha256: any other form is hashed to 32 bits, where different keys share one counter. last_updated
    changes only with the key, because the gateway starts a new rate window whenever it does.
    """
    token = base64.b64encode(orjson.dumps({"org": org_id, "id": key.id, "h": "sha256"})).decode()
    return SessionState(
        rate=key.rate,
        per=max(1, key.per_s),
        allowance=key.rate,
        expires=int(key.expires_at) if key.expires_at is not None else 0,
        quota_max=key.quota or -1,
        quota_remaining=key.quota or -1,
        quota_renewal_rate=key.quota_window_s if key.quota else 0,
        org_id=org_id,
        last_updated=repr(key.updated_at),
        session_lifetime=_SESSION_LIFETIME_S,
        alias=key.id,
        metadata={TOKEN: token, KEY_ID: key.id},
    )
