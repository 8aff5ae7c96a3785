"""REST calls on dead letters."""

from datetime import UTC, datetime
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api.base import Endpoint
from console.api.selections import SelectionOut
from console.api.serializers import ReasonIn
from console.api.strict import Strict
from console.bounds import MOST_NUMBER
from console.jobs import deadgroups
from console.jobs import deadletters as service
from console.jobs.deadgroups import Group, Which
from console.selections import letters as selected
from signalbox.jobs.deadletters import MOST, summary


class LetterOut(serializers.Serializer[Any]):
    """A job that failed for good. strikes: runs alone that ended the runner or exceeded their time. failures: attempts
    that counted towards max_delivery without one. input_is: ``inline``, ``kept`` or ``lost``."""

    id = serializers.CharField()
    model = serializers.CharField()
    version = serializers.IntegerField(allow_null=True)
    signature = serializers.CharField()
    account_id = serializers.CharField()
    key_id = serializers.CharField()
    priority = serializers.CharField()
    accepted_at = serializers.DateTimeField(allow_null=True)
    at = serializers.DateTimeField()
    error = serializers.CharField()
    message = serializers.CharField()
    attempt = serializers.IntegerField(allow_null=True)
    strikes = serializers.IntegerField(allow_null=True)
    failures = serializers.IntegerField(allow_null=True)
    worker = serializers.CharField()
    gpu = serializers.CharField()
    size_bytes = serializers.IntegerField()
    input_is = serializers.CharField()
    not_kept = serializers.CharField()
    redrive_of = serializers.CharField()
    redriven_as = serializers.CharField()
    redriven_at = serializers.DateTimeField(allow_null=True)


class InputOut(serializers.Serializer[Any]):
    """One input tensor, without its values."""

    name = serializers.CharField()
    dtype = serializers.CharField()
    shape = serializers.ListField(child=serializers.IntegerField())


class LetterDetailOut(LetterOut):
    """A dead letter with its inputs."""

    inputs = InputOut(many=True)


class LetterPageOut(serializers.Serializer[Any]):
    """A page of dead letters, oldest first. after: where the next page begins."""

    letters = LetterOut(many=True)
    after = serializers.IntegerField(allow_null=True)


class LettersQuery(Strict):
    """Which dead letters. after: the ``after`` of the previous page."""

    model = serializers.CharField(max_length=100, required=False, default="", allow_blank=True)
    after = serializers.IntegerField(min_value=0, max_value=MOST_NUMBER - 1, required=False, default=0)
    size = serializers.IntegerField(min_value=1, max_value=MOST, required=False, default=50)


class WithVersionIn(ReasonIn):
    """with_version: of the model, to run it with; 0 = as it was. Its input has to fit that version."""

    with_version = serializers.IntegerField(min_value=0, max_value=MOST_NUMBER, required=False, default=0)


class RedriveIn(WithVersionIn):
    """after: the job of the previous redrive, if there was one; it is needed to redrive once more."""

    after = serializers.CharField(max_length=36, required=False, default="", allow_blank=True)


class WhichIn(Strict):
    """Which dead letters: of a group, as the list of groups names it, or all of a model, or all. until: the newest."""

    model = serializers.CharField(max_length=100, required=False, default="", allow_blank=True)
    version = serializers.IntegerField(min_value=0, max_value=MOST_NUMBER, required=False, default=0)
    error = serializers.CharField(max_length=100, required=False, default="", allow_blank=True)
    group = serializers.CharField(max_length=100, required=False, default="", allow_blank=True)
    until = serializers.IntegerField(min_value=1, max_value=MOST_NUMBER)


class RedriveManyIn(WhichIn, WithVersionIn):
    """Letters to run again, those left out that were redriven before."""


class DiscardManyIn(WhichIn, ReasonIn):
    """Letters to remove."""


class GroupsQuery(Strict):
    """Of which model; empty = of all."""

    model = serializers.CharField(max_length=100, required=False, default="", allow_blank=True)


class GroupOut(serializers.Serializer[Any]):
    """Letters of one model and version whose errors are alike. waiting: not redriven yet. sample: the newest."""

    model = serializers.CharField()
    version = serializers.IntegerField()
    error = serializers.CharField()
    group = serializers.CharField()
    until = serializers.IntegerField()
    count = serializers.IntegerField()
    waiting = serializers.IntegerField()
    sample = serializers.CharField()
    message = serializers.CharField()
    first_at = serializers.DateTimeField()
    last_at = serializers.DateTimeField()
    kept_until = serializers.DateTimeField(allow_null=True)


class GroupsOut(serializers.Serializer[Any]):
    """Groups, the largest first. is_cut: newer letters were not looked at."""

    groups = GroupOut(many=True)
    until = serializers.IntegerField()
    is_cut = serializers.BooleanField()


class AskedOut(serializers.Serializer[Any]):
    """What became of the request. is_done: it is in NATS; otherwise it waits in the outbox, because of ``reason``."""

    job = serializers.CharField()
    is_done = serializers.BooleanField()
    reason = serializers.CharField()


class DeadLetters(Endpoint):
    """Dead letters, the oldest first."""

    @extend_schema(operation_id="dead_letters_list", parameters=[LettersQuery], responses=LetterPageOut)
    def index(self, request: Request) -> Response:
        """List dead letters, oldest first."""
        self.sees(request, Act.JOBS_VIEW)
        page = service.page(**self.asked(request, LettersQuery), only=self.actor(request).only_models)
        return Response({"letters": [summary(one) for one in page.letters], "after": page.after})

    @extend_schema(parameters=[GroupsQuery], responses=GroupsOut)
    def groups(self, request: Request) -> Response:
        """List dead letters by error, of the oldest 1 000."""
        self.sees(request, Act.JOBS_VIEW)
        found = deadgroups.read(Which(**self.asked(request, GroupsQuery)), self.actor(request).only_models)
        groups = [_group(one) for one in deadgroups.groups(found)]
        return Response({"groups": groups, "until": found.until, "is_cut": found.is_cut})

    @extend_schema(operation_id="dead_letters_redrive_many", request=RedriveManyIn, responses={202: SelectionOut})
    def redrive_many(self, request: Request) -> Response:
        """Run many again that were not redriven yet: a selection, which tells what became of each."""
        given = self.given(request, RedriveManyIn)
        more = {name: given.pop(name) for name in ("with_version", "reason")}
        chosen = selected.redrive(self.actor(request), Which(**given), **more)
        return Response(SelectionOut(chosen).data, status=202)

    @extend_schema(operation_id="dead_letters_discard_many", request=DiscardManyIn, responses={202: SelectionOut})
    def discard_many(self, request: Request) -> Response:
        """Remove many and their inputs for good: a selection, which tells what became of each."""
        given = self.given(request, DiscardManyIn)
        reason = given.pop("reason")
        chosen = selected.discard(self.actor(request), Which(**given), reason=reason)
        return Response(SelectionOut(chosen).data, status=202)

    @extend_schema(responses=LetterDetailOut)
    def show(self, request: Request, job_id: str) -> Response:
        """Show a dead letter and the types of its inputs."""
        self.sees(request, Act.JOBS_VIEW)
        return Response(service.show(job_id))

    @extend_schema(request=RedriveIn, responses={202: AskedOut})
    def redrive(self, request: Request, job_id: str) -> Response:
        """Run a dead letter's job again, as a new job that names it. Repeating the call makes no second job."""
        asked = service.redrive(self.actor(request), job_id, **self.given(request, RedriveIn))
        return Response(AskedOut(asked).data, status=202)

    @extend_schema(request=ReasonIn, responses={202: AskedOut})
    def discard(self, request: Request, job_id: str) -> Response:
        """Remove a dead letter and its input for good."""
        asked = service.discard(self.actor(request), job_id, **self.given(request, ReasonIn))
        return Response(AskedOut(asked).data, status=202)


def _group(one: Group) -> dict[str, Any]:
    instants = {name: _instant(getattr(one, name)) for name in ("first_at", "last_at", "kept_until")}
    counts = {"count": one.count, "waiting": one.waiting}
    return {**one.which._asdict(), **counts, "sample": one.sample.id, "message": one.sample.message, **instants}


def _instant(at: float | None) -> datetime | None:
    return datetime.fromtimestamp(at, UTC) if at is not None else None
