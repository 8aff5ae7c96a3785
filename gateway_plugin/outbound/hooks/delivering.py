"""The deliveries of one webhook: pulled as there are places, each tried once and then acknowledged or put off."""

import asyncio
import contextlib
from typing import Final

import msgspec

from gateway_plugin.outbound.hooks.attempting import Attempts, Ended, ids
from gateway_plugin.outbound.hooks.consumers import Consumers
from gateway_plugin.outbound.hooks.places import Share
from gateway_plugin.outbound.hooks.schedule import Decision, Outcome
from signalbox.bus.acknowledgement import ack, nak
from signalbox.bus.client import Bus, Delivery, Puller
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.program.tasks import Background
from signalbox.wire.messages import decode
from signalbox.wire.names import Stream
from signalbox.wire.outbound import Delivery as Attempt
from signalbox.wire.outbound import Webhook

_PARKED_S: Final = 30.0
"""How long a request waits at the server for the next end."""
_AGAIN_S: Final = 5.0
"""An attempt that was none, because NATS did not answer, is made so much later."""
_UNREADABLE_S: Final = 3600.0
"""An end that a newer program wrote waits for a newer program here."""


class HookDeliveries:
    """One webhook's. hook: its document, replaced when the console changes it."""

    def __init__(
        self, bus: Bus, key: str, hook: Webhook, consumers: Consumers, attempts: Attempts, share: Share
    ) -> None:
        self.hook = hook
        self._bus = bus
        self._key = key
        self._consumers = consumers
        self._attempts = attempts
        self._share = share
        self._sending = Background()
        self._finishing = Background()
        self._running = 0
        self._is_closing = False
        self._wake = asyncio.Event()

    @property
    def running(self) -> int:
        """Attempts under way."""
        return self._running

    async def run(self) -> None:
        """Deliver until cancelled; what is under way then is tried again at once. Raises what NATS says."""
        name = await self._consumers.ensure(self._key, self.hook)
        puller = await self._bus.pull(name, self._take, stream=Stream.RESULTS)
        puller.on_idle = self._wake.set
        try:
            while True:
                self._share.keep(self._running + puller.outstanding)
                if puller.last_refusal:  # the consumer may be gone
                    await self._consumers.ensure(self._key, self.hook)
                self._ask(puller)
                await self._wake.wait()
                self._wake.clear()
        finally:
            self._is_closing = True
            with contextlib.suppress(SignalboxError):
                await puller.drain()
            await puller.close()
            await self._sending.cancel()
            await self._finishing.finish()
            self._share.keep(0)

    def _ask(self, puller: Puller) -> None:
        """Have one request wait at the server, while there is a place for what it brings."""
        if not puller.outstanding and self._share.take():
            puller.ask(1, expires_s=_PARKED_S)

    def _take(self, delivery: Delivery) -> None:
        if self._is_closing:
            nak(self._bus, delivery)
            return
        self._running += 1
        self._sending.start(self._deliver(delivery), name=f"webhook {self._key}")
        self._wake.set()

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            made = await self._attempt(delivery)
        except asyncio.CancelledError:
            nak(self._bus, delivery)
            self._leave()
            raise
        except SignalboxError as error:
            log.warning("webhook.put_off", hook=self._key, **_ids(delivery), reason=error.public_message)
            nak(self._bus, delivery, _AGAIN_S)
        except msgspec.MsgspecError as error:
            log.error("webhook.end_unreadable", hook=self._key, **_ids(delivery), reason=str(error))
            nak(self._bus, delivery, _UNREADABLE_S)
        else:
            # Not cancelled with what is under way: what the receiver has answered is to be kept.
            self._finishing.start(self._finish(delivery, made), name=f"webhook {self._key} answered")
            return
        self._leave()

    async def _attempt(self, delivery: Delivery) -> tuple[Attempt, Decision] | None:
        """What came of one attempt; None where the end is not for this webhook."""
        if self.hook.is_for_jobs and not decode(Ended, delivery.data).webhook:
            return None
        number = self._attempts.number(delivery.times, delivery.time)
        return await self._attempts.make(self._key, self.hook, delivery.data, number)

    async def _finish(self, delivery: Delivery, made: tuple[Attempt, Decision] | None) -> None:
        try:
            if made is not None and made[1].outcome is Outcome.FAILED:
                nak(self._bus, delivery, made[1].delay_s)
            else:
                with contextlib.suppress(SignalboxError):  # then it comes once more, under the same id
                    await ack(self._bus, delivery)
            if made is not None:
                await self._attempts.note(made[0], delivery.data)
        finally:
            self._leave()
            self._attempts.ended(self._key)

    def _leave(self) -> None:
        self._running -= 1
        self._wake.set()


def _ids(delivery: Delivery) -> dict[str, str]:
    return ids(delivery.subject.rpartition(".")[2], delivery.data)
