"""TensorFlow Serving's GetModelStatus and GetModelMetadata over gRPC: the answers of its REST API as messages.

Texts that name what is wrong are TensorFlow Serving's own (its ``get_model_metadata_impl.cc``), followed by ours.
"""

from typing import Final

from google.protobuf.json_format import ParseDict

from gateway_plugin.admission.keyring import require_model
from gateway_plugin.api.calls import GrpcCall, GrpcReply
from gateway_plugin.api.tfserving import modelspec
from gateway_plugin.api.tfserving.views import ModelStatus, metadata
from gateway_plugin.codec.inputs import some
from gateway_plugin.proto.serving_pb2 import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    GetModelStatusRequest,
    GetModelStatusResponse,
    SignatureDefMap,
)
from gateway_plugin.tables.catalog import Catalog
from signalbox.program.errors import InvalidRequest, Unimplemented

_SIGNATURES: Final = "signature_def"
_SIGNATURES_TYPE: Final = "type.googleapis.com/tensorflow.serving.SignatureDefMap"


class ModelService:
    """Answers what is asked about models."""

    def __init__(self, catalog: Catalog, status: ModelStatus) -> None:
        self._catalog = catalog
        self._status = status

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


async def reload_config(call: GrpcCall) -> GrpcReply:
    """Raises :class:`Unimplemented`: a caller's key does not decide which models there are."""
    raise Unimplemented(
        "HandleReloadConfigRequest is not served: models are registered, enabled and given labels in the console, or "
        "through its API, by people who may."
    )


async def run_session(call: GrpcCall) -> GrpcReply:
    """Raises :class:`Unimplemented`: what may be fed and fetched is what a signature says."""
    raise Unimplemented(
        "SessionRun is not served: jobs run signatures, not single tensors of a graph. Call Predict, with the "
        "signature's name in model_spec.signature_name and the outputs that are wanted in output_filter."
    )
