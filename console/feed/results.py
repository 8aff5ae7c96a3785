"""Follows what is to go out: which webhooks were given up, and whether the outbound program has anything to do."""

from typing import Any

from console.board import hooks
from console.board.view import LiveView
from console.feed.retry import until_done
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import Batch, HookState, Subscription, Webhook


class Results:
    """Shows alarms of webhooks as they change."""

    def __init__(self, view: LiveView) -> None:
        self._view = view
        self._tables: list[Table[Any]] = []
        self._open: set[str] = set()

    async def start(self, bus: Bus) -> None:
        """Reads each table until NATS has answered, and follows it."""
        subscriptions = Table(bus, Bucket.SUBSCRIPTIONS, Subscription)
        webhooks = Table(bus, Bucket.WEBHOOKS, Webhook)
        states = Table(bus, Bucket.HOOK_STATES, HookState)
        batches = Table(bus, Bucket.BATCHES, Batch, is_packed=True)

        def show(*_: object) -> None:
            self._view.stand("webhooks", hooks.alarms(webhooks.items(), states.items()))

        def note(kind: str, key: str, is_open: bool) -> None:
            (self._open.add if is_open else self._open.discard)(f"{kind} {key}")

        subscriptions.on_change(lambda key, one, _: note("subscription", key, one is not None and one.is_enabled))
        webhooks.on_change(lambda key, one, _: note("webhook", key, one is not None and one.is_enabled))
        batches.on_change(lambda key, one, _: note("batch", key, one is not None and not one.ended_at))
        webhooks.on_change(show)
        states.on_change(show)
        self._tables = [subscriptions, webhooks, states, batches]
        for table in self._tables:
            await until_done(table.start)

    def has_work(self) -> bool:
        """Whether anybody is to be told of ends, or a batch has not ended."""
        return bool(self._open)

    async def close(self) -> None:
        """Follows no longer."""
        for table in self._tables:
            await table.close()
