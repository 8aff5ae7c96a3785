"""Saves one stream as a file and restores it: JetStream's own snapshots, in chunks with flow control.

The file is what nats-server makes of a stream: a tar of its messages and consumers, compressed. Neither way keeps
more than the server's window of unacknowledged chunks (8 MiB) in memory.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from signalbox.bus.client import Bus
from signalbox.bus.jetstream import ApiError, Reply, api_refused
from signalbox.bus.transport.frames import status, status_text
from signalbox.program.errors import Ambiguous, Misconfigured, SignalboxError, Unavailable

CHUNK_BYTES: Final = 128 * 1024
_QUIET_S: Final = 60.0
"""The server checks a whole stream before it sends the first chunk, and reads it back after the last."""
_UNSEEN_S: Final = 0.1
_UNSEEN_TRIES: Final = 50
_WHOLE: Final = 204
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode

OnBytes = Callable[[int], None]
"""Called with the bytes of each chunk."""


class SavedStream(msgspec.Struct, frozen=True):
    """A stream in a file. config, state: as the server told them. sha256: hex, of ``size_bytes`` bytes."""

    name: str
    config: dict[str, Any]
    state: dict[str, Any]
    size_bytes: int
    sha256: str


async def save(bus: Bus, name: str, path: Path, on_bytes: OnBytes) -> SavedStream:
    """Write a stream into a new file, which is on the disk when this returns.

    Raises :class:`NotFound`, :class:`Unavailable` when the server falls silent, and :class:`Misconfigured` where it
    cannot read the stream or we cannot write the file.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        taker = _Taker(bus, name, file, on_bytes)
        subject = bus.new_inbox().decode() + "chunks"
        sid = bus.connection.listen(subject, taker.take)
        try:
            await bus.flush()
            reported = await bus.request_json(
                f"$JS.API.STREAM.SNAPSHOT.{name}", {"deliver_subject": subject, "chunk_size": CHUNK_BYTES, "jsck": True}
            )
            await taker.finish()
        finally:
            bus.connection.unlisten(sid)
        file.flush()
        os.fsync(file.fileno())
    return SavedStream(name, reported["config"], reported["state"], taker.size_bytes, taker.digest.hexdigest())


async def put_back(bus: Bus, saved: SavedStream, path: Path, on_bytes: OnBytes) -> None:
    """Make a stream of its file again, consumers included, with sequences as they were.

    Raises :class:`Misconfigured` with the server's words where it refuses, or where it has made less of the file
    than was in it.
    """
    reported = await bus.request_json(
        f"$JS.API.STREAM.RESTORE.{saved.name}", {"config": saved.config, "state": saved.state}
    )
    subject = reported["deliver_subject"]
    for chunk in _chunks(path):
        await _send(bus, subject, chunk)
        on_bytes(len(chunk))
    made = await _send(bus, subject, b"")
    if made["state"]["last_seq"] < saved.state["last_seq"]:
        raise Misconfigured(f"NATS has made {saved.name} only up to {made['state']['last_seq']}.")


def is_whole(saved: SavedStream, path: Path) -> bool:
    """Whether the file is there, byte for byte as it was written."""
    digest = hashlib.sha256()
    try:
        for chunk in _chunks(path):
            digest.update(chunk)
    except OSError:
        return False
    return digest.hexdigest() == saved.sha256


class _Taker:
    """Writes chunks as they come; each is acknowledged once it is written."""

    def __init__(self, bus: Bus, name: str, file: BinaryIO, on_bytes: OnBytes) -> None:
        self.size_bytes = 0
        self.digest = hashlib.sha256()
        self._bus = bus
        self._name = name
        self._file = file
        self._on_bytes = on_bytes
        self._received = asyncio.Event()
        self._is_over = False
        self._fault: SignalboxError | None = None
        bus.on_disconnect(self._lose)

    def take(self, subject: bytes, reply: bytes, head: bytes, body: bytes) -> None:
        """One chunk; an empty one is the last, and says in its header what went wrong."""
        self._received.set()
        if not body:
            self._is_over = True
            if status(head) not in {0, _WHOLE}:
                self._fault = Misconfigured(f"NATS cannot read {self._name}: {status_text(head)}.")
            return
        try:
            self._file.write(body)
        except OSError as error:
            self._fault = Misconfigured(f"{self._name} cannot be written: {error.strerror}.")
            return
        self.digest.update(body)
        self.size_bytes += len(body)
        self._on_bytes(len(body))
        if reply:  # the last chunk has none
            self._bus.send(reply.decode(), b"", b"", b"")

    def _lose(self) -> None:
        """What was under way is lost, and the server might go on after it as if nothing were missing."""
        self._fault = Unavailable(f"The connection was lost during {self._name}; try again.")
        self._received.set()

    async def finish(self) -> None:
        """Return when all is written."""
        while not self._is_over and self._fault is None:
            self._received.clear()
            try:
                async with asyncio.timeout(_QUIET_S):
                    await self._received.wait()
            except TimeoutError:
                raise Unavailable(f"NATS has stopped sending {self._name}; try again.") from None
        if self._fault is not None:
            raise self._fault


async def _send(bus: Bus, subject: str, chunk: bytes) -> dict[str, Any]:
    _, body = await _ask(bus, subject, chunk)
    answer = _decode(body) if body else {}
    if answer.get("error"):
        raise api_refused(msgspec.convert(answer["error"], ApiError), subject)
    return answer


async def _ask(bus: Bus, subject: str, chunk: bytes) -> Reply:
    """Send a chunk until a node listens: our node of a cluster learns a little later that another one does."""
    tries = _UNSEEN_TRIES
    while True:
        try:
            return await bus.request(subject, chunk, timeout_s=_QUIET_S, is_write=True)
        except Ambiguous:
            raise
        except Unavailable:
            tries -= 1
            if not tries:
                raise
            await asyncio.sleep(_UNSEEN_S)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
