"""The refusal of a gRPC call, as a hook can give it: headers that are the whole answer.

Plain HTTP statuses would do, but a client makes the wrong code of some (429: UNAVAILABLE), and loses every text.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from gateway_plugin.jsonresponses import JsonResponse, retry_headers
from signalbox.program.errors import SignalboxError, meaning

_CONTENT_TYPE: Final = "application/grpc"
_STATUSES: Final = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
"""By number."""
_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What stands for itself in ``grpc-message``."""


def is_grpc(headers: Mapping[str, str]) -> bool:
    """Whether a request is a gRPC call."""
    return headers.get("Content-Type", "").startswith(_CONTENT_TYPE)


def grpc_refusal(error: SignalboxError) -> JsonResponse:
    """The answer to a gRPC call that ``error`` stands for: no body, all in its headers."""
    headers = {
        "Content-Type": _CONTENT_TYPE,
        "Grpc-Status": str(_STATUSES.index(meaning(error.code).grpc)),
        "Grpc-Message": quote(error.public_message, safe=_PLAIN),
    }
    return JsonResponse(200, b"", headers | retry_headers(error))
