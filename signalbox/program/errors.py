"""One hierarchy of errors, mapped once to HTTP, to gRPC and to what a worker does with the job.

Adapters translate foreign errors at their boundary and chain the cause. The public message is shown
to the caller: it names the cause and the mend and holds no internals.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Final


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one code means in each protocol.

    http: status code. grpc: canonical status name. title: short constant text of the problem type.
    """

    http: int
    grpc: str
    title: str


class SignalboxError(Exception):
    """Root of all our errors.

    code: stable, documented in docs/errors.md. is_retryable: the same request may succeed later.
    public_message: cause and mend, for the caller. retry_after_s: seconds the caller should wait.
    Further facts are keyword arguments, kept in ``facts`` and shown in problem+json.
    """

    code: ClassVar[str] = "internal"
    is_retryable: ClassVar[bool] = False

    def __init__(self, public_message: str = "", *, retry_after_s: float | None = None, **facts: object) -> None:
        self.public_message = public_message or (type(self).__doc__ or self.code).splitlines()[0]
        self.retry_after_s = retry_after_s
        self.facts = facts
        super().__init__(self.public_message)


class InvalidRequest(SignalboxError):
    """The request is malformed."""

    code = "invalid_request"


class InvalidJson(InvalidRequest):
    """The body is not valid JSON."""

    code = "invalid_json"


class InvalidInput(InvalidRequest):
    """An input does not fit the model, or its signature."""

    code = "invalid_input"


class MethodNotAllowed(InvalidRequest):
    """This path does not take that method."""

    code = "method_not_allowed"


class Unimplemented(InvalidRequest):
    """The protocol has this, and Signalbox does not."""

    code = "unimplemented"


class TooLarge(InvalidRequest):
    """The body is larger than this model accepts."""

    code = "too_large"


class UnsupportedEncoding(InvalidRequest):
    """The body is encoded in a way that is not taken."""

    code = "unsupported_encoding"


class KeyReused(InvalidRequest):
    """The Idempotency-Key was used for another request."""

    code = "idempotency_key_reused"


class Unauthorized(SignalboxError):
    """No valid API key was sent."""

    code = "unauthorized"


class Forbidden(SignalboxError):
    """The API key may not do this."""

    code = "forbidden"


class NotFound(SignalboxError):
    """There is no such thing, or it is not yours."""

    code = "not_found"


class Gone(SignalboxError):
    """The job expired before it ran."""

    code = "expired"


class NoLongerKept(SignalboxError):
    """The job, or its result, is no longer kept."""

    code = "gone"


class Conflict(SignalboxError):
    """The thing changed meanwhile, or has already ended."""

    code = "conflict"


class LimitExceeded(SignalboxError):
    """A limit was reached; try again later."""

    code = "limit_exceeded"
    is_retryable = True


class QueueFull(LimitExceeded):
    """The queue is full; nothing was accepted."""

    code = "queue_full"


class Unavailable(SignalboxError):
    """Signalbox cannot take this now; nothing was accepted."""

    code = "unavailable"
    is_retryable = True


class Ambiguous(Unavailable):
    """The write timed out and may still be applied; ask again with the same id."""

    code = "ambiguous"


class NotServing(Unavailable):
    """No replica serves this model."""

    code = "not_serving"


class DeadlineExceeded(SignalboxError):
    """The time allowed for this request has passed."""

    code = "deadline_exceeded"
    is_retryable = True


class StaleRevision(Conflict):
    """A compare-and-set lost: the subject's last sequence is not the expected one.

    last: the real last sequence of the subject, or None where the server did not say.
    """

    code = "stale_revision"

    def __init__(self, last: int | None = None, **facts: Any) -> None:
        super().__init__(last=last, **facts)
        self.last = last


class Cancelled(SignalboxError):
    """The job was cancelled by its owner."""

    code = "cancelled"


class LeaseLost(SignalboxError):
    """The GPU lease is no longer ours."""

    code = "lease_lost"
    is_retryable = True


class ModelError(SignalboxError):
    """The model failed on this input."""

    code = "model_error"


class ResultTooLarge(ModelError):
    """The model gave out more than is taken from it."""

    code = "result_too_large"


class RunnerCrashed(ModelError):
    """The process that ran the model died."""

    code = "runner_crashed"
    is_retryable = True


class OutOfMemory(ModelError):
    """The device ran out of memory."""

    code = "out_of_memory"
    is_retryable = True


class Poisoned(ModelError):
    """This input took the model's process down again and again; it may not run for an hour."""

    code = "poison"


class InputLost(SignalboxError):
    """The job's input is no longer stored; send it again."""

    code = "input_lost"


class NewerVersion(SignalboxError):
    """A newer program wrote this; an older one leaves it alone."""

    code = "newer_version"
    is_retryable = True


class Misconfigured(SignalboxError):
    """A setting, a version or the topology does not fit; the program refuses to start."""

    code = "misconfigured"


class Bug(SignalboxError):
    """Something that must not happen happened; please report it."""

    code = "internal"


MEANINGS: Final[dict[str, Meaning]] = {
    "invalid_request": Meaning(400, "INVALID_ARGUMENT", "Malformed request"),
    "invalid_json": Meaning(400, "INVALID_ARGUMENT", "Malformed JSON"),
    "invalid_input": Meaning(400, "INVALID_ARGUMENT", "Input does not fit the model"),
    "unknown_signature": Meaning(400, "FAILED_PRECONDITION", "The version has no such signature"),
    "method_not_allowed": Meaning(405, "UNIMPLEMENTED", "Method not allowed"),
    "unimplemented": Meaning(501, "UNIMPLEMENTED", "Not implemented"),
    "too_large": Meaning(413, "INVALID_ARGUMENT", "Body too large"),
    "unsupported_encoding": Meaning(415, "INVALID_ARGUMENT", "Encoding not taken"),
    "idempotency_key_reused": Meaning(422, "INVALID_ARGUMENT", "Idempotency-Key used for another request"),
    "unauthorized": Meaning(401, "UNAUTHENTICATED", "API key missing or wrong"),
    "forbidden": Meaning(403, "PERMISSION_DENIED", "API key lacks the right"),
    "not_found": Meaning(404, "NOT_FOUND", "Not found"),
    "expired": Meaning(410, "NOT_FOUND", "Job expired"),
    "gone": Meaning(410, "NOT_FOUND", "No longer kept"),
    "conflict": Meaning(409, "ABORTED", "Conflict"),
    "stale_revision": Meaning(409, "ABORTED", "Changed meanwhile"),
    "limit_exceeded": Meaning(429, "RESOURCE_EXHAUSTED", "Limit exceeded"),
    "queue_full": Meaning(429, "RESOURCE_EXHAUSTED", "Queue full"),
    "unavailable": Meaning(503, "UNAVAILABLE", "Unavailable"),
    "ambiguous": Meaning(503, "UNAVAILABLE", "Outcome unknown"),
    "not_serving": Meaning(503, "UNAVAILABLE", "No replica serves this model"),
    "deadline_exceeded": Meaning(504, "DEADLINE_EXCEEDED", "Deadline exceeded"),
    "cancelled": Meaning(499, "CANCELLED", "Cancelled"),
    "lease_lost": Meaning(503, "UNAVAILABLE", "GPU lease lost"),
    "model_error": Meaning(400, "INVALID_ARGUMENT", "Model refused the input"),
    "result_too_large": Meaning(422, "OUT_OF_RANGE", "Result too large"),
    "runner_crashed": Meaning(500, "INTERNAL", "Runner crashed"),
    "out_of_memory": Meaning(500, "RESOURCE_EXHAUSTED", "Device out of memory"),
    "poison": Meaning(422, "FAILED_PRECONDITION", "Input takes the runner down"),
    "input_lost": Meaning(500, "DATA_LOSS", "Input no longer stored"),
    "newer_version": Meaning(503, "UNAVAILABLE", "Written by a newer version"),
    "misconfigured": Meaning(500, "FAILED_PRECONDITION", "Misconfigured"),
    "internal": Meaning(500, "INTERNAL", "Internal error"),
}


def meaning(code: str) -> Meaning:
    """The one table: error code to HTTP status, gRPC status and title. Unknown codes are internal."""
    return MEANINGS.get(code, MEANINGS["internal"])
