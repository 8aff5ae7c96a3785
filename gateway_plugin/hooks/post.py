"""The post hook: every request that got past the gateway's checks, answered by its dialect."""

from gateway_plugin.admission.addresses import client_address
from gateway_plugin.admission.keyring import Keyring
from gateway_plugin.admission.pool import Pool
from gateway_plugin.api.dialect import Dialects
from gateway_plugin.hooks.auth import KEY_ID
from gateway_plugin.jsonresponses import JsonResponse, StreamResponse
from gateway_plugin.proto.coprocess_pb2 import Object
from gateway_plugin.request import Request


class Post:
    """The SignalboxPost hook. bodies: what bodies in flight are taken from. trusted_proxies: see :class:`Auth`."""

    def __init__(self, keyring: Keyring, dialects: Dialects, bodies: Pool, *, trusted_proxies: int = 0) -> None:
        self._keyring = keyring
        self._counts = keyring.counts
        self._dialects = dialects
        self._bodies = bodies
        self._trusted_proxies = trusted_proxies

    async def hook(self, obj: Object) -> JsonResponse | StreamResponse:
        """The whole answer to a request, whose key may have ended since the auth hook let it in.

        Raises errors of ours; the dispatcher renders them.
        """
        asked = obj.request
        request = Request(asked.method, asked.url, asked.headers, asked.raw_body)
        key = self._keyring.by_id(obj.metadata.get(KEY_ID, ""))
        if key.networks:
            self._keyring.require_address(key, client_address(request.headers, self._trusted_proxies))
        self._counts.calls[key.id] += 1
        account, size = key.account_id, len(request.raw_body)
        try:
            self._bodies.take(account, size)
            try:
                return await self._dialects.of(request.url).answer(request, key)
            finally:
                self._bodies.release(account, size)
        except Exception as error:
            self._counts.refuse(key.id, error)
            raise
