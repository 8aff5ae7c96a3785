"""REST calls on workers: what each has in its device's memory, and what is asked of it."""

from datetime import UTC, datetime
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api import serializers as wire
from console.api.base import Endpoint
from console.board.rows import WorkerRow
from console.fleet import residents, services, software, workers
from console.fleet.models import DesiredState
from console.fleet.residents import Resident


class ResidentOut(serializers.Serializer[Any]):
    """A version on a worker. size_bytes: as measured. used_at: its last use, or its load where there was none since;
    null where it is not in memory. turn: 1 leaves next when room is needed, 0 = it stays or is not in memory. why: of
    its turn. return_s: what it takes to have it again.
    """

    model = serializers.CharField(source="loaded.model")
    version = serializers.IntegerField(source="loaded.version")
    state = serializers.CharField(source="loaded.state")
    error = serializers.CharField(source="loaded.error")
    size_bytes = serializers.IntegerField(source="loaded.size_bytes")
    used_at = serializers.DateTimeField(allow_null=True)
    return_s = serializers.SerializerMethodField()
    turn = serializers.IntegerField()
    why = serializers.CharField()

    def get_return_s(self, one: Resident) -> float | None:
        """Seconds, null where they are not known."""
        return one.loaded.use.return_s if one.loaded.use is not None else None


class DrainOut(serializers.ModelSerializer[DesiredState]):
    """Whether a worker is asked to drain (``on``), or to take part again: by whom, since when and why."""

    on = serializers.BooleanField(source="is_on")
    by = serializers.CharField(source="actor_name")
    at = serializers.DateTimeField(source="updated_at")

    class Meta:
        """Of a worker."""

        model = DesiredState
        fields = ("on", "by", "at", "reason")


class WorkerOut(serializers.Serializer[Any]):
    """A worker. budget_bytes: most that versions may take, 0 = not known. loaded_bytes: what they take."""

    id = serializers.CharField()
    host = serializers.SerializerMethodField()
    device = serializers.CharField(source="gpu")
    state = serializers.CharField()
    beat_at = serializers.SerializerMethodField()
    budget_bytes = serializers.IntegerField()
    loaded_bytes = serializers.IntegerField()

    def get_host(self, row: WorkerRow) -> str:
        """The host's id."""
        return row.host.partition("/")[0]

    def get_beat_at(self, row: WorkerRow) -> datetime:
        """When it said so."""
        return datetime.fromtimestamp(row.beat_at, UTC)


class WorkerDetailOut(WorkerOut):
    """A worker, and the versions on it: what leaves next first. rss_bytes: memory on the host, runner_bytes of it the
    runner's. restarts: runners that died while it held its device. software: versions by name. drain: what operators
    asked for last; null where nobody ever asked it to drain.
    """

    rss_bytes = serializers.IntegerField()
    runner_bytes = serializers.IntegerField()
    restarts = serializers.IntegerField()
    software = serializers.SerializerMethodField()
    drain = serializers.SerializerMethodField()
    versions = serializers.SerializerMethodField()

    def get_software(self, row: WorkerRow) -> dict[str, str]:
        """Versions of what it runs."""
        return {name: version for name in software.NAMES if (version := getattr(row, name))}

    @extend_schema_field(DrainOut(allow_null=True))
    def get_drain(self, row: WorkerRow) -> dict[str, Any] | None:
        """Who asked it, when and why."""
        desired = DesiredState.objects.filter(kind=DesiredState.WORKER, name=row.id).first()
        return dict(DrainOut(desired).data) if desired is not None else None

    @extend_schema_field(ResidentOut(many=True))
    def get_versions(self, row: WorkerRow) -> list[dict[str, Any]]:
        """Versions that it has, loads or fetches."""
        return list(ResidentOut(residents.of(row), many=True).data)


class Workers(Endpoint):
    """Workers."""

    @extend_schema(operation_id="workers_list", responses=WorkerOut(many=True))
    def index(self, request: Request) -> Response:
        """List workers that are here, or were lost a short while ago."""
        self.sees(request, Act.SYSTEM_VIEW)
        return Response(WorkerOut([row for _, row in sorted(workers.present().items())], many=True).data)

    @extend_schema(responses=WorkerDetailOut)
    def show(self, request: Request, worker: str) -> Response:
        """Show a worker that is here: what it has in memory, and what leaves next and why."""
        self.sees(request, Act.SYSTEM_VIEW)
        return Response(WorkerDetailOut(workers.here(worker)).data)

    @extend_schema(request=wire.SwitchIn, responses=wire.DESIRED_STATE)
    def drain(self, request: Request, worker: str) -> Response:
        """Drain a worker (``on``), or let it take jobs again."""
        data = self.given(request, wire.SwitchIn)
        desired = services.drain(self.actor(request), worker, is_draining=data["on"], reason=data["reason"])
        return desired_state(desired)

    @extend_schema(request=wire.ReasonIn, responses={202: None})
    def release(self, request: Request, worker: str) -> Response:
        """Ask a worker to hand the device that it holds over, after its batch."""
        services.ask_release_by(self.actor(request), worker, **self.given(request, wire.ReasonIn))
        return Response(status=202)


def desired_state(desired: DesiredState) -> Response:
    """What was asked for; 202 while the fleet does not know it."""
    why = services.why_unpublished(desired)
    body = {"on": desired.is_on, "reason": desired.reason, "unpublished": why}
    return Response(body, status=202 if why else 200)
