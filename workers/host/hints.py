"""Learns of jobs of models that this worker does not pull: the server republishes the headers of each accepted one.

For a model that nobody calls nothing else exists on the server. A worker with very many models listens to all jobs
instead: then nothing exists for any of them, and of those that it pulls it receives too.
"""

from collections.abc import Callable, Iterable
from typing import Final, cast

from signalbox.bus.client import Bus
from signalbox.wire import names
from signalbox.wire.names import Header, Priority

_SEQUENCE: Final = f"\r\n{Header.SEQUENCE}: ".encode()
MOST_APART: Final = 1_000
"""Models that are listened to one by one. Each takes 0.7 KB here, and its place on the server."""


class Hints:
    """What is listened to. on_hint: called with model, priority and stream sequence (0 if it is not told) of a job that
    was accepted, quickly; of any model, where there are many.

    on_look: called with a model whose queue is to be read anew, whether it is listened to or not. on_anew: with model
    and priority where a consumer is made anew, and the sequence up to which an earlier one may have delivered.
    """

    def __init__(
        self,
        bus: Bus,
        on_hint: Callable[[str, Priority, int], None],
        on_redeliver: Callable[[str], None],
        on_anew: Callable[[str, Priority, int], None] | None = None,
    ) -> None:
        self._bus = bus
        self._on_hint = on_hint
        self._on_redeliver = on_redeliver
        self._on_anew = on_anew
        self._receive = self._received  # one for all
        self._apart: dict[str, int] = {}
        """Subscriptions by model."""
        self._all: int | None = None
        self._redeliveries: int | None = None
        self._anews: int | None = None

    async def listen(self, models: Iterable[str]) -> None:
        """Learn of jobs of these models too; returns when the server knows. Raises :class:`Unavailable`: repeat it."""
        connection = self._bus.connection
        if self._redeliveries is None:
            self._redeliveries = connection.listen(names.redeliver(), self._redeliver)
            if self._on_anew is not None:
                self._anews = connection.listen(names.anew(), self._received_anew)
        if self._all is None:
            new = [model for model in models if model not in self._apart]
            if len(self._apart) + len(new) > MOST_APART:
                self._all = connection.listen(names.event_of_jobs(), self._receive)
            else:
                self._apart |= {model: connection.listen(names.event_of_jobs(model), self._receive) for model in new}
        await self._bus.flush()
        if self._all is not None:
            self.ignore(list(self._apart))

    def ignore(self, models: Iterable[str]) -> None:
        """Receive no more of jobs of these models, unless all are listened to."""
        for model in models:
            if (subscription := self._apart.pop(model, None)) is not None:
                self._bus.connection.unlisten(subscription)

    def close(self) -> None:
        """Receive nothing more. Idempotent."""
        self.ignore(list(self._apart))
        for subscription in (self._all, self._redeliveries, self._anews):
            if subscription is not None:
                self._bus.connection.unlisten(subscription)
        self._all = self._redeliveries = self._anews = None

    def _received(self, subject: bytes, _reply: bytes, head: bytes, _data: bytes) -> None:
        _, _, model, priority, _ = subject.split(b".", 4)
        _, _, tail = head.rpartition(_SEQUENCE)  # the server's own headers are the last
        digits = tail[:20].partition(b"\r\n")[0]
        seq = int(digits) if digits.isdigit() else 0
        self._on_hint(names.untoken(model.decode()), cast("Priority", priority.decode()), seq)

    def _redeliver(self, subject: bytes, _reply: bytes, _head: bytes, _data: bytes) -> None:
        self._on_redeliver(names.untoken(subject.rpartition(b".")[2].decode()))

    def _received_anew(self, subject: bytes, _reply: bytes, _head: bytes, data: bytes) -> None:
        _, model, priority = subject.split(b".")
        if self._on_anew is not None and data.isdigit():
            self._on_anew(names.untoken(model.decode()), cast("Priority", priority.decode()), int(data[:20]))
