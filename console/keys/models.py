"""API keys and their accounts. The secret of a key is not stored, only its keyed hash."""

from datetime import datetime, timedelta
from typing import Final

import msgspec
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone

from signalbox.wire import keydocs, messages

LIMITS: Final = ("rate", "per_s", "quota", "quota_window_s")
"""Fields that a key's row, its grant and its document share."""


class Account(models.Model):
    """A customer: owns the jobs that any of its keys submitted. What it may use and hold counts for all its keys.

    id: what jobs carry as ``account_id``; of an account that was made with a key, that key's id. models_allowed:
    names or ``prefix*``, empty = all that are open. stored_bytes, waiting, idempotency_keys, result_bytes, queue_bytes:
    what it may hold at once, and what 0 is: :class:`signalbox.wire.keydocs.Share`.
    webhook_hosts: that a job of it may name for a webhook of its own (:mod:`console.outbound.hosts`).
    disabled_at: since when its keys are refused, until it is enabled. deleted_at: its keys have ended for good, its
    name is free again, and its row stays for its jobs and the audit. cancels_jobs: its open jobs are being cancelled.
    """

    id = models.CharField(primary_key=True, max_length=32)
    name = models.CharField(max_length=100)
    note = models.CharField(max_length=500, blank=True)
    models_allowed = models.JSONField(default=list)
    stored_bytes = models.PositiveBigIntegerField(default=0)
    waiting = models.PositiveIntegerField(default=0)
    idempotency_keys = models.PositiveIntegerField(default=0)
    result_bytes = models.PositiveBigIntegerField(default=0)
    queue_bytes = models.PositiveBigIntegerField(default=0)
    webhook_hosts = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.CharField(max_length=150)
    updated_at = models.DateTimeField(default=timezone.now)
    disabled_at = models.DateTimeField(null=True)
    disabled_by = models.CharField(max_length=150, blank=True)
    deleted_at = models.DateTimeField(null=True)
    deleted_by = models.CharField(max_length=150, blank=True)
    cancels_jobs = models.BooleanField(default=False)

    class Meta:
        """Newest first. Two names may not differ in capitals alone (SQLite: of ASCII)."""

        default_permissions = ()
        ordering = ("-created_at",)
        constraints = (
            models.UniqueConstraint(Lower("name"), condition=Q(deleted_at=None), name="account_name_is_its_own"),
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"

    @property
    def state(self) -> str:
        """``active``, ``disabled`` or ``deleted``."""
        if self.deleted_at is not None:
            return "deleted"
        return "active" if self.disabled_at is None else "disabled"

    @property
    def share(self) -> keydocs.Share:
        """What gateways let it hold."""
        return msgspec.convert(self, keydocs.Share, from_attributes=True)


class ApiKey(models.Model):
    """One key of a consumer. id is its public part, safe to show and to log.

    account: what it submits belongs to it; a key stays in its account, and so does its replacement. queues_allowed:
    names of its account's queues, empty = all of them. networks: CIDR blocks, empty = everywhere. pepper: which one it
    was made under (``keys.pepper_id``). last_used_at: to the minute. lifetime: how long it was made for, whatever has
    ended it earlier; its replacement gets as much. None = for ever. replaced_at: since when another has its name.
    """

    id = models.CharField(primary_key=True, max_length=32)
    name = models.CharField(max_length=100)
    owner = models.CharField(max_length=150)
    hmac = models.CharField(max_length=128)
    pepper = models.CharField(max_length=20, default="1")
    scopes = models.JSONField(default=list)
    models_allowed = models.JSONField(default=list)
    queues_allowed = models.JSONField(default=list)
    networks = models.JSONField(default=list)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="keys")
    rotated_from = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="successors")
    last_used_at = models.DateTimeField(null=True)
    rate = models.PositiveIntegerField(default=0)
    per_s = models.PositiveIntegerField(default=1)
    quota = models.PositiveBigIntegerField(default=0)
    quota_window_s = models.PositiveIntegerField(default=86_400)
    lifetime = models.DurationField(null=True)
    expires_at = models.DateTimeField(null=True)
    replaced_at = models.DateTimeField(null=True)
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
        constraints = (
            models.UniqueConstraint(
                "account", Lower("name"), condition=Q(revoked_at=None, replaced_at=None), name="key_name_is_its_own"
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"

    def state(self, now: datetime | None = None) -> str:
        """``active``, ``expired`` or ``revoked``; or ``disabled``, as its account is."""
        if self.revoked_at is not None:
            return "revoked"
        at = now or timezone.now()
        if self.expires_at is not None and at >= self.expires_at:
            return "expired"
        return "active" if self.account.disabled_at is None else "disabled"

    @property
    def end(self) -> str:
        """When it ends unless it is revoked: an instant as text, or ``never``."""
        return "never" if self.expires_at is None else self.expires_at.isoformat(timespec="seconds")

    @property
    def expires_soon(self) -> bool:
        """Active, and ends within fourteen days."""
        return (
            self.expires_at is not None
            and self.state() == "active"
            and self.expires_at - timezone.now() < timedelta(days=14)
        )

    def document(self) -> keydocs.ApiKey:
        """What gateways get: its own terms and its account's."""
        return keydocs.ApiKey(
            id=self.id,
            name=self.name,
            hmac=self.hmac,
            pepper=self.pepper,
            scopes=tuple(self.scopes),
            models=tuple(self.models_allowed),
            rate=self.rate,
            per_s=self.per_s,
            quota=self.quota,
            quota_window_s=self.quota_window_s,
            expires_at=self.expires_at.timestamp() if self.expires_at else None,
            revoked_at=self.revoked_at.timestamp() if self.revoked_at else None,
            updated_at=self.updated_at.timestamp(),
            networks=tuple(self.networks),
            account_id=self.account_id,
            account_models=tuple(self.account.models_allowed),
            share=self.account.share,
            is_disabled=self.account.disabled_at is not None,
            webhook_hosts=tuple(self.account.webhook_hosts),
            queues=tuple(self.queues_allowed),
        )


class KeyUse(models.Model):
    """Calls with one key in one minute, hour or day, as gateways reported them.

    at: when it begins, unix seconds; step_s: 60, 3600 or 86400. reason: of those that were refused; empty = all calls.
    """

    key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, related_name="uses", db_index=False)
    step_s = models.PositiveIntegerField()
    at = models.PositiveBigIntegerField()
    reason = models.CharField(max_length=60, blank=True)
    calls = models.PositiveBigIntegerField()

    class Meta:
        """A key's in order, and all of one time."""

        default_permissions = ()
        constraints = (
            models.UniqueConstraint(fields=("key", "step_s", "at", "reason"), name="use_of_key_is_counted_once"),
        )
        indexes = (models.Index(fields=("step_s", "at"), name="use_by_time"),)

    def __str__(self) -> str:
        return f"{self.key_id} {self.at} {self.reason}"


class UnknownKey(models.Model):
    """A key in force that NATS holds and this database does not know. The controller keeps the list.

    One that ends afterwards stays until the controller looks again.

    document: as NATS holds it.
    """

    id = models.CharField(primary_key=True, max_length=100)
    document = models.TextField()
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        """By id."""

        default_permissions = ()
        ordering = ("id",)

    def __str__(self) -> str:
        return self.id

    @property
    def grant(self) -> keydocs.ApiKey:
        """What gateways know of it."""
        return messages.decode(keydocs.ApiKey, self.document.encode())

    def state(self, now: datetime | None = None) -> str:
        """``active``, ``expired`` or ``revoked``."""
        grant = self.grant
        if grant.revoked_at is not None:
            return "revoked"
        at = (now or timezone.now()).timestamp()
        return "expired" if grant.expires_at is not None and at >= grant.expires_at else "active"
