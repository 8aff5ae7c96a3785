"""The end of a stream, read in sweeps: headers only, and nothing is sent between two of them.

A consumer that delivers each message as it is stored costs a wake-up here and a write in nats-server for every
one. A sweep asks for all there is at once; and of a subject that keeps one message only the last is sent.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from signalbox.bus.client import Bus
from signalbox.bus.pull import Delivery, Puller
from signalbox.program.errors import Conflict, NotFound
from signalbox.wire.names import PROJECTOR, Stream

_NANO: Final = 1_000_000_000
_PARKED_S: Final = 30.0
"""How long one request waits at the server for the first message of the next sweep."""
_FORGOTTEN_AFTER_S: Final = 90
"""The server drops our consumer when nobody asked it for so long."""


class Tail:
    """One stream from a sequence on. wake: called when something came, or the server owes nothing any more."""

    def __init__(self, bus: Bus, stream: Stream, wake: Callable[[], None]) -> None:
        self._bus = bus
        self._stream = stream
        self._wake = wake
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

    async def open(self, start: int) -> None:
        """Read from sequence ``start`` on. Raises what NATS answers."""
        # Never the consumer that exists: it would go on after what it delivered, not after what was written. Another
        # projector that reads through it is refused, and makes it anew in its turn.
        with contextlib.suppress(NotFound):
            await self._bus.request_json(f"$JS.API.CONSUMER.DELETE.{self._stream}.{PROJECTOR}")
        config: dict[str, Any] = {
            "name": PROJECTOR,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": start,
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            # Inputs and results lie in the bodies; rows need only the headers.
            "headers_only": True,
            "inactive_threshold": _FORGOTTEN_AFTER_S * _NANO,
        }
        made = await self._bus.request_json(
            f"$JS.API.CONSUMER.CREATE.{self._stream}.{PROJECTOR}",
            {"stream_name": self._stream.value, "config": config, "action": ""},
        )
        self._created = made["created"]
        self._puller = await self._bus.pull(PROJECTOR, self._take, stream=self._stream)
        self._puller.on_idle = self._told_idle

    def park(self) -> None:
        """Have the server send the next message as soon as there is one. Idempotent."""
        if self._puller is not None and not self._puller.outstanding:
            self._puller.ask(1, expires_s=_PARKED_S)

    async def sweep(self, limit: int) -> list[Delivery]:
        """All that is there, up to some ``limit``, oldest first; what was parked for is among it.

        Raises :class:`Conflict` where another projector may have been given some of it.
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

    async def _refuse_company(self) -> None:
        """Another projector makes a consumer of the same name, and the server deals its deliveries to both.

        Numbers alone do not tell: those of its consumer may happen to go on where ours stood.
        """
        info = await self._bus.request_json(f"$JS.API.CONSUMER.INFO.{self._stream}.{PROJECTOR}")
        if self._is_shared or info["created"] != self._created:
            raise Conflict(f"Another projector reads {self._stream}; this one begins anew.")

    def _take(self, delivery: Delivery) -> None:
        self._is_shared |= delivery.number != self._last_number + 1
        self._last_number = delivery.number
        self._taken.append(delivery)
        self._told_idle()

    def _told_idle(self) -> None:
        self._ended.set()
        self._wake()
