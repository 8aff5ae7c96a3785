"""REST calls on what is wanted of the fleet, and on the replicas of a model."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api.base import Endpoint
from console.catalog import lookup
from console.fleet import capacity, replicas
from signalbox.program.errors import Unavailable


class ClassScaleOut(serializers.Serializer[Any]):
    """Devices of a class: that shall have workers, were asked for, have one, and are there. most: 0 = all."""

    name = serializers.CharField()
    wanted = serializers.IntegerField()
    asked = serializers.IntegerField()
    actual = serializers.IntegerField()
    there = serializers.IntegerField()
    most = serializers.IntegerField()
    reason = serializers.CharField()


class ModelScaleOut(serializers.Serializer[Any]):
    """A model that scales by itself. wanted: replicas. needed: devices that workers are kept for."""

    name = serializers.CharField()
    least = serializers.IntegerField()
    most = serializers.IntegerField()
    wanted = serializers.IntegerField()
    needed = serializers.IntegerField()
    ready = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField()


class ScalingOut(serializers.Serializer[Any]):
    """What is wanted and what there is. is_on: else nothing scales, and each device of a host has workers."""

    is_on = serializers.BooleanField()
    classes = ClassScaleOut(many=True)
    models = ModelScaleOut(many=True)


class ReplicaOut(serializers.Serializer[Any]):
    """A replica. name: `$Model-$Index`, its rank in placement. Address: host, worker and device."""

    name = serializers.CharField()
    host = serializers.CharField()
    worker = serializers.CharField()
    device = serializers.CharField()
    is_ready = serializers.BooleanField()
    state = serializers.CharField()
    why = serializers.CharField()
    beat_at = serializers.DateTimeField()


class ReplicasOut(serializers.Serializer[Any]):
    """The replicas of a model. warnings: what would make it stop with one device, or one host."""

    replicas = ReplicaOut(many=True)
    warnings = serializers.ListField(child=serializers.CharField())


class Scaling(Endpoint):
    """What is wanted of the fleet."""

    @extend_schema(responses=ScalingOut)
    def show(self, request: Request) -> Response:
        """Show devices by class and models that scale by themselves: wanted, actual, and why."""
        self.sees(request, Act.SYSTEM_VIEW)
        return Response(ScalingOut(capacity.standing(self.actor(request).only_models)).data)

    @extend_schema(responses=ReplicasOut)
    def replicas(self, request: Request, name: str) -> Response:
        """Show the replicas of a model: where each is, whether it is ready, and its last heartbeat."""
        self.sees(request, Act.MODELS_VIEW)
        lookup.find(name)
        rows = replicas.of(name)
        if rows is None:
            raise Unavailable("NATS is away: replicas are not known now.", retry_after_s=5.0)
        return Response(ReplicasOut({"replicas": rows, "warnings": replicas.warnings(name, rows)}).data)
