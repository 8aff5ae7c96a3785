"""Names of accounts and keys, for those who only have ids."""

from collections.abc import Collection

from console.keys.models import Account, ApiKey


def names_of(ids: Collection[str]) -> dict[str, str]:
    """Name of each account and key among these ids; an account that was made with a key is called as the account is."""
    if not ids:
        return {}
    found: dict[str, str] = dict(ApiKey.objects.filter(pk__in=ids).values_list("pk", "name"))
    return found | dict(Account.objects.filter(pk__in=ids).values_list("pk", "name"))
