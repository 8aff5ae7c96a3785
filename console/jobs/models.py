"""Jobs and their events as rows: a copy for searching, made by the projector. NATS is the truth."""

from typing import Final

import msgspec
from django.db import models
from django.db.models import Func, Q

from console.accounts import scope
from signalbox.wire.messages import EndedAttempt

_EMPTY: Final = Func(template="''", output_field=models.CharField())
HAS_ERROR: Final = ~Q(error_code=_EMPTY)
"""In the words of the partial index, without a parameter: only a query that says it too is served by that index."""
IS_REDRIVE: Final = ~Q(redrive_of=_EMPTY)
"""Likewise."""
OPEN: Final = ("queued", "running")
"""States of a job that has not ended."""


class Job(models.Model):
    """One job as it last was. revision: stream sequence in STATE of the record shown; 0 = no record yet.

    is_sync: a prediction whose caller waits for it. not_before: null = at once. error_group: the same for errors that
    are alike (:func:`console.jobs.groups.fingerprint`).
    """

    id = models.CharField(primary_key=True, max_length=36)
    model = models.CharField(max_length=100)
    version = models.PositiveBigIntegerField(default=0)
    signature = models.CharField(max_length=200, blank=True)
    priority = models.CharField(max_length=3, default="mid")
    account_id = models.CharField(max_length=32, blank=True)
    key_id = models.CharField(max_length=32, blank=True, default="")
    state = models.CharField(max_length=10)
    attempt = models.PositiveIntegerField(default=0)
    strikes = models.PositiveIntegerField(default=0)
    failures = models.PositiveIntegerField(default=0, db_default=0)
    worker = models.CharField(max_length=100, blank=True)
    gpu = models.CharField(max_length=100, blank=True)
    token = models.PositiveBigIntegerField(default=0)
    batch = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()
    deadline_at = models.DateTimeField(null=True)
    claimed_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    phases = models.JSONField(default=dict)
    parts = models.JSONField(default=dict, db_default={})
    ended_attempts = models.JSONField(default=list, db_default=[])
    error_code = models.CharField(max_length=40, blank=True)
    error_message = models.CharField(max_length=2000, blank=True)
    error_group = models.CharField(max_length=12, blank=True, default="", db_default="")
    size_in = models.PositiveBigIntegerField(default=0)
    size_out = models.PositiveBigIntegerField(default=0)
    is_cancel_asked = models.BooleanField(default=False)
    trace = models.CharField(max_length=200, blank=True)
    revision = models.PositiveBigIntegerField(default=0)
    updated_at = models.DateTimeField()
    redrive_of = models.CharField(max_length=36, blank=True, default="", db_default="")
    tags = models.JSONField(default=list)
    not_before = models.DateTimeField(null=True)
    is_sync = models.BooleanField(default=False)

    class Meta:
        """What chooses few jobs has an index that ends in the order of the list, but for jobs of one instant.

        To end them in the id too cost a quarter more for each job. Version, token, priority and duration have none:
        they are looked for among a bounded number of rows (:mod:`console.jobs.listing`).
        """

        default_permissions = ()
        indexes = (
            models.Index(fields=("-created_at",), name="job_newest"),
            models.Index(fields=("state", "-created_at"), name="job_by_state"),
            models.Index(fields=("model", "-created_at"), name="job_by_model"),
            models.Index(fields=("account_id", "-created_at"), name="job_by_account"),
            models.Index(
                fields=("account_id", "state", "-created_at"), name="job_of_owner", condition=Q(is_sync=False)
            ),
            models.Index(fields=("key_id", "-created_at", "state"), name="job_by_key"),  # counted without rows
            models.Index(fields=("worker", "-created_at"), name="job_by_worker"),
            models.Index(fields=("gpu", "-created_at"), name="job_by_gpu"),
            models.Index(fields=("error_code", "-created_at"), name="job_by_error", condition=HAS_ERROR),
            models.Index(fields=("error_group", "-created_at"), name="job_by_group", condition=HAS_ERROR),
            models.Index(fields=("-created_at",), name="job_with_error", condition=HAS_ERROR),
            models.Index(fields=("redrive_of",), name="job_by_redrive", condition=IS_REDRIVE),
        )

    def __str__(self) -> str:
        return f"{self.id} {self.state}"

    @property
    def is_open(self) -> bool:
        """Queued or running."""
        return self.state in OPEN

    @property
    def attempts(self) -> list[EndedAttempt]:
        """Its attempts before the last one, as its record has them."""
        return msgspec.convert(self.ended_attempts, list[EndedAttempt])


class JobTag(models.Model):
    """One tag of a job, with what a list by it is chosen and ordered by."""

    pk = models.CompositePrimaryKey("job_id", "tag")
    # Written and deleted with the job's row, by statements that do so: nothing is to be checked.
    job = models.ForeignKey(
        Job, on_delete=models.DO_NOTHING, related_name="labels", db_constraint=False, db_index=False
    )
    tag = models.CharField(max_length=64)
    account_id = models.CharField(max_length=32, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        """By each of an owner's tags for the owner, and by a tag for operators."""

        default_permissions = ()
        indexes = (
            models.Index(fields=("account_id", "tag", "-created_at"), name="tag_of_owner"),
            models.Index(fields=("tag", "-created_at"), name="tag_newest"),
        )

    def __str__(self) -> str:
        return f"{self.tag} {self.job_id}"


class JobEvent(models.Model):
    """One revision of a job's record, by its sequence in STATE. at: as the server stored it.

    Kept of what the job's row does not tell: while the job is open, and of attempts that were given up. A revision
    that was overwritten before it was read is missing.
    """

    seq = models.PositiveBigIntegerField(primary_key=True)
    job_id = models.CharField(max_length=36)
    at = models.DateTimeField()
    state = models.CharField(max_length=10)
    attempt = models.PositiveIntegerField(default=0)
    worker = models.CharField(max_length=100, blank=True)
    gpu = models.CharField(max_length=100, blank=True)
    token = models.PositiveBigIntegerField(default=0)
    error_code = models.CharField(max_length=40, blank=True)
    error_message = models.CharField(max_length=500, blank=True)
    phases = models.JSONField(default=dict)
    is_cancel_asked = models.BooleanField(default=False)

    class Meta:
        """In order."""

        default_permissions = ()
        ordering = ("seq",)
        indexes = (models.Index(fields=("job_id", "seq"), name="event_of_job"),)

    def __str__(self) -> str:
        return f"{self.seq} {self.job_id} {self.state}"


def _model_of(job_id: str) -> str | None:
    """The model of a job, asked of NATS where it has no row (yet, or any more)."""
    from console.jobs import fresh  # which knows rows

    job = Job.objects.filter(pk=job_id).only("model").first() or fresh.find(job_id)
    return job.model if job is not None else None


scope.belongs("job", _model_of)
