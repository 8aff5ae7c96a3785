"""Which models a key may use: by its own list, its account's, and what the model's document says."""

from collections.abc import Collection

from signalbox.wire.keydocs import ApiKey
from signalbox.wire.modeldocs import Model


def is_listed(key: ApiKey, name: str) -> bool:
    """Whether both lists, the key's and its account's, allow a name; an empty list allows every name."""
    own, shared = key.models, key.account_models
    return (not own or is_among(own, name)) and (not shared or is_among(shared, name))


def may_use(key: ApiKey, model: Model) -> bool:
    """Whether both lists allow a model, and it is open, or the key's own list has it, or its account may call it."""
    if not is_listed(key, model.name):
        return False
    access = model.access
    return access.is_open or is_among(key.models, model.name) or key.account_id in access.accounts


def is_among(names: Collection[str], name: str) -> bool:
    """Whether a list has a name, as it is or by a prefix: ``team-*`` has every name that begins with ``team-``."""
    return name in names or any(one.endswith("*") and name.startswith(one[:-1]) for one in names)
