"""Every stream and bucket on NATS, declared once as the JetStream API takes it. Pure data, no I/O.

:mod:`signalbox.bus.topology` creates and checks them, :mod:`signalbox.wire.roles` derives who may touch them.
Durations are nanoseconds, as in the API. ``num_replicas`` is added when they are applied.
"""

from typing import Any, Final

from signalbox.wire.names import AUDIT_HEADS, Bucket, Stream

SECOND: Final = 1_000_000_000
DAY: Final = 86_400 * SECOND
KIB: Final = 1024
MIB: Final = 1024 * KIB
KEPT_MAX_BYTES: Final = 64 * KIB
"""Largest document in a bucket, unless the bucket says otherwise."""
GIB: Final = 1024 * MIB

DUPLICATE_WINDOW: Final = 120 * SECOND
MARKER_TTL_S: Final = 10
"""How long the server's marker of an expired key stays; its number must not be below 1."""
CONSUMER_IDLE_S: Final = 60
"""A consumer of a class is gone so long after the last pull."""
EXAMINED_TO: Final = "signalbox.examined_to"
"""Metadata of such a consumer."""
JOB_MAX_BYTES: Final = MIB
"""Largest stored job or record: header and inline body. The inline limit must stay below it."""

STORAGE_BYTES: Final = 16 * GIB
"""Disk all streams may take together, unless ``apply`` is told another figure."""

SHARES: Final[dict[str, float]] = {
    Stream.JOBS: 0.14,
    Stream.STATE: 0.28,
    Stream.EVENTS: 0.02,
    Stream.DLQ: 0.08,
    Stream.DLQ_PARTS: 0.06,
    Stream.PAYLOADS: 0.14,
    Stream.INPUTS: 0.14,
    Stream.RESULTS: 0.05,
    Stream.DELIVERIES: 0.01,
    Stream.FILES: 0.05,
    Bucket.IDEM.stream: 0.02,
}
"""How streams share that disk: each gets its part as ``max_bytes``. The other buckets hold little and have no limit.

Shares of a stated amount, and not sizes: nats-server refuses limits that add up to more than three quarters of what is
free when it starts, so that sizes for a server would not fit a laptop.
"""

AGES: Final[dict[str, tuple[str, float]]] = {
    Stream.EVENTS: ("history_kept_s", 1.0),
    Stream.DLQ: ("dead_letters_kept_s", 1.0),
    # Longer than the letters: a kept input is written before its letter.
    Stream.DLQ_PARTS: ("dead_letters_kept_s", 15 / 14),
    Stream.PAYLOADS: ("records_kept_s", 1.0),
    Stream.RESULTS: ("ends_kept_s", 1.0),
    Stream.DELIVERIES: ("ends_kept_s", 1.0),
    Stream.FILES: ("files_kept_s", 1.0),
}
"""Streams whose age an operator sets: the setting, and how many times as long. The declarations have the defaults."""

Config = dict[str, Any]

_BASE: Final[Config] = {
    "retention": "limits",
    "storage": "file",
    "discard": "old",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "duplicate_window": DUPLICATE_WINDOW,
    "allow_direct": False,
    "allow_rollup_hdrs": False,
    "deny_delete": False,
    "deny_purge": False,
    "allow_msg_ttl": False,
    "allow_atomic": False,
    "allow_msg_schedules": False,
    "sources": [],
}


def stream_config(name: str, subjects: list[str], description: str, **changes: Any) -> Config:
    """A stream as the API takes it, with what is not said as all streams have it."""
    return _BASE | {"name": name, "subjects": subjects, "description": description} | changes


def _stream(name: Stream, subjects: list[str], description: str, **changes: Any) -> Config:
    return stream_config(name.value, subjects, description, **changes)


def _bucket(
    bucket: Bucket,
    description: str,
    *,
    is_event_source: bool = True,
    is_direct: bool = True,
    expires: bool = False,
    **changes: Any,
) -> Config:
    """A bucket with history 1. Where keys expire, the server leaves a marker that watchers see."""
    config = _BASE | {
        "name": bucket.stream,
        "subjects": [f"$KV.{bucket.value}.>"],
        "description": description,
        "discard": "new",
        "max_msgs_per_subject": 1,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_msg_ttl": True,
        "allow_direct": is_direct,
        "max_msg_size": KEPT_MAX_BYTES,
    }
    if expires:
        config |= {"subject_delete_marker_ttl": MARKER_TTL_S * SECOND}
    if is_event_source:
        config |= {"republish": _republish(f"$KV.{bucket.value}.>", f"evt.kv.{bucket.value}.>")}
    return config | changes


def _republish(src: str, dest: str, *, headers_only: bool = False) -> Config:
    rule: Config = {"src": src, "dest": dest}
    return rule | {"headers_only": True} if headers_only else rule


def _source(name: str, src: str, dest: str) -> Config:
    return {"name": str(name), "subject_transforms": [{"src": src, "dest": dest}]}


JOBS: Final = _stream(
    # Not of work-queue retention: that syncs the disk for every job it removes. The reconciler removes what has ended a
    # slot at a time (workers/recovery/removal.py, ADR 0083).
    Stream.JOBS,
    ["jobs.>"],
    "Work queue: accepted jobs, removed in groups once they have ended",
    discard="new",
    max_msgs=1_000_000,
    max_consumers=50_000,
    max_msg_size=JOB_MAX_BYTES,
    allow_msg_ttl=True,
    allow_atomic=True,
    republish=_republish("jobs.>", "evt.jobs.>", headers_only=True),
)
STATE: Final = _stream(
    # No record of an open job is ever thrown away: full, the stream takes no more, and its age is a day above the
    # longest deadline. Records of ended jobs are removed by the reconciler (workers/recovery/records.py, ADR 0191).
    Stream.STATE,
    ["st.*", "st.*.*"],
    "Records and small results, one message per job",
    discard="new",
    max_msgs_per_subject=1,
    max_age=8 * DAY,
    max_msg_size=JOB_MAX_BYTES,
    allow_direct=True,
    allow_msg_ttl=True,
    allow_atomic=True,
    republish=_republish("st.>", "evt.st.>", headers_only=True),
)
EVENTS: Final = _stream(
    Stream.EVENTS,
    [],
    "History of leases and of who waited for them, for strips and audit",
    max_age=7 * DAY,
    allow_direct=True,
    # Sourced, not captured from the republished subjects: a stream that captures a message judges its headers
    # again (expected sequence, TTL, rollup, batch) and drops it silently. Sourcing strips them.
    sources=[
        _source(Bucket.LEASES.stream, "$KV.leases.>", "evt.kv.leases.>"),
        _source(Bucket.WAITERS.stream, "$KV.waiters.>", "evt.kv.waiters.>"),
    ],
)
DLQ: Final = _stream(
    Stream.DLQ,
    ["dlq.>"],
    "Dead letters: jobs given up, with their inputs",
    max_age=14 * DAY,
    max_msg_size=JOB_MAX_BYTES,
    allow_direct=True,
)
DLQ_PARTS: Final = _stream(
    # Full, it takes no more, and the letter
    # says so (ADR 0169): with discard-old one account's letters would take another's inputs away.
    Stream.DLQ_PARTS,
    ["dlp.>"],
    "What belongs to dead letters: inputs kept beside them, what they were redriven as",
    discard="new",
    max_age=15 * DAY,
    max_msg_size=JOB_MAX_BYTES,
    allow_direct=True,
)
PAYLOADS: Final = _stream(
    Stream.PAYLOADS,
    ["pl.>"],
    "Chunks of results above the inline limit",
    max_age=DAY,
    max_msg_size=JOB_MAX_BYTES,
    allow_direct=True,
)
INPUTS: Final = _stream(
    # Inputs go neither by age nor to make room. Full, it takes no more; an input goes after its job's end (ADR 0191).
    Stream.INPUTS,
    ["in.*.*.*"],
    "Chunks of inputs above the inline limit, of jobs that have not ended",
    discard="new",
    max_msg_size=JOB_MAX_BYTES,
    allow_direct=True,
)

RESULTS: Final = _stream(
    # Each account has its share, which the outbound program keeps: with discard-old one account's ends would take
    # another's away. Full all the same, it takes no more, and records wait in STATE for a time.
    Stream.RESULTS,
    ["results.*.*.*"],
    "Ends of jobs of subscribed accounts and models, one message per job",
    discard="new",
    max_age=7 * DAY,
    max_msgs_per_subject=1,
    max_msg_size=JOB_MAX_BYTES,
    allow_direct=True,
    allow_atomic=True,
    republish=_republish("results.>", "evt.results.>"),
)
DELIVERIES: Final = _stream(
    Stream.DELIVERIES,
    ["dlv.*.*.*"],
    "Attempts at deliveries of webhooks",
    max_age=7 * DAY,
    max_msg_size=16 * KIB,
    allow_direct=True,
)
FILES: Final = _stream(
    # Full, it takes no more: a file goes by its owner's word or its age.
    Stream.FILES,
    ["files.*.*.*"],
    "Chunks of batches' files",
    discard="new",
    max_age=7 * DAY,
    max_msgs_per_subject=1,
    max_msg_size=JOB_MAX_BYTES,
    allow_direct=True,
)

AUDIT: Final = _stream(
    # Nothing is removed from it; full, it takes no more. It has no share of the disk: a note has some 100 bytes.
    # A wildcard: a stream of a subject by its full name would also take what a consumer of another one delivers there.
    Stream.AUDIT,
    [AUDIT_HEADS],
    "Heads of the console's audit, noted outside its database",
    discard="new",
    max_msgs=1_000_000,
    max_msg_size=KIB,
    allow_direct=True,
    deny_delete=True,
    deny_purge=True,
)

STREAMS: Final[tuple[Config, ...]] = (
    JOBS,
    STATE,
    DLQ,
    DLQ_PARTS,
    PAYLOADS,
    INPUTS,
    RESULTS,
    DELIVERIES,
    FILES,
    AUDIT,
    # Ownership is decided by reading these two, so their reads go to the leader.
    _bucket(Bucket.LEASES, "One lease per GPU, written by compare-and-set", is_direct=False, expires=True),
    _bucket(Bucket.WAITERS, "Tickets of those who wait for a GPU", is_direct=False, expires=True),
    _bucket(Bucket.WORKERS, "Presence of workers", expires=True),
    _bucket(Bucket.MODELS, "What the console decided about each model", max_msg_size=JOB_MAX_BYTES),
    _bucket(Bucket.KEYS, "API keys: keyed hashes and grants"),
    _bucket(Bucket.IDEM, "Idempotency records", is_event_source=False, max_age=DAY),
    _bucket(Bucket.DESIRED, "Desired state: drain, pause"),
    _bucket(
        Bucket.DUTIES, "Who does what one worker does for all", is_event_source=False, is_direct=False, expires=True
    ),
    _bucket(Bucket.POISON, "Inputs that killed runners, by hash, kept from running again", expires=True),
    _bucket(Bucket.SERVING, "Which versions requests without one get now, written by compare-and-set"),
    _bucket(
        Bucket.MANIFESTS,
        "Files of versions that repositories brought, read when one is fetched",
        is_event_source=False,
        max_msg_size=JOB_MAX_BYTES,
    ),
    # Read before the bytes are trusted, so by its leader.
    _bucket(
        Bucket.DIGESTS, "Digests of those versions, written once by the first host with all bytes", is_direct=False
    ),
    # Read when an operator asks, and kept by no program.
    _bucket(
        Bucket.CACHES,
        "What hosts have in their disk caches",
        is_event_source=False,
        expires=True,
        max_msg_size=JOB_MAX_BYTES,
    ),
    _bucket(Bucket.SUBSCRIPTIONS, "Whose ends go to RESULTS"),
    _bucket(Bucket.WEBHOOKS, "Who is told of ends over HTTP"),
    # Republished to nobody: only the outbound program reads it.
    _bucket(Bucket.HOOK_SECRETS, "What webhooks are signed with", is_event_source=False),
    _bucket(Bucket.HOOK_STATES, "How deliveries of webhooks go"),
    _bucket(Bucket.BATCHES, "Batches of files and how far they are", expires=True),
    _bucket(Bucket.QUEUES, "Queues of the queue service"),
    _bucket(Bucket.QUEUE_STATES, "How queues stand"),
    _bucket(Bucket.QUEUE_MARKS, "Sides of queues that have ended"),
    _bucket(Bucket.HOSTS, "Presence of hosts' agents", expires=True),
    EVENTS,
)
"""Sources come before the streams that read them."""

ALLOWS_DIRECT: Final = frozenset(c["name"] for c in STREAMS if c["allow_direct"])
EXPIRING: Final = frozenset(
    bucket for bucket in Bucket for c in STREAMS if c["name"] == bucket.stream and c.get("subject_delete_marker_ttl")
)
"""Buckets whose keys carry a TTL of their own."""
COUNTED: Final = tuple(
    bucket.stream
    for bucket in (Bucket.LEASES, Bucket.WAITERS, Bucket.WORKERS, Bucket.HOSTS, Bucket.DUTIES, Bucket.CACHES)
)
"""Leases, tickets, presence, duties, caches. A backup keeps only their numbers: running workers write the entries
again."""


def consumer(name: str, filter_subject: str, *, examined_to: int) -> Config:
    """Consumer of one class of ``JOBS``, shared by all who read it: in memory, and gone a minute after the last pull.

    It delivers each message once, from the first on, and takes no acknowledgement. examined_to: sequence up to which a
    job may have been delivered before, so that its record is read before it runs.
    """
    return {
        "name": name,
        "filter_subject": filter_subject,
        "deliver_policy": "all",
        "ack_policy": "none",
        "replay_policy": "instant",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": CONSUMER_IDLE_S * SECOND,
        "max_waiting": 4096,
        "metadata": {EXAMINED_TO: str(examined_to)},
    }
