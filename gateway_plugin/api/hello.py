"""``GET /hello``, for load balancers: whether the front answers. Where a Tyk is, it is Tyk's own."""

from typing import Final

from gateway_plugin.jsonresponses import JsonResponse, json_response, problem_response
from gateway_plugin.request import Request
from signalbox.program.errors import MethodNotAllowed, SignalboxError
from signalbox.wire.keydocs import ApiKey

_PATH: Final = "/hello"
_METHODS: Final = ("GET", "HEAD")


class Hello:
    """The dialect of one path, which needs no key."""

    limit_bytes = 0

    def takes(self, head: str) -> bool:
        """Whether the path is the one of ``/hello``."""
        return head.partition("?")[0] == _PATH

    def keyless(self, request: Request) -> JsonResponse:
        """``{"status": "pass"}``. Raises :class:`MethodNotAllowed`."""
        if request.method not in _METHODS:
            raise MethodNotAllowed(f"{_PATH} takes GET.", allow=", ".join(_METHODS))
        return json_response(200, {"status": "pass"})

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse:
        """Answer as :meth:`keyless` does: no key is needed."""
        return self.keyless(request)

    def refusal(self, error: SignalboxError, _url: str = "") -> JsonResponse:
        """The answer that an error stands for."""
        return problem_response(error)
