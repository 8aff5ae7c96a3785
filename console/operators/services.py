"""Acts on operators, their tokens and the read-only switch."""

import secrets
from datetime import timedelta
from typing import Final

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from console.accounts import sessions, tokens
from console.accounts.acts import ROLES, Act
from console.accounts.models import Identity, OperatorToken, System, User
from console.accounts.rights import Actor, authorize, may
from console.audit.acts import Target, act, check
from console.database import one_of
from console.operators import throttle
from signalbox.program.errors import Conflict, InvalidRequest
from signalbox.wire.names import MODEL_NAME

TOKEN_DAYS_MAX: Final = 366
MODELS_MAX: Final = 100
"""Names of models that one operator is limited to."""


def listed() -> QuerySet[User]:
    """Every operator by name, with its role."""
    return User.objects.select_related("identity", "second_factor").prefetch_related("groups").order_by("username")


def find(username: str) -> User:
    """An operator. Raises :class:`NotFound`."""
    return one_of(User.objects.filter(username=username), f"There is no operator {username[:150]!r}.")


def create_user(actor: Actor, username: str, password: str, role: str, *, is_service: bool = False) -> User:
    """A new operator with one role. Raises :class:`InvalidRequest` for a weak password or unknown role."""
    target, asked = Target("user", username), {"role": role, "is_service": is_service}
    check(actor, Act.USERS_MANAGE, target, asked=asked)
    hashed = make_password(password)  # before the act: no writer waits for a hash
    with act(actor, Act.USERS_MANAGE, target, asked=asked):
        if User.objects.filter(username__iexact=username).exists():
            raise Conflict(f"There is an operator {username!r} already.")
        user = User(username=username, is_service=is_service)
        _check_user(user, password)
        user.password = hashed
        user.save()
        _give_role(user, role)
    return user


def set_role(actor: Actor, username: str, role: str, *, reason: str = "") -> User:
    """Change an operator's role. Raises :class:`Conflict` if no admin would be left."""
    with act(actor, Act.USERS_MANAGE, Target("user", username), asked={"role": role}, reason=reason) as change:
        user = _user(username)
        change.before = {"role": user.role}
        if Identity.objects.filter(user=user).exists():
            raise Conflict(f"{username}'s role comes from the provider at each sign-on. Change their groups there.")
        _give_role(user, role)
        _keep_an_admin()
        end_sessions(user)
    return user


def set_models(actor: Actor, username: str, models: list[str], *, reason: str = "") -> User:
    """Limit an operator to these models, names or beginnings of names like ``team-*``; none: to none of them.

    Their sessions end. Raises :class:`InvalidRequest` for what names no model, and :class:`Conflict` if no admin of all
    models would be left.
    """
    with act(actor, Act.USERS_MANAGE, Target("user", username), asked={"models": models}, reason=reason) as change:
        user = _user(username)
        change.before = {"models": user.only_models}
        if len(models) > MODELS_MAX or len(set(models)) < len(models):
            raise InvalidRequest(f"models: at most {MODELS_MAX}, each once.")
        if wrong := [name for name in models if not MODEL_NAME.match(name.removesuffix("*"))]:
            raise InvalidRequest(f"models: {wrong[0][:60]!r} begins no model's name; write it like team-*.")
        user.only_models = models
        user.save(update_fields=["only_models"])
        _keep_an_admin()
        end_sessions(user)
    return user


def set_active(actor: Actor, username: str, *, is_active: bool, reason: str = "") -> User:
    """Let an operator in or out. Raises :class:`Conflict` if no admin would be left."""
    asked = {"is_active": is_active}
    with act(actor, Act.USERS_MANAGE, Target("user", username), asked=asked, reason=reason) as change:
        user = _user(username)
        change.before = {"is_active": user.is_active}
        user.is_active = is_active
        user.save()
        _keep_an_admin()
        end_sessions(user)
    return user


def create_token(actor: Actor, name: str, days: int) -> tuple[OperatorToken, str]:
    """A token for the actor, and its text, shown once."""
    if actor.user is None:
        raise InvalidRequest("A token belongs to an operator.")
    text, token_id, digest = tokens.mint()
    with act(actor, Act.TOKENS_OWN, Target("token", token_id), asked={"name": name.strip(), "days": days}):
        if not name.strip() or not 1 <= days <= TOKEN_DAYS_MAX:
            raise InvalidRequest(f"Give the token a name and 1 to {TOKEN_DAYS_MAX} days.")
        token = OperatorToken.objects.create(
            id=token_id,
            user=actor.user,
            name=name.strip()[:100],
            digest=digest,
            expires_at=timezone.now() + timedelta(days=days),
        )
    return token, text


def revoke_token(actor: Actor, token_id: str) -> OperatorToken:
    """End a token: the actor's own, or with the right to it that of any operator."""
    token = one_of(OperatorToken.objects.filter(pk=token_id), "There is no such token.")
    what = Act.TOKENS_MANAGE if may(actor, Act.TOKENS_MANAGE, revokes=True) else Act.TOKENS_OWN
    with act(actor, what, Target("token", token_id, token, revokes=True), asked={"state": "revoked"}):
        if token.revoked_at is not None:
            raise Conflict("This token is revoked already.")
        token.revoked_at = timezone.now()
        token.save()
    return token


def switch_read_only(actor: Actor, *, is_read_only: bool, message: str = "") -> System:
    """Refuse every change but this one, with a message, until it is switched back."""
    asked = {"is_read_only": is_read_only}
    with act(actor, Act.SYSTEM_READ_ONLY, Target("system", "console"), asked=asked, reason=message) as change:
        system = System.current()
        change.before = {"is_read_only": system.is_read_only}
        system.is_read_only, system.message = is_read_only, message[:200]
        system.save()
    return system


def change_own_password(actor: Actor, old: str, new: str, *, ends_tokens: bool = False) -> int:
    """A new password for the actor; returns how many of the actor's API tokens go on. ends_tokens: none does.

    Raises :class:`InvalidRequest` if the old is wrong or the new weak, and as the login's throttle: a borrowed session
    must not allow guessing here either.
    """
    user = actor.user
    if user is None:
        raise InvalidRequest("This needs a login.")
    # Both before the act: its transaction may be rolled back, and no writer waits for a hash.
    is_right = throttle.judge(user.username, actor.address, lambda: user.check_password(old))
    hashed = make_password(new) if is_right else ""
    asked = {"password": "changed", "tokens": "ended" if ends_tokens else "kept"}
    with act(actor, Act.TOKENS_OWN, Target("user", user.username, revokes=True), asked=asked) as change:
        if not is_right:
            raise InvalidRequest("The old password is not right.")
        _check_user(user, new)
        user.password = hashed
        user.save()
        end_sessions(user)
        now = timezone.now()
        live = OperatorToken.objects.filter(user=user, revoked_at=None, expires_at__gt=now)
        ended = list(live.values_list("pk", flat=True)) if ends_tokens else []
        OperatorToken.objects.filter(pk__in=ended).update(revoked_at=now)
        change.after = {"password": "changed", "tokens_ended": ended}
    return live.count()


def set_shortcuts(actor: Actor, *, has_shortcuts: bool) -> User:
    """Have single keys do something in the actor's pages, or nothing."""
    if actor.user is None:
        raise InvalidRequest("This needs a login.")
    asked = {"has_shortcuts": has_shortcuts}
    with act(actor, Act.VIEWS_OWN, Target("user", actor.user.username), asked=asked) as change:
        user = _user(actor.user.username)
        change.before = {"has_shortcuts": user.has_shortcuts}
        user.has_shortcuts = has_shortcuts
        user.save(update_fields=["has_shortcuts"])
    return user


def confirm_password(actor: Actor, password: str) -> None:
    """Check the actor's own password. Raises :class:`InvalidRequest` if it is wrong, and as the login's throttle."""
    user = actor.user
    if user is None:
        raise InvalidRequest("This needs a login.")
    if not throttle.judge(user.username, actor.address, lambda: user.check_password(password)):
        raise InvalidRequest("The password is not right.")


def first_admin(actor: Actor, username: str, password: str) -> str | None:
    """Make the first admin. Returns the password if one was made up here, None if there is an admin already."""
    authorize(actor, Act.USERS_MANAGE)
    if User.objects.filter(groups__name="admin", is_active=True).exists():
        return None
    chosen = password or secrets.token_urlsafe(15)
    create_user(actor, username, chosen, "admin")
    return chosen


def end_sessions(user: User) -> None:
    """End this operator's sessions: each has to log in again, with the present rights."""
    user.session_epoch += 1
    user.save(update_fields=["session_epoch"])
    transaction.on_commit(lambda: sessions.doubted.send(sender=None, user_id=user.pk))


def _user(username: str) -> User:
    return one_of(User.objects.select_for_update().filter(username=username), f"There is no operator {username!r}.")


def _give_role(user: User, role: str) -> None:
    if role not in ROLES:
        raise InvalidRequest(f"role: one of {', '.join(ROLES)}.")
    user.groups.set([Group.objects.get(name=role)])


def _keep_an_admin() -> None:
    if not User.objects.filter(groups__name="admin", is_active=True, only_models=[]).exists():
        raise Conflict("This is the last admin of all models; make another first.")


def _check_user(user: User, password: str) -> None:
    try:
        user.full_clean(exclude=["password"])
        validate_password(password, user)
    except ValidationError as error:
        raise InvalidRequest(" ".join(error.messages)) from error
