"""The message after an act: that it is done in the console, and whether the fleet knows of it."""

from django.contrib import messages
from django.http import HttpRequest


def say(request: HttpRequest, done: str, why_unpublished: str, note: str = "") -> None:
    """done: the act, without a full stop. why_unpublished: empty once the fleet knows. note: what follows then."""
    if why_unpublished:
        said = f"{done}, and is not published to the fleet yet: {why_unpublished} {note}"
        messages.warning(request, said.rstrip())
    else:
        messages.success(request, f"{done}; workers and gateways know it. {note}".rstrip())
