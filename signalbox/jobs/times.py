"""Where a job's time went: the parts of each of its attempts. All programs that show times use it.

A worker notes the **stages** of an attempt, each from when it began until the next one begins; what they make of the
time is written into the record with the attempt's claim and its end. Each millisecond from acceptance to the end is in
one part of one attempt. Parts are milliseconds, added up by name, in the order in which they first began:

``delay`` until the instant before which a job was not to run · ``retry`` until it may run again · ``lease`` until the
worker has its device, or is sure of it · ``queue`` until a worker has pulled the job · ``fetch`` of these two, while
the files of its version were on their way to the worker's host · ``other-model`` behind loads and runs of other models
· ``batch`` behind runs of its own model, and for its batch · ``input`` until an input that was stored apart is here ·
``runner`` while a runner is ended and another one starts · ``load`` of its version, also one that fails, but for
``verify``, the digest of its files before, and ``warm``, its warm-up requests after · ``run`` in the runner, all tries
of this attempt together · ``commit`` until its batch has ended and the end is written · ``unknown`` after the last that
is known of an attempt that was lost with its worker.

Clocks differ: no part is negative, and what comes later in the chain is never earlier in time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import msgspec

from signalbox.wire.messages import EndedAttempt, Record, State

DELAY: Final = "delay"
RETRY: Final = "retry"
LEASE: Final = "lease"
QUEUE: Final = "queue"
FETCH: Final = "fetch"
OTHER_MODEL: Final = "other-model"
BATCH: Final = "batch"
INPUT: Final = "input"
RUNNER: Final = "runner"
VERIFY: Final = "verify"
LOAD: Final = "load"
WARM: Final = "warm"
RUN: Final = "run"
COMMIT: Final = "commit"
UNKNOWN: Final = "unknown"
PARTS: Final = (
    *(DELAY, RETRY, LEASE, QUEUE, FETCH, OTHER_MODEL, BATCH, INPUT, RUNNER),
    *(VERIFY, LOAD, WARM, RUN, COMMIT, UNKNOWN),
)
LOST: Final = "lost"
"""How an attempt ended of whose end its worker wrote nothing."""
_NOT_PULLED: Final = frozenset({DELAY, RETRY, LEASE, QUEUE, FETCH})
BEFORE_READY: Final = frozenset({OTHER_MODEL, LOAD})
"""The stages of a job whose version is not ready. Its load may have begun before they say so: ahead of need."""
_LOADING: Final = frozenset({VERIFY, LOAD, WARM})
_NOT_WAITED: Final = frozenset({DELAY, RUN, COMMIT, UNKNOWN})
_OPEN: Final = frozenset({State.QUEUED.value, State.RUNNING.value})

Stages = Sequence[tuple[str, float]]
"""The stages of an attempt, by name, each with the UTC second in which it began; the first begins with the pull."""


class Span(NamedTuple):
    """What a part of a stage is called. began, ended: UTC seconds."""

    name: str
    began: float
    ended: float


class Spent(NamedTuple):
    """parts: by name. phases: instants of the attempt. end_ms: all in milliseconds since acceptance."""

    parts: dict[str, float]
    phases: dict[str, float]
    end_ms: float


class Part(msgspec.Struct, frozen=True):
    """One part of an attempt's time, in milliseconds since acceptance."""

    name: str
    start_ms: float
    end_ms: float


class AttemptTimes(NamedTuple):
    """One attempt. number: from 1. how: the code of what it ended with, ``lost``, or the job's state if it is the last.

    counts: ``strike``, ``failure`` or nothing. is_begun: whether a worker had pulled the job.
    """

    number: int
    worker: str
    gpu: str
    parts: list[Part]
    how: str
    counts: str = ""
    is_begun: bool = True


class Times(NamedTuple):
    """Milliseconds of all attempts together; None what is not known or has not come yet.

    wait: what is neither delay, run, commit nor unknown.
    """

    wait_ms: float | None = None
    run_ms: float | None = None
    total_ms: float | None = None


class Timed(Protocol):
    """What a record, or a row that was made of it, tells of its times."""

    @property
    def attempt(self) -> int:
        """The field of :class:`Record`; so are the others."""

    @property
    def worker(self) -> str: ...  # noqa: D102  see above

    @property
    def gpu(self) -> str: ...  # noqa: D102

    @property
    def state(self) -> State | str: ...  # noqa: D102

    @property
    def phases(self) -> Mapping[str, float]: ...  # noqa: D102

    @property
    def parts(self) -> Mapping[str, float]: ...  # noqa: D102

    @property
    def attempts(self) -> Iterable[EndedAttempt]: ...  # noqa: D102


def spent(record: Record, stages: Stages, now: float) -> Spent:
    """What the stages of the attempt after the record's ended ones make of its time, up to ``now`` (UTC seconds)."""
    created_at = record.created_at
    parts: dict[str, float] = {}
    phases: dict[str, float] = {}
    name, at = QUEUE, 0.0
    if record.attempts:
        last = record.attempts[-1]
        at = last.ended_ms
        if last.retry_ms > at:
            name, stages = RETRY, _after(created_at + last.retry_ms / 1000, stages, now)
    elif record.not_before > created_at:
        name, stages = DELAY, _after(record.not_before, stages, now)
    for next_name, began in (*stages, ("", now)):
        ms = max(at, round((began - created_at) * 1000, 2))
        parts[name] = round(parts.get(name, 0.0) + ms - at, 2)
        if name == RUN and next_name:
            phases["computed"] = ms
        if next_name == RUN:
            phases["started"] = ms
            phases.pop("computed", None)
        elif next_name in _LOADING and name not in _LOADING:
            phases["loading"] = ms
        if name in _NOT_PULLED and next_name and next_name not in _NOT_PULLED:
            phases["pulled"] = ms
        name, at = next_name, ms
    return Spent(parts, phases, at)


def _after(may_run_at: float, stages: Stages, now: float) -> Stages:
    """The stages of a job that waits for an instant first."""
    queued_at = min(may_run_at, pulled_at(stages, now))
    return ((QUEUE, queued_at), *((stage, max(queued_at, began)) for stage, began in stages))


def split_stages(
    stages: Stages, names: Collection[str], spans: Sequence[Span], until: float
) -> list[tuple[str, float]]:
    """The stages, where what of those with these names lies in a span is called as the span. The last ends ``until``.

    spans: one behind the other. What of a span lies in other stages is theirs.
    """
    found: list[tuple[str, float]] = []
    for (stage, began), (_, ended) in pairwise((*stages, ("", until))):
        found.append((stage, began))
        for span in spans if stage in names else ():
            start, end = max(began, span.began), min(ended, span.ended)
            if start < end:
                if found[-1] == (stage, start):
                    found.pop()  # nothing is left of it before this span
                found.append((span.name, start))
                if end < ended:
                    found.append((stage, end))
    return found


def pulled_at(stages: Stages, default: float) -> float:
    """When the attempt's worker had pulled the job, UTC seconds; ``default`` where no stage says so."""
    return next((at for name, at in stages if name not in _NOT_PULLED), default)


def unknown(record: Record, until: float) -> Spent:
    """The time of the record's present attempt, which nobody has ended by ``until`` (UTC seconds)."""
    known_ms = _ended_ms(record.attempts) + sum(record.parts.values())
    until_ms = max(known_ms, round((until - record.created_at) * 1000, 2))
    lost_ms = record.parts.get(UNKNOWN, 0.0) + until_ms - known_ms
    return Spent({**record.parts, UNKNOWN: round(lost_ms, 2)}, {}, round(until_ms, 2))


def so_far(job: Timed, age_ms: float, *, is_known: bool, delay_ms: float = 0.0) -> dict[str, float]:
    """The parts of the present attempt, up to ``age_ms`` after acceptance; of a job that has ended those that it has.

    What no record tells of yet is in one part: ``retry`` and ``queue`` while the job waits, and while it runs the part
    that its claim was written in. delay_ms: from acceptance until the job may run. is_known: False where its worker is
    gone, or nobody can say: it is ``unknown``.
    """
    parts = dict(job.parts)
    if job.state not in _OPEN:
        return parts
    at = _ended_ms(job.attempts) + sum(parts.values())
    left_ms = max(0.0, age_ms - at)
    if not is_known:
        name = UNKNOWN
    elif job.state == State.RUNNING:
        name = max(parts, key=PARTS.index, default=UNKNOWN)  # PostgreSQL does not keep their order
    else:
        name = QUEUE
        until_ms = max((one.retry_ms for one in job.attempts), default=delay_ms)
        if (apart_ms := min(left_ms, until_ms - at)) > 0:
            parts[RETRY if job.attempts else DELAY] = round(apart_ms, 2)
            left_ms -= apart_ms
    parts[name] = round(parts.get(name, 0.0) + left_ms, 2)
    return parts


def attempts(job: Timed) -> list[AttemptTimes]:
    """Each attempt that the record keeps, oldest first, without a gap between them; the last one as far as it is known.

    A job that ended while it waited for another attempt has a last one that has not begun.
    """
    found = [
        AttemptTimes(
            one.number,
            one.worker,
            one.gpu,
            _chain(one.ended_ms - sum(one.parts.values()), one.parts),
            one.code or LOST,
            one.counts,
        )
        for one in job.attempts
    ]
    if job.parts:
        start_ms = _ended_ms(job.attempts)
        is_begun = bool(job.attempt) and (not found or job.attempt > found[-1].number)
        number = job.attempt if is_begun else job.attempt + 1
        worker, gpu = (job.worker, job.gpu) if is_begun else ("", "")
        found.append(AttemptTimes(number, worker, gpu, _chain(start_ms, job.parts), str(job.state), is_begun=is_begun))
    return found


def split(job: Timed) -> Times:
    """Waited, ran, took in all; of the attempts that the record keeps."""
    wait_ms = run_ms = None
    for parts in (*(one.parts for one in job.attempts), job.parts):
        for name, ms in parts.items():
            if name not in _NOT_WAITED:
                wait_ms = (wait_ms or 0.0) + ms
            elif name == RUN:
                run_ms = (run_ms or 0.0) + ms
    return Times(
        None if wait_ms is None else round(wait_ms, 2),
        None if run_ms is None else round(run_ms, 2),
        job.phases.get("done"),
    )


def waited_ms(record: Record) -> float:
    """What :func:`split` calls waited, 0 where there was none; for every job that ends."""
    waited = 0.0
    for parts in (*(one.parts for one in record.attempts), record.parts):
        for name, ms in parts.items():
            if name not in _NOT_WAITED:
                waited += ms
    return waited


def started_ms(phases: Mapping[str, float]) -> float | None:
    """When the last run began; None if it never did.

    Only a job's end says when. Until then its claim stands for it: it is written as the run begins or soon after.
    """
    return phases.get("started", None if "done" in phases else phases.get("claimed"))


def _chain(start_ms: float, parts: Mapping[str, float]) -> list[Part]:
    """One behind the other, in the order of ``PARTS``: a database may have kept them in another."""
    found: list[Part] = []
    at = max(0.0, round(start_ms, 2))
    for name, ms in sorted(parts.items(), key=_place):
        end = round(at + ms, 2)
        found.append(Part(name, at, end))
        at = end
    return found


def _place(part: tuple[str, float]) -> int:
    return PARTS.index(part[0]) if part[0] in PARTS else len(PARTS)


def _ended_ms(ended: Iterable[EndedAttempt]) -> float:
    return max((one.ended_ms for one in ended), default=0.0)
