"""What lists have in common: rows of the audit in words, and the bar with their files. Built-in template tags."""

from collections.abc import Iterable
from typing import Any

from django import template
from django.template import Context
from django.utils.http import urlencode

from console.audit import words
from console.audit.models import AuditEntry
from console.exports.lists import EXPORTS
from console.keys.names import names_of

register = template.Library()


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
    """The files of a list, of exactly the filter shown. text: the filter's words, where the URL has them in parts."""
    given = context["request"].GET
    takes = EXPORTS[name].takes
    asked = {one: given.get(one, "").strip() for one in takes} if text is None else {"q": text}
    query = urlencode({one: value for one, value in asked.items() if value})
    return {"name": name, "query": f"?{query}" if query else ""}
