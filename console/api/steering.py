"""REST calls on the memory of devices: pin, load and evict by hand."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import serializers as wire
from console.api.base import Endpoint
from console.api.workers import desired_state
from console.bounds import MOST_NUMBER
from console.fleet import steering


class PinIn(wire.SwitchIn):
    """A pin, or its end. version: 0 is the one that requests get. hosts: ids, empty for all."""

    version = serializers.IntegerField(min_value=0, max_value=MOST_NUMBER, required=False, default=0)
    hosts = serializers.ListField(
        child=serializers.CharField(max_length=150), required=False, default=list, max_length=steering.MOST_HOSTS
    )


class LoadIn(wire.ReasonIn):
    """What is to be loaded on a host. version: 0 is the one that requests get."""

    host = serializers.CharField(max_length=150)
    version = serializers.IntegerField(min_value=0, max_value=MOST_NUMBER, required=False, default=0)


class EvictIn(wire.ReasonIn):
    """What shall leave a worker's memory."""

    model = serializers.CharField(max_length=150)
    version = serializers.IntegerField(min_value=0, max_value=MOST_NUMBER)


class Steering(Endpoint):
    """What is in the memory of devices."""

    @extend_schema(request=PinIn, responses=wire.DESIRED_STATE)
    def pin(self, request: Request, name: str) -> Response:
        """Have a model loaded and kept (``on``) on the devices that it is placed on, or no longer."""
        data = self.given(request, PinIn)
        desired = steering.pin(
            self.actor(request),
            name,
            is_pinned=data["on"],
            version=data["version"],
            on=data["hosts"],
            reason=data["reason"],
        )
        return desired_state(desired)

    @extend_schema(request=LoadIn, responses=wire.DESIRED_STATE)
    def load(self, request: Request, name: str) -> Response:
        """Load a model on the devices of a host that it is placed on, before a job needs it."""
        data = self.given(request, LoadIn)
        desired = steering.load(
            self.actor(request), name, on=data["host"], version=data["version"], reason=data["reason"]
        )
        return desired_state(desired)

    @extend_schema(request=EvictIn, responses={202: None})
    def evict(self, request: Request, worker: str) -> Response:
        """Ask a worker to have a version leave its device's memory, after the runs that use it."""
        data = self.given(request, EvictIn)
        steering.evict(self.actor(request), worker, data["model"], data["version"], reason=data["reason"])
        return Response(status=202)
