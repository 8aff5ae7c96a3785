"""What a conformance case is given, and how it says what it needs.

A case is one scripted conversation with NATS through our own bus. It runs against the model in virtual time and against
a real nats-server, and asserts the same in both: so whatever it asserts the model does as the server does. Cases share
a server and run at the same time; each keeps to its own names (``rig.id``). Bounds in seconds compare times that the
server stamped, never how fast a test runs.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from signalbox.bus.client import Bus, Delivery, Message
from signalbox.bus.jetstream import Stored, decode_puback
from signalbox.bus.pull import Puller
from signalbox.program.errors import SignalboxError
from signalbox.wire import assets
from signalbox.wire.names import Bucket, Stream, key

PATIENCE_S: Final = 60.0
"""How long a case waits for what must come."""


Staged = tuple[str, bytes, dict[str, str]]
"""Subject, body and headers of one message of a batch."""


class CaseRig(ABC):
    """One case's access to a server. id: a token of its own for every name it makes."""

    id: str

    @abstractmethod
    async def bus(self, **wire: float) -> Bus:
        """A connection, closed after the case. ``wire``: settings that differ."""

    @abstractmethod
    async def kill(self) -> None:
        """End the server without warning. Only for cases with a server of their own."""

    @abstractmethod
    async def start(self) -> None:
        """Start it again on what it had stored."""

    @abstractmethod
    async def freeze(self) -> None:
        """Stop the server as SIGSTOP does."""

    @abstractmethod
    async def thaw(self) -> None:
        """Let it go on."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""

    async def lose_leader(self, stream_name: str) -> None:
        """End the server that leads a stream. Only in a cluster."""
        raise NotImplementedError

    def st(self, name: str = "a") -> str:
        """A subject in ``STATE``."""
        return f"st.{self.id}-{name}"

    def lease(self, name: str = "g") -> str:
        """A subject in the leases' bucket."""
        return key(Bucket.LEASES, f"{self.id}-{name}")

    def job(self, name: str = "1", priority: str = "hi") -> str:
        """A subject in ``JOBS``, of the case's own model."""
        return f"jobs.{self.id}.{priority}.{self.id}-{name}"


class Case(NamedTuple):
    """One script. own: it needs a server to itself, to stop, kill or freeze."""

    name: str
    run: Callable[[CaseRig], Awaitable[None]]
    is_own: bool


CASES: Final[list[Case]] = []


def case(run: Callable[[CaseRig], Awaitable[None]]) -> Callable[[CaseRig], Awaitable[None]]:
    """A case that shares its server."""
    CASES.append(Case(run.__name__, run, is_own=False))
    return run


def own_server(run: Callable[[CaseRig], Awaitable[None]]) -> Callable[[CaseRig], Awaitable[None]]:
    """A case with a server of its own."""
    CASES.append(Case(run.__name__, run, is_own=True))
    return run


class Deliveries:
    """Collects what a puller is given."""

    def __init__(self) -> None:
        self.all: list[Delivery] = []

    def take(self, delivery: Delivery) -> None:
        """For :meth:`Bus.pull`."""
        self.all.append(delivery)

    async def until(self, count: int) -> list[Delivery]:
        """The deliveries, once there are so many."""
        await until(lambda: len(self.all) >= count)
        return self.all


class ReceivedMessages:
    """Collects core messages of one subscription."""

    def __init__(self) -> None:
        self.all: list[Message] = []

    def take(self, message: Message) -> None:
        """For :meth:`Bus.subscribe`."""
        self.all.append(message)

    async def until(self, count: int) -> list[Message]:
        """The messages, once there are so many."""
        await until(lambda: len(self.all) >= count)
        return self.all


async def receive(bus: Bus, subject: str) -> ReceivedMessages:
    """Listen to a subject."""
    received = ReceivedMessages()
    await bus.subscribe(subject, received.take)
    return received


async def until(is_so: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for a condition; asks again and again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = is_so()
            if not isinstance(found, bool):
                found = await found
            if found:
                return
            await asyncio.sleep(0.02)


async def gone(bus: Bus, stream: str, subject: str) -> None:
    """Wait until nothing is stored under a subject."""

    async def is_gone() -> bool:
        return await bus.leader_get(stream, subject) is None

    await until(is_gone)


async def consumer(
    bus: Bus,
    name: str,
    subject: str,
    *,
    stream: str = Stream.JOBS,
    examined_to: int = 0,
    action: str = "",
    **changes: Any,
) -> None:
    """A pull consumer as ours are made, but for ``changes``."""
    config = assets.consumer(name, subject, examined_to=examined_to) | changes
    ask = {"stream_name": str(stream), "config": config, "action": action}
    await bus.request_json(f"$JS.API.CONSUMER.CREATE.{stream}.{name}.{subject}", ask)


async def pulling(
    bus: Bus, name: str, n: int = 100, *, expires_s: float = 50.0, stream: str = Stream.JOBS
) -> tuple[Puller, Deliveries]:
    """A puller that has asked for ``n``."""
    taken = Deliveries()
    puller = await bus.pull(name, taken.take, stream=stream)
    puller.ask(n, expires_s=expires_s)
    return puller, taken


async def stream(bus: Bus, name: str, subjects: list[str], **changes: Any) -> None:
    """A further stream, plain but for ``changes``."""
    config = assets._stream(Stream.DLQ, subjects, "a case's own", **changes) | {"name": name}
    await bus.request_json(f"$JS.API.STREAM.CREATE.{name}", config | {"num_replicas": 1})


async def raw(bus: Bus, subject: str, data: bytes = b"", headers: Mapping[str, str] | None = None) -> tuple[int, int]:
    """A write by hand: ``(sequence, 0)`` or ``(0, the server's error number)``."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items()).encode()
    _, body = await bus.request(subject, data, fields=fields, is_write=True)
    ack = decode_puback(body)
    return (0, ack.error.err_code) if ack.error is not None else (ack.seq, 0)


async def batch(
    bus: Bus, name: str, messages: Sequence[Staged], *, numbers: list[int] | None = None
) -> tuple[int, int, int]:
    """An atomic batch by hand: ``(last sequence, count, 0)`` or ``(0, 0, error number)``."""
    numbers = numbers or list(range(1, len(messages) + 1))
    for (subject, data, headers), number in zip(messages[:-1], numbers, strict=False):
        bus.send(subject, b"", _fields(headers, name, number), data)
    subject, data, headers = messages[-1]
    fields = _fields(headers, name, numbers[-1]) + b"Nats-Batch-Commit: 1\r\n"
    _, body = await bus.request(subject, data, fields=fields, is_write=True)
    ack = decode_puback(body)
    return (0, 0, ack.error.err_code) if ack.error is not None else (ack.seq, ack.count, 0)


def _fields(headers: Mapping[str, str], name: str, number: int) -> bytes:
    lines = {**headers, "Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number)}
    return "".join(f"{field}: {value}\r\n" for field, value in lines.items()).encode()


async def get(bus: Bus, stream_name: str, subject: str) -> Stored:
    """The last message of a subject, which must be there."""
    found = await bus.leader_get(stream_name, subject)
    assert found is not None
    return found


async def info(bus: Bus, name: str) -> dict[str, Any]:
    """``STREAM.INFO``."""
    return await bus.request_json(f"$JS.API.STREAM.INFO.{name}")


async def refusal(act: Awaitable[object]) -> int:
    """The server's error number of an API request that must be refused."""
    try:
        await act
    except SignalboxError as error:
        return int(str(error.facts["err_code"]))
    raise AssertionError("It was not refused.")
