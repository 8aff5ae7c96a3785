"""The desired state of workers and queues, as operators decided it."""

from django.db import models
from django.utils import timezone

from signalbox.wire import messages


class DesiredState(models.Model):
    """Desired state of one worker or of one model's queue, published in KV ``desired``; workers report what they do."""

    WORKER = "worker"
    MODEL = "model"

    kind = models.CharField(max_length=10)
    name = models.CharField(max_length=150)
    is_on = models.BooleanField(default=False)
    actor_name = models.CharField(max_length=150)
    reason = models.CharField(max_length=200, blank=True)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        """One row for each worker or model."""

        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=("kind", "name"), name="one_state_per_thing"),)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.is_on}"

    def document(self) -> messages.Desired:
        """What is published: draining for a worker, paused for a model."""
        is_worker = self.kind == self.WORKER
        return messages.Desired(
            is_draining=self.is_on and is_worker,
            is_paused=self.is_on and not is_worker,
            actor=self.actor_name,
            reason=self.reason,
            updated_at=self.updated_at.timestamp(),
        )
