"""The two hooks for an edge in this process: the same checks, answers and counts, without Tyk's messages."""

from collections.abc import Callable, Mapping
from time import perf_counter

from gateway_plugin.api.tfserving.httprules import CrossOrigin
from gateway_plugin.hooks.auth import Auth
from gateway_plugin.hooks.dispatcher import AUTH, POST, POST_SECONDS, Outcomes, not_ours, refused
from gateway_plugin.hooks.post import Post
from gateway_plugin.hooks.session import Session
from gateway_plugin.service.jsonresponses import JsonResponse
from gateway_plugin.service.request import Request


class DirectHooks:
    """knows: whether an API definition is ours, see :meth:`gateway_plugin.hooks.dispatcher.Dispatcher.knows`.

    origins: whose pages may call.
    """

    def __init__(
        self, auth: Auth, post: Post, knows: Callable[[str, str, str], bool], origins: CrossOrigin | None = None
    ) -> None:
        self._auth = auth
        self._post = post
        self._origins = origins or CrossOrigin(is_let=False)
        self._outcomes = Outcomes()
        self.knows = knows

    def auth(self, method: str, url: str, headers: Mapping[str, str], *, is_ours: bool) -> Session | JsonResponse:
        """The session of a good key, else the whole answer.

        is_ours: what ``knows`` says of the API definition.
        """
        try:
            if not is_ours:
                raise not_ours()
            found = self._origins.preflight(method, url, headers) or self._auth.session(headers)
        except Exception as error:  # noqa: BLE001  the edge of one request: never raised
            found = refused(error, AUTH, url)
        if isinstance(found, Session):
            self._outcomes.count(AUTH, 0)
            return found
        self._outcomes.count(AUTH, found.status)
        return self._origins.let_in(url, found)

    async def post(self, request: Request, key_id: str) -> JsonResponse:
        """The whole answer to a request that has passed the edge's checks. Raises nothing but cancellation."""
        started = perf_counter()
        try:
            given = await self._post.answer(request, self._post.key(request, key_id))
            POST_SECONDS.observe(perf_counter() - started)
        except Exception as error:  # noqa: BLE001  the edge of one request: never raised
            given = refused(error, POST, request.url)
        self._outcomes.count(POST, given.status)
        return self._origins.let_in(request.url, given)
