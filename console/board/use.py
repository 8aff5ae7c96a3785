"""The share of time in which a GPU is in use, from the seconds that its workers tell. Pure; time is passed in."""

from collections import deque
from typing import Final, NamedTuple

from console.board.rows import UseShare
from signalbox.wire.workerdocs import Worker

BUCKET_S: Final = 5
"""Seconds that one share is of."""
BUCKETS: Final = 121
"""As many as ten minutes touch."""
RECENT: Final = 2
"""Buckets that the share of now is of: five to ten seconds."""


class _LastReport(NamedTuple):
    """What one worker reported last."""

    boot: str
    at: float
    computing_s: float
    loading_s: float


class _Bucket:
    """Seconds of one stretch: told of, computed and loaded. at: where it begins."""

    __slots__ = ("at", "computing_s", "loading_s", "reported_to")

    def __init__(self, at: int) -> None:
        self.at = at
        self.reported_to = float(at)
        self.computing_s = self.loading_s = 0.0

    def share(self) -> UseShare:
        """Of the part that is told of. Computing and loading ahead go on beside one another: together at most all."""
        known_s = max(0.001, self.reported_to - self.at)
        computing = min(1.0, self.computing_s / known_s)
        return UseShare(self.at, round(computing, 2), round(min(1.0 - computing, self.loading_s / known_s), 2))


class DeviceUse:
    """One GPU. used_at: when a worker last told that it had used it since it told before."""

    def __init__(self) -> None:
        self.used_at = 0.0
        self._reported: dict[str, _LastReport] = {}
        self._buckets: deque[_Bucket] = deque(maxlen=BUCKETS)

    def tell(self, worker: Worker) -> None:
        """What its runner has done since its last heartbeat, spread evenly over that time."""
        now = _LastReport(worker.boot, worker.beat_at, worker.computing_s, worker.loading_s)
        before = self._reported.get(worker.id)
        self._reported[worker.id] = now
        if before is None or before.boot != now.boot or now.at <= before.at:
            return
        computing, loading = now.computing_s - before.computing_s, now.loading_s - before.loading_s
        if computing > 0 or loading > 0:
            self.used_at = now.at
        span_s, at = now.at - before.at, max(before.at, now.at - BUCKETS * BUCKET_S)
        while at < now.at:
            bucket = self._bucket(at)
            end = min(now.at, bucket.at + BUCKET_S)
            bucket.computing_s += computing * (end - at) / span_s
            bucket.loading_s += loading * (end - at) / span_s
            bucket.reported_to = max(bucket.reported_to, end)
            at = end

    def leave(self, worker_id: str) -> None:
        """A worker is gone, or at another device: what it tells next begins anew."""
        self._reported.pop(worker_id, None)

    def recent(self, now: float) -> float | None:
        """The share of the last seconds in which it computed; None where nobody has told of them."""
        found = [bucket for bucket in list(self._buckets)[-RECENT:] if bucket.at > now - RECENT * BUCKET_S - BUCKET_S]
        known_s = sum(bucket.reported_to - bucket.at for bucket in found)
        if not self._reported or known_s <= 0:
            return None
        return round(sum(bucket.share().computing * (bucket.reported_to - bucket.at) for bucket in found) / known_s, 3)

    def shares(self, now: float) -> tuple[UseShare, ...]:
        """Of the last ten minutes, oldest first. What nobody has told of is missing."""
        while self._buckets and self._buckets[0].at <= now - BUCKETS * BUCKET_S:
            self._buckets.popleft()
        return tuple(bucket.share() for bucket in self._buckets)

    def _bucket(self, at: float) -> _Bucket:
        """The one that an instant lies in: of two workers the other may have told of it, or of later ones."""
        start = int(at // BUCKET_S) * BUCKET_S
        for bucket in reversed(self._buckets):
            if bucket.at == start:
                return bucket
            if bucket.at < start:
                break
        made = _Bucket(start)
        if self._buckets and self._buckets[-1].at > start:
            self._buckets.insert(sum(bucket.at < start for bucket in self._buckets), made)
        else:
            self._buckets.append(made)
        return made
