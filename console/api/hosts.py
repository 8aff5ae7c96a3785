"""REST calls on hosts and their disk caches."""

from datetime import UTC, datetime
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api import serializers as wire
from console.api.base import Endpoint
from console.api.strict import Strict
from console.api.workers import desired_state
from console.fleet import agents, hosts, services
from console.fleet.hosts import CachedRow
from signalbox.wire.manifests import HostCache


class CacheOut(serializers.Serializer[HostCache]):
    """A disk cache. at: when it was so. count: versions in it."""

    at = serializers.SerializerMethodField()
    used_bytes = serializers.IntegerField()
    limit_bytes = serializers.IntegerField()
    count = serializers.IntegerField()

    def get_at(self, cache: HostCache) -> datetime:
        """When it was so."""
        return datetime.fromtimestamp(cache.at, UTC)


class HostOut(serializers.Serializer[Any]):
    """A host. name: as the machine calls itself. workers: by id. cache: null where it has none."""

    id = serializers.CharField()
    name = serializers.CharField()
    workers = serializers.ListField(child=serializers.CharField())
    cache = CacheOut(allow_null=True)


class CachedVersionOut(serializers.Serializer[CachedRow]):
    """A version in a host's cache. digest: empty while not all of its files are there. used_at: when it was last
    fetched, loaded or unloaded. workers: those that have it in memory, load or fetch it. why: what a fault says.
    """

    model = serializers.CharField(source="files.model")
    version = serializers.IntegerField(source="files.version")
    repository = serializers.CharField(source="files.repository")
    size_bytes = serializers.IntegerField(source="files.size_bytes")
    digest = serializers.CharField(source="files.digest")
    used_at = serializers.SerializerMethodField()
    state = serializers.ChoiceField(choices=list(hosts.STATES.items()))
    why = serializers.CharField(source="condition.why")
    workers = serializers.ListField(child=serializers.CharField())

    def get_used_at(self, row: CachedRow) -> datetime:
        """When the version was last used."""
        return datetime.fromtimestamp(row.files.used_at, UTC)


class HostDeviceOut(serializers.Serializer[Any]):
    """A device of a host, and the class that it counts in."""

    id = serializers.CharField(source="device.id")
    name = serializers.CharField(source="device.name")
    kind = serializers.CharField(source="device.kind")
    memory_bytes = serializers.IntegerField(source="device.memory_bytes")
    device_class = serializers.CharField(source="class_")


class HostWorkerOut(serializers.Serializer[Any]):
    """A worker that a host's agent keeps. state: of its process. why: it is not up."""

    id = serializers.CharField()
    device = serializers.CharField()
    state = serializers.CharField()
    restarts = serializers.IntegerField()
    why = serializers.CharField()


class AgentOut(serializers.Serializer[Any]):
    """A host's agent, as it tells itself."""

    devices = HostDeviceOut(many=True)
    workers = HostWorkerOut(many=True)
    wanted = serializers.DictField(child=serializers.IntegerField())
    driver = serializers.CharField()
    cuda = serializers.CharField()
    disk_bytes = serializers.IntegerField()
    disk_free_bytes = serializers.IntegerField()
    cache_bytes = serializers.IntegerField()
    software = serializers.CharField()
    is_draining = serializers.BooleanField()


class HostCacheOut(HostOut):
    """A host, its agent (null: none is here), and a page of what is in its cache.

    found: how many match. next: the next page, null = this is the last. Where the cache has very many versions those
    used last are listed; ``cache.count`` counts them all.
    """

    agent = AgentOut(allow_null=True)
    versions = CachedVersionOut(many=True)
    found = serializers.IntegerField()
    next = serializers.IntegerField(allow_null=True)


class CacheQuery(Strict):
    """Which versions, and which part of the list."""

    q = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=100, help_text="Part of a model's name."
    )
    repository = serializers.CharField(required=False, default="", allow_blank=True, max_length=50)
    state = serializers.ChoiceField(choices=list(hosts.STATES.items()), required=False, default="", allow_blank=True)
    page = serializers.IntegerField(required=False, default=1, min_value=1, max_value=100_000)
    size = serializers.IntegerField(required=False, default=50, min_value=1, max_value=200)


class Hosts(Endpoint):
    """Hosts of workers, and their disk caches."""

    @extend_schema(operation_id="hosts_list", responses=HostOut(many=True))
    def index(self, request: Request) -> Response:
        """List hosts by name, and how much of their disk caches is used."""
        self.sees(request, Act.SYSTEM_VIEW)
        return Response(HostOut(hosts.hosts(), many=True).data)

    @extend_schema(parameters=[CacheQuery], responses=HostCacheOut)
    def show(self, request: Request, host: str) -> Response:
        """Show a host and what is in its disk cache, the last used first."""
        self.sees(request, Act.SYSTEM_VIEW)
        asked: dict[str, Any] = self.asked(request, CacheQuery)
        page = hosts.page(host, number=asked.pop("page"), **asked)
        shown = {
            **page.host._asdict(),
            "agent": agents.present().get(host),
            "versions": page.rows,
            "found": page.found,
            "next": page.next or None,
        }
        return Response(HostCacheOut(shown).data)

    @extend_schema(request=wire.SwitchIn, responses=wire.DESIRED_STATE)
    def drain(self, request: Request, host: str) -> Response:
        """Drain a host (``on``): it hands its devices over and keeps no worker; or have it take part again."""
        data = self.given(request, wire.SwitchIn)
        return desired_state(
            services.drain_host(self.actor(request), host, is_draining=data["on"], reason=data["reason"])
        )
