"""Renders the list of models, their status and their metadata (docs/api.md)."""

from typing import Any, Final

from gateway_plugin.admission.keyring import may_use
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.tables.catalog import Catalog
from gateway_plugin.tables.liveworkers import LiveWorkers
from signalbox.program.errors import NotFound
from signalbox.wire.messages import ApiKey, Model, TensorSpec

_DTYPES: Final = {
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "float16": "DT_HALF",
    "bfloat16": "DT_BFLOAT16",
    "int8": "DT_INT8",
    "int16": "DT_INT16",
    "int32": "DT_INT32",
    "int64": "DT_INT64",
    "uint8": "DT_UINT8",
    "uint16": "DT_UINT16",
    "uint32": "DT_UINT32",
    "uint64": "DT_UINT64",
    "bool": "DT_BOOL",
    "string": "DT_STRING",
    "complex64": "DT_COMPLEX64",
    "complex128": "DT_COMPLEX128",
}


class ModelViews:
    """Renders models from the catalog and from what workers report."""

    def __init__(self, catalog: Catalog, workers: LiveWorkers) -> None:
        self._catalog = catalog
        self._workers = workers

    def listed(self, key: ApiKey) -> dict[str, Any]:
        """The models that a key may use, with versions, labels and replicas."""
        # One model is in memory at a time: there may be very many.
        details = [self._details(model) for model in self._catalog.all() if may_use(key, model.name)]
        return {"models": [each["name"] for each in details], "details": details}

    def status(self, name: str, version: int | None, label: str | None) -> dict[str, Any]:
        """TensorFlow Serving's status of all versions, newest first, or of the one that is named or labelled.

        TensorFlow Serving itself ignores a label here. Raises :class:`NotFound`, and for an unknown label
        :class:`InvalidRequest` in the words of its predict call.
        """
        if label is not None:
            version = self._catalog.labelled(name, label)
        model = self._catalog.find(name)
        versions = [] if model is None else sorted((v.version for v in model.versions), reverse=True)
        if model is None or not versions:
            raise NotFound(f"Could not find any versions of model {name}", model=name)
        if version is not None:
            if version not in versions:
                raise NotFound(f"Could not find version {version} of model {name}", model=name)
            versions = [version]
        return {"model_version_status": [self._version(model, number) for number in versions]}

    def _details(self, model: Model) -> dict[str, Any]:
        return {
            "name": model.name,
            "versions": sorted((v.version for v in model.versions), reverse=True),
            "default_version": self._catalog.current(model),
            "labels": {label: self._catalog.current(model, label) for label in model.labels},
            "is_enabled": model.is_enabled,
            "replicas": model.replicas,
        }

    def _version(self, model: Model, version: int) -> dict[str, Any]:
        state, code, text = self._state(model, version)
        return {"version": str(version), "state": state, "status": {"error_code": code, "error_message": text}}

    def _state(self, model: Model, version: int) -> tuple[str, str, str]:
        """State, error code and message of a version: AVAILABLE if a job could run on it now, loaded or not."""
        if not model.is_enabled:
            return "END", "UNAVAILABLE", "The model is disabled."
        if model.replicas <= 0:
            return "END", "UNAVAILABLE", "The model has no replicas."
        if not self._workers.serving(model):
            return "START", "UNAVAILABLE", f"no worker serves {model.name}"
        states = self._workers.states_of(model.name, version)
        if "ready" in states or states <= {"crowded"}:
            return "AVAILABLE", "OK", ""
        if "loading" in states:
            return "LOADING", "OK", ""
        return "END", "UNKNOWN", "The version could not be loaded."


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
        "dtype": _DTYPES.get(spec.dtype, "DT_INVALID"),
        "tensor_shape": {"dim": dims, "unknown_rank": spec.shape is None},
        "name": f"{name}:0",
    }
