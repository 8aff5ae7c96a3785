"""Renders the status and the metadata of models, as TensorFlow Serving does."""

from typing import Any, Final

from gateway_plugin.codec import dtypes
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.service.availability import Availabilities
from gateway_plugin.tables.catalog import Catalog
from gateway_plugin.tables.liveworkers import LiveWorkers
from signalbox.program.errors import NotFound
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.modeldocs import Model, TensorSpec

_SPARSE: Final = ("values_tensor_name", "indices_tensor_name", "dense_shape_tensor_name")
_CLASSES: Final = {"sparse": "SPARSE_TENSOR_SPEC", "ragged": "RAGGED_TENSOR_SPEC"}


class ModelStatus:
    """The states of versions, from the catalog and from what workers report."""

    def __init__(self, catalog: Catalog, workers: LiveWorkers) -> None:
        self._catalog = catalog
        self._availabilities = Availabilities(workers)

    def of(self, key: ApiKey, name: str, version: int | None, label: str | None) -> dict[str, Any]:
        """TensorFlow Serving's status of all versions, newest first, or of the one that is named or labelled.

        TensorFlow Serving itself ignores a label here. Raises :class:`NotFound`, and for an unknown label
        :class:`InvalidRequest` in the words of its predict call.
        """
        if label is not None:
            version = self._catalog.labelled(name, label, key)
        model = self._catalog.find(name, key)
        versions = [] if model is None else sorted((v.version for v in model.versions), reverse=True)
        if version is not None and version not in versions:
            raise NotFound(f"Could not find version {version} of model {name}", model=name)
        if model is None or not versions:
            raise NotFound(f"Could not find any versions of model {name}", model=name)
        if version is not None:
            versions = [version]
        return {"model_version_status": [self._version(model, number) for number in versions]}

    def _version(self, model: Model, version: int) -> dict[str, Any]:
        state, code, text = self._availabilities.of(model, version)
        return {"version": str(version), "state": state, "status": {"error_code": code, "error_message": text}}


def metadata(ready: PreparedVersion) -> dict[str, Any]:
    """TensorFlow Serving's metadata of a version; ``signature_def`` stands in it twice, as there."""
    signatures = {
        name: {
            "inputs": {n: _tensor(n, spec) for n, spec in signature.inputs.items()},
            "outputs": {n: _tensor(n, spec) for n, spec in signature.outputs.items()},
            "method_name": signature.method,
            "defaults": {},
        }
        for name, signature in ready.version.signatures.items()
    }
    return {
        "model_spec": {"name": ready.model.name, "signature_name": "", "version": str(ready.version.version)},
        "metadata": {"signature_def": {"signature_def": signatures}},
    }


def _tensor(name: str, spec: TensorSpec) -> dict[str, Any]:
    dims = [{"size": str(size), "name": ""} for size in spec.shape or ()]
    return {
        "dtype": dtypes.enumerator(spec.dtype),
        "tensor_shape": {"dim": dims, "unknown_rank": spec.shape is None},
        **_encoding(name, spec),
    }


def _encoding(name: str, spec: TensorSpec) -> dict[str, Any]:
    """What a TensorInfo is in the graph: one tensor, or several."""
    if spec.kind == "sparse" and len(spec.parts) == len(_SPARSE):
        return {"coo_sparse": dict(zip(_SPARSE, spec.parts, strict=True))}
    if spec.kind:
        type_spec = {"type_spec_class": _CLASSES.get(spec.kind, "UNKNOWN")}
        return {"composite_tensor": {"type_spec": type_spec, "components": [{"name": part} for part in spec.parts]}}
    return {"name": spec.tensor or f"{name}:0"}
