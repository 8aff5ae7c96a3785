"""The page of dead letters: those that NATS holds now, and no other failed jobs."""

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.accounts.acts import Act
from console.bounds import MOST_NUMBER, number
from console.jobs import deadletters
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.jobs.deadletters import Page
from signalbox.program.errors import Misconfigured, Unavailable

_SIZE: Final = 50


@sees(Act.JOBS_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """A page of them, the oldest first; without NATS it says that they are not known."""
    after = min(number(request.GET.get("after") or "0", "after"), MOST_NUMBER - 1)
    page, why_unknown = Page([], None), ""
    try:
        page = deadletters.page(model="", after=after, size=_SIZE, only=actor_of(request).only_models)
    except (Unavailable, Misconfigured) as error:
        why_unknown = error.public_message
    context = {
        "letters": page.letters,
        "why_unknown": why_unknown,
        "next": page.after and f"?after={page.after}",
        "first": "?" if after else "",
    }
    return render(request, "jobs/dead_letters.html", context)
