"""What takes an act back: the service that puts the values back which the audit has from before it."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from console.accounts.acts import Act
from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog import modelsettings, publishing, selection, targets
from console.catalog.models import ServedModel
from console.fleet import services as fleet
from console.fleet import steering
from console.fleet.models import DesiredState
from console.keys import accounts, endings
from console.keys.models import Account
from console.operators import services as operators
from console.outbound import subscriptions, webhooks
from console.outbound.models import Subscription, Webhook
from console.queues import services as queues
from console.queues.models import Queue


class Inverse(NamedTuple):
    """now: what the act has changed, as it is at present. run: puts it back, given who and why.

    why_unpublished: why the fleet does not know that yet; empty once it does, or where the fleet is not concerned.
    """

    now: dict[str, Any]
    run: Callable[[Actor, str], object]
    why_unpublished: Callable[[], str]


def of(entry: AuditEntry) -> Inverse | None:
    """The inverse of an act that was done; None where it has none, or what it was done to is gone."""
    return _BY_ACT[entry.act](entry) if has_any(entry) else None


def has_any(entry: AuditEntry) -> bool:
    """Whether acts of this kind have an inverse at all."""
    return entry.is_done and entry.act in _BY_ACT


def _pause(entry: AuditEntry) -> Inverse | None:
    def run(actor: Actor, reason: str) -> object:
        return fleet.pause(actor, entry.target, is_paused=entry.before["is_on"], reason=reason)

    return _desired(entry, DesiredState.MODEL, run)


def _drain(entry: AuditEntry) -> Inverse | None:
    def run(actor: Actor, reason: str) -> object:
        switch = fleet.drain_host if entry.target_kind == DesiredState.HOST else fleet.drain
        return switch(actor, entry.target, is_draining=entry.before["is_on"], reason=reason)

    kind = DesiredState.HOST if entry.target_kind == DesiredState.HOST else DesiredState.WORKER
    return _desired(entry, kind, run)


def _desired(entry: AuditEntry, kind: str, run: Callable[[Actor, str], object]) -> Inverse | None:
    desired = DesiredState.objects.filter(kind=kind, name=entry.target).first()
    if desired is None:
        return None
    return Inverse({"is_on": desired.is_on}, run, lambda: fleet.why_unpublished(desired))


def _pin(entry: AuditEntry) -> Inverse | None:
    pin = DesiredState.objects.filter(kind=DesiredState.PIN, name=entry.target).first()
    if pin is None:
        return None
    was = entry.before

    def run(actor: Actor, reason: str) -> object:
        return steering.pin(
            actor,
            entry.target,
            is_pinned=was["is_on"],
            version=was.get("version", 0),
            on=was.get("hosts", ()),
            reason=reason,
        )

    now = {"is_on": True, "version": pin.version, "hosts": pin.hosts} if pin.is_on else {"is_on": False}
    return Inverse(now, run, lambda: fleet.why_unpublished(pin))


def _settings(entry: AuditEntry) -> Inverse | None:
    model = ServedModel.objects.filter(name=entry.target).first()
    if model is None or not entry.before:
        return None
    was = entry.before
    if "is_enabled" in was:
        return _of_model(
            {"is_enabled": model.is_enabled},
            entry,
            lambda actor, why: modelsettings.set_enabled(actor, model.name, is_enabled=was["is_enabled"], reason=why),
        )
    if not was.keys() <= set(modelsettings.SETTINGS):
        return None
    was = {name: value for name, value in was.items() if entry.after.get(name) != value}  # a call may name others too
    now = {name: getattr(model, name) for name in was}
    return _of_model(now, entry, lambda actor, why: modelsettings.change_settings(actor, model.name, was, reason=why))


def _rollout(entry: AuditEntry) -> Inverse | None:
    model = ServedModel.objects.filter(name=entry.target).first()
    if model is None:
        return None
    was, name = entry.before, model.name
    if "policy" in was:
        return _of_model(
            {"policy": model.policy},
            entry,
            lambda actor, why: selection.set_policy(actor, name, was["policy"], reason=why),
        )
    asked = [each for each in entry.after if each in was and each not in _BESIDE]
    if len(asked) != 1:
        return None  # a split: promoting and rolling back are its inverses
    (what,) = asked
    label = model.labels.filter(name=what).select_related("version").first()
    if what == "default_version" and label is None:
        number = was[what] if isinstance(was[what], int) else None
        return _of_model(
            {what: model.default_version or targets.HIGHEST},
            entry,
            lambda actor, why: targets.set_default(actor, name, number, reason=why),
        )
    return _of_model(
        {what: label.version.number if label is not None else None},
        entry,
        lambda actor, why: targets.set_label(actor, name, what, was[what], reason=why),
    )


def _of_model(now: dict[str, Any], entry: AuditEntry, run: Callable[[Actor, str], object]) -> Inverse:
    return Inverse(now, run, lambda: publishing.why_unpublished(entry.target))


def _operator(entry: AuditEntry) -> Inverse | None:
    user = User.objects.filter(username=entry.target).first()
    if user is None:
        return None
    was = entry.before
    if was.get("role"):
        return Inverse(
            {"role": user.role},
            lambda actor, why: operators.set_role(actor, user.username, was["role"], reason=why),
            str,
        )
    if "models" in was:
        return Inverse(
            {"models": user.only_models},
            lambda actor, why: operators.set_models(actor, user.username, was["models"], reason=why),
            str,
        )
    if "is_active" in was:
        return Inverse(
            {"is_active": user.is_active},
            lambda actor, why: operators.set_active(actor, user.username, is_active=was["is_active"], reason=why),
            str,
        )
    return None


def _account(entry: AuditEntry) -> Inverse | None:
    account = Account.objects.filter(pk=entry.target, deleted_at=None).first()
    if account is None or not entry.before:
        return None
    terms = msgspec.to_builtins(accounts.terms_of(account))
    if not entry.before.keys() <= terms.keys():
        return None
    return Inverse(
        {name: terms[name] for name in entry.before},
        lambda actor, why: accounts.change(actor, account.pk, entry.before, reason=why),
        lambda: accounts.why_unpublished(account),
    )


def _disabled(entry: AuditEntry) -> Inverse | None:
    account = Account.objects.filter(pk=entry.target, deleted_at=None).first()
    if account is None:
        return None
    switch = endings.disable if entry.before["state"] == "disabled" else endings.enable
    return Inverse(
        {"state": account.state},
        lambda actor, why: switch(actor, account.pk, reason=why),
        lambda: accounts.why_unpublished(account),
    )


def _results(entry: AuditEntry) -> Inverse | None:
    if entry.target_kind == "webhook":
        hook = Webhook.objects.filter(pk=entry.target).first()
        if hook is None or entry.before["is_on"] == entry.after.get("is_on"):
            return None  # one that had been given up was called again, which is no switch
        return Inverse(
            {"is_on": hook.is_enabled},
            lambda actor, why: webhooks.switch(actor, hook.pk, is_on=entry.before["is_on"], reason=why),
            lambda: webhooks.why_unpublished(hook.pk),
        )
    found = Subscription.objects.filter(pk=entry.target).first()
    if found is None:
        return None
    return Inverse(
        {"is_on": found.is_enabled},
        lambda actor, why: subscriptions.switch(actor, found.pk, is_on=entry.before["is_on"], reason=why),
        lambda: subscriptions.why_unpublished(found.pk),
    )


def _queue(entry: AuditEntry) -> Inverse | None:
    queue = Queue.objects.filter(pk=entry.target).first()
    if queue is None or not entry.before:
        return None
    terms = msgspec.to_builtins(queues.terms_of(queue))
    if not entry.before.keys() <= terms.keys():
        return None
    was = {name: value for name, value in entry.before.items() if not name.endswith(_FOLLOWS) or value}
    return Inverse(
        {name: terms[name] for name in entry.before},
        lambda actor, why: queues.change(actor, queue.pk, was, reason=why),
        lambda: queues.why_unpublished(queue.pk),
    )


_FOLLOWS: Final = ("_max_length", "_max_payload_size_kb")
"""Settings of a queue's side of which one is 0, as it follows from the other."""
_BESIDE: Final = {"rows_independent", "differs"}
"""What the audit of an act on versions says of joined requests beside it."""
_BY_ACT: Final[dict[str, Callable[[AuditEntry], Inverse | None]]] = {
    Act.QUEUES_PAUSE: _pause,
    Act.WORKERS_DRAIN: _drain,
    Act.RESIDENCY_PIN: _pin,
    Act.MODELS_SETTINGS: _settings,
    Act.MODELS_ROLLOUT: _rollout,
    Act.RESULTS_SWITCH: _results,
    Act.QUEUES_MANAGE: _queue,
    Act.USERS_MANAGE: _operator,
    Act.ACCOUNTS_MANAGE: _account,
    Act.ACCOUNTS_DELETE: _disabled,
}
