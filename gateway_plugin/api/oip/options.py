"""What an inference request asks for beside its inputs: outputs, priority, time. The same for JSON and gRPC."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gateway_plugin.admission.submission import SubmitOptions, read_options
from gateway_plugin.codec.inputs import Plan
from gateway_plugin.codec.oip.datatypes import BINARY_ONLY, datatype
from gateway_plugin.codec.oip.inputs import signature_of
from gateway_plugin.codec.oip.request import LONGEST_NAME, MOST_TENSORS, REQUEST, name_of, parameters_of
from gateway_plugin.codec.prepared import PreparedVersion
from signalbox.front.jsonbody import kind_of
from signalbox.jobs.change import LONGEST_DEADLINE_S
from signalbox.program.errors import InvalidInput, InvalidRequest
from signalbox.wire.modeldocs import Signature
from signalbox.wire.names import PRIORITIES, Priority

_US: Final = 1e6
_SHOWN: Final = 120
_SEQUENCE: Final = "sequence_id"
_CLASSIFICATION: Final = "classification"
_OF_JOBS: Final = ("deadline_s", "tags", "not_before")
"""Our request parameters of an inference that is submitted as a job."""


class InferOptions(NamedTuple):
    """What a request asks for. id: None = it has none. plan: of its signature. outputs: in the order of the answer.

    binary: those of them that go as bytes. timeout_s: None = as long as the model lets callers wait.
    """

    id: str | None
    plan: Plan
    outputs: tuple[str, ...]
    binary: frozenset[str]
    submit: SubmitOptions
    timeout_s: float | None


def read(
    ready: PreparedVersion, fields: Mapping[str, Any], *, is_binary: bool = False, is_job: bool = False
) -> InferOptions:
    """The options of a request. fields: ``id``, ``parameters`` and ``outputs``. is_binary: outputs, unless they say so.

    is_job: it is submitted, and takes what a job of ours does. Raises :class:`InvalidRequest`, and
    :class:`InvalidInput` for an output that the signature has not.
    """
    parameters = parameters_of(fields, REQUEST)
    plan = signature_of(parameters, ready.plans)
    if parameters.get(_SEQUENCE):
        raise InvalidRequest("Models keep no state between requests here: sequence_id is not taken.")
    is_binary = _boolean(parameters, "binary_data_output", REQUEST, default=is_binary)
    asked = _outputs(fields.get("outputs"), plan.signature, is_binary=is_binary)
    plan.require_dense(asked)
    timeout_us = _whole(parameters, "timeout")
    ours = read_options({name: parameters[name] for name in _OF_JOBS if is_job and name in parameters})
    return InferOptions(
        _id(fields.get("id")),
        plan,
        tuple(asked),
        frozenset(name for name, goes_binary in asked.items() if goes_binary),
        ours._replace(priority=_priority(_whole(parameters, "priority"))),
        min(timeout_us / _US, LONGEST_DEADLINE_S) if timeout_us else None,
    )


def require_json(asked: InferOptions) -> None:
    """Raise :class:`InvalidInput` for an output that is to go as JSON and has none."""
    for name in asked.outputs:
        dtype = asked.plan.signature.outputs[name].dtype
        if dtype in BINARY_ONLY and name not in asked.binary:
            raise InvalidInput(
                f'Output "{name}": {datatype(dtype)} has no JSON; ask for its bytes with "parameters": '
                '{"binary_data_output": true}.',
                output=name,
            )


def _id(value: Any) -> str | None:
    if value is not None and (type(value) is not str or len(value) > LONGEST_NAME):
        raise InvalidRequest(f'"id" must be a string of at most {LONGEST_NAME} characters.', field="id")
    return value


def _outputs(value: Any, signature: Signature, *, is_binary: bool) -> dict[str, bool]:
    """Whether each output that was asked for goes as bytes; all of them where none was named."""
    if value is None or value == []:
        return dict.fromkeys(signature.outputs, is_binary)
    if type(value) is not list or len(value) > MOST_TENSORS:
        raise InvalidRequest(f'"outputs" must be a list of at most {MOST_TENSORS} objects.', field="outputs")
    asked: dict[str, bool] = {}
    for index, one in enumerate(value):
        name = name_of(one, f'"outputs"[{index}]')
        shown = f'output "{name[:_SHOWN]}"'
        if name not in signature.outputs:
            listed = ", ".join(f'"{known}"' for known in sorted(signature.outputs))
            raise InvalidInput(f"There is no {shown}; the outputs are {listed or 'none'}.", output=name[:_SHOWN])
        if name in asked:
            raise InvalidRequest(f"The {shown} is asked for twice.", output=name)
        parameters = parameters_of(one, shown)
        if parameters.get(_CLASSIFICATION):
            raise InvalidRequest(f"The {shown} is asked for as a classification, which is not offered.", output=name)
        asked[name] = _boolean(parameters, "binary_data", shown, default=is_binary)
    return asked


def _priority(level: int) -> Priority:
    """Triton's levels: 1 is the highest, 0 the default."""
    return PRIORITIES[min(level, len(PRIORITIES)) - 1] if level else "mid"


def _whole(parameters: Mapping[str, Any], name: str) -> int:
    value = parameters.get(name, 0)
    if type(value) is not int or not 0 <= value < 2**64:
        raise InvalidRequest(
            f'The parameter "{name}" must be a whole number of at least 0, not {kind_of(value)}.', field=name
        )
    return value


def _boolean(parameters: Mapping[str, Any], name: str, where: str, *, default: bool) -> bool:
    value = parameters.get(name, default)
    if type(value) is not bool:
        raise InvalidRequest(f'The parameter "{name}" of {where} must be true or false, not {kind_of(value)}.')
    return value


def refuse_files(parameters: object) -> None:
    """Raise :class:`InvalidRequest` for a load with parameters that would bring a configuration, or files."""
    if not isinstance(parameters, Mapping):
        raise InvalidRequest('"parameters" is an object.', field="parameters")
    given = [str(name)[:40] for name in parameters if name == "config" or str(name).startswith("file:")]
    if given:
        raise InvalidRequest(
            f"A load brings no files here ({given[0]}): versions are registered in the console, or found in a"
            " repository. Load the model by its name alone.",
            field="parameters",
        )
