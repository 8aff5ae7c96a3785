"""Whose ends: an account that is there and a model that is known, or every one of them."""

from console.catalog.models import ServedModel
from console.keys.models import Account
from signalbox.program.errors import InvalidRequest


def account_of(account_id: str) -> Account | None:
    """The account; None for every one. Raises :class:`InvalidRequest` naming the field."""
    if not account_id:
        return None
    account = Account.objects.filter(pk=account_id, deleted_at=None).first()
    if account is None:
        raise InvalidRequest(f"account: there is no {account_id[:60]!r}. Give the account's id.")
    return account


def model_of(name: str) -> str:
    """The model's name; empty for every one. Raises :class:`InvalidRequest` naming the field."""
    if name and not ServedModel.objects.filter(name=name).exists():
        raise InvalidRequest(f"model: there is no {name[:100]!r}.")
    return name
