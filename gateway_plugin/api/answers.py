"""Answers about jobs that the dialects over HTTP share, and how long their callers prefer to wait (RFC 7240)."""

import re
from typing import Final, NamedTuple

from gateway_plugin.admission.idempotency import REPLAYED
from gateway_plugin.jsonresponses import JOB_ID, JSON, JsonResponse, json_response, retry_after
from gateway_plugin.service.jobs import Jobs, Outcome
from signalbox.jobs import times
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import Record

_WAIT: Final = re.compile(r"wait\s*=\s*\"?([0-9]{1,6})\"?\Z", re.IGNORECASE)


class Preference(NamedTuple):
    """How long a caller waits. is_async: 202 if the job has not ended in time. wait_s: seconds, None = not said."""

    is_async: bool = False
    wait_s: float | None = None

    @property
    def applied(self) -> str:
        """The value of ``Preference-Applied``, empty without a preference."""
        parts = ["respond-async"] if self.is_async else []
        if self.wait_s is not None:
            parts.append(f"wait={self.wait_s:.0f}")
        return ", ".join(parts)


NONE: Final = Preference()


def preference(text: str) -> Preference:
    """The preference in a ``Prefer`` header. Unknown preferences are ignored, as the RFC demands."""
    if not text:
        return NONE
    is_async, wait_s = False, None
    for part in text.split(","):
        word = part.strip()
        if word.lower() == "respond-async":
            is_async = True
        elif (found := _WAIT.match(word)) is not None:
            wait_s = float(found.group(1))
    return Preference(is_async, wait_s)


def job_headers(record: Record) -> dict[str, str]:
    """What an answer says beside a job's result: its id, how long it waited, and where its time went."""
    return {
        JOB_ID: record.id,
        "X-Signalbox-Queue-Ms": str(round(times.split(record).wait_ms or 0.0)),
        "Server-Timing": ", ".join([f"{name};dur={ms:.2f}" for name, ms in record.parts.items()])
        if not record.attempts
        else _of_attempts(record),
    }


def _of_attempts(record: Record) -> str:
    """The parts of each attempt, oldest first, each with the number of its attempt."""
    return ", ".join(
        f'{part.name};dur={part.end_ms - part.start_ms:.2f};desc="attempt {one.number}"'
        for one in times.attempts(record)
        for part in one.parts
    )


def result_headers(outcome: Outcome, prefer: Preference) -> dict[str, str]:
    """The headers of an answer to a submission that has ended, as JSON."""
    return {"Content-Type": JSON, **job_headers(outcome.found.record), **_of_submission(outcome, prefer)}


def _of_submission(outcome: Outcome, prefer: Preference) -> dict[str, str]:
    headers = {}
    if applied := prefer.applied:
        headers["Preference-Applied"] = applied
    if outcome.options is None:
        headers[REPLAYED] = "true"
    return headers


async def accepted(jobs: Jobs, key: ApiKey, outcome: Outcome, prefer: Preference) -> JsonResponse:
    """202: the job exists. Place and estimate are what is known now."""
    found, options = outcome.found, outcome.options
    doc = await jobs.describe(key, found)
    if options is not None and found.record.priority != options.priority:
        doc["demoted_from"] = options.priority
    job_id = found.record.id
    headers = {
        "Location": f"/v1/jobs/{job_id}",
        "Retry-After": str(retry_after(doc["estimated_wait_s"])),
        JOB_ID: job_id,
    }
    return json_response(202, doc, headers | _of_submission(outcome, prefer))
