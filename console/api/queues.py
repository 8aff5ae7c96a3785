"""REST calls on queues, under the names that PAI EAS's queue service has for what can be set."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api.base import Endpoint
from console.api.serializers import ReasonIn
from console.api.strict import Strict
from console.board import queueservice
from console.queues import contents, reading, services, terms
from console.queues.models import Queue
from signalbox.program.errors import Misconfigured, Unavailable
from signalbox.wire.messages import Doc
from signalbox.wire.queuenames import SIDES, Side
from signalbox.wire.queues import QueueState, WatchState

_OF_SIDE: Final = ("max_length", "max_payload_size_kb", "auto_evict")
_PLAIN: Final = (
    *("services", "key", "group", "instance", "resource", "cpu", "memory", "min_replica", "max_delivery"),
    "dead_message_policy",
)


class SideIn(Strict):
    """Bounds of a side. max_length (items) or max_payload_size_kb, not both: each follows from the other and the
    memory; 0 = it does. auto_evict: full, it drops its oldest item for a new one; else it refuses that.
    """

    max_length = serializers.IntegerField(min_value=0, max_value=terms.MOST_LENGTH, required=False)
    max_payload_size_kb = serializers.IntegerField(min_value=0, max_value=terms.MOST_PAYLOAD_KB, required=False)
    auto_evict = serializers.BooleanField(required=False)


class SinkIn(SideIn):
    """Bounds of the sink. memory_ratio: its part of the memory."""

    memory_ratio = serializers.FloatField(min_value=0.01, max_value=0.99, required=False)


class QueueTermsIn(Strict):
    """What a queue is set to; what is not given is as by default, or stays.

    services: models that take from the source; none: the account's own consumers do. key: id of the account's key whose
    jobs their items are; empty: any of its keys that may. instance: replicas on NATS.
    memory: MB. max_delivery: 0 = no limit. max_idle: ``90s``, ``5m``, ``1h``; 0 = none. cpu, resource and min_replica
    are without effect.
    """

    services = serializers.ListField(child=serializers.CharField(max_length=100), required=False)
    key = serializers.CharField(max_length=32, required=False, allow_blank=True)
    group = serializers.CharField(max_length=terms.MOST_WORD, required=False, allow_blank=True)
    instance = serializers.IntegerField(min_value=1, max_value=5, required=False)
    resource = serializers.CharField(max_length=terms.MOST_WORD, required=False, allow_blank=True)
    cpu = serializers.IntegerField(min_value=1, max_value=1024, required=False)
    memory = serializers.IntegerField(min_value=1, max_value=terms.MOST_MEMORY_MB, required=False)
    min_replica = serializers.IntegerField(min_value=1, max_value=5, required=False)
    max_delivery = serializers.IntegerField(min_value=0, max_value=terms.MOST_DELIVERY, required=False)
    max_idle = serializers.CharField(max_length=20, required=False)
    dead_message_policy = serializers.ChoiceField(choices=terms.POLICIES, required=False)
    source = SideIn(required=False)  # type: ignore[assignment]  # a field: the metaclass takes it out
    sink = SinkIn(required=False)


class QueueIn(QueueTermsIn):
    """A new queue of an account."""

    name = serializers.CharField(max_length=terms.MOST_NAME)
    account = serializers.CharField(max_length=32)


class QueueChangeIn(QueueTermsIn):
    """What is to change of a queue. reason: for the audit."""

    reason = serializers.CharField(max_length=200, required=False, default="", allow_blank=True)


class QueueSideOut(serializers.Serializer[Any]):
    """Bounds of a side. most_items, most_bytes: what it holds at most, and of one item, as they follow."""

    max_length = serializers.IntegerField()
    max_payload_size_kb = serializers.IntegerField()
    auto_evict = serializers.BooleanField()
    memory_ratio = serializers.FloatField()
    most_items = serializers.IntegerField()
    most_bytes = serializers.IntegerField()


class QueueGroupOut(serializers.Serializer[Any]):
    """A group of a side. pending: given out and not committed. left: not given out. index: of the last given out."""

    name = serializers.CharField()
    pending = serializers.IntegerField()
    left = serializers.IntegerField()
    index = serializers.IntegerField()


class ConsumerOut(serializers.Serializer[Any]):
    """An open watch. status: ``Running``, ``Complete`` or ``Leaving``. pending: items it holds; slots: that it can."""

    group = serializers.CharField()
    uid = serializers.CharField()
    status = serializers.CharField()
    window = serializers.IntegerField()
    pending = serializers.IntegerField()
    slots = serializers.IntegerField()
    index = serializers.IntegerField()
    idle_s = serializers.FloatField()
    is_auto_commit = serializers.BooleanField()
    tags = serializers.DictField(child=serializers.CharField())


class SideStateOut(serializers.Serializer[Any]):
    """How a side stands. rear: dead items in its rear queue. is_full: puts are refused."""

    length = serializers.IntegerField()
    bytes = serializers.IntegerField(source="size")
    first_index = serializers.IntegerField()
    last_index = serializers.IntegerField()
    oldest_at = serializers.DateTimeField(allow_null=True)
    rear = serializers.IntegerField()
    is_ended = serializers.BooleanField()
    is_away = serializers.BooleanField()
    is_full = serializers.BooleanField()
    groups = QueueGroupOut(many=True)
    consumers = ConsumerOut(many=True)


class QueueStateOut(serializers.Serializer[Any]):
    """How a queue stands. state: ``ok``, ``pending`` (being made), ``failed``, ``late`` (a side is full) or ``drained``
    (a side has ended). replicas: that NATS keeps.
    """

    state = serializers.CharField()
    words = serializers.CharField()
    why = serializers.CharField()
    replicas = serializers.IntegerField()
    source = SideStateOut()  # type: ignore[assignment]  # a field: the metaclass takes it out
    sink = SideStateOut()


class QueueOut(serializers.Serializer[Any]):
    """A queue. state: null where NATS does not tell now. unpublished: why the fleet does not know of it as it is."""

    name = serializers.CharField()
    account = serializers.CharField()
    services = serializers.ListField(child=serializers.CharField())
    key = serializers.CharField()
    group = serializers.CharField()
    instance = serializers.IntegerField()
    resource = serializers.CharField()
    cpu = serializers.IntegerField()
    memory = serializers.IntegerField()
    min_replica = serializers.IntegerField()
    max_delivery = serializers.IntegerField()
    max_idle = serializers.CharField()
    dead_message_policy = serializers.ChoiceField(choices=terms.POLICIES)
    source = QueueSideOut()  # type: ignore[assignment]  # a field: the metaclass takes it out
    sink = QueueSideOut()
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField()
    updated_at = serializers.DateTimeField()
    unpublished = serializers.CharField()
    state = QueueStateOut(allow_null=True)


class SideNamedIn(ReasonIn):
    """side: of the queue."""

    side = serializers.ChoiceField(choices=SIDES, required=False, default="source")


class PurgeIn(SideNamedIn):
    """rear: what is in its rear queue. items: how many there are, as you were told; what came since stays."""

    rear = serializers.BooleanField(required=False, default=False)
    items = serializers.IntegerField(min_value=1, max_value=contents.MOST_PURGED)


class RedriveQueueIn(SideNamedIn):
    """most: dead items, the oldest first."""

    most = serializers.IntegerField(
        min_value=1, max_value=contents.MOST_REDRIVEN, required=False, default=contents.MOST_REDRIVEN
    )


class ItemsOut(serializers.Serializer[Any]):
    """items: how many it was done with."""

    items = serializers.IntegerField()


_CHANGED: Final = {200: QueueOut, 202: QueueOut}


class Queues(Endpoint):
    """Queues: how they stand, what they are set to, and what is in them."""

    @extend_schema(operation_id="queues_list", responses=QueueOut(many=True))
    def index(self, request: Request) -> Response:
        """List queues by name, and how they stand."""
        self.sees(request, Act.QUEUES_VIEW)
        waiting, found = services.unpublished(), list(services.listed())
        try:
            states: Mapping[str, QueueState] | None = reading.states() if found else {}
        except (Unavailable, Misconfigured):
            states = None
        return Response([_shown(one, waiting.get(one.name, ""), states) for one in found])

    @extend_schema(request=QueueIn, responses={201: QueueOut, 202: QueueOut})
    def create(self, request: Request) -> Response:
        """Create a queue."""
        self.confirmed(request)
        given = self.given(request, QueueIn)
        name, account = given.pop("name"), given.pop("account")
        made = services.create(self.actor(request), name, account, _terms(given))
        why = services.why_unpublished(made.name)
        return Response(_shown(made, why, {}), status=202 if why else 201)

    @extend_schema(responses=QueueOut)
    def show(self, request: Request, name: str) -> Response:
        """Show a queue, its groups and its consumers."""
        self.sees(request, Act.QUEUES_VIEW)
        found = services.find(name)
        return Response(_shown(found, services.unpublished().get(name, ""), _state(name)))

    @extend_schema(request=QueueChangeIn, responses=_CHANGED)
    def change(self, request: Request, name: str) -> Response:
        """Change what a queue is set to; items and groups stay."""
        self.confirmed(request)
        given = self.given(request, QueueChangeIn)
        reason = given.pop("reason")
        found = services.change(self.actor(request), name, _terms(given), reason=reason)
        why = services.why_unpublished(name)
        return Response(_shown(found, why, _state(name)), status=202 if why else 200)

    @extend_schema(responses={204: None})
    def remove(self, request: Request, name: str) -> Response:
        """Delete a queue with all that is in it and in its rear queue. It cannot be undone."""
        self.confirmed(request)
        services.delete(self.actor(request), name)
        return Response(status=204)

    @extend_schema(request=PurgeIn, responses=ItemsOut)
    def purge(self, request: Request, name: str) -> Response:
        """Delete the oldest items of a side, or of its rear queue. It cannot be undone."""
        given = self.given(request, PurgeIn)
        done = contents.purge(
            self.actor(request), name, given["side"], given["items"], is_rear=given["rear"], reason=given["reason"]
        )
        return Response({"items": done})

    @extend_schema(request=RedriveQueueIn, responses=ItemsOut)
    def redrive(self, request: Request, name: str) -> Response:
        """Put dead items of a side's rear queue back into it."""
        given = self.given(request, RedriveQueueIn)
        done = contents.redrive(self.actor(request), name, given["side"], most=given["most"], reason=given["reason"])
        return Response({"items": done})

    @extend_schema(request=SideNamedIn, responses={204: None})
    def reopen(self, request: Request, name: str) -> Response:
        """Have a side whose stream was ended take items again."""
        given = self.given(request, SideNamedIn)
        contents.reopen(self.actor(request), name, given["side"], reason=given["reason"])
        return Response(status=204)


def _terms(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given fields by the names that the service has for them. Raises :class:`InvalidRequest`."""
    found = {name: given[name] for name in _PLAIN if name in given}
    if "max_idle" in given:
        found["max_idle_s"] = terms.seconds_of(given["max_idle"])
    for side in SIDES:
        bounds = given.get(side, {})
        found |= {f"{side}_{name}": bounds[name] for name in _OF_SIDE if name in bounds}
        if "memory_ratio" in bounds:
            found["memory_ratio"] = bounds["memory_ratio"]
    return found


def _state(name: str) -> dict[str, QueueState] | None:
    """How one queue stands, by its name; None where that is not known now."""
    try:
        found = reading.state(name)
    except (Unavailable, Misconfigured):
        return None
    return {} if found is None else {name: found}


def _shown(queue: Queue, unpublished: str, states: Mapping[str, QueueState] | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: getattr(queue, name) for name in (*_PLAIN, "name", "created_at", "created_by", "updated_at")
    }
    found |= {
        "account": queue.account_id,
        "max_idle": terms.text_of(queue.max_idle_s),
        "unpublished": unpublished,
        "state": None if states is None else _stands(queue, states.get(queue.name)),
    }
    found |= {side: _bounds(queue, side) for side in SIDES}
    return dict(QueueOut(found).data)


def _bounds(queue: Queue, side: Side) -> dict[str, Any]:
    room = queue.room(side)
    ratio = queue.memory_ratio if side == "sink" else 1 - queue.memory_ratio
    found = {name: getattr(queue, f"{side}_{name}") for name in _OF_SIDE}
    return found | {"memory_ratio": ratio, "most_items": room.length, "most_bytes": room.item_bytes}


def _stands(queue: Queue, state: QueueState | None) -> dict[str, Any]:
    said = queueservice.condition(queue.document(), state)
    found = {"state": said.state, "words": said.label, "why": said.why, "replicas": state.replicas if state else 0}
    return found | {side: _side(queue, side, state) for side in SIDES}


def _side(queue: Queue, side: Side, state: QueueState | None) -> dict[str, Any]:
    told = queueservice.side_of(state, side)
    watches: tuple[WatchState, ...] = state.watches if state is not None else ()
    return _fields(told) | {
        "oldest_at": datetime.fromtimestamp(told.oldest_at, UTC) if told.oldest_at else None,
        "is_full": queueservice.is_full(queue.document(), side, state),
        "groups": [_fields(one) for one in told.groups],
        "consumers": [_fields(one) for one in watches if one.side == side],
    }


def _fields(doc: Doc) -> dict[str, Any]:
    """All of them: what is written leaves out those that are as by default."""
    return {name: getattr(doc, name) for name in doc.__struct_fields__}
