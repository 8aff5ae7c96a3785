"""What the board shows, row by row, as sent to browsers. Instants are UTC unix seconds, durations seconds."""

import msgspec

from signalbox.wire.eviction import ResidencyUse
from signalbox.wire.workerdocs import Run


class Row(msgspec.Struct, frozen=True, gc=False):
    """Base of every row: compared by value, so that an unchanged row is not sent again. Rows hold nothing mutable."""


class Waiter(Row, frozen=True):
    """A place in the line for a GPU. number: lower is earlier."""

    worker: str
    since: float
    number: int


class RunningJob(Row, frozen=True):
    """A job that a lane's holder runs. model: empty while only its id is known."""

    id: str
    model: str
    version: int
    worker: str
    token: int
    since: float


class StripInterval(Row, frozen=True, array_like=True):
    """From ``at`` until the next interval the lane was in ``state`` under ``owner`` with ``token``.

    state: of the lane; ``restarting`` while it was held and its holder had no runner.
    """

    at: float
    state: str
    owner: str
    token: int


class UseShare(Row, frozen=True, array_like=True):
    """Which shares of the five seconds from ``at`` the runner computed and loaded, between them 0 to 1."""

    at: int
    computing: float
    loading: float


class LaneRow(Row, frozen=True):
    """One GPU. expires_at: when the lease ends unless its holder renews it. next: it is promised to.

    state: of its lease: ``held, handover, expired, idle`` or ``unknown``. activity: what the holder does with it:
    ``computing, loading, idle``, or ``restarting`` its runner; empty without a holder, or where it has not reported.
    use: the share of the last seconds in which it was computed on, None = not known. used: that and the share in which
    it was loaded, of ten minutes, by five seconds. word: for all of that (:func:`console.board.lanes.word`).
    idle_since: of an idle holder, 0 of another one. run: as the holder reports it, without its jobs. jobs: those that
    have begun. may_release: its holder is there to be asked.
    """

    gpu: str
    name: str
    kind: str
    host: str
    state: str
    holder: str = ""
    token: int = 0
    since: float = 0.0
    renewed_at: float = 0.0
    expires_at: float = 0.0
    ttl_s: float = 0.0
    renewals: int = 0
    next: str = ""
    may_release: bool = False
    activity: str = ""
    use: float | None = None
    word: str = ""
    idle_since: float = 0.0
    run: Run | None = None
    waiters: tuple[Waiter, ...] = ()
    jobs: tuple[RunningJob, ...] = ()
    job_count: int = 0
    models: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    strip: tuple[StripInterval, ...] = ()
    used: tuple[UseShare, ...] = ()


class Queue(Row, frozen=True):
    """One model's queue; the row's key is the model.

    waiting: accepted and not begun. prefetched: those of them that a worker has pulled. running: begun and not ended.
    lost: begun on a worker that is gone, and to run again. items: that wait in queues of which the model is a service,
    and are no jobs yet. behind: what a worker with prefetched jobs loads or computes instead. oldest_at: when the
    longest waiting job was accepted; None if none waits, or it is not known. deadline_at: until when the first one at
    NATS may begin, 0 = not known. sampled, sampled_since: of how many jobs the percentiles are, and since when those
    have ended. Rates: a second, over the last minute. drain_s: until the queue is empty at these rates; None = it does
    not shrink. history: waiting jobs and items, one figure a quarter minute, oldest first. replicas: on how many GPUs
    it shall be in memory; ready, loading, fetching, failed: on how many it is, is loaded, comes, or could not be, each
    GPU counted once. fetch_fault: why it cannot come at present. fetched: how much of it has come, in words.
    load_fault: why it could not be loaded.
    is_runnable: a signature of its versions can be run. state, label, why: in words
    (:func:`console.board.conditions.of`).
    """

    waiting: int = 0
    prefetched: int = 0
    running: int = 0
    lost: int = 0
    items: int = 0
    behind: str = ""
    behind_since: float = 0.0
    oldest_at: float | None = None
    deadline_at: float = 0.0
    arrived_per_s: float = 0.0
    ended_per_s: float = 0.0
    drain_s: float | None = None
    wait_p50_s: float | None = None
    wait_p99_s: float | None = None
    run_p50_s: float | None = None
    run_p99_s: float | None = None
    sampled: int = 0
    sampled_since: float = 0.0
    history: tuple[int, ...] = ()
    is_enabled: bool = True
    is_known: bool = True
    is_runnable: bool = True
    is_paused: bool = False
    paused_by: str = ""
    paused_reason: str = ""
    replicas: int = 0
    ready: int = 0
    loading: int = 0
    fetching: int = 0
    fetch_fault: str = ""
    fetched: str = ""
    failed: int = 0
    load_fault: str = ""
    max_queue: int = 0
    state: str = ""
    label: str = ""
    why: str = ""


class FetchRow(Row, frozen=True):
    """A version on its way to a host. size_bytes, bytes_per_s: 0 = not known yet. words: how far it is.

    fault: why it cannot come at present. waiting: jobs of its model that have not begun. others: the row stands for so
    many fetches that are not shown, and for none itself.
    """

    model: str = ""
    version: int = 0
    host: str = ""
    fetched_bytes: int = 0
    size_bytes: int = 0
    bytes_per_s: float = 0.0
    words: str = ""
    fault: str = ""
    waiting: int = 0
    others: int = 0


class LoadedVersion(Row, frozen=True):
    """A model version on a worker. jobs_per_s: of its model while the worker runs it; 0 = not known. use: of one in
    memory, as of the worker's heartbeat. is_waited: jobs of its model wait in the worker.
    """

    model: str
    version: int
    state: str
    size_bytes: int
    error: str
    jobs_per_s: float = 0.0
    use: ResidencyUse | None = None
    is_waited: bool = False


class WorkerRow(Row, frozen=True):
    """One worker process. state: as it reports it; ``drained`` when it has also handed everything over, ``lost`` when
    its presence has expired, ``unknown`` while NATS is away. word, label: for that, or for what a ready one does.
    running: jobs in flight; waiting: those of them that have not begun. rss_bytes: its process and its runner.
    jobs_per_s: of the model that ran last, while it is run; ran: that model's name. budget_bytes: most that versions
    may take in memory, 0 = not known. loaded_bytes: what they take. pin_bytes: what pinned ones may keep.
    runner_bytes: of rss_bytes what its runner has. restarts: runners that died while it held its GPU. memory_bytes:
    the device's, 0 = not known.
    """

    id: str
    host: str
    pid: int
    state: str
    word: str
    label: str
    gpu: str
    device: str
    token: int
    started_at: float
    beat_at: float
    waiting_since: float | None
    models: tuple[LoadedVersion, ...]
    running: int
    done: int
    failed: int
    rss_bytes: int
    ran: str
    jobs_per_s: float
    is_drain_asked: bool
    drained_by: str
    software: str
    waiting: int
    budget_bytes: int
    loaded_bytes: int
    pin_bytes: int
    runner_bytes: int
    restarts: int
    memory_bytes: int
    tensorflow: str
    driver: str
    cuda: str


class Transition(Row, frozen=True):
    """A ticker entry: a job came into a state. after_s: since its acceptance. skipped: entries left out before it."""

    at: float
    id: str
    model: str
    version: int
    state: str
    attempt: int = 0
    worker: str = ""
    gpu: str = ""
    token: int = 0
    after_s: float | None = None
    batch: int = 0
    error: str = ""
    skipped: int = 0


class Sample(Row, frozen=True):
    """Jobs counted over five seconds from ``at``. cancelled: or expired."""

    at: float
    arrived: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0


class Figure(Row, frozen=True):
    """One figure of the health strip. state: ``ok``, ``late``, ``failed`` or ``unknown``."""

    name: str
    state: str
    value: str
    note: str = ""
    href: str = ""


class Alarm(Row, frozen=True):
    """Something an operator should look at now. level: ``warning`` or ``error``. since: 0 = the view finds out.

    as_of: when it was last known to stand, 0 = now. what: the thing it is about, in a few words. hint: what to do, or
    where to look; empty where the text says so.
    """

    level: str
    text: str
    since: float = 0.0
    href: str = ""
    as_of: float = 0.0
    what: str = ""
    hint: str = ""


class WatchedJob(Row, frozen=True):
    """A job whose page is open. revision: of its record. state, words, why, starts, tone: how it stands now."""

    revision: int
    state: str
    words: str
    why: str
    starts: str
    tone: str
