"""Finds out who calls a listener of this process: by the caller's own credential, whatever a gateway has found."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from gateway_plugin.admission.addresses import before_front, client_address, forwarded_address
from gateway_plugin.admission.eventtokens import EventTokens
from gateway_plugin.admission.keyring import Keyring
from gateway_plugin.admission.limits import Rate
from gateway_plugin.hooks.auth import key_of
from signalbox.program.errors import SignalboxError, Unauthorized
from signalbox.wire.keydocs import ApiKey

_CREDENTIALS: Final = frozenset({b"authorization", b"x-api-key"})


class Caller(NamedTuple):
    """Who calls. rate: of its key, after this call; None where it has none, or a gateway counts."""

    key: ApiKey
    rate: Rate | None = None


class Callers:
    """The keys of callers.

    charge: takes a call from a key's rate and quota, and raises what refuses it. None: a gateway has done so, and has
    handed the call on.
    """

    def __init__(
        self,
        keyring: Keyring,
        tokens: EventTokens,
        *,
        trusted_proxies: int = 0,
        charge: Callable[[ApiKey], Rate | None] | None = None,
    ) -> None:
        self._keyring = keyring
        self._tokens = tokens
        self._trusted_proxies = trusted_proxies
        self._charge = charge
        self.is_front = charge is not None
        self.counts = keyring.counts

    def of(self, headers: Mapping[str, str], url: str = "") -> Caller:
        """Who sent a request. headers: by Go's canonical names, the front's ``X-Client-Addr`` among them.

        url: path and query, of a request over HTTP. Raises as :func:`key_of`,
        :meth:`Keyring.require_address` and ``charge``.
        """
        if not self.is_front:
            headers = before_front(headers)
        address = forwarded_address(headers, self._trusted_proxies)
        key = key_of(self._keyring, self._tokens, headers, url, address)
        if key.networks:
            self._keyring.require_address(key, client_address(headers, self._trusted_proxies))
        self.counts.calls[key.id] += 1
        if self._charge is None:
            return Caller(key)
        try:
            return Caller(key, self._charge(key))
        except SignalboxError as error:
            self.counts.refuse(key.id, error)
            raise

    def still(self, key: ApiKey) -> ApiKey:
        """A caller's key as it is known now. Raises as :meth:`Keyring.require_unended`."""
        return self._keyring.require_unended(key)


def require_single(lines: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise :class:`Unauthorized` where a credential comes twice: a gateway may have looked at the other one.

    lines: with names in small letters, as HTTP/2 and ASGI have them.
    """
    names = [name for name, _ in lines if name in _CREDENTIALS]
    if len(names) > len(set(names)):
        raise Unauthorized("The API key was sent twice; send it once, as Authorization: Bearer sbx_... or X-Api-Key.")
