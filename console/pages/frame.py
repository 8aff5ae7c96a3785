"""Template context of every page."""

from typing import Any

from django.http import HttpRequest

from console.accounts.acts import Act
from console.accounts.models import System
from console.accounts.rights import Actor, may
from console.feed.programs import CONTROLLER
from console.feed.running import running
from console.web.middleware import actor_of


class Rights:
    """``{{ may.keys_manage }}`` in a template: exactly what the service would answer, asked once a page."""

    def __init__(self, actor: Actor, *, revokes: bool = False) -> None:
        self._actor, self._revokes = actor, revokes
        self._known: dict[str, bool] = {}

    def __getitem__(self, codename: str) -> bool:
        if codename not in self._known:
            self._known[codename] = may(self._actor, Act(codename.replace("_", ".", 1)), revokes=self._revokes)
        return self._known[codename]


def frame(request: HttpRequest) -> dict[str, Any]:
    """``refused``: a form to be shown again. ``may`` and, for what ends something that has leaked, ``may_revoke``;
    ``is_read_only`` and its message, ``is_nats_away``, ``is_controller_stopped``.
    """
    if not getattr(request, "user", None) or not request.user.is_authenticated:
        return {}
    system = System.current()
    return {
        "refused": getattr(request, "refused", None),
        "may": Rights(actor_of(request)),
        "may_revoke": Rights(actor_of(request), revokes=True),
        "is_read_only": system.is_read_only,
        "read_only_message": system.message,
        "is_nats_away": running.feed is not None and running.feed.is_blind,
        "is_controller_stopped": running.stopped_since(CONTROLLER) is not None,
    }
