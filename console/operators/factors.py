"""The second factor of local logins: codes of an authenticator app (TOTP, RFC 6238), and recovery codes for a lost one.

The secret is kept encrypted with a key made from the console's secret key, and shown only while it is added. Wrong
codes slow the next one down as wrong passwords do, per operator and wherever they come from: who gets as far knows the
password, and entering that again clears no wrong code.
"""

import base64
import hashlib
import hmac
import json
import secrets
import time
from typing import Final

import pyotp
import segno
from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.db import transaction

from console.accounts.acts import Act
from console.accounts.models import Identity, SecondFactor, User
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.database import one_of
from console.operators import services, throttle
from signalbox.program.errors import Conflict, InvalidRequest

RECOVERY_CODES: Final = 10
ADDING_S: Final = 900
"""How long an operator may take to scan a new secret and enter its first code."""
_STEP_S: Final = 30
_NEAR: Final = (0, -1, 1)
"""Steps whose code is right: clocks differ, and people type."""
_WRONG: Final = "This code is not right. Wait for the app's next one, and check that its clock is."


def has(user: User) -> bool:
    """Whether logins of this operator ask for a code."""
    return SecondFactor.objects.filter(user=user).exists()


def is_wanted(user: User) -> bool:
    """Whether a login of this operator, who has no second factor yet, has to add one first."""
    return bool(settings.CONSOLE.second_factor == "required") and not has(user)


def offer(user: User) -> str:
    """A new secret for this operator, sealed: nobody else reads it, and it is good for a quarter of an hour."""
    return _box().encrypt(json.dumps([user.pk, pyotp.random_base32()]).encode()).decode()


def offered(user: User, sealed: str) -> str:
    """The secret of an offer. Raises :class:`InvalidRequest` for one of somebody else's or of long ago."""
    try:
        owner, secret = json.loads(_box().decrypt(sealed[:1000].encode(), ttl=ADDING_S))
    except (InvalidToken, UnicodeEncodeError):
        owner, secret = None, ""
    if owner != user.pk:
        raise InvalidRequest("This secret is no longer offered. Open the page again and scan the new one.")
    return str(secret)


def picture(user: User, secret: str) -> str:
    """The secret as a QR code, an SVG to put into a page."""
    uri = pyotp.TOTP(secret).provisioning_uri(name=user.username, issuer_name="Signalbox")
    drawn = segno.make(uri, error="m", micro=False)
    return str(drawn.svg_inline(scale=4, border=3, dark="#000", light="#fff", svgclass="qr", lineclass=None))


def add(actor: Actor, sealed: str, code: str) -> list[str]:
    """Ask for codes at this operator's logins from now on; returns the recovery codes, which nothing shows again.

    Their other sessions end. Raises :class:`InvalidRequest` for a wrong code, and as the login's throttle.
    """
    user = _own(actor)
    secret = offered(user, sealed)
    step = _step_of(secret, code, after=0)
    if not throttle.judge(*_counted(user), lambda: step is not None):
        step = None
    codes = [f"{_part()}-{_part()}" for _ in range(RECOVERY_CODES)]
    with act(actor, Act.TOKENS_OWN, _target(user), asked={"second_factor": "added"}):
        if step is None:
            raise InvalidRequest(_WRONG)
        if Identity.objects.filter(user=user).exists():
            raise Conflict("Your provider asks for its own second factor.")
        if has(user):
            raise Conflict("You have a second factor already; remove it first.")
        SecondFactor.objects.create(
            user=user,
            secret=_box().encrypt(secret.encode()).decode(),
            last_step=step,
            recovery=[_digest(code) for code in codes],
        )
        services.end_sessions(user)
    return codes


def check(actor: Actor, code: str) -> None:
    """Use up a code of the app, or a recovery code. Raises :class:`InvalidRequest`, and as the login's throttle."""
    user = _own(actor)
    if not throttle.judge(*_counted(user), lambda: _used(user, code) or _recovered(actor, user, code)):
        raise InvalidRequest(_WRONG)


def remove(actor: Actor) -> None:
    """End the actor's own second factor."""
    user = _own(actor)
    with act(actor, Act.TOKENS_OWN, Target("user", user.username), asked={"second_factor": "removed"}):
        _factor(user).delete()


def remove_of(actor: Actor, username: str, *, reason: str = "") -> User:
    """End another's second factor: of who lost the app and the recovery codes. Their sessions end."""
    asked = {"second_factor": "removed"}
    with act(actor, Act.USERS_MANAGE, Target("user", username), asked=asked, reason=reason):
        user = one_of(User.objects.filter(username=username), f"There is no operator {username!r}.")
        _factor(user).delete()
        services.end_sessions(user)
    return user


def _factor(user: User) -> SecondFactor:
    return one_of(SecondFactor.objects.filter(user=user), f"{user.username} has no second factor.")


def _used(user: User, code: str) -> bool:
    """Whether this is a code of the app that was not used before, which it is now."""
    found = SecondFactor.objects.filter(user=user).first()
    if found is None:
        return False
    try:
        secret = _box().decrypt(found.secret.encode()).decode()
    except InvalidToken:  # another secret key: the recovery codes are lost with it
        return False
    step = _step_of(secret, code, after=found.last_step)
    if step is None:
        return False
    return bool(SecondFactor.objects.filter(pk=found.pk, last_step__lt=step).update(last_step=step))


def _recovered(actor: Actor, user: User, code: str) -> bool:
    """Whether this is a recovery code that is left, which it is no longer."""
    digest = _digest(code)
    if not SecondFactor.objects.filter(user=user, recovery__isnull=False).exists():
        return False
    with transaction.atomic():
        found = SecondFactor.objects.select_for_update().get(user=user)
        left = [kept for kept in found.recovery if not hmac.compare_digest(kept, digest)]
        if len(left) == len(found.recovery):
            return False
        asked = {"second_factor": "recovery code used", "left": len(left)}
        with act(actor, Act.TOKENS_OWN, _target(user), asked=asked):
            found.recovery = left
            found.save(update_fields=["recovery"])
    return True


def _step_of(secret: str, code: str, *, after: int) -> int | None:
    """The step near now, and after the last used, whose code this is."""
    asked, now = "".join(code[:20].split()), int(time.time()) // _STEP_S
    codes = pyotp.TOTP(secret, interval=_STEP_S)
    for step in (now + near for near in _NEAR):
        if hmac.compare_digest(codes.generate_otp(step).encode(), asked.encode()) and step > after:
            return step
    return None


def _own(actor: Actor) -> User:
    if actor.user is None:
        raise InvalidRequest("This needs a login.")
    return actor.user


def _target(user: User) -> Target:
    # It lets in or makes safer and changes nothing else, so read-only mode allows it.
    return Target("user", user.username, revokes=True)


def _counted(user: User) -> tuple[str, str]:
    return f"code:{user.pk}", f"code:{user.pk}"


def _part() -> str:
    return base64.b32encode(secrets.token_bytes(5)).decode().lower()[:5]


def _digest(code: str) -> str:
    """Keyed hash of a recovery code, however it is written; a fast one is right for a random text."""
    text = "".join(letter for letter in code[:40].lower() if letter.isalnum())
    return hmac.new(_key(b"recovery codes"), text.encode(), hashlib.sha256).hexdigest()


def _box() -> Fernet:
    return Fernet(base64.urlsafe_b64encode(_key(b"second factors")))


def _key(purpose: bytes) -> bytes:
    return hashlib.sha256(purpose + b"\0" + settings.SECRET_KEY.encode()).digest()
