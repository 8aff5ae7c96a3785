"""Pages of a job's input and output: what was read, its images, and the whole as a file."""

from datetime import timedelta
from typing import Any

from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.accounts.acts import Act
from console.accounts.sessions import CONFIRMED_S
from console.pages.sudo import asks_password
from console.payloads import answers, downloads, previews, services, snippets, values
from console.payloads.downloads import Form
from console.payloads.services import Reading
from console.payloads.stored import Part
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program.errors import InvalidRequest, NotFound


@require_safe
def show(request: HttpRequest, job_id: str, part: str) -> HttpResponse:
    """The input or output of a job; as a file where ``download`` names a form."""
    # Before the password is asked for: it would not help.
    services.require(actor_of(request), job_id, Part(part))
    return _show(request, job_id, part)


@asks_password
def _show(request: HttpRequest, job_id: str, part: str) -> HttpResponse:
    form = request.GET.get("download", "")
    if form and form not in set(Form):
        raise InvalidRequest(f"download: is one of {', '.join(Form)}.")
    with services.turn():
        found = services.read(actor_of(request), job_id, Part(part), what=form)
        return answers.as_file(found, Form(form)) if form else _page(request, found)


@sees(Act.JOBS_PAYLOAD)
@require_safe
def image(request: HttpRequest, job_id: str, part: str, place: str) -> HttpResponse:
    """An image of a page that was shown lately: it belongs to that reading, and is in the audit with it."""
    try:
        signing.loads(
            request.GET.get("of", ""), salt=_salt(request, job_id, part), max_age=timedelta(seconds=CONFIRMED_S)
        )
    except signing.BadSignature as error:
        raise NotFound("Its page was not shown to you lately: open that again.") from error
    with services.turn():
        found = previews.image(services.decoded(services.find(job_id, Part(part))), place)
    if found is None:
        raise NotFound("There is no image, or no longer.")
    return answers.as_image(found, job_id, Part(part))


def _page(request: HttpRequest, found: Reading) -> HttpResponse:
    job_id, part = found.request.job_id, found.part
    tensors = found.tensors or []
    is_small = part is Part.INPUT and found.tensors is not None and found.size_bytes <= snippets.MOST_BYTES
    count = values.count(tensors)
    context: dict[str, Any] = {
        "found": found,
        "is_there": found.tensors is not None,
        "tensors": previews.of(tensors),
        "left_out": max(0, len(tensors) - previews.MOST_TENSORS),
        "count": count,
        "is_json": count <= downloads.MOST_ELEMENTS,
        "is_npz": all(tensor.dtype != "string" for tensor in tensors),
        "again": snippets.of(found.request, downloads.named(tensors) if is_small else None),
        "of": signing.dumps("", salt=_salt(request, job_id, part)),
    }
    return render(request, "payloads/show.html", context)


def _salt(request: HttpRequest, job_id: str, part: str) -> str:
    # In the salt the session's key is proven and not shown.
    return f"console.pages.payloads:{request.session.session_key}:{job_id}:{part}"
