"""Bounds delayed jobs, those with a ``not_before`` in the future: how far off, how many, and in which class.

The input of each is stored apart, so the inputs in ``INPUTS`` are counted: they lie there until their jobs have ended.
Delayed jobs have no place in a queue yet and may all come due at once, so an account has as many in the class that it
asked for as a queue has fair room; what is above goes to ``lo``.
"""

from collections.abc import Callable
from typing import Final

from gateway_plugin.admission.fairness import LEAST
from gateway_plugin.admission.holdings import Holding, Holdings
from gateway_plugin.admission.queues import DEMOTED
from gateway_plugin.admission.refusals import REFUSED
from gateway_plugin.admission.submission import SubmitOptions
from signalbox.bus.client import Bus
from signalbox.jobs.change import LONGEST_DEADLINE_S
from signalbox.program.errors import InvalidRequest, LimitExceeded, Unavailable
from signalbox.wire import names
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Priority, Stream

MOST: Final = 50_000
"""Inputs stored of all accounts' jobs beside which a delayed job is accepted: one worker remembers delayed jobs."""
_STALE_S: Final = 1.0
_RETRY_AFTER_S: Final = 30.0
_PAST_ALL: Final = 1 << 30
"""Offset of a page that holds no subjects, but still their number."""


class Place:
    """Of a delayed job that was counted in, until it is stored or never will be."""

    def __init__(self, *holdings: Holding) -> None:
        self._holdings = holdings

    def leave(self) -> None:
        """Idempotent."""
        for holding in self._holdings:
            holding.left(1)
        self._holdings = ()


class DelayedAdmission:
    """Admits delayed jobs. most: of one account. fair_room: see :class:`gateway_plugin.admission.fairness.Shares`.

    wall: UTC clock, seconds.
    """

    def __init__(self, bus: Bus, *, most: int, fair_room: int, wall: Callable[[], float]) -> None:
        self._bus = bus
        self._most = most
        self._fair_room = fair_room
        self._wall = wall
        self._accounts = Holdings(self._count, stale_s=_STALE_S)
        self._all = Holdings(self._count, stale_s=_STALE_S)

    async def close(self) -> None:
        """Wait for open questions. Idempotent."""
        await self._accounts.close()
        await self._all.close()

    def settled(self, options: SubmitOptions, model: Model) -> SubmitOptions:
        """The options without a ``not_before`` that has passed.

        Raises :class:`InvalidRequest` where it and the deadline that counts from it are too far off together.
        """
        if not options.not_before:
            return options
        delay_s = options.not_before - self._wall()
        if delay_s <= 0:
            return options._replace(not_before=0.0)
        deadline_s = options.deadline_s or model.limits.deadline_s
        if delay_s + deadline_s > LONGEST_DEADLINE_S:
            raise InvalidRequest(
                f'"not_before" is {delay_s:.0f} s off and the deadline {deadline_s:.0f} s after it; together they may '
                f"be {LONGEST_DEADLINE_S:.0f} s. Give an earlier one, or submit the job later.",
                field="not_before",
                limit_s=LONGEST_DEADLINE_S,
            )
        return options

    async def admit(
        self, model: str, account: str, asked: Priority, *, named: Priority | None = None
    ) -> tuple[Priority, Place]:
        """Count a delayed job in; returns its class, and what is to be left once it is stored.

        named: where an earlier try of the same submission went.

        Raises :class:`LimitExceeded` where the account has as many as it may, and :class:`Unavailable` where all
        accounts have.
        """
        whole = await self._all.enter("", 1, MOST)
        if whole is None:
            REFUSED.labels("delayed").inc()
            raise Unavailable(
                "As many inputs of jobs are stored as may be beside a delayed one. Nothing was accepted: submit it "
                "when it is due, or later.",
                retry_after_s=_RETRY_AFTER_S,
                bound="delayed",
            )
        try:
            mine = await self._accounts.enter(account, 1, self._most)
        except BaseException:
            whole.refused(1)
            raise
        if mine is None:
            whole.refused(1)
            REFUSED.labels("account_delayed").inc()
            raise LimitExceeded(
                f"Inputs of {self._accounts.held(account)} of your jobs are stored, and beside a delayed job no more "
                f"than {self._most} may be. Nothing was accepted: submit it when others have ended, or cancel some.",
                retry_after_s=_RETRY_AFTER_S,
                bound="delayed",
                limit=self._most,
            )
        place = Place(whole, mine)
        if named is not None or not self._fair_room or mine.most <= self._fair_room or asked == LEAST:
            return named or asked, place
        DEMOTED.labels(model).inc()
        return LEAST, place

    async def _count(self, account: str) -> int:
        """Inputs that are stored of jobs of an account, or of all where it is empty."""
        info = await self._bus.request_json(
            f"$JS.API.STREAM.INFO.{Stream.INPUTS}",
            {"subjects_filter": names.job_inputs(account), "offset": _PAST_ALL},
        )
        return int(info.get("total", 0))
