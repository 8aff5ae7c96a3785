"""Finds out who calls the upstream: by the caller's own credential, whatever a gateway has found before."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gateway_plugin.admission.addresses import before_front, client_address, forwarded_address
from gateway_plugin.admission.keyring import Keyring
from gateway_plugin.hooks.auth import Auth, credential
from gateway_plugin.hooks.session import Session
from gateway_plugin.service.request import canonical
from signalbox.program.errors import Unauthorized
from signalbox.wire.messages import ApiKey

_CREDENTIALS: Final = frozenset({"Authorization", "X-Api-Key"})


class Callers:
    """The keys of callers.

    admit: takes a call from a key's rate and quota, and raises what refuses it. None: a front has done so, and has
    handed the call on.
    """

    def __init__(
        self,
        auth: Auth,
        keyring: Keyring,
        *,
        trusted_proxies: int = 0,
        admit: Callable[[Session], None] | None = None,
    ) -> None:
        self._auth = auth
        self._keyring = keyring
        self._trusted_proxies = trusted_proxies
        self._admit = admit

    def key(self, headers: Mapping[str, str]) -> ApiKey:
        """The key of a request. headers: by Go's canonical names, the front's ``X-Client-Addr`` among them.

        Raises as :meth:`Keyring.check`, and as ``admit``.
        """
        if self._admit is None:
            headers = before_front(headers)
            key = self._keyring.check(credential(headers), forwarded_address(headers, self._trusted_proxies))
        else:
            session = self._auth.session(headers)
            self._admit(session)
            key = self._keyring.by_id(session.key_id)
        if key.networks:
            self._keyring.require_address(key, client_address(headers, self._trusted_proxies))
        return key


def require_single(lines: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise :class:`Unauthorized` where a credential comes twice: a gateway may have looked at the other one."""
    names = [canonical(name) for name, _ in lines]
    if any(names.count(name) > 1 for name in _CREDENTIALS):
        raise Unauthorized("The API key was sent twice; send it once, as Authorization: Bearer sbx_... or X-Api-Key.")
