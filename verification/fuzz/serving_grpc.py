"""Fuzzes TensorFlow Serving's gRPC methods: malformed messages, through the real plugin over a store in memory.

The first line of an input is the name of a method (else Predict is meant), the rest its message. Whatever comes is
answered, accepted as one job, or refused with a code of the caller's in a text that fits a client's limit, and then no
worker learns of it.
"""

from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Final

from gateway_plugin.api.calls import GrpcCall, Method
from signalbox.program.errors import DeadlineExceeded, SignalboxError, meaning
from verification.fuzz.dispatch import KID, plugin

SEEDS: Final = Path(__file__).parent / "corpus" / "serving_grpc"
SHARE: Final = 40_000
TOKENS: Final = (
    b"Predict\n",
    b"Classify\n",
    b"Regress\n",
    b"MultiInference\n",
    b"GetModelMetadata\n",
    b"GetModelStatus\n",
    b"HandleReloadConfigRequest\n",
    b"\x0a\x06\x0a\x04half",  # model_spec
    b"\x0a\x04half",
    b"\x12\x02\x08\x01",  # version 1
    b"\x22\x06stable",
    b"\x1a\x08classify",
    b"\x1a\x07regress",
    b"\x1a\x06__init",
    b"\x12\x01x",  # field 2
    b"\x0a\x01x\x12",  # an entry
    b"\x08\x01",  # DT_FLOAT
    b"\x08\x07",
    b"\x12\x04\x12\x02\x08\x02",  # a shape
    b"\x12\x00",
    b"\x12\x02\x18\x01",  # an unknown rank
    b"\x12\x0d\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # of a negative size
    b"\x12\x0c\x12\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # of the largest
    b"\x22\x04\x00\x00\x80\x3f",  # tensor_content
    b"\x2a\x04\x00\x00\x80\x3f",  # float_val
    b"\x2d\x00\x00\x80\x3f",  # one that is not packed
    b"\x42\x01a",  # string_val
    b"\x1a\x01y",  # output_filter
    b"\x12\x04\x0a\x02\x0a\x00",  # an input with an example
    b"\x12\x04\x12\x02\x0a\x00",
    b"\x12\x1atensorflow/serving/classify",
    b"\x12\x0dsignature_def",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x0b",
    b"\x0c",
    b"\x00",
)
_REFUSED: Final = frozenset(
    {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "PERMISSION_DENIED", "UNIMPLEMENTED"}
)
_MOST_DETAILS: Final = 6_000
"""Characters of an error, as many bytes: gRPC's clients take 8 KiB of metadata."""


@cache
def _methods() -> dict[str, Method]:
    """By their names without their services."""
    found = plugin().gateway.methods.items()
    return {name.rpartition("/")[2]: method for name, method in found if name.startswith("/tensorflow.serving.")}


def one(data: bytes) -> Hashable:
    """Raises AssertionError where a promise is broken, or what the plugin raised."""
    head, _, body = data.partition(b"\n")
    under_test = plugin()
    name = head.decode(errors="replace")
    if name not in _methods():
        name = "Predict"
    key = under_test.gateway.keyring.by_id(KID)
    under_test.reset()
    found = under_test.loop.run_until_complete(_call(_methods()[name], GrpcCall(key, {}, body)))
    written = [subject for subject in under_test.bus.written if subject.startswith("jobs.")]
    if isinstance(found, DeadlineExceeded):  # accepted; nobody runs it
        assert len(written) == 1 or (written and name == "MultiInference")
        return name, "accepted"
    assert not under_test.bus.written
    if isinstance(found, bytes):
        assert name.startswith("Get"), "an answer, and nobody runs anything"
        return name, len(found) > 0
    assert meaning(found.code).grpc in _REFUSED, f"{found.code}: {found}"
    assert len(found.public_message.encode()) <= _MOST_DETAILS, found.public_message[:200]
    return name, found.code, found.public_message[:24]


async def _call(method: Method, call: GrpcCall) -> bytes | SignalboxError:
    try:
        return (await method(call)).message
    except SignalboxError as error:
        return error
