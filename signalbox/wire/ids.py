"""Ids for the jobs that a program accepts."""

import uuid
from collections.abc import Callable
from typing import Final

from signalbox.wire import names

_COUNT_BITS: Final = 20
"""Of an id that is counted. Where they are used up, counting begins at another random number."""


class JobIds:
    """Gives ids, each once. wall: UTC seconds. queued: messages in ``JOBS``, about.

    Where few messages are queued an id is random behind its time. Where many are, those of one slot are counted from a
    random number on: the server keeps each subject's end in memory, and walks through all of them at each purge. Where
    neighbours differ in their last digits only these are short, lie side by side, and there are fewer of them to visit
    and to collect (ADR 0210).
    """

    def __init__(self, wall: Callable[[], float], queued: Callable[[], int] = int) -> None:
        self._wall = wall
        self._queued = queued
        self._slot = ""
        self._next = self._end = 0

    def new(self, *, is_short_lived: bool = False, number: int = 1) -> str:
        """The id of a job that is accepted now. number: ids from it on that are given with it."""
        now, queued = self._wall(), self._queued()
        if queued < names.MANY_QUEUED:
            return names.new_job_id(now, uuid.uuid4().int, is_short_lived=is_short_lived)
        job_id = names.new_job_id(now, self._next, is_short_lived=is_short_lived, queued=queued)
        if (slot := names.slot_of(job_id)) != self._slot or self._next + number > self._end:
            self._slot = slot
            self._next = uuid.uuid4().int >> _COUNT_BITS << _COUNT_BITS
            self._end = self._next + (1 << _COUNT_BITS)
            job_id = names.new_job_id(now, self._next, is_short_lived=is_short_lived, queued=queued)
        self._next += number
        return job_id
