"""What operators ask of the memory of devices: pin, load and evict by hand."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from console import bounds
from console.fleet import services, steering
from console.pages import flash
from console.web.middleware import actor_of
from signalbox.program.errors import InvalidRequest


@require_POST
def pin(request: HttpRequest, name: str) -> HttpResponse:
    """Pin a version on a host, or on all; or no longer."""
    is_pinned = request.POST.get("pinned") == "1"
    host = request.POST.get("host", "")
    desired = steering.pin(
        actor_of(request),
        name,
        is_pinned=is_pinned,
        version=_version(request),
        on=(host,) if host else (),
        reason=request.POST.get("reason", ""),
    )
    flash.say(
        request, f"{name} is {'pinned' if is_pinned else 'not pinned any more'}", services.why_unpublished(desired)
    )
    return redirect("model", name=name)


@require_POST
def load(request: HttpRequest, name: str) -> HttpResponse:
    """Load a version on a host before a job needs it."""
    host = request.POST.get("host", "")
    if not host:
        raise InvalidRequest("Choose a host: a load by hand is for one.")
    desired = steering.load(
        actor_of(request), name, on=host, version=_version(request), reason=request.POST.get("reason", "")
    )
    flash.say(request, f"{name} is to be loaded on {host}", services.why_unpublished(desired))
    return redirect("model", name=name)


@require_POST
def evict(request: HttpRequest, worker: str) -> HttpResponse:
    """Ask a worker to have a version leave its device's memory."""
    model = request.POST.get("model", "")
    steering.evict(actor_of(request), worker, model, _version(request), reason=request.POST.get("reason", ""))
    flash.say(request, f"{worker} is asked to evict {model}", "")
    return redirect("worker", worker=worker)


def _version(request: HttpRequest) -> int:
    """The version that is asked for, 0 = the one that requests get. Raises :class:`InvalidRequest`."""
    return bounds.number(request.POST.get("version") or "0", "version")
