"""Brings a request to a front that answers it: the next one on failure, later where a front says so."""

import time
from collections.abc import Callable
from typing import Final

from signalbox.client.exchange import Open, Pause, Request, Response, Send, Steps, Upgrade
from signalbox.client.faults import fault, retry_after_s
from signalbox.client.fronts import REST_S, Front, Fronts
from signalbox.program.errors import (
    Ambiguous,
    Conflict,
    LimitExceeded,
    NotServing,
    SignalboxError,
    Unavailable,
)

How = type[Send] | type[Open] | type[Upgrade]
BACKOFF_S: Final = 0.2
"""Pause once every front has failed, doubled each time, where no front says how long."""


class Delivery:
    """Sends requests. clock: seconds that only grow.

    retries: most repeats of one request after failures; 0 = nor after waits that a front asks for, which else go on as
    long as the call's time allows.
    """

    def __init__(self, fronts: Fronts, *, retries: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._fronts = fronts
        self._retries = retries
        self._clock = clock

    def send(self, request: Request, timeout_s: float, *, how: How = Send) -> Steps[Response]:
        """The answer, with a status below 400, all tries together within ``timeout_s``.

        how: :class:`Open` = only its head, the body is to be read. Raises the error that the last answer stands for.
        """
        ends, tried, repeats = self._clock() + timeout_s, list[Front](), 0
        while True:
            front = yield from self._fronts.choose(tried)
            tried.append(front)
            rest_s = 0.0
            try:
                left_s = max(0.001, ends - self._clock())
                response: Response = yield how(front.target, request, left_s)
                if response.status < 400:
                    return response
                error, told_s = fault(response), retry_after_s(response)
                if isinstance(error, Unavailable) and not isinstance(error, NotServing):
                    rest_s = min(told_s or REST_S, REST_S)
            except Unavailable as broken:
                error, told_s, rest_s = broken, None, REST_S
            finally:
                self._fronts.release(front, rest_s=rest_s)
            is_told_to_wait = told_s is not None and not isinstance(error, Unavailable)
            allowed = bool(self._retries) if is_told_to_wait else repeats < self._retries
            if not allowed or not _helps(request, error, told_s):
                raise error
            pause_s = 0.0
            if not isinstance(error, Unavailable) or not self._fronts.has_more(tried):
                pause_s = told_s or BACKOFF_S * 2**repeats
                tried.clear()
            if self._clock() + pause_s >= ends:
                raise error
            if pause_s:
                yield Pause(pause_s)
            repeats += not is_told_to_wait


def _helps(request: Request, error: SignalboxError, told_s: float | None) -> bool:
    """Whether a repeat may succeed."""
    if isinstance(error, Conflict):  # the first request with the same Idempotency-Key is being accepted
        return request.has_key and told_s is not None
    if request.is_once and isinstance(error, Ambiguous):
        return False
    return isinstance(error, Unavailable | LimitExceeded)
