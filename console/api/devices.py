"""REST calls on devices: who holds each, how it is used, the log of its lease, and asking for it."""

from datetime import UTC, datetime
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api import serializers as wire
from console.api.base import Endpoint
from console.board.holds import Hold
from console.board.rows import LaneRow
from console.fleet import devices, hosts, services


class HoldOut(serializers.Serializer[Any]):
    """One hold of a device. until: null while it stands. renewals: of its lease. end: how it ended, in words."""

    token = serializers.IntegerField()
    holder = serializers.CharField()
    since = serializers.SerializerMethodField()
    until = serializers.SerializerMethodField()
    renewals = serializers.IntegerField()
    end = serializers.CharField()

    def get_since(self, hold: Hold) -> datetime:
        """When it was acquired."""
        return datetime.fromtimestamp(hold.since, UTC)

    def get_until(self, hold: Hold) -> datetime | None:
        """When it ended."""
        return datetime.fromtimestamp(hold.until, UTC) if hold.until is not None else None


class DeviceOut(serializers.Serializer[Any]):
    """A device. state: of its lease. holder: empty where it is free. token: of the hold, 0 = none. waiters: who waits
    for it, in order. use: share of the last seconds in which it computed, null = not known.
    """

    id = serializers.CharField(source="gpu")
    name = serializers.CharField()
    kind = serializers.CharField()
    host = serializers.SerializerMethodField()
    state = serializers.CharField()
    holder = serializers.CharField()
    token = serializers.IntegerField()
    renewals = serializers.IntegerField()
    waiters = serializers.SerializerMethodField()
    workers = serializers.ListField(child=serializers.CharField())
    use = serializers.FloatField(allow_null=True)

    def get_host(self, row: LaneRow) -> str:
        """The host's id."""
        return hosts.id_of(row.host)

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_waiters(self, row: LaneRow) -> list[str]:
        """Workers by id."""
        return [waiter.worker for waiter in row.waiters]


class DeviceDetailOut(DeviceOut):
    """A device, and who held it in the last half hour: the newest hold first."""

    holds = serializers.SerializerMethodField()

    @extend_schema_field(HoldOut(many=True))
    def get_holds(self, row: LaneRow) -> list[dict[str, Any]]:
        """The log of its lease."""
        return list(HoldOut(devices.holds(row.gpu), many=True).data)


class Devices(Endpoint):
    """Devices of workers."""

    @extend_schema(operation_id="devices_list", responses=DeviceOut(many=True))
    def index(self, request: Request) -> Response:
        """List devices that are here."""
        self.sees(request, Act.SYSTEM_VIEW)
        return Response(DeviceOut(devices.present(), many=True).data)

    @extend_schema(responses=DeviceDetailOut)
    def show(self, request: Request, gpu: str) -> Response:
        """Show a device with the log of its lease."""
        self.sees(request, Act.SYSTEM_VIEW)
        return Response(DeviceDetailOut(devices.find(gpu)).data)

    @extend_schema(request=wire.ReasonIn, responses={202: None})
    def release(self, request: Request, gpu: str) -> Response:
        """Ask the holder of a device to hand it over after its batch."""
        services.ask_release(self.actor(request), gpu, **self.given(request, wire.ReasonIn))
        return Response(status=202)
