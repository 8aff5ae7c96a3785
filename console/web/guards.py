"""Restricts views to operators with a right."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, Final, ParamSpec, cast

from django.http import HttpRequest, HttpResponse

from console.accounts.acts import Act
from console.accounts.rights import authorize
from console.accounts.scope import Place
from console.web.middleware import actor_of

Rest = ParamSpec("Rest")
View = Callable[Concatenate[HttpRequest, Rest], HttpResponse]


_OF_MODELS: Final = (
    "", "live", "models", "jobs", "dead-letters", "deleted", "settings", "login", "confirm", "me", "find", "schema",
)  # fmt: skip
"""First words of the routes that show models, jobs, or one's own things; all others show what is beyond a limit."""
_BEYOND: Final = ("jobs/-/selections", "settings/users")
"""Those that do all the same."""


def place_of(request: HttpRequest) -> Place | None:
    """What a route is about, for who is limited to some models: one model, one job, or their lists (None)."""
    match = request.resolver_match
    if match is None:
        return None
    route, given = match.route.removeprefix("api/"), match.kwargs
    first = route.partition("/")[0]
    if "job_id" in given:
        return "job", str(given["job_id"])
    if first == "models" and "name" in given:
        return "model", str(given["name"])
    return None if first in _OF_MODELS and not route.startswith(_BEYOND) else ("page", first)


def sees(what: Act) -> Callable[[View[Rest]], View[Rest]]:
    """Restrict a page to operators with the right; others get a 403 page with the reason."""

    def wrap(view: View[Rest]) -> View[Rest]:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Rest.args, **kwargs: Rest.kwargs) -> HttpResponse:
            authorize(actor_of(request), what, place=place_of(request))
            return view(request, *args, **kwargs)

        return cast("View[Rest]", guarded)

    return wrap
