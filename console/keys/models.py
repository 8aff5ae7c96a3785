"""API keys as the console keeps them. The secret is nowhere: only its keyed hash."""

from datetime import datetime, timedelta

from django.db import models
from django.utils import timezone

from signalbox import messages


class ApiKey(models.Model):
    """One key of a consumer. id is its public part, safe to show and to log.

    tenant: the first key of the line of rotations this one is in, empty = itself; what any of them submits belongs
    to it. networks: CIDR blocks, empty = everywhere. pepper: which one it was made under (``keys.pepper_id``).
    last_used_at: to the minute.
    """

    id = models.CharField(primary_key=True, max_length=32)
    name = models.CharField(max_length=100)
    owner = models.CharField(max_length=150)
    hmac = models.CharField(max_length=128)
    pepper = models.CharField(max_length=20, default="1")
    scopes = models.JSONField(default=list)
    models_allowed = models.JSONField(default=list)
    networks = models.JSONField(default=list)
    tenant = models.CharField(max_length=32, blank=True)
    rotated_from = models.ForeignKey(
        "self", null=True, on_delete=models.PROTECT, related_name="successors"
    )
    last_used_at = models.DateTimeField(null=True)
    rate = models.PositiveIntegerField(default=0)
    per_s = models.PositiveIntegerField(default=1)
    quota = models.PositiveBigIntegerField(default=0)
    quota_window_s = models.PositiveIntegerField(default=86_400)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.CharField(max_length=150, blank=True)
    revoked_reason = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.CharField(max_length=150)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        """Newest first."""

        default_permissions = ()
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"

    def state(self, now: datetime | None = None) -> str:
        """``active``, ``expired`` or ``revoked``."""
        if self.revoked_at is not None:
            return "revoked"
        at = now or timezone.now()
        return "expired" if self.expires_at is not None and at >= self.expires_at else "active"

    @property
    def tenant_id(self) -> str:
        """Who owns the jobs submitted with it."""
        return self.tenant or self.pk

    @property
    def expires_soon(self) -> bool:
        """Active, and ends within fourteen days."""
        return (
            self.expires_at is not None
            and self.state() == "active"
            and self.expires_at - timezone.now() < timedelta(days=14)
        )

    def document(self) -> messages.ApiKey:
        """What gateways get."""
        return messages.ApiKey(
            id=self.id, name=self.name, hmac=self.hmac, pepper=self.pepper,
            scopes=tuple(self.scopes), models=tuple(self.models_allowed),
            rate=self.rate, per_s=self.per_s, quota=self.quota, quota_window_s=self.quota_window_s,
            expires_at=self.expires_at.timestamp() if self.expires_at else None,
            revoked_at=self.revoked_at.timestamp() if self.revoked_at else None,
            updated_at=self.updated_at.timestamp(), tenant=self.tenant,
            networks=tuple(self.networks),
        )  # fmt: skip
