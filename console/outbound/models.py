"""Subscriptions to the ends of jobs, and webhooks. The secret of a webhook is not stored, only its name."""

from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from django.db import models
from django.utils import timezone

from console.keys.models import Account
from signalbox.wire import outbound

OVERLAP: Final = timedelta(hours=24)
"""How long messages are signed with a secret that was replaced, too, where an operator wishes it."""


class Covering(models.Model):
    """Whose ends, and of which model. account: None = every one. model: empty = every one."""

    id = models.CharField(primary_key=True, max_length=40)
    account = models.ForeignKey(Account, null=True, on_delete=models.PROTECT, related_name="+")
    model = models.CharField(max_length=100, blank=True)
    is_enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.CharField(max_length=150)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        """Not a table of its own."""

        abstract = True

    @property
    def words(self) -> str:
        """Whose ends these are, for people."""
        whose = "every account" if self.account is None else self.account.name
        return f"{self.model or 'every model'} of {whose}"


class Subscription(Covering):
    """Ends of jobs that go to the output stream."""

    class Meta:
        """Newest first."""

        default_permissions = ()
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return self.words

    def document(self) -> outbound.Subscription:
        """What the outbound program gets."""
        return outbound.Subscription(
            id=self.id,
            account_id=self.account_id or "",
            model=self.model,
            is_enabled=self.is_enabled,
            updated_at=self.updated_at.timestamp(),
        )


class Webhook(Covering):
    """Who is told of ends over HTTP. is_for_jobs: of jobs that name a URL on their account's hosts; url is empty then.

    secret, previous_secret: names of the secrets in ``hooksecrets``, which nobody reads back. previous_until: the
    previous one signs too until then. enabled_at: it counts no more that deliveries were given up before.
    """

    url = models.CharField(max_length=2048, blank=True)
    is_for_jobs = models.BooleanField(default=False)
    enabled_at = models.DateTimeField(default=timezone.now)
    secret = models.CharField(max_length=20)
    previous_secret = models.CharField(max_length=20, blank=True)
    previous_until = models.DateTimeField(null=True)

    class Meta:
        """Newest first. One for the jobs of an account."""

        default_permissions = ()
        ordering = ("-created_at",)
        constraints = (
            models.UniqueConstraint(
                fields=("account",), condition=models.Q(is_for_jobs=True), name="one_webhook_for_an_account_s_jobs"
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """What it is called: its host and path, without what a query may hold."""
        if self.is_for_jobs:
            return f"Own webhooks of jobs of {self.account.name if self.account else '-'}"
        parts = urlsplit(self.url)
        return f"{parts.netloc}{parts.path.rstrip('/')}"

    @property
    def shown_url(self) -> str:
        """Its URL without the query, which may hold a token of the receiver."""
        return self.url.partition("?")[0]

    def has_previous(self, now: datetime | None = None) -> bool:
        """Whether messages are signed with the replaced secret too."""
        return self.previous_until is not None and (now or timezone.now()) < self.previous_until

    def document(self) -> outbound.Webhook:
        """What the outbound program gets."""
        hosts = self.account.webhook_hosts if self.is_for_jobs and self.account is not None else ()
        return outbound.Webhook(
            id=self.id,
            account_id=self.account_id or "",
            model=self.model,
            url=self.url,
            is_for_jobs=self.is_for_jobs,
            hosts=tuple(hosts),
            is_enabled=self.is_enabled,
            enabled_at=self.enabled_at.timestamp(),
            secret=self.secret,
            previous_secret=self.previous_secret,
            previous_until=self.previous_until.timestamp() if self.previous_until is not None else 0.0,
            updated_at=self.updated_at.timestamp(),
        )
