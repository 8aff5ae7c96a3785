"""What every document on the wire is made of, and the messages and documents of jobs, each with its version ``v``.

Those of models are in :mod:`signalbox.wire.modeldocs`, of API keys in :mod:`signalbox.wire.keydocs`, of workers and
leases in :mod:`signalbox.wire.workerdocs`; others have modules beside this one.

Metadata travels as one JSON header (``Sb-Job``, ``Sb-Record``), tensors as the body, so that events
are republished without the tensors and no reader parses what it does not need. KV documents are JSON
bodies. Readers ignore unknown fields and refuse a newer ``v``. Instants are UTC unix seconds.
"""

import json
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from signalbox.wire.names import Priority

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
