"""REST calls on dead letters."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api.base import Endpoint
from console.api.serializers import ReasonIn
from console.api.strict import Strict
from console.bounds import MOST_NUMBER
from console.jobs import deadletters as service
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


class RedriveIn(ReasonIn):
    """after: the job of the previous redrive, if there was one; it is needed to redrive once more."""

    after = serializers.CharField(max_length=36, required=False, default="", allow_blank=True)


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
