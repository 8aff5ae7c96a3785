"""Disabling an account, which can be taken back, and deleting it, which cannot."""

from typing import Final

from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.keys import accounts, services
from console.keys.models import Account
from signalbox.program.errors import Conflict, InvalidRequest

JOBS: Final = {"finish": "Its open jobs finish.", "cancel": "Its open jobs are cancelled."}
"""What becomes of the open jobs of a deleted account."""


def disable(actor: Actor, account_id: str, *, reason: str = "") -> Account:
    """Refuse all keys of an account until it is enabled; its open jobs go on.

    Raises :class:`NotFound`, and :class:`Conflict` if it is so already.
    """
    return _switch(actor, account_id, is_disabled=True, reason=reason)


def enable(actor: Actor, account_id: str, *, reason: str = "") -> Account:
    """The inverse of :func:`disable`: keys that have not ended are accepted again. Raises as it does."""
    return _switch(actor, account_id, is_disabled=False, reason=reason)


def _switch(actor: Actor, account_id: str, *, is_disabled: bool, reason: str) -> Account:
    state = "disabled" if is_disabled else "active"
    target = Target("account", account_id)
    with act(actor, Act.ACCOUNTS_DELETE, target, asked={"state": state}, reason=reason) as change:
        account = accounts.locked(account_id)
        change.before = {"state": account.state}
        if account.state == state:
            raise Conflict(f"Account {account.name} is {'disabled' if is_disabled else 'not disabled'}.")
        now = timezone.now()
        account.disabled_at = now if is_disabled else None
        account.disabled_by = actor.name if is_disabled else ""
        account.updated_at = now
        account.save()
        # The newest document of a key says whether its account is disabled.
        accounts.publish(account, touched_at=now)
    return account


def delete(actor: Actor, account_id: str, *, jobs: str, reason: str) -> Account:
    """End all keys of an account for good, and hide it. jobs: ``finish`` or ``cancel``, its open ones.

    Ended jobs stay for as long as any, and so does the account's row, which they and the audit name. Raises
    :class:`NotFound`, :class:`Conflict` if it is deleted already, :class:`InvalidRequest` naming the field.
    """
    target, asked = Target("account", account_id), {"state": "deleted", "jobs": jobs}
    with act(actor, Act.ACCOUNTS_DELETE, target, asked=asked, reason=reason) as change:
        if jobs not in JOBS:
            raise InvalidRequest(f"jobs: one of {', '.join(JOBS)}.")
        if not reason.strip():
            raise InvalidRequest("reason: say why; it cannot be taken back.")
        account = accounts.locked(account_id)
        change.before = {"name": account.name, "state": account.state}
        # In one order, as accounts.publish locks them.
        for key in account.keys.select_for_update().filter(revoked_at=None).order_by("pk"):
            key.account = account
            services.end(key, actor, "its account was deleted")
        account.deleted_at = account.updated_at = timezone.now()
        account.deleted_by = actor.name
        account.cancels_jobs = jobs == "cancel"
        account.save()
        change.after = {"state": "deleted", "jobs": jobs}
    return account
