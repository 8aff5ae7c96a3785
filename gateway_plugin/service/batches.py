"""Batches of files, for their owners: made, read, and asked to stop. The outbound program does them."""

import hashlib
import re
import secrets
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from gateway_plugin.service.files import Files
from signalbox.bus.client import Bus, Stored
from signalbox.program.errors import (
    InvalidRequest,
    KeyReused,
    LimitExceeded,
    NotFound,
    SignalboxError,
    StaleRevision,
    Unavailable,
)
from signalbox.wire import names, outboundnames
from signalbox.wire.events import is_removal
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import decode, encode
from signalbox.wire.names import MODEL_NAME, Bucket
from signalbox.wire.outbound import Batch

OPEN: Final = frozenset({"validating", "in_progress", "finalizing", "cancelling"})
"""States of batches that have not ended."""
MOST_OPEN: Final = 100
"""Batches of an account that have not ended."""
FILE_ID: Final = re.compile(r"file-[0-9a-f]{32}\Z")
BATCH_ID: Final = re.compile(r"batch_[0-9a-f]{32}\Z")
_ENDPOINT: Final = re.compile(r"/v1/models/(?P<model>[^/:]+)(?:/versions/(?P<version>[0-9]{1,18}))?:predict\Z")
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,5})([smhd])\Z")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RACES: Final = 20
_NO_BATCH: Final = "There is no such batch, or it is not yours."


class Endpoint(NamedTuple):
    """What a batch asks of each line. version: None = the one that requests without a version get."""

    model: str
    version: int | None


def endpoint_of(text: str) -> Endpoint:
    """The model and version of an ``endpoint``. Raises :class:`InvalidRequest`."""
    found = _ENDPOINT.match(text)
    if found is None or MODEL_NAME.match(found["model"]) is None:
        raise InvalidRequest(
            'The endpoint must be "/v1/models/<name>:predict" or "/v1/models/<name>/versions/<number>:predict".',
            field="endpoint",
        )
    return Endpoint(found["model"], int(found["version"]) if found["version"] else None)


def window_s(text: str, longest_s: float) -> int:
    """Seconds of a ``completion_window``. Raises :class:`InvalidRequest`."""
    found = _WINDOW.match(text)
    seconds = int(found[1]) * _UNITS[found[2]] if found is not None else 0
    if not 0 < seconds <= longest_s:
        raise InvalidRequest(
            f'"completion_window" must be a number and s, m, h or d, as "24h", and at most {longest_s / 3600:.0f}h: '
            "files are kept no longer.",
            field="completion_window",
        )
    return seconds


class Made(NamedTuple):
    """A batch. is_replayed: an earlier call with the same Idempotency-Key has made it."""

    batch: Batch
    is_replayed: bool = False


class Batches:
    """The batches of all accounts. kept_s: how long they, and files, are kept. wall: UTC clock, seconds."""

    def __init__(self, bus: Bus, files: Files, *, kept_s: float, wall: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._files = files
        self._kept_s = kept_s
        self._wall = wall

    async def make(
        self, key: ApiKey, endpoint: str, input_file: str, window: str, metadata: dict[str, str], *, once: str = ""
    ) -> Made:
        """A new batch. once: Idempotency-Key, under which an account makes one batch for as long as that is kept.

        Raises :class:`InvalidRequest`, :class:`NotFound`, :class:`LimitExceeded` and :class:`KeyReused`.
        """
        endpoint_of(endpoint)
        seconds = window_s(window, self._kept_s)
        now = self._wall()
        batch = Batch(
            id=f"batch_{_token(key.account_id, once)}",
            account_id=key.account_id,
            key_id=key.id,
            endpoint=endpoint,
            input_file=input_file,
            created_at=now,
            deadline_at=now + seconds,
            window=window,
            metadata=metadata,
        )
        if once and (before := await self._made_before(batch)) is not None:
            return before
        await self._require_input(key.account_id, input_file)
        try:
            await write(self._bus, batch, expect=0, kept_s=self._kept_s)
        except StaleRevision:
            before = await self._made_before(batch)
            if before is None:
                raise
            return before
        return Made(batch)

    async def _require_input(self, account: str, input_file: str) -> None:
        found = await self._files.find(account, input_file)
        if not found.is_whole:
            raise InvalidRequest("The input file is still being written.", field="input_file_id")
        if sum(one.state in OPEN for one in await self.list(account)) >= MOST_OPEN:
            raise LimitExceeded(
                f"Your account has {MOST_OPEN} batches that have not ended; wait for some, or cancel them.",
                retry_after_s=60.0,
                bound="batches",
                limit=MOST_OPEN,
            )

    async def _made_before(self, batch: Batch) -> Made | None:
        """What an earlier call has made under this id. Raises :class:`KeyReused` where it asked for another."""
        try:
            before = await self.find(batch.account_id, batch.id)
        except NotFound:
            return None
        if _asked(before) != _asked(batch):
            raise KeyReused("This Idempotency-Key was used for another batch; choose a new one.")
        return Made(before, is_replayed=True)

    async def find(self, account: str, batch_id: str) -> Batch:
        """A batch of an account. Raises :class:`NotFound`."""
        return (await self._read(account, batch_id))[0]

    async def list(self, account: str) -> list[Batch]:
        """The batches of an account, the youngest first."""
        keys = names.key(Bucket.BATCHES, f"{names.token(account) or '-'}.*")
        found: list[Batch] = []
        async for page in self._bus.list_pages(Bucket.BATCHES.stream, [keys]):
            found += [one for one in map(_batch, page) if one is not None]
        return sorted(found, key=lambda one: (one.created_at, one.id), reverse=True)

    async def cancel(self, account: str, batch_id: str) -> Batch:
        """Ask for a batch to be cancelled; as it is then. Nothing happens to one that has ended.

        Raises :class:`NotFound` and :class:`Unavailable`.
        """
        for _ in range(_RACES):
            batch, revision = await self._read(account, batch_id)
            if batch.state not in OPEN or batch.asked == "cancel":
                return batch
            wanted = replace(batch, asked="cancel", state="cancelling", asked_at=self._wall())
            try:
                await write(self._bus, wanted, expect=revision, kept_s=self._kept_s)
            except StaleRevision:
                continue
            return wanted
        raise Unavailable("The batch changes too quickly to be cancelled; try again.", retry_after_s=1.0)

    async def _read(self, account: str, batch_id: str) -> tuple[Batch, int]:
        subject = names.key(Bucket.BATCHES, outboundnames.batch_key(account, batch_id))
        stored = await self._bus.leader_get(Bucket.BATCHES.stream, subject)
        if stored is None or is_removal(stored.headers):
            raise NotFound(_NO_BATCH)
        return decode(Batch, stored.data), stored.seq


async def write(bus: Bus, batch: Batch, *, expect: int, kept_s: float) -> int:
    """Write a batch; it is kept as long as the files that it makes. Raises as :meth:`Bus.write`."""
    subject = names.key(Bucket.BATCHES, outboundnames.batch_key(batch.account_id, batch.id))
    return await bus.write(subject, encode(batch), expect=expect, ttl_s=int(kept_s))


def _token(account: str, once: str) -> str:
    """The part of a batch's id that is its own: the same for one Idempotency-Key, else a new one."""
    if not once:
        return secrets.token_hex(16)
    return hashlib.sha256(f"{names.token(account)} {once}".encode()).hexdigest()[:32]


def _asked(batch: Batch) -> tuple[object, ...]:
    return batch.endpoint, batch.input_file, batch.window, batch.metadata


def _batch(stored: Stored) -> Batch | None:
    if is_removal(stored.headers):
        return None
    try:
        return decode(Batch, stored.data)
    except (msgspec.MsgspecError, SignalboxError):  # a newer program's
        return None
