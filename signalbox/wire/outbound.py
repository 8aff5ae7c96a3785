"""Documents of what goes out: subscriptions, webhooks, ends of jobs, deliveries, batches."""

from typing import Literal

from msgspec import field

from signalbox.wire.messages import Doc, ErrorInfo, PayloadRef, State


class Subscription(Doc, frozen=True, kw_only=True):
    """KV ``subscriptions``: the ends of these jobs go to ``RESULTS``. Key: its id. Written by the console.

    account_id, model: empty = every one. A webhook that is enabled is a subscription too (:class:`Webhook`).
    """

    id: str
    account_id: str = ""
    model: str = ""
    is_enabled: bool = True
    updated_at: float = 0.0


class Webhook(Doc, frozen=True, kw_only=True):
    """KV ``webhooks``: who is told of these ends over HTTP. Key: its id. Written by the console.

    account_id, model: empty = every one. is_for_jobs: only of jobs that name this URL's host themselves (then url is
    empty, and hosts are those that the account's jobs may name). enabled_at: UTC seconds; a state that was disabled
    before counts no more. secret: names the one in ``hooksecrets`` (:func:`outboundnames.hook_secret`) that messages
    are signed with; with previous_secret too until previous_until (UTC seconds).
    """

    id: str
    account_id: str = ""
    model: str = ""
    url: str = ""
    is_for_jobs: bool = False
    hosts: tuple[str, ...] = ()
    is_enabled: bool = True
    enabled_at: float = 0.0
    secret: str = ""
    previous_secret: str = ""
    previous_until: float = 0.0
    updated_at: float = 0.0


class HookSecret(Doc, frozen=True, kw_only=True):
    """KV ``hooksecrets``: what a webhook's messages are signed with. Key: :func:`outboundnames.hook_secret`. Read by
    the outbound program alone: the console makes one, never changes it, and cannot read it.

    secret: ``whsec_`` and base64.
    """

    secret: str


class HookState(Doc, frozen=True, kw_only=True):
    """KV ``hookstates``: how the deliveries of a webhook go. Key: the webhook's id. Written by the outbound program.

    failing_since: of the deliveries that have failed without one that succeeded in between; 0 = the last one succeeded.
    disabled_at: it was given up then, and why; it stays so until the webhook's enabled_at is later. last_*: of the last
    attempt. waiting: deliveries that are to be tried again.
    """

    failing_since: float = 0.0
    disabled_at: float = 0.0
    why: str = ""
    last_at: float = 0.0
    last_status: int = 0
    last_error: str = ""
    waiting: int = 0


class Delivery(Doc, frozen=True, kw_only=True):
    """``dlv.<hook>.<job>.<attempt>``: one attempt. status: of the answer, 0 = none, and error says why. answer: its
    first 1024 characters. by_hand: an operator asked for it. next_at: when it is tried again, 0 = no more.
    """

    hook: str
    job_id: str
    attempt: int
    at: float
    took_ms: float = 0.0
    status: int = 0
    error: str = ""
    answer: str = ""
    by_hand: bool = False
    next_at: float = 0.0


class Outputs(Doc, frozen=True, kw_only=True):
    """Where outputs lie that are too large for a message: read ``subject`` of ``stream`` (docs/results.md)."""

    stream: str
    ref: PayloadRef


class End(Doc, frozen=True, kw_only=True, omit_defaults=True):
    """``results.<account>.<model>.<job>``: the end of a job, of the form of S0.24.

    request_id: the job's id. prediction: its outputs as JSON, in the row form where the job was asked in it, else the
    columnar one; absent where it did not succeed, or where outputs say where they lie. state: as in the job's record.
    webhook: the URL that the job itself named. trace: the caller's ``traceparent``.
    """

    request_id: str
    prediction: object = None
    outputs: Outputs | None = None
    state: State
    error: ErrorInfo | None = None
    account: str
    model: str
    version: int
    signature: str = ""
    created_at: float
    finished_at: float
    attempt: int = 0
    tags: tuple[str, ...] = ()
    webhook: str = ""
    trace: str = ""


class FollowerPosition(Doc, frozen=True, kw_only=True):
    """KV ``duties``, key ``outbound.position``: ends of records below state_seq are in ``RESULTS``, or are nobody's.

    created: of ``STATE``. is_watched: anybody is subscribed; else no record waits for the follower. at: UTC seconds.
    """

    created: str = ""
    state_seq: int = 0
    is_watched: bool = False
    at: float = 0.0


class StoredFile(Doc, frozen=True, kw_only=True):
    """``files.<account>.<file>.about``: a file of an account. Its bytes are the chunks beside it, from 0 on.

    size, chunks: of a file that is_whole; of one that is still written the last chunk tells. spans: where it came in
    parts, the number of the first chunk and how many there are, of one part after the other. batch_id: whose output it
    is, empty = it was uploaded.
    """

    id: str
    filename: str
    purpose: str = "batch"
    created_at: float
    size: int = 0
    chunks: int = 0
    spans: tuple[int, ...] = ()
    is_whole: bool = True
    batch_id: str = ""


class FilePart(Doc, frozen=True, kw_only=True):
    """A part of a file: so many chunks of the file's own, with numbers from first on."""

    first: int
    chunks: int
    size: int
    created_at: float

    @property
    def id(self) -> str:
        """In OpenAI's form, of one upload."""
        return f"part_{self.first:016x}"


class FileUpload(Doc, frozen=True, kw_only=True):
    """``files.<account>.<file>.upload``: a file that comes in parts. Written by compare-and-set.

    size: that the file will have, as its owner says. parts: in the order of their ends; of one that is completed, in
    the file's order. ended_at: UTC seconds.
    """

    file_id: str
    filename: str
    purpose: str = "batch"
    size: int
    created_at: float
    ended_at: float = 0.0
    state: Literal["pending", "completed", "cancelled", "expired"] = "pending"
    parts: tuple[FilePart, ...] = ()

    @property
    def id(self) -> str:
        """In OpenAI's form."""
        return self.file_id.replace("file-", "upload_", 1)

    @property
    def held_bytes(self) -> int:
        """What it takes of its account's share beside the file that came of it."""
        return max(self.size, sum(part.size for part in self.parts)) if self.state == "pending" else 0


class BatchCursor(Doc, frozen=True, kw_only=True):
    """Header ``Sb-Cursor`` of each chunk of a batch's output and errors: how far it was with that chunk.

    Of the two files' last chunks the younger one counts. Lines below done_to are in one of the files, and so are those
    of ``beyond``. completed, failed: how many in which.
    """

    done_to: int = 0
    beyond: tuple[int, ...] = ()
    completed: int = 0
    failed: int = 0


class EndsLost(Doc, frozen=True, kw_only=True):
    """KV ``duties``, key ``outbound.lost``: records of ended jobs that were removed while somebody was subscribed and
    before the follower had passed them, those of nobody's jobs among them. Written by the worker that reconciles.

    records: all so far. at: of the last ones, UTC seconds.
    """

    records: int = 0
    at: float = 0.0


BatchState = Literal[
    "validating", "in_progress", "finalizing", "completed", "failed", "cancelling", "cancelled", "expired"
]


class Batch(Doc, frozen=True, kw_only=True):
    """KV ``batches``: a batch of a file, in OpenAI's words. Key: :func:`outboundnames.batch_key`. Written by
    compare-and-set.

    Gateways make it and ask for its cancellation; the console pauses and cancels it; the outbound program does it.
    total, completed, failed: lines. line: submitted up to here. output_chunks, error_chunks: written so far.
    deadline_at: of ``completion_window``, as which window is. asked: what is wanted of it, ``run``, ``pause`` or
    ``cancel``, the last one since asked_at. error: why it failed.
    """

    id: str
    account_id: str
    key_id: str
    endpoint: str
    input_file: str
    output_file: str = ""
    error_file: str = ""
    state: BatchState = "validating"
    asked: Literal["run", "pause", "cancel"] = "run"
    created_at: float
    deadline_at: float
    window: str = "24h"
    asked_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0
    total: int = 0
    completed: int = 0
    failed: int = 0
    line: int = 0
    output_chunks: int = 0
    error_chunks: int = 0
    error: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
