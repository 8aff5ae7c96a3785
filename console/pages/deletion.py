"""Acts that delete models and versions, and the page of what can be brought back."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console import bounds
from console.accounts.acts import Act
from console.catalog import publishing
from console.deletion import listing, versions, wholemodels
from console.pages import flash
from console.pages.sudo import asks_password
from console.web.guards import sees
from console.web.middleware import actor_of


@sees(Act.MODELS_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """What was deleted and can be brought back."""
    return render(request, "models/deleted.html", {"undoable": listing.undoable(only=actor_of(request).only_models)})


@require_POST
@sees(Act.MODELS_DELETE)
@asks_password
def delete_version(request: HttpRequest, name: str, number: str) -> HttpResponse:
    """Delete one version."""
    reason = request.POST.get("reason", "")
    versions.delete_version(actor_of(request), name, bounds.number(number, "version"), reason=reason)
    undo = reverse("undo-version", args=[name, number])
    flash.say(request, f"Version {number} of {name} is deleted", publishing.why_unpublished(name), undo=undo)
    return redirect("model", name=name)


@require_POST
@sees(Act.MODELS_DELETE)
@asks_password
def undo_version(request: HttpRequest, name: str, number: str) -> HttpResponse:
    """Bring a version back."""
    versions.undo_version(actor_of(request), name, bounds.number(number, "version"))
    flash.say(request, f"Version {number} of {name} is back", publishing.why_unpublished(name))
    return redirect("model", name=name)


@require_POST
@sees(Act.MODELS_DELETE)
@asks_password
def delete_model(request: HttpRequest, name: str) -> HttpResponse:
    """Delete a model with all of its versions."""
    wholemodels.delete_model(actor_of(request), name, reason=request.POST.get("reason", ""))
    undo = reverse("undo-model", args=[name])
    flash.say(request, f"{name} is deleted", publishing.why_unpublished(name), undo=undo)
    return redirect("deleted")


@require_POST
@sees(Act.MODELS_DELETE)
@asks_password
def undo_model(request: HttpRequest, name: str) -> HttpResponse:
    """Bring a model back."""
    wholemodels.undo_model(actor_of(request), name)
    flash.say(request, f"{name} is back", publishing.why_unpublished(name))
    return redirect("model", name=name)
