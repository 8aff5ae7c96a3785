"""The message after an act: that it is done in the console, whether the fleet knows of it, and its undo."""

import json
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.contrib.messages.storage.base import Message
from django.http import HttpRequest
from django.urls import reverse

from console.undo import services as undoing
from console.web.middleware import actor_of


def say(
    request: HttpRequest,
    done_words: str,
    why_unpublished: str,
    note: str = "",
    *,
    undo: str = "",
    fields: Mapping[str, str] | None = None,
) -> None:
    """done_words: the act, without a full stop. why_unpublished: empty once the fleet knows. note: what follows then.

    undo, fields: as :func:`done` has them.
    """
    if why_unpublished:
        said = f"{done_words}, and is not published to the fleet yet: {why_unpublished} {note}"
        done(request, said.rstrip(), undo=undo, fields=fields, level=messages.WARNING)
    else:
        said = f"{done_words}; workers and gateways know it. {note}"
        done(request, said.rstrip(), undo=undo, fields=fields)


def done(
    request: HttpRequest,
    text: str,
    *,
    undo: str = "",
    fields: Mapping[str, str] | None = None,
    level: int = messages.SUCCESS,
) -> None:
    """Say what is done, with a button that posts its inverse: ``fields`` to ``undo``.

    Without ``undo`` it is the one of the act that this request did, where that has an inverse.
    """
    if not undo and (entry := undoing.of_request(actor_of(request))) is not None:
        undo = reverse("undo", args=[entry.number])
    tags = json.dumps({"url": undo, "fields": dict(fields or {})}) if undo else ""
    messages.add_message(request, level, text, extra_tags=tags)


def undo_of(message: Message) -> dict[str, Any] | None:
    """``url`` and ``fields`` of the button beside a message, if it has one."""
    found: dict[str, Any] | None = json.loads(message.extra_tags) if message.extra_tags else None
    return found
