"""Buttons of the live board that change something."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from console.accounts.middleware import actor_of
from console.fleet import services


@require_POST
def drain(request: HttpRequest, worker: str) -> HttpResponse:
    """Drain or resume a worker."""
    is_draining = request.POST.get("draining") == "1"
    services.drain(
        actor_of(request), worker, is_draining=is_draining, reason=request.POST.get("reason", "")
    )
    messages.success(
        request, f"{worker} is asked to {'drain' if is_draining else 'take part again'}."
    )
    return redirect("/")


@require_POST
def release(request: HttpRequest, gpu: str) -> HttpResponse:
    """Ask a lane's holder to hand over."""
    services.ask_release(actor_of(request), gpu, reason=request.POST.get("reason", ""))
    messages.success(request, f"The holder of {gpu} is asked to hand over.")
    return redirect("/")
