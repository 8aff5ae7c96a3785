"""Makes errors from their codes on the wire: a decoder's errors, and those of failed jobs."""

from collections.abc import Mapping
from typing import Any, Final

from gateway_plugin.codec.inputs import UnknownSignature
from signalbox.program import errors
from signalbox.program.errors import SignalboxError

_KINDS: Final[dict[str, type[SignalboxError]]] = {
    kind.code: kind
    for kind in (
        errors.InvalidRequest,
        errors.InvalidJson,
        errors.InvalidInput,
        UnknownSignature,
        errors.TooLarge,
        errors.UnsupportedEncoding,
        errors.NotFound,
        errors.Gone,
        errors.Conflict,
        errors.LimitExceeded,
        errors.QueueFull,
        errors.Unavailable,
        errors.NotServing,
        errors.DeadlineExceeded,
        errors.LeaseLost,
        errors.ModelError,
        errors.ResultTooLarge,
        errors.RunnerCrashed,
        errors.OutOfMemory,
        errors.Poisoned,
        errors.InputLost,
        errors.Cancelled,
    )
}


def error_of(code: str, message: str, facts: Mapping[str, Any]) -> SignalboxError:
    """The error a code on the wire stands for; a code we do not know is our fault, not the caller's."""
    return _KINDS.get(code, errors.Bug)(message, **{k: v for k, v in facts.items() if k != "job_id"})
