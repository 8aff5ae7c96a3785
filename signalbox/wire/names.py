"""Names on the wire: subjects, streams, buckets, consumers, headers. Every one is made here, or in a module beside
this one: of queues in :mod:`signalbox.wire.queuenames`, of what is sent out in :mod:`signalbox.wire.outboundnames`.

A *token* is one part of a NATS subject. Model names, GPU ids and worker ids may hold characters a
token must not (``.``, ``:``), so they go through :func:`token`, which is reversible.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal

from signalbox.program import nkeys
from signalbox.wire.jobids import is_short_lived, slot_of

Priority = Literal["hi", "mid", "lo"]
PRIORITIES: Final[tuple[Priority, ...]] = ("hi", "mid", "lo")
MODEL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
RESERVED_MODEL_NAMES: Final = frozenset(
    {
        "cudasharedmemory",
        "health",
        "jobs",
        "logging",
        "models",
        "predict",
        "predictions",
        "repository",
        "stats",
        "systemsharedmemory",
        "trace",
    }
)
"""Names, in small letters, that stand in the paths of some dialect where a model's name could: no new model has one."""
TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/=-]{0,63}\Z")
"""An owner's word for a job."""
MOST_TAGS: Final = 8
"""Of one job."""
MAIN_ACCOUNT: Final = "SIGNALBOX"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPE: Final = re.compile(r"=([0-9A-F]{2})")
_PARTS: Final = "dlp"
_INPUTS: Final = "in"
_INPUT: Final = re.compile(r"in\.[A-Za-z0-9_=-]+\.[A-Za-z0-9-]+\.\d{1,15}")
_HOST_USER: Final = re.compile(r"host-[a-z2-7]{8}")


class Stream(StrEnum):
    """JetStream streams that are not KV buckets."""

    JOBS = "JOBS"
    STATE = "STATE"
    EVENTS = "EVENTS"
    DLQ = "DLQ"
    DLQ_PARTS = "DLQ_PARTS"
    PAYLOADS = "PAYLOADS"
    INPUTS = "INPUTS"
    AUDIT = "AUDIT"
    RESULTS = "RESULTS"
    DELIVERIES = "DELIVERIES"
    FILES = "FILES"


class Bucket(StrEnum):
    """KV buckets. The stream behind one is ``KV_<bucket>``, its subjects ``$KV.<bucket>.<key>``."""

    LEASES = "leases"
    WAITERS = "waiters"
    WORKERS = "workers"
    MODELS = "models"
    KEYS = "keys"
    IDEM = "idem"
    DESIRED = "desired"
    DUTIES = "duties"
    POISON = "poison"
    SERVING = "serving"
    MANIFESTS = "manifests"
    DIGESTS = "digests"
    CACHES = "caches"
    SUBSCRIPTIONS = "subscriptions"
    WEBHOOKS = "webhooks"
    HOOK_SECRETS = "hooksecrets"
    HOOK_STATES = "hookstates"
    BATCHES = "batches"
    QUEUES = "queues"
    QUEUE_STATES = "queuestates"
    QUEUE_MARKS = "queuemarks"
    HOSTS = "hosts"

    @property
    def stream(self) -> str:
        """Name of the stream behind the bucket."""
        return f"KV_{self.value}"


class Header(StrEnum):
    """Message headers, ours (``Sb-``) and the server's (``Nats-``)."""

    JOB = "Sb-Job"
    RECORD = "Sb-Record"
    LETTER = "Sb-Letter"
    QUEUED_AS = "Sb-Queued-As"
    FRONT = "Sb-Front"
    CALLS = "Sb-Calls"
    SIZE = "Sb-Size"
    CURSOR = "Sb-Cursor"
    TAGS = "Sb-Tags"
    REQUEST = "Sb-Request"
    TRACE = "Sb-Trace"
    MSG_ID = "Nats-Msg-Id"
    EXPECTED_LAST = "Nats-Expected-Last-Subject-Sequence"
    TTL = "Nats-TTL"
    BATCH_ID = "Nats-Batch-Id"
    BATCH_SEQUENCE = "Nats-Batch-Sequence"
    BATCH_COMMIT = "Nats-Batch-Commit"
    SEQUENCE = "Nats-Sequence"
    LAST_SEQUENCE = "Nats-Last-Sequence"
    SUBJECT = "Nats-Subject"
    TIME_STAMP = "Nats-Time-Stamp"
    NUM_PENDING = "Nats-Num-Pending"
    MARKER_REASON = "Nats-Marker-Reason"
    KV_OPERATION = "KV-Operation"
    ROLLUP = "Nats-Rollup"


@lru_cache(maxsize=4096)
def token(text: str) -> str:
    """One safe subject token for ``text``; every byte outside ``[A-Za-z0-9_-]`` becomes ``=XX``."""
    return _UNSAFE.sub(lambda m: "".join(f"={byte:02X}" for byte in m.group().encode()), text)


def untoken(text: str) -> str:
    """The inverse of :func:`token`."""
    raw = _ESCAPE.sub(lambda m: chr(int(m.group(1), 16)), text)
    return raw.encode("latin-1").decode() if raw != text else text


# ---------------------------------------------------------------------------------- jobs and their records

QUEUED: Final = "jobs.>"
"""Wildcard over all queued jobs in ``JOBS``."""
RECORDS: Final = "st.>"
"""Wildcard over all records in ``STATE``."""


def job(model: str, priority: Priority, account: str, job_id: str) -> str:
    """Subject of a queued job in ``JOBS``; its slot is the time of its acceptance, as its id tells it."""
    return f"jobs.{token(model)}.{priority}.{token(account) or '-'}.{slot_of(job_id)}.{job_id}"


def job_anywhere(job_id: str) -> str:
    """Wildcard subject that finds a queued job by id alone (last-by-subject get)."""
    return jobs_in_slot(slot_of(job_id)).removesuffix("*") + job_id


def jobs_of(model: str, priority: Priority) -> str:
    """Wildcard over the queued jobs of one class: a model's of one priority."""
    return f"jobs.{token(model)}.{priority}.>"


def jobs_of_model(model: str) -> str:
    """Wildcard over the queued jobs of one model."""
    return f"jobs.{token(model)}.>"


def jobs_in_slot(slot: str, model: str = "*", priority: str = "*") -> str:
    """Wildcard over the queued jobs of one slot, or of one class in it. model: as its token."""
    return f"jobs.{model}.{priority}.*.{slot}.*"


def class_of(subject: str) -> tuple[str, str]:
    """Model, as its token, and priority of a queued job's subject."""
    _, model, priority, _ = subject.split(".", 3)
    return model, priority


def job_of(subject: str) -> str:
    """Id of the job that a subject ends in."""
    return subject.rpartition(".")[2]


def consumer(model: str, priority: Priority, generation: int) -> str:
    """The consumer on ``JOBS`` of one class, shared by all who read it. generation: of the fleet's consumers."""
    return f"{token(model)}_{priority}_{generation}"


def state(job_id: str) -> str:
    """Subject of a job's record in ``STATE``: ``st.<id>``, and ``st.<slot>.<id>`` of one that is short-lived."""
    return f"st.{slot_of(job_id)}.{job_id}" if is_short_lived(job_id) else f"st.{job_id}"


def slot_of_record(subject: str) -> str:
    """The slot of a record's subject; empty where it has none."""
    parts = subject.split(".")
    return parts[1] if len(parts) == 3 else ""


def slot(name: str) -> str:
    """Wildcard over the records of one slot."""
    return f"st.{name}.*"


# ---------------------------------------------------------------------------------- payloads and dead letters


def payload(account: str, job_id: str, part: str) -> str:
    """Subject in ``PAYLOADS`` of the chunks of a claim-checked result; ``part`` is ``out<token>``, or ``end``."""
    return f"pl.{token(account) or '-'}.{job_id}.{part}"


def job_input(account: str, job_id: str, size: int) -> str:
    """Subject in ``INPUTS`` of the chunks of a job's input of ``size`` bytes."""
    return f"{_INPUTS}.{token(account) or '-'}.{job_id}.{size}"


def job_inputs(account: str = "", job_id: str = "") -> str:
    """Wildcard subject of stored inputs: of one account, of one job, or all of them."""
    return f"{_INPUTS}.{token(account) or '*'}.{job_id or '*'}.*"


def is_input(subject: str) -> bool:
    """Whether it is the subject of one input, and not a wildcard of many."""
    return _INPUT.fullmatch(subject) is not None


def job_of_input(subject: str) -> str:
    """Id of the job whose input lies under a subject of ``INPUTS``."""
    return subject.split(".")[2]


def size_of_input(subject: str) -> int:
    """Bytes of the input that lies under a subject of ``INPUTS``."""
    return int(subject.rpartition(".")[2])


def dead_letter(model: str, job_id: str) -> str:
    """Subject of a dead letter in ``DLQ``."""
    return f"dlq.{token(model)}.{job_id}"


def dead_letters(model: str = "", job_id: str = "") -> str:
    """Wildcard subject of dead letters: of one model, of one job, or all of them."""
    return f"dlq.{token(model) or '*'}.{job_id or '*'}"


def kept_input(account: str, job_id: str) -> str:
    """Subject in ``DLQ_PARTS`` of the chunks of a dead letter's input, kept as long as the letter."""
    return f"{_PARTS}.in.{token(account) or '-'}.{job_id}"


def kept_inputs(account: str = "", job_id: str = "") -> str:
    """Wildcard subject of kept inputs: of one account, or of one job."""
    return f"{_PARTS}.in.{token(account) or '*'}.{job_id or '*'}"


def redriven(job_id: str) -> str:
    """Subject in ``DLQ_PARTS`` of the job that a dead letter was last redriven as."""
    return f"{_PARTS}.redriven.{job_id}"


def stream_of_payload(subject: str) -> Stream:
    """The stream that holds a payload's chunks."""
    if subject.startswith(f"{_INPUTS}."):
        return Stream.INPUTS
    return Stream.DLQ_PARTS if subject.startswith(f"{_PARTS}.") else Stream.PAYLOADS


# ---------------------------------------------------------------------------------- keys in buckets

SCALE: Final = "scale"
"""Key in ``desired`` of what is wanted of the fleet."""


def key(bucket: Bucket, name: str) -> str:
    """Subject behind a KV key. ``name`` may hold dots that separate already safe tokens."""
    return f"$KV.{bucket.value}.{name}"


def version_key(model: str, version: int) -> str:
    """KV key of one version in ``manifests`` and ``digests``."""
    return f"{token(model)}.{version}"


def version_of(key: str) -> tuple[str, int] | None:
    """The inverse of :func:`version_key`; None for a key that it never made."""
    name, _, number = key.rpartition(".")
    return (untoken(name), int(number)) if name and number.isdecimal() else None


def desired_host(host: str) -> str:
    """KV key in ``desired`` of what an operator decided of a host's agent."""
    return f"host.{token(host)}"


def poison(model: str, version: int, sha256: str) -> str:
    """KV key in ``poison`` of an input that a version may not run; ``sha256`` of its frame in hex."""
    return f"{token(model)}.{version}.{sha256}"


def ticket(gpu: str, worker: str) -> str:
    """KV key of a waiter's ticket in ``waiters``."""
    return f"{token(gpu)}.{token(worker)}"


# ---------------------------------------------------------------------------------- events

EVENT_JOBS: Final = "evt.jobs"
EVENT_STATE: Final = "evt.st"


def event_of_key(bucket: Bucket, name: str = ">") -> str:
    """Core subject on which the server republishes committed changes of a bucket."""
    return f"evt.kv.{bucket.value}.{name}"


def event_of_jobs(model: str | None = None) -> str:
    """Core subject of accepted jobs (headers only), of one model or of all."""
    return f"{EVENT_JOBS}.{token(model)}.>" if model else f"{EVENT_JOBS}.>"


def model_of_event(subject: str) -> str:
    """The model of an accepted job, of which :func:`event_of_jobs` tells."""
    return untoken(subject.split(".")[2])


def event_of_state(job_id: str = "") -> str:
    """Core subject of changes of one job's record, or of all (headers only)."""
    return f"evt.{state(job_id)}" if job_id else f"{EVENT_STATE}.>"


# ---------------------------------------------------------------------------------- core messages

NATS_FAULT: Final = "evt.kv.nats.fault"
"""Core message of ``signalbox up`` while NATS stores nothing: one sentence for the board. Below ``evt.kv.``, as the
console may listen there, but of no bucket."""
NATS_STALLED: Final = "evt.kv.nats.stalled"
"""Core message, empty, of each program that sees NATS store nothing, every second while it does."""
KEY_USE: Final = "used.keys"
"""Core subject on which gateways tell, about once a minute, the ids of the API keys in use and their calls."""
INPUT_REFUSED: Final = "refused.input"
"""Core subject on which gateways tell of inputs whose jobs ``JOBS`` certainly refused."""


def redeliver(model: str = "*") -> str:
    """Core subject that asks whoever serves a model to read its queue anew: a delivery may have been lost."""
    return f"redeliver.{model if model == '*' else token(model)}"


def anew(model: str = "*", priority: str = "*") -> str:
    """Core subject that says up to which sequence jobs of a class may have been delivered before, as its consumer is
    about to be made anew."""
    return f"anew.{model if model == '*' else token(model)}.{priority}"


def reply(gateway: str, job_id: str) -> str:
    """Core subject on which a gateway that waits for a job is told its end."""
    return f"rsp.{gateway}.{job_id}"


def cancel(job_id: str = "*") -> str:
    """Core subject that asks the holder of a running job to stop it."""
    return f"cancel.{job_id}"


def program_alive(name: str = "*") -> str:
    """Core subject on which a background program of the console says, every two seconds, that it runs."""
    return f"alive.{name}"


def delayed(job_id: str = "*") -> str:
    """Core subject on which gateways tell of a delayed job: empty where it is due soon, else when (UTC seconds)."""
    return f"delayed.{job_id}"


def ask_release(gpu: str) -> str:
    """Core subject on which an operator asks the holder of a GPU to hand it over."""
    return f"release.{token(gpu)}"


def ask_evict(worker: str) -> str:
    """Core subject on which an operator asks a worker to have a version leave its device's memory."""
    return f"evict.{token(worker)}"


ANSWERERS: Final = "console"
"""Queue group of the programs that answer what gateways ask: one of them gets each question."""


def ask_console(what: str = "*") -> str:
    """Core subject on which a gateway asks the console to do something for the owner of a key."""
    return f"ask.console.{what}"


# ---------------------------------------------------------------------------------- programs and hosts

PROJECTOR: Final = "projector"
"""The projector's short-lived consumers on ``JOBS`` and ``STATE``."""
AUDIT_HEADS: Final = "audit.*"
AUDIT_HEAD: Final = "audit.head"
"""Subject in ``AUDIT`` of the notes of the console's audit."""
POSITION: Final = "position"
"""The key in ``duties`` of how far the reconciler has read."""
RECONCILER: Final = "reconciler"
"""The reconciler's key in ``duties``, and its short-lived consumers on ``JOBS`` and ``STATE``."""
HOST_WORKERS: Final = 16
"""Workers that a host may have with the key of one: eight devices, each with a holder and one that takes over."""


def host_user(public_key: str) -> str:
    """NATS user of a host, by its public key."""
    return nkeys.user(public_key)


def is_host_user(user: str) -> bool:
    """Whether a NATS user is a host's, by the form of its name."""
    return _HOST_USER.fullmatch(user) is not None


def host_worker(host: str, number: int | str) -> str:
    """Id of a worker of a host; of one with a key they have numbers from 1 to :data:`HOST_WORKERS`."""
    return f"{host}-{number}"
