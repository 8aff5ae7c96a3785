"""Runs inferences, whichever transport they came by."""

from collections.abc import Mapping
from time import perf_counter
from typing import Any, NamedTuple

from msgspec.structs import replace

from gateway_plugin.admission.keyring import SUBMIT, require_scope
from gateway_plugin.api.oip.options import InferOptions
from gateway_plugin.api.oip.statistics import Statistics
from gateway_plugin.api.oip.targets import Targets
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.service.jobs import Jobs, Prediction
from gateway_plugin.tables.catalog import require_open
from signalbox.program.errors import Bug, SignalboxError
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import Record
from signalbox.wire.tensors import Tensor


class InferenceResult(NamedTuple):
    """An inference that succeeded. outputs: those asked for, in that order."""

    record: Record
    head: dict[str, Any]
    outputs: list[Tensor]


def narrowed(inputs: DecodedInputs, options: InferOptions) -> DecodedInputs:
    """Inputs for no other outputs than those that are asked for."""
    if len(options.outputs) == len(options.plan.signature.outputs):
        return inputs
    return replace(inputs, outputs=tuple(sorted(options.outputs)))


class Inference:
    """Checks who asks for what, runs it, and counts it."""

    def __init__(self, targets: Targets, jobs: Jobs, statistics: Statistics) -> None:
        self._targets = targets
        self._jobs = jobs
        self._statistics = statistics

    def target(self, key: ApiKey, headers: Mapping[str, str], name: str, version: str) -> PreparedVersion:
        """The version that a request is for, before its inputs are looked at.

        Raises as :meth:`Targets.version`, :class:`Forbidden` and :class:`NotServing`.
        """
        require_scope(key, SUBMIT)
        ready = self._targets.chosen(key, headers, name, version)
        require_open(ready.model)
        return ready

    def statistics(self, key: ApiKey, name: str, version: str) -> dict[str, Any]:
        """What was counted for a key's account: of all versions where none is named; of all models where none is, those
        that it has called. Raises as :meth:`Targets.version`.
        """
        account = key.account_id
        if name:
            return self._statistics.of(account, self._targets.versions(key, name, version))
        counted = self._statistics.counted(account)
        return self._statistics.of(account, [one for one in counted if self._targets.knows(key, one[0])])

    async def run(
        self,
        key: ApiKey,
        headers: Mapping[str, str],
        ready: PreparedVersion,
        inputs: DecodedInputs,
        options: InferOptions,
        timeout_s: float | None = None,
    ) -> InferenceResult:
        """The outputs of one inference. timeout_s: the caller's deadline, beside that in its parameters.

        Raises as :meth:`Jobs.predict`.
        """
        wait_s = min((time_s for time_s in (timeout_s, options.timeout_s) if time_s is not None), default=None)
        inputs = narrowed(inputs, options)
        account, began = key.account_id, perf_counter()
        try:
            ran = await self._jobs.predict(key, headers, Prediction(ready, inputs, options.submit), wait_s=wait_s)
        except SignalboxError:
            self._statistics.failed(account, ready.model.name, ready.version.version, perf_counter() - began)
            raise
        self._statistics.succeeded(account, ran.record, inputs.rows, perf_counter() - began)
        found = {tensor.name: tensor for tensor in ran.outputs}
        try:
            outputs = [found[name] for name in options.outputs]
        except KeyError as error:
            raise Bug(f"The result has no output {error}.", job_id=ran.record.id) from error
        head = {"model_name": ran.record.model, "model_version": str(ran.record.version)}
        if options.id is not None:
            head["id"] = options.id
        return InferenceResult(ran.record, head, outputs)
