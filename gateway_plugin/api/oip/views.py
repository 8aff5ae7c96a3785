"""What the Open Inference Protocol and Triton's extensions show of the server and of models, as JSON.

The messages of :mod:`gateway_plugin.proto.inference_pb2` have the same fields.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import signalbox
from gateway_plugin.codec.inputs import choose
from gateway_plugin.codec.oip.datatypes import DATATYPES, datatype
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.service.availability import Availabilities, Availability
from gateway_plugin.tables.liveworkers import LiveWorkers
from signalbox.wire.modeldocs import Model, TensorSpec
from signalbox.wire.names import PRIORITIES

SERVER: Final[Mapping[str, Any]] = {
    "name": "signalbox",
    "version": signalbox.__version__,
    "extensions": ["binary_tensor_data", "model_configuration", "model_repository", "schedule_policy", "statistics"],
}
_PLATFORM: Final = "tensorflow_savedmodel"
_BACKEND: Final = "tensorflow"
_TYPES: Final = {"BYTES": "TYPE_STRING", "COMPLEX64": "TYPE_INVALID", "COMPLEX128": "TYPE_INVALID"}
_STATES: Final = {"AVAILABLE": "READY", "LOADING": "LOADING"}
_AWAY: Final = Availability("END", "UNAVAILABLE", "NATS cannot be reached.")
_AT_ONCE: Final = 64
"""Models that are looked at before other requests get their turn."""


def metadata(ready: PreparedVersion) -> dict[str, Any]:
    """The metadata of a model: the default signature's tensors. Raises :class:`UnknownSignature` where it has none."""
    signature = choose({}, ready.plans).signature
    return {
        "name": ready.model.name,
        "versions": [str(number) for number in sorted(one.version for one in ready.model.versions)],
        "platform": _PLATFORM,
        "inputs": [_tensor(name, spec) for name, spec in signature.inputs.items()],
        "outputs": [_tensor(name, spec) for name, spec in signature.outputs.items()],
    }


def config(ready: PreparedVersion) -> dict[str, Any]:
    """Triton's configuration of a model, as far as it means something here.

    Where requests may share a run the batch is no part of a tensor's dimensions, as with Triton.
    """
    plan, model = choose({}, ready.plans), ready.model
    is_joined = plan.is_batchable and model.batching.rows_independent and plan.name in (ready.version.joined or ())
    skipped = 1 if is_joined else 0
    doc: dict[str, Any] = {
        "name": model.name,
        "platform": _PLATFORM,
        "backend": _BACKEND,
        "version_policy": {"specific": {"versions": sorted(one.version for one in model.versions)}},
        "max_batch_size": model.batching.max_size if is_joined else 0,
        "input": [_configured(name, spec, skipped) for name, spec in plan.signature.inputs.items()],
        "output": [_configured(name, spec, skipped) for name, spec in plan.signature.outputs.items()],
        "model_transaction_policy": {"decoupled": False},
    }
    if is_joined:
        doc["dynamic_batching"] = {
            "max_queue_delay_microseconds": round(model.batching.max_delay_ms * 1000),
            "priority_levels": len(PRIORITIES),
            "default_priority_level": PRIORITIES.index("mid") + 1,
        }
    return doc


def _tensor(name: str, spec: TensorSpec) -> dict[str, Any]:
    return {"name": name, "datatype": datatype(spec.dtype), "shape": _dimensions(spec)}


def _configured(name: str, spec: TensorSpec, skipped: int) -> dict[str, Any]:
    word = datatype(spec.dtype)
    kind = _TYPES.get(word, f"TYPE_{word}") if word in DATATYPES else "TYPE_INVALID"
    return {"name": name, "data_type": kind, "dims": _dimensions(spec)[skipped:]}


def _dimensions(spec: TensorSpec) -> list[int]:
    """Sizes, -1 where free; of a tensor of any rank one free size: the protocol has no word for it."""
    return [-1] if spec.shape is None else list(spec.shape)


class ModelViews:
    """Which models and versions could run now: none while requests cannot be accepted."""

    def __init__(self, workers: LiveWorkers, is_healthy: Callable[[], bool]) -> None:
        self._workers = workers
        self._is_healthy = is_healthy
        self._availabilities = Availabilities(workers)

    def unready(self, ready: PreparedVersion) -> str:
        """Why a job of a version could not run now; empty where it could."""
        found = self._of(ready.model, ready.version.version)
        return "" if found.is_available else found.message or "The version is being loaded."

    async def index(self, models: Iterable[Model], *, is_ready: bool) -> list[dict[str, Any]]:
        """Triton's index of the versions of models. is_ready: only those that could run now."""
        residencies = self._workers.residencies()
        entries = []
        for number, model in enumerate(models, 1):
            for version in sorted(one.version for one in model.versions):
                found = self._of(model, version, residencies)
                if found.is_available or not is_ready:
                    state = _STATES.get(found.state, "UNAVAILABLE")
                    entries.append(
                        {"name": model.name, "version": str(version), "state": state, "reason": found.message}
                    )
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
        return entries

    def _of(
        self, model: Model, version: int, residencies: Mapping[tuple[str, int], Collection[str]] | None = None
    ) -> Availability:
        return self._availabilities.of(model, version, residencies) if self._is_healthy() else _AWAY
