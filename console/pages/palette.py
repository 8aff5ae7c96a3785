"""What the command palette asks."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from console.accounts.acts import Act
from console.palette import search
from console.web.guards import sees
from console.web.middleware import actor_of


@sees(Act.SYSTEM_VIEW)
@require_safe
def find(request: HttpRequest) -> HttpResponse:
    """Lines for a text, as JSON."""
    found = search.find(actor_of(request), request.GET.get("q", ""))
    return JsonResponse({"items": [item._asdict() for item in found]})
