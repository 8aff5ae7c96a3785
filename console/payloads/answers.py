"""Answers that are what a customer sent or got, and no page of ours: kept apart from pages in every browser."""

from typing import Final

from django.http import HttpResponse

from console.payloads import downloads
from console.payloads.downloads import Form
from console.payloads.images import Image
from console.payloads.services import Reading
from console.payloads.stored import Part
from signalbox.program.errors import NoLongerKept

ALONE: Final = "default-src 'none'; sandbox"
"""Content-Security-Policy: it loads nothing and runs nothing, whatever a browser takes it for."""
_TYPES: Final = {Form.JSON: "application/json", Form.NPZ: "application/octet-stream"}


def as_file(found: Reading, form: Form) -> HttpResponse:
    """The whole of it. Raises :class:`NoLongerKept` where it is gone, and :class:`TooLarge`."""
    if found.tensors is None:
        raise NoLongerKept(found.why)
    if form is Form.NPZ:
        data = downloads.as_npz(found.tensors)
    else:
        values = downloads.named(found.tensors)
        is_input = found.part is Part.INPUT
        data = downloads.as_json(found.request.body(values) if is_input else {"outputs": values})
    return _apart(data, _TYPES[form], "attachment", f"{found.request.job_id}-{found.part}.{form}")


def as_image(found: Image, job_id: str, part: Part) -> HttpResponse:
    """An image, to be shown in a page."""
    return _apart(found.data, found.kind, "inline", f"{job_id}-{part}.{found.kind.removeprefix('image/')}")


def _apart(data: bytes, kind: str, how: str, name: str) -> HttpResponse:
    answer = HttpResponse(data, content_type=kind)
    answer["Content-Disposition"] = f'{how}; filename="job-{name}"'
    answer["Content-Security-Policy"] = ALONE
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Cross-Origin-Resource-Policy"] = "same-origin"
    return answer
