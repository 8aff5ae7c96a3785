"""One row for each span of time, model, version and account that had a job end."""

from typing import Final

from django.db import models

MINUTE_S: Final = 60
HOUR_S: Final = 3600


class Minute(models.Model):
    """Jobs that ended in one minute, or, once that is three days ago, in one hour.

    minute: UTC second that it began at. retried: jobs that took more than one attempt. device_ms: runs of the last
    attempts, each shared out by the jobs that ran together. waits, runs: histograms of milliseconds
    (:mod:`console.rollups.buckets`). parts: milliseconds of all attempts by the names of :mod:`signalbox.jobs.times`.
    """

    pk = models.CompositePrimaryKey("model", "minute", "span_s", "version", "account_id")
    span_s = models.PositiveIntegerField(default=MINUTE_S)
    minute = models.PositiveBigIntegerField()
    model = models.CharField(max_length=100)
    version = models.PositiveBigIntegerField()
    account_id = models.CharField(max_length=32, blank=True)
    succeeded = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    cancelled = models.PositiveBigIntegerField(default=0)
    expired = models.PositiveBigIntegerField(default=0)
    retried = models.PositiveBigIntegerField(default=0)
    bytes_in = models.PositiveBigIntegerField(default=0)
    bytes_out = models.PositiveBigIntegerField(default=0)
    device_ms = models.FloatField(default=0.0)
    waits = models.JSONField(default=dict)
    runs = models.JSONField(default=dict)
    parts = models.JSONField(default=dict)

    class Meta:
        """By model in the order of its key, by account, and by age, to become hours and to go."""

        default_permissions = ()
        indexes = (
            models.Index(fields=("account_id", "minute"), name="minute_of_account"),
            models.Index(fields=("span_s", "minute"), name="minute_oldest"),
        )

    def __str__(self) -> str:
        return f"{self.model} {self.version} at {self.minute}"
