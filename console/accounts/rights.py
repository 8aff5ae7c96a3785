"""Who acts, and what they may do. Pages hide exactly what services refuse."""

from dataclasses import dataclass
from typing import Final

from console.accounts import scope
from console.accounts.acts import WORDS, Act
from console.accounts.models import OperatorToken, System, User
from console.accounts.scope import Place
from signalbox.program.errors import Forbidden

KEY: Final = "key:"
"""Names of actors that are API keys begin so."""

_CHANGE_NOTHING: Final = frozenset({Act.SYSTEM_READ_ONLY, Act.JOBS_PAYLOAD})
"""Allowed in read-only mode beside ``view`` acts: what switches it off, and what only reads."""


@dataclass(frozen=True)
class Actor:
    """Who acts, and from where. ``user`` None with ``is_system``: the console itself (commands, controller).

    key: public id of the API key whose owner acts through a gateway, who may do what is granted and nothing else.
    """

    user: User | None
    via: str = "web"
    address: str = ""
    request_id: str = ""
    is_system: bool = False
    key: str = ""
    granted: frozenset[Act] = frozenset()

    @property
    def name(self) -> str:
        """The name that the audit writes."""
        if self.key:
            return f"{KEY}{self.key}"
        return self.user.get_username() if self.user else f"system:{self.via}"

    @property
    def only_models(self) -> list[str]:
        """Names, or beginnings of names, of the models that this operator is limited to; empty: all."""
        return list(self.user.only_models) if self.user else []


def system_actor(via: str) -> Actor:
    """The console itself, acting through the command or program ``via``."""
    return Actor(user=None, via=via, is_system=True)


def authorize(
    actor: Actor, act: Act, target: object = None, *, revokes: bool = False, place: Place | None = None
) -> None:
    """Returns if ``actor`` may do ``act`` to ``target``. Raises :class:`Forbidden` that says why not.

    A target with an ``owner_id`` belongs to that user: ``tokens.own`` covers only one's own. revokes: the act ends a
    leaked key or token and does nothing else, so read-only mode allows it. place: what is acted on or seen, for who is
    limited to some models; None: the right in general.
    """
    if refusal := _refusal(actor, act, target, revokes=revokes, place=place):
        raise Forbidden(refusal, act=act.value)


def may(actor: Actor, act: Act, target: object = None, *, revokes: bool = False, place: Place | None = None) -> bool:
    """What :func:`authorize` would say; templates ask this."""
    return not _refusal(actor, act, target, revokes=revokes, place=place)


def _refusal(actor: Actor, act: Act, target: object, *, revokes: bool, place: Place | None) -> str:
    if actor.is_system:
        return ""
    user = actor.user
    if actor.key:
        if act not in actor.granted:
            return f"An API key may not {WORDS[act]}."
    elif user is None or not user.is_active:
        return "Log in first."
    elif not user.has_perm(act.permission):
        return f"Your role ({user.role or 'none'}) may not {WORDS[act]}."
    if user is not None and act is Act.TOKENS_OWN and isinstance(target, OperatorToken) and target.user_id != user.pk:
        return "This token belongs to somebody else."
    if user is not None and user.only_models and (beyond := scope.refusal(user.only_models, act, place)):
        return beyond
    if not (act.is_view or revokes or act in _CHANGE_NOTHING):
        system = System.current()
        if system.is_read_only:
            return f"The console is read-only. {system.message}".strip()
    return ""
