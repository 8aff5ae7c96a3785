"""Saves and removes views. Who may share one may also remove those that others share."""

from typing import Final
from urllib.parse import parse_qsl, urlencode

from django.db.models import Q, QuerySet

from console.accounts.acts import Act
from console.accounts.models import User
from console.accounts.rights import Actor, may
from console.audit.acts import Target, act
from console.bounds import MOST_LETTERS
from console.database import one_of
from console.views.models import SavedView
from signalbox.program.errors import Conflict, Forbidden, InvalidRequest

LISTS: Final = ("jobs", "audit", "models", "keys", "accounts", "workers")
"""Lists that have views, by the first part of their URL."""
MOST_VIEWS: Final = 50
"""Of one operator."""
MOST_NAME: Final = 60
_MOST_FIELDS: Final = 20
_NOT_KEPT: Final = ("before", "after", "page")
"""Parameters of a list's URL that say where a page begins, which a view does not."""


def save(actor: Actor, of_list: str, name: str, query: str, *, is_shared: bool = False) -> SavedView:
    """Keep a list's filter under a name, or give the operator's view of that name this filter.

    query: as in the list's URL. Raises :class:`InvalidRequest` naming the field, and :class:`Conflict` beyond
    :data:`MOST_VIEWS`.
    """
    name = name.strip()
    asked = {"list": of_list, "query": query, "is_shared": is_shared}
    with act(actor, Act.VIEWS_SHARE if is_shared else Act.VIEWS_OWN, Target("view", name), asked=asked) as change:
        owner = _owner(actor)
        if of_list not in LISTS:
            raise InvalidRequest(f"list: one of {', '.join(LISTS)}.")
        if not 1 <= len(name) <= MOST_NAME:
            raise InvalidRequest(f"name: 1 to {MOST_NAME} characters.")
        before = SavedView.objects.select_for_update().filter(owner=owner, of_list=of_list, name=name).first()
        if before is None and SavedView.objects.filter(owner=owner).count() >= MOST_VIEWS:
            raise Conflict(f"You have {MOST_VIEWS} views; nobody has more. Remove one first.")
        if before is not None and before.is_shared and not is_shared:
            _require_sharer(actor)
        view = before or SavedView(owner=owner, of_list=of_list, name=name)
        if before is not None:
            change.before = {"query": before.query, "is_shared": before.is_shared}
        view.query, view.is_shared = kept(query), is_shared
        change.after = {"list": of_list, "query": view.query, "is_shared": is_shared}
        view.save()
    return view


def remove(actor: Actor, view_id: int) -> SavedView:
    """Remove an own view, or one that somebody shares. Raises :class:`NotFound`."""
    owner = _owner(actor)
    seen = SavedView.objects.filter(Q(owner=owner) | Q(is_shared=True), pk=view_id)
    view = one_of(seen, "There is no such view.")
    target = Target("view", view.name)
    with act(actor, Act.VIEWS_SHARE if view.is_shared else Act.VIEWS_OWN, target, asked={"state": "removed"}) as change:
        change.before = {"list": view.of_list, "query": view.query, "is_shared": view.is_shared}
        change.after = {"state": "removed"}
        SavedView.objects.filter(pk=view_id).delete()
    return view


def seen_by(user: User, of_list: str = "") -> QuerySet[SavedView]:
    """The operator's own views and those that are shared, by name; of one list or of all."""
    found = SavedView.objects.filter(Q(owner=user) | Q(is_shared=True)).select_related("owner")
    return found.filter(of_list=of_list) if of_list else found


def may_remove(actor: Actor, view: SavedView) -> bool:
    """Whether :func:`remove` would."""
    return may(actor, Act.VIEWS_SHARE) if view.is_shared else view.owner_id == getattr(actor.user, "pk", None)


def _owner(actor: Actor) -> User:
    if actor.user is None:
        raise InvalidRequest("A view belongs to an operator.")
    return actor.user


def _require_sharer(actor: Actor) -> None:
    if not may(actor, Act.VIEWS_SHARE):
        raise Forbidden("This view is shared, and your role may not share views.")


def kept(query: str) -> str:
    """The parameters of a URL that a view keeps, encoded anew. Raises :class:`InvalidRequest`."""
    if len(query) > MOST_LETTERS:
        raise InvalidRequest(f"query: at most {MOST_LETTERS} characters.")
    try:
        given = parse_qsl(query.lstrip("?"), max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise InvalidRequest(f"query: at most {_MOST_FIELDS} parameters.") from error
    found = urlencode([(name, value) for name, value in given if name not in _NOT_KEPT])
    if len(found) > MOST_LETTERS:
        raise InvalidRequest(f"query: at most {MOST_LETTERS} characters, encoded.")
    return found
