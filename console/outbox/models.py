"""Rows that wait to be published to NATS."""

from django.db import models
from django.utils import timezone


def redrive_body(after: str, version: int) -> str:
    """What a redrive is asked with. after: the job of the redrive before. version: to run it with, 0 = its own."""
    return f"{after}@{version}" if version else after


def redrive_asked(body: str) -> tuple[str, int]:
    """The inverse of :func:`redrive_body`."""
    after, _, version = body.partition("@")
    return after, int(version or 0)


class OutboxEntry(models.Model):
    """One message to NATS. KV documents are states: only the latest of a key is ever published.

    kind: ``document`` (body is the document, empty: the key is removed), ``cancel`` (key is a job id),
    ``release`` (key is a GPU id: its holder is asked to hand over), ``evict`` (key is a worker's id, body what shall
    leave its device's memory), ``redrive`` (key is the job id of a dead letter, body as :func:`redrive_body`),
    ``discard`` (of a dead letter), ``change`` (of a waiting job, body is the :class:`JobChange`) or ``delete`` (of an
    ended job, body is its record as the list has it), ``secret`` (key and body as of a document, which is written once
    and not kept here: the body goes when it is settled; empty: it is removed), ``deliver`` (key is a webhook, body a
    job whose end goes there once more) or ``batch`` (key is its key, body what is asked of it). last_error: why it is
    not done; beside published_at, why it never will be.
    """

    DOCUMENT = "document"
    CANCEL = "cancel"
    RELEASE = "release"
    EVICT = "evict"
    REDRIVE = "redrive"
    DISCARD = "discard"
    CHANGE = "change"
    DELETE = "delete"
    SECRET = "secret"  # noqa: S105  a kind
    DELIVER = "deliver"
    BATCH = "batch"

    kind = models.CharField(max_length=10)
    bucket = models.CharField(max_length=20, blank=True)
    key = models.CharField(max_length=200)
    subject_name = models.CharField(max_length=150, blank=True)
    body = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    published_at = models.DateTimeField(null=True, db_index=True)
    revision = models.BigIntegerField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    last_error = models.CharField(max_length=500, blank=True)

    class Meta:
        """Oldest first."""

        default_permissions = ()
        ordering = ("id",)
        indexes = (models.Index(fields=("kind", "bucket", "key", "-id")),)

    def __str__(self) -> str:
        return f"{self.kind} {self.bucket}/{self.key}"

    @property
    def delay_ms(self) -> int | None:
        """From the decision to NATS having stored it, or None while it has not."""
        if self.published_at is None:
            return None
        return max(0, round((self.published_at - self.created_at).total_seconds() * 1000))
