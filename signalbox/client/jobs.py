"""Jobs as the API shows them, and what is said of them to the API."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Self, TypedDict

Priority = Literal["hi", "mid", "lo"]
Act = Literal["cancel", "delete", "retry"]
ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "expired"})


@dataclass(frozen=True)
class JobError:
    """Why a job failed. code: one of docs/errors.md."""

    code: str
    message: str


@dataclass(frozen=True)
class Job:
    """A job, as it was when it was asked after. document: the whole JSON object.

    phase: the state in words. position: jobs ahead in the queue, None once a worker has it. estimated_wait_s: until it
    starts, None where that is not known. not_before: it starts no earlier. Jobs are equal where they say the same of
    these; addresses and what grows with time do not count.
    """

    id: str
    state: str
    model: str = ""
    version: int | None = None
    phase: str = ""
    priority: str = ""
    attempt: int = 0
    position: int | None = None
    estimated_wait_s: float | None = None
    tags: tuple[str, ...] = ()
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    deadline_at: datetime | None = None
    not_before: datetime | None = None
    error: JobError | None = None
    urls: Mapping[str, str] = field(default_factory=dict, compare=False)
    document: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, doc: Mapping[str, Any]) -> Self:
        """The job of a JSON object. Fields that this client does not know stay in ``document``."""
        error = doc.get("error")
        return cls(
            id=str(doc["id"]),
            state=str(doc["state"]),
            model=str(doc.get("model", "")),
            version=doc.get("version"),
            phase=str(doc.get("phase") or doc["state"]),
            priority=str(doc.get("priority", "")),
            attempt=int(doc.get("attempt") or 0),
            position=doc.get("position"),
            estimated_wait_s=doc.get("estimated_wait_s"),
            tags=tuple(doc.get("tags") or ()),
            created_at=_instant(doc.get("created_at")),
            started_at=_instant(doc.get("started_at")),
            finished_at=_instant(doc.get("finished_at")),
            deadline_at=_instant(doc.get("deadline_at")),
            not_before=_instant(doc.get("not_before")),
            error=JobError(str(error.get("code", "")), str(error.get("message", ""))) if error else None,
            urls=doc.get("urls") or {},
            document=doc,
        )

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended, so that it changes no more."""
        return self.state in ENDED


@dataclass(frozen=True)
class Event:
    """What became of a job. id: what a reconnect goes on from. document: the job as a JSON object.

    position, estimated_wait_s: as :class:`Job` has them. result_url: path of the result, once there is one.
    """

    id: str
    state: str
    phase: str
    position: int | None
    estimated_wait_s: float | None
    result_url: str | None
    document: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended; no event follows."""
        return self.state in ENDED


class _Chosen(TypedDict, total=False):
    """Which version of the model runs, and how. instances: one value per row, instead of ``inputs``."""

    instances: Sequence[Any] | None
    version: int | None
    label: str | None
    signature: str | None


class PredictOptions(_Chosen, total=False):
    """Options of a prediction.

    instances: one value per row, instead of ``inputs``. version, label: another version than the model's default.
    signature: its name. outputs: those to compute, of arrays (default: all). timeout_s: the longest the call takes.
    """

    outputs: Sequence[str] | None
    timeout_s: float | None


class SubmitOptions(_Chosen, total=False):
    """Options of a submission.

    instances, version, label, signature: as for a prediction. priority: ``hi`` needs the scope ``jobs:urgent``.
    deadline_s: seconds until it has to start. tags: at most 8, to find it by. not_before: when it may start; a
    ``datetime`` with its time zone, or RFC 3339. webhook: a URL that is told of its end. idempotency_key: the same key
    again is the same job (default: a new one for each call, so that the client may repeat it). timeout_s: the longest
    the call takes.
    """

    priority: Priority | None
    deadline_s: float | None
    tags: Sequence[str]
    not_before: datetime | str | None
    webhook: str | None
    idempotency_key: str | None
    timeout_s: float | None


@dataclass(frozen=True)
class Submission:
    """One of many jobs to submit. Fields: as :class:`SubmitOptions`."""

    model: str
    inputs: Any = None
    instances: Sequence[Any] | None = None
    version: int | None = None
    label: str | None = None
    signature: str | None = None
    priority: Priority | None = None
    deadline_s: float | None = None
    tags: Sequence[str] = ()
    not_before: datetime | str | None = None
    webhook: str | None = None

    def document(self) -> dict[str, Any]:
        """The body of a submission; arrays are in it as they are."""
        known = {
            "model": self.model,
            "inputs": self.inputs,
            "instances": self.instances,
            "version": self.version,
            "label": self.label,
            "signature_name": self.signature,
            "priority": self.priority,
            "deadline_s": self.deadline_s,
            "tags": words(self.tags) or None,
            "not_before": rfc3339(self.not_before),
            "webhook": self.webhook,
        }
        return {name: value for name, value in known.items() if value is not None}


class JobFilter(TypedDict, total=False):
    """Which jobs. state: one or several. tags: the job has all of them. error: text of its error has this.

    since, until: when it was accepted. sync: also predictions that were waited for.
    """

    state: str | Sequence[str]
    model: str | None
    tags: Sequence[str]
    error: str | None
    since: datetime | str | None
    until: datetime | str | None
    sync: bool


@dataclass(frozen=True)
class Refusal:
    """A job to which something could not be done. code: one of docs/errors.md. detail: cause and mend."""

    id: str
    code: str
    detail: str


@dataclass(frozen=True)
class Acted:
    """What an act on many jobs came to. refusals: the first of those that were refused."""

    done: int
    refused: int
    refusals: tuple[Refusal, ...] = ()


def id_of(job: Job | str) -> str:
    """The id of a job."""
    return job if isinstance(job, str) else job.id


def words(given: Any) -> list[Any]:
    """Tags as a list; one that is given as a text by itself is no list of letters."""
    if given is None:
        return []
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def require_known(given: Mapping[str, Any], options: Any) -> None:
    """Raise :class:`TypeError` for what ``options``, a TypedDict, has not: nothing else looks at the names."""
    if unknown := sorted(given.keys() - options.__optional_keys__):
        takes = ", ".join(sorted(options.__optional_keys__))
        raise TypeError(f"unknown options: {', '.join(unknown)}; this call takes {takes}")


def fields_of(chosen: JobFilter) -> dict[str, Any]:
    """A filter as the API has it: by the names of its parameters, instants as texts."""
    require_known(chosen, JobFilter)
    states = chosen.get("state", ())
    known: dict[str, Any] = {
        "state": states if isinstance(states, str) else ",".join(states),
        "model": chosen.get("model"),
        "tag": words(chosen.get("tags")),
        "error": chosen.get("error"),
        "since": rfc3339(chosen.get("since")),
        "until": rfc3339(chosen.get("until")),
        "sync": chosen.get("sync"),
    }
    return {name: value for name, value in known.items() if value}


def rfc3339(when: datetime | str | None) -> str | None:
    """An instant as the API takes it. Raises :class:`ValueError` for a ``datetime`` without a time zone."""
    if not isinstance(when, datetime):
        return when
    if when.tzinfo is None:
        raise ValueError(f"{when!r} has no time zone: which instant is meant? Make it with tz=UTC.")
    return when.isoformat(timespec="milliseconds")


def _instant(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None


def jobs_of(docs: Iterable[Mapping[str, Any]]) -> list[Job]:
    """The jobs of a page."""
    return [Job.of(doc) for doc in docs]
