"""Hears of jobs of models that this worker does not pull: the server republishes the headers of each accepted one.

For a model that nobody calls nothing else exists on the server.
"""

from collections.abc import Callable, Iterable
from functools import partial

from signalbox.bus.client import Bus, Message, Subscription
from signalbox.wire import names


class Hints:
    """What is listened to. on_hint: called with a model of which a job was accepted, quickly.

    on_look: called with a model whose queue is to be read anew, whether it is listened to or not.
    """

    def __init__(self, bus: Bus, on_hint: Callable[[str], None], on_look: Callable[[str], None]) -> None:
        self._bus = bus
        self._on_hint = on_hint
        self._on_look = on_look
        self._heard: dict[str, Subscription] = {}
        self._looks: Subscription | None = None

    async def listen(self, models: Iterable[str]) -> None:
        """Hear of jobs of these models too; returns when the server knows. Raises :class:`Unavailable`: repeat it."""
        if self._looks is None:
            self._looks = self._subscription(names.look(), self._look)
        for model in models:
            if model not in self._heard:
                self._heard[model] = self._subscription(names.event_of_jobs(model), partial(self._hint, model))
        await self._bus.flush()

    async def ignore(self, models: Iterable[str]) -> None:
        """Hear no more of jobs of these models."""
        for model in models:
            if (subscription := self._heard.pop(model, None)) is not None:
                await subscription.close()

    async def close(self) -> None:
        """Hear nothing more. Idempotent."""
        await self.ignore(list(self._heard))
        if self._looks is not None:
            await self._looks.close()
            self._looks = None

    def _subscription(self, subject: str, on_message: Callable[[Message], None]) -> Subscription:
        return Subscription(self._bus.connection, subject, on_message)

    def _hint(self, model: str, _: Message) -> None:
        self._on_hint(model)

    def _look(self, message: Message) -> None:
        self._on_look(names.untoken(message.subject.rpartition(".")[2]))
