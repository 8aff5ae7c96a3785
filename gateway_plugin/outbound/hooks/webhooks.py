"""The task that delivers webhooks: follows their documents, and has the deliveries of each enabled one made."""

import asyncio
import contextlib
import time
from typing import Final

import msgspec

from gateway_plugin.outbound.hooks.attempting import BY_HAND, Attempts
from gateway_plugin.outbound.hooks.consumers import Consumers
from gateway_plugin.outbound.hooks.delivering import HookDeliveries
from gateway_plugin.outbound.hooks.places import Places, Share
from gateway_plugin.outbound.hooks.resolver import Resolver
from gateway_plugin.outbound.hooks.sending import Sender
from gateway_plugin.outbound.hooks.states import States
from gateway_plugin.outbound.settings import OutboundSettings
from signalbox.bus.client import Bus, Message
from signalbox.bus.table import Table
from signalbox.program import log
from signalbox.program.egress import Lookup
from signalbox.program.errors import NotFound, SignalboxError
from signalbox.program.tasks import Background, TaskGroup
from signalbox.wire import jobids, outboundnames
from signalbox.wire.messages import encode
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.outbound import Delivery, Webhook

_PAUSE_S: Final = 1.0
"""Before the deliveries of a webhook that failed begin anew."""


class Webhooks:
    """Everything one holder of the task has; :meth:`run` once. lookup: of names, the system's if not given."""

    def __init__(self, bus: Bus, settings: OutboundSettings, lookup: Lookup | None = None) -> None:
        self._bus = bus
        self._settings = settings
        self._changed = asyncio.Event()
        self._hooks: Table[Webhook] = Table(bus, Bucket.WEBHOOKS, Webhook)
        self._consumers = Consumers(bus, settings)
        self._states = States(bus, settings.hook_fails_s, self._waiting, self._changed.set)
        self._resolver = Resolver()
        self._attempts = Attempts(bus, settings, Sender(settings, lookup or self._resolver), self._states)
        self._places = Places(settings.hooks_at_once)
        self._running: dict[str, tuple[HookDeliveries, Background]] = {}
        self._by_hand = Background()

    async def run(self) -> None:
        """Until cancelled. Raises :class:`Unavailable` where NATS does not answer at the start."""
        self._hooks.on_change(lambda *_: self._changed.set())
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._resolver.close)
            stack.push_async_callback(self._hooks.close)
            await self._hooks.start()
            stack.callback(self._states.close)
            await self._states.load()
            had_consumers = set(await self._consumers.keys())
            stack.push_async_callback(self._states.write_changed)
            stack.push_async_callback(self._stop_all)
            asked = await self._bus.subscribe(outboundnames.ask_delivery(), self._asked)
            stack.push_async_callback(self._by_hand.cancel)
            stack.push_async_callback(asked.close)
            async with TaskGroup() as group:
                group.create_task(self._states.write(), name="webhooks' states")
                group.create_task(self._follow(had_consumers), name="webhooks' documents")

    async def _follow(self, had_consumers: set[str]) -> None:
        """Start and stop deliveries as documents and states say. What NATS did not answer is asked again."""
        while True:
            self._changed.clear()
            for key, hook in dict(self._hooks.items()).items():
                if self._states.is_on(key, hook):
                    await self._start(key, hook)
                elif key in self._running:
                    await self._stop(key)
            had_consumers |= self._running.keys()
            try:
                had_consumers -= await self._remove_gone(had_consumers | self._states.keys())
            except SignalboxError as error:
                log.warning("webhook.not_removed", reason=error.public_message)
                await asyncio.sleep(_PAUSE_S)
            else:
                await self._changed.wait()

    async def _start(self, key: str, hook: Webhook) -> None:
        known = self._running.get(key)
        if known is not None:
            before = known[0].hook
            if (before.account_id, before.model) == (hook.account_id, hook.model):
                known[0].hook = hook
                return
            await self._stop(key)
        share = Share(self._places, self._settings.hook_at_once)
        deliveries = HookDeliveries(self._bus, key, hook, self._consumers, self._attempts, share)
        running = Background()
        running.start(_kept(key, deliveries), name=f"webhook {key}")
        self._running[key] = deliveries, running

    async def _stop(self, key: str) -> None:
        _, running = self._running.pop(key)
        await running.cancel()

    async def _stop_all(self) -> None:
        for key in list(self._running):
            await self._stop(key)

    async def _remove_gone(self, keys: set[str]) -> set[str]:
        """End what belongs to webhooks that the console removed, not to documents that cannot be read here.

        Returns those of which nothing is left. Raises :class:`Unavailable`.
        """
        gone = set()
        for key in keys:
            if self._hooks.get(key) is not None:
                continue
            if key in self._running:
                await self._stop(key)
            if self._hooks.is_removed(key):
                await self._consumers.remove(key)
                await self._states.forget(key)
                gone.add(key)
        return gone

    async def _waiting(self, key: str) -> int:
        known = self._running.get(key)
        return max(0, await self._consumers.unacked(key) - (known[0].running if known is not None else 0))

    # ------------------------------------------------------------------------------ by hand

    def _asked(self, message: Message) -> None:
        self._by_hand.start(self._redeliver(message), name="webhook by hand")

    async def _redeliver(self, message: Message) -> None:
        """Deliver the end that a person asks for, once. Log and answer say what came of it, or why nothing did."""
        key, job_id = message.subject.rpartition(".")[2], message.data.decode("ascii", "replace")
        try:
            made = await self._delivered(key, job_id)
        except SignalboxError as error:
            why = error.public_message
            made = Delivery(hook=key, job_id=job_id, attempt=BY_HAND, at=time.time(), error=why, by_hand=True)
        if jobids.JOB_ID.match(job_id) and self._hooks.get(key) is not None:
            await self._attempts.note(made, b"")
        if message.reply:
            await self._bus.publish(message.reply, encode(made))

    async def _delivered(self, key: str, job_id: str) -> Delivery:
        hook = self._hooks.get(key)
        if hook is None:
            raise NotFound("There is no such webhook.")
        subject = f"{outboundnames.results(hook.account_id, hook.model).removesuffix('*')}{job_id}"
        found = await self._bus.list_latest(Stream.RESULTS, [subject]) if jobids.JOB_ID.match(job_id) else []
        if not found:
            raise NotFound("The end of this job is not kept any more, is not one of this webhook's, or went to nobody.")
        try:
            made, _ = await self._attempts.make(key, hook, found[0].data, BY_HAND)
        except msgspec.MsgspecError as error:
            raise NotFound("The end of this job cannot be read here.") from error
        return made


async def _kept(key: str, deliveries: HookDeliveries) -> None:
    """Until cancelled: deliver, and begin anew a moment after NATS refused."""
    while True:
        try:
            await deliveries.run()
        except SignalboxError as error:
            log.warning("webhook.deliveries_failed", hook=key, reason=error.public_message)
        await asyncio.sleep(_PAUSE_S)
