"""What a protocol of callers is to whatever brings a request: a hook's message, or a listener of this process."""

from collections.abc import Sequence
from typing import Protocol

from gateway_plugin.service.jsonresponses import JsonResponse
from gateway_plugin.service.request import Request
from signalbox.program.errors import SignalboxError
from signalbox.wire.messages import ApiKey


class Dialect(Protocol):
    """A protocol over HTTP. limit_bytes: the largest body that it takes."""

    @property
    def limit_bytes(self) -> int:
        """The largest body of a request."""

    def takes(self, url: str) -> bool:
        """Whether a path, with its query or without, belongs to it."""

    def keyless(self, request: Request) -> JsonResponse | None:
        """The whole answer to a request that needs no key, whose body is not read; None for any other.

        Raises errors of ours.
        """

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse:
        """The whole answer to a request whose key is good. Raises errors of ours."""

    def refusal(self, error: SignalboxError) -> JsonResponse:
        """The answer that an error stands for."""


def dialect_of(dialects: Sequence[Dialect], url: str) -> Dialect:
    """The first dialect that takes a path; the last takes what is left, to refuse it."""
    return next((one for one in dialects[:-1] if one.takes(url)), dialects[-1])
