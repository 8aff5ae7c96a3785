"""Pages of what goes out: subscriptions to the output stream, and batches of files."""

from typing import Any, Final, get_args

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.acts import Act
from console.audit.models import AuditEntry
from console.catalog.models import ServedModel
from console.keys.models import Account
from console.outbound import batches, reading, subscriptions
from console.pages import flash
from console.pages.forms import offer, refusals_in
from console.pages.sudo import asks_password
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program.errors import InvalidRequest, Misconfigured, Unavailable

_OFFERED: Final = 1000
"""Accounts and models that a form offers."""
_SHOWN: Final = 1000
_DONE: Final = {
    "run": "The batch goes on",
    "pause": "The batch is paused: what runs ends, and nothing more is submitted",
    "cancel": "The batch is cancelled: what has ended stays readable",
}


class CoveringForm(forms.Form):
    """Whose ends, and of which model."""

    account = forms.ChoiceField(required=False, help_text="Whose jobs.")
    model = forms.ChoiceField(required=False, help_text="Of which model.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        accounts = Account.objects.filter(deleted_at=None).order_by("name", "pk")[:_OFFERED]
        names = ServedModel.objects.order_by("name").values_list("name", flat=True)[:_OFFERED]
        offer(self, "account", [("", "Every account"), *((one.pk, str(one)) for one in accounts)])
        offer(self, "model", [("", "Every model"), *((name, name) for name in names)])


@sees(Act.RESULTS_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Whose ends go to the output stream."""
    waiting = subscriptions.unpublished()
    rows = [(one, waiting.get(one.pk, "")) for one in subscriptions.listed()[:_SHOWN]]
    return render(request, "results/index.html", {"rows": rows, "tab": "subscriptions"})


@require_http_methods(["GET", "POST"])
@sees(Act.RESULTS_MANAGE)
@asks_password
def create(request: HttpRequest) -> HttpResponse:
    """The form; then the list."""
    form = CoveringForm(request.POST or None, initial={"account": request.GET.get("account", "")})
    if request.method == "POST" and form.is_valid():
        with refusals_in(form):
            made = subscriptions.create(actor_of(request), **form.cleaned_data)
            flash.say(request, f"Ends of {made.words} go to the stream", subscriptions.why_unpublished(made.pk))
            return redirect("results")
    return render(request, "results/subscribe.html", {"form": form}, status=400 if form.is_bound else 200)


@require_POST
def switch(request: HttpRequest, subscription_id: str) -> HttpResponse:
    """Switch one on or off."""
    is_on = request.POST.get("on") == "1"
    found = subscriptions.switch(actor_of(request), subscription_id, is_on=is_on, reason=request.POST.get("reason", ""))
    words = f"The subscription to {found.words} is {'on' if is_on else 'off'}"
    flash.say(request, words, subscriptions.why_unpublished(subscription_id))
    return redirect("results")


@require_POST
@sees(Act.RESULTS_MANAGE)
@asks_password
def delete(request: HttpRequest, subscription_id: str) -> HttpResponse:
    """Delete one."""
    found = subscriptions.delete(actor_of(request), subscription_id, reason=request.POST.get("reason", ""))
    flash.say(request, f"The subscription to {found.words} is deleted", subscriptions.why_unpublished(subscription_id))
    return redirect("results")


@sees(Act.RESULTS_VIEW)
@require_safe
def batch_index(request: HttpRequest) -> HttpResponse:
    """Batches of files, those that have not ended first."""
    context: dict[str, Any] = {"tab": "batches", "rows": [], "why_unknown": ""}
    try:
        context["rows"] = reading.batches()
    except (Unavailable, Misconfigured) as error:
        context["why_unknown"] = error.public_message
    context["account_names"] = _names({batch.account_id for _, batch in context["rows"]})
    return render(request, "results/batches.html", context)


@sees(Act.RESULTS_VIEW)
@require_safe
def batch(request: HttpRequest, key: str) -> HttpResponse:
    """One batch, how far it is, and what can be asked of it."""
    found = reading.batch(key)
    context = {
        "batch": found,
        "key": batches.key_of(found),
        "is_open": found.state not in batches.ENDED,
        "account": Account.objects.filter(pk=found.account_id).first(),
        "history": AuditEntry.objects.filter(target_kind="batch", target=key)[:30],
    }
    return render(request, "results/batch.html", context)


@require_POST
def steer(request: HttpRequest, key: str) -> HttpResponse:
    """Have a batch pause, go on or be cancelled."""
    asked = next((one for one in get_args(batches.Asked) if one == request.POST.get("asked")), None)
    if asked is None:
        raise InvalidRequest(f"asked: one of {', '.join(get_args(batches.Asked))}.")
    why = batches.steer(actor_of(request), key, asked, reason=request.POST.get("reason", ""))
    flash.say(request, _DONE[asked], why)
    return redirect("batch", key=key)


def _names(ids: set[str]) -> dict[str, str]:
    return dict(Account.objects.filter(pk__in=ids).values_list("pk", "name"))
