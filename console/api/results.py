"""REST calls on what goes out: subscriptions, webhooks, and batches of files."""

from datetime import UTC, datetime
from typing import Any, Final, get_args

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api.base import Endpoint
from console.api.serializers import ReasonIn, SwitchIn
from console.api.strict import Strict
from console.board import hooks
from console.outbound import batches, hosts, reading, subscriptions, webhooks
from console.outbound.models import Subscription, Webhook
from signalbox.wire.outbound import Batch, BatchState, Delivery, HookState

_LISTED: Final = 1000


class CoveringIn(Strict):
    """Whose ends. account: an id, empty = every one. model: a name, empty = every one."""

    account = serializers.CharField(max_length=32, required=False, default="", allow_blank=True)
    model = serializers.CharField(max_length=100, required=False, default="", allow_blank=True)


class SubscriptionOut(serializers.ModelSerializer[Subscription]):
    """Ends of jobs that go to the output stream. account, model: empty = every one.

    unpublished: why the outbound program does not know of it yet; empty once it does.
    """

    account = serializers.CharField(source="account_id", allow_null=True)
    unpublished = serializers.SerializerMethodField()

    class Meta:
        model = Subscription
        fields = ("id", "account", "model", "is_enabled", "created_at", "created_by", "updated_at", "unpublished")

    def get_unpublished(self, subscription: Subscription) -> str:
        """Why; empty once it is."""
        why: str = self.context["unpublished"].get(subscription.pk, "")
        return why


class WebhookIn(CoveringIn):
    """A new webhook. url: where ends are posted to."""

    url = serializers.CharField(max_length=webhooks.MOST_URL)


class WebhookOut(serializers.ModelSerializer[Webhook]):
    """A webhook. url: without its query, which may hold a receiver's token; empty where jobs name a URL
    themselves (``is_for_jobs``). previous_until: messages are signed with the replaced secret too until then.
    """

    account = serializers.CharField(source="account_id", allow_null=True)
    url = serializers.CharField(source="shown_url")
    unpublished = serializers.SerializerMethodField()

    class Meta:
        model = Webhook
        fields: tuple[str, ...] = (
            *("id", "account", "model", "url", "is_for_jobs", "is_enabled", "enabled_at", "previous_until"),
            *("created_at", "created_by", "updated_at", "unpublished"),
        )

    def get_unpublished(self, webhook: Webhook) -> str:
        """Why the outbound program does not know of it as it is; empty once it does."""
        why: str = self.context["unpublished"].get(webhook.pk, "")
        return why


class HookStateOut(serializers.Serializer[Any]):
    """How deliveries go. state: ``ok``, ``waiting`` (they fail, and are tried again), ``failed`` (it was given up),
    ``idle`` (none yet) or ``disabled``. waiting: deliveries that are to be tried again. status: of the last answer.
    """

    state = serializers.CharField()
    words = serializers.CharField()
    why = serializers.CharField()
    failing_since = serializers.DateTimeField(allow_null=True)
    given_up_at = serializers.DateTimeField(allow_null=True)
    last_at = serializers.DateTimeField(allow_null=True)
    last_status = serializers.IntegerField()
    waiting = serializers.IntegerField()


class WebhookDetailOut(WebhookOut):
    """A webhook, and how its deliveries go."""

    deliveries = HookStateOut()

    class Meta(WebhookOut.Meta):
        fields = (*WebhookOut.Meta.fields, "deliveries")


class NewWebhookOut(WebhookOut):
    """A webhook with its secret, which is only in this answer."""

    secret = serializers.CharField()

    class Meta(WebhookOut.Meta):
        fields = (*WebhookOut.Meta.fields, "secret")


class SecretRotationIn(ReasonIn):
    """keeps_previous: messages are signed with the secret before, too, for a day."""

    keeps_previous = serializers.BooleanField(required=False, default=True)


class AttemptOut(serializers.Serializer[Any]):
    """One attempt at a delivery. status: of the answer; 0 = none, and ``error`` says why. answer: how it began.

    by_hand: an operator asked for it. next_at: when it is tried again.
    """

    job = serializers.CharField(source="job_id")
    attempt = serializers.IntegerField()
    at = serializers.DateTimeField()
    took_ms = serializers.FloatField()
    status = serializers.IntegerField()
    error = serializers.CharField()
    answer = serializers.CharField()
    by_hand = serializers.BooleanField()
    next_at = serializers.DateTimeField(allow_null=True)


class DeliverIn(ReasonIn):
    """job: whose end is delivered once more."""

    job = serializers.CharField(max_length=36)


class HostsIn(ReasonIn):
    """hosts: that the account's jobs may name for webhooks of their own; empty: none."""

    hosts = serializers.ListField(child=serializers.CharField(max_length=253), max_length=hosts.MOST)


class HostsOut(serializers.Serializer[Any]):
    """webhook: the id of the one that is for these, if any. secret: of it, if it is new; only in this answer."""

    hosts = serializers.ListField(child=serializers.CharField())
    webhook = serializers.CharField()
    secret = serializers.CharField()


class BatchOut(serializers.Serializer[Any]):
    """A batch of a file. key: names it here. asked: what is wanted of it. total, completed, failed: lines."""

    key = serializers.CharField()
    id = serializers.CharField()
    account = serializers.CharField(source="account_id")
    endpoint = serializers.CharField()
    state = serializers.ChoiceField(choices=get_args(BatchState))
    asked = serializers.ChoiceField(choices=get_args(batches.Asked))
    total = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()
    input_file = serializers.CharField()
    output_file = serializers.CharField()
    error_file = serializers.CharField()
    error = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    deadline_at = serializers.DateTimeField()


class SteerIn(ReasonIn):
    """What is asked of a batch."""

    asked = serializers.ChoiceField(choices=get_args(batches.Asked))


class SteeredOut(serializers.Serializer[Any]):
    """unpublished: why the outbound program does not know of it yet; empty once it does."""

    asked = serializers.ChoiceField(choices=get_args(batches.Asked))
    unpublished = serializers.CharField()


_SUBSCRIBED = {200: SubscriptionOut, 202: SubscriptionOut}
_SWITCHED = {200: WebhookOut, 202: WebhookOut}
_STEERED = {200: SteeredOut, 202: SteeredOut}


class Subscriptions(Endpoint):
    """Whose ends of jobs go to the output stream."""

    @extend_schema(operation_id="subscriptions_list", responses=SubscriptionOut(many=True))
    def index(self, request: Request) -> Response:
        """List subscriptions to the ends of jobs."""
        self.sees(request, Act.RESULTS_VIEW)
        return Response(
            SubscriptionOut(subscriptions.listed()[:_LISTED], many=True, context=_waiting_subscriptions()).data
        )

    @extend_schema(request=CoveringIn, responses={201: SubscriptionOut, 202: SubscriptionOut})
    def create(self, request: Request) -> Response:
        """Have the ends of an account's jobs, or of all, go to the output stream from now on."""
        self.confirmed(request)
        made = subscriptions.create(self.actor(request), **self.given(request, CoveringIn))
        return _subscribed(made, 201)

    @extend_schema(responses=SubscriptionOut)
    def show(self, request: Request, subscription_id: str) -> Response:
        """Show a subscription."""
        self.sees(request, Act.RESULTS_VIEW)
        return Response(SubscriptionOut(subscriptions.find(subscription_id), context=_waiting_subscriptions()).data)

    @extend_schema(request=SwitchIn, responses=_SUBSCRIBED)
    def switch(self, request: Request, subscription_id: str) -> Response:
        """Switch a subscription on or off."""
        given = self.given(request, SwitchIn)
        found = subscriptions.switch(self.actor(request), subscription_id, is_on=given["on"], reason=given["reason"])
        return _subscribed(found, 200)

    @extend_schema(responses={204: None})
    def remove(self, request: Request, subscription_id: str) -> Response:
        """Delete a subscription. What is in the output stream stays there until it is too old."""
        self.confirmed(request)
        subscriptions.delete(self.actor(request), subscription_id)
        return Response(status=204)


class Webhooks(Endpoint):
    """Who is told of ends of jobs over HTTP."""

    @extend_schema(operation_id="webhooks_list", responses=WebhookOut(many=True))
    def index(self, request: Request) -> Response:
        """List webhooks."""
        self.sees(request, Act.RESULTS_VIEW)
        return Response(WebhookOut(webhooks.listed()[:_LISTED], many=True, context=_waiting_webhooks()).data)

    @extend_schema(request=WebhookIn, responses={201: NewWebhookOut, 202: NewWebhookOut})
    def create(self, request: Request) -> Response:
        """Create a webhook. Only this answer contains its secret."""
        self.confirmed(request)
        return _made(*webhooks.create(self.actor(request), **self.given(request, WebhookIn)))

    @extend_schema(responses=WebhookDetailOut)
    def show(self, request: Request, hook: str) -> Response:
        """Show a webhook, and how its deliveries go."""
        self.sees(request, Act.RESULTS_VIEW)
        found = webhooks.find(hook)
        told = {"deliveries": HookStateOut(_state(found, reading.state(hook))).data}
        return Response(WebhookOut(found, context=_waiting_webhooks()).data | told)

    @extend_schema(request=SwitchIn, responses=_SWITCHED)
    def switch(self, request: Request, hook: str) -> Response:
        """Switch a webhook on or off. On: one that was given up is called again too."""
        given = self.given(request, SwitchIn)
        found = webhooks.switch(self.actor(request), hook, is_on=given["on"], reason=given["reason"])
        why = webhooks.why_unpublished(hook)
        return Response(WebhookOut(found, context={"unpublished": {hook: why}}).data, status=202 if why else 200)

    @extend_schema(request=SecretRotationIn, responses={201: NewWebhookOut, 202: NewWebhookOut})
    def rotate(self, request: Request, hook: str) -> Response:
        """Give a webhook another secret. Only this answer contains it."""
        self.confirmed(request)
        return _made(*webhooks.rotate(self.actor(request), hook, **self.given(request, SecretRotationIn)))

    @extend_schema(operation_id="webhook_attempts_list", responses=AttemptOut(many=True))
    def attempts(self, request: Request, hook: str) -> Response:
        """List the last attempts at deliveries, the newest first."""
        self.sees(request, Act.RESULTS_VIEW)
        found = reading.attempts(webhooks.find(hook).pk)
        return Response([AttemptOut(_attempt(one)).data for one in found])

    @extend_schema(request=DeliverIn, responses={202: None})
    def deliver(self, request: Request, hook: str) -> Response:
        """Have a job's end delivered once more, under the same id."""
        given = self.given(request, DeliverIn)
        webhooks.deliver_again(self.actor(request), hook, given["job"], reason=given["reason"])
        return Response(status=202)

    @extend_schema(responses={204: None})
    def remove(self, request: Request, hook: str) -> Response:
        """Delete a webhook with its secret: what waits to be delivered to it is not."""
        self.confirmed(request)
        webhooks.delete(self.actor(request), hook)
        return Response(status=204)

    @extend_schema(request=HostsIn, responses=HostsOut)
    def allow_hosts(self, request: Request, account_id: str) -> Response:
        """Let the jobs of an account name webhooks of their own on these hosts, or on none."""
        self.confirmed(request)
        given = self.given(request, HostsIn)
        hook, text = hosts.allow(self.actor(request), account_id, given["hosts"], reason=given["reason"])
        names = hook.account.webhook_hosts if hook is not None and hook.account is not None else []
        return Response({"hosts": names, "webhook": hook.pk if hook is not None else "", "secret": text})


class Batches(Endpoint):
    """Batches of files, which accounts make at the front."""

    @extend_schema(operation_id="batches_list", responses=BatchOut(many=True))
    def index(self, request: Request) -> Response:
        """List batches, those that have not ended first."""
        self.sees(request, Act.RESULTS_VIEW)
        return Response([BatchOut(_batch(one)).data for _, one in reading.batches()])

    @extend_schema(responses=BatchOut)
    def show(self, request: Request, key: str) -> Response:
        """Show a batch and how far it is."""
        self.sees(request, Act.RESULTS_VIEW)
        return Response(BatchOut(_batch(reading.batch(key))).data)

    @extend_schema(request=SteerIn, responses=_STEERED)
    def steer(self, request: Request, key: str) -> Response:
        """Have a batch pause, go on or be cancelled."""
        given = self.given(request, SteerIn)
        why = batches.steer(self.actor(request), key, given["asked"], reason=given["reason"])
        return Response({"asked": given["asked"], "unpublished": why}, status=202 if why else 200)


def _waiting_subscriptions() -> dict[str, Any]:
    return {"unpublished": subscriptions.unpublished()}


def _waiting_webhooks() -> dict[str, Any]:
    return {"unpublished": webhooks.unpublished()}


def _subscribed(subscription: Subscription, status: int) -> Response:
    why = subscriptions.why_unpublished(subscription.pk)
    data = SubscriptionOut(subscription, context={"unpublished": {subscription.pk: why}}).data
    return Response(data, status=202 if why else status)


def _made(hook: Webhook, text: str) -> Response:
    why = webhooks.why_unpublished(hook.pk)
    data = WebhookOut(hook, context={"unpublished": {hook.pk: why}}).data
    return Response({**data, "secret": text}, status=202 if why else 201)


def _state(hook: Webhook, state: HookState | None) -> dict[str, Any]:
    document = hook.document()
    said = hooks.condition(document, state)
    told = state or HookState()
    is_given_up = hooks.is_given_up(document, told)
    return {
        "state": said.state,
        "words": said.label,
        "why": said.why,
        "failing_since": _instant(told.failing_since),
        "given_up_at": _instant(told.disabled_at) if is_given_up else None,
        "last_at": _instant(told.last_at),
        "last_status": told.last_status,
        "waiting": told.waiting,
    }


def _attempt(one: Delivery) -> dict[str, Any]:
    fields = {name: getattr(one, name) for name in one.__struct_fields__}
    return fields | {"at": _instant(one.at), "next_at": _instant(one.next_at)}


def _batch(one: Batch) -> dict[str, Any]:
    fields = {name: getattr(one, name) for name in one.__struct_fields__}
    instants = {name: _instant(fields[name]) for name in ("created_at", "started_at", "ended_at", "deadline_at")}
    return fields | instants | {"key": batches.key_of(one)}


def _instant(at: float) -> datetime | None:
    return datetime.fromtimestamp(at, UTC) if at else None
