"""All ends of an account, as server-sent events (HTML Standard, 9.2)."""

import random
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Final

import orjson

from gateway_plugin.api.jobs.events import HEADERS, HEARTBEAT, RETRY_MS
from gateway_plugin.api.jobs.paths import Route
from gateway_plugin.jsonresponses import StreamResponse, problem
from gateway_plugin.request import Request
from gateway_plugin.service.ends import Ends
from signalbox.bus.client import Stored
from signalbox.program.errors import InvalidRequest, SignalboxError
from signalbox.wire.keydocs import ApiKey

_SEQUENCE: Final = re.compile(r"[0-9]{1,18}\Z")


class AccountEvents:
    """Answers with streams of ends."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends

    async def follow(self, request: Request, _route: Route, key: ApiKey) -> StreamResponse:
        """Where it begins, then each end. Raises :class:`InvalidRequest`, and as :meth:`Ends.follow`."""
        async with AsyncExitStack() as stack:
            after, ends = await stack.enter_async_context(self._ends.follow(key, _after(request)))
            parts = self._parts(after, ends, stack.pop_all())
            await anext(parts)  # begun, so that closing it lets go of what it holds
        return StreamResponse(200, HEADERS, parts, HEARTBEAT, is_paced=True)

    async def _parts(
        self, after: int, ends: AsyncGenerator[list[Stored], None], held: AsyncExitStack
    ) -> AsyncGenerator[bytes, None]:
        async with held:
            yield b""
            # So that a reader that loses its connection before the first end misses nothing.
            yield b'retry: %d\nid: %d\nevent: begin\ndata: {"after": %d}\n\n' % (RETRY_MS, after, after)
            try:
                async for found in ends:
                    yield b"".join(map(_event, found)) or HEARTBEAT
            except SignalboxError as error:
                yield b"event: error\ndata: %s\n\n" % orjson.dumps(problem(error))
                return
            yield b": connect again\nretry: %d\n" % random.randint(RETRY_MS // 2, RETRY_MS * 2)  # noqa: S311


def _after(request: Request) -> int | None:
    """What a reader has seen last. Raises :class:`InvalidRequest`."""
    text = request.headers.get("Last-Event-Id", "")
    if not text:
        return None
    if _SEQUENCE.match(text) is None:
        raise InvalidRequest('"Last-Event-ID" must be the id of an event of this stream; 0 = all that is kept.')
    return int(text)


def _event(stored: Stored) -> bytes:
    """One end, as it is stored. A line end in it, which JSON has between values only, begins another line of data."""
    data = stored.data.replace(b"\r", b" ").replace(b"\n", b"\ndata: ")
    return b"id: %d\nevent: end\ndata: %s\n\n" % (stored.seq, data)
