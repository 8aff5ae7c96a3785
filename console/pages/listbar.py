"""What lists have in common: rows of the audit in words, and the bar with their files. Built-in template tags."""

from collections.abc import Iterable
from typing import Any, Final

from django import template
from django.template import Context
from django.utils.http import urlencode

from console.audit import words
from console.audit.models import AuditEntry
from console.exports.lists import EXPORTS
from console.keys.names import names_of
from console.views import services as views
from console.web.middleware import actor_of
from signalbox.program.errors import InvalidRequest

register = template.Library()
_SHOWN: Final = 30
"""Views above a list."""


@register.simple_tag
def in_words(entries: Iterable[AuditEntry]) -> list[dict[str, Any]]:
    """Each row of the audit with its act, target and changes in words; ids by name."""
    rows = list(entries)
    names = names_of(words.ids(rows))
    return [
        {
            "entry": entry,
            "act": words.heading(entry.act),
            "target": names.get(entry.target, entry.target),
            "changes": list(words.changes(entry, names)),
        }
        for entry in rows
    ]


@register.inclusion_tag("partials/list_bar.html", takes_context=True)
def list_bar(context: Context, name: str, text: str | None = None) -> dict[str, Any]:
    """The views of a list, and its files of exactly the filter shown.

    text: the filter's words, where the URL has them in parts; empty for none.
    """
    request = context["request"]
    takes = EXPORTS[name].takes
    asked = {one: request.GET.get(one, "").strip() for one in takes} if text is None else {"q": text}
    query = urlencode({one: value for one, value in asked.items() if value})
    try:
        shown = views.kept(request.GET.urlencode())
    except InvalidRequest:  # the page itself says that its filter is too long
        shown = ""
    found = [(view, view.query == shown) for view in views.seen_by(request.user, name)[:_SHOWN]]
    current = next((view for view, is_current in found if is_current), None)
    return {
        "name": name,
        "query": f"?{query}" if query else "",
        "asked": shown,
        "views": found,
        "current": current,
        "may_remove": current is not None and views.may_remove(actor_of(request), current),
        "has_files": not context.get("error"),
        "may": context["may"],
        "csrf_token": context.get("csrf_token"),
    }
