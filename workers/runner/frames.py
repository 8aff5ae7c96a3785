"""Frames between supervisor and runner: length-prefixed msgpack, strict types, no pickle.

A frame on the socket is a 4-byte little-endian length and that many bytes of msgpack. A request
carries an id that its answer repeats; the runner answers in order. On a socket of its own it writes a byte every
:data:`BEAT_S`, which says nothing but that it runs.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from signalbox.program.errors import Bug
from signalbox.wire.modeldocs import Signature
from signalbox.wire.warmups import WarmUp
from workers.sandbox.confinement import Confinement

LENGTH_BYTES: Final = 4
BEAT_S: Final = 0.5


class Load(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Load a SavedModel directory; ``is_warm`` asks for its warm-up requests to be run too, and for ``warm_ups``.

    digest: what the manifest of its files must have, empty = any. is_beside: it has a thread to itself, runs go on
    beside it.
    """

    id: int
    model: str
    version: int
    path: str
    is_warm: bool
    digest: str = ""
    is_beside: bool = False
    warm_ups: tuple[WarmUp, ...] = ()


class Unload(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Drop a loaded version."""

    id: int
    model: str
    version: int


class RunSignature(msgspec.Struct, frozen=True, array_like=True, tag="Run"):
    """Run a signature on jobs whose inputs are concatenated along dimension 0.

    token: fencing token of the stay; refused where it is not the one the guard let in.
    inputs: one tensors frame a job. outputs: names wanted, empty = all.
    """

    id: int
    token: int
    model: str
    version: int
    signature: str
    inputs: list[bytes]
    outputs: tuple[str, ...]


class RunShadow(msgspec.Struct, frozen=True, array_like=True, tag="Shadow"):
    """Run a signature as :class:`RunSignature` does, and compare what it gives with what another version gave.

    expected: that version's frame of each job, in their order. tolerance: relative, of floats.
    """

    id: int
    token: int
    model: str
    version: int
    signature: str
    inputs: list[bytes]
    outputs: tuple[str, ...]
    expected: list[bytes]
    tolerance: float


class TryJoining(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Try whether joined requests of a loaded version get the same answers as alone, beside other requests.

    seconds: no run of the trial begins later.
    """

    id: int
    model: str
    version: int
    seconds: float


Request = Load | Unload | RunSignature | RunShadow | TryJoining


class RunnerStarted(msgspec.Struct, frozen=True, array_like=True, tag="Ready"):
    """The first frame of a runner: TensorFlow is imported, the device untouched. ``seconds``: since exec.

    sandbox: what of it is in force.
    """

    pid: int
    seconds: float
    sandbox: Confinement = Confinement()


class VersionLoaded(msgspec.Struct, frozen=True, array_like=True, tag="Loaded"):
    """What a load cost. size_bytes: growth of the process (or of the GPU's memory). warmed: warm-up requests run.

    digest: of the files that it was loaded from; empty = the engine does not tell. verify_s, warm_s: which of
    ``seconds`` went into that digest, at their begin, and into warm-up requests, at their end.
    """

    id: int
    size_bytes: int
    seconds: float
    warmed: int
    signatures: dict[str, Signature]
    digest: str = ""
    verify_s: float = 0.0
    warm_s: float = 0.0


class LoadReport(NamedTuple):
    """What an engine tells of a load; see :class:`VersionLoaded`."""

    size_bytes: int
    warmed: int
    signatures: dict[str, Signature]
    samples: Sequence[tuple[str, bytes]] = ()
    """Some of its warm-up requests: signature and frame."""
    digest: str = ""
    verify_s: float = 0.0
    warm_s: float = 0.0


class JoiningTried(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What came of it; see :class:`signalbox.wire.workerdocs.Joining`."""

    id: int
    joined: tuple[str, ...]
    differs: str
    untried: str


class VersionUnloaded(msgspec.Struct, frozen=True, array_like=True, tag="Unloaded"):
    """The version is gone from the runner."""

    id: int


class Ran(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """frames: one tensors frame a job, empty where ``errors`` has its index: (code, message)."""

    id: int
    seconds: float
    frames: list[bytes]
    errors: dict[int, tuple[str, str]]


class ShadowRan(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What the comparison has found; see :class:`signalbox.wire.shadows.ShadowFigures`. seconds: of the run alone.

    tensors: by output, how often it was outside and the largest difference.
    """

    id: int
    seconds: float
    compared: int
    outside: int
    failed: int
    tensors: dict[str, tuple[int, float]]


class RequestFailed(msgspec.Struct, frozen=True, array_like=True, tag="Failed"):
    """The request failed as a whole; ``code`` is one of :mod:`signalbox.program.errors`."""

    id: int
    code: str
    message: str


Answer = RunnerStarted | VersionLoaded | VersionUnloaded | Ran | ShadowRan | JoiningTried | RequestFailed

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final = msgspec.msgpack.Decoder(Request)
_answers: Final = msgspec.msgpack.Decoder(Answer)


def pack(message: Request | Answer) -> bytes:
    """The bytes to send, length included."""
    buffer = bytearray(LENGTH_BYTES)
    _encoder.encode_into(message, buffer, LENGTH_BYTES)
    buffer[:LENGTH_BYTES] = (len(buffer) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "little")
    return bytes(buffer)


def request(body: bytes) -> Request:
    """The request in a frame's body. Raises :class:`msgspec.MsgspecError` where it is none."""
    decoded: Request = _decoded(_requests, body)
    return decoded


def answer(body: bytes) -> Answer:
    """The answer in a frame's body. Raises :class:`msgspec.MsgspecError` where it is none."""
    decoded: Answer = _decoded(_answers, body)
    return decoded


def _decoded(decoder: msgspec.msgpack.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except UnicodeDecodeError as error:  # which is none of msgspec's own
        raise msgspec.DecodeError(str(error)) from error


class Splitter:
    """Cuts a byte stream into frame bodies; a frame above ``limit`` bytes raises :class:`Bug`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that ``data`` completes, in order."""
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        start = 0
        while len(buffer) - start >= LENGTH_BYTES:
            size = int.from_bytes(buffer[start : start + LENGTH_BYTES], "little")
            if size > self._limit:
                raise Bug("A frame is larger than allowed.", size=size, limit=self._limit)
            end = start + LENGTH_BYTES + size
            if len(buffer) < end:
                break
            bodies.append(bytes(memoryview(buffer)[start + LENGTH_BYTES : end]))
            start = end
        if start:
            del buffer[:start]
        return bodies
