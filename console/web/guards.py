"""Restricts views to operators with a right."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, cast

from django.http import HttpRequest, HttpResponse

from console.accounts.acts import Act
from console.accounts.rights import authorize
from console.web.middleware import actor_of

Rest = ParamSpec("Rest")
View = Callable[Concatenate[HttpRequest, Rest], HttpResponse]


def sees(what: Act) -> Callable[[View[Rest]], View[Rest]]:
    """Restrict a page to operators with the right; others get a 403 page with the reason."""

    def wrap(view: View[Rest]) -> View[Rest]:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Rest.args, **kwargs: Rest.kwargs) -> HttpResponse:
            authorize(actor_of(request), what)
            return view(request, *args, **kwargs)

        return cast("View[Rest]", guarded)

    return wrap
