"""REST calls that read a job's input and output."""

from dataclasses import asdict
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.base import Endpoint
from console.api.strict import Strict
from console.payloads import answers, previews, services
from console.payloads.downloads import Form
from console.payloads.services import Reading
from console.payloads.stored import Part


class PayloadQuery(Strict):
    """download: the whole as a file instead of its description; ``npz`` where it has no strings."""

    download = serializers.ChoiceField(choices=[form.value for form in Form], required=False, default="")


class TensorFiguresOut(serializers.Serializer[Any]):
    """Over all elements that are numbers: least, mean, greatest, and how many are NaN."""

    least = serializers.JSONField(allow_null=True)
    mean = serializers.JSONField(allow_null=True)
    most = serializers.JSONField(allow_null=True)
    nan = serializers.IntegerField()


class TensorTextOut(serializers.Serializer[Any]):
    """A string. text: the start of it, or of its bytes in hexadecimal. hidden: what is left out."""

    text = serializers.CharField(allow_blank=True)
    is_text = serializers.BooleanField()
    size_bytes = serializers.IntegerField()
    hidden = serializers.IntegerField()
    kind = serializers.CharField(allow_blank=True)


class PreviewOut(serializers.Serializer[Any]):
    """A tensor: figures, and its first elements, at most eight rows of eight."""

    name = serializers.CharField(allow_blank=True)
    dtype = serializers.CharField()
    shape = serializers.ListField(child=serializers.IntegerField())
    size_bytes = serializers.IntegerField()
    count = serializers.IntegerField()
    figures = TensorFiguresOut(allow_null=True)
    first = serializers.JSONField()
    texts = TensorTextOut(many=True)


class PayloadOut(serializers.Serializer[Any]):
    """What was read. is_there: it is stored; otherwise ``why`` says since when it is gone. left_out: more tensors."""

    job = serializers.CharField()
    is_there = serializers.BooleanField()
    why = serializers.CharField(allow_blank=True)
    size_bytes = serializers.IntegerField()
    tensors = PreviewOut(many=True)
    left_out = serializers.IntegerField()


class Payloads(Endpoint):
    """Inputs and outputs of jobs. Every call is in the audit."""

    @extend_schema(parameters=[PayloadQuery], responses=PayloadOut)
    def input(self, request: Request, job_id: str) -> Response | HttpResponse:
        """Describe the input of a job, or save it as a file: while it waits or runs, and of dead letters."""
        return self._read(request, job_id, Part.INPUT)

    @extend_schema(parameters=[PayloadQuery], responses=PayloadOut)
    def output(self, request: Request, job_id: str) -> Response | HttpResponse:
        """Describe the output of a job, or save it as a file, as long as the API has it."""
        return self._read(request, job_id, Part.OUTPUT)

    def _read(self, request: Request, job_id: str, part: Part) -> Response | HttpResponse:
        form = self.asked(request, PayloadQuery)["download"]
        actor = self.actor(request)
        services.require(actor, job_id, part)
        self.confirmed(request)
        with services.turn():
            found = services.read(actor, job_id, part, what=form)
            return answers.as_file(found, Form(form)) if form else Response(_described(found))


def _described(found: Reading) -> dict[str, Any]:
    tensors = found.tensors or []
    return {
        "job": found.request.job_id,
        "is_there": found.tensors is not None,
        "why": found.why,
        "size_bytes": found.size_bytes,
        "tensors": PreviewOut([asdict(one) for one in previews.of(tensors)], many=True).data,
        "left_out": max(0, len(tensors) - previews.MOST_TENSORS),
    }
