"""Log lines of a job on its way through the programs: one at acceptance, one at its end, one for every step at DEBUG.

Every line names the job (``job``) and its caller's trace (``trace``), as does any other line about one job
(:func:`ids`), so one search follows it through all programs; ``docs/operations.md`` lists the
events. Nothing is built for a line that is not written: at INFO a step costs one comparison. Inputs, results, keys
and the texts of errors (they may quote an input) are never in a line.
"""

from collections.abc import Iterable
from typing import Any, Final

from signalbox.program import log
from signalbox.wire.messages import Job, Record, State
from signalbox.wire.outbound import End

_NEVER_SLOW_S: Final = float("inf")


def accepted(job: Job, seq: int | None) -> None:
    """Log that a gateway has made the job durable. seq: of its message in ``JOBS``, None where it is delayed."""
    if log.is_debug:
        log.debug(
            "job.accepted", **_named(job), priority=job.priority, rows=job.rows, size_bytes=job.size_bytes, seq=seq
        )


def step(event: str, job: Job | Record, **facts: Any) -> None:
    """Log one step of a job."""
    if log.is_debug:
        log.debug(event, **_named(job), **facts)


def steps(event: str, jobs: Iterable[Job]) -> None:
    """Log the same step of several jobs."""
    if log.is_debug:
        for job in jobs:
            log.debug(event, **_named(job))


def claimed(record: Record) -> None:
    """Log that an attempt has begun, and its claim is durable."""
    if log.is_debug:
        log.debug("job.claimed", **_attempt(record))


def retried(record: Record) -> None:
    """Log that an attempt is over and the job is back in the queue."""
    code = record.error.code if record.error is not None else ""
    log.info("job.retried", **_attempt(record), code=code, strikes=record.strikes, failures=record.failures)


def ended(record: Record, *, slow_s: float = _NEVER_SLOW_S) -> None:
    """Log that the job's end is durable: at INFO if it failed, expired, was slow or took several attempts, else DEBUG.

    slow_s: from pulled to done; waits in the queue are the queue's.
    """
    phases = record.phases
    done = phases.get("done", 0.0)
    is_slow = done - phases.get("pulled", done) > slow_s * 1000
    state = record.state
    is_reported = is_slow or record.attempt > 1 or state is State.FAILED or state is State.EXPIRED
    if is_reported or log.is_debug:
        say = log.info if is_reported else log.debug
        say(
            "job.ended",
            **_attempt(record),
            state=state.value,
            is_slow=is_slow,
            code=record.error.code if record.error is not None else "",
            batch=record.batch,
            phases=dict(sorted(phases.items(), key=lambda phase: phase[1])),
        )


def ids(job: Job | Record | End) -> dict[str, str]:
    """The fields by which any line about a job is found: its id and its caller's trace."""
    return {"job": job.request_id if isinstance(job, End) else job.id, "trace": job.trace}


def only_id(job_id: str, trace: str = "") -> dict[str, str]:
    """The fields of :func:`ids` where nothing but the job's id is at hand, or its trace besides: its record is gone, or
    cannot be read, or is not looked at."""
    return {"job": job_id, "trace": trace}


def _named(job: Job | Record) -> dict[str, Any]:
    return {**ids(job), "model": job.model, "version": job.version}


def _attempt(record: Record) -> dict[str, Any]:
    return {
        **_named(record),
        "worker": record.worker,
        "gpu": record.gpu,
        "token": record.token,
        "attempt": record.attempt,
    }
