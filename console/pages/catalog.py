"""Pages of models."""

from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console import bounds
from console.accounts.acts import Act
from console.accounts.rights import authorize
from console.audit.models import AuditEntry
from console.bounds import MOST_NUMBER
from console.catalog import (
    approval,
    files,
    joining,
    lookup,
    modelsettings,
    policy,
    publishing,
    registration,
    selection,
    targets,
    triton,
    uploads,
)
from console.catalog.models import ServedModel
from console.deletion import listing as deletion
from console.feed.running import running
from console.fleet import capacity, hosts, listing, replicas, serving, steering, workers
from console.fleet import services as fleet
from console.jobs.models import Job
from console.outbox import services as outbox
from console.pages import figures, flash
from console.pages.forms import refusals_in
from console.pages.sudo import asks_password
from console.repositories.models import Repository
from console.splits.figures import compare
from console.splits.shadow import report
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program import words
from signalbox.program.errors import InvalidRequest, SignalboxError
from signalbox.wire.names import Bucket

JOINED: Final = "Join requests of several callers into one run"

LIMIT_LABELS: Final = {
    "autoscale": "Autoscale",
    "autoscale_min": "Least replicas (min)",
    "autoscale_max": "Most replicas (max)",
    "queue_backlog": "Backlog of a replica (queue[backlog])",
    "target_wait_s": "Target wait (s)",
    "scale_tolerance": "Tolerance",
    "scale_up_window_s": "Scale-up window (s)",
    "scale_down_window_s": "Scale-down window (s)",
    "scale_to_zero_grace_s": "Grace at zero (s)",
    "scale_up_activation": "Activation replicas",
    "rows_independent": JOINED,
    "max_batch_size": "Largest batch",
    "max_batch_delay_ms": "Batch delay (ms)",
    "max_delivery": "Attempts",
    "timeout_s": "Run timeout (s)",
    "deadline_s": "Deadline (s)",
    "sync_wait_s": "Synchronous wait (s)",
    "max_queue": "Longest queue",
    "max_payload_bytes": "Largest payload (bytes)",
}
_KINDS: Final = {policy.ALL: "All", policy.LATEST: "The latest", policy.SPECIFIC: "Only these"}
_FILES_SHOWN: Final = 500
_MOST_ASKED: Final = 100
"""Characters of a word that models are searched by."""


class DefaultField(forms.TypedChoiceField):
    """Which version requests without one get once the new one is there."""

    def __init__(self) -> None:
        super().__init__(
            choices=[("new", "The new version"), ("old", "The version that is the default now")],
            coerce=lambda choice: choice == "new",
            initial="new",
            widget=forms.RadioSelect,
            label="Requests that name no version then get",
            help_text="A model's first version is its default either way.",
        )

    def name_the_old(self, version: int) -> None:
        """Say which version is the default now, where the model is known."""
        self.choices = [("new", "The new version"), ("old", f"Version {version}, the default now")]


class JoinedField(forms.BooleanField):
    """Whether the rows of a new model are independent: the settings given for it."""

    def __init__(self) -> None:
        super().__init__(
            required=False,
            label=JOINED,
            help_text="Of a new model, and only if each row's answer depends on that row alone. A worker tries it.",
        )


class RegisterForm(forms.Form):
    """Point at a path."""

    name = forms.CharField(max_length=100, help_text="Letters, digits, “.”, “_” and “-”.")
    path = forms.CharField(
        max_length=1000,
        help_text="Folder with VERSION/saved_model.pb in it, or one version's folder, as workers see it.",
    )
    description = forms.CharField(max_length=300, required=False)
    rows_independent = JoinedField()
    is_default = DefaultField()


class UploadForm(forms.Form):
    """Bring an archive."""

    name = forms.CharField(max_length=100, help_text="A new name, or a model that gets a new version.")
    archive = forms.FileField(help_text="A .tar, .tar.gz or .zip of one SavedModel.")
    number = forms.IntegerField(
        label="Version", required=False, min_value=1, max_value=MOST_NUMBER, help_text="Empty: the next one."
    )
    description = forms.CharField(max_length=300, required=False)
    rows_independent = JoinedField()
    is_default = DefaultField()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.auto_id = "upload_%s"  # it stands on one page with RegisterForm, whose fields have the same names


class SettingsForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic when it runs
    """Replicas, batching and limits."""

    class Meta:
        """Exactly the fields the service takes."""

        model = ServedModel
        fields = tuple(name for name in modelsettings.SETTINGS if name not in modelsettings.AUTOSCALE)
        labels = LIMIT_LABELS


class AutoscaleForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic when it runs
    """How replicas follow the load."""

    class Meta:
        """Those settings alone."""

        model = ServedModel
        fields = modelsettings.AUTOSCALE
        labels = LIMIT_LABELS


@sees(Act.MODELS_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """A page of the models that match. The URL is the view."""
    asked = {name: request.GET.get(name, "").strip()[:_MOST_ASKED] for name in ("q", "repository", "state")}
    after, only = request.GET.get("after", ""), actor_of(request).only_models
    context: dict[str, Any] = {
        "asked": asked,
        "is_filtered": any(asked.values()),
        "states": listing.STATES.items(),
        "repositories": Repository.objects.values_list("name", flat=True),
    }
    try:
        page = listing.page(q=asked["q"], repository=asked["repository"], state=asked["state"], after=after, only=only)
    except InvalidRequest as error:
        return render(request, "models/index.html", context | {"error": error.public_message}, status=400)
    found = (
        listing.count(q=asked["q"], repository=asked["repository"], only=only)
        if not asked["state"]
        else len(page.models)
    )
    context |= {
        "page": page,
        "calls": figures.of_models(page.models),
        "first": after and f"?{urlencode(asked)}",
        "next": page.after and f"?{urlencode(asked | {'after': page.after})}",
        "note": "" if asked["state"] else words.counted(found, "model"),
    }
    return render(request, "models/index.html", context)


@require_http_methods(["GET", "POST"])
@sees(Act.MODELS_REGISTER)
@asks_password
def register(request: HttpRequest) -> HttpResponse:
    """Register the versions below a path."""
    form = RegisterForm(request.POST or None, initial=_given(request))
    if form.is_valid():
        with refusals_in(form):
            name = registration.register(actor_of(request), **registration.with_joining(form.cleaned_data)).name
            return _done(request, name, f"{name} is registered", _default_now(name))
    return _add(request, register_form=form, is_bad=form.is_bound)


@require_http_methods(["GET", "POST"])
@sees(Act.MODELS_REGISTER)
@asks_password
def upload(request: HttpRequest) -> HttpResponse:
    """Add a version from an archive."""
    if request.method == "GET":
        return _add(request)
    form = UploadForm(request.POST, request.FILES)
    if form.is_valid():
        with refusals_in(form):
            name = form.cleaned_data["name"]
            version = uploads.upload(actor_of(request), **registration.with_joining(form.cleaned_data))
            done = f"Version {version.number} of {name} is registered"
            return _done(request, name, done, _default_now(name))
    return _add(request, upload_form=form, is_bad=True)


@sees(Act.MODELS_VIEW)
@require_safe
def detail(request: HttpRequest, name: str) -> HttpResponse:
    """One model: versions, labels, signatures, what has been told, history."""
    model = lookup.find(name)
    why_unpublished = publishing.unpublished().get(name, "")
    spans = figures.spans(name)
    context = {
        "spans": spans,
        "why": next((span for span in spans if span.rows), None),
        "model": model,
        "condition": serving.condition(model, why_unpublished),
        "joining": joining.state_of(model),
        "config": triton.state_of(model),
        "versions": model.versions.prefetch_related("labels"),
        "labels": model.labels.select_related("version"),
        "splits": [(split, compare(split), report(split.shadowed)) for split in model.splits.all()],
        "unserved": model.unserved(),
        "kinds": _KINDS.items(),
        "posting": outbox.latest(Bucket.MODELS, outbox.model_key(name)),
        "why_unpublished": why_unpublished,
        "desired": fleet.of_model(name),
        "prefetch": fleet.prefetch_of(name),
        "jobs": Job.objects.filter(model=name).order_by("-created_at")[:8],
        "history": AuditEntry.objects.filter(target_kind="model", target=name)[:30],
        "undoable": deletion.undoable(name),
        "undo_s": settings.CONSOLE.deleted_kept_s,
        "pin": steering.pin_of(name),
        "scaling": capacity.of_model(model),
        "replicas": (placed := replicas.of(name)),
        "replica_warnings": replicas.warnings(name, placed),
        "hosts": sorted({hosts.id_of(row.host) for row in workers.present().values() if row.state != "lost"}),
        "pending": list(feed.view.rollouts.pending(name)) if (feed := running.feed) else [],
        "uncounted": feed.view.rollouts.uncounted(name) if feed is not None else (),
    }
    return render(request, "models/detail.html", context)


@sees(Act.MODELS_VIEW)
@require_safe
def version(request: HttpRequest, name: str, number: str) -> HttpResponse:
    """One version: its files and its digest."""
    version = lookup.find_version(name, number)
    context: dict[str, Any] = {"model": version.model, "version": version, "digest": version.digest}
    try:
        found = files.of(version)
        context |= {"found": found, "files": found.files[:_FILES_SHOWN], "digest": found.digest}
    except SignalboxError as error:
        context["error"] = error.public_message
    return render(request, "models/version.html", context)


@require_http_methods(["GET", "POST"])
def change_settings(request: HttpRequest, name: str) -> HttpResponse:
    """Change replicas, batching and limits."""
    return _settings(request, name, SettingsForm, "Settings")


@require_http_methods(["GET", "POST"])
def change_autoscale(request: HttpRequest, name: str) -> HttpResponse:
    """Change how replicas follow the load."""
    return _settings(request, name, AutoscaleForm, "Autoscaling")


def _settings(request: HttpRequest, name: str, form_type: type[forms.ModelForm], what: str) -> HttpResponse:  # type: ignore[type-arg]  # not generic when it runs
    actor = actor_of(request)
    authorize(actor, Act.MODELS_SETTINGS, place=("model", name))
    model = lookup.find(name)
    form = form_type(request.POST or None, instance=model)
    if form.is_valid():
        changes = {field: form.cleaned_data[field] for field in form.changed_data}
        with refusals_in(form):
            if changes:
                modelsettings.change_settings(actor, name, changes)
                return _done(request, name, "Saved")
            messages.success(request, "Nothing changed.")
            return redirect("model", name=name)
    context = {"form": form, "model": model, "what": what}
    return render(request, "models/settings.html", context, status=400 if form.is_bound else 200)


@require_POST
def set_enabled(request: HttpRequest, name: str) -> HttpResponse:
    """Enable or disable."""
    is_enabled = request.POST.get("enabled") == "1"
    modelsettings.set_enabled(actor_of(request), name, is_enabled=is_enabled, reason=request.POST.get("reason", ""))
    return _done(request, name, f"{name} is {'enabled' if is_enabled else 'disabled'}")


@require_POST
def set_replicas(request: HttpRequest, name: str) -> HttpResponse:
    """Change the number of replicas alone."""
    modelsettings.change_settings(actor_of(request), name, {"replicas": _number(request, "replicas")})
    return _done(request, name, "Saved")


@require_POST
def set_default(request: HttpRequest, name: str) -> HttpResponse:
    """Choose the default version."""
    targets.set_default(actor_of(request), name, _number(request, "version"), reason=request.POST.get("reason", ""))
    return _done(request, name, "The default version is changed", _default_now(name))


@require_POST
def set_policy(request: HttpRequest, name: str) -> HttpResponse:
    """Choose which versions are served."""
    given: dict[str, Any] = {"kind": request.POST.get("kind", "")}
    if given["kind"] == policy.LATEST:
        given["count"] = _number(request, "count")
    if given["kind"] == policy.SPECIFIC:
        texts = request.POST.get("versions", "").replace(",", " ").split()
        given["versions"] = [bounds.number(text, "versions") for text in texts]
    selection.set_policy(actor_of(request), name, given)
    return _done(request, name, "The policy is changed", _default_now(name))


@require_POST
def set_label(request: HttpRequest, name: str) -> HttpResponse:
    """Point a label at a version, or take it away."""
    label = request.POST.get("label", "").strip()
    number = _number(request, "version")
    targets.set_label(actor_of(request), name, label, number, reason=request.POST.get("reason", ""))
    return _done(request, name, f"Label {label} is changed")


@require_POST
def approve(request: HttpRequest, name: str) -> HttpResponse:
    """Approve the operations of a version that another operator added, so that it serves."""
    number = _number(request, "version")
    approval.approve(actor_of(request), name, number or 0, reason=request.POST.get("reason", ""))
    return _done(request, name, f"Version {number} of {name} is approved", _default_now(name))


@require_POST
def pause(request: HttpRequest, name: str) -> HttpResponse:
    """Pause or resume the model's queue."""
    is_paused = request.POST.get("paused") == "1"
    desired = fleet.pause(actor_of(request), name, is_paused=is_paused, reason=request.POST.get("reason", ""))
    done = f"{name} is {'paused' if is_paused else 'resumed'}"
    flash.say(request, done, fleet.why_unpublished(desired))
    return redirect("model", name=name)


def _done(request: HttpRequest, name: str, done: str, note: str = "") -> HttpResponse:
    """The model's page, with what :func:`console.pages.flash.say` says of the newest decision on it."""
    flash.say(request, done, publishing.why_unpublished(name), note)
    return redirect("model", name=name)


def _number(request: HttpRequest, field: str) -> int | None:
    """None where nothing is given. Raises :class:`InvalidRequest` for what is no number."""
    text = request.POST.get(field, "").strip()
    return bounds.number(text, field) if text else None


def _default_now(name: str) -> str:
    model = lookup.find(name)
    version = model.serving_version
    if version is None:
        return "It does not serve before another person has approved its operations."
    return f"Requests that name no version get version {version} once it is ready."


def _given(request: HttpRequest) -> dict[str, str]:
    """What a link to the form says, or was sent; a default that was chosen for that model by hand stays proposed."""
    name = request.GET.get("name") or request.POST.get("name", "")
    is_pinned = ServedModel.objects.filter(name=name).exclude(default_version=None).exists()
    return {"name": name, "is_default": "old" if is_pinned else "new"}


def _add(request: HttpRequest, *, is_bad: bool = False, **given: Any) -> HttpResponse:
    initial = _given(request)
    context = {
        "register_form": RegisterForm(initial=initial),
        "upload_form": UploadForm(initial=initial),
        **given,
    }
    model = ServedModel.objects.filter(name=initial["name"]).first()
    for form in (context["register_form"], context["upload_form"]):
        choice = form.fields["is_default"]
        if model is not None and model.serving_version and isinstance(choice, DefaultField):
            choice.name_the_old(model.serving_version)
    return render(request, "models/add.html", context, status=400 if is_bad else 200)
