"""Pages of webhooks, and of the hosts that an account's jobs may name."""

import time
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST, require_safe

from console.accounts.acts import Act
from console.audit.models import AuditEntry
from console.board import hooks
from console.board.conditions import Condition
from console.keys import accounts
from console.outbound import hosts, reading, webhooks
from console.outbound.models import Webhook
from console.pages import flash, once
from console.pages.forms import WordsField, refusals_in
from console.pages.results import CoveringForm
from console.pages.sudo import asks_password
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program.errors import Misconfigured, Unavailable

_SHOWN: Final = 1000


class WebhookForm(CoveringForm):
    """A new webhook."""

    url = forms.CharField(
        label="URL",
        max_length=webhooks.MOST_URL,
        help_text="Ends of jobs are posted there as JSON, signed as Standard Webhooks says. It begins with https://; "
        "with http:// where that is allowed.",
    )
    field_order = ("url", "account", "model")


class HostsForm(forms.Form):
    """Hosts that an account's jobs may name."""

    hosts = WordsField(
        required=False,
        help_text="Names such as hooks.example.com. A job may then name a URL on them with its"
        " <code>webhook</code>. Empty: none may.",
    )


@sees(Act.RESULTS_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """All webhooks and how they go, the newest first."""
    context: dict[str, Any] = {"tab": "webhooks", "why_unknown": ""}
    found = list(webhooks.listed()[:_SHOWN])
    try:
        states = reading.states() if found else {}
    except (Unavailable, Misconfigured) as error:
        states, context["why_unknown"] = {}, error.public_message
    context["rows"] = [
        (hook, hooks.condition(hook.document(), states.get(hook.pk)), states.get(hook.pk)) for hook in found
    ]
    return render(request, "results/webhooks.html", context)


@require_http_methods(["GET", "POST"])
@sees(Act.RESULTS_MANAGE)
@asks_password
def create(request: HttpRequest) -> HttpResponse:
    """The form; then the one page that ever shows the secret."""
    form = WebhookForm(request.POST or None, initial={"account": request.GET.get("account", "")})
    if form.is_valid():
        with refusals_in(form):
            hook, text = webhooks.create(actor_of(request), **form.cleaned_data)
            return _to_be_shown(request, hook, text)
    return render(request, "results/new_webhook.html", {"form": form}, status=400 if form.is_bound else 200)


@require_POST
@sees(Act.RESULTS_MANAGE)
@asks_password
def rotate(request: HttpRequest, hook: str) -> HttpResponse:
    """Make another secret; then the one page that ever shows it."""
    keeps = request.POST.get("keeps_previous") == "1"
    found, text = webhooks.rotate(actor_of(request), hook, keeps_previous=keeps, reason=request.POST.get("reason", ""))
    return _to_be_shown(request, found, text)


@sees(Act.RESULTS_MANAGE)
@require_GET
def secret(request: HttpRequest, hook: str) -> HttpResponse:
    """The one page that ever shows a secret, the one time it is asked for."""
    found = webhooks.find(hook)
    text = once.take(request, f"webhook {hook}")
    if not text:
        messages.info(request, "A secret is shown once, right after it is made. If it is lost, replace it.")
        return redirect("webhook", hook=hook)
    context = {"hook": found, "text": text, "why_unpublished": webhooks.why_unpublished(hook)}
    response = render(request, "results/secret.html", context)
    once.shown(response)
    return response


@sees(Act.RESULTS_VIEW)
@require_safe
def detail(request: HttpRequest, hook: str) -> HttpResponse:
    """One webhook: how its deliveries go, what it answered, and what can be done."""
    found = webhooks.find(hook)
    context: dict[str, Any] = {
        "hook": found,
        "history": AuditEntry.objects.filter(target_kind="webhook", target=hook)[:30],
        "has_previous": found.has_previous(),
        "now": time.time(),
        "why_unpublished": webhooks.unpublished().get(hook, ""),
    }
    try:
        state = reading.state(hook)
        context |= {"state": state, "attempts": reading.attempts(hook)}
        context["condition"] = hooks.condition(found.document(), state)
        context["is_given_up"] = state is not None and hooks.is_given_up(found.document(), state)
    except (Unavailable, Misconfigured) as error:
        context["why_unknown"] = error.public_message
        context["condition"] = Condition("unknown", "not known now")
    return render(request, "results/webhook.html", context)


@require_POST
def switch(request: HttpRequest, hook: str) -> HttpResponse:
    """Switch it on, also one that was given up, or off."""
    is_on = request.POST.get("on") == "1"
    found = webhooks.switch(actor_of(request), hook, is_on=is_on, reason=request.POST.get("reason", ""))
    flash.say(request, f"{found.name} is {'on' if is_on else 'off'}", webhooks.why_unpublished(hook))
    return redirect("webhook", hook=hook)


@require_POST
def deliver(request: HttpRequest, hook: str) -> HttpResponse:
    """Have one job's end delivered again."""
    job_id = request.POST.get("job", "")
    webhooks.deliver_again(actor_of(request), hook, job_id, reason=request.POST.get("reason", ""))
    flash.done(request, f"The end of job {job_id[:13]} is delivered again; the attempt appears in the log.")
    return redirect("webhook", hook=hook)


@require_POST
@sees(Act.RESULTS_MANAGE)
@asks_password
def delete(request: HttpRequest, hook: str) -> HttpResponse:
    """Delete it with its secret."""
    found = webhooks.delete(actor_of(request), hook, reason=request.POST.get("reason", ""))
    flash.say(request, f"The webhook {found.name} is deleted", webhooks.why_unpublished(hook))
    return redirect("webhooks")


@require_http_methods(["GET", "POST"])
@sees(Act.RESULTS_MANAGE)
@asks_password
def allow_hosts(request: HttpRequest, account_id: str) -> HttpResponse:
    """Hosts that an account's jobs may name for webhooks of their own; then the secret of those, if it is new."""
    account = accounts.find(account_id)
    form = HostsForm(request.POST or None, initial={"hosts": account.webhook_hosts})
    if request.method == "POST" and form.is_valid():
        with refusals_in(form):
            hook, text = hosts.allow(actor_of(request), account_id, form.cleaned_data["hosts"])
            if hook is not None and text:
                return _to_be_shown(request, hook, text)
            flash.say(request, "Saved", accounts.why_unpublished(account))
            return redirect("account", account_id=account_id)
    context = {"form": form, "account": account}
    return render(request, "results/hosts.html", context, status=400 if form.is_bound else 200)


def _to_be_shown(request: HttpRequest, hook: Webhook, text: str) -> HttpResponse:
    response = redirect("webhook-secret", hook=hook.pk)
    once.keep(request, response, f"webhook {hook.pk}", text)
    return response
