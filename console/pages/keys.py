"""Pages of API keys."""

from typing import Any, Final

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST, require_safe

from console.accounts.acts import Act
from console.audit.models import AuditEntry
from console.bounds import MOST_COUNT
from console.catalog.models import ServedModel
from console.keys import services, unknown
from console.keys.models import Account, ApiKey, UnknownKey
from console.outbox import services as outbox
from console.pages import once, usage
from console.pages.forms import WordsField, offer, refusals_in
from console.pages.sudo import asks_password
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.wire.names import Bucket

_WINDOWS = [(3600, "an hour"), (86_400, "a day"), (7 * 86_400, "a week"), (30 * 86_400, "30 days")]
_OFFERED: Final = 1000
"""Accounts that the form offers."""
_TELL_S = 1.0
"""How long the answer to a revocation waits so that it can say when the gateways were told."""


class KeyForm(forms.Form):
    """A new key."""

    name = forms.CharField(max_length=100, help_text="What it is for, e.g. “checkout service”.")
    owner = forms.CharField(max_length=150, required=False, help_text="Who to ask about it. Empty: you.")
    account = forms.ChoiceField(
        required=False, help_text="Its keys see one another's jobs, and have one share of what there is together."
    )
    scopes = forms.MultipleChoiceField(
        choices=[(scope, f"{scope}: {words}") for scope, words in services.SCOPE_WORDS.items()],
        initial=list(services.DEFAULT_SCOPES),
        widget=forms.CheckboxSelectMultiple,
    )
    models = WordsField(
        required=False,
        help_text="Names, or beginnings of names like <code>team-*</code>. Empty: all that its account may use. A model"
        " of a repository that is not open to the account must be named here.",
    )
    queues = WordsField(
        required=False, help_text="Names of its account's queues, for the scopes of queues. Empty: all of them."
    )
    networks = WordsField(
        required=False, help_text="CIDR blocks, e.g. 192.0.2.0/24 10.0.0.0/8. Empty: from everywhere."
    )
    rate = forms.IntegerField(
        label="Requests", min_value=0, max_value=MOST_COUNT, initial=0, help_text="0: no rate limit."
    )
    per_s = forms.IntegerField(label="in so many seconds", min_value=1, max_value=MOST_COUNT, initial=1)
    quota = forms.IntegerField(label="Quota", min_value=0, max_value=MOST_COUNT, initial=0, help_text="0: no quota.")
    quota_window_s = forms.TypedChoiceField(label="in", choices=_WINDOWS, coerce=int, initial=86_400)
    days = forms.IntegerField(
        label="Days until it expires", min_value=1, max_value=services.MAX_DAYS, initial=services.DEFAULT_DAYS
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        asked = self.data.get("account") or self.initial.get("account", "")
        known = Account.objects.filter(deleted_at=None, disabled_at=None).order_by("name", "pk")
        offered = [*known.filter(pk=asked), *known.exclude(pk=asked)[:_OFFERED]]
        own = ("", "A new one, named like the key")
        offer(self, "account", [own, *((account.pk, str(account)) for account in offered)])


class RotationForm(forms.Form):
    """A key's replacement."""

    overlap_days = forms.IntegerField(min_value=0, max_value=services.MAX_OVERLAP_DAYS)


@sees(Act.KEYS_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """All keys, newest first; before them those that only NATS knows."""
    rows = [(key, key.state()) for key in ApiKey.objects.select_related("account")[:1000]]
    others = [(key, key.state()) for key in UnknownKey.objects.all()[:1000]]
    return render(request, "keys/index.html", {"rows": rows, "unknown": others})


@require_http_methods(["GET", "POST"])
@sees(Act.KEYS_MANAGE)
@asks_password
def create(request: HttpRequest) -> HttpResponse:
    """The form; then the one page that ever shows the key."""
    form = KeyForm(request.POST or None, initial={"account": request.GET.get("account", "")})
    if form.is_valid():
        with refusals_in(form):
            key, text = services.create(actor_of(request), services.KeyGrant(**form.cleaned_data))
            return _to_be_shown(request, key, text)
    return render(request, "keys/create.html", {"form": form}, status=400 if form.is_bound else 200)


@require_POST
@sees(Act.KEYS_MANAGE)
@asks_password
def rotate(request: HttpRequest, kid: str) -> HttpResponse:
    """Make the key that replaces this one; then the one page that ever shows it."""
    form = RotationForm(request.POST)
    if not form.is_valid():
        messages.error(request, f"Days of overlap: 0 to {services.MAX_OVERLAP_DAYS}.")
        return redirect("key", kid=kid)
    new, text = services.rotate(actor_of(request), kid, overlap_days=form.cleaned_data["overlap_days"])
    return _to_be_shown(request, new, text)


@sees(Act.KEYS_MANAGE)
@require_GET
def created(request: HttpRequest, kid: str) -> HttpResponse:
    """The one page that ever shows a key, the one time it is asked for."""
    key = services.find(kid)
    text = once.take(request, f"key {kid}")
    if not text:
        messages.info(request, "A key is shown once, right after it is made. If it is lost, replace it.")
        return redirect("key", kid=kid)
    context = {
        "key": key,
        "text": text,
        "front_url": settings.CONSOLE.front_url,
        "why_unpublished": services.why_unpublished(key),
        "model": next((name for name in key.models_allowed if not name.endswith("*")), None) or _some_model(),
    }
    response = render(request, "keys/created.html", context)
    once.shown(response)
    return response


def _to_be_shown(request: HttpRequest, key: ApiKey, text: str) -> HttpResponse:
    response = redirect("key-created", kid=key.pk)
    once.keep(request, response, f"key {key.pk}", text)
    return response


@sees(Act.KEYS_VIEW)
@require_safe
def detail(request: HttpRequest, kid: str) -> HttpResponse:
    """One key: what it allows, whether the gateways know, and its history."""
    key = services.find(kid)
    context = {
        "key": key,
        "state": key.state(),
        "posting": outbox.latest(Bucket.KEYS, kid),
        "history": AuditEntry.objects.filter(target_kind="key", target=kid)[:50],
        "successors": key.successors.all(),
        "use": usage.of_key(request, kid),
        "most_overlap_days": services.MAX_OVERLAP_DAYS,
    }
    return render(request, "keys/detail.html", context)


@require_POST
@sees(Act.KEYS_MANAGE)
@asks_password
def adopt(request: HttpRequest, kid: str) -> HttpResponse:
    """Make a key that only NATS knows one of this console."""
    key = unknown.adopt(actor_of(request), kid)
    messages.success(request, f"The key {key.name} is known to this console from now on.")
    return redirect("key", kid=kid)


@require_POST
def revoke(request: HttpRequest, kid: str) -> HttpResponse:
    """End the key now."""
    services.revoke(actor_of(request), kid, reason=request.POST.get("reason", ""))
    reported = outbox.wait_published(Bucket.KEYS, kid, timeout_s=_TELL_S)
    if reported is not None and reported.published_at is not None:
        messages.success(request, f"The key is revoked. Gateways were told {reported.delay_ms} ms later.")
    else:
        messages.warning(request, "The key is revoked. NATS is slow or away: gateways are told as soon as it answers.")
    return redirect("key", kid=kid)


def _some_model() -> str:
    return ServedModel.objects.values_list("name", flat=True).first() or "MODEL"
