"""OpenAI's objects and errors, as its clients read them."""

from collections.abc import Sequence
from typing import Any, Final

from gateway_plugin.jsonresponses import JsonResponse, json_response, problem_response
from signalbox.program.errors import SignalboxError, meaning
from signalbox.wire.outbound import Batch, FilePart, FileUpload, StoredFile

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def file_object(found: StoredFile, kept_s: float) -> dict[str, Any]:
    """A file."""
    return {
        "id": found.id,
        "object": "file",
        "bytes": found.size,
        "created_at": int(found.created_at),
        "expires_at": int(found.created_at + kept_s),
        "filename": found.filename,
        "purpose": found.purpose,
        "status": "processed",
        "status_details": None,
    }


def upload_object(found: FileUpload, open_s: float, file: dict[str, Any] | None = None) -> dict[str, Any]:
    """A file that comes in parts, or has come. open_s: how long it may."""
    return {
        "id": found.id,
        "object": "upload",
        "bytes": found.size,
        "created_at": int(found.created_at),
        "expires_at": int(found.created_at + open_s),
        "filename": found.filename,
        "purpose": found.purpose,
        "status": found.state,
        "file": file,
    }


def part_object(found: FilePart, upload_id: str) -> dict[str, Any]:
    """A part of an upload."""
    return {
        "id": found.id,
        "object": "upload.part",
        "created_at": int(found.created_at),
        "upload_id": upload_id,
    }


def batch_object(batch: Batch) -> dict[str, Any]:
    """A batch. Which of its times stand in it follows from its state."""
    ended = int(batch.ended_at) or None
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": _errors(batch),
        "input_file_id": batch.input_file,
        "completion_window": batch.window,
        "status": batch.state,
        "output_file_id": batch.output_file or None,
        "error_file_id": batch.error_file or None,
        "created_at": int(batch.created_at),
        "in_progress_at": int(batch.started_at) or None,
        "expires_at": int(batch.deadline_at),
        "finalizing_at": ended if batch.state == "completed" else None,
        "completed_at": ended if batch.state == "completed" else None,
        "failed_at": ended if batch.state == "failed" else None,
        "expired_at": ended if batch.state == "expired" else None,
        "cancelling_at": int(batch.asked_at) or None if batch.asked == "cancel" else None,
        "cancelled_at": ended if batch.state == "cancelled" else None,
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "metadata": batch.metadata or None,
    }


def _errors(batch: Batch) -> dict[str, Any] | None:
    if not batch.error:
        return None
    said = {"code": "batch_failed", "message": batch.error, "line": None, "param": None}
    return {"object": "list", "data": [said]}


def listed(objects: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page of objects."""
    return {
        "object": "list",
        "data": objects,
        "first_id": objects[0]["id"] if objects else None,
        "last_id": objects[-1]["id"] if objects else None,
        "has_more": has_more,
    }


def error_doc(error: SignalboxError) -> dict[str, Any]:
    """What is wrong, and with what."""
    status = meaning(error.code).http
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    field = error.facts.get("field")
    param = field if isinstance(field, str) else None
    return {"message": error.public_message, "type": kind, "param": param, "code": error.code}


def refusal(error: SignalboxError) -> JsonResponse:
    """The answer that an error stands for."""
    given = problem_response(error)
    headers = {name: value for name, value in given.headers.items() if name != "Content-Type"}
    return json_response(given.status, {"error": error_doc(error)}, headers)
