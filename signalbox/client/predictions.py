"""Requests that bring a model's inputs: predictions and submissions."""

import uuid
from typing import Any, Final
from urllib.parse import quote

from signalbox.client.exchange import Request
from signalbox.client.jobs import PredictOptions, Submission, SubmitOptions, require_known, rfc3339, words
from signalbox.client.tensors import BINARY, are_arrays, as_json, encode
from signalbox.program.errors import InvalidRequest

JSON: Final = {"Content-Type": "application/json"}
MOST_JOBS: Final = 1_000
"""Submissions of one call."""


def prediction(model: str, inputs: Any, options: PredictOptions) -> Request:
    """Arrays as the Open Inference Protocol's bytes, anything else as TensorFlow Serving's JSON.

    Raises :class:`InvalidRequest`.
    """
    require_known(options, PredictOptions)
    _require_one(inputs, options.get("instances"))
    version, label, signature = options.get("version"), options.get("label"), options.get("signature")
    if are_arrays(inputs):
        body, headers = encode(inputs, _named(signature), options.get("outputs") or ())
        return Request("POST", _infer(model, version, label), body, {**headers, "Accept": BINARY})
    path = f"/v1/models/{quote(model, safe='')}"
    if version is not None:
        path += f"/versions/{version}"
    elif label is not None:
        path += f"/labels/{quote(label, safe='')}"
    doc: dict[str, Any] = dict(_named(signature))
    doc |= {"instances": options["instances"]} if inputs is None else {"inputs": inputs}
    return Request("POST", f"{path}:predict", as_json(doc), JSON)


def submission(model: str, inputs: Any, options: SubmitOptions) -> Request:
    """Arrays as the Open Inference Protocol's bytes, anything else as JSON. Raises :class:`InvalidRequest`."""
    require_known(options, SubmitOptions)
    _require_one(inputs, options.get("instances"))
    fields: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    key = {"Idempotency-Key": fields.pop("idempotency_key", None) or uuid.uuid4().hex}
    fields.pop("timeout_s", None)
    if are_arrays(inputs):
        parameters = _named(fields.get("signature"))
        parameters |= {"deadline_s": fields["deadline_s"]} if "deadline_s" in fields else {}
        parameters |= {"tags": words(fields["tags"])} if "tags" in fields else {}
        if priority := fields.get("priority"):
            parameters["priority"] = _PRIORITIES[priority]
        if not_before := rfc3339(fields.get("not_before")):
            parameters["not_before"] = not_before
        body, headers = encode(inputs, parameters)
        path = _infer(model, fields.get("version"), fields.get("label"))
        return Request("POST", path, body, {**headers, **key, "Prefer": "respond-async"})
    return Request("POST", "/v1/jobs", as_json(Submission(model, inputs, **fields).document()), {**JSON, **key})


def many(submissions: list[Submission], idempotency_key: str | None) -> Request:
    """Up to :data:`MOST_JOBS` in one call, under one Idempotency-Key. Raises :class:`InvalidRequest`."""
    if not 0 < len(submissions) <= MOST_JOBS:
        raise InvalidRequest(f"A call takes 1 to {MOST_JOBS} jobs, not {len(submissions)}: make several calls.")
    for one in submissions:
        _require_one(one.inputs, one.instances)
    key = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
    return Request("POST", "/v1/jobs", as_json({"jobs": [one.document() for one in submissions]}), {**JSON, **key})


_PRIORITIES: Final = {"hi": 1, "mid": 2, "lo": 3}


def _named(signature: str | None) -> dict[str, Any]:
    return {"signature_name": signature} if signature else {}


def _infer(model: str, version: int | None, label: str | None) -> str:
    chosen = str(version) if version is not None else label
    of_version = f"/versions/{quote(chosen, safe='')}" if chosen else ""
    return f"/v2/models/{quote(model, safe='')}{of_version}/infer"


def _require_one(inputs: Any, instances: Any) -> None:
    if (inputs is None) == (instances is None):
        raise InvalidRequest("Give either inputs or instances.")
    if hasattr(inputs, "dtype"):
        raise InvalidRequest('Say which input the array is: {"x": array} (Client.metadata has the names).')
