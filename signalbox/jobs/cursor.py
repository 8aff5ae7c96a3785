"""Reads a stream in order from a sequence on: headers only, in sweeps, with nothing sent between two sweeps.

It uses a consumer in the server's memory that acknowledges nothing: it takes no message from another reader, and the
caller keeps the place in the stream. A consumer that delivers each message as it is stored costs a wake-up here and a
write in nats-server for every one. A sweep asks for all messages at once; of a subject that keeps one message only the
last is sent.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from signalbox.bus.client import Bus
from signalbox.bus.pull import Delivery, Puller
from signalbox.program.errors import Conflict, NotFound
from signalbox.wire.names import Stream

_PARKED_S: Final = 30.0
"""How long one request waits at the server for the first message of the next sweep."""
_INACTIVE_NS: Final = 90_000_000_000
"""Nanoseconds without a request after which the server drops the consumer."""


class StreamCursor:
    """One stream from a sequence on. name: of the consumer; two readers under one name disturb each other.

    wake: called when something came, or the server owes nothing any more. is_watched: asks the server after each sweep
    whether the consumer is still this reader's own, which needs the right to.
    """

    def __init__(
        self, bus: Bus, stream: Stream, name: str, wake: Callable[[], None] | None = None, *, is_watched: bool = True
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._name = name
        self._place = f"{stream}.{name}"
        self._wake = wake
        self._is_watched = is_watched
        self._taken: list[Delivery] = []
        self._ended = asyncio.Event()
        self._puller: Puller | None = None
        self._created = ""
        self._last_number = 0
        self._is_shared = False

    def __len__(self) -> int:
        """Deliveries that came and were not taken."""
        return len(self._taken)

    @property
    def is_open(self) -> bool:
        """Whether there is a consumer to read through."""
        return self._puller is not None

    @property
    def refusal(self) -> str:
        """Why the server does not deliver, or empty."""
        return self._puller.last_refusal if self._puller is not None else ""

    async def open(self, start: int) -> int:
        """Read from sequence ``start`` on; returns how many messages there are. Raises the errors of NATS's answer."""
        made = await self.make({"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, start)})
        self._created = made["created"]
        self._puller = await self._bus.pull(self._name, self._take, stream=self._stream)
        self._puller.on_idle = self._reported_idle
        return int(made.get("num_pending", 0))

    async def make(self, start: dict[str, Any]) -> dict[str, Any]:
        """Make the consumer anew; returns what the server says of it.

        An existing consumer is never used: it would go on after what it delivered, not at the place that the caller
        keeps. Another reader of the same name is then refused, and makes the consumer anew in its turn.
        """
        await self.forget()
        config = start | {
            "name": self._name,
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "headers_only": True,  # inputs and results lie in the bodies
            "inactive_threshold": _INACTIVE_NS,
        }
        ask = {"stream_name": self._stream.value, "config": config, "action": ""}
        return await self._bus.request_json(f"$JS.API.CONSUMER.CREATE.{self._place}", ask)

    def park(self) -> None:
        """Have the server send the next message as soon as there is one. Idempotent."""
        if self._puller is not None and not self._puller.outstanding:
            self._puller.ask(1, expires_s=_PARKED_S)

    async def sweep(self, limit: int) -> list[Delivery]:
        """All that is there, up to some ``limit``, oldest first; what was parked for is among it.

        Raises :class:`Conflict` where another reader may have been given some of it.
        """
        puller = self._puller
        if puller is not None and not puller.last_refusal:
            parked = puller.outstanding
            puller.ask(limit - len(self._taken), expires_s=0.0)
            while puller.outstanding > parked and len(self._taken) < limit:
                self._ended.clear()
                await self._ended.wait()
        taken, self._taken = self._taken, []
        if taken:
            await self._refuse_company()
        return taken

    async def close(self) -> None:
        """Nothing comes any more. Idempotent."""
        if self._puller is not None:
            await self._puller.close()

    async def forget(self) -> None:
        """Remove the consumer. Idempotent."""
        with contextlib.suppress(NotFound):
            await self._bus.request_json(f"$JS.API.CONSUMER.DELETE.{self._place}")

    async def _refuse_company(self) -> None:
        """Raise :class:`Conflict` if another reader has made a consumer of this name: both then share its deliveries.

        Delivery numbers alone do not prove it: those of the other consumer may happen to go on where ours stood.
        """
        is_shared = self._is_shared
        if self._is_watched and not is_shared:
            info = await self._bus.request_json(f"$JS.API.CONSUMER.INFO.{self._place}")
            is_shared = info["created"] != self._created
        if is_shared:
            raise Conflict(f"Another {self._name} reads {self._stream}; this one begins anew.")

    def _take(self, delivery: Delivery) -> None:
        self._is_shared |= delivery.number != self._last_number + 1
        self._last_number = delivery.number
        self._taken.append(delivery)
        self._reported_idle()

    def _reported_idle(self) -> None:
        self._ended.set()
        if self._wake is not None:
            self._wake()
