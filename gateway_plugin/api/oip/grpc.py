"""The Open Inference Protocol over gRPC: ``inference.GRPCInferenceService``, with Triton's extensions.

What REST shows as JSON goes into the messages of the same names (:mod:`gateway_plugin.api.oip.views`).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from gateway_plugin.api.answers import job_headers
from gateway_plugin.api.calls import GrpcCall, GrpcReply, Method
from gateway_plugin.api.oip import options, paths, views
from gateway_plugin.api.oip.inference import Inference
from gateway_plugin.api.oip.targets import Targets
from gateway_plugin.api.oip.views import ModelViews
from gateway_plugin.codec.binding import bind
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.fitting import require_names
from gateway_plugin.codec.offloading import Offloading
from gateway_plugin.codec.oip import messages as oipmessages
from gateway_plugin.codec.oip.inputs import require_dtype
from gateway_plugin.proto import inference_pb2 as messages
from gateway_plugin.service.loading import Loading
from signalbox.program.errors import InvalidRequest, NotFound, TooLarge, Unimplemented

SERVICE: Final = "/inference.GRPCInferenceService/"
_MOST_SMALL: Final = 65_536
_STREAM: Final = "Send each inference as a ModelInfer of its own; gRPC carries many of them at once."
_MISSING: Final = {
    "ModelStreamInfer": _STREAM,
    "TraceSetting": paths.TRACE,
    "LogSettings": paths.LOGGING,
    **{
        f"{kind}SharedMemory{verb}": paths.SHARED_MEMORY.replace("binary_data_size", "raw_input_contents")
        for kind in ("System", "Cuda")
        for verb in ("Status", "Register", "Unregister")
    },
}
M = TypeVar("M", bound=Message)


class OipGrpc:
    """Answers the service's unary methods. is_healthy: whether requests can be accepted now. max_elements: in the typed
    fields of one request."""

    def __init__(
        self,
        targets: Targets,
        model_views: ModelViews,
        inference: Inference,
        loading: Loading,
        offloading: Offloading,
        *,
        is_healthy: Callable[[], bool],
        max_elements: int,
    ) -> None:
        self._targets = targets
        self._views = model_views
        self._inference = inference
        self._loading = loading
        self._offloading = offloading
        self._is_healthy = is_healthy
        self._max_elements = max_elements

    def methods(self) -> Mapping[str, Method]:
        """Every method that needs a key, by its path; those that are not offered say why."""
        offered: dict[str, Method] = {
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "RepositoryIndex": self._repository_index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
            "ModelInfer": self._model_infer,
        }
        missing = {name: _missing(name, why) for name, why in _MISSING.items()}
        return {f"{SERVICE}{name}": method for name, method in {**offered, **missing}.items()}

    def open_methods(self) -> Mapping[str, Callable[[], bytes]]:
        """The health of the server, for anybody: what a method answers, by its path."""
        return {
            f"{SERVICE}ServerLive": lambda: messages.ServerLiveResponse(live=True).SerializeToString(),
            f"{SERVICE}ServerReady": lambda: messages.ServerReadyResponse(ready=self._is_healthy()).SerializeToString(),
        }

    async def _server_metadata(self, call: GrpcCall) -> GrpcReply:
        return _reply(messages.ServerMetadataResponse(**views.SERVER))

    async def _model_ready(self, call: GrpcCall) -> GrpcReply:
        """Whether a model is ready. With Triton's answer an unknown one is not ready and no error."""
        asked = _read(messages.ModelRequest, call.body)
        try:
            is_ready = not self._views.unready(self._targets.version(call.key, asked.name, asked.version))
        except NotFound:
            is_ready = False
        return _reply(messages.ModelReadyResponse(ready=is_ready))

    async def _model_metadata(self, call: GrpcCall) -> GrpcReply:
        asked = _read(messages.ModelRequest, call.body)
        doc = views.metadata(self._targets.version(call.key, asked.name, asked.version))
        return _reply(messages.ModelMetadataResponse(**doc))

    async def _model_config(self, call: GrpcCall) -> GrpcReply:
        asked = _read(messages.ModelRequest, call.body)
        doc: Any = views.config(self._targets.version(call.key, asked.name, asked.version))
        return _reply(messages.ModelConfigResponse(config=doc))

    async def _model_statistics(self, call: GrpcCall) -> GrpcReply:
        asked = _read(messages.ModelRequest, call.body)
        doc = self._inference.statistics(call.key, asked.name, asked.version)
        return _reply(messages.ModelStatisticsResponse(**doc))

    async def _repository_index(self, call: GrpcCall) -> GrpcReply:
        asked = _read(messages.RepositoryIndexRequest, call.body)
        entries: Any = await self._views.index(self._targets.all(call.key), is_ready=asked.ready)
        return _reply(messages.RepositoryIndexResponse(models=entries))

    async def _load(self, call: GrpcCall) -> GrpcReply:
        asked = _read(messages.RepositoryModelRequest, call.body)
        options.refuse_files(asked.parameters)
        await self._loading.load(call.key, asked.model_name, call.timeout_s)
        return _reply(messages.RepositoryModelResponse())

    async def _unload(self, call: GrpcCall) -> GrpcReply:
        asked = _read(messages.RepositoryModelRequest, call.body)
        await self._loading.unload(call.key, asked.model_name)
        return _reply(messages.RepositoryModelResponse())

    async def _model_infer(self, call: GrpcCall) -> GrpcReply:
        key = call.key
        account, size = key.account_id, len(call.body)
        message = await self._offloading.read(account, size, partial(oipmessages.read, call.body))
        ready = self._inference.target(key, call.headers, message.model, message.version)
        asked = options.read(ready, message.fields, is_binary=True)
        require_names([one.name for one in message.inputs], asked.plan)
        for one in message.inputs:
            require_dtype(one.name, one.dtype, asked.plan)
        limit = ready.model.limits.max_payload_bytes

        def decoded(most_fields: int) -> DecodedInputs:
            given = oipmessages.tensors(message, most_fields, max_tensor_bytes=limit, max_elements=self._max_elements)
            return bind(given, ready, asked.plan.name, max_tensor_bytes=limit)

        inputs = await self._offloading.read(account, size, decoded)
        call.hold(len(inputs.frame))
        found = await self._inference.run(key, call.headers, ready, inputs, asked, call.timeout_s)
        return GrpcReply(oipmessages.write(found.head, found.outputs), job_headers(found.record))


def _read(kind: type[M], body: bytes) -> M:
    """A request that holds no tensors."""
    if len(body) > _MOST_SMALL:
        raise TooLarge(
            f"The request has {len(body)} bytes; one without tensors has at most {_MOST_SMALL}.",
            bound="bytes",
            limit_bytes=_MOST_SMALL,
        )
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise InvalidRequest("The request is no message of this method.") from error


def _reply(message: Message) -> GrpcReply:
    return GrpcReply(message.SerializeToString())


def _missing(name: str, why: str) -> Method:
    async def answer(call: GrpcCall) -> GrpcReply:
        raise Unimplemented(f"{name} is not offered. {why}")

    return answer
