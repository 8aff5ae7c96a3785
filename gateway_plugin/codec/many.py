"""The jobs of a body that submits many: ``{"jobs": [{...}, ...]}``. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from gateway_plugin.codec.inputs import Decoded, Plan, decode
from signalbox.front.jsonbody import Body, kind_of
from signalbox.program.errors import InvalidRequest, TooLarge

FIELD: Final = "jobs"
MOST_JOBS: Final = 1_000
"""Jobs in one body."""


def jobs_of(doc: Mapping[str, Any]) -> list[Any]:
    """The jobs of a parsed body, which may be no objects yet. Raises :class:`InvalidRequest` and :class:`TooLarge`."""
    jobs = doc.get(FIELD)
    if type(jobs) is not list or not jobs:
        got = "an empty list" if jobs == [] else kind_of(jobs)
        raise InvalidRequest(
            f'"{FIELD}" must be a list of at least one job, {{"model": "digits", "input": {{"x": [...]}}}}, not {got}.',
            field=FIELD,
        )
    if len(doc) > 1:
        other = next(name for name in doc if name != FIELD)
        raise InvalidRequest(
            f'Beside "{FIELD}" the body has "{other[:60]}"; give each job its own fields.', field=other[:60]
        )
    if len(jobs) > MOST_JOBS:
        raise TooLarge(
            f"The body has {len(jobs)} jobs; one call takes at most {MOST_JOBS}. Submit them in several calls.",
            bound="jobs",
            limit=MOST_JOBS,
        )
    return jobs


def require_object(job: Any) -> None:
    """Raise :class:`InvalidRequest` where a job is none."""
    if type(job) is not dict:
        raise InvalidRequest(f"A job must be an object with a model and its inputs, not {kind_of(job)}.", field=FIELD)


def decode_one(job: dict[str, Any], available: Mapping[str, Plan], max_tensor_bytes: int) -> Decoded:
    """The inputs of one job. Raises as :func:`gateway_plugin.codec.inputs.decode`."""
    return decode(Body(job, is_plain=False), available, max_tensor_bytes)
