"""A process that decodes and renders large JSON bodies, so that no other request waits for them.

``python -m gateway_plugin.codec.decoder`` answers frames on standard input with frames on standard output:
a 4-byte big-endian length and msgpack. The first frame, an empty :class:`Done`, says that it is ready. It ends when
its input does, so it cannot outlive the plugin.
"""

import resource
import struct
import sys
import traceback
import zlib
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

import msgspec

from gateway_plugin.codec import forms, many
from gateway_plugin.codec.forms import Form, ReadBody
from gateway_plugin.codec.inputs import Decoded, plans
from gateway_plugin.codec.oip.outputs import FLAT, flat
from gateway_plugin.codec.outputs import least_bytes, render
from gateway_plugin.codec.serving import results
from signalbox.front.jsonbody import FREE_BYTES, MAX_RATIO, Bounds
from signalbox.program.errors import Bug, DeadlineExceeded, InvalidRequest, ResultTooLarge, SignalboxError, TooLarge
from signalbox.wire import tensors
from signalbox.wire.modeldocs import Signature
from signalbox.wire.tensors import Tensor

LENGTH: Final = struct.Struct(">I")
INPUT_FIELDS: Final = frozenset({"instances", "inputs", "input"})
ENCODINGS: Final = {"gzip": 31, "deflate": 15}
"""Each Content-Encoding that is taken, with zlib's word for it; deflate is zlib's format, as RFC 9110 says."""
_TAGS: Final = "tags"
_MOST_TAGS: Final = 64
"""Tags handed on, so that too many of them are refused as such."""
_MOST_FIELDS_BYTES: Final = 65_536
MANY_FIELDS: Final = 16
"""So many times as much of a body with many jobs."""
_LONGEST_TEXT: Final = 1024
"""Characters handed on of a text that is not an input: more than any name has."""


class ParseAsk(msgspec.Struct, tag="parse"):
    """Parse ``body`` and keep it; answered with its fields other than the inputs, as JSON.

    encoding: ``gzip``, ``deflate`` or empty. limit_bytes: of the body once inflated. header_bytes: see
    :func:`gateway_plugin.codec.forms.read`.
    """

    body: bytes
    bounds: Bounds
    limit_bytes: int
    encoding: str = ""
    form: Form = Form.JOB
    header_bytes: int | None = None


class DecodeAsk(msgspec.Struct, tag="decode"):
    """Decode the kept body for a version's signatures; see :func:`gateway_plugin.codec.forms.decode`."""

    signatures: dict[str, Signature]
    batch_prefix: str
    max_tensor_bytes: int


class DecodeManyAsk(msgspec.Struct, tag="decode_many"):
    """Decode the jobs of the kept body. jobs: of each its place among ``versions``; None = it is refused already."""

    versions: list[DecodeAsk]
    jobs: list[int | None]


class RenderAsk(msgspec.Struct, tag="render"):
    """Render the outputs in ``frame`` within ``limit`` bytes; see :func:`rendered`."""

    frame: bytes
    style: str
    limit: int
    is_strict: bool = False


class Done(msgspec.Struct, tag="done"):
    """The answer in ``data``: fields or rendered JSON, or a frame and what was found beside it.

    jobs: the answers for each job of many; None for one that was not asked for.
    """

    data: bytes = b""
    signature: str = ""
    style: str = ""
    rows: int = 1
    batch_key: str = ""
    jobs: list["Done | ErrorReply | None"] = []


class ErrorReply(msgspec.Struct, tag="refused"):
    """An error of :mod:`signalbox.program.errors`, by code."""

    code: str
    message: str
    facts: dict[str, Any] = {}


Ask = ParseAsk | DecodeAsk | DecodeManyAsk | RenderAsk
Reply = Done | ErrorReply


def inflate(body: bytes, limit: int, encoding: str = "gzip") -> bytes:
    """A body as it was before it was compressed. encoding: ``gzip`` or ``deflate``.

    Raises :class:`TooLarge` above ``limit`` bytes or ``MAX_RATIO`` times its size, before more is
    inflated, and :class:`InvalidRequest` for anything that is not so encoded.
    """
    most = min(limit, max(FREE_BYTES, MAX_RATIO * len(body)))
    inflater = zlib.decompressobj(ENCODINGS[encoding])
    try:
        data = inflater.decompress(body, most + 1)
    except zlib.error as error:
        raise InvalidRequest(f"The body is not valid {encoding}.", bound="encoding") from error
    if len(data) > most:
        raise TooLarge(
            f"The inflated body has more than {most} bytes.",
            bound="bytes" if most == limit else "ratio",
            limit_bytes=most,
        )
    if not inflater.eof:
        raise InvalidRequest(f"The {encoding} body ends too early.", bound="encoding")
    if inflater.unused_data:
        raise InvalidRequest(f"Something follows the end of the {encoding} body.", bound="encoding")
    return data


def too_large(size_bytes: int, limit: int, form: str = " as JSON") -> ResultTooLarge:
    """The error for a result that is too large to answer. size_bytes: of its tensors. form: of the answer, in words."""
    return ResultTooLarge(
        f"The job succeeded, but its result, tensors of {size_bytes} bytes, has more than the {limit} bytes that an "
        f"answer may have{form}. Send fewer rows at once, or have the model give out less.",
        bound="answer",
        size_bytes=size_bytes,
        limit_bytes=limit,
    )


def rendered(frame: bytes, style: str, limit: int, *, is_strict: bool = False) -> bytes:
    """The JSON of a result; see :func:`gateway_plugin.codec.outputs.render` and that of ``results``.

    Raises :class:`ResultTooLarge` for more than ``limit`` bytes, where that can be known before anything is written,
    and :class:`Bug` for what is no result.
    """
    try:
        outputs = tensors.decode(frame)
    except msgspec.MsgspecError as error:  # no fault of the caller's, whatever the model did
        raise Bug(f"The result is no frame of tensors: {error}.") from error
    if least_bytes(outputs) > limit:
        raise too_large(len(frame), limit)
    data = _written(outputs, style, is_strict=is_strict)
    if len(data) > limit:
        raise too_large(len(frame), limit)
    return data


def _written(outputs: Sequence[Tensor], style: str, *, is_strict: bool) -> bytes:
    if style == FLAT:
        return flat(outputs)
    write = results.render if ":" in style else render
    return write(outputs, style, is_strict=is_strict)


def fields_of(doc: Mapping[str, Any]) -> dict[str, Any]:
    """A body's fields without its inputs, and without the contents of large values in other fields but the tags.

    Such a field may be a misspelt input, so its name and its type are kept: an empty list is no null.
    """
    fields = {name: _outline(value) for name, value in doc.items() if name not in INPUT_FIELDS}
    if type(tags := doc.get(_TAGS)) is list:
        fields[_TAGS] = [_outline(tag) for tag in tags[:_MOST_TAGS]]
    return fields


def _outline(value: Any) -> Any:
    """Lists and objects without their contents, texts cut short."""
    if isinstance(value, list | dict):
        return type(value)()
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def too_costly(ask: Ask, bound: str) -> SignalboxError:
    """The error for a body that made a process run out of ``bound``, memory or time."""
    if isinstance(ask, RenderAsk):
        return ResultTooLarge(
            f"The job succeeded, but its result could not be written as JSON within the {bound} allowed for one. Send "
            "fewer rows at once, or have the model give out less.",
            bound=bound,
        )
    if bound == "time":
        return DeadlineExceeded(
            "The body could not be decoded within the time allowed for one; send it in parts.", bound=bound
        )
    return TooLarge("The body needs more memory than is allowed for one; send it in parts.", bound=bound)


class Decoder:
    """Performs what is asked; keeps the body parsed last."""

    def __init__(self) -> None:
        self._kept: ReadBody | None = None

    def perform(self, ask: Ask) -> Reply:
        """Do what is asked. Errors of ours become :class:`ErrorReply`."""
        try:
            if isinstance(ask, ParseAsk):
                return self._parse(ask)
            if isinstance(ask, DecodeAsk):
                return self._decode(ask)
            if isinstance(ask, DecodeManyAsk):
                return self._decode_many(ask)
            return Done(data=rendered(ask.frame, ask.style, ask.limit, is_strict=ask.is_strict))
        except SignalboxError as error:
            return _refused(error)
        except MemoryError:
            self._kept = None
            return _refused(too_costly(ask, "memory"))

    def _parse(self, ask: ParseAsk) -> Done:
        self._kept = None
        raw = _inflated(ask) if ask.encoding else ask.body
        self._kept = forms.read(ask.form, raw, ask.bounds, ask.header_bytes)
        fields, most = self._fields(self._kept), _MOST_FIELDS_BYTES
        if ask.form is Form.JOBS:
            most *= MANY_FIELDS
        if len(fields) > most:
            raise TooLarge("The body has too many fields beside the inputs.", bound="fields")
        return Done(fields)

    @staticmethod
    def _fields(kept: ReadBody) -> bytes:
        if kept.form is Form.INFER:
            return msgspec.json.encode(kept.fields)
        if kept.form is Form.JOBS:
            # What is no object is refused where the fields are looked at.
            jobs = many.jobs_of(kept.fields)
            return msgspec.json.encode([fields_of(job) if type(job) is dict else _outline(job) for job in jobs])
        return msgspec.json.encode(fields_of(kept.fields))

    def _take(self) -> ReadBody:
        body, self._kept = self._kept, None
        if body is None:
            raise Bug("Nothing was parsed before decoding.")
        return body

    def _decode(self, ask: DecodeAsk) -> Done:
        available = plans(ask.signatures, batch_prefix=ask.batch_prefix)
        return _framed(forms.decode(self._take(), available, ask.max_tensor_bytes))

    def _decode_many(self, ask: DecodeManyAsk) -> Done:
        jobs = self._take().fields[many.FIELD]
        available = [plans(one.signatures, batch_prefix=one.batch_prefix) for one in ask.versions]
        answers: list[Done | ErrorReply | None] = []
        for job, place in zip(jobs, ask.jobs, strict=True):
            if place is None:
                answers.append(None)
                continue
            try:
                found = many.decode_one(job, available[place], ask.versions[place].max_tensor_bytes)
                answers.append(_framed(found))
            except SignalboxError as error:
                answers.append(_refused(error))
        return Done(jobs=answers)


def _framed(found: Decoded) -> Done:
    return Done(tensors.encode(found.tensors), found.signature, found.style, found.rows, found.batch_key)


def _inflated(ask: ParseAsk) -> bytes:
    """The body inflated as by :func:`inflate`; what is no gzip is nothing to TensorFlow Serving."""
    try:
        return inflate(ask.body, ask.limit_bytes, ask.encoding)
    except TooLarge:
        raise
    except InvalidRequest as error:
        if ask.form not in {Form.JOB, Form.JOBS, Form.INFER}:
            forms.put_before(error, "JSON Parse error: The document is empty")
        raise


def _refused(error: SignalboxError) -> ErrorReply:
    return ErrorReply(error.code, error.public_message, dict(error.facts))


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Say that this process is ready, then answer frames until the input ends."""
    decoder: msgspec.msgpack.Decoder[Ask] = msgspec.msgpack.Decoder(Ask)
    worker = Decoder()
    _send(sink, msgspec.msgpack.encode(Done()))
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        (size,) = LENGTH.unpack(head)
        ask = decoder.decode(source.read(size))
        try:
            reply = msgspec.msgpack.encode(worker.perform(ask))
        except Exception as error:  # noqa: BLE001  the edge of one request in this process
            traceback.print_exc()
            reply = msgspec.msgpack.encode(ErrorReply(Bug.code, f"Decoding failed: {type(error).__name__}."))
        del ask
        _send(sink, reply)


def _send(sink: IO[bytes], frame: bytes) -> None:
    sink.write(LENGTH.pack(len(frame)))
    sink.write(frame)
    sink.flush()


if __name__ == "__main__":
    memory = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    serve(sys.stdin.buffer, sys.stdout.buffer)
