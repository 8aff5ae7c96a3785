"""The desired state of workers and queues, as operators decided it."""

from django.db import models
from django.utils import timezone

from signalbox.wire import steering


class DesiredState(models.Model):
    """Desired state of one worker, host or model's queue, published in KV ``desired``; workers report what they do.

    Of a ``prefetch``: until when a model's version is loaded ahead of need; 0 = the one that requests get. Of a
    ``pin``: the version that stays in memory. hosts: ids, empty = all.
    """

    WORKER = "worker"
    MODEL = "model"
    HOST = "host"
    PREFETCH = "prefetch"
    PIN = "pin"

    kind = models.CharField(max_length=10)
    name = models.CharField(max_length=150)
    is_on = models.BooleanField(default=False)
    actor_name = models.CharField(max_length=150)
    reason = models.CharField(max_length=200, blank=True)
    version = models.PositiveBigIntegerField(default=0)
    until = models.DateTimeField(null=True)
    hosts = models.JSONField(default=list)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        """One row for each worker or model."""

        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=("kind", "name"), name="one_state_per_thing"),)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.is_on}"

    def document(self) -> steering.Desired | steering.Prefetch | steering.Pin:
        """What is published: draining for a worker or host, paused for a model, what is loaded ahead or stays."""
        if self.kind == self.PIN:
            return steering.Pin(
                model=self.name,
                version=self.version,
                hosts=tuple(self.hosts),
                by=self.actor_name,
                at=self.updated_at.timestamp(),
                is_on=self.is_on,
            )
        if self.kind == self.PREFETCH:
            until = self.until.timestamp() if self.until is not None else 0.0
            return steering.Prefetch(
                model=self.name, version=self.version, until=until, by=self.actor_name, hosts=tuple(self.hosts)
            )
        is_drain = self.kind in {self.WORKER, self.HOST}
        return steering.Desired(
            is_draining=self.is_on and is_drain,
            is_paused=self.is_on and not is_drain,
            actor=self.actor_name,
            reason=self.reason,
            updated_at=self.updated_at.timestamp(),
        )
