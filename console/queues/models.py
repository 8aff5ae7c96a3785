"""Queues: whose they are, what takes from them, and how much they hold."""

from typing import Any

from django.db import models
from django.utils import timezone

from signalbox.wire import queues as wire
from signalbox.wire.queuenames import Side


class Queue(models.Model):
    """One queue: its source and its sink. Names of settings and their defaults are those of PAI EAS's queue service.

    account: whose keys may use it. services: models that take from the source and put into the sink. key: id of the
    account's key whose jobs their items are; empty = any of its keys that may. memory: MB that both sides' lengths
    follow from; memory_ratio: the sink's part of it. max_length, max_payload_size_kb: of each side
    one is 0, as it follows from the other. cpu, resource, min_replica: accepted, and without effect.
    """

    name = models.CharField(primary_key=True, max_length=60)
    account = models.ForeignKey("keys.Account", on_delete=models.PROTECT, related_name="queues")
    services = models.JSONField(default=list)
    key = models.CharField(max_length=32, blank=True)
    group = models.CharField(max_length=100, blank=True)
    instance = models.PositiveSmallIntegerField(default=1)
    resource = models.CharField(max_length=100, blank=True)
    cpu = models.PositiveSmallIntegerField(default=1)
    memory = models.PositiveIntegerField(default=4000)
    min_replica = models.PositiveSmallIntegerField(default=1)
    memory_ratio = models.FloatField(default=0.5)
    source_max_length = models.PositiveIntegerField(default=0)
    source_max_payload_size_kb = models.PositiveIntegerField(default=8)
    source_auto_evict = models.BooleanField(default=False)
    sink_max_length = models.PositiveIntegerField(default=0)
    sink_max_payload_size_kb = models.PositiveIntegerField(default=8)
    sink_auto_evict = models.BooleanField(default=False)
    max_delivery = models.PositiveIntegerField(default=5)
    max_idle_s = models.FloatField(default=0.0)
    dead_message_policy = models.CharField(max_length=4, default="Rear")
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.CharField(max_length=150)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        """By name."""

        default_permissions = ()
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def document(self) -> wire.Queue:
        """What gateways and the outbound program get."""
        return wire.Queue(
            name=self.name,
            account_id=self.account_id,
            services=tuple(self.services),
            key_id=self.key,
            group=self.group,
            instances=self.instance,
            resource=self.resource,
            cpu=self.cpu,
            memory_mb=self.memory,
            memory_ratio=self.memory_ratio,
            source=self._side("source"),
            sink=self._side("sink"),
            max_delivery=self.max_delivery,
            max_idle_s=self.max_idle_s,
            dead_message_policy="Drop" if self.dead_message_policy == "Drop" else "Rear",
            created_at=self.created_at.timestamp(),
            updated_at=self.updated_at.timestamp(),
        )

    def room(self, side: Side) -> wire.Room:
        """How many items a side holds at most, and of how many bytes."""
        return self.document().room(side)

    def _side(self, side: Side) -> wire.QueueSide:
        def of(name: str) -> Any:
            return getattr(self, f"{side}_{name}")

        return wire.QueueSide(
            max_length=of("max_length"), max_payload_kb=of("max_payload_size_kb"), auto_evict=of("auto_evict")
        )
