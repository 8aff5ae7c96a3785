"""Pages of repositories: places that models come from."""

from typing import Any, Final

import msgspec
from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.acts import Act
from console.audit.models import AuditEntry
from console.catalog import storing, triton
from console.catalog.models import ServedModel
from console.config import UPLOADS
from console.fleet import listing
from console.keys.models import Account
from console.pages import flash
from console.pages.catalog import LIMIT_LABELS
from console.pages.forms import offer, refusals_in
from console.pages.sudo import asks_password
from console.repositories import conditions, removal, services
from console.repositories.models import MOST_REFUSED, Repository
from console.repositories.services import Terms
from console.web.guards import sees
from console.web.middleware import actor_of

_OFFERED: Final = 1000
"""Accounts that the form offers."""
_SHOWN: Final = 20
"""Models on the page of a repository."""
_LISTED: Final = 1000


class TermsForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic when it runs
    """Where a repository lies, and what counts for the models found there."""

    accounts = forms.MultipleChoiceField(
        required=False,
        widget=forms.SelectMultiple(attrs={"size": 5}),
        help_text="Whose keys may call its models, where that is chosen above.",
    )

    class Meta:
        """Terms, but for those of new models."""

        model = Repository
        fields = ("url", "description", "access", "accounts", "is_noticed", "marker", "settle_s", "grace_s")
        widgets = {"access": forms.RadioSelect}
        labels = {
            "url": "URL",
            "access": "Who may call its models",
            "is_noticed": "Take what is new there",
            "marker": "Marker file",
            "settle_s": "Settling time (s)",
            "grace_s": "Grace (s)",
        }
        help_texts = {
            "is_noticed": "The controller lists it and registers new models and versions. Off: what was taken stays.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        known = Account.objects.order_by("name", "pk")
        asked = self.initial.get("accounts") or []
        offered = [*known.filter(pk__in=asked), *known.exclude(pk__in=asked)[:_OFFERED]]
        offer(self, "accounts", [(account.pk, str(account)) for account in offered])
        self.fields["url"].help_text = f"Below one of: {', '.join(services.allowed_urls())}."

    def _post_clean(self) -> None:
        """The service judges what no field alone can."""

    def terms(self) -> dict[str, Any]:
        """What was given."""
        return {name: self.cleaned_data[name] for name in Terms.__struct_fields__ if name in self.cleaned_data}


class NewForm(TermsForm):
    """A repository to add."""

    name = forms.CharField(
        max_length=services.MOST_NAME, help_text="Letters, digits, “.”, “_” and “-”. It stays as it is."
    )
    field_order = ("name", "url")


class DefaultsForm(forms.ModelForm):  # type: ignore[type-arg]  # as above
    """Settings that new models get."""

    class Meta:
        """Exactly the fields the service takes."""

        model = ServedModel
        fields = services.DEFAULTS
        labels = LIMIT_LABELS

    def defaults(self) -> dict[str, Any]:
        """Those that are not what a model has anyway."""
        anyway = ServedModel()
        return {name: value for name, value in self.cleaned_data.items() if value != getattr(anyway, name)}


@sees(Act.MODELS_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """All repositories."""
    rows = [(one, conditions.of(one), conditions.listing_of(one)) for one in services.listed()[:_LISTED]]
    return render(request, "repositories/index.html", {"rows": rows})


@require_http_methods(["GET", "POST"])
@sees(Act.REPOSITORIES_MANAGE)
@asks_password
def add(request: HttpRequest) -> HttpResponse:
    """The form; then the repository's page."""
    form, defaults = NewForm(request.POST or None), DefaultsForm(request.POST or None)
    if form.is_valid() and defaults.is_valid():
        with refusals_in(form):
            terms = Terms(**form.terms(), defaults=defaults.defaults())
            made = services.add(actor_of(request), form.cleaned_data["name"], terms)
            messages.success(request, f"{made.name} is added. The controller lists it within some seconds.")
            return redirect("repository", name=made.name)
    context = {"form": form, "defaults_form": defaults, "is_open": defaults.is_bound and defaults.errors}
    return render(request, "repositories/add.html", context, status=400 if form.is_bound else 200)


@require_http_methods(["GET", "POST"])
@sees(Act.REPOSITORIES_MANAGE)
@asks_password
def change_settings(request: HttpRequest, name: str) -> HttpResponse:
    """Change what counts for it."""
    repository = services.find(name)
    was = services.terms_of(repository)
    form = TermsForm(request.POST or None, initial=msgspec.to_builtins(was))
    defaults = DefaultsForm(request.POST or None, instance=ServedModel(**was.defaults))
    if form.is_valid() and defaults.is_valid():
        given = {**form.terms(), "defaults": defaults.defaults()}
        changes = {field: value for field, value in given.items() if value != getattr(was, field)}
        with refusals_in(form):
            if changes:
                services.change(actor_of(request), name, changes)
            messages.success(request, "Saved." if changes else "Nothing changed.")
            return redirect("repository", name=name)
    context = {"form": form, "defaults_form": defaults, "repository": repository, "is_open": bool(was.defaults)}
    return render(request, "repositories/settings.html", context, status=400 if form.is_bound else 200)


@sees(Act.MODELS_VIEW)
@require_safe
def detail(request: HttpRequest, name: str) -> HttpResponse:
    """One repository: its last listing, what that refused, its models, its terms and its history."""
    repository = services.find(name)
    page = listing.page(repository=name, size=_SHOWN)
    count = listing.count(repository=name)
    context = {
        "repository": repository,
        "condition": conditions.of(repository),
        "listing": conditions.listing_of(repository),
        "accounts": Account.objects.filter(pk__in=repository.access_accounts),
        "left": triton.left_of(repository, MOST_REFUSED),
        "is_for_uploads": name == UPLOADS,
        "uploads": storing.under_way()[:_SHOWN] if name == UPLOADS else (),
        "page": page,
        "count": count,
        "undo_s": settings.CONSOLE.deleted_kept_s,
        "may_remove": name not in settings.CONSOLE.roots,
        "history": AuditEntry.objects.filter(target_kind="repository", target=name)[:30],
    }
    return render(request, "repositories/detail.html", context)


@require_POST
@sees(Act.REPOSITORIES_MANAGE)
@asks_password
def remove(request: HttpRequest, name: str) -> HttpResponse:
    """Delete it with its models."""
    removal.delete(actor_of(request), name, reason=request.POST.get("reason", ""))
    undo = reverse("undo-repository", args=[name])
    flash.done(request, f"{name} is deleted. Nothing that lies there was touched.", undo=undo)
    return redirect("repositories")


@require_POST
@sees(Act.REPOSITORIES_MANAGE)
@asks_password
def undo(request: HttpRequest, name: str) -> HttpResponse:
    """Bring it back with its models."""
    removal.undo(actor_of(request), name)
    messages.success(request, f"{name} is back with its models.")
    return redirect("repository", name=name)
