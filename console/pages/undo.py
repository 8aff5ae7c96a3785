"""The button Undo, of a message and in the history on a thing's page."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from console.audit.models import AuditEntry
from console.pages import flash
from console.pages.sudo import asks_password
from console.undo import services
from console.web.middleware import actor_of


@require_POST
def undo(request: HttpRequest, number: str) -> HttpResponse:
    """Take an act back, and show what it was done to."""
    entry = services.find(actor_of(request), number)
    return _asking(request, entry) if entry.act in services.CONFIRMED else _undo(request, entry)


def _undo(request: HttpRequest, entry: AuditEntry) -> HttpResponse:
    why = services.undo(actor_of(request), entry, reason=request.POST.get("reason", ""))
    if entry.target_kind == "user":
        flash.done(request, f"Taken back: what was changed of {entry.target}.")
        return redirect("users")
    flash.say(request, f"{entry.target} is as it was before", why)
    return redirect(entry.href or "audit")


_asking = asks_password(_undo)
