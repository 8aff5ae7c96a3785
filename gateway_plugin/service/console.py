"""Asks the console to do something for the owner of a key. Where it is away, that alone is refused: jobs go on."""

from typing import Any, Final

import msgspec

from gateway_plugin.admission.keyring import READ, require_scope
from gateway_plugin.admission.pool import Pool
from signalbox.bus.client import Bus
from signalbox.program.errors import (
    Conflict,
    DeadlineExceeded,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    SignalboxError,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from signalbox.wire import asks
from signalbox.wire.asks import ConsoleAnswer, ConsoleAsk, JobPage, JobQuery, What
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import decode, encode
from signalbox.wire.names import ask_console

ANSWER_S: Final = 20.0
"""How long an answer is waited for: a configuration of many models takes some seconds."""
LIST_S: Final = 10.0
"""How long a page of a list is waited for; most take some milliseconds."""
LISTS: Final = 16
"""Pages that are waited for at once. Of them an account may have no more than are still free."""
_AWAY: Final = (
    "The console, which decides on models, is away or does not answer; models are served on. Try again in a moment: "
    "what it may have done already is not done twice."
)
_NO_LISTS: Final = (
    "Jobs cannot be listed now: the console, which keeps the list, is away or does not answer. Jobs go on without it, "
    "and each can be read by its id: GET /v1/jobs/{id}. Try again in a moment."
)
_KINDS: Final = {
    kind.code: kind
    for kind in (Conflict, DeadlineExceeded, Forbidden, InvalidRequest, LimitExceeded, NotFound, Unauthorized)
}


class Console:
    """The console, over NATS."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._lists = Pool(
            LISTS,
            bound="lists",
            of_all="As many lists of jobs are being made as may be at once",
            of_account="As many lists of your account's jobs are being made as may be now",
            mend="Ask for one page after the other.",
        )

    async def jobs(self, key: ApiKey, query: JobQuery) -> JobPage:
        """A page of the jobs of the key's account.

        Raises :class:`Forbidden` without the scope, :class:`LimitExceeded` for too many at once, :class:`Unavailable`
        while the console is away, and :class:`InvalidRequest` for a damaged cursor.
        """
        require_scope(key, READ)
        self._lists.take(key.account_id)
        try:
            answer = await self._answer(key, "jobs", _NO_LISTS, LIST_S, jobs=query)
        finally:
            self._lists.release(key.account_id)
        if answer.page is None:
            raise Unavailable("The console's answer is not understood: it is of another release.")
        return answer.page

    async def ask(self, key: ApiKey, what: What, **given: Any) -> None:
        """Have it done. given: fields of :class:`ConsoleAsk`.

        Raises :class:`Forbidden` without the scope, :class:`Unavailable` while the console is away, and what the
        console refuses with.
        """
        require_scope(key, asks.SCOPE)
        await self._answer(key, what, _AWAY, ANSWER_S, **given)

    async def _answer(self, key: ApiKey, what: What, away: str, timeout_s: float, **given: Any) -> ConsoleAnswer:
        data = encode(ConsoleAsk(key_id=key.id, account=key.account_id, what=what, **given))
        if len(data) > asks.MOST_BYTES:
            raise TooLarge(
                f"This has {len(data)} bytes; the console takes {asks.MOST_BYTES}.",
                bound="bytes",
                limit_bytes=asks.MOST_BYTES,
            )
        try:
            _, body = await self._bus.request(ask_console(what), data, timeout_s=timeout_s)
        except Unavailable as error:
            raise Unavailable(away, retry_after_s=5.0) from error
        answer = _read(body)
        if answer.status != asks.OK:
            kind: type[SignalboxError] = _KINDS.get(answer.status, Unavailable)
            raise kind(answer.text, retry_after_s=answer.retry_after_s)
        return answer


def _read(body: bytes) -> ConsoleAnswer:
    try:
        return decode(ConsoleAnswer, body[: asks.MOST_BYTES])
    except msgspec.MsgspecError as error:
        raise Unavailable("The console's answer is not understood: it is of another release.") from error
