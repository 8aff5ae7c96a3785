"""The page of what is wanted of the fleet, and what there is."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.accounts.acts import Act
from console.fleet import capacity
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program.errors import Unavailable


@sees(Act.SYSTEM_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Devices by class and models that scale: wanted, actual, and why; without NATS it says that it is not known."""
    try:
        standing = capacity.standing(actor_of(request).only_models)
    except Unavailable as error:
        return render(request, "workers/scaling.html", {"error": error.public_message})
    return render(request, "workers/scaling.html", {"standing": standing})
