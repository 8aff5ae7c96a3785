"""Dead letters: jobs given up, kept in ``DLQ`` for a time with their inputs, to be looked at, redriven or discarded.

An inline input is the letter's body. A claim-checked one is copied into ``DLQ_PARTS`` when the letter is written, since
it ends with its job. That copy is bounded (:func:`_room`); where there is no room for it the letter says so.

A redrive is a new job that names the old one. Its id follows from the letter and from the redrive before it, so
asking twice for the same redrive makes one job: a second click, a posting that is repeated, two programs at once.
"""

import contextlib
import hashlib
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from signalbox.bus import table
from signalbox.bus.client import Bus, Delivery
from signalbox.bus.jetstream import Stored, stored_of
from signalbox.bus.transport.frames import parse_headers, status, status_text
from signalbox.jobs import joblog, life, payloads
from signalbox.jobs.message import remove, submit
from signalbox.jobs.records import Records
from signalbox.program import log, metrics
from signalbox.program.errors import Bug, Conflict, InputLost, NotFound, QueueFull, StaleRevision
from signalbox.wire import jobids, names, signatures, tensors
from signalbox.wire.messages import DeadLetter, ErrorInfo, Job, PayloadRef, Redriven, decode, encode, header
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Bucket, Header, Stream, token

MOST: Final = 200
"""Most letters of one page."""
PAGE_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of letters read for one page; their bodies are measured and dropped."""
FILLED: Final = 0.9
"""Part of ``DLQ_PARTS`` that inputs may take; the rest is for the marks of redriven letters."""
ACCOUNT_SHARE: Final = 0.25
"""Part of ``DLQ_PARTS`` that the inputs of one account may take."""
UNREADABLE: Final = "unreadable"
"""Error of a letter that is a message of ``JOBS`` which was no job."""
_SPACE: Final = uuid.UUID("5b0cb1a4-5a7d-4f3e-9a52-6f1f3c1f9d10")
"""Namespace of the ids of redriven jobs."""


_NOT_KEPT: Final = metrics.counter(
    "dead_letter_inputs_not_kept",
    "Inputs of dead letters that were not kept: share (of their account), room, gone.",
    "reason",
)


class _Refusal(NamedTuple):
    """Why an input is not kept. reason: for metrics. text: for the letter."""

    reason: str
    text: str


_GONE: Final = _Refusal("gone", "The input had aged out before the job was given up.")
_FULL: Final = _Refusal("room", "There was no room for it beside the other dead letters.")
_SHARE: Final = _Refusal("share", "The inputs of this account's dead letters have taken their share.")


class Letter(NamedTuple):
    """A dead letter. job, notice: None where a newer program wrote them; job also where the message was none. seq: in
    ``DLQ``, the order of listing. at: UTC seconds. body: frame of an inline input. redriven: the last redrive.
    """

    id: str
    model: str
    seq: int
    at: float
    job: Job | None
    notice: DeadLetter | None
    body: bytes
    redriven: Redriven | None = None
    redriven_revision: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the input."""
        if self.job is not None and self.job.ref is not None:
            return self.job.ref.size
        return len(self.body)

    @property
    def input_is(self) -> str:
        """``inline`` and ``kept``: there as long as the letter. ``lost``."""
        if self.job is None or self.job.ref is None:
            return "inline"
        return "lost" if self.notice is None or self.notice.input is None else "kept"


class Page(NamedTuple):
    """Letters, the oldest first: it is the next to be lost. after: cursor of the next page, None at the end."""

    letters: list[Letter]
    after: int | None


class Redrive(NamedTuple):
    """A redriven job. is_new: whether this call made it."""

    job_id: str
    is_new: bool


# ---------------------------------------------------------------------------------- keeping


async def keep(bus: Bus, job: Job, body: bytes, notice: DeadLetter) -> None:
    """Write a dead letter, its input first. Repeating it harms nothing. Raises :class:`Unavailable`."""
    if job.ref is not None:
        notice = await _with_input(bus, job, job.ref, notice)
    headers: dict[str, str] = {Header.JOB: header(job), Header.LETTER: header(notice)}
    await bus.write(names.dead_letter(job.model, job.id), body, headers=headers)
    log.warning(
        "dead_letter.kept",
        **joblog.ids(job),
        model=job.model,
        code=notice.error.code,
        attempt=notice.attempt,
        not_kept=notice.not_kept,
    )


async def keep_unreadable(bus: Bus, delivery: Delivery, why: str) -> None:
    """Keep a message of ``JOBS`` that is no job, and take it out of the queue. Raises :class:`Unavailable`."""
    model, _ = names.class_of(delivery.subject)
    job_id = names.job_of(delivery.subject)
    notice = DeadLetter(error=ErrorInfo(code=UNREADABLE, message=f"The message in the queue is no job: {why}"))
    await bus.write(
        names.dead_letter(names.untoken(model), job_id), delivery.data, headers={Header.LETTER: header(notice)}
    )
    await remove(bus, delivery.seq)
    log.error("dead_letter.no_job", **joblog.only_id(job_id), model=names.untoken(model), why=why)


async def _with_input(bus: Bus, job: Job, ref: PayloadRef, notice: DeadLetter) -> DeadLetter:
    refusal = await _no_room(bus, job.account_id, ref.size)
    if refusal is not None:
        return _without(notice, refusal)
    try:
        data = await payloads.fetch(bus, ref)
    except NotFound:
        return _without(notice, _GONE)
    try:
        kept = await payloads.store_at(bus, names.kept_input(job.account_id, job.id), data)
    except QueueFull:
        return _without(notice, _FULL)
    return replace(notice, input=kept)


def _without(notice: DeadLetter, refusal: _Refusal) -> DeadLetter:
    _NOT_KEPT.labels(refusal.reason).inc()
    return replace(notice, not_kept=refusal.text)


async def _no_room(bus: Bus, account: str, size: int) -> _Refusal | None:
    """Why an input of this size may not be kept; None where it may.

    Two workers may judge at once and pass the bound by one input; the stream's own limit is above both.
    """
    filter_ = {"subjects_filter": names.kept_input(account, "*")}
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.DLQ_PARTS}", filter_)
    limit = info["config"].get("max_bytes", -1)
    if limit <= 0:
        return None
    if info["state"]["bytes"] + size > FILLED * limit:
        return _FULL
    chunks = sum((info["state"].get("subjects") or {}).values())
    if chunks * payloads.CHUNK_BYTES + size > ACCOUNT_SHARE * limit:
        return _SHARE
    return None


# ---------------------------------------------------------------------------------- reading


async def page(bus: Bus, *, model: str = "", after: int = 0, size: int = 50) -> Page:
    """Letters after a cursor, at most ``size`` of them (and at most :data:`MOST`). Raises :class:`Unavailable`."""
    found: list[Stored] = []
    request: dict[str, Any] = {
        "seq": after + 1,
        "next_by_subj": names.dead_letters(model),
        "batch": max(1, min(size, MOST)),
        "max_bytes": PAGE_BYTES,
    }
    head, _ = await bus.collect(f"$JS.API.DIRECT.GET.{Stream.DLQ}", request, lambda h, b: found.append(stored_of(h, b)))
    if status(head) not in {204, 404}:
        raise Bug(f"Batched get: {status(head)} {status_text(head)}")
    is_more = bool(found) and int(parse_headers(head).get(Header.NUM_PENDING, 0)) > 0
    letters = await _with_redrives(bus, [_letter(stored) for stored in found])
    return Page(letters, found[-1].seq if is_more else None)


async def find(bus: Bus, job_id: str) -> Letter:
    """The letter of a job. Raises :class:`NotFound`."""
    found = []
    if jobids.JOB_ID.match(job_id):
        found = await bus.list_latest(Stream.DLQ, [names.dead_letters(job_id=job_id)])
    if not found:
        raise NotFound(f"There is no dead letter of a job {job_id!r}, or no longer.")
    (letter,) = await _with_redrives(bus, [_letter(found[-1])])
    return letter


async def input_of(bus: Bus, letter: Letter) -> bytes:
    """The frame of its input tensors. Raises :class:`InputLost` with the reason."""
    if letter.job is None or letter.job.ref is None:
        return letter.body
    kept = letter.notice.input if letter.notice is not None else None
    if kept is not None:
        with contextlib.suppress(NotFound):
            return await payloads.fetch(bus, kept)
    why = letter.notice.not_kept if letter.notice is not None else ""
    raise InputLost(f"The input of this dead letter is gone. {why}".strip(), job_id=letter.id)


def described(frame: bytes) -> list[dict[str, Any]]:
    """Name, dtype and shape of each tensor, not its values; empty for what is no frame."""
    try:
        found = tensors.decode(frame)
    except msgspec.MsgspecError:
        return []
    return [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in found]


def summary(letter: Letter) -> dict[str, Any]:
    """A letter for display, without its input's values; JSON values only."""
    job, notice = letter.job, letter.notice
    return {
        "id": letter.id,
        "model": letter.model,
        "version": job.version if job is not None else None,
        "signature": job.signature if job is not None else "",
        "account_id": job.account_id if job is not None else "",
        "key_id": job.key_id if job is not None else "",
        "priority": job.priority if job is not None else "",
        "accepted_at": _instant(job.created_at) if job is not None else None,
        "at": _instant(letter.at),
        "error": notice.error.code if notice is not None else "",
        "message": notice.error.message if notice is not None else "",
        "attempt": notice.attempt if notice is not None else None,
        "strikes": notice.strikes if notice is not None else None,
        "failures": notice.failures if notice is not None else None,
        "worker": notice.worker if notice is not None else "",
        "gpu": notice.gpu if notice is not None else "",
        "size_bytes": letter.size_bytes,
        "input_is": letter.input_is,
        "not_kept": notice.not_kept if notice is not None else "",
        "redrive_of": job.redrive_of if job is not None else "",
        "redriven_as": letter.redriven.job if letter.redriven is not None else "",
        "redriven_at": _instant(letter.redriven.at) if letter.redriven is not None else None,
    }


async def _with_redrives(bus: Bus, letters: Sequence[Letter]) -> list[Letter]:
    if not letters:
        return []
    subjects = [names.redriven(letter.id) for letter in letters]
    marks = {mark.subject: mark for mark in await bus.list_latest(Stream.DLQ_PARTS, subjects)}
    return [
        letter._replace(redriven=decode(Redriven, mark.data), redriven_revision=mark.seq)
        if (mark := marks.get(names.redriven(letter.id))) is not None
        else letter
        for letter in letters
    ]


def _letter(stored: Stored) -> Letter:
    _, model, job_id = stored.subject.split(".")
    job: Job | None = None
    notice: DeadLetter | None = None
    try:
        notice = decode(DeadLetter, stored.headers[Header.LETTER])
        job = decode(Job, stored.headers[Header.JOB])
    except (KeyError, msgspec.MsgspecError) as error:
        log.warning("dead_letter.unreadable", **joblog.only_id(job_id), reason=str(error))
    return Letter(job_id, names.untoken(model), stored.seq, stored.time, job, notice, stored.data)


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# ---------------------------------------------------------------------------------- acting


async def plan(bus: Bus, job_id: str, *, after: str = "", version: int = 0) -> tuple[Letter, str]:
    """The letter and the id a redrive would have, refused where it could not be done.

    after: the job it was redriven as before; empty for the first redrive. version: of the model, to run it with; 0 =
    the one that it was accepted for. Its input has to fit that version's signature. Raises :class:`NotFound`,
    :class:`Conflict` and :class:`InputLost`.
    """
    letter = await find(bus, job_id)
    new_id = redriven_id(letter, after)
    if letter.notice is not None and letter.notice.error.code == UNREADABLE:
        raise Conflict("It was no job; it can only be discarded.")
    if letter.job is None:
        raise Conflict("A newer version of Signalbox wrote this dead letter; redrive it with that.")
    other = other_version(letter.job, version)
    if letter.redriven is None:
        if after:
            raise Conflict("It has not been redriven yet: leave the redrive before out.")
    elif letter.redriven.job not in {new_id, after}:
        raise _redriven_before(letter.redriven.job, letter.redriven.version)
    elif letter.redriven.job == new_id and letter.redriven.version != other:
        raise _redriven_before(new_id, letter.redriven.version)
    if letter.input_is == "lost":
        await input_of(bus, letter)
    if other:
        _require_fit(await _model(bus, letter.job, other), letter.job, other, await input_of(bus, letter))
    return letter, new_id


def other_version(job: Job, version: int) -> int:
    """The version to run a job with, 0 where that is its own."""
    return 0 if version == job.version else version


def _redriven_before(job_id: str, version: int) -> Conflict:
    how = f" with version {version}" if version else ""
    return Conflict(f"It was redriven as job {job_id}{how}; name that as the redrive before, to redrive it once more.")


def redriven_id(letter: Letter, after: str = "") -> str:
    """Id of the job that a letter is redriven as, after an earlier redrive or for the first time. Its slot is that in
    which the letter was written: every redrive of the same letter has to find the same id."""
    return jobids.new_job_id(letter.at, uuid.uuid5(_SPACE, f"{letter.id} {after}").int)


async def redrive(
    bus: Bus,
    job_id: str,
    *,
    after: str = "",
    version: int = 0,
    accept: Callable[[Letter, str], Awaitable[None]] | None = None,
) -> Redrive:
    """Run a dead letter's job again as a new one, of the same account, with the deadline its model gives now.

    version: as :func:`plan`. accept: submits the letter's job under the new id, as whoever asks may; None = as an
    operator, within no account's bounds and with the input's quarantine lifted: a person wants it to run. Idempotent
    for the same letter, ``after`` and version. Raises as :func:`plan`, and :class:`QueueFull` or :class:`Unavailable`
    as any acceptance.
    """
    letter, new_id = await plan(bus, job_id, after=after, version=version)
    if letter.redriven is not None and letter.redriven.job == new_id:
        return Redrive(new_id, is_new=False)
    own = letter.job.version if letter.job is not None else 0
    found = await Records(bus).find(new_id)
    if found is not None and found.record.version != (version or own):
        raise _redriven_before(new_id, found.record.version)
    if found is None and accept is not None:
        await accept(letter, new_id)
    elif found is None:
        await _accept(bus, letter, new_id, version)
    mark = Redriven(job=new_id, at=time.time(), version=0 if version == own else version)
    try:
        await bus.write(names.redriven(letter.id), encode(mark), expect=letter.redriven_revision)
    except StaleRevision as error:
        # Asked for twice at once: the other has written the same. A different mark is another redrive's.
        if (again := await find(bus, job_id)).redriven is None or again.redriven.job != new_id:
            raise Conflict("It is being redriven by somebody else; look again.") from error
    trace = letter.job.trace if letter.job is not None else ""
    log.info("dead_letter.redriven", job=new_id, trace=trace, redrive_of=letter.id, model=letter.model)
    return Redrive(new_id, is_new=found is None)


async def _accept(bus: Bus, letter: Letter, new_id: str, version: int) -> None:
    """Submit the letter's job anew, as a gateway submits one. Where an earlier try did, that one is kept."""
    if letter.job is None:
        raise Conflict("The dead letter cannot be read.")
    other = other_version(letter.job, version)
    model = await _model(bus, letter.job, version or letter.job.version)
    frame = await input_of(bus, letter)
    digest = letter.job.ref.sha256 if letter.job.ref is not None else hashlib.sha256(frame).hexdigest()
    job = life.redriven(letter.job, new_id, now=time.time(), deadline_s=model.limits.deadline_s, ref=None)
    if other:
        _require_fit(model, letter.job, other, frame)
        # Whether it may share a run was judged for the version it was accepted for.
        job = replace(job, version=other, batch_key="", rows=1)
    await table.remove(bus, Bucket.POISON, names.poison(job.model, job.version, digest))
    if letter.job.ref is not None:
        job, frame = replace(job, ref=(await payloads.store_input(bus, job, frame)).ref), b""
    await submit(bus, job, frame)


def _require_fit(model: Model, job: Job, version: int, frame: bytes) -> None:
    """Raise :class:`Conflict` where a version could not take the input, or gives other outputs than were asked for."""
    (found,) = [one for one in model.versions if one.version == version]
    signature = found.signatures.get(job.signature)
    if signature is None:
        raise Conflict(f'Version {version} of {job.model} has no signature "{job.signature[:100]}".')
    missing = sorted(set(job.outputs) - signature.outputs.keys())
    try:
        inputs = {tensor.name: tensor for tensor in tensors.decode(frame)}
    except msgspec.MsgspecError as error:
        raise Conflict("Its input is no tensors, so no other version can be said to take it.") from error
    why = signatures.refusal(signature, job.outputs) or signatures.unfit(inputs, signature)
    if missing:
        why = f'the signature has no output "{missing[0][:100]}"'
    if why:
        raise Conflict(f"Its input does not fit version {version} of {job.model}: {why.removesuffix('.')}.")


def again(letter: Letter, new_id: str, *, key_id: str, now: float, deadline_s: float) -> Job:
    """The job that runs a letter's again, as its owner's key submits it; its input is not stored yet.

    Raises :class:`Conflict` where this version cannot read the letter.
    """
    if letter.job is None:
        raise Conflict("A newer version of Signalbox wrote this dead letter; run it again with that.")
    job = life.redriven(letter.job, new_id, now=now, deadline_s=deadline_s, ref=None)
    return replace(job, key_id=key_id)


async def versions(bus: Bus, name: str) -> list[int]:
    """Those that a model serves now, the newest first: its letters may be redriven with them."""
    model = await _document(bus, name)
    if model is None or not model.is_enabled:
        return []
    return sorted((version.version for version in model.versions), reverse=True)


async def _document(bus: Bus, name: str) -> Model | None:
    stored = await bus.leader_get(Bucket.MODELS.stream, names.key(Bucket.MODELS, token(name)))
    return decode(Model, stored.data) if stored is not None and stored.data else None


async def _model(bus: Bus, job: Job, wanted: int) -> Model:
    model = await _document(bus, job.model)
    if model is None or not model.is_enabled:
        raise Conflict(f"The model {job.model} is not there or not enabled; nothing would run the job.")
    if not any(version.version == wanted for version in model.versions):
        if wanted != job.version:
            raise Conflict(f"The model {job.model} does not serve version {wanted}.")
        raise Conflict(f"The model {job.model} no longer serves version {job.version}, which the job is for.")
    return model


async def discard(bus: Bus, job_id: str) -> None:
    """Remove a letter with its input for good. Raises :class:`NotFound` where there was none."""
    if not jobids.JOB_ID.match(job_id):
        raise NotFound(f"There is no dead letter of a job {job_id!r}.")
    purged = await _purge(bus, Stream.DLQ, names.dead_letters(job_id=job_id))
    # Also without a letter: a discard that broke off in the middle is finished by the next one.
    await _purge(bus, Stream.DLQ_PARTS, names.kept_inputs(job_id=job_id))
    await _purge(bus, Stream.DLQ_PARTS, names.redriven(job_id))
    if not purged:
        raise NotFound(f"There is no dead letter of a job {job_id!r}, or no longer.")
    log.info("dead_letter.discarded", **joblog.only_id(job_id))


async def _purge(bus: Bus, stream: Stream, subject: str) -> int:
    answer = await bus.request_json(f"$JS.API.STREAM.PURGE.{stream}", {"filter": subject})
    return int(answer.get("purged", 0))
