"""Acts on webhooks. The text of a secret exists once: in the answer of :func:`create` and of :func:`rotate`."""

import base64
import secrets
from collections.abc import Iterable
from typing import Final

from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.database import one_of
from console.outbound import calling, covering
from console.outbound.models import OVERLAP, Webhook
from console.outbox import services as outbox
from console.outbox.models import OutboxEntry
from signalbox.program.errors import Conflict, InvalidRequest
from signalbox.wire import messages, outboundnames
from signalbox.wire.jobids import JOB_ID
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import HookSecret

MOST_URL: Final = 2048
_SECRET_BYTES: Final = 32
"""Of a secret: what Standard Webhooks allows at most is 64, at least 24."""


def listed() -> QuerySet[Webhook]:
    """All of them, the newest first."""
    return Webhook.objects.select_related("account")


def find(hook: str) -> Webhook:
    """One of them. Raises :class:`NotFound`."""
    return _found(listed(), hook)


def create(actor: Actor, url: str, *, account: str = "", model: str = "") -> tuple[Webhook, str]:
    """A new webhook, which is called from now on, and its secret, which nobody can read again.

    Raises :class:`InvalidRequest` naming the field, and :class:`Conflict` where there is the same one already.
    """
    made = Webhook(id=new_id(), created_by=actor.name, url=url.strip())
    asked = {"url": made.shown_url, "account": account, "model": model}
    with act(actor, Act.RESULTS_MANAGE, Target("webhook", made.pk), asked=asked):
        check_url(made.url)
        made.account = covering.account_of(account)
        made.model = covering.model_of(model)
        if Webhook.objects.filter(url=made.url, account=made.account, model=made.model).exists():
            raise Conflict(f"url: it is told of {made.words} already.")
        made.secret, text = mint(made.pk)
        made.save(force_insert=True)
        post(made)
    return made, text


def rotate(actor: Actor, hook: str, *, keeps_previous: bool = True, reason: str = "") -> tuple[Webhook, str]:
    """A new secret; messages are signed with it from now on, and with the one before too for a day if that is wished.

    Returns the webhook and the text. Raises :class:`NotFound`.
    """
    hours = round(OVERLAP.total_seconds() / 3600) if keeps_previous else 0
    asked = {"secret": "replaced", "overlap_h": hours}
    with act(actor, Act.RESULTS_MANAGE, Target("webhook", hook), asked=asked, reason=reason):
        found = _locked(hook)
        gone = {found.previous_secret, "" if keeps_previous else found.secret}
        found.previous_secret = found.secret if keeps_previous else ""
        found.previous_until = timezone.now() + OVERLAP if keeps_previous else None
        found.secret, text = mint(hook)
        _save(found)
        forget_secrets(hook, gone)
    return found, text


def switch(actor: Actor, hook: str, *, is_on: bool, reason: str = "") -> Webhook:
    """Switch it on or off. One that is on already but was given up is called again. Raises :class:`NotFound`."""
    with act(actor, Act.RESULTS_SWITCH, Target("webhook", hook), asked={"is_on": is_on}, reason=reason) as change:
        found = _locked(hook)
        change.before = {"is_on": found.is_enabled}
        if not is_on and not found.is_enabled:
            raise Conflict("It is off already.")
        found.is_enabled = is_on
        if is_on:
            found.enabled_at = timezone.now()
        _save(found)
    return found


def delete(actor: Actor, hook: str, *, reason: str = "") -> Webhook:
    """Delete it with its secrets: what waits to be delivered to it is not. Raises :class:`NotFound`."""
    target, asked = Target("webhook", hook), {"state": "deleted"}
    with act(actor, Act.RESULTS_MANAGE, target, asked=asked, reason=reason) as change:
        found = _locked(hook)
        if found.is_for_jobs and found.account is not None and found.account.deleted_at is None:
            raise Conflict("It is there for the hosts that the account's jobs may name: take these away instead.")
        change.before = {"url": found.shown_url, "account": found.account_id or "", "model": found.model}
        change.after = {"state": "deleted"}
        remove(found)
    return found


def deliver_again(actor: Actor, hook: str, job_id: str, *, reason: str = "") -> None:
    """Ask the outbound program to deliver a job's end once more, under the same id.

    Raises :class:`NotFound`, :class:`InvalidRequest`, and :class:`Conflict` where the webhook is off.
    """
    with act(actor, Act.RESULTS_DELIVER, Target("webhook", hook), asked={"job": job_id}, reason=reason):
        found = _locked(hook)
        if not JOB_ID.match(job_id):
            raise InvalidRequest("job: the id of a job.")
        if not found.is_enabled:
            raise Conflict("The webhook is off: switch it on first.")
        outbox.post(OutboxEntry(kind=OutboxEntry.DELIVER, key=hook, body=job_id))


def why_unpublished(hook: str) -> str:
    """Why the outbound program does not know of it as it is; empty once it does. Waits a moment."""
    return outbox.why_unpublished(Bucket.WEBHOOKS, hook)


def unpublished() -> dict[str, str]:
    """Why the outbound program does not know of a webhook as it is, by id; one that is not here it knows."""
    return outbox.waiting(Bucket.WEBHOOKS)


def check_url(url: str) -> None:
    """Raise :class:`InvalidRequest` for a URL that is not called. Where its name leads to is judged at each call."""
    try:
        calling.judge(url)
    except InvalidRequest as error:
        raise InvalidRequest(f"url: {error.public_message}") from error


def new_id() -> str:
    """Of a webhook."""
    return f"wh_{secrets.token_hex(8)}"


def mint(hook: str) -> tuple[str, str]:
    """A new secret's name and text, inside an act: it goes to where the console cannot read it."""
    name = secrets.token_hex(8)
    text = f"whsec_{base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"
    body = messages.encode(HookSecret(secret=text)).decode()
    _post_secret(hook, name, body)
    return name, text


def post(webhook: Webhook) -> None:
    """Queue its document."""
    outbox.post_document(Bucket.WEBHOOKS, webhook.pk, webhook.document())


def forget_secrets(hook: str, gone: Iterable[str]) -> None:
    """Queue that secrets of these names go; an empty name is none."""
    for name in gone:
        if name:
            _post_secret(hook, name, "")


def remove(webhook: Webhook) -> None:
    """Take it out, inside an act, with its document and its secrets."""
    Webhook.objects.filter(pk=webhook.pk).delete()
    outbox.post_removals(Bucket.WEBHOOKS, [(webhook.pk, "")])
    forget_secrets(webhook.pk, {webhook.secret, webhook.previous_secret})


def _post_secret(hook: str, name: str, body: str) -> None:
    key = outboundnames.hook_secret(hook, name)
    outbox.post(OutboxEntry(kind=OutboxEntry.SECRET, bucket=Bucket.HOOK_SECRETS.value, key=key, body=body))


def _save(webhook: Webhook) -> None:
    webhook.updated_at = timezone.now()
    webhook.save()
    post(webhook)


def _locked(hook: str) -> Webhook:
    return _found(Webhook.objects.select_for_update(), hook)


def _found(rows: QuerySet[Webhook], hook: str) -> Webhook:
    return one_of(rows.filter(pk=hook), f"There is no webhook {hook[:60]!r}.")
