"""Pages of the list of models, searched and filtered, with a bound on the rows that one request reads.

What the database knows of a model is filtered there. How the fleet serves it is only known row by row: a page with such
a filter looks at the next :data:`SCAN` models, says how far it looked, and its cursor goes on there.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from django.db.models import Prefetch, Q, QuerySet

from console.accounts import scope
from console.board.conditions import Condition
from console.catalog import publishing
from console.catalog.models import ModelVersion, ServedModel
from console.fleet import serving
from signalbox.program.errors import InvalidRequest

SCAN: Final = 2000
"""Most models that one request looks at."""
PEOPLE: Final = "-"
"""In place of a repository: models that people added. No repository's name begins so."""
STATES: Final = {
    "ready": "ready",
    "loading": "loading",
    "fetching": "fetching",
    "cold": "not loaded",
    "waiting": "behind another",
    "failed": "cannot be served",
    "lost": "worker gone",
    "paused": "paused",
    "disabled": "disabled",
    "none": "nothing to serve",
    "pending": "being published",
    "error": "not published",
    "unknown": "not known now",
}
"""Words of :class:`Condition` that a list may be filtered by, and what they cover."""
_CHUNK: Final = 250


class ModelPage(NamedTuple):
    """models: by name, each with its condition. after: cursor of the next page, or empty at the end.

    is_cut: the page is not full, and more models have not been looked at.
    """

    models: list[tuple[ServedModel, Condition]]
    after: str
    is_cut: bool = False


def page(
    *, q: str = "", repository: str = "", state: str = "", after: str = "", size: int = 50, only: Sequence[str] = ()
) -> ModelPage:
    """One page. q: part of a name or a description. after: the page before's. only: names, or beginnings of names, of
    all that may be shown; empty: all. Raises :class:`InvalidRequest`.
    """
    if state and state not in STATES:
        raise InvalidRequest(f"state: one of {', '.join(STATES)}.")
    models, unpublished = _matching(q, repository, only), publishing.unpublished()
    found: list[tuple[ServedModel, Condition]] = []
    seen = 0
    while seen < SCAN:
        chunk = list(models.filter(name__gt=after)[: _CHUNK if state else size + 1])
        for model in chunk:
            condition = serving.condition(model, unpublished.get(model.name, ""))
            if state and condition.state != state:
                continue
            if len(found) == size:  # there is one more
                return ModelPage(found, found[-1][0].name)
            found.append((model, condition))
        if not state or len(chunk) < _CHUNK:
            return ModelPage(found, "")
        seen, after = seen + len(chunk), chunk[-1].name
    return ModelPage(found, after, is_cut=True)


def count(*, q: str = "", repository: str = "", only: Sequence[str] = ()) -> int:
    """How many models match, whatever their state."""
    return _matching(q, repository, only).count()


def _matching(q: str, repository: str, only: Sequence[str]) -> QuerySet[ServedModel]:
    found = ServedModel.objects.order_by("name").select_related("repository__listing", "config")
    if only:
        found = found.filter(scope.within(only, "name"))
    if q:
        found = found.filter(Q(name__icontains=q) | Q(description__icontains=q))
    if repository:
        found = found.filter(repository=None) if repository == PEOPLE else found.filter(repository__name=repository)
    # Signatures are most of a version's bytes, and none is listed.
    versions = Prefetch("versions", ModelVersion.objects.defer("signatures"))
    return found.prefetch_related(versions, "splits", "labels__version")
