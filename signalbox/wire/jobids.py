"""Ids of jobs, and their slots: from when a job is follows from its id.

A slot is the time in which jobs were accepted whose records and messages are removed together
(:mod:`workers.recovery.shortlived`); it is a token of their subjects (:func:`signalbox.wire.names.job`).
"""

import re
import uuid
from collections.abc import Callable
from typing import Final

JOB_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
MANY_QUEUED: Final = 25_000
"""Messages in ``JOBS`` from which slots are twice as long; four times from twice as many on, eight from four times."""
_SLOT_BITS: Final = 10
"""Of the milliseconds of a slot."""
_MORE_BITS: Final = 3
"""Of those of the longest."""
_COUNT_BITS: Final = 20
"""Of an id that is counted. Where they are used up, counting begins at another random number."""


def _slot_bits(queued: int) -> int:
    return _SLOT_BITS + min(_MORE_BITS, (queued // MANY_QUEUED).bit_length())


def slot_s(queued: int) -> float:
    """Seconds of which jobs are in one slot, with so many messages in ``JOBS``."""
    return (1 << _slot_bits(queued)) / 1000


def new_job_id(now: float, chance: int, *, is_short_lived: bool = False, queued: int = 0) -> str:
    """A job's id: a UUID of version 7, or of version 8 where the job's record is kept for a short time only.

    now: UTC unix seconds; it begins with their milliseconds. chance: number of a random UUID, of which 74 random bits
    are used. queued: messages in ``JOBS``. Where they are many the id begins with the first instant of some seconds, so
    that more jobs are in one slot: each purge of one has the server count all that is queued.
    """
    bits = _slot_bits(queued) if queued >= MANY_QUEUED else 0
    high = int(now * 1000) >> bits << bits + 16 | (0x8000 if is_short_lived else 0x7000) | chance >> 80 & 0xFFF
    low = 1 << 63 | chance & (1 << 62) - 1
    text = f"{high:016x}{low:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def job_id_after(job_id: str, number: int) -> str:
    """The id that is so many after this one, in the same slot."""
    return f"{job_id[:24]}{(int(job_id[24:], 16) + number) % (1 << 48):012x}"


def is_short_lived(job_id: str) -> bool:
    """Whether the job's record is kept for a short time only."""
    return job_id[14:15] == "8" and JOB_ID.match(job_id) is not None


def slot_of(job_id: str) -> str:
    """The slot of a job: the 1.024 s in which it was accepted, or the first of up to eight where many were queued."""
    return f"{job_id[:8]}{int(job_id[9:13], 16) >> _SLOT_BITS:02x}"


def time_of_slot(slot: str) -> float:
    """When a slot begins, in UTC unix seconds."""
    return (int(slot[:8], 16) << 16 | int(slot[8:], 16) << 10) / 1000


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
        if queued < MANY_QUEUED:
            return new_job_id(now, uuid.uuid4().int, is_short_lived=is_short_lived)
        job_id = new_job_id(now, self._next, is_short_lived=is_short_lived, queued=queued)
        if (slot := slot_of(job_id)) != self._slot or self._next + number > self._end:
            self._slot = slot
            self._next = uuid.uuid4().int >> _COUNT_BITS << _COUNT_BITS
            self._end = self._next + (1 << _COUNT_BITS)
            job_id = new_job_id(now, self._next, is_short_lived=is_short_lived, queued=queued)
        self._next += number
        return job_id
