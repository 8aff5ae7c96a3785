"""Hosts that the jobs of an account may name for webhooks of their own; one webhook is for all of these."""

from collections.abc import Sequence
from typing import Final

from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.keys import accounts
from console.keys.models import Account
from console.outbound import calling, webhooks
from console.outbound.models import Webhook
from signalbox.program.errors import InvalidRequest

MOST: Final = 20


def of(account: Account) -> Webhook | None:
    """The webhook that is for the jobs of an account; None while they may name no host."""
    return Webhook.objects.select_related("account").filter(account=account, is_for_jobs=True).first()


def allow(actor: Actor, account_id: str, hosts: Sequence[str], *, reason: str = "") -> tuple[Webhook | None, str]:
    """Let the jobs of an account name URLs on these hosts; none: not any more.

    Returns the account's webhook for these, and its secret where it is new. Raises :class:`NotFound`,
    :class:`Conflict` for a deleted account, and :class:`InvalidRequest`.
    """
    asked = {"webhook_hosts": list(hosts)}
    with act(actor, Act.RESULTS_MANAGE, Target("account", account_id), asked=asked, reason=reason) as change:
        account = accounts.locked(account_id)
        change.before = {"webhook_hosts": account.webhook_hosts}
        account.webhook_hosts = _checked(hosts)
        change.after = {"webhook_hosts": account.webhook_hosts}
        account.updated_at = timezone.now()
        account.save()
        accounts.publish(account)
        return _kept(actor, account)


def _kept(actor: Actor, account: Account) -> tuple[Webhook | None, str]:
    found, text = of(account), ""
    if not account.webhook_hosts:
        if found is not None:
            webhooks.remove(found)
        return None, ""
    if found is None:
        found = Webhook(id=webhooks.new_id(), created_by=actor.name, account=account, is_for_jobs=True)
        found.secret, text = webhooks.mint(found.pk)
    found.account, found.updated_at = account, timezone.now()
    found.save()
    webhooks.post(found)
    return found, text


def _checked(hosts: Sequence[str]) -> list[str]:
    """The hosts in small letters, as they are compared with a URL's. Raises :class:`InvalidRequest`."""
    found = [host.strip().lower() for host in hosts]
    if len(found) > MOST or len(set(found)) < len(found):
        raise InvalidRequest(f"hosts: name each once, at most {MOST}.")
    for host in found:
        try:
            parts = calling.judge(f"https://{host}/")
        except InvalidRequest as error:
            raise InvalidRequest(f"hosts: {host[:60]!r}: {error.public_message}") from error
        if parts.hostname != host:
            raise InvalidRequest(f"hosts: {host[:60]!r} is more than a host's name, such as hooks.example.com.")
    return found
