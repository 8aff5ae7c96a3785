"""TensorFlow Serving's Predict over gRPC: named TensorProtos in and out.

Texts that name what is wrong are TensorFlow Serving's own (its ``predict_util.cc``), followed by ours.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from gateway_plugin.api.answers import job_headers
from gateway_plugin.api.calls import GrpcCall, GrpcReply
from gateway_plugin.api.tfserving import modelspec
from gateway_plugin.api.tfserving.monitoring import GRPC, RequestCounts
from gateway_plugin.codec import dtypes, forms
from gateway_plugin.codec.binding import bind
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.fitting import require_names
from gateway_plugin.codec.inputs import Plan, UnknownSignature, choose, some
from gateway_plugin.codec.offloading import Offloading
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.codec.protobuf import protowire, tensorproto
from gateway_plugin.codec.protobuf.protowire import FEW_FIELDS, WireReader
from gateway_plugin.proto.serving_pb2 import ModelSpec
from gateway_plugin.service.jobs import Jobs, Prediction
from gateway_plugin.tables.catalog import Catalog
from signalbox.program.errors import InvalidInput, InvalidRequest
from signalbox.wire.tensors import Tensor

_WHAT: Final = "PredictRequest"


class PredictRequest(NamedTuple):
    """A request whose tensors are still messages. outputs: names of those that are wanted; empty = all."""

    spec: ModelSpec
    inputs: Mapping[str, memoryview]
    outputs: Sequence[str]


class PredictService:
    """Answers Predict."""

    def __init__(self, catalog: Catalog, jobs: Jobs, counts: RequestCounts, offloading: Offloading) -> None:
        self._catalog = catalog
        self._jobs = jobs
        self._counts = counts
        self._offloading = offloading

    async def predict(self, call: GrpcCall) -> GrpcReply:
        """A PredictResponse. Raises errors of ours."""
        request = read(call.body)
        ready = modelspec.chosen(request.spec, self._catalog, call)
        with self._counts.counting(call.key, ready.model.name, "Predict", GRPC):
            inputs = await self._offloading.read(call.key.account_id, len(call.body), partial(decoded, request, ready))
            call.hold(len(inputs.frame))  # one value may stand for a whole tensor
            ran = await self._jobs.predict(call.key, call.headers, Prediction(ready, inputs), wait_s=call.timeout_s)
            size = sum(len(tensor.data) for tensor in ran.outputs)
            spec = modelspec.effective(ready, inputs.signature)
            writing = partial(written, ran.outputs, spec)
            reply = await self._offloading.write(call.key.account_id, size, writing)
            return GrpcReply(reply, job_headers(ran.record))


def read(body: bytes) -> PredictRequest:
    """Raises :class:`InvalidRequest` for what is no PredictRequest, or names no model."""
    reader = WireReader(_WHAT, FEW_FIELDS)
    spec: list[memoryview] = []
    inputs: dict[str, memoryview] = {}
    outputs: list[str] = []
    for field in reader.fields(memoryview(body)):
        if field.number == 1:
            spec.append(reader.message(field))
        elif field.number == 2:
            name, value = reader.entry(field)
            inputs[name] = reader.message(value) if value is not None else memoryview(b"")
        elif field.number == 3:
            outputs.append(reader.name(field))
    return PredictRequest(modelspec.read(spec), inputs, outputs)


def decoded(request: PredictRequest, ready: PreparedVersion, most_fields: int) -> DecodedInputs:
    """The inputs of a request for a version. most_fields: see :class:`WireReader`.

    Raises :class:`InvalidRequest` and :class:`TooLarge`, also for outputs that the signature has not.
    """
    name, limit = request.spec.signature_name, ready.model.limits.max_payload_bytes
    plan = _plan(name, ready)
    plan.require_dense(request.outputs)
    given = {**{key: memoryview(value) for key, value in plan.signature.defaults.items()}, **request.inputs}
    try:
        require_names(given, plan)
    except InvalidInput as error:
        forms.put_before(error, _other_names(request.inputs, plan))
        raise
    reader, room = WireReader(_WHAT, most_fields), limit
    found: dict[str, Tensor] = {}
    for one in plan.inputs:
        tensor = found[one.name] = tensorproto.read(reader, one.name, given[one.name], room)
        room -= len(tensor.data)
    try:
        inputs = bind(found, ready, name, max_tensor_bytes=limit)
    except InvalidInput as error:
        if theirs := _other_dtype(found, plan):
            forms.put_before(error, theirs)
        raise
    _require_outputs(request.outputs, plan)
    if 0 < len(request.outputs) < len(plan.signature.outputs):
        return replace(inputs, outputs=tuple(sorted(request.outputs)))
    return inputs


def written(outputs: Iterable[Tensor], spec: ModelSpec) -> bytes:
    """The PredictResponse."""
    parts: list[bytes] = []
    for tensor in outputs:
        entry = [protowire.field(1, tensor.name.encode()), *protowire.wrapped(2, tensorproto.write(tensor))]
        parts += protowire.wrapped(1, entry)
    return b"".join((*parts, protowire.field(2, spec.SerializeToString())))


def _plan(name: str, ready: PreparedVersion) -> Plan:
    try:
        return choose({"signature_name": name}, ready.plans)
    except UnknownSignature as error:
        forms.put_before(error, f'Serving signature key "{some([name])[0]}" not found')
        raise


def _other_names(given: Collection[str], plan: Plan) -> str:
    if plan.signature.defaults and len(given) <= len(plan.names):
        return _other_names_than_defaults(given, plan)
    if len(given) == len(plan.names):
        alias = min(set(given) - plan.names)
        return (
            f"input tensor alias not found in signature: {some([alias])[0]}. "
            f"Inputs expected to be in the set {_set(plan.names)}"
        )
    return (
        f"input size does not match signature: {len(given)}!={len(plan.names)} len({_set(given)}) != "
        f"len({_set(plan.names)}). Sent extra: {_set(set(given) - plan.names)}. "
        f"Missing but required: {_set(plan.names.difference(given))}"
    )


def _other_names_than_defaults(given: Collection[str], plan: Plan) -> str:
    defaults = plan.signature.defaults.keys()
    if missing := plan.names - defaults - set(given):
        name = min(missing)
        return (
            f"Signature input alias: {some([name])[0]}(feed name: {plan.signature.inputs[name].tensor}) not found in "
            "request and no default value provided. Inputs expected to be in the request "
            f"{_set(given)}, or default input alias set: {','.join(some(defaults))}"
        )
    known = plan.names.intersection(given)
    return (
        f"Inputs contains invalid name. Used request inputs: {','.join(some(known))}, request input: "
        f"{','.join(some(given))}"
    )


def _other_dtype(found: Mapping[str, Tensor], plan: Plan) -> str:
    for index, one in enumerate(plan.inputs):
        dtype = found[one.name].dtype
        if dtype != one.dtype:
            return f"Expects arg[{index}] to be {dtypes.word(one.dtype)} but {dtypes.word(dtype)} is provided"
    return ""


def _require_outputs(wanted: Sequence[str], plan: Plan) -> None:
    """Raise :class:`InvalidRequest` for an output that the signature has not, or that is named twice."""
    known, seen = plan.signature.outputs, set[str]()
    for name in wanted:
        (shown,) = some([name])
        if name not in known:
            raise InvalidRequest(
                f"output tensor alias not found in signature: {shown} Outputs expected to be in the set "
                f'{_set(known)}. It is in output_filter, and the signature is "{plan.name}".',
                output=shown,
                expected=sorted(known),
            )
        if name in seen:
            raise InvalidRequest(f"duplicate output tensor alias: {shown}. output_filter names it twice.", output=shown)
        seen.add(name)


def _set(names: Iterable[str]) -> str:
    return "{" + ",".join(some(names)) + "}"
