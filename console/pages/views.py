"""Saved views of lists."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from console.bounds import number
from console.views import services
from console.web.middleware import actor_of


@require_POST
def save(request: HttpRequest) -> HttpResponse:
    """Keep the list's filter under a name; then the list with it."""
    given = {name: request.POST.get(name, "") for name in ("of_list", "name", "query")}
    view = services.save(actor_of(request), **given, is_shared=request.POST.get("shared") == "1")
    messages.success(request, f"The view “{view.name}” is saved{' for everybody' if view.is_shared else ''}.")
    return redirect(view.href)


@require_POST
def remove(request: HttpRequest, view_id: str) -> HttpResponse:
    """Remove a view; then its list."""
    view = services.remove(actor_of(request), number(view_id, "view"))
    messages.success(request, f"The view “{view.name}” is removed.")
    return redirect(f"/{view.of_list}")
