"""Decodes bodies and renders answers: small ones in this process, large ones in a small pool of processes.

The pool starts with the first large body, and each of its processes does one body at a time;
:mod:`gateway_plugin.codec.turns` decides whose. A process that dies, or takes too long, is replaced; its body is
refused.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
import orjson

from gateway_plugin.codec import forms, many
from gateway_plugin.codec.decoder import (
    ENCODINGS,
    LENGTH,
    Ask,
    DecodeAsk,
    DecodeManyAsk,
    Done,
    ErrorReply,
    ParseAsk,
    RenderAsk,
    Reply,
    rendered,
    too_costly,
    too_large,
)
from gateway_plugin.codec.errorcodes import error_of
from gateway_plugin.codec.forms import Form
from gateway_plugin.codec.inputs import Decoded
from gateway_plugin.codec.outputs import MOST_SHRUNK
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.codec.settings import CodecSettings
from gateway_plugin.codec.turns import Turns
from signalbox.front.jsonbody import Bounds
from signalbox.program import log
from signalbox.program.errors import Bug, SignalboxError, TooLarge, Unavailable, UnsupportedEncoding
from signalbox.wire import tensors

_HERE_BYTES: Final = 64 * 1024
"""Bodies above this are decoded by another process: that many take the loop about as long as a process's turn."""
_RETRY_AFTER_S: Final = 2.0
_BETWEEN: Final = 16
"""Jobs of a small body that are read in one go."""
_START_S: Final = 30.0
"""Longest start of a process: no part of a body's own time, or a short one would refuse bodies on a busy machine."""
_PIPE_LIMIT: Final = 1024 * 1024
C = TypeVar("C")
Choose = Callable[[Mapping[str, Any]], tuple[C, PreparedVersion]]
"""Called with a body's fields; returns what to keep of them, and the version to decode for."""


class DecodedInputs(msgspec.Struct, frozen=True):
    """Decoded inputs of one request, as :class:`gateway_plugin.codec.inputs.Decoded`, framed.

    outputs: names of those that are wanted, in order; empty = all.
    """

    frame: bytes
    signature: str
    style: str
    rows: int
    batch_key: str
    outputs: tuple[str, ...] = ()


ReadJob = tuple[C, PreparedVersion, DecodedInputs]
"""What was kept of a body's fields, the version it is for, and its inputs."""


class _Process:
    """One decoding process, used by one body at a time. timeout_s: bounds each thing asked of it."""

    def __init__(self, process: asyncio.subprocess.Process, timeout_s: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._sink, self._source = process.stdin, process.stdout
        self._timeout_s = timeout_s
        self._is_killed = False

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None and not self._is_killed and not self._sink.is_closing()

    @classmethod
    async def start(cls, settings: CodecSettings) -> "_Process":
        """A process that has said it is ready. Raises :class:`Unavailable` where none comes to that."""
        log.info("gateway.decoder_started")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gateway_plugin.codec.decoder",
            str(settings.decode_memory_bytes),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_PIPE_LIMIT,
        )
        started = cls(process, settings.decode_timeout_s)
        try:
            async with asyncio.timeout(_START_S):
                await started._reply()
        except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            await started.end()
            log.error("gateway.decoder_not_started", status=process.returncode)
            raise Unavailable(
                "No process for large bodies could be started; nothing was accepted.",
                retry_after_s=_RETRY_AFTER_S,
                bound="decoding",
            ) from error
        except asyncio.CancelledError:
            started._kill()
            raise
        return started

    async def ask(self, ask: Ask) -> Done:
        """Have the process do one thing. Raises the error it answers with, or the one for its death or silence."""
        body = msgspec.msgpack.encode(ask)
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._sink.is_closing():  # it died since it was picked; uvloop raises RuntimeError for a write
                    raise BrokenPipeError
                self._sink.write(LENGTH.pack(len(body)))
                self._sink.write(body)
                await self._sink.drain()
                reply = await self._reply()
        except TimeoutError as error:
            await self.end()
            raise too_costly(ask, "time") from error
        except (asyncio.IncompleteReadError, OSError) as error:
            await self.end()
            raise too_costly(ask, "memory") from error
        except asyncio.CancelledError:
            # Half a conversation cannot be continued by the next user.
            self._kill()
            raise
        if isinstance(reply, ErrorReply):
            raise error_of(reply.code, reply.message, reply.facts)
        return reply

    async def _reply(self) -> Reply:
        (size,) = LENGTH.unpack(await self._source.readexactly(LENGTH.size))
        reply: Reply = _decode_reply(await self._source.readexactly(size))
        return reply

    async def end(self) -> None:
        """End the process and wait until it is gone. Idempotent."""
        self._kill()
        await self._process.wait()

    def _kill(self) -> None:
        """Kill the process without waiting for its end; it is not used again."""
        self._is_killed = True
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


_decode_reply: Final = msgspec.msgpack.Decoder(Reply).decode


class BodyCodec:
    """Decodes bodies and renders answers within the settings' bounds."""

    def __init__(self, settings: CodecSettings) -> None:
        self._settings = settings
        self._bounds = Bounds(settings.max_body_bytes, settings.max_elements)
        self._idle: list[_Process] = []
        self._turns = Turns(settings.decode_processes)

    def is_small(self, body: bytes, encoding: str) -> bool:
        """Whether :meth:`read_here` is for this body, else :meth:`read_elsewhere`."""
        return len(body) <= _HERE_BYTES and not encoding

    async def read(
        self, account: str, body: bytes, encoding: str, choose: Choose[C], form: Form = Form.JOB
    ) -> tuple[C, PreparedVersion, DecodedInputs]:
        """Read a body here or in another process, as its size and encoding want."""
        if len(body) <= _HERE_BYTES and not encoding:
            return self.read_here(body, choose, form)
        return await self.read_elsewhere(account, body, encoding, choose, form)

    def read_here(
        self, body: bytes, choose: Choose[C], form: Form = Form.JOB, header_bytes: int | None = None
    ) -> tuple[C, PreparedVersion, DecodedInputs]:
        """Parse, let the caller choose the version, decode. Raises what the codec and ``choose`` raise.

        header_bytes: see :func:`gateway_plugin.codec.forms.read`.
        """
        parsed = forms.read(form, body, self._bounds, header_bytes)
        kept, ready = choose(parsed.fields)
        found = forms.decode(parsed, ready.plans, ready.model.limits.max_payload_bytes)
        return kept, ready, _decoded(found)

    async def read_elsewhere(
        self,
        account: str,
        body: bytes,
        encoding: str,
        choose: Choose[C],
        form: Form = Form.JOB,
        header_bytes: int | None = None,
        limit_bytes: int = 0,
    ) -> tuple[C, PreparedVersion, DecodedInputs]:
        """:meth:`read_here` in another process, when it is the account's turn; ``encoding``: Content-Encoding.

        limit_bytes: of the body, inflated or not; 0 = that of JSON.
        """
        limit_bytes = limit_bytes or self._bounds.body_bytes
        encoding = _required(body, encoding, limit_bytes)
        async with self._process(account) as process:
            parsed = await process.ask(ParseAsk(body, self._bounds, limit_bytes, encoding, form, header_bytes))
            kept, ready = choose(orjson.loads(parsed.data))
            found = await process.ask(_decode_ask(ready))
        return (kept, ready, DecodedInputs(found.data, found.signature, found.style, found.rows, found.batch_key))

    async def read_many(
        self, account: str, body: bytes, encoding: str, choose: Choose[C]
    ) -> list[ReadJob[C] | SignalboxError]:
        """Read a body with many jobs, here or in another process: of each what :meth:`read` gives, or its error.

        Raises as :meth:`read` for what is wrong with the body as a whole.
        """
        if self.is_small(body, encoding):
            jobs = many.jobs_of(forms.read(Form.JOBS, body, self._bounds).fields)
            return [await self._read_one(number, job, choose) for number, job in enumerate(jobs)]
        encoding = _required(body, encoding, self._bounds.body_bytes)
        async with self._process(account) as process:
            parsed = await process.ask(ParseAsk(body, self._bounds, self._bounds.body_bytes, encoding, Form.JOBS))
            chosen = [_chosen(fields, choose) for fields in orjson.loads(parsed.data)]
            versions = {id(one[1]): one[1] for one in chosen if not isinstance(one, SignalboxError)}
            places = {name: place for place, name in enumerate(versions)}
            asks = [_decode_ask(ready) for ready in versions.values()]
            jobs = [None if isinstance(one, SignalboxError) else places[id(one[1])] for one in chosen]
            found = (await process.ask(DecodeManyAsk(asks, jobs))).jobs
        return [_read_there(one, answer) for one, answer in zip(chosen, found, strict=True)]

    async def _read_one(self, number: int, job: Any, choose: Choose[C]) -> ReadJob[C] | SignalboxError:
        """Read one of many jobs here; in between the event loop does its other work."""
        if number % _BETWEEN == 0:
            await asyncio.sleep(0)
        chosen = _chosen(job, choose)
        if isinstance(chosen, SignalboxError):
            return chosen
        kept, ready = chosen
        try:
            found = many.decode_one(job, ready.plans, ready.model.limits.max_payload_bytes)
        except SignalboxError as error:
            return error
        return kept, ready, _decoded(found)

    def require_answerable(self, size_bytes: int) -> None:
        """Raise :class:`ResultTooLarge` for a result that is too large however it is written: it is not fetched."""
        limit = self._settings.max_answer_bytes
        if size_bytes > MOST_SHRUNK * limit:
            raise too_large(size_bytes, limit)

    async def render(self, account: str, frame: bytes, style: str, *, is_strict: bool = False) -> bytes:
        """The JSON of a result. is_strict: numbers that are none are strings, see :mod:`gateway_plugin.codec.outputs`.

        Raises :class:`InvalidRequest` where rows are impossible, :class:`ResultTooLarge`, and :class:`Bug`.
        """
        limit = self._settings.max_answer_bytes
        if len(frame) <= _HERE_BYTES:
            return rendered(frame, style, limit, is_strict=is_strict)
        async with self._process(account) as process:
            return (await process.ask(RenderAsk(frame, style, limit, is_strict))).data

    @contextlib.asynccontextmanager
    async def _process(self, account: str) -> AsyncIterator[_Process]:
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._turns.turn(account, self._settings.decode_timeout_s))
            except TimeoutError as error:
                raise self._turns.late(account, what="large bodies", bound="decoding") from error
            while self._idle and not self._idle[-1].is_alive:
                self._idle.pop()
            process = self._idle.pop() if self._idle else await _Process.start(self._settings)
            try:
                yield process
            finally:
                if process.is_alive:
                    self._idle.append(process)

    async def close(self) -> None:
        """End the pool. Idempotent."""
        while self._idle:
            await self._idle.pop().end()


def _required(body: bytes, encoding: str, limit_bytes: int) -> str:
    """The Content-Encoding of a body that goes to another process, empty for none.

    Raises :class:`UnsupportedEncoding` and :class:`TooLarge`.
    """
    if encoding not in {"", "identity", *ENCODINGS}:
        raise UnsupportedEncoding(
            f"Content-Encoding {encoding[:40]!r} is not taken; use {' or '.join(ENCODINGS)}.", bound="encoding"
        )
    if len(body) > limit_bytes:
        raise TooLarge(
            f"The body has {len(body)} bytes; at most {limit_bytes} are taken.",
            bound="bytes",
            limit_bytes=limit_bytes,
        )
    return "" if encoding == "identity" else encoding


def _decoded(found: Decoded) -> DecodedInputs:
    return DecodedInputs(tensors.encode(found.tensors), found.signature, found.style, found.rows, found.batch_key)


def _decode_ask(ready: PreparedVersion) -> DecodeAsk:
    return DecodeAsk(dict(ready.version.signatures), ready.batch_prefix, ready.model.limits.max_payload_bytes)


def _chosen(job: Any, choose: Choose[C]) -> tuple[C, PreparedVersion] | SignalboxError:
    """What ``choose`` makes of one of many jobs, or why it is refused."""
    try:
        many.require_object(job)
        return choose(job)
    except SignalboxError as error:
        return error


def _read_there(
    chosen: tuple[C, PreparedVersion] | SignalboxError, answer: Done | ErrorReply | None
) -> ReadJob[C] | SignalboxError:
    if isinstance(chosen, SignalboxError):
        return chosen
    if not isinstance(answer, Done):
        return error_of(answer.code, answer.message, answer.facts) if answer else Bug("A job was not decoded.")
    inputs = DecodedInputs(answer.data, answer.signature, answer.style, answer.rows, answer.batch_key)
    return chosen[0], chosen[1], inputs
