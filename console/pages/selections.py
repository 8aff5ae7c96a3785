"""Pages of selections: those that there are, one of them as it goes on, and what came of each of its jobs."""

from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from console.accounts.acts import Act
from console.accounts.rights import may
from console.bounds import number
from console.selections import kinds, retention, services
from console.selections.models import Selection, SelectionItem
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program.errors import InvalidRequest
from signalbox.program.words import counted

_SIZE: Final = 100
_OUTCOMES: Final = {"": "all", SelectionItem.REFUSED: "refused", SelectionItem.DONE: "done", "left": "not begun"}


@sees(Act.JOBS_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Those that are kept, newest first."""
    found = Selection.objects.exclude(state=Selection.CHOSEN)[: retention.MOST_KEPT]
    context = {"selections": [(one, kinds.kind_of(one.act)) for one in found], "kept_days": retention.KEPT.days}
    return render(request, "selections/index.html", context | {"most_kept": retention.MOST_KEPT})


@require_POST
def choose(request: HttpRequest) -> HttpResponse:
    """Write down which jobs are chosen, ticked ones or all that match, and show them before anything is done."""
    is_all = request.POST.get("all") == "1"
    chosen = services.freeze(
        actor_of(request),
        request.POST.get("act", ""),
        ids=request.POST.getlist("job"),
        filter_text=request.POST.get("q", "").strip() if is_all else None,
        options={"priority": request.POST["priority"]} if request.POST.get("priority") else None,
        is_started=False,
    )
    return redirect("selection", selection_id=chosen.pk)


@sees(Act.JOBS_VIEW)
@require_safe
def detail(request: HttpRequest, selection_id: str) -> HttpResponse:
    """What is to be done, or how far it is, and what came of each job. ``part``: only what changes."""
    chosen = services.find(selection_id)
    kind = kinds.kind_of(chosen.act)
    context: dict[str, Any] = {
        "selection": chosen,
        "kind": kind,
        "what": f"{kind.verb} {counted(chosen.total, 'job')}",
        "may_act": may(actor_of(request), kind.right),
    }
    if chosen.state == Selection.CHOSEN:
        context |= {"samples": services.samples(chosen), "states": services.states(chosen)}
    else:
        context |= _items(request, chosen)
    return render(request, f"selections/{'progress' if 'part' in request.GET else 'detail'}.html", context)


@require_POST
def start(request: HttpRequest, selection_id: str) -> HttpResponse:
    """Begin."""
    services.start(actor_of(request), selection_id, reason=request.POST.get("reason", ""))
    return redirect("selection", selection_id=selection_id)


@require_POST
def stop(request: HttpRequest, selection_id: str) -> HttpResponse:
    """Leave what was not begun."""
    services.stop(actor_of(request), selection_id, reason=request.POST.get("reason", ""))
    return redirect("selection", selection_id=selection_id)


def _items(request: HttpRequest, chosen: Selection) -> dict[str, Any]:
    """A page of its jobs, with what came of each."""
    outcome = request.GET.get("outcome", SelectionItem.REFUSED if chosen.failed else "")
    if outcome not in _OUTCOMES:
        raise InvalidRequest(f"outcome: is one of {', '.join(filter(None, _OUTCOMES))}, or empty.")
    after = number(request.GET.get("after") or "0", "after")
    items = chosen.items.filter(pk__gt=after).order_by("pk")
    if outcome:
        items = items.filter(outcome="" if outcome == "left" else outcome)
    rows = list(items[: _SIZE + 1])
    numbers = (chosen.total, chosen.failed, chosen.done, chosen.left)
    tabs = [
        {"name": name, "value": value, "count": count, "is_current": value == outcome}
        for (value, name), count in zip(_OUTCOMES.items(), numbers, strict=True)
    ]
    more = f"?outcome={outcome}&after={rows[_SIZE - 1].pk}" if len(rows) > _SIZE else ""
    return {"items": rows[:_SIZE], "tabs": tabs, "older": more}
