"""The models that an operator may be limited to, and which model a thing belongs to.

An operator without a limit is asked nothing here. One with a limit sees and acts on the models it lists, their jobs,
dead letters and queues, and on nothing that reaches beyond them.
"""

from collections.abc import Callable, Sequence
from typing import Final

from django.db import connection
from django.db.models import Q

from console.accounts.acts import Act
from signalbox.wire.access import is_among

Place = tuple[str, str]
"""Kind and name of what is acted on or seen: ``("model", "digits")``, ``("job", id)``."""
_ON_MODELS: Final = ("models.", "jobs.", Act.QUEUES_PAUSE.value, "residency.")
_BESIDE: Final = frozenset({Act.SYSTEM_VIEW, Act.TOKENS_OWN, Act.VIEWS_OWN})
"""What anybody may do that is no model's: see the board (of their models) and settings, keep their login and views."""
_find_model: dict[str, Callable[[str], str | None]] = {"model": lambda name: name}


def belongs(kind: str, find: Callable[[str], str | None]) -> None:
    """Have things of a kind belong to models. find: the model of one; None where there is no such thing."""
    _find_model[kind] = find


def model_of(kind: str, name: str) -> str | None:
    """The model that a thing belongs to; None where that is not known."""
    return _find_model[kind](name) if kind in _find_model else None


def refusal(names: Sequence[str], act: Act, place: Place | None) -> str:
    """Why an operator who is limited to these models may not do this; empty where they may.

    place: None where only the right itself is asked for, as for a list that shows their models.
    """
    limit = f"You are limited to the models {', '.join(names)}"
    is_of_one = place is not None and act is Act.AUDIT_VIEW  # an act on one of their models, to take it back
    if not (act.value.startswith(_ON_MODELS) or act in _BESIDE or is_of_one):
        return f"{limit}, and this reaches beyond them."
    if place is None or act in {Act.TOKENS_OWN, Act.VIEWS_OWN}:
        return ""
    kind, name = place
    model = model_of(kind, name)
    if model is None:
        return f"{limit}, and this {kind} is not known to be of one of them."
    return "" if is_among(names, model) else f"{limit}, and this is of {model[:100]}."


def within(names: Sequence[str], field: str = "model") -> Q:
    """The rows whose field names one of these models."""
    found = Q(**{f"{field}__in": [name for name in names if not name.endswith("*")]})
    for prefix in (name[:-1] for name in names if name.endswith("*")):
        if not prefix:
            return Q()
        if connection.vendor == "sqlite":  # its LIKE knows no upper and lower case; texts are compared byte by byte
            after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
            found |= Q(**{f"{field}__gte": prefix, f"{field}__lt": after})
        else:
            found |= Q(**{f"{field}__startswith": prefix})
    return found
