"""The audit: one row for every act, done, refused or failed, each sealed to the one before it.

``digest = SHA-256(digest of the row before || this row)``: a row that is changed, taken out or put in between breaks
the chain, and one cut off at the end leaves :class:`AuditHead` pointing at nothing. An attacker who can rewrite the
whole table and the head can forge a chain; a head noted elsewhere shows that too (ADR 0134).
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from django.db import models, transaction
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from signalbox.program.errors import Bug

_PAGES: Final = frozenset(
    {"model", "repository", "account", "key", "job", "worker", "lane", "webhook", "batch", "queue"}
)
_NOTHING: Final[tuple[Any, ...]] = ("", [], {}, None)


_SEALED: Final = (
    "number",
    "actor_name",
    "via",
    "address",
    "request_id",
    "act",
    "target_kind",
    "target",
    "reason",
    "before",
    "after",
    "result",
    "message",
)


class AuditHead(models.Model):
    """The end of the chain: number and digest of the newest row. One row; taking it makes writers queue."""

    number = models.PositiveBigIntegerField(default=0)
    digest = models.CharField(max_length=64, default="0" * 64)

    class Meta:
        """Internal."""

        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.number} {self.digest}"


class AppendOnly(models.QuerySet["AuditEntry"]):
    """Reads, and adds one at a time."""

    def update(self, **_: Any) -> int:
        """Never. Raises :class:`Bug`."""
        raise Bug("The audit is append-only.")

    def delete(self) -> tuple[int, dict[str, int]]:
        """Never. Raises :class:`Bug`."""
        raise Bug("The audit is append-only.")


class AuditEntry(models.Model):
    """One act. The actor's name is kept as text too, so that it outlives the account.

    after: what the act left; of one that was refused or failed, what was asked. before: as far as it was read.
    """

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"

    at = models.DateTimeField(default=timezone.now, db_index=True)
    actor = models.ForeignKey("accounts.User", null=True, on_delete=models.PROTECT)
    actor_name = models.CharField(max_length=150, db_index=True)
    via = models.CharField(max_length=80)
    address = models.CharField(max_length=45, blank=True)
    request_id = models.CharField(max_length=40, blank=True)
    act = models.CharField(max_length=40, db_index=True)
    target_kind = models.CharField(max_length=20)
    target = models.CharField(max_length=150, db_index=True)
    reason = models.CharField(max_length=200, blank=True)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    result = models.CharField(max_length=10, default=DONE)
    message = models.CharField(max_length=500, blank=True)
    number = models.PositiveBigIntegerField(unique=True)
    digest = models.CharField(max_length=64)

    objects = AppendOnly.as_manager()

    class Meta:
        """Newest first."""

        default_permissions = ()
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.actor_name}: {self.act} {self.target}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Rows are written once, sealed to the one before. Raises :class:`Bug` on a second save."""
        if not self._state.adding:
            raise Bug("The audit is append-only.")
        with transaction.atomic():
            head, _ = AuditHead.objects.select_for_update().get_or_create(pk=1)
            self.number = head.number + 1
            self.digest = self.seal(head.digest)
            super().save(*args, **kwargs)
            head.number, head.digest = self.number, self.digest
            head.save()

    def seal(self, previous: str) -> str:
        """This row's digest after the one before it."""
        values = {name: getattr(self, name) for name in _SEALED}
        values["at"] = self.at.isoformat()
        text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Never. Raises :class:`Bug`."""
        raise Bug("The audit is append-only.")

    @property
    def href(self) -> str:
        """The page of what was acted on, or an empty text: a refused act may name what no page can have."""
        if self.target_kind not in _PAGES:
            return ""
        try:
            return reverse("device" if self.target_kind == "lane" else self.target_kind, args=[self.target])
        except NoReverseMatch:
            return ""

    @property
    def changes(self) -> list[tuple[str, Any, Any]]:
        """``(name, before, after)`` of what an act changed, without what was made without a value.

        Of one that was refused or failed: of all that was asked.
        """
        return [
            (name, self.before.get(name), after)
            for name, after in self.after.items()
            if not self.is_done
            or (name in self.before and self.before[name] != after)
            or (name not in self.before and after not in _NOTHING)
        ]

    @property
    def is_done(self) -> bool:
        """Whether it was neither refused nor failed."""
        return self.result == self.DONE


def breaks() -> Iterator[str]:
    """Each place where the chain is broken, in words."""
    previous, expected = "0" * 64, 1
    for row in AuditEntry.objects.order_by("number").iterator(chunk_size=1000):
        if row.number != expected:
            yield f"between {expected - 1} and {row.number}: {row.number - expected} missing"
        if row.digest != row.seal(previous):
            yield f"{row.number}: changed, or the one before it was"
        previous, expected = row.digest, row.number + 1
    head = AuditHead.objects.filter(pk=1).first()
    if head is None and expected > 1:
        yield f"after {expected - 1}: the head is missing, so the end of the chain is not known"
    elif head is not None and (head.number, head.digest) != (expected - 1, previous):
        yield f"after {expected - 1}: the chain once ended at {head.number}"
