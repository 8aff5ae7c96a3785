"""The audit page."""

from urllib.parse import urlencode

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.accounts.acts import Act
from console.audit.models import AuditEntry
from console.bounds import number
from console.web.guards import sees

_SIZE = 50


@sees(Act.AUDIT_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Newest first, filtered by actor, act, target and result."""
    given = {name: request.GET.get(name, "").strip() for name in ("actor", "act", "target", "result")}
    before = request.GET.get("before", "")
    condition = Q()
    if given["actor"]:
        condition &= Q(actor_name__icontains=given["actor"])
    if given["act"] in set(Act):
        condition &= Q(act=given["act"])
    if given["target"]:
        condition &= Q(target__icontains=given["target"])
    if given["result"]:
        condition &= Q(result=given["result"])
    if before:
        condition &= Q(pk__lt=number(before, "before"))
    rows = list(AuditEntry.objects.filter(condition)[: _SIZE + 1])
    older = f"?{urlencode({**given, 'before': rows[_SIZE - 1].pk})}" if len(rows) > _SIZE else None
    context = {
        "entries": rows[:_SIZE],
        "given": given,
        "acts": [act.value for act in Act if not act.is_view],
        "older": older,
        "newest": before and f"?{urlencode(given)}",
    }
    return render(request, "audit/index.html", context)
