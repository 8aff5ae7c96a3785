"""How the deliveries of each webhook go: kept in memory, written to ``hookstates`` at most once a second each."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway_plugin.outbound.hooks.schedule import Outcome
from gateway_plugin.outbound.hooks.sending import Answer
from signalbox.bus.client import Bus
from signalbox.bus.table import put, remove
from signalbox.program import log, metrics
from signalbox.program.errors import SignalboxError
from signalbox.program.words import counted
from signalbox.wire import names
from signalbox.wire.events import is_removal
from signalbox.wire.messages import decode
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import HookState, Webhook

_WRITE_S: Final = 1.0
_DAY_S: Final = 86_400
WAITING: Final = metrics.gauge("webhook_waiting", "Deliveries of webhooks that failed and are to be tried again.")


class States:
    """The states of all webhooks, by their keys.

    fails_s: a webhook all of whose deliveries failed for so long is disabled. waiting: counts the deliveries of one
    that are to be tried again. on_disabled: called when one was.
    """

    def __init__(
        self, bus: Bus, fails_s: float, waiting: Callable[[str], Awaitable[int]], on_disabled: Callable[[], None]
    ) -> None:
        self._bus = bus
        self._fails_s = fails_s
        self._waiting = waiting
        self._on_disabled = on_disabled
        self._states: dict[str, HookState] = {}
        self._written: dict[str, HookState] = {}
        self._changed: set[str] = set()
        self._wake = asyncio.Event()

    async def load(self) -> None:
        """Read what an earlier holder of this task has written. Raises :class:`Unavailable`."""
        prefix = names.key(Bucket.HOOK_STATES, "")
        for stored in await self._bus.list_latest(Bucket.HOOK_STATES.stream, [f"{prefix}>"]):
            if is_removal(stored.headers):
                continue
            key = stored.subject.removeprefix(prefix)
            try:
                self._states[key] = self._written[key] = decode(HookState, stored.data)
            except msgspec.MsgspecError as error:
                log.error("webhook.state_unreadable", hook=key, reason=str(error))
        self._show()

    def keys(self) -> set[str]:
        """Webhooks that have a state."""
        return set(self._states)

    def of(self, key: str) -> HookState:
        """The state of one; of a new one all is well."""
        return self._states.get(key) or HookState()

    def is_on(self, key: str, hook: Webhook) -> bool:
        """Whether a webhook is to be told of ends. One enabled after it failed or was disabled here begins anew."""
        state = self.of(key)
        if not hook.is_enabled:
            return False
        troubled_at = state.disabled_at or state.failing_since
        if troubled_at and hook.enabled_at >= troubled_at:
            self._set(key, replace(state, disabled_at=0.0, why="", failing_since=0.0))
            return True
        return not state.disabled_at

    def attempted(self, key: str, answer: Answer, outcome: Outcome, at: float) -> None:
        """Take in what came of an attempt at ``at`` (UTC seconds)."""
        state = replace(self.of(key), last_at=at, last_status=answer.status, last_error=answer.error)
        if outcome is Outcome.DELIVERED:
            self._set(key, replace(state, failing_since=0.0))
            return
        since = state.failing_since or at
        why = ""
        if outcome is Outcome.GONE:
            why = "The receiver answered 410 Gone: it wants no more."
        elif at - since >= self._fails_s:
            why = f"All its deliveries have failed for {counted(round(self._fails_s / _DAY_S, 1), 'day')}."
        if why and not state.disabled_at:
            log.warning("webhook.disabled", hook=key, reason=why)
            state = replace(state, disabled_at=at, why=why)
            self._on_disabled()
        self._set(key, replace(state, failing_since=since))

    def recount(self, key: str) -> None:
        """Have those counted again that are to be tried again: while an attempt is under way, its own is not."""
        self._changed.add(key)
        self._wake.set()

    async def forget(self, key: str) -> None:
        """Remove the state of a webhook that is gone. Idempotent. Raises :class:`Unavailable`."""
        self._changed.discard(key)
        if key in self._states:
            await remove(self._bus, Bucket.HOOK_STATES, key)
            self._states.pop(key, None)
            self._written.pop(key, None)
            self._show()

    async def write(self) -> None:
        """Until cancelled: write what has changed."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.write_changed()
            await asyncio.sleep(_WRITE_S)

    async def write_changed(self) -> None:
        """Write what has changed now; what NATS does not take stays changed."""
        for key in list(self._changed):
            try:
                waiting = await self._waiting(key)
                if key not in self._changed:  # forgotten meanwhile
                    continue
                self._changed.discard(key)
                state = self._states[key] = replace(self.of(key), waiting=waiting)
                if state != self._written.get(key):
                    await put(self._bus, Bucket.HOOK_STATES, key, state)
                    self._written[key] = state
            except SignalboxError as error:
                log.warning("webhook.state_not_written", hook=key, reason=error.public_message)
                self._changed.add(key)
                self._wake.set()
        self._show()

    def close(self) -> None:
        """Tell of nothing any more: another copy of the program may go on. Idempotent."""
        self._states.clear()
        self._show()

    def _show(self) -> None:
        WAITING.set(sum(state.waiting for state in self._states.values()))

    def _set(self, key: str, state: HookState) -> None:
        self._states[key] = state
        self.recount(key)
