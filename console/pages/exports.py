"""Lists as files."""

from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.http import require_safe

from console.exports import lists
from console.web.middleware import actor_of

_OF_A_PAGE = ("before", "after", "page")
"""Where a page of the list begins: a file has all of them."""


@require_safe
def download(request: HttpRequest, file: str) -> HttpResponseBase:
    """The file of what the list shows with this filter, all pages of it."""
    given = {name: request.GET[name].strip() for name in request.GET if name not in _OF_A_PAGE}
    given = {name: value for name, value in given.items() if value}
    return lists.download(request, actor_of(request), file, given)
