"""Operators that a provider says who they are. Each is one issuer and subject, whatever name these have today."""

from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError

from console.accounts.acts import ROLES, Act
from console.accounts.models import Identity, User
from console.accounts.rights import system_actor
from console.audit.acts import Target, act
from console.operators import services
from signalbox.program.errors import Conflict, Forbidden, InvalidRequest

_ACTOR: Final = system_actor("sign-on")
_MOST: Final = 255
_VALUES: Final = 2000
"""Values of the role claim that are looked at."""


def operator_of(claims: Mapping[str, Any]) -> User:
    """The operator behind checked claims, with the role that they give now; a new one where none is linked.

    Raises :class:`Forbidden` where they give no role, or the operator is locked out; :class:`Conflict` where a new
    operator's name is taken.
    """
    issuer, subject = settings.CONSOLE.oidc_issuer, str(claims["sub"])
    if not subject or len(subject) > _MOST:
        raise Forbidden("Your provider gave no usable subject for you.")
    _check_domain(claims)
    role = role_in(claims)
    known = User.objects.filter(identity__issuer=issuer, identity__subject=subject).first()
    if known is not None:
        return _known(known, role)
    if not role:
        raise _without_role()
    return _new(issuer, subject, _name_in(claims), role)


def is_operator(claims: Mapping[str, Any], user: User) -> bool:
    """Whether checked claims are of this very operator."""
    linked = Identity.objects.filter(user=user, issuer=settings.CONSOLE.oidc_issuer)
    return linked.filter(subject=str(claims["sub"])).exists()


def signs_on(user: User) -> bool:
    """Whether this operator has a provider and no password here."""
    return Identity.objects.filter(user=user).exists()


def role_in(claims: Mapping[str, Any]) -> str:
    """The highest role that the claims give, or an empty text."""
    found = _claim(claims, settings.CONSOLE.oidc_role_claim)
    values = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    given = settings.CONSOLE.role_of_value
    roles = {given[value] for value in values[:_VALUES] if isinstance(value, str) and value in given}
    return next((role for role in reversed(ROLES) if role in roles), "")


def _known(user: User, role: str) -> User:
    if not user.is_active:
        raise Forbidden("You are locked out of this console. An admin can let you in again.")
    if user.role != role:  # also to none: tokens and sessions of theirs may do nothing more
        _follow(user.pk, role)
    if not role:
        raise _without_role()
    return User.objects.get(pk=user.pk)


def _follow(user_id: int, role: str) -> None:
    name = User.objects.values_list("username", flat=True).get(pk=user_id)
    reason = "The provider's groups have changed."
    with act(_ACTOR, Act.USERS_MANAGE, Target("user", name), asked={"role": role}, reason=reason) as change:
        user = User.objects.select_for_update().get(pk=user_id)
        change.before = {"role": user.role}
        user.groups.set(Group.objects.filter(name=role))
        services.end_sessions(user)


def _new(issuer: str, subject: str, name: str, role: str) -> User:
    asked = {"role": role, "issuer": issuer, "subject": subject}
    with act(_ACTOR, Act.USERS_MANAGE, Target("user", name), asked=asked, reason="First sign-on.") as change:
        if User.objects.filter(username__iexact=name).exists():
            raise Conflict(
                f"There is an operator {name!r} already, who is not you at this provider. Have your name there changed,"
                " or an admin names operators by another claim (SIGNALBOX_CONSOLE_OIDC_NAME_CLAIM)."
            )
        user = User(username=name)
        user.set_unusable_password()
        try:
            user.full_clean(exclude=["password"])
        except ValidationError as error:
            raise InvalidRequest(f"{name[:60]!r} cannot be an operator's name: {' '.join(error.messages)}") from error
        user.save()
        user.groups.set([Group.objects.get(name=role)])
        Identity.objects.create(user=user, issuer=issuer, subject=subject)
        change.after = asked
    return user


def _name_in(claims: Mapping[str, Any]) -> str:
    what = settings.CONSOLE.oidc_name_claim
    name = _claim(claims, what)
    if not isinstance(name, str) or not name.strip():
        raise InvalidRequest(
            f"Your provider says no {what}, which names operators here. An admin adds the scope that has it"
            " (SIGNALBOX_CONSOLE_OIDC_SCOPES) or takes another claim (SIGNALBOX_CONSOLE_OIDC_NAME_CLAIM)."
        )
    return name.strip()


def _check_domain(claims: Mapping[str, Any]) -> None:
    domains = {domain.casefold() for domain in settings.CONSOLE.oidc_email_domains}
    if not domains:
        return
    email = claims.get("email")
    domain = email.rpartition("@")[2].casefold() if isinstance(email, str) else ""
    if domain not in domains or claims.get("email_verified") is not True:
        raise Forbidden("This console lets in verified e-mail addresses of some domains alone, and yours is none.")


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, or by a path with dots into one."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _without_role() -> Forbidden:
    return Forbidden(
        "You signed on, but none of your groups has a role in this console. Ask whoever gives out these groups at your"
        " provider, or an admin here."
    )
