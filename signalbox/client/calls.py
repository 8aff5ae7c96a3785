"""Every call of the API as steps: what is sent, when again, and what the answers mean. Without I/O."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

from signalbox.client import predictions
from signalbox.client.delivery import Delivery
from signalbox.client.exchange import Emit, Open, Pause, Read, Request, Response, Steps
from signalbox.client.faults import document, kind, problem, retry_after_s
from signalbox.client.fronts import Balance, Fronts
from signalbox.client.jobs import (
    ENDED,
    Act,
    Acted,
    Event,
    Job,
    JobFilter,
    PredictOptions,
    Refusal,
    Submission,
    SubmitOptions,
    fields_of,
    id_of,
    jobs_of,
)
from signalbox.client.predictions import JSON
from signalbox.client.queues.calls import QueueCalls
from signalbox.client.sse import Reader, ServerSent
from signalbox.client.tensors import BINARY, Arrays, as_json, decode
from signalbox.program.errors import (
    Bug,
    Conflict,
    DeadlineExceeded,
    Gone,
    LimitExceeded,
    NoLongerKept,
    NotFound,
    SignalboxError,
    Unavailable,
)

POLL_S: Final = 0.2
"""Pause before a job is asked after again, unless the server says how long (``Retry-After``)."""
LONGEST_POLL_S: Final = 5.0
ASKED_S: Final = 30
"""How long a front is asked to wait for a job's end before it answers."""
GRACE_S: Final = 10.0
"""Beyond that, until its answer has to be there."""
MOST_FAILURES: Final = 10
"""Of a stream of events, one after another, each with its repeats: a minute, while no front is there."""
PAGE: Final = 200
DEFAULT_GROUP: Final = "eas"
"""Of a queue's consumers; each queue has it."""
_RESULT: Final = "/result"


class Calls:
    """The API's calls. timeout_s: of a call that names none. clock: seconds that only grow."""

    def __init__(self, delivery: Delivery, *, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._delivery = delivery
        self._timeout_s = timeout_s
        self._clock = clock

    @classmethod
    def to(
        cls, urls: str | Sequence[str], *, timeout_s: float, retries: int, balance: Balance, refresh_s: float
    ) -> Self:
        """Calls to those fronts. Raises :class:`ValueError` for what is no URL of one."""
        fronts = Fronts(urls, balance=balance, refresh_s=refresh_s)
        return cls(Delivery(fronts, retries=retries), timeout_s=timeout_s)

    def predict(self, model: str, inputs: Any, options: PredictOptions) -> Steps[dict[str, Any]]:
        """Arrays for arrays, else TensorFlow Serving's JSON object."""
        request = predictions.prediction(model, inputs, options)
        response = yield from self._send(request, options.get("timeout_s"))
        return decode(response) if "Accept" in request.headers else document(response)

    def submit(self, model: str, inputs: Any, options: SubmitOptions) -> Steps[Job]:
        """The job, accepted."""
        request = predictions.submission(model, inputs, options)
        return Job.of(document((yield from self._send(request, options.get("timeout_s")))))

    def submit_many(self, jobs: Sequence[Submission], idempotency_key: str | None) -> Steps[list[Job | SignalboxError]]:
        """A job, or the error why it was refused, for each submission."""
        response = yield from self._send(predictions.many(list(jobs), idempotency_key))
        return [
            problem(one["error"]) if one.get("error") else Job.of({**one, "model": asked.model})
            for one, asked in zip(document(response)["jobs"], jobs, strict=True)
        ]

    def job(self, job: Job | str) -> Steps[Job]:
        """The job as it is now."""
        try:
            response = yield from self._send(Request("GET", _path(job)))
        except Gone as error:
            return _expired(job, error)
        return Job.of(document(response))

    def jobs(self, limit: int | None, chosen: JobFilter) -> Steps[None]:
        """Emits jobs, newest first, page after page."""
        fields = {name: "true" if value is True else value for name, value in fields_of(chosen).items()}
        left, cursor = limit, None
        while left is None or left > 0:
            asked = {**fields, "limit": min(PAGE, left or PAGE)} | ({"cursor": cursor} if cursor else {})
            response = yield from self._send(Request("GET", f"/v1/jobs?{urlencode(asked, doseq=True)}"))
            page = document(response)
            for job in jobs_of(page["jobs"]):
                yield Emit(job)
            left = None if left is None else left - len(page["jobs"])
            cursor = page.get("cursor")
            if not cursor:
                return

    def wait(self, job: Job | str, timeout_s: float) -> Steps[Job]:
        """The job once it has ended."""
        try:
            response = yield from self._ended(job, Request("GET", _path(job)), timeout_s)
        except Gone as error:
            return _expired(job, error)
        return Job.of(document(response))

    def result(self, job: Job | str, timeout_s: float) -> Steps[Arrays]:
        """The outputs, once the job has ended."""
        request = Request("GET", _path(job) + _RESULT, headers={"Accept": BINARY})
        try:
            return decode((yield from self._ended(job, request, timeout_s)))
        except Conflict as error:
            failed = error.facts.get("error")
            if isinstance(failed, dict):
                facts: dict[str, Any] = {**error.facts, "job_id": id_of(job)}
                raise kind(failed.get("code"))(error.public_message, **facts) from error
            raise

    def _ended(self, job: Job | str, read: Request, timeout_s: float) -> Steps[Response]:
        """The answer to a read of a job once that has ended. The front waits; where it has no place, it is polled."""
        ends, may_wait = self._clock() + timeout_s, True
        while True:
            began = self._clock()
            asked_s = max(0, math.floor(min(ASKED_S, ends - began))) if may_wait else 0
            headers = {**read.headers, "Prefer": f"wait={asked_s}"} if asked_s else read.headers
            request = Request("GET", read.path, headers=headers)
            try:
                response = yield from self._send(request, asked_s + GRACE_S)
                if read.path.endswith(_RESULT) or document(response)["state"] in ENDED:
                    return response
                told_s = retry_after_s(response)
            except LimitExceeded as error:
                told_s, may_wait = error.retry_after_s, False
            except Conflict as error:
                if error.facts.get("state") not in {"queued", "running"}:
                    raise
                told_s = error.retry_after_s
            now = self._clock()
            if now >= ends:
                job_id = id_of(job)
                raise DeadlineExceeded(
                    f"Job {job_id} did not end in {timeout_s:g} s; it goes on: wait again.", job_id=job_id
                )
            told_s = POLL_S if told_s is None else told_s
            pause_s = min(told_s, LONGEST_POLL_S) - (now - began)
            yield Pause(max(0.0, min(pause_s, ends - now)))

    def events(self, job: Job | str) -> Steps[None]:
        """Emits the job's events until it has ended; reconnects where the stream breaks."""
        path, failures = f"{_path(job)}/events", 0
        last: Event | None = None
        while True:
            reader = Reader()
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last.id} if last else {})
            try:
                response = yield from self._open(Request("GET", path, headers=headers))
                if response.status == 204:  # the end was seen
                    return
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    raise Bug("The front answered without events: is its URL Signalbox's?")
                while (chunk := (yield Read())) is not None:
                    for sent in reader.feed(chunk):
                        if sent.kind == "end":
                            return
                        if sent.kind == "error":
                            raise problem(json.loads(sent.data))
                        if sent.kind == "state":
                            failures = 0
                            if (event := _event(sent)) != last:  # a reconnect is told it again
                                last = event
                                yield Emit(event)
            except (Unavailable, LimitExceeded, DeadlineExceeded):  # the front is gone or silent: any knows the job
                failures += 1
                if last is None or failures > MOST_FAILURES:
                    raise
            pause_s = POLL_S if reader.retry_s is None else reader.retry_s
            yield Pause(min(pause_s * 2**failures, LONGEST_POLL_S))

    def cancel(self, job: Job | str) -> Steps[Job]:
        """The job, ended or asked to end."""
        return Job.of(document((yield from self._send(Request("POST", f"{_path(job)}/cancel")))))

    def change(self, job: Job | str, fields: Mapping[str, Any]) -> Steps[Job]:
        """The waiting job with another priority or deadline."""
        body = as_json({name: value for name, value in fields.items() if value is not None})
        return Job.of(document((yield from self._send(Request("PATCH", _path(job), body, JSON)))))

    def retry(self, job: Job | str, after: Job | str | None) -> Steps[Job]:
        """The new job with the input of one that was given up."""
        body = as_json({"after": id_of(after)}) if after else b""
        return Job.of(document((yield from self._send(Request("POST", f"{_path(job)}/retry", body, JSON)))))

    def delete(self, job: Job | str, timeout_s: float) -> Steps[None]:
        """Returns once nothing of the ended job is left."""
        ends, is_asked = self._clock() + timeout_s, False
        while True:
            try:
                response = yield from self._send(Request("DELETE", _path(job)))
            except (NotFound, NoLongerKept):
                if is_asked:
                    return
                raise
            if response.status == 204:
                return
            is_asked = True
            if self._clock() >= ends:
                job_id = id_of(job)
                raise DeadlineExceeded(
                    f"Job {job_id} is being deleted, and not gone in {timeout_s:g} s.", job_id=job_id
                )
            yield Pause(min(retry_after_s(response) or POLL_S, LONGEST_POLL_S))

    def all(self, act: Act, jobs: Sequence[Job | str] | None, chosen: JobFilter) -> Steps[Acted]:
        """Do it to those jobs, or to all that a filter finds, a thousand a call."""
        ids = None if jobs is None else [id_of(job) for job in jobs]
        done, refused, refusals = 0, 0, list[Refusal]()
        cursor: str | None = None
        while True:
            if ids is not None:
                doc: dict[str, Any] = {"ids": ids[: predictions.MOST_JOBS]}
                ids = ids[predictions.MOST_JOBS :]
            else:
                doc = {"filter": fields_of(chosen), "limit": predictions.MOST_JOBS}
                doc |= {"cursor": cursor} if cursor else {}
            answer = document((yield from self._send(Request("POST", f"/v1/jobs/{act}", as_json(doc), JSON))))
            done, refused, cursor = done + answer["done"], refused + answer["refused"], answer.get("cursor")
            refusals += [Refusal(one["id"], one["code"], one["detail"]) for one in answer.get("refusals", ())]
            if not (ids or cursor):
                return Acted(done, refused, tuple(refusals))

    def models(self) -> Steps[dict[str, Any]]:
        """The models that the key may call."""
        return document((yield from self._send(Request("GET", "/v1/models"))))

    def metadata(self, model: str) -> Steps[dict[str, Any]]:
        """What a model takes and gives."""
        return document((yield from self._send(Request("GET", f"/v2/models/{quote(model, safe='')}"))))

    def queue(self, name: str, group: str, uid: str | None) -> QueueCalls:
        """Calls of a queue's source, by one consumer."""
        return QueueCalls(self._delivery, name, group=group, uid=uid, timeout_s=self._timeout_s)

    def _open(self, request: Request) -> Steps[Response]:
        return self._delivery.send(request, self._timeout_s, how=Open)

    def _send(self, request: Request, timeout_s: float | None = None) -> Steps[Response]:
        return self._delivery.send(request, self._timeout_s if timeout_s is None else timeout_s)


def _path(job: Job | str) -> str:
    return f"/v1/jobs/{quote(id_of(job), safe='')}"


def _expired(job: Job | str, error: Gone) -> Job:
    """A job whose deadline passed before it ran: the API answers it as an error."""
    return Job.of(
        {"id": id_of(job), "state": "expired", "error": {"code": error.code, "message": error.public_message}}
    )


def _event(sent: ServerSent) -> Event:
    """The event of a message. Raises :class:`Bug`."""
    try:
        doc = json.loads(sent.data)
        state = str(doc["state"])
        return Event(
            id=sent.id,
            state=state,
            phase=str(doc.get("phase") or state),
            position=doc.get("position"),
            estimated_wait_s=doc.get("estimated_wait_s"),
            result_url=doc["urls"]["result"] if state == "succeeded" else None,
            document=doc,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Bug("The front sent an event that is no job's. Is the client older than the front?") from error
