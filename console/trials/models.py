"""What was tried, until somebody has looked at it."""

from typing import Final

from django.conf import settings
from django.db import models
from django.utils import timezone

MOST_ANSWER: Final = 64 * 1024
"""Characters of an answer that are kept."""


class Trial(models.Model):
    """One call, for the operator who made it; some minutes old it is deleted, with what was sent and answered.

    inputs: what stood in the fields, by name. status: of the front's answer, 0 = there was none, and error says why.
    answer: its body, as it came; is_cut: only its beginning. job_id: empty where the front made no job.
    """

    id = models.CharField(primary_key=True, max_length=32)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    model = models.CharField(max_length=100)
    version = models.PositiveBigIntegerField()
    signature = models.CharField(max_length=200)
    inputs = models.JSONField(default=dict)
    status = models.PositiveIntegerField(default=0)
    answer = models.TextField(blank=True)
    is_cut = models.BooleanField(default=False)
    job_id = models.CharField(max_length=36, blank=True)
    took_ms = models.FloatField(default=0.0)
    error = models.CharField(max_length=500, blank=True)
    at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        """Internal."""

        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.model}:{self.version} by {self.user_id}"
