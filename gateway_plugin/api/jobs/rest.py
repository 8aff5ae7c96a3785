"""The job API over HTTP, and the answer to every path that is nobody's."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from gateway_plugin.api.jobs.accountevents import AccountEvents
from gateway_plugin.api.jobs.acts import Acts
from gateway_plugin.api.jobs.events import CORS, PREFLIGHT, Events
from gateway_plugin.api.jobs.listing import Listing
from gateway_plugin.api.jobs.manyacts import ActsOnMany
from gateway_plugin.api.jobs.paths import Operation, Route, is_of_events, route_of
from gateway_plugin.api.jobs.reads import Reads
from gateway_plugin.api.jobs.submissions import Submissions
from gateway_plugin.jsonresponses import JSON, JsonResponse, StreamResponse, problem_response
from gateway_plugin.request import Request
from signalbox.program.errors import MethodNotAllowed, SignalboxError
from signalbox.wire.keydocs import ApiKey

DESCRIBED_AT: Final = "/v1/openapi.json"
_DESCRIPTION: Final = Path(__file__).with_name("openapi.json")
_READ: Final = ("GET", "HEAD")
_Act = Callable[[Request, Route, ApiKey], Awaitable[JsonResponse | StreamResponse]]


class JobsRest:
    """The dialect of ``/v1/jobs`` and ``/v1/predict``, and of what no other takes. limit_bytes: of a body."""

    def __init__(
        self,
        submissions: Submissions,
        listing: Listing,
        reads: Reads,
        events: Events,
        account_events: AccountEvents,
        acts: Acts,
        on_many: ActsOnMany,
        limit_bytes: int,
    ) -> None:
        self._acts: Final[Mapping[Operation, _Act]] = {
            Operation.SUBMIT: submissions.submit,
            Operation.LIST: listing.list,
            Operation.READ: reads.read,
            Operation.RESULT: reads.read,
            Operation.EVENTS: events.follow,
            Operation.ACCOUNT_EVENTS: account_events.follow,
            Operation.CANCEL: acts.cancel,
            Operation.CHANGE: acts.change,
            Operation.RETRY: acts.retry,
            Operation.DELETE: acts.delete,
            Operation.CANCEL_MANY: on_many.act,
            Operation.RETRY_MANY: on_many.act,
            Operation.DELETE_MANY: on_many.act,
        }
        self._description = _DESCRIPTION.read_bytes()
        self.limit_bytes = limit_bytes

    def takes(self, _head: str) -> bool:
        """Whether this dialect answers a path."""
        return True

    def keyless(self, request: Request) -> JsonResponse | None:
        """The description of this API, and what a page asks before it follows a job; None where a key is needed."""
        if request.method == "OPTIONS" and is_of_events(request.url):
            return PREFLIGHT
        if request.url.partition("?")[0] != DESCRIBED_AT:
            return None
        if request.method not in _READ:
            raise MethodNotAllowed(f"{DESCRIBED_AT} takes GET.", allow=", ".join(_READ))
        return JsonResponse(200, self._description, {"Content-Type": JSON})

    def refusal(self, error: SignalboxError, url: str = "") -> JsonResponse:
        """An RFC 9457 problem."""
        given = problem_response(error)
        return given._replace(headers={**given.headers, **CORS}) if is_of_events(url) else given

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse | StreamResponse:
        """The answer. Raises errors of ours."""
        route = route_of(request.method, request.url.partition("?")[0])
        return await self._acts[route.operation](request, route, key)
