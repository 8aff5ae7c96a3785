"""A dialect for hooks that answer by themselves: it only refuses."""

from gateway_plugin.api.dialect import Dialects
from gateway_plugin.jsonresponses import JsonResponse, error_response, problem_response
from gateway_plugin.request import Request
from signalbox.program.errors import SignalboxError
from signalbox.wire.keydocs import ApiKey


class Refusing:
    """Refuses as TensorFlow Serving and the Open Inference Protocol do, or with a problem."""

    limit_bytes = 0

    def __init__(self, *paths: str, is_problem: bool = False) -> None:
        self._paths = paths
        self._is_problem = is_problem

    def takes(self, head: str) -> bool:
        return head.startswith(self._paths)

    def keyless(self, _request: Request) -> None:
        return None

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse:
        raise AssertionError

    def refusal(self, error: SignalboxError, _url: str = "") -> JsonResponse:
        return problem_response(error) if self._is_problem else error_response(error)


DIALECTS = Dialects(Refusing("/v1/models", "/v2"), Refusing(is_problem=True))
