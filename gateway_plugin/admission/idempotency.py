"""Submitting once: the same account, ``Idempotency-Key`` and body give the same job for 24 hours.

A record in KV ``idem`` names the job before the job is published, both by compare-and-set from nothing. A gateway
that finds the record without its job may publish that job, and no other: so a crash between the two writes converges,
and no duplicate window of JetStream's is relied on (those end after minutes, and with the message's removal).
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from gateway_plugin.admission.holdings import Holdings
from gateway_plugin.admission.ownedjobs import OwnedJobs
from gateway_plugin.admission.refusals import REFUSED
from signalbox.bus.client import Bus
from signalbox.jobs.records import Found
from signalbox.program import log, metrics
from signalbox.program.errors import (
    Ambiguous,
    Conflict,
    InvalidRequest,
    KeyReused,
    LimitExceeded,
    NotFound,
    QueueFull,
    SignalboxError,
    StaleRevision,
    Unavailable,
)
from signalbox.wire import jobids, names
from signalbox.wire.jobids import JobIds
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import Idem, decode, encode
from signalbox.wire.names import PRIORITIES, Bucket, Priority

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replayed"
_MOST_CHARS: Final = 255
_MOST_SEEN: Final = 10_000
_RETRY_AFTER_S: Final = 1.0
_TRIES: Final = 4
_FINDS: Final = 32
"""Of many jobs so many are looked up at once."""
MOST_KEYS: Final = 50_000
KEPT_S: Final = 600.0
_COUNT_STALE_S: Final = 600.0
_FULL_FRESH_S: Final = 5.0
"""Least time between two counts of an account that has all its keys, in seconds: keys go by their age only."""
_PAST_ALL: Final = 1 << 30
"""Offset of a page that holds no subjects, but still their number."""
_FULL_RETRY_AFTER_S: Final = 60.0
_TIMEOUTS_IN_FLIGHT: Final = 5
"""Most writes of one submission before it has ended one way or the other; each takes at most one request timeout."""

REPLAYS: Final = metrics.counter(
    "idempotent_replay", "Submissions answered with the job of an earlier one with the same key."
)
CONFLICTS: Final = metrics.counter(
    "idempotency_conflict", "Idempotency keys refused: another body, or the first in flight.", "why"
)


class IdempotencyEntry(NamedTuple):
    """What bucket ``idem`` holds of one submission. revision: 0 = nothing there yet. found: the job, if it exists.

    priority: the class it is named for, where it is. A job in another class is another message, so a retry must not
    choose anew. classes: of many jobs, see :class:`Idem`.
    """

    subject: str
    digest: str
    job_id: str
    revision: int
    found: Found | None = None
    priority: Priority = "mid"
    classes: str = ""

    def of_one(self, number: int) -> "IdempotencyEntry":
        """The entry of one of many jobs, as if it had a key of its own."""
        letter = self.classes[number : number + 1]
        priority = next((one for one in PRIORITIES if one[0] == letter), None)
        return self._replace(
            job_id=jobids.job_id_after(self.job_id, number),
            revision=self.revision if priority else 0,
            priority=priority or "mid",
        )


class _Held(NamedTuple):
    """What is stored under a key. named_at: when it was written."""

    idem: Idem
    revision: int
    named_at: float


def digest_of(*parts: str, body: bytes) -> str:
    """What has to be equal for two requests to be the same: the target's parts and the body as sent."""
    hashed = hashlib.sha256("\n".join(parts).encode() + b"\n\n")
    hashed.update(body)
    return hashed.hexdigest()


class Idempotency:
    """Reads and writes the bucket. wall: UTC clock, seconds; it can only shorten a caller's wait.

    queued: messages in ``JOBS``, about. most_keys: of one account, unless its share says otherwise. kept_s: how long a
    job's record is kept at least.
    """

    def __init__(
        self,
        bus: Bus,
        jobs: OwnedJobs,
        *,
        request_timeout_s: float,
        wall: Callable[[], float],
        queued: Callable[[], int] = int,
        most_keys: int = MOST_KEYS,
        kept_s: float = KEPT_S,
    ) -> None:
        self._bus = bus
        self._most_keys = most_keys
        self._kept_s = kept_s
        self._keys = Holdings(self._count, stale_s=_COUNT_STALE_S, full_fresh_s=_FULL_FRESH_S)
        self._jobs = jobs
        self._in_flight_s = _TIMEOUTS_IN_FLIGHT * request_timeout_s
        self._wall = wall
        self._ids = JobIds(wall, queued)
        self._loop = asyncio.get_running_loop()
        self._seen: dict[tuple[str, int], float] = {}

    async def look_up(self, key: ApiKey, name: str, digest: str) -> IdempotencyEntry:
        """What an earlier submission under this key left. Writes nothing.

        Raises :class:`InvalidRequest` for a key that cannot be one, :class:`KeyReused` when it named another
        request, and :class:`Conflict` while the first one is in flight.
        """
        account = key.account_id
        subject = _subject(account, name)
        held = await self._held(subject, digest)
        if held is None:
            return IdempotencyEntry(subject, digest, self._ids.new(), 0)
        idem = IdempotencyEntry(subject, digest, held.idem.job_id, held.revision, priority=held.idem.priority)
        try:
            found = await self._jobs.find(idem.job_id, account)
        except NotFound:
            self._require_left(subject, held)
            if await self._jobs.may_be_forgotten(held.named_at, kept_s=self._kept_s):
                raise _forgotten(idem.job_id) from None
            return idem
        REPLAYS.inc()
        return idem._replace(found=found)

    async def look_up_many(
        self, key: ApiKey, name: str, digest: str, number: int
    ) -> tuple[IdempotencyEntry, dict[int, Found | SignalboxError]]:
        """:meth:`look_up` for a call with many jobs: its entry, and those of its jobs that are there, by their number.

        An error stands for one that cannot be submitted: it cannot be read, or has perhaps ended and is forgotten.
        """
        subject = _subject(key.account_id, name)
        held = await self._held(subject, digest)
        if held is None:
            return IdempotencyEntry(subject, digest, self._ids.new(number=number), 0), {}
        idem = IdempotencyEntry(
            subject, digest, held.idem.job_id, held.revision, priority=held.idem.priority, classes=held.idem.classes
        )
        known: dict[int, Found | SignalboxError] = {}
        missing: list[int] = []
        left = iter(range(number))

        async def find() -> None:
            for one in left:
                try:
                    known[one] = await self._jobs.find(jobids.job_id_after(idem.job_id, one), key.account_id)
                except NotFound:
                    missing.append(one)
                except SignalboxError as error:
                    known[one] = error

        await asyncio.gather(*(find() for _ in range(_FINDS)))
        if missing:
            self._require_left(subject, held)
            # An end may have been written while the call that noted this was still under way.
            since = held.named_at - self._in_flight_s
            if await self._jobs.may_be_forgotten(since, kept_s=self._kept_s):
                known |= {one: _forgotten(jobids.job_id_after(idem.job_id, one)) for one in missing}
        REPLAYS.inc()
        return idem, known

    async def _held(self, subject: str, digest: str) -> _Held | None:
        """What an earlier request with this key left. Raises :class:`KeyReused`."""
        stored = await self._bus.leader_get(Bucket.IDEM.stream, subject)
        if stored is None:
            return None
        try:
            held = decode(Idem, stored.data)
        except msgspec.MsgspecError as error:
            log.error("gateway.idem_unreadable", reason=str(error))
            raise Unavailable("An earlier request with this key cannot be read now.") from error
        if held.digest != digest:
            CONFLICTS.labels("another_body").inc()
            raise KeyReused(f"This {HEADER} was used for another request; choose a new one.")
        return _Held(held, stored.seq, stored.time)

    def _require_left(self, subject: str, held: _Held) -> None:
        """Raise :class:`Conflict` while the first request may be about to publish a job."""
        if held.idem.is_open and self._may_be_in_flight(subject, held.revision, held.named_at):
            raise _in_flight()

    async def hold(self, idem: IdempotencyEntry, most: int = 0) -> IdempotencyEntry:
        """Name the job durably before it is published. most: keys its account may have remembered; 0 = the setting's.

        Raises :class:`Conflict` if another request does so now, :class:`LimitExceeded` past ``most`` and
        :class:`Unavailable` where no more keys can be remembered at all.
        """
        if idem.revision:
            return await self._write(idem)
        account = idem.subject.split(".")[2]
        most = most or self._most_keys
        mine = await self._keys.enter(account, 1, most)
        if mine is None:
            REFUSED.labels("account_keys").inc()
            raise LimitExceeded(
                f"Your account's last {most} {HEADER}s are remembered for a day each, and more cannot be. Nothing was "
                f"accepted: send the request without {HEADER}, or later.",
                retry_after_s=_FULL_RETRY_AFTER_S,
                bound="idempotency_keys",
                limit=most,
            )
        try:
            return await self._write(idem)
        except QueueFull as error:
            REFUSED.labels("keys").inc()
            raise Unavailable(
                f"No more {HEADER}s can be remembered now. Nothing was accepted: send the request without, or later.",
                retry_after_s=_FULL_RETRY_AFTER_S,
                bound="idempotency_keys",
            ) from error
        finally:
            mine.left(1)

    async def close(self) -> None:
        """Wait for open questions. Idempotent."""
        await self._keys.close()

    async def _count(self, account: str) -> int:
        """Keys of an account that are remembered."""
        filter_ = {"subjects_filter": names.key(Bucket.IDEM, f"{account}.*"), "offset": _PAST_ALL}
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{Bucket.IDEM.stream}", filter_)
        return int(info.get("total", 0))

    async def _write(self, idem: IdempotencyEntry) -> IdempotencyEntry:
        data = encode(Idem(job_id=idem.job_id, digest=idem.digest, priority=idem.priority, classes=idem.classes))
        for last in (False,) * (_TRIES - 1) + (True,):
            try:
                revision = await self._bus.write(idem.subject, data, expect=idem.revision)
            except StaleRevision as error:
                stored = await self._bus.leader_get(Bucket.IDEM.stream, idem.subject)
                # An earlier try of ours, whose answer was lost: no other request names this job at this revision.
                if stored is None or idem.revision or stored.data != data:
                    raise _in_flight() from error
                revision = stored.seq
            except Ambiguous:
                if last:
                    raise
                continue
            return idem._replace(revision=revision)
        raise AssertionError  # pragma: no cover  every turn returns, raises or goes on

    async def release(self, idem: IdempotencyEntry) -> None:
        """Note that no request publishes this job now, so that the next try need not wait. Raises nothing of ours."""
        closed = Idem(
            job_id=idem.job_id, digest=idem.digest, is_open=False, priority=idem.priority, classes=idem.classes
        )
        try:
            await self._bus.write(idem.subject, encode(closed), expect=idem.revision)
        except SignalboxError:
            return

    def _may_be_in_flight(self, subject: str, revision: int, stored_at: float) -> bool:
        """Whether the writer of this revision may still be about to publish.

        Judged by the server's stamp where that is old enough, and at the latest by how long this process has
        known the revision: no clock that is wrong can keep a key closed. Being too early is harmless.
        """
        if self._wall() - stored_at > self._in_flight_s:
            return False
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        first = self._seen.setdefault((subject, revision), self._loop.time())
        return self._loop.time() - first < self._in_flight_s


def require_name(name: str) -> None:
    """Raise :class:`InvalidRequest` for an Idempotency-Key that cannot be one."""
    if not 1 <= len(name) <= _MOST_CHARS or not name.isascii() or not name.isprintable():
        raise InvalidRequest(f"{HEADER} must be 1 to {_MOST_CHARS} printable ASCII characters.", bound="header")


def _subject(account: str, name: str) -> str:
    """Where a key is kept. Raises as :func:`require_name`."""
    require_name(name)
    return names.key(Bucket.IDEM, f"{account}.{hashlib.sha256(name.encode()).hexdigest()}")


def _forgotten(job_id: str) -> Conflict:
    CONFLICTS.labels("forgotten").inc()
    return Conflict(
        f"This {HEADER} is of an earlier request whose job is no longer known, if there was one; choose a new one.",
        job_id=job_id,
    )


def _in_flight() -> Conflict:
    CONFLICTS.labels("in_flight").inc()
    return Conflict(
        f"The first request with this {HEADER} is still being accepted; ask again.", retry_after_s=_RETRY_AFTER_S
    )
