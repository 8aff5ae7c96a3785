"""Try it: calling a model from its page."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from console import bounds
from console.accounts.acts import Act
from console.accounts.models import User
from console.catalog import lookup
from console.catalog.models import ModelVersion, ServedModel
from console.jobs import fresh, standing, timeline
from console.jobs import services as jobs
from console.keys import passing
from console.trials import inputs, services, snippets
from console.trials.models import Trial
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program.errors import InvalidRequest, NotFound

_PREFIX = "input."
"""Of the names of the fields that are inputs."""


@require_http_methods(["GET", "POST"])
@sees(Act.MODELS_TRY)
def try_model(request: HttpRequest, name: str) -> HttpResponse:
    """The form of a version's signature; sent, it calls the model."""
    model = lookup.find(name)
    if request.method != "POST":
        return _page(request, model, request.GET.get("version", ""), request.GET.get("signature", ""))
    given = {key[len(_PREFIX) :]: str(text) for key, text in request.POST.items() if key.startswith(_PREFIX)}
    number, signature = request.POST.get("version", ""), request.POST.get("signature", "")
    try:
        trial = services.send(actor_of(request), name, bounds.number(number, "version"), signature, given)
    except InvalidRequest as error:
        return _page(request, model, number, signature, given, error=error.public_message)
    return redirect("trial", name=name, trial_id=trial.pk)


@require_safe
@sees(Act.MODELS_TRY)
def trial(request: HttpRequest, name: str, trial_id: str) -> HttpResponse:
    """What came of a call, with the form for another one."""
    model = lookup.find(name)
    assert isinstance(request.user, User)
    found = services.find(request.user, name, trial_id)
    return _page(request, model, str(found.version), found.signature, found.inputs, trial=found)


def _page(
    request: HttpRequest,
    model: ServedModel,
    number: str,
    signature: str,
    given: dict[str, str] | None = None,
    **more: Any,
) -> HttpResponse:
    versions = services.offered(model)
    version = _chosen(versions, number, model.serving_version)
    offered = services.signatures(version) if version is not None else {}
    name = signature if signature in offered else next(iter(offered), "")
    context: dict[str, Any] = {
        "model": model,
        "versions": versions,
        "version": version,
        "signatures": offered,
        "signature": name,
        "lifetime": passing.LIFETIME.total_seconds(),
        **more,
    }
    if version is not None and name:
        context["fields"] = inputs.fields(offered[name], given)
        values = {field.name: field.value for field in context["fields"]}
        try:
            body = inputs.request(name, offered[name], values)
        except InvalidRequest:
            pass
        else:
            where = (settings.CONSOLE.front_url.rstrip("/"), model.name, version.number, body)
            context |= {"curl": snippets.curl(*where), "python": snippets.python(*where)}
    tried = more.get("trial")
    if isinstance(tried, Trial) and tried.job_id:
        context |= _timeline(tried.job_id)
    return render(request, "models/try.html", context, status=400 if "error" in more else 200)


def _chosen(versions: list[ModelVersion], number: str, default: int | None) -> ModelVersion | None:
    by_number = {str(one.number): one for one in versions}
    return by_number.get(number) or by_number.get(str(default)) or next(iter(versions), None)


def _timeline(job_id: str) -> dict[str, Any]:
    try:
        # Its row may be a second behind.
        job = fresh.find(job_id) or jobs.find(job_id)
    except NotFound:
        return {}
    return {
        "steps": timeline.steps(job, jobs.events(job)),
        "lines": timeline.lines(standing.so_far(job)),
    }
