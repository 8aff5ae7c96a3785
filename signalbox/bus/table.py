"""Keeps a bucket in memory and current; writes keys of a bucket.

A table subscribes first and then reads the bucket as a whole, so no change is missed. Every change of a bucket is
republished, so stream sequences without a gap prove that nothing was missed, and the leader's last sequence proves it
of a table that received nothing. After a gap what came since is read, after a reconnect the bucket as a whole.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping, MutableMapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

import msgspec

from signalbox.bus.client import Bus, Message, Stored, Subscription
from signalbox.bus.majority import silent_s
from signalbox.bus.packed import Packed
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.program.tasks import Background
from signalbox.wire.assets import EXPIRING, MARKER_TTL_S
from signalbox.wire.events import is_removal
from signalbox.wire.messages import Doc, decode, encode
from signalbox.wire.names import Bucket, Header, event_of_key
from signalbox.wire.names import key as key_subject

T = TypeVar("T")
OnChange = Callable[[str, T | None, int], None]

_PROOF_S: Final = 3.0
"""How often a table asks for proof that the server still reaches it."""
_COMPARE_S: Final = 60.0
"""How often a table asks the stream's leader for the last sequence in any case, against unforeseen errors."""
_AFTER_LIMIT: Final = 1000
"""Changes that are read at once."""
_RETRY_S: Final = 0.25


class Table(Generic[T]):
    """The documents of one bucket by key. ``await start()`` once; then every read is of memory.

    Keys are as in the bucket (already tokens). Callbacks of :meth:`on_change` run in order, at once, and must be quick.
    A document that cannot be read counts as absent.

    asks_leader: that the table is current is proven by the stream's leader each time. Otherwise a round trip to our
    server is proof enough in between, which knows nothing of a server cut off from the others, or of a subscription
    that died. is_packed: documents are kept encoded, for buckets of very many (:mod:`signalbox.bus.packed`).
    """

    def __init__(
        self,
        bus: Bus,
        bucket: Bucket,
        type_: type[T],
        *,
        asks_leader: bool = False,
        is_packed: bool = False,
    ) -> None:
        self._asks_leader = asks_leader
        self._bus = bus
        self._bucket = bucket
        self._type = type_
        self._items: MutableMapping[str, T] = Packed(type_) if is_packed else {}
        self.get: Callable[[str], T | None] = self._items.get
        """The document under a key, or None."""
        self._revisions: dict[str, int] = {}
        self._removed: set[str] = set()
        self._callbacks: list[OnChange[T]] = []
        self._event_prefix = len(event_of_key(bucket, ""))
        self._key_prefix = len(key_subject(bucket, ""))
        self._last_seq: int | None = None
        self._known_to: int | None = None
        """Nothing is missing up to this sequence, and what came after is to be read; None: the whole bucket is."""
        self._behind_since: float | None = None
        self._proven_at = float("-inf")
        self._stale = asyncio.Event()
        self._subscription: Subscription | None = None
        self._keeping = Background()
        self._loop = asyncio.get_running_loop()
        self._compare_at = self._loop.time() + _COMPARE_S

    async def start(self) -> None:
        """Read the bucket and follow it from then on. Raises :class:`Unavailable`."""
        self._bus.on_reconnect(self._doubt)
        try:
            self._subscription = await self._bus.subscribe(event_of_key(self._bucket), self._receive)
            await self._read()
        except BaseException:
            await self.close()
            raise
        self._keeping.start(self._keep(), name=f"table {self._bucket}")

    def items(self) -> Mapping[str, T]:
        """All documents by key: a live, read-only view."""
        return MappingProxyType(self._items)

    def revision(self, key: str) -> int:
        """Stream sequence of the key's last change known here, also of its removal; 0 = none."""
        return self._revisions.get(key, 0)

    def is_removed(self, key: str) -> bool:
        """Whether a writer has removed the key. One that the bucket has lost is not."""
        return key in self._removed

    def on_change(self, callback: OnChange[T]) -> None:
        """Call ``callback(key, document or None, revision)`` after each change, also while starting."""
        self._callbacks.append(callback)

    @property
    def synced_age_s(self) -> float:
        """Seconds since the last proof that this table is current; decisions may be refused above a limit."""
        return self._loop.time() - self._proven_at

    async def close(self) -> None:
        """Stop following. Idempotent; what was read stays readable."""
        self._bus.forget_reconnect(self._doubt)
        await self._keeping.cancel()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.close()

    def _receive(self, message: Message) -> None:
        headers = message.headers
        seq = int(headers[Header.SEQUENCE])
        if self._last_seq is not None and seq > self._last_seq + 1:
            self._missed()
        self._last_seq = max(self._last_seq or 0, seq)
        key = message.subject[self._event_prefix :]
        self._take(key, None if is_removal(headers) else message.data, seq)

    def _take(self, key: str, data: bytes | None, seq: int) -> None:
        """Apply one change, unless a newer one is known."""
        if seq <= self._revisions.get(key, 0):
            return
        self._revisions[key] = seq
        document: T | None = None
        if data is None:
            self._removed.add(key)
        else:
            self._removed.discard(key)
            try:
                document = decode(self._type, data)
                self._items[key] = document
            except msgspec.MsgspecError as error:
                log.error("table.unreadable", bucket=self._bucket.value, key=key, reason=str(error))
                document = None
        if document is None and self._items.pop(key, None) is None:
            return
        for callback in self._callbacks:
            callback(key, document, seq)

    def _doubt(self) -> None:
        """Have the whole bucket read: after a reconnect, or a read that failed."""
        self._known_to = None
        self._stale.set()

    def _missed(self) -> None:
        """Have what came after the last sequence known here read, unless more than that is to be read already."""
        if not self._stale.is_set():
            # Where keys expire, the marker of a removal may be gone by now: only the whole bucket tells of it.
            self._known_to = self._last_seq if self._bucket not in EXPIRING else None
            self._stale.set()

    async def _read(self) -> None:
        """Read what is missing."""
        self._stale.clear()
        known_to, self._known_to = self._known_to, None
        if known_to is None:
            await self._read_all()
        else:
            await self._read_after(known_to)

    async def _read_after(self, known_to: int) -> None:
        """Read what came after a sequence. The replica asked may be behind: the leader proves that it was all."""
        received = self._last_seq or 0
        while True:
            found = await self._list_after(known_to)
            for stored in found:
                self._apply(stored)
                known_to = stored.seq
            if len(found) < _AFTER_LIMIT:
                break
        if known_to < received:
            await self._read_behind(known_to)
            return
        self._last_seq = max(self._last_seq or 0, known_to)
        await self._compare()

    async def _list_after(self, seq: int) -> list[Stored]:
        """The next changes after ``seq``, in order: a bucket keeps the last one of each key, removals too."""
        asked = {"seq": seq + 1, "next_by_subj": key_subject(self._bucket, ">"), "batch": _AFTER_LIMIT}
        return await self._bus.direct_batch(self._bucket.stream, asked)

    async def _read_all(self) -> None:
        """Read the whole bucket and drop what is no longer there."""
        asked_at = self._loop.time()
        known, newest = self._last_seq or 0, 0
        unseen = {key: self._revisions.get(key) for key in self._items}
        async for page in self._bus.list_pages(self._bucket.stream, [key_subject(self._bucket, ">")]):
            for stored in page:
                unseen.pop(self._apply(stored), None)
                newest = max(newest, stored.seq)
        if self._is_behind(newest, known):
            await self._read_behind(None)
            return
        for key, revision in unseen.items():
            if key in self._items and self._revisions.get(key) == revision:
                self._take(key, None, (revision or 0) + 1)
                self._removed.discard(key)
        self._last_seq = max(self._last_seq or 0, newest)
        if self._asks_leader:
            await self._compare()
        else:
            self._proven_at = asked_at

    def _is_behind(self, newest: int, known: int) -> bool:
        """Whether a read came from a replica that lacks messages we know: it then does not prove any key removed.

        The newest message of a bucket is always in a read, but where keys expire their markers do too. Sequences that
        stay lower are those of a stream that was restored to an earlier day. A table that knows no key has none to
        remove, and the sequence that it knows may be that of an empty stream.
        """
        if newest >= known or not self._items or self._bucket in EXPIRING:
            self._behind_since = None
            return False
        now = self._loop.time()
        self._behind_since = self._behind_since or now
        return now - self._behind_since < _COMPARE_S

    async def _read_behind(self, known_to: int | None) -> None:
        """Repeat a read from a replica that is behind: it proves nothing."""
        proven_at = self._proven_at
        if self._known_to is not None or not self._stale.is_set():  # else the whole bucket is to be read meanwhile
            self._known_to = known_to
            self._stale.set()
        await self._compare()  # the leader knows whether the sequences were put back
        self._proven_at = proven_at

    async def _prove(self) -> None:
        """Ask for proof that nothing was missed; without it what is missing is to be read."""
        asked_at = self._loop.time()
        if self._asks_leader or asked_at >= self._compare_at:
            await self._compare()
            return
        await self._bus.flush()
        # The answer came after every event sent before it, on the same connection.
        self._proven_at = asked_at

    async def _compare(self) -> None:
        """Compare with the last sequence that the stream's leader knows: one request, whatever the bucket holds."""
        asked_at = self._loop.time()
        self._compare_at = asked_at + _COMPARE_S * random.uniform(0.9, 1.1)  # noqa: S311  jitter
        known = self._last_seq or 0
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{self._bucket.stream}")
        state = info["state"]
        if not (state["messages"] or self._items):  # an empty stream's last number belongs to no message
            self._last_seq = known = state["last_seq"]
        if state["last_seq"] < known:
            # The stream was lost, or restored to an earlier day: its present messages have lower sequences.
            log.warning("table.rolled_back", bucket=self._bucket.value, seq=state["last_seq"])
            self._revisions.clear()
            self._removed.clear()
            self._last_seq = self._known_to = None
            self._stale.set()
        elif state["last_seq"] > (self._last_seq or 0):
            self._missed()
        else:
            # A leader that was cut off still answers: its answer is as old as its last contact with the others.
            self._proven_at = max(self._proven_at, asked_at - silent_s(info))

    def _apply(self, stored: Stored) -> str:
        key = stored.subject[self._key_prefix :]
        self._take(key, None if is_removal(stored.headers) else stored.data, stored.seq)
        return key

    async def _keep(self) -> None:
        """Read what is missing as soon as that is known; in between one request proves the table current."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PROOF_S):
                    await self._stale.wait()
            try:
                if self._stale.is_set():
                    await self._read()
                    if self._stale.is_set():  # read from a replica that is behind
                        await asyncio.sleep(_RETRY_S)
                else:
                    await self._prove()
            except SignalboxError as error:
                log.warning("table.not_synced", bucket=self._bucket.value, reason=error.public_message)
                self._doubt()
                await asyncio.sleep(_RETRY_S)


async def put(
    bus: Bus, bucket: Bucket, key: str, doc: Doc, *, expect: int | None = None, ttl_s: int | None = None
) -> int:
    """Write a document; returns its revision. Raises as :meth:`Bus.write`.

    ttl_s: it expires then. A write without it **removes** an earlier one's expiry.
    """
    return await bus.write(key_subject(bucket, key), encode(doc), expect=expect, ttl_s=ttl_s)


async def remove(bus: Bus, bucket: Bucket, key: str, *, expect: int | None = None) -> int:
    """Remove a key; returns the revision of its marker. Idempotent without ``expect``. Raises as :meth:`Bus.write`.

    Where keys expire the marker does too; elsewhere it stays, so that an unclean shutdown of the server cannot
    bring a removed key back to life.
    """
    return await bus.write(
        key_subject(bucket, key),
        headers={Header.KV_OPERATION: "PURGE", Header.ROLLUP: "sub"},
        expect=expect,
        ttl_s=MARKER_TTL_S if bucket in EXPIRING else None,
    )
