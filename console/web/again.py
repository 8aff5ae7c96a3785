"""A form that was refused is shown again: on the page it stands on, with what was typed and why, else by itself.

One way for every form whose view leaves the refusal to :class:`console.web.middleware.ErrorPages`. Nothing that the
form's page does not have is needed of it: ``js/refused.js`` puts the values back into its fields.
"""

import copy
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.urls import resolve
from django.utils.datastructures import MultiValueDict

from console.web import problems
from signalbox.program.errors import SignalboxError, meaning

SLIP: Final = "opened-while-confirmed"
"""Name of the field that proves how fresh the password was when a form was shown."""


class Refused(NamedTuple):
    """A form that was refused. url: it was sent to. page: it stands on, empty where that is not known.

    field: that the reason is about, or empty. has_file: a file was sent with it, which cannot be shown again.
    """

    url: str
    page: str
    fields: list[tuple[str, str]]
    text: str
    field: str
    has_file: bool

    @property
    def data(self) -> dict[str, Any]:
        """For the script."""
        return self._asdict()


def carried(request: HttpRequest) -> Iterator[tuple[str, str]]:
    """Every field of the form but its secrets."""
    for name, values in request.POST.lists():
        if name not in {"csrfmiddlewaretoken", SLIP} and "password" not in name and name not in {"old", "new"}:
            yield from ((name, value) for value in values)


def refused(request: HttpRequest, error: SignalboxError, page: str) -> Refused | None:
    """The form of this request; None where it is not one of a page. page: where it stands, as far as that is known."""
    if request.method != "POST" or problems.is_for_programs(request) or "json" in request.headers.get("Accept", ""):
        return None
    fields = list(carried(request))
    name, _, rest = error.public_message.partition(": ")
    is_about = bool(rest) and name in dict(fields)
    text = rest if is_about else error.public_message
    return Refused(request.path, page, fields, text, name if is_about else "", bool(request.FILES))


def shown(request: HttpRequest, form: Refused, error: SignalboxError) -> HttpResponse | None:
    """The page that the form stands on, with it; None where that page cannot be shown now."""
    if not form.page or not request.user.is_authenticated:
        return None
    parts = urlsplit(form.page)
    page = copy.copy(request)
    page.method, page.path, page.path_info = "GET", parts.path, parts.path
    page.META = {**request.META, "REQUEST_METHOD": "GET", "QUERY_STRING": parts.query}
    values: dict[str, Any] = {"GET": QueryDict(parts.query), "_post": QueryDict(), "_files": MultiValueDict()}
    vars(page).update(values, refused=form)
    try:
        page.resolver_match = match = resolve(parts.path)
        response: HttpResponse = match.func(page, *match.args, **match.kwargs)
    except (SignalboxError, Http404):
        return None
    if response.status_code != 200:
        return None
    if isinstance(response, TemplateResponse):
        response.render()
    response.status_code = meaning(error.code).http
    return response
