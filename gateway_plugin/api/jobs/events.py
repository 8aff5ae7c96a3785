"""A job's events, as server-sent events (HTML Standard, 9.2) that a page of any origin may read."""

import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import orjson

from gateway_plugin.admission.eventtokens import EventTokens
from gateway_plugin.api.jobs.paths import Route
from gateway_plugin.jsonresponses import JOB_ID, JsonResponse, StreamResponse, problem
from gateway_plugin.request import Request
from gateway_plugin.service.following import Change, Following
from signalbox.program.errors import SignalboxError
from signalbox.wire.keydocs import ApiKey

CORS: Final[Mapping[str, str]] = {"Access-Control-Allow-Origin": "*"}
PREFLIGHT: Final = JsonResponse(
    204,
    b"",
    {
        **CORS,
        "Access-Control-Allow-Methods": "GET",
        "Access-Control-Allow-Headers": "Authorization, X-Api-Key, Last-Event-ID, Cache-Control",
        "Access-Control-Max-Age": "7200",
    },
)
"""The answer to a browser that asks whether a page may send its key."""
HEADERS: Final = {**CORS, "Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
RETRY_MS: Final = 2000
HEARTBEAT: Final = b": nothing new\n"
"""A comment. An empty line behind it is an event to readers that are not strict (httpx-sse), and so below."""


class Events:
    """Answers with streams of events."""

    def __init__(self, following: Following, tokens: EventTokens) -> None:
        self._following = following
        self._tokens = tokens

    async def follow(self, request: Request, route: Route, key: ApiKey) -> StreamResponse | JsonResponse:
        """The job's present state, each change and its end; 204 where the caller has seen the end, so that a browser
        does not come back. Raises as :meth:`Following.follow`.
        """
        async with AsyncExitStack() as stack:
            found, changes = await stack.enter_async_context(self._following.follow(key, route.job_id))
            headers = {JOB_ID: found.record.id, **HEADERS}
            if found.record.state.is_terminal and request.headers.get("Last-Event-Id") == str(found.revision):
                return JsonResponse(204, b"", headers)
            parts = self._parts(key, changes, stack.pop_all())
            await anext(parts)  # begun, so that closing it lets go of what it holds
        return StreamResponse(200, headers, parts, HEARTBEAT)

    async def _parts(
        self, key: ApiKey, changes: AsyncGenerator[Change, None], held: AsyncExitStack
    ) -> AsyncGenerator[bytes, None]:
        async with held:
            yield b""
            retry = b"retry: %d\n" % RETRY_MS
            try:
                async for found, doc in changes:
                    if doc is None:
                        yield HEARTBEAT
                        continue
                    urls = doc["urls"]
                    urls["events"] = self._tokens.url(found.record.id, key)
                    yield retry + _event("state", found.revision, doc)
                    retry = b""
                    if found.record.state.is_terminal:
                        yield _event("end", found.revision, {"id": doc["id"], "state": doc["state"], "urls": urls})
                        return
            except SignalboxError as error:
                yield _event("error", None, problem(error))
                return
            # This plugin is being replaced: not all of its callers are to come back at once.
            yield b": connect again\nretry: %d\n" % random.randint(RETRY_MS // 2, RETRY_MS * 2)  # noqa: S311


def _event(name: str, revision: int | None, doc: Any) -> bytes:
    """One event. JSON of ours has no line ends."""
    line = b"" if revision is None else b"id: %d\n" % revision
    return b"%sevent: %s\ndata: %s\n\n" % (line, name.encode(), orjson.dumps(doc))
