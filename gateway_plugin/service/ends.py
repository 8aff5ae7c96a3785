"""Those who follow all ends of an account, as ``RESULTS`` has them.

What comes is always read from the stream, from where the follower is; an event of the server's only says that there is
something to read. So nothing is missed and nothing comes twice, also where an event was lost or came before the replica
that answers had the message.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

from gateway_plugin.admission.keyring import READ, Keyring, require_scope
from gateway_plugin.admission.pool import Pool
from gateway_plugin.service import following
from signalbox.bus.client import Bus, Message, Stored, Subscription
from signalbox.bus.table import Table
from signalbox.program.errors import Conflict, Unavailable
from signalbox.wire import outbound, outboundnames
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.names import Header, Stream

_AT_ONCE: Final = 64
"""Most ends that are read at once."""
_AT_ONCE_BYTES: Final = 1024 * 1024
_BEHIND_S: Final = 0.1
"""Until a replica that lacked what was heard of is asked again."""
_UNCOVERED: Final = (
    "Nobody has subscribed to the ends of your account's jobs, so none are kept to be followed. Have an operator make "
    "a subscription for your account in the console (Subscriptions), or a webhook; what ends from then on is here."
)


class _Follower:
    """One stream. changed: there may be something to read. heard: sequence of the last end that an event told of."""

    __slots__ = ("changed", "heard")

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.heard = 0


class _Listening:
    """The one subscription of an account, and who follows by it."""

    def __init__(self) -> None:
        self.followers: set[_Follower] = set()
        self.subscription: Subscription | None = None
        self.lock = asyncio.Lock()

    def hear(self, message: Message) -> None:
        """Tell all of an end."""
        seq = int(message.headers[Header.SEQUENCE])
        for one in self.followers:
            one.heard = max(one.heard, seq)
            one.changed.set()


class Ends:
    """Streams of accounts' ends. places: what streams are taken from, shared with those of single jobs."""

    def __init__(
        self,
        bus: Bus,
        keyring: Keyring,
        subscriptions: Table[outbound.Subscription],
        webhooks: Table[outbound.Webhook],
        places: Pool,
    ) -> None:
        self._bus = bus
        self._keyring = keyring
        self._subscriptions = subscriptions
        self._webhooks = webhooks
        self._places = places
        self._accounts: dict[str, _Listening] = {}
        self.is_over = False

    def start(self) -> None:
        """Follow the connection."""
        self._bus.on_reconnect(self._wake)

    def close(self) -> None:
        """End every stream. Idempotent."""
        self.end()
        self._bus.forget_reconnect(self._wake)

    def end(self) -> None:
        """End every stream, and each that is begun from now on: this process is being replaced."""
        self.is_over = True
        self._wake()

    def is_covered(self, account: str) -> bool:
        """Whether any ends of an account are kept. A webhook that only jobs name covers no others."""
        hooks = (hook for hook in self._webhooks.items().values() if not hook.is_for_jobs)
        return any(
            one.is_enabled and one.account_id in {"", account}
            for source in (self._subscriptions.items().values(), hooks)
            for one in source
        )

    @asynccontextmanager
    async def follow(
        self, key: ApiKey, after: int | None
    ) -> AsyncIterator[tuple[int, AsyncGenerator[list[Stored], None]]]:
        """The sequence after which it begins, and the ends of the key's account from there on, in a place of that.

        after: sequence that was seen last; None = what comes from now on. Nothing is yielded for a heartbeat. Raises
        :class:`Forbidden`, :class:`Conflict` where nothing is kept, as :meth:`Pool.take`, and :class:`Unavailable`;
        what comes raises :class:`Unauthorized` or :class:`Forbidden` once the key has ended or lost its right.
        """
        require_scope(key, READ)
        account = key.account_id
        if not self.is_covered(account):
            raise Conflict(_UNCOVERED)
        self._places.take(account)
        try:
            async with self._listening(account) as one:
                info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.RESULTS}")
                last = int(info["state"]["last_seq"])
                if after is None:
                    after = last
                elif after > last:  # of a stream that was lost: all that is in this one is new
                    after = 0
                async with aclosing(self._ends(key, one, after)) as ends:
                    yield after, ends
        finally:
            self._places.release(account)

    @asynccontextmanager
    async def _listening(self, account: str) -> AsyncIterator[_Follower]:
        """A follower who hears of an account's ends: one subscription for all of an account."""
        at = self._accounts.setdefault(account, _Listening())
        one = _Follower()
        at.followers.add(one)
        try:
            async with at.lock:
                if at.subscription is None:
                    at.subscription = await self._bus.subscribe(outboundnames.event_of_results(account or "-"), at.hear)
            yield one
        finally:
            at.followers.discard(one)
            if not at.followers and self._accounts.get(account) is at:
                del self._accounts[account]
                if at.subscription is not None:
                    await at.subscription.close()

    async def _ends(self, key: ApiKey, one: _Follower, after: int) -> AsyncGenerator[list[Stored], None]:
        """The ends after a sequence, some at a time; an empty list for each silence."""
        look_at = time.monotonic() + following.HEARTBEAT_S
        while not self.is_over:
            one.changed.clear()
            found = await self._read(key.account_id, after)
            if found:
                after = found[-1].seq
                yield found
            now = time.monotonic()
            if now >= look_at:
                require_scope(self._keyring.require_unended(key), READ)
                look_at = now + following.HEARTBEAT_S
                if not found:
                    yield []
            if found:
                continue
            longest_s = look_at - now
            with suppress(TimeoutError):
                async with asyncio.timeout(min(longest_s, _BEHIND_S) if one.heard > after else longest_s):
                    await one.changed.wait()

    async def _read(self, account: str, after: int) -> list[Stored]:
        """The next ends; none while NATS does not answer: then they are read with the next heartbeat."""
        asked = {
            "seq": after + 1,
            "next_by_subj": outboundnames.results(account or "-"),
            "batch": _AT_ONCE,
            "max_bytes": _AT_ONCE_BYTES,
        }
        try:
            return await self._bus.direct_batch(Stream.RESULTS, asked)
        except Unavailable:
            return []

    def _wake(self) -> None:
        """Have all read: after a reconnect, or at the end."""
        for at in self._accounts.values():
            for one in at.followers:
                one.changed.set()
