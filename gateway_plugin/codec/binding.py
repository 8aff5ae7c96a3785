"""Tensors that came with their dtype and shape to the inputs of a job: for dialects that send tensors, not JSON."""

from collections.abc import Mapping

from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.fitting import fit
from gateway_plugin.codec.prepared import PreparedVersion
from signalbox.wire import tensors
from signalbox.wire.tensors import Tensor


def bind(
    given: Mapping[str, Tensor], ready: PreparedVersion, signature: str, *, max_tensor_bytes: int
) -> DecodedInputs:
    """The inputs of a request, as :func:`gateway_plugin.codec.fitting.fit`."""
    found = fit(given, ready.plans, signature, max_tensor_bytes)
    return DecodedInputs(tensors.encode(found.tensors), found.signature, found.style, found.rows, found.batch_key)
