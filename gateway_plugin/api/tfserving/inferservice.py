"""TensorFlow Serving's Classify, Regress and MultiInference over gRPC: examples in, results out.

What examples and signatures must be is said in :mod:`gateway_plugin.codec.serving.examples`, and what comes back in
:mod:`gateway_plugin.codec.serving.results`; both are those of the REST API. Source: TensorFlow Serving's
``multi_inference.cc`` and ``util.cc``.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Final, NamedTuple

from gateway_plugin.api.answers import job_headers
from gateway_plugin.api.calls import GrpcCall, GrpcReply
from gateway_plugin.api.tfserving import modelspec
from gateway_plugin.api.tfserving.monitoring import GRPC, RequestCounts
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.inputs import DEFAULT_SIGNATURE, listed, some
from gateway_plugin.codec.offloading import Offloading
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.codec.protobuf.protowire import FEW_FIELDS, WireReader
from gateway_plugin.codec.serving import examples, results
from gateway_plugin.codec.serving.examples import CLASSIFY, REGRESS, Examples
from gateway_plugin.proto.serving_pb2 import (
    Class,
    ClassificationResponse,
    ClassificationResult,
    Classifications,
    InferenceResult,
    InferenceTask,
    ModelSpec,
    MultiInferenceResponse,
    Regression,
    RegressionResponse,
    RegressionResult,
)
from gateway_plugin.service.jobs import Jobs, Prediction, PredictionResult
from gateway_plugin.tables.catalog import Catalog
from signalbox.program.errors import InvalidInput, InvalidRequest, SignalboxError, Unimplemented
from signalbox.program.tasks import TaskGroup
from signalbox.wire import tensors

_VERBS: Final = {"tensorflow/serving/classify": CLASSIFY, "tensorflow/serving/regress": REGRESS}
_RESULT_BYTES: Final = 64
"""Bytes of a tensor that take as long to write as one class does."""
_LIST: Final = 1
_WITH_CONTEXT: Final = 2


class InferRequest(NamedTuple):
    """A request that is still in parts. heads: those of its model spec, or its tasks."""

    heads: Sequence[memoryview]
    input: Sequence[memoryview]


class Task(NamedTuple):
    """What is wanted of the examples. verb: ``classify`` or ``regress``."""

    verb: str
    signature: str


class InferService:
    """Answers Classify, Regress and MultiInference."""

    def __init__(self, catalog: Catalog, jobs: Jobs, counts: RequestCounts, offloading: Offloading) -> None:
        self._catalog = catalog
        self._jobs = jobs
        self._counts = counts
        self._offloading = offloading

    async def classify(self, call: GrpcCall) -> GrpcReply:
        """A ClassificationResponse. Raises errors of ours."""
        return await self._infer(call, "ClassificationRequest", CLASSIFY, "Classify")

    async def regress(self, call: GrpcCall) -> GrpcReply:
        """A RegressionResponse. Raises errors of ours."""
        return await self._infer(call, "RegressionRequest", REGRESS, "Regress")

    async def multi_inference(self, call: GrpcCall) -> GrpcReply:
        """A MultiInferenceResponse: each task is a job of its own. Raises errors of ours."""
        what = "MultiInferenceRequest"
        request = read(what, call.body)
        asked = [modelspec.parse(InferenceTask, bytes(head)) for head in request.heads]
        spec = asked[0].model_spec if asked else ModelSpec()
        ready = modelspec.chosen(spec, self._catalog, call)
        tasks = tasks_of(asked, ready)
        work = partial(decoded, what, request.input, ready, tasks)
        inputs = await self._offloading.read(call.key.account_id, len(call.body), work)
        call.hold(sum(len(each.frame) for each in inputs))
        jobs: list[asyncio.Task[PredictionResult]] = []
        try:
            async with TaskGroup() as group:
                jobs += [group.create_task(self._run(call, ready, each)) for each in inputs]
        except ExceptionGroup as failed:  # the others were cancelled
            raise failed.exceptions[0] from None
        ran = [job.result() for job in jobs]
        reply = await self._offloading.write(
            call.key.account_id, sum(map(_cost_bytes, ran)), partial(_multi_reply, tasks, ran, ready)
        )
        return GrpcReply(reply, job_headers(ran[0].record))

    async def _infer(self, call: GrpcCall, what: str, verb: str, api: str) -> GrpcReply:
        request = read(what, call.body)
        spec = modelspec.read(request.heads)
        ready = modelspec.chosen(spec, self._catalog, call)
        with self._counts.counting(call.key, ready.model.name, api, GRPC):
            task = Task(verb, spec.signature_name or DEFAULT_SIGNATURE)
            work = partial(decoded, what, request.input, ready, [task])
            (inputs,) = await self._offloading.read(call.key.account_id, len(call.body), work)
            call.hold(len(inputs.frame))  # the context is in every example
            ran = await self._run(call, ready, inputs)
            reply = await self._offloading.write(
                call.key.account_id, _cost_bytes(ran), partial(_reply, task, ran, ready)
            )
            return GrpcReply(reply, job_headers(ran.record))

    async def _run(self, call: GrpcCall, ready: PreparedVersion, inputs: DecodedInputs) -> PredictionResult:
        return await self._jobs.predict(call.key, call.headers, Prediction(ready, inputs), wait_s=call.timeout_s)


def read(what: str, body: bytes) -> InferRequest:
    """The parts of a request. what: its name. Raises :class:`InvalidRequest` for what is no message."""
    reader = WireReader(what, FEW_FIELDS)
    heads: list[memoryview] = []
    given: list[memoryview] = []
    for field in reader.fields(memoryview(body)):
        if field.number == 1:
            heads.append(reader.message(field))
        elif field.number == 2:
            given.append(reader.message(field))
    return InferRequest(heads, given)


def tasks_of(asked: Sequence[InferenceTask], ready: PreparedVersion) -> list[Task]:
    """The tasks of a MultiInferenceRequest. Raises errors of ours."""
    tasks: dict[str, Task] = {}
    for one in asked:
        name = one.model_spec.signature_name or DEFAULT_SIGNATURE
        (shown,) = some([name])
        if not one.model_spec.name:
            raise InvalidRequest("Found ModelSpec with an empty model name. Each task names the model.")
        if one.model_spec.name != ready.model.name:
            raise InvalidRequest(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name. The first is "
                f'"{ready.model.name}".'
            )
        if name in tasks:
            raise InvalidRequest(f"Duplicate evaluation of signature: {shown}. Name each signature in one task.")
        if name not in ready.plans:
            raise InvalidRequest(f"Requested signature not found in model graph: {shown}. {listed(ready.plans)}")
        verb = _VERBS.get(one.method_name)
        if verb is None:
            raise Unimplemented(
                f"Unsupported signature method_name: {some([one.method_name])[0]}. A task's method_name is "
                f"{' or '.join(_VERBS)}."
            )
        tasks[name] = Task(verb, name)
    return list(tasks.values())


def decoded(
    what: str, given: Sequence[memoryview], ready: PreparedVersion, tasks: Sequence[Task], most_fields: int
) -> list[DecodedInputs]:
    """The examples as the input of each task's signature. most_fields: see :class:`WireReader`.

    Raises :class:`InvalidRequest` and :class:`TooLarge`.
    """
    found = _examples(WireReader(what, most_fields), given)
    if not found.each:
        raise InvalidInput("Input is empty. Give at least one example in example_list or example_list_with_context.")
    made: list[DecodedInputs] = []
    for task in tasks:
        doc = {"signature_name": task.signature}
        one = examples.decode(doc, found, ready.plans, task.verb, ready.model.limits.max_payload_bytes)
        made.append(DecodedInputs(tensors.encode(one.tensors), one.signature, one.style, one.rows, one.batch_key))
    return made


def _examples(reader: WireReader, given: Sequence[memoryview]) -> Examples:
    """The serialized examples of an Input: of its two kinds the last counts, and the parts of one kind add up."""
    kind, lists = 0, list[memoryview]()
    for part in given:
        for field in reader.fields(part):
            if field.number not in {_LIST, _WITH_CONTEXT}:
                continue
            if field.number != kind:
                kind, lists = field.number, []
            lists.append(reader.message(field))
    each: list[memoryview] = []
    context: list[memoryview] = []
    for part in lists:
        for field in reader.fields(part):
            if field.number == 1:
                each.append(reader.message(field))
            elif field.number == 2 and kind == _WITH_CONTEXT:
                context.append(reader.message(field))
    return Examples(b"".join(context), each)


def _cost_bytes(ran: PredictionResult) -> int:
    """What its results cost to write, as the bytes of tensors that cost as much."""
    return _RESULT_BYTES * sum(prod(tensor.shape) for tensor in ran.outputs)


def _reply(task: Task, ran: PredictionResult, ready: PreparedVersion) -> bytes:
    spec = modelspec.effective(ready, task.signature)
    result = _result(task, ran)
    if isinstance(result, ClassificationResult):
        return ClassificationResponse(result=result, model_spec=spec).SerializeToString()
    return RegressionResponse(result=result, model_spec=spec).SerializeToString()


def _multi_reply(tasks: Sequence[Task], ran: Sequence[PredictionResult], ready: PreparedVersion) -> bytes:
    made: list[InferenceResult] = []
    for task, each in zip(tasks, ran, strict=True):
        spec, result = modelspec.effective(ready, task.signature), _result(task, each)
        if isinstance(result, ClassificationResult):
            made.append(InferenceResult(model_spec=spec, classification_result=result))
        else:
            made.append(InferenceResult(model_spec=spec, regression_result=result))
    return MultiInferenceResponse(results=made).SerializeToString()


def _result(task: Task, ran: PredictionResult) -> ClassificationResult | RegressionResult:
    """Raises :class:`InvalidRequest` where the outputs are no such result."""
    outputs = {tensor.name: tensor for tensor in ran.outputs}
    count = int(ran.record.style.partition(":")[2])
    try:
        if task.verb == REGRESS:
            return RegressionResult(regressions=[Regression(value=v) for v in results.regressions(outputs, count)])
        rows = results.classifications(outputs, count)
    except SignalboxError as error:
        error.facts["job_id"] = ran.record.id
        raise
    return ClassificationResult(
        classifications=[
            Classifications(classes=[Class(label=label, score=score) for label, score in row]) for row in rows
        ]
    )
