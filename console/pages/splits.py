"""Acts on splits, on a model's page, and what they and other acts on versions would move."""

from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console import bounds
from console.accounts.acts import Act
from console.catalog import lookup, publishing
from console.pages import flash
from console.pages.formats import percent
from console.splits import acts, preview
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program.errors import InvalidRequest

_SPLIT_FIELDS: Final = ("target", "candidate", "percent", "shadow", "tolerance", "header")


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


@require_safe
@sees(Act.MODELS_ROLLOUT)
def move(request: HttpRequest, name: str) -> HttpResponse:
    """What an act would move, with the form that does it."""
    model = lookup.find(name)
    what, text = request.GET.get("what", ""), request.GET.get("version", "").strip()
    number = bounds.number(text, "version") if text else None
    label, target = (request.GET.get(field, "").strip() for field in ("label", "target"))
    fields: dict[str, Any] = {"version": "" if number is None else number}
    if what == preview.DEFAULT:
        verb = "Make default" if number is None or number >= (model.serving_version or 0) else "Roll back"
        title = "Always serve the highest version" if number is None else f"{verb}: version {number}"
        route, found = "model-default", preview.of_default(model, number)
    elif what == preview.LABEL:
        verb = "Remove label" if number is None else "Set label"
        title = f"{verb} {label}" if number is None else f"{verb} {label}: version {number}"
        route, found = "model-label", preview.of_label(model, label, number)
        fields["label"] = label
    elif what == preview.SPLIT:
        part = _number(request.GET.get("percent") or "0", "percent") / 100
        candidate = bounds.number(request.GET.get("candidate", ""), "candidate")
        verb, route = "Split", "model-split"
        title = f"Version {candidate} for {percent(part)} of the callers"
        found = preview.of_share(model, target, candidate, part)
        fields = {field: request.GET.get(field, "") for field in _SPLIT_FIELDS}
    elif what in {preview.PROMOTE, preview.ROLL_BACK}:
        is_promotion = what == preview.PROMOTE
        found, fields = preview.of_split(model, target, is_promotion=is_promotion), {"target": target}
        route, verb = ("promote-split", "Promote") if is_promotion else ("roll-back-split", "Roll back")
        title = f"{verb}: version {found.new}"
    else:
        raise InvalidRequest("what: default, label, split, promote or roll-back.")
    context = {
        "model": model,
        "preview": found,
        "verb": verb,
        "title": title,
        "action": reverse(route, args=[name]),
        "fields": fields,
    }
    return render(request, "models/move.html", context)


def _target(request: HttpRequest) -> str:
    return request.POST.get("target", "").strip()


def _number(text: str, name: str) -> float:
    try:
        return float(text[:20])
    except ValueError:
        raise InvalidRequest(f"{name}: is a number.") from None


def _done(request: HttpRequest, name: str, done: str) -> HttpResponse:
    flash.say(request, done, publishing.why_unpublished(name))
    return redirect("model", name=name)
