"""The page of a device: who holds it, how it is used, what is in its memory, and the log of its lease."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from console.accounts.acts import Act
from console.audit.models import AuditEntry
from console.fleet import devices, residents, services
from console.pages import flash
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program.errors import Unavailable


@sees(Act.SYSTEM_VIEW)
@require_safe
def detail(request: HttpRequest, gpu: str) -> HttpResponse:
    """One device."""
    lane = devices.find(gpu)
    here = devices.workers_of(gpu)
    holder = next((row for row in here if row.id == lane.holder), None)
    context: dict[str, Any] = {
        "lane": lane,
        "holder": holder,
        "workers": here,
        "use": devices.use(lane),
        "residents": residents.of(holder) if holder is not None else (),
        "name": lane.holder,
        "history": AuditEntry.objects.filter(target_kind="lane", target=gpu)[:30],
    }
    try:
        context["holds"] = devices.holds(gpu)
    except Unavailable as error:
        context["why_no_log"] = error.public_message
    return render(request, "workers/device.html", context)


@require_POST
def release(request: HttpRequest, gpu: str) -> HttpResponse:
    """Ask the holder of a device to hand it over."""
    services.ask_release(actor_of(request), gpu, reason=request.POST.get("reason", ""))
    flash.done(request, "Its holder is asked to hand it over. It ends the batch that runs, then hands over.")
    return redirect("device", gpu=gpu)
