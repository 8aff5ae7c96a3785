"""Acts on splits, on a model's page."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from console import bounds
from console.accounts.acts import Act
from console.catalog import services as catalog
from console.pages import flash
from console.pages.formats import percent
from console.splits import acts
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program.errors import InvalidRequest


@require_POST
@sees(Act.MODELS_ROLLOUT)
def set_split(request: HttpRequest, name: str) -> HttpResponse:
    """Start one, or change its weight."""
    split = acts.set_split(
        actor_of(request),
        name,
        _target(request),
        bounds.number(request.POST.get("candidate", ""), "candidate"),
        _number(request.POST.get("percent") or "0", "percent") / 100,
        request.POST.get("header", "").strip(),
        shadow=_number(share or "0", "shadow") / 100 if (share := request.POST.get("shadow")) is not None else None,
        tolerance=_number(text, "tolerance") if (text := request.POST.get("tolerance")) else None,
        reason=request.POST.get("reason", ""),
    )
    part = percent(split.weight)
    got = f"{part} of the callers get version {split.candidate} where it is ready" if split.weight else ""
    runs = f"{percent(split.shadow)} of the batches are run on version {split.candidate} too" if split.shadow else ""
    return _done(request, name, "; ".join(filter(None, (got, runs))))


@require_POST
@sees(Act.MODELS_ROLLOUT)
def promote(request: HttpRequest, name: str) -> HttpResponse:
    """Give the candidate to all."""
    acts.promote(actor_of(request), name, _target(request), reason=request.POST.get("reason", ""))
    return _done(request, name, "The candidate is promoted")


@require_POST
@sees(Act.MODELS_ROLLOUT)
def roll_back(request: HttpRequest, name: str) -> HttpResponse:
    """Give the candidate to nobody."""
    acts.roll_back(actor_of(request), name, _target(request), reason=request.POST.get("reason", ""))
    return _done(request, name, "The split has ended")


def _target(request: HttpRequest) -> str:
    return request.POST.get("target", "").strip()


def _number(text: str, name: str) -> float:
    try:
        return float(text[:20])
    except ValueError:
        raise InvalidRequest(f"{name}: is a number.") from None


def _done(request: HttpRequest, name: str, done: str) -> HttpResponse:
    flash.say(request, done, catalog.why_unpublished(name))
    return redirect("model", name=name)
