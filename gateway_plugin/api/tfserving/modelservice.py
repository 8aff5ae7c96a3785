"""TensorFlow Serving's GetModelStatus and GetModelMetadata over gRPC: the answers of its REST API as messages; and
HandleReloadConfigRequest, for models that an operator has imported.

Texts that name what is wrong are TensorFlow Serving's own (its ``get_model_metadata_impl.cc``), followed by ours.
"""

from typing import Final

from google.protobuf.json_format import ParseDict

from gateway_plugin.admission.keyring import require_model, require_scope
from gateway_plugin.api.calls import GrpcCall, GrpcReply
from gateway_plugin.api.tfserving import modelspec
from gateway_plugin.api.tfserving.views import ModelStatus, metadata
from gateway_plugin.codec.inputs import some
from gateway_plugin.proto.serving_pb2 import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    GetModelStatusRequest,
    GetModelStatusResponse,
    ModelConfig,
    ReloadConfigRequest,
    ReloadConfigResponse,
    SignatureDefMap,
    StatusProto,
)
from gateway_plugin.service.console import Console
from gateway_plugin.tables.catalog import Catalog
from signalbox.program.errors import InvalidRequest, TooLarge, Unimplemented
from signalbox.wire.asks import MOST_BYTES, SCOPE
from signalbox.wire.servingconfig import MOST_MODELS, ServingModel

_SIGNATURES: Final = "signature_def"
_TENSORFLOW: Final = (0, 1)
_SIGNATURES_TYPE: Final = "type.googleapis.com/tensorflow.serving.SignatureDefMap"


class ModelService:
    """Answers what is asked about models."""

    def __init__(self, catalog: Catalog, status: ModelStatus, console: Console) -> None:
        self._catalog = catalog
        self._status = status
        self._console = console

    async def get_status(self, call: GrpcCall) -> GrpcReply:
        """A GetModelStatusResponse. Raises errors of ours."""
        request = modelspec.parse(GetModelStatusRequest, call.body)
        if not request.HasField("model_spec"):
            raise modelspec.missing()
        spec = request.model_spec
        require_model(call.key, spec.name)
        doc = self._status.of(call.key, spec.name, modelspec.version(spec), modelspec.label(spec))
        return GrpcReply(ParseDict(doc, GetModelStatusResponse()).SerializeToString())

    async def get_metadata(self, call: GrpcCall) -> GrpcReply:
        """A GetModelMetadataResponse. Raises errors of ours."""
        request = modelspec.parse(GetModelMetadataRequest, call.body)
        if not request.HasField("model_spec"):
            raise modelspec.missing()
        if not request.metadata_field:
            raise InvalidRequest(
                "GetModelMetadataRequest must specify at least one metadata_field. There is one: signature_def."
            )
        for name in request.metadata_field:
            if name != _SIGNATURES:
                raise InvalidRequest(f"Metadata field {some([name])[0]} is not supported. There is one: {_SIGNATURES}.")
        ready = modelspec.ready(request.model_spec, self._catalog, call.key)
        doc = metadata(ready)["metadata"][_SIGNATURES]
        signatures = ParseDict(doc, SignatureDefMap(), ignore_unknown_fields=True)
        reply = GetModelMetadataResponse(model_spec=modelspec.effective(ready))
        packed = reply.metadata[_SIGNATURES]
        packed.type_url, packed.value = _SIGNATURES_TYPE, signatures.SerializeToString()
        return GrpcReply(reply.SerializeToString())

    async def reload_config(self, call: GrpcCall) -> GrpcReply:
        """A ReloadConfigResponse, once the console has given imported models the versions and labels of this
        configuration and disabled those that it omits. Raises errors of ours.
        """
        require_scope(call.key, SCOPE)
        config = modelspec.parse(ReloadConfigRequest, call.body, MOST_BYTES).config
        if not config.HasField("model_config_list"):
            raise InvalidRequest("ServerConfig type not supported by HandleReloadConfigRequest. A ModelConfigList is.")
        models = config.model_config_list.config
        if len(models) > MOST_MODELS:
            raise TooLarge(f"The configuration has {len(models)} models; at most {MOST_MODELS} are taken.")
        names = [one.name for one in models]
        if len(set(names)) < len(names):
            raise InvalidRequest("Duplicate ModelConfig: a model stands in the list twice.")
        await self._console.ask(call.key, "reload", models=tuple(_model(one) for one in models))
        return GrpcReply(ReloadConfigResponse(status=StatusProto()).SerializeToString())


def _model(one: ModelConfig) -> ServingModel:
    policy = one.model_version_policy
    kind = one.model_platform or ("tensorflow" if one.model_type in _TENSORFLOW else "other")
    if kind != "tensorflow":
        raise InvalidRequest(f"{one.name[:100]}: model_platform {kind[:100]} is not served, only tensorflow is.")
    return ServingModel(
        name=one.name,
        base_path=one.base_path,
        latest=policy.latest.num_versions,
        specific=tuple(policy.specific.versions),
        is_all=policy.HasField("all"),
        labels=dict(one.version_labels),
    )


async def run_session(call: GrpcCall) -> GrpcReply:
    """Raises :class:`Unimplemented`: what may be fed and fetched is what a signature says."""
    raise Unimplemented(
        "SessionRun is not served: jobs run signatures, not single tensors of a graph. Call Predict, with the "
        "signature's name in model_spec.signature_name and the outputs that are wanted in output_filter."
    )
