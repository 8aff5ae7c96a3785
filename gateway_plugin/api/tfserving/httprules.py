"""What TensorFlow Serving makes of HTTP: encodings of bodies, and browsers of other origins."""

import re
from collections.abc import Mapping
from typing import Final

from gateway_plugin.jsonresponses import JSON, JsonResponse
from signalbox.program.errors import InvalidJson, InvalidRequest, SignalboxError

CORS: Final[Mapping[str, str]] = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type, Authorization, X-Api-Key, Prefer, Idempotency-Key",
}
"""What TensorFlow Serving says with ``--rest_api_enable_cors_support``, and the headers that only our callers send."""
_ORIGIN: Final = re.compile(r"https?://")


def preflight(headers: Mapping[str, str]) -> JsonResponse:
    """The answer to OPTIONS. Raises :class:`InvalidRequest` where no browser asks."""
    if _ORIGIN.search(headers.get("Origin", "")) is None:
        raise InvalidRequest("Origin header is missing in CORS preflight")
    return JsonResponse(200, b"", {"Content-Type": JSON})


def encoding_of(content_encoding: str) -> str:
    """``gzip`` where the header, in small letters, speaks of it; else empty: the body is taken as it stands."""
    return "gzip" if "gzip" in content_encoding else ""


def explain(error: SignalboxError, content_encoding: str) -> None:
    """Say of malformed JSON that it may be so because it was not decoded."""
    encoding = content_encoding.lower()
    if isinstance(error, InvalidJson) and encoding not in {"", "identity"} and not encoding_of(encoding):
        error.public_message += (
            f". The body was not decoded: of Content-Encoding only gzip is taken, not {content_encoding[:40]!r}."
        )
