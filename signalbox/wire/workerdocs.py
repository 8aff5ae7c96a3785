"""Documents of workers and of GPUs: what a worker tells of itself, and who holds or awaits which GPU."""

from msgspec import field

from signalbox.wire.eviction import ResidencyUse
from signalbox.wire.messages import Doc
from signalbox.wire.shadows import ShadowFigures


class Device(Doc, frozen=True, kw_only=True):
    """A GPU, or a virtual ``cpu:N``. id: NVIDIA UUID, or ``CPU-<host>-<n>``. memory_bytes: 0 = unknown.

    driver, cuda: version of the driver, and of the newest CUDA that it runs; empty where there is none.
    """

    id: str
    kind: str
    name: str
    memory_bytes: int = 0
    driver: str = ""
    cuda: str = ""


class Joining(Doc, frozen=True, kw_only=True):
    """What came of joined requests of a version that a worker has tried.

    joined: signatures whose joined requests got the same answers as alone. differs: which one did not, where and by how
    much; then there are none. untried: why some could not be tried. digest: of the version's files.
    """

    joined: tuple[str, ...] = ()
    differs: str = ""
    untried: str = ""
    digest: str = ""


class Residency(Doc, frozen=True, kw_only=True):
    """A model version on a worker. state: ``loading``, ``ready``, ``failed`` (then ``error`` says why),
    ``fetching``: its files are on their way to the host's disk cache (``error``: why they cannot come at present),
    ``spare``: in memory, placed elsewhere or no longer what requests get, and gone as soon as the room is needed, or
    ``crowded``: not in memory, since it does not fit beside the version it is to take the place of.

    max_rows: the batch limit, of the shape whose limit is the lowest; 0 = none was found. For operators.
    joining: what was found here and does not stand in the model's document.
    fetch_bytes, fetched_bytes: of a version that is fetched, how many its files have, 0 = not known yet, and how many
    of them are here. fetch_rate: how many come a second, 0 = not known yet. use: of a version in memory; None where the
    document had no room for it. shadow: of a candidate, what its shadow runs have found here.
    """

    model: str
    version: int
    state: str
    size_bytes: int = 0
    error: str = ""
    max_rows: int = 0
    joining: Joining | None = None
    fetch_bytes: int = 0
    fetched_bytes: int = 0
    fetch_rate: float = 0.0
    use: ResidencyUse | None = None
    shadow: ShadowFigures | None = None


class Run(Doc, frozen=True, kw_only=True):
    """What a worker's runner does now. activity: ``loading`` or ``computing``; an idle runner has no Run.

    jobs: ids of the batch, at most 32. since: when it began. expected_s: how long such a run or load usually
    takes on this worker, 0 = not known yet. is_beside: a load, beside which runs go on.
    """

    activity: str
    model: str
    version: int
    jobs: tuple[str, ...] = ()
    since: float
    expected_s: float = 0.0
    is_beside: bool = False


class Worker(Doc, frozen=True, kw_only=True):
    """KV ``workers``: presence, kept by heartbeat and TTL. Key: ``token(id)``.

    boot: random per process. host: host and boot id. state: ``starting, ready, restarting, at risk, draining``;
    restarting its runner has ended and the next one cannot compute yet; at risk it begins nothing, since its lease
    has not been confirmed for a while. gpu: its device. token: fencing token held, 0 = none. waiting_since: holds a
    ticket since then. rates: jobs a second per model (moving average), of the model that ran last first. rss_bytes,
    runner_rss_bytes: memory of the worker's process and of its runner on the host, not on the device. running: ids of
    jobs in flight, at most 32. serves: the only models it may serve, empty = all; placement heeds it. is_drained: it
    drains, and has neither lease nor job any more. sandbox: layers in force around its runner
    (:mod:`workers.sandbox.selftest`), empty = none, or no runner yet. run: what its runner does now, None = idle.
    computing_s, loading_s: seconds that runs and loads have taken since the process started, those under way included.
    in_flight: jobs this worker has pulled and not ended, by model: the models with most. waiting: those of them that
    have not begun. oldest: when the first of those was accepted, by model. generation: of the consumers it reads
    (:mod:`signalbox.jobs.delivery`). load_s: mean seconds of a load per model, of the model that was loaded last first.
    load_rate: bytes of a version that a load takes a second. fetch_rates: bytes that come a second per repository, 0 =
    not known. results, large_results: bytes of results that it has stored in ``STATE`` and in ``PAYLOADS`` within the
    least time that results are kept, by account: the 32 accounts with most of each. budget_bytes: most that versions
    may take in its device's memory; pin_bytes: most of it that pinned ones may keep. tensorflow: version of what it
    computes with. restarts: runners that died while it held its
    lease. is_leaving: its host's agent ends it soon; it serves on, and its device is nobody's home any more. kept: how
    many models it has to serve until then, as they are not in memory where they are placed now. why: what of its runner
    or device keeps it from work, in words; empty = nothing does, or an older program wrote it.
    """

    id: str
    boot: str
    host: str
    pid: int
    state: str
    device: Device
    started_at: float
    beat_at: float
    token: int = 0
    waiting_since: float | None = None
    models: tuple[Residency, ...] = ()
    serves: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    rates: dict[str, float] = field(default_factory=dict)
    done: int = 0
    failed: int = 0
    rss_bytes: int = 0
    runner_rss_bytes: int = 0
    is_drain_asked: bool = False
    is_drained: bool = False
    is_leaving: bool = False
    kept: int = 0
    software: str = ""
    sandbox: tuple[str, ...] = ()
    run: Run | None = None
    computing_s: float = 0.0
    loading_s: float = 0.0
    generation: int = 0
    in_flight: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    oldest: dict[str, float] = field(default_factory=dict)
    load_s: dict[str, float] = field(default_factory=dict)
    load_rate: float = 0.0
    fetch_rates: dict[str, float] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    large_results: dict[str, int] = field(default_factory=dict)
    budget_bytes: int = 0
    pin_bytes: int = 0
    tensorflow: str = ""
    restarts: int = 0
    why: str = ""


class Lease(Doc, frozen=True, kw_only=True):
    """KV ``leases``: state of one GPU. Key: ``token(gpu)``. Written only by compare-and-set.

    HELD carries ``Nats-TTL``; token is the stream sequence of the acquiring write (0 in that write
    itself: the reader takes the sequence). FREE names ``next`` (worker id) until ``reserved_s`` have
    passed since it was seen. last_token: the highest token ever used on this GPU.
    """

    state: str
    gpu: str
    owner: str = ""
    boot: str = ""
    host: str = ""
    pid: int = 0
    pid_start: int = 0
    token: int = 0
    since: float = 0.0
    beats: int = 0
    next: str = ""
    reserved_s: float = 0.0
    last_token: int = 0


class Ticket(Doc, frozen=True, kw_only=True):
    """KV ``waiters``: a place in the line for one GPU; its number is the sequence of its first write."""

    gpu: str
    worker: str
    boot: str
    number: int = 0
    since: float = 0.0
