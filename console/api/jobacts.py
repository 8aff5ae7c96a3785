"""REST calls that act on one job."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import serializers as wire
from console.api.base import Endpoint
from console.jobs import acts
from signalbox.wire.names import PRIORITIES


class RetryIn(wire.ReasonIn):
    """after: the job that it was run again as before; it is needed to run it once more."""

    after = serializers.CharField(max_length=36, required=False, default="", allow_blank=True)


class JobChangeIn(wire.ReasonIn):
    """What a waiting job is to have; null: as it is."""

    priority = serializers.ChoiceField(PRIORITIES, required=False, default=None, allow_null=True)
    deadline_at = serializers.DateTimeField(required=False, default=None, allow_null=True)


class JobActOut(serializers.Serializer[Any]):
    """What became of the request. job: of a retry the new one. is_done: it is in NATS; otherwise it waits in the
    outbox, because of ``reason``."""

    job = serializers.CharField()
    is_done = serializers.BooleanField()
    reason = serializers.CharField()


class JobActs(Endpoint):
    """Acts on one job."""

    @extend_schema(request=wire.ReasonIn, responses={202: wire.JobOut})
    def cancel(self, request: Request, job_id: str) -> Response:
        """Cancel a job: end it if it is queued, or ask its worker to end it."""
        job = acts.cancel(self.actor(request), job_id, **self.given(request, wire.ReasonIn))
        return Response(wire.JobOut(job).data, status=202)

    @extend_schema(request=RetryIn, responses={202: JobActOut})
    def retry(self, request: Request, job_id: str) -> Response:
        """Run a job that was given up again, as a new job that names it. Repeating the call makes no second job."""
        done = acts.retry(self.actor(request), job_id, **self.given(request, RetryIn))
        return Response(JobActOut(done).data, status=202)

    @extend_schema(request=JobChangeIn, responses={202: JobActOut})
    def change(self, request: Request, job_id: str) -> Response:
        """Raise the priority of a waiting job, or move its deadline."""
        done = acts.change(self.actor(request), job_id, **self.given(request, JobChangeIn))
        return Response(JobActOut(done).data, status=202)

    @extend_schema(request=wire.ReasonIn, responses={202: JobActOut})
    def delete(self, request: Request, job_id: str) -> Response:
        """Delete an ended job for good: its result, its dead letter and its row."""
        done = acts.delete(self.actor(request), job_id, **self.given(request, wire.ReasonIn))
        return Response(JobActOut(done).data, status=202)
