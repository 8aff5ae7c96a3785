"""The audit page. The URL is the view."""

from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.accounts.acts import Act
from console.audit import listing, query
from console.audit.words import ACTS
from console.bounds import number
from console.web.guards import sees
from signalbox.program.errors import InvalidRequest

_SPANS: Final = {"": "any time", "<1h": "last hour", "<1d": "last day", "<7d": "last week", "<30d": "last 30 days"}


@sees(Act.AUDIT_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Newest first. Beside the words of the filter, three that are chosen from lists: act, result, time."""
    given = {name: request.GET.get(name, "").strip() for name in ("q", "act", "result", "at")}
    before = request.GET.get("before", "")
    context: dict[str, Any] = {
        "given": given,
        "q": given["q"],
        "qualifiers": query.QUALIFIERS,
        "acts": [(act.value, words) for act, words in ACTS.items()],
        "results": query.RESULTS,
        "spans": _SPANS.items(),
        "text": words_of(given),
    }
    try:
        asked = query.parse(context["text"], timezone.now())
        page = listing.page(asked, before=number(before, "before") if before else 0)
    except InvalidRequest as error:
        return render(request, "audit/index.html", context | {"error": error.public_message}, status=400)
    context |= {
        "entries": page.entries,
        "searched_to": page.searched_to,
        "older": page.older and f"?{urlencode({**given, 'before': page.older})}",
        "newest": before and f"?{urlencode(given)}",
    }
    return render(request, "audit/index.html", context)


def words_of(given: dict[str, str]) -> str:
    """The whole filter in its grammar: the words, and what was chosen from lists."""
    chosen = (f"{name}:{given[name]}" for name in ("act", "result", "at") if given.get(name))
    return " ".join(filter(None, (given["q"], *chosen)))
