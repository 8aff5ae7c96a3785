"""JSON bodies to named tensors, checked against a signature: TF Serving's row and columnar forms.

A body is parsed by :mod:`signalbox.front.jsonbody`. A :class:`Plan` is a signature made ready; :func:`decode` turns the
parsed body into tensors in the order of the signature, or raises :class:`InvalidInput` naming input, expected and got.
Names are checked here, dtypes in :mod:`gateway_plugin.codec.values`. The way back is
:mod:`gateway_plugin.codec.outputs`. The format is that of TF Serving's REST API (docs/api-serving.md).
"""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway_plugin.codec.values import Input, is_base64
from signalbox.front.jsonbody import Body, kind_of
from signalbox.program.errors import InvalidInput, InvalidRequest, TooLarge
from signalbox.wire.modeldocs import Signature
from signalbox.wire.signatures import refusal
from signalbox.wire.tensors import MAX_HOLLOW, Tensor, hollow

DEFAULT_SIGNATURE: Final = "serving_default"
ROW: Final = "row"
COLUMNAR: Final = "columnar"
SERVING_WORDS: Final = ("instances", "inputs")
OUR_WORDS: Final = (*SERVING_WORDS, "input")

_MOST_SHOWN: Final = 16
_LONGEST_NAME: Final = 120


class UnknownSignature(InvalidRequest):
    """A request names a signature that the version has not."""

    code = "unknown_signature"


class Decoded(msgspec.Struct, frozen=True):
    """A request's inputs.

    style: how its answer is rendered. rows: size of dimension 0, 1 for one that runs alone.
    batch_key: requests with equal keys may run as one batch along dimension 0; empty = alone.
    """

    tensors: list[Tensor]
    signature: str
    style: str
    rows: int
    batch_key: str


class Plan:
    """One signature made ready for decoding.

    is_batchable: every input and output has a free dimension 0, so requests can share a run.
    """

    def __init__(self, name: str, signature: Signature, *, batch_prefix: str = "") -> None:
        self.name = name
        self.signature = signature
        self.inputs = tuple(Input(n, s) for n, s in signature.inputs.items())
        self.names = frozenset(signature.inputs)
        self.is_batchable = signature.has_rows
        self._prefix = f"{batch_prefix}{name}"

    def require_dense(self, outputs: Collection[str] = ()) -> None:
        """Raise :class:`InvalidInput` where an input, or an output of these (none: of all), is no dense tensor."""
        if reason := refusal(self.signature, outputs):
            (shown,) = some([self.name])
            raise InvalidInput(f'The signature "{shown}" cannot be run so. {reason}', signature=shown)

    def rows(self, value: Any, is_plain: bool) -> list[Tensor]:
        """Tensors of an ``instances`` list. Raises :class:`InvalidInput`."""
        if type(value) is not list:
            raise InvalidInput(f'"instances" must be a list, not {kind_of(value)}.')
        if not value:
            raise InvalidInput('"instances" is empty; give at least one.')
        if len(self.inputs) == 1:
            only = self.inputs[0]
            return [only.build(self._bare(only.name, value), is_plain)]
        for index, row in enumerate(value):
            self._check_row(index, row)
        return [i.build([row[i.name] for row in value], is_plain) for i in self.inputs]

    def columns(self, value: Any, is_plain: bool) -> list[Tensor]:
        """Tensors of an ``inputs`` value; names the signature does not have are ignored."""
        if len(self.inputs) == 1:
            only = self.inputs[0]
            if type(value) is dict and not (is_base64(value) and only.name != "b64"):
                value = self._column(only.name, value)
            return [only.build(value, is_plain)]
        if type(value) is not dict:
            raise InvalidInput(f'"inputs" must be an object with {self.listed()}, not {kind_of(value)}.')
        return [i.build(self._column(i.name, value), is_plain) for i in self.inputs]

    def batch_key(self, tensors: Sequence[Tensor]) -> tuple[int, str]:
        """``(rows, key)`` of these inputs; ``(1, "")`` where they must run alone.

        The signature says that dimension 0 counts rows, and this holds only for the rank that it declares: a
        model for ``[-1, 8]`` that gets ``[8]`` may work along the one dimension there is.
        """
        rows = tensors[0].shape[0] if tensors and tensors[0].shape else 0
        if not self.is_batchable or not rows:
            return 1, ""
        for tensor, one in zip(tensors, self.inputs, strict=True):
            if len(tensor.shape) != one.rank or tensor.shape[0] != rows:
                return 1, ""
        shapes = ";".join(",".join(map(str, t.shape[1:])) for t in tensors)
        return rows, f"{self._prefix}|{shapes}"

    def listed(self) -> str:
        """The names of the inputs, in words."""
        return ", ".join(f'"{name}"' for name in sorted(self.names)) or "no inputs"

    def _bare(self, name: str, rows: list[Any]) -> list[Any]:
        """The values of single-input rows, given bare or as ``{name: value}``."""
        if type(rows[0]) is not dict or (is_base64(rows[0]) and name != "b64"):
            return rows
        for index, row in enumerate(rows):
            self._check_row(index, row)
        return [row[name] for row in rows]

    def _check_row(self, index: int, row: Any) -> None:
        if type(row) is not dict:
            raise InvalidInput(f'"instances"[{index}] must be an object with {self.listed()}, not {kind_of(row)}.')
        if row.keys() != self.names:
            missing, extra = self.names - row.keys(), row.keys() - self.names
            name = min(missing or extra)
            raise InvalidInput(
                f'"instances"[{index}] has {"no" if missing else "an unknown"} input "{name[:_LONGEST_NAME]}"; '
                f"the signature has {self.listed()}.",
                input=name[:_LONGEST_NAME],
                expected=sorted(self.names),
                got=some(row),
            )

    def _column(self, name: str, value: dict[str, Any]) -> Any:
        if name not in value:
            raise InvalidInput(
                f'"inputs" has no input "{name}"; the signature has {self.listed()}.',
                input=name,
                expected=sorted(self.names),
                got=some(value),
            )
        return value[name]


def plans(signatures: Mapping[str, Signature], *, batch_prefix: str = "") -> dict[str, Plan]:
    """The plans of a version's signatures, by name."""
    return {n: Plan(n, s, batch_prefix=batch_prefix) for n, s in signatures.items()}


def decode(
    body: Body, available: Mapping[str, Plan], max_tensor_bytes: int, words: Sequence[str] = OUR_WORDS
) -> Decoded:
    """The inputs of a request: ``{signature_name?, instances | inputs | input}``. words: those it may use.

    ``input`` is our own name for ``inputs`` in its named form. Raises :class:`InvalidRequest`,
    :class:`InvalidInput`, or :class:`TooLarge` when the tensors, or the empty lists in them, exceed their bound.
    """
    doc = body.doc
    plan = choose(doc, available)
    plan.require_dense()
    if not plan.inputs and words is SERVING_WORDS:
        raise InvalidInput(f'The signature "{plan.name}" has no inputs and cannot be called. {listed(available)}')
    forms = [word for word in words if word in doc]
    if len(forms) > 1:
        raise InvalidRequest(f'Give "{forms[0]}" or "{forms[1]}", not both.')
    if not forms:
        raise InvalidRequest("Missing 'inputs' or 'instances' key")
    value = doc[forms[0]]
    if forms[0] == "instances":
        style, found = ROW, plan.rows(value, body.is_plain)
    else:
        if forms[0] == "input" and type(value) is not dict:
            raise InvalidInput(f'"input" must be an object of named tensors, not {kind_of(value)}.')
        style, found = COLUMNAR, plan.columns(value, body.is_plain)
    require_bounded(found, max_tensor_bytes)
    rows, key = plan.batch_key(found)
    return Decoded(found, plan.name, style, rows, key)


def require_bounded(tensors: Sequence[Tensor], max_tensor_bytes: int) -> None:
    """Raise :class:`TooLarge` where tensors, or the empty lists in them, exceed their bound together."""
    size = sum(len(t.data) for t in tensors)
    if size > max_tensor_bytes:
        raise TooLarge(
            f"The inputs take {size} bytes; this model takes at most {max_tensor_bytes}.",
            bound="tensor_bytes",
            limit_bytes=max_tensor_bytes,
        )
    if sum(hollow(t.shape) for t in tensors if not t.data) > MAX_HOLLOW:
        raise TooLarge(f"The inputs are more than {MAX_HOLLOW} empty lists.", bound="empty", limit=MAX_HOLLOW)


def choose(doc: Mapping[str, Any], available: Mapping[str, Plan]) -> Plan:
    """The plan of the signature a body names, or of the default one."""
    name = doc.get("signature_name", DEFAULT_SIGNATURE)
    if type(name) is not str:
        raise InvalidRequest(f'"signature_name" must be a string, not {kind_of(name)}.')
    plan = available.get(name or DEFAULT_SIGNATURE)
    if plan is None:
        raise UnknownSignature(
            f'Serving signature name: "{name[:_LONGEST_NAME]}" not found in signature def. {listed(available)}',
            signature=name[:_LONGEST_NAME],
            available=sorted(available),
        )
    return plan


def listed(available: Collection[str]) -> str:
    """Which signatures may be named, as a sentence; TensorFlow's own are not among them."""
    names = sorted(name[:_LONGEST_NAME] for name in available if not name.startswith("__"))
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return f"The signatures are: {', '.join(names[:_MOST_SHOWN]) or 'none'}{more}."


def some(names: Iterable[str]) -> list[str]:
    """The first of a caller's names, cut short, so that an error is not as long as the body."""
    return [name[:_LONGEST_NAME] for name in heapq.nsmallest(_MOST_SHOWN, names)]
