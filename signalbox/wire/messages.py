"""Messages and documents on the wire, each with its version ``v``; those of fewer readers have modules beside this one.

Metadata travels as one JSON header (``Sb-Job``, ``Sb-Record``), tensors as the body, so that events
are republished without the tensors and no reader parses what it does not need. KV documents are JSON
bodies. Readers ignore unknown fields and refuse a newer ``v``. Instants are UTC unix seconds.
"""

import json
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from signalbox.wire.eviction import ResidencyUse
from signalbox.wire.names import Priority
from signalbox.wire.shadows import ShadowFigures
from signalbox.wire.splits import Split
from signalbox.wire.warmups import WarmUp

VERSION: Final = 1
T = TypeVar("T")


class Newer(msgspec.ValidationError):
    """A newer program wrote this: it is to be left alone, not to be thrown away."""


class Doc(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of every wire document."""

    v: int = VERSION


class State(StrEnum):
    """States of a job. ``queued`` has no record unless the job was put back for a retry."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    is_terminal: bool
    """Whether the job has ended, for ever."""

    def __init__(self, value: str) -> None:
        self.is_terminal = value not in {"queued", "running"}


class PayloadRef(Doc, frozen=True, kw_only=True):
    """Claim check: where a payload above the inline limit lies.

    subject: chunks in ``PAYLOADS``, in stream order. size: bytes. sha256: hex digest of the whole.
    """

    subject: str
    size: int
    chunks: int
    first_seq: int
    sha256: str


class ErrorInfo(Doc, frozen=True, kw_only=True):
    """Why a job failed: a code of :mod:`signalbox.program.errors` and the message shown to the caller."""

    code: str
    message: str


class Job(Doc, frozen=True, kw_only=True):
    """Header ``Sb-Job`` of a queued job; the body is the frame of its input tensors.

    version: resolved at acceptance. style: how the answer is rendered (``row``, ``columnar``,
    ``classify:<examples>``, ``regress:<examples>``).
    batch_key: equal keys may share a batch along dimension 0; empty = run alone. rows: size of
    dimension 0, 1 for a job that runs alone. deadline_at: the job expires if it has not started by then.
    account_id: of the account that owns it. key_id: of the API key that it was submitted with.
    reply: core subject on which a waiting caller is told the end. ref: set when the body was claim-checked.
    outputs: names asked for; empty = all. size_bytes: of the frame.
    redrive_of: the job whose dead letter this one was made of, by a person; empty = none. tags: its owner's words for
    it. not_before: it is not to run sooner; 0 = at once. webhook: the URL that is told of its end; empty = none.
    is_raised: this message was written as the job was raised to its class; below may be an earlier one.
    """

    id: str
    model: str
    version: int
    signature: str
    priority: Priority = "mid"
    account_id: str
    key_id: str = ""
    style: str = "row"
    batch_key: str = ""
    rows: int = 1
    outputs: tuple[str, ...] = ()
    created_at: float
    deadline_at: float
    reply: str = ""
    ref: PayloadRef | None = None
    size_bytes: int = 0
    trace: str = ""
    redrive_of: str = ""
    tags: tuple[str, ...] = ()
    not_before: float = 0.0
    webhook: str = ""
    is_raised: bool = False


class EndedAttempt(Doc, frozen=True, kw_only=True):
    """An attempt that is over while its job is not, or was not yet.

    ended_ms, retry_ms: since the job's acceptance; the next attempt was not to begin before ``retry_ms``, 0 = at once.
    parts: as in :class:`Record`. code: of the error it ended with; empty = its worker was lost, and wrote nothing.
    counts: ``strike`` or ``failure``, empty = neither.
    """

    number: int
    worker: str
    gpu: str
    ended_ms: float
    parts: dict[str, float]
    code: str = ""
    counts: str = ""
    retry_ms: float = 0.0


class Record(Doc, frozen=True, kw_only=True):
    """Header ``Sb-Record`` of a job's record in ``STATE``; the body is the frame of its outputs.

    attempt: 1 for the first claim. token: fencing token of the lease the attempt ran under.
    strikes: runs alone that ended the runner, used its memory up or exceeded their time (never our own outages).
    failures: attempts that count towards ``max_delivery`` without a strike: the version could not be loaded, or an
    error that nobody foresaw. vanished: attempts whose end was never written (worker killed, lease lost). input,
    outputs, batch_key, rows: of the job, where its input was claim-checked: what it takes to queue it again. phases:
    milliseconds since ``created_at`` of instants of the last attempt: ``pulled, claimed, loading, started, computed,
    done``. parts: milliseconds of its time by the names of :mod:`signalbox.jobs.times`. attempts: those before it, the
    newest 20.
    batch: number of jobs that ran together. ref: set when the result was claim-checked.
    retry_at: a job that was put back is not to run before; 0 = at once.
    input_bytes: of the job's input. cancelled_by: who asked for the end, ``owner`` or ``operator``; empty where it was
    not asked for. account_id, key_id, redrive_of, tags, not_before, webhook: as in :class:`Job`. deleted_at: of an
    ended job whose owner had it erased; what its record, message, letter and payloads held is gone, or goes; 0 = it
    stays.
    """

    id: str
    model: str
    version: int
    signature: str
    priority: Priority = "mid"
    account_id: str
    key_id: str = ""
    style: str = "row"
    state: State
    attempt: int = 0
    strikes: int = 0
    failures: int = 0
    vanished: int = 0
    worker: str = ""
    gpu: str = ""
    token: int = 0
    batch: int = 0
    created_at: float
    deadline_at: float
    claimed_at: float | None = None
    finished_at: float | None = None
    phases: dict[str, float] = {}
    parts: dict[str, float] = {}
    attempts: tuple[EndedAttempt, ...] = ()
    error: ErrorInfo | None = None
    ref: PayloadRef | None = None
    size_bytes: int = 0
    cancel_requested: bool = False
    cancelled_by: str = ""
    retry_at: float = 0.0
    trace: str = ""
    input: PayloadRef | None = None
    input_bytes: int = 0
    outputs: tuple[str, ...] = ()
    batch_key: str = ""
    rows: int = 1
    redrive_of: str = ""
    tags: tuple[str, ...] = ()
    not_before: float = 0.0
    webhook: str = ""
    deleted_at: float = 0.0


class DeadLetter(Doc, frozen=True, kw_only=True):
    """Header ``Sb-Letter`` of a dead letter, beside its ``Sb-Job``; the body is the frame of an inline input.

    error, attempt, worker, gpu: of the attempt it was given up after. strikes, failures: as its record ends with.
    input: where a claim-checked input is kept as long as the letter. not_kept: why it is not; the input then ends with
    the job's own payloads.
    """

    error: ErrorInfo
    attempt: int = 0
    strikes: int = 0
    failures: int = 0
    worker: str = ""
    gpu: str = ""
    input: PayloadRef | None = None
    not_kept: str = ""


class Redriven(Doc, frozen=True, kw_only=True):
    """``dlp.redriven.<id>``: the job a dead letter was last redriven as. version: 0 = the letter's own."""

    job: str
    at: float
    version: int = 0


class AuditMark(Doc, frozen=True, kw_only=True):
    """``audit.head``: the console's audit had so many rows, and the newest had this digest."""

    number: int
    digest: str


class TensorSpec(Doc, frozen=True, kw_only=True):
    """An input or output of a signature. shape: -1 is any size; None is unknown rank.

    tensor: its name in the graph; empty = it is no dense tensor. kind: what it is then: ``sparse``, ``ragged`` or
    ``composite``. parts: names in the graph of the tensors that it is made of; of a sparse one values, indices and
    shape. dtype: that of its values.
    """

    dtype: str
    shape: tuple[int, ...] | None
    tensor: str = ""
    kind: str = ""
    parts: tuple[str, ...] = ()


class Signature(Doc, frozen=True, kw_only=True):
    """A named signature of a SavedModel.

    defaults: of inputs that a call over TensorFlow Serving's gRPC API may leave out, as TensorProto messages.
    """

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    method: str = "tensorflow/serving/predict"
    defaults: dict[str, bytes] = {}

    @property
    def has_rows(self) -> bool:
        """Whether all tensors are dense with a free dimension 0: it counts rows, and requests can share a run."""
        specs = (*self.inputs.values(), *self.outputs.values())
        return bool(self.inputs) and all(spec.shape and spec.shape[0] == -1 and not spec.kind for spec in specs)


class Version(Doc, frozen=True, kw_only=True):
    """One immutable version. path: directory that holds ``saved_model.pb`` on every worker, or, of a repository in an
    object store, the URL of that folder. repository: name of the one that brought it, empty = a person.

    digest: sha256 over its files; empty = what ``digests`` has of it, which the first host with all its bytes writes.
    signatures: those that begin with two underscores are TensorFlow's own, such as an initializer.
    joined: the signatures whose requests were found to get the same answers joined as alone, None = not tried yet.
    """

    version: int
    path: str
    repository: str = ""
    digest: str = ""
    size_bytes: int = 0
    signatures: dict[str, Signature] = {}
    joined: tuple[str, ...] | None = None


class Batching(Doc, frozen=True, kw_only=True):
    """max_size: rows in one run (1 = no batching). max_delay_ms: longest a job waits for others to run with.

    rows_independent: the model's owner has said that the answer of a row depends on that row alone. Requests are joined
    only then, and only of versions where a worker has found the same (:class:`Joining`).
    """

    max_size: int = 32
    max_delay_ms: float = 0.0
    rows_independent: bool = False


class Limits(Doc, frozen=True, kw_only=True):
    """Per-model limits, with their defaults.

    max_delivery: attempts before a dead letter. timeout_s: one run. deadline_s: until the run starts.
    sync_wait_s: how long a synchronous caller is kept. max_queue: waiting jobs before 429.
    max_payload_bytes: decoded inputs of one job.
    """

    max_delivery: int = 5
    timeout_s: float = 60.0
    deadline_s: float = 900.0
    sync_wait_s: float = 30.0
    max_queue: int = 10_000
    max_payload_bytes: int = 64 * 1024 * 1024


class Access(Doc, frozen=True, kw_only=True):
    """Who may call a model whose key does not name it. is_open: everybody. accounts: these, otherwise.

    A key whose own list has the model, by name or by a prefix, may always.
    """

    is_open: bool = True
    accounts: tuple[str, ...] = ()


class Model(Doc, frozen=True, kw_only=True):
    """KV ``models``: what the console decided about one model. Key: ``token(name)``.

    versions: those that may serve. default_version: what a request without version or label gets.
    replicas: GPUs it shall be resident on; 0 = refuse with the reason. warm_ups: run after a load, where they fit the
    version (:func:`signalbox.wire.signatures.misfit`). splits: one of a default or label at most.
    """

    name: str
    is_enabled: bool = True
    versions: tuple[Version, ...] = ()
    default_version: int | None = None
    labels: dict[str, int] = {}
    replicas: int = 1
    batching: Batching = Batching()
    limits: Limits = Limits()
    access: Access = Access()
    warm_ups: tuple[WarmUp, ...] = ()
    splits: tuple[Split, ...] = ()
    updated_at: float = 0.0


class Serving(Doc, frozen=True, kw_only=True):
    """KV ``serving``: the versions that requests of one model get now. Key: ``token(model)``.

    What they shall get stands in ``models``; :mod:`signalbox.wire.rollout` says when the one becomes the other. Written
    by gateways, by compare-and-set. publication, published_at: revision and ``updated_at`` of the ``models``
    document it was decided from; a gateway that knows an older one decides nothing. default: for requests without
    version or label, None = the model has no version. labels: for requests by label. failed: versions whose load
    failed since that publication. candidates: of splits, those that are ready on every device that serves the model.
    """

    publication: int
    published_at: float = 0.0
    default: int | None = None
    labels: dict[str, int] = {}
    failed: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()


class Share(Doc, frozen=True, kw_only=True):
    """What one account may hold at once, all its keys together; 0 = what the gateway's settings give every account, and
    of queue_bytes what its queues take.

    stored_bytes: inputs of its jobs that have not ended. waiting: its calls that wait for a result.
    idempotency_keys: those that are remembered. result_bytes: where room for results is short, those of the least time
    that results are kept, in ``STATE``, and as many in ``PAYLOADS``. queue_bytes: items of its queues, source and sink.
    """

    stored_bytes: int = 0
    waiting: int = 0
    idempotency_keys: int = 0
    result_bytes: int = 0
    queue_bytes: int = 0


class ApiKey(Doc, frozen=True, kw_only=True):
    """KV ``keys``: one API key. Key: its public id. The secret is not here, only its keyed hash.

    scopes: of ``jobs:submit, jobs:read, jobs:cancel, jobs:urgent`` (priority ``hi``), and of
    ``queues:put, queues:get, queues:watch, queues:manage``. models: allow list, empty = all.
    rate per ``per_s`` seconds and quota per ``quota_window_s`` seconds; 0 = unlimited.
    account_id: of its account, which owns its jobs. account_models: what the account may use, empty = all; a call needs
    both lists. share: the account's, the same in each of its keys.
    networks: CIDR blocks it may be used from, empty = everywhere.
    is_disabled: its account is, for now; unlike an end, what the newest document says counts.
    webhook_hosts: of URLs that the account's jobs may name for their ends, in small letters; empty = none.
    queues: the account's queues that it is for, empty = all of them.
    """

    id: str
    account_id: str
    name: str = ""
    hmac: str
    pepper: str = "1"
    scopes: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    rate: int = 0
    per_s: int = 1
    quota: int = 0
    quota_window_s: int = 86_400
    expires_at: float | None = None
    revoked_at: float | None = None
    updated_at: float = 0.0
    account_models: tuple[str, ...] = ()
    share: Share = Share()
    networks: tuple[str, ...] = ()
    is_disabled: bool = False
    webhook_hosts: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()


class Idem(Doc, frozen=True, kw_only=True):
    """KV ``idem``: the job of one Idempotency-Key. Key: ``<account>.<sha256 of the header>``; kept for 24 hours.

    digest: sha256 of the request it was made for. is_open: its writer may be about to publish the job.
    priority: the class the job goes into, part of its subject. classes: of many jobs, whose ids count up from
    ``job_id``, a letter each: the first of its class, or ``-`` where it was not admitted.
    """

    job_id: str
    digest: str
    is_open: bool = True
    priority: Priority
    classes: str = ""


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
    rates: dict[str, float] = {}
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
    in_flight: dict[str, int] = {}
    waiting: dict[str, int] = {}
    oldest: dict[str, float] = {}
    load_s: dict[str, float] = {}
    load_rate: float = 0.0
    fetch_rates: dict[str, float] = {}
    results: dict[str, int] = {}
    large_results: dict[str, int] = {}
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


class Desired(Doc, frozen=True, kw_only=True):
    """KV ``desired``: what an operator decided of a worker or a model. Key ``worker.<token>`` or ``model.<token>``.

    is_draining: worker stops pulling. is_paused: no new runs of this model.
    """

    is_draining: bool = False
    is_paused: bool = False
    actor: str = ""
    reason: str = ""
    updated_at: float = 0.0


_encode = msgspec.json.Encoder().encode
_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def encode(doc: Doc) -> bytes:
    """JSON of a document, defaults left out."""
    return _encode(doc)


def header(doc: Doc) -> str:
    """JSON of a document, ASCII only, so that it fits a header."""
    text = _encode(doc)
    return text.decode() if text.isascii() else json.dumps(json.loads(text), separators=(",", ":"))


def decode(type_: type[T], data: bytes | str) -> T:
    """A document of ``type_``. Raises :class:`msgspec.MsgspecError`; :class:`Newer` for a newer version than ours."""
    decoder = _decoders.get(type_)
    if decoder is None:
        decoder = _decoders[type_] = msgspec.json.Decoder(type_)
    try:
        doc = decoder.decode(data)
    except UnicodeDecodeError as error:  # msgspec lets it through where a string is no UTF-8
        raise msgspec.ValidationError(str(error)) from error
    if getattr(doc, "v", VERSION) > VERSION:
        msg = f"{type_.__name__} has version {doc.v}, newer than {VERSION}"
        raise Newer(msg)
    return doc  # type: ignore[no-any-return]
