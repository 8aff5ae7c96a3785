"""Operators, their tokens, failed logins, and the read-only switch."""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils import timezone
from django.utils.crypto import salted_hmac

from console.accounts.acts import PERMISSIONS


class Right(models.Model):
    """Carries the permissions, one per act. No table: Django only needs a content type to hang them on."""

    class Meta:
        """No rows, and no add/change/delete permissions of Django's own."""

        managed = False
        default_permissions = ()
        permissions = PERMISSIONS

    def __str__(self) -> str:
        return "rights"


class User(AbstractUser):
    """An operator. Deactivated, never deleted: the audit names them."""

    is_service = models.BooleanField(default=False, help_text="Used by programs; cannot log in.")
    has_shortcuts = models.BooleanField(default=True, help_text="Keys without Ctrl do something (WCAG 2.1.4).")
    session_epoch = models.PositiveIntegerField(
        default=0, help_text="Raised by one, it ends every session of this operator."
    )
    only_models = models.JSONField(
        default=list,
        blank=True,
        help_text="Names, or beginnings of names (team-*), of the models it is limited to; empty: all.",
    )

    class Meta(AbstractUser.Meta):
        """Our acts have their own permissions."""

        default_permissions = ()

    @property
    def role(self) -> str:
        """Name of the role group, or an empty text."""
        # All of them, which a list of operators has read at once; first() would ask again for each.
        return min((group.name for group in self.groups.all()), default="")

    def _get_session_auth_hash(self, secret: str | None = None) -> str:
        """What a session is bound to: Django's own hash of the password, and the epoch."""
        return str(
            salted_hmac(
                "console.accounts.session", f"{self.password}|{self.session_epoch}", secret=secret, algorithm="sha256"
            ).hexdigest()
        )


class Identity(models.Model):
    """Who an operator is at the sign-on's provider. Found by issuer and subject alone: names there may change hands."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="identity")
    issuer = models.CharField(max_length=255)
    subject = models.CharField(max_length=255)
    linked_at = models.DateTimeField(default=timezone.now)

    class Meta:
        """Internal."""

        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=("issuer", "subject"), name="one_operator_per_identity"),)

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"


class SecondFactor(models.Model):
    """An operator's authenticator app. Its secret is kept encrypted, its recovery codes as keyed hashes."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="second_factor")
    secret = models.CharField(max_length=255)
    last_step = models.BigIntegerField(default=0, help_text="Number of the last 30 seconds whose code was used.")
    recovery = models.JSONField(default=list, help_text="Hashes of the recovery codes that are left.")
    added_at = models.DateTimeField(default=timezone.now)

    class Meta:
        """Internal."""

        default_permissions = ()

    def __str__(self) -> str:
        return f"second factor of {self.user_id}"


class OperatorToken(models.Model):
    """A token for the REST API. Only its keyed hash is kept; it acts with its owner's rights."""

    id = models.CharField(primary_key=True, max_length=16)
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        """Newest first."""

        default_permissions = ()
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"

    def is_live(self, now: datetime) -> bool:
        """Neither revoked nor expired at ``now``."""
        return self.revoked_at is None and now < self.expires_at


class LoginFailure(models.Model):
    """A refused login, kept five minutes to slow the next one down."""

    account = models.CharField(max_length=150, db_index=True)
    address = models.CharField(max_length=45, db_index=True)
    at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        """Internal."""

        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.account} from {self.address}"


class System(models.Model):
    """The console's one row of switches."""

    is_read_only = models.BooleanField(default=False)
    message = models.CharField(max_length=200, blank=True)

    class Meta:
        """Internal."""

        default_permissions = ()

    def __str__(self) -> str:
        return "read-only" if self.is_read_only else "open"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """There is only row 1."""
        self.pk = 1
        super().save(*args, **kwargs)

    @classmethod
    def current(cls) -> "System":
        """The row, or its defaults where nothing was ever switched."""
        return cls.objects.filter(pk=1).first() or cls(pk=1)
