"""Acts on many jobs of an account in one call: named by their ids, or chosen by a filter of the list."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from gateway_plugin.admission.pool import Pool
from gateway_plugin.service.console import Console
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.wire.asks import JobQuery, ListedJob
from signalbox.wire.keydocs import ApiKey

MOST: Final = 1_000
"""Most jobs of one call."""
SHOWN: Final = 20
"""Refusals that are told one by one."""
CALLS: Final = 8
"""Calls that are answered at once. Of them an account may have no more than are still free."""
_AT_ONCE: Final = 16
"""Jobs of one call that are acted on at once; and when so many found NATS away, the others are not tried."""
_PAGE: Final = 200
_MOST_PAGES: Final = 20
"""Pages that one call asks for: one whose filter finds little in what the console looks through ends with a cursor."""

Act = Callable[[ApiKey, str, ListedJob | None], Awaitable[object]]
"""Does it to one job, given by its id and, where a filter chose it, as it is listed. Raises errors of ours."""


class Refusal(NamedTuple):
    """A job that was left as it is, and why."""

    job_id: str
    error: SignalboxError


class Acted(NamedTuple):
    """What came of a call. refusals: the first of them, in the order of the jobs.

    cursor: where the filter goes on; empty = nowhere. as_of: of the list that chose the jobs, UTC seconds.
    """

    done: int
    refused: int
    refusals: list[Refusal]
    cursor: str = ""
    as_of: float | None = None


class ManyActs:
    """Does one act to many jobs, some at a time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._calls = Pool(
            CALLS,
            bound="acts",
            of_all="As many calls that act on many jobs are being answered as may be at once",
            of_account="As many of your account's calls that act on many jobs are being answered as may be now",
            mend="Send one after the other.",
        )

    async def by_ids(self, key: ApiKey, act: Act, ids: Iterable[str]) -> Acted:
        """Act on the jobs with these ids. Raises :class:`LimitExceeded` for too many calls at once."""
        self._calls.take(key.account_id)
        try:
            return await _each(key, act, [(job_id, None) for job_id in dict.fromkeys(ids)])
        finally:
            self._calls.release(key.account_id)

    async def by_filter(self, key: ApiKey, act: Act, query: JobQuery, limit: int) -> Acted:
        """Act on the first jobs that a filter chooses, newest first, at most ``limit``.

        Raises as :meth:`by_ids` and :meth:`Console.jobs`.
        """
        self._calls.take(key.account_id)
        try:
            jobs: list[tuple[str, ListedJob | None]] = []
            as_of = None
            for _ in range(_MOST_PAGES):
                page = await self._console.jobs(key, replace(query, limit=min(_PAGE, limit - len(jobs))))
                jobs += [(job.id, job) for job in page.jobs]
                as_of = page.as_of if as_of is None else as_of
                query = replace(query, cursor=page.cursor)
                if not page.cursor or len(jobs) >= limit:
                    break
            return (await _each(key, act, jobs))._replace(cursor=query.cursor, as_of=as_of)
        finally:
            self._calls.release(key.account_id)


async def _each(key: ApiKey, act: Act, jobs: list[tuple[str, ListedJob | None]]) -> Acted:
    left = iter(enumerate(jobs))
    refused: dict[int, Refusal] = {}
    away: list[Unavailable] = []

    async def work() -> None:
        for place, (job_id, listed) in left:
            try:
                if len(away) >= _AT_ONCE:
                    raise away[-1]
                await act(key, job_id, listed)
            except SignalboxError as error:
                if isinstance(error, Unavailable) and len(away) < _AT_ONCE:
                    away.append(error)
                refused[place] = Refusal(job_id, error)

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
    first = [refused[place] for place in sorted(refused)[:SHOWN]]
    return Acted(len(jobs) - len(refused), len(refused), first)
