"""What each role may publish and subscribe on NATS: one declaration for servers, compose and tests.

A role is a program's NATS user. Replies come to an inbox of its own (``_INBOX_<user>.>``), so that no user can
listen to another's answers. A worker may have a user to itself, bound to its own tickets, presence and GPUs.
A comment beside each line gives its reason; least privilege is tested both ways.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from signalbox.program.errors import Bug
from signalbox.wire.names import (
    AUDIT_HEAD,
    HOST_WORKERS,
    INPUT_REFUSED,
    KEY_USE,
    MAIN_ACCOUNT,
    NATS_STALLED,
    PROJECTOR,
    RECONCILER,
    Bucket,
    Stream,
    anew,
    ask_console,
    delayed,
    event_of_state,
    host_worker,
    payload,
    program_alive,
    redeliver,
    token,
)
from signalbox.wire.outboundnames import OUTBOUND, READERS, ask_delivery, event_of_results, reader, reader_consumer
from signalbox.wire.queuenames import QUEUES_ACCOUNT, ask_queue, ask_watch, returned, watching

Role = Literal["gateway", "worker", "console", "outbound", "host", "admin"]
ROLES: Final[tuple[Role, ...]] = ("gateway", "worker", "console", "outbound", "host", "admin")
"""Of the account ``SIGNALBOX``."""
QueueRole = Literal["gateway-queues", "outbound-queues", "admin-queues"]
QUEUE_ROLES: Final[tuple[QueueRole, ...]] = ("gateway-queues", "outbound-queues", "admin-queues")
"""Of the account ``QUEUES``: the second users of programs that have to do with queues."""
USERS: Final[tuple[Role | QueueRole, ...]] = (*ROLES, *QUEUE_ROLES)

_API: Final = "$JS.API"
OWN_RIGHTS: Final = "$SYS.REQ.USER.INFO"
"""Tells a user its own rights, and nothing of others."""
_EVERY: Final = (f"{_API}.INFO", f"{_API}.STREAM.INFO.*", OWN_RIGHTS, NATS_STALLED)
"""Every program checks the topology when it starts, and tells the board when NATS stores nothing of it;
``signalbox doctor`` checks the rights of its user."""


_RECORD: Final = ("st.*", "st.*.*")
"""Records of jobs, short-lived ones below their slot."""


class Permissions(NamedTuple):
    """Subjects one role may publish to and subscribe to; everything else is denied."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool = False
    """Whether it may answer each request that it gets, once, wherever the answer goes."""


def account_of(user: str) -> str:
    """The NATS account of a user; workers and readers are in the one of everything but queues."""
    return QUEUES_ACCOUNT if user in QUEUE_ROLES else MAIN_ACCOUNT


def queue_role(role: str) -> str:
    """The role of a program's second user, in ``QUEUES``; empty where it has none."""
    return name if (name := f"{role}-queues") in QUEUE_ROLES else ""


def inbox(user: str) -> str:
    """Prefix of the subjects on which a user gets its answers. ``user``: a role, or the id of a bound worker."""
    return f"_INBOX_{token(user)}"


def permissions(role: str, *, worker: str = "", gpus: Sequence[str] = ()) -> Permissions:
    """What a user of ``role`` may do. Raises :class:`Bug` for an undeclared role.

    worker: id of the one worker this user is for, which is also the user's name; it may then write no other's
    tickets and presence, and read no other's answers. gpus: device ids whose leases it may write; empty = any.
    """
    found = _ROLES.get(role)
    if found is None or (worker and role != "worker"):
        raise Bug(f"No such NATS role: {role}.")
    publish, own = found.publish, inbox(worker or role)
    if worker:
        shared = set(_keys(Bucket.LEASES, Bucket.WAITERS, Bucket.WORKERS))
        publish = (*(s for s in publish if s not in shared), *_bound(worker, gpus))
    return Permissions(publish, (*found.subscribe, f"{own}.>"), found.answers)


def reader_permissions(account: str) -> Permissions:
    """What the user of an account's services may do: read the account's ends, and the payloads that they name.

    The consumers are its own by their names, and the server compares their filters with the subject that creates them.
    """
    publish = [OWN_RIGHTS, f"{_API}.DIRECT.GET.{Stream.PAYLOADS}.{payload(account, '*', '*')}"]
    for name in (reader_consumer(account, number) for number in range(1, READERS + 1)):
        for stream, held in ((Stream.RESULTS, "results"), (Stream.PAYLOADS, "pl")):
            publish.append(f"{_API}.CONSUMER.CREATE.{stream}.{name}.{held}.{token(account) or '-'}.>")
            publish += [f"{_API}.CONSUMER.{act}.{stream}.{name}" for act in ("INFO", "DELETE", "MSG.NEXT")]
            publish.append(f"$JS.ACK.{stream}.{name}.>")
    return Permissions(tuple(publish), (f"_INBOX_{reader(account)}.>",))


def host_permissions(user: str) -> Permissions:
    """What the key of a host may do: what its workers do, under their ids, and tell of the host under the key's name.

    One key a host, not one a worker: its programs run as one system user, so that each could read the other's. The ids
    are those of :func:`signalbox.wire.names.host_worker`; which devices a host has is not known when its key is made.
    """
    worker, host = _ROLES["worker"], _ROLES["host"]
    shared = set(_keys(Bucket.LEASES, Bucket.WAITERS, Bucket.WORKERS, Bucket.HOSTS))
    bound = [key for n in range(1, HOST_WORKERS + 1) for key in _bound(host_worker(user, n), ())]
    publish = (s for s in (*worker.publish, *host.publish) if s not in shared)
    return Permissions(
        tuple(dict.fromkeys((*publish, *bound, f"$KV.{Bucket.HOSTS}.{token(user)}"))),
        tuple(dict.fromkeys((*worker.subscribe, *host.subscribe, f"{inbox(user)}.>"))),
    )


def _bound(worker: str, gpus: Sequence[str]) -> tuple[str, ...]:
    """The keys of one worker alone."""
    name, devices = token(worker), [token(gpu) for gpu in gpus] or ["*"]
    return (
        *(f"$KV.{Bucket.LEASES}.{device}" for device in devices),
        *(f"$KV.{Bucket.WAITERS}.{device}.{name}" for device in devices),
        f"$KV.{Bucket.WORKERS}.{name}",
    )


def _keys(*buckets: Bucket) -> tuple[str, ...]:
    return tuple(f"$KV.{bucket.value}.>" for bucket in buckets)


def _direct(*streams: str) -> tuple[str, ...]:
    """Reads that any replica answers: one subject, or a batch."""
    return tuple(s for name in streams for s in (f"{_API}.DIRECT.GET.{name}", f"{_API}.DIRECT.GET.{name}.>"))


def _leader(*streams: str) -> tuple[str, ...]:
    """Reads that the stream's leader answers."""
    return tuple(f"{_API}.STREAM.MSG.GET.{name}" for name in streams)


def _events(*buckets: Bucket) -> tuple[str, ...]:
    return tuple(f"evt.kv.{bucket.value}.>" for bucket in buckets)


_QUEUE_USER: Final = Permissions(
    # The account has streams of queues and nothing else, so that a wildcard over streams is one over queues.
    publish=(
        *_EVERY,
        "q.*.*.*.*",  # put
        "rear.*.*.*",  # dead items
        f"{_API}.DIRECT.GET.*",
        f"{_API}.DIRECT.GET.*.>",
        f"{_API}.STREAM.MSG.GET.*",
        f"{_API}.STREAM.MSG.DELETE.*",
        f"{_API}.STREAM.PURGE.*",  # truncate
        # A durable consumer a group and rank, which plugins make, ask, acknowledge to and remove.
        f"{_API}.CONSUMER.CREATE.*.*.q.*.*.*.*",
        *(f"{_API}.CONSUMER.{act}.*.*" for act in ("INFO", "MSG.NEXT", "DELETE")),
        *(f"{_API}.CONSUMER.{act}.*" for act in ("NAMES", "LIST")),
        "$JS.ACK.>",
        watching(),
        ask_watch(),
        returned(),
    ),
    subscribe=(
        "evt.q.>",
        watching(),
        ask_watch(),
        returned(),
        "$JS.ACK.*.*.1.*.0.0.0",  # commits by index at other plugins, of what is given out here
    ),
    answers=True,  # each other: items that a watch is to give back, and that a group is watched
)
"""What has to do with the items of queues."""

_ROLES: Final[dict[str, Permissions]] = {
    "gateway": Permissions(
        publish=(
            *_EVERY,
            "jobs.*.*.*.*.*",  # accept
            *_RECORD,  # cancel a queued job, ask a running one to stop, change a waiting one, delete one
            "in.*.*.*",  # inputs above the inline limit
            "cancel.*",
            KEY_USE,  # which keys are in use, now and then
            ask_console(),  # what a key's owner may have the console do
            INPUT_REFUSED,  # inputs of jobs that were not accepted: a worker checks and purges them
            delayed(),  # jobs that are due soon: the worker that reconciles looks at their records
            *_keys(Bucket.IDEM),
            *_keys(Bucket.SERVING),  # that requests get a new version from now on
            *_direct(Stream.STATE, Stream.PAYLOADS),
            # Dead letters, which their owners have run again as new jobs.
            *_direct(Stream.DLQ, Stream.DLQ_PARTS),
            "dlp.redriven.*",
            *_direct(
                *(b.stream for b in (Bucket.KEYS, Bucket.MODELS, Bucket.WORKERS, Bucket.DESIRED)),
                *(b.stream for b in (Bucket.SERVING, Bucket.HOSTS)),
            ),
            *_leader(Stream.STATE, Stream.JOBS, Bucket.IDEM.stream),
            f"{_API}.CONSUMER.INFO.JOBS.*",  # queue position and depth
            *_direct(Stream.RESULTS, Bucket.SUBSCRIPTIONS.stream, Bucket.WEBHOOKS.stream),  # an account's ends
            "files.*.*.*",  # files of batches, and the batches of them
            f"{_API}.STREAM.PURGE.{Stream.FILES}",
            *_direct(Stream.FILES, Bucket.BATCHES.stream),
            *_leader(Stream.FILES, Bucket.BATCHES.stream),
            *_keys(Bucket.BATCHES),
            *_direct(*(b.stream for b in (Bucket.QUEUES, Bucket.QUEUE_STATES, Bucket.QUEUE_MARKS))),
            *_leader(Bucket.QUEUE_MARKS.stream),
            *_keys(Bucket.QUEUE_MARKS),  # that a side of a queue has ended
        ),
        subscribe=(
            "rsp.*.*",  # ends of the jobs it waits for
            event_of_state(),
            *_events(Bucket.KEYS, Bucket.MODELS, Bucket.WORKERS, Bucket.DESIRED, Bucket.SERVING, Bucket.HOSTS),
            *_events(Bucket.SUBSCRIPTIONS, Bucket.WEBHOOKS),
            *_events(Bucket.QUEUES, Bucket.QUEUE_STATES, Bucket.QUEUE_MARKS),
            event_of_results(),
        ),
    ),
    "worker": Permissions(
        publish=(
            *_EVERY,
            f"{_API}.CONSUMER.INFO.JOBS.*",
            f"{_API}.CONSUMER.CREATE.JOBS.*.jobs.*.*.>",  # the queues' consumers, when they are first asked for
            f"{_API}.CONSUMER.MSG.NEXT.JOBS.*",
            f"{_API}.CONSUMER.DELETE.JOBS.*",  # to make a queue's consumer anew, so that lost jobs are delivered again
            # To remove what has ended. No new power: a writer of records can end any job.
            f"{_API}.STREAM.PURGE.JOBS",
            f"{_API}.STREAM.MSG.DELETE.JOBS",
            f"{_API}.STREAM.PURGE.INPUTS",  # inputs of jobs that have ended
            # The one that reconciles for all: finds and erases what a deleted job has left.
            *(
                f"{_API}.STREAM.MSG.{act}.{stream}"
                for stream in (
                    *(Stream.INPUTS, Stream.PAYLOADS, Stream.RESULTS, Stream.DELIVERIES),
                    *(Stream.DLQ, Stream.DLQ_PARTS),
                )
                for act in ("GET", "DELETE")
            ),
            f"{_API}.STREAM.PURGE.STATE",  # their records, in time. No new power: a writer can overwrite them
            *_RECORD,  # claim and commit
            "pl.*.*.*",  # results above the inline limit
            "dlq.*.*",
            "dlp.in.*.*",  # a dead letter's input, kept as long as the letter
            "rsp.*.*",
            anew(),
            redeliver(),  # the one that reconciles for all: a job was not delivered
            *_keys(Bucket.LEASES, Bucket.WAITERS, Bucket.WORKERS),
            # The one that reconciles for all: publishes again what the queue lost, reads headers of both streams.
            *_keys(Bucket.DUTIES, Bucket.POISON),
            *_keys(Bucket.DIGESTS),  # of the bytes it had first: create-only, and other workers compare
            *_keys(Bucket.CACHES),  # what its host has: of other hosts it could only mislead who looks at their page
            "jobs.*.*.*.*.*",
            f"{_API}.CONSUMER.CREATE.{Stream.JOBS}.{RECONCILER}",
            *(f"{_API}.CONSUMER.{act}.{Stream.STATE}.{RECONCILER}" for act in ("CREATE", "DELETE", "MSG.NEXT")),
            *_direct(Stream.STATE, Stream.PAYLOADS, Stream.INPUTS),
            *_direct(
                *(b.stream for b in (Bucket.MODELS, Bucket.WORKERS, Bucket.DESIRED, Bucket.POISON)),
                Bucket.SERVING.stream,
                Bucket.MANIFESTS.stream,
            ),
            # JOBS: which models have jobs, and whether one is still there.
            *_leader(Stream.JOBS, Stream.STATE),
            *_leader(*(b.stream for b in (Bucket.LEASES, Bucket.WAITERS, Bucket.DUTIES, Bucket.DIGESTS))),
        ),
        subscribe=(
            "cancel.*",
            "release.*",
            "evict.*",
            "evt.jobs.>",  # a model that slept has a job
            redeliver(),
            anew(),
            *_events(Bucket.LEASES, Bucket.WAITERS, Bucket.WORKERS, Bucket.MODELS, Bucket.DESIRED),
            *_events(Bucket.POISON, Bucket.SERVING),
            INPUT_REFUSED,
            delayed(),
        ),
    ),
    "console": Permissions(
        publish=(
            *_EVERY,
            # Leases and tickets by their leader; jobs, records and documents to compare them with the database.
            *_leader(
                Stream.JOBS,
                Stream.STATE,
                Bucket.LEASES.stream,
                Bucket.WAITERS.stream,
                Bucket.MODELS.stream,
                Bucket.MANIFESTS.stream,
                Bucket.KEYS.stream,
                Bucket.DESIRED.stream,
                Bucket.DIGESTS.stream,
                Bucket.DUTIES.stream,  # how far ends of jobs are sent out, and what was lost
                Bucket.SUBSCRIPTIONS.stream,
                Bucket.WEBHOOKS.stream,
                Bucket.BATCHES.stream,
                Bucket.QUEUES.stream,
            ),
            *_direct(Bucket.MANIFESTS.stream, Bucket.CACHES.stream),
            # What goes out: decided here, and how it goes. Secrets of webhooks are written, and not read.
            *_keys(Bucket.SUBSCRIPTIONS, Bucket.WEBHOOKS, Bucket.HOOK_SECRETS, Bucket.BATCHES),
            *_direct(
                *(b.stream for b in (Bucket.SUBSCRIPTIONS, Bucket.WEBHOOKS, Bucket.HOOK_STATES, Bucket.BATCHES)),
                Stream.DELIVERIES,
            ),
            ask_delivery(),
            # Queues: decided here, and how they stand. What ended is opened again by whom it asks.
            *_keys(Bucket.QUEUES, Bucket.QUEUE_MARKS),
            *_direct(*(b.stream for b in (Bucket.QUEUES, Bucket.QUEUE_STATES, Bucket.QUEUE_MARKS))),
            ask_queue(),
            *_direct(Stream.STATE, Stream.EVENTS),  # strips and history
            *_direct(
                *(b.stream for b in (Bucket.MODELS, Bucket.KEYS, Bucket.WORKERS, Bucket.DESIRED)),
                *(b.stream for b in (Bucket.SERVING, Bucket.HOSTS)),
            ),
            f"{_API}.CONSUMER.INFO.JOBS.*",
            f"{_API}.CONSUMER.INFO.STATE.*",
            # The projector reads both streams and acknowledges nothing. A worker's consumer is none of its business.
            *(
                f"{_API}.CONSUMER.{act}.{stream}.{PROJECTOR}"
                for stream in (Stream.JOBS, Stream.STATE)
                for act in ("CREATE", "DELETE", "MSG.NEXT")
            ),
            # The audit's head, noted and compared. AUDIT itself refuses to delete and to purge.
            AUDIT_HEAD,
            *_leader(Stream.AUDIT),
            *_direct(Stream.AUDIT),
            *_RECORD,  # cancel
            "cancel.*",
            "release.*",
            "evict.*",
            program_alive(),
            *_keys(Bucket.MODELS, Bucket.KEYS, Bucket.DESIRED, Bucket.MANIFESTS),
            # Dead letters: read; redriven as a new job with a copy of the input, whose quarantine is lifted; discarded.
            *_direct(Stream.DLQ, Stream.DLQ_PARTS),
            *_direct(Stream.INPUTS, Stream.PAYLOADS),  # of a job, shown to operators who may
            "jobs.*.*.*.*.*",
            "in.*.*.*",
            "dlp.redriven.*",
            *_keys(Bucket.POISON),
            f"{_API}.STREAM.PURGE.DLQ",
            f"{_API}.STREAM.PURGE.DLQ_PARTS",
        ),
        subscribe=("evt.jobs.>", event_of_state(), "evt.kv.>", KEY_USE, program_alive(), ask_console()),
        answers=True,  # gateways
    ),
    "outbound": Permissions(
        publish=(
            *_EVERY,
            "results.*.*.*",
            "pl.*.*.*",  # outputs of records that are too large for a message
            "dlv.*.*.*",
            program_alive(),
            *_keys(Bucket.DUTIES, Bucket.HOOK_STATES),
            # Follows records, and reads what they hold and where their outputs lie.
            *(f"{_API}.CONSUMER.{act}.{Stream.STATE}.{OUTBOUND}" for act in ("CREATE", "DELETE", "INFO", "MSG.NEXT")),
            *_direct(Stream.STATE, Stream.PAYLOADS),
            *_leader(Stream.STATE, Stream.RESULTS, Bucket.DUTIES.stream, Bucket.HOOK_STATES.stream),
            # A consumer a webhook; each account's share is kept.
            *(f"{_API}.CONSUMER.{act}.{Stream.RESULTS}.*" for act in ("CREATE", "DELETE", "INFO", "MSG.NEXT")),
            f"{_API}.CONSUMER.CREATE.{Stream.RESULTS}.*.results.*.*.*",
            f"{_API}.CONSUMER.NAMES.{Stream.RESULTS}",
            f"$JS.ACK.{Stream.RESULTS}.>",
            f"{_API}.STREAM.PURGE.{Stream.RESULTS}",
            *_direct(Stream.RESULTS, Bucket.HOOK_SECRETS.stream, Bucket.HOOK_STATES.stream),
            *_direct(Bucket.SUBSCRIPTIONS.stream, Bucket.WEBHOOKS.stream, Bucket.MODELS.stream),
            # Batches: reads and writes their files, and submits and cancels their jobs as a gateway does.
            "files.*.*.*",
            *_keys(Bucket.BATCHES),
            f"{_API}.STREAM.PURGE.{Stream.FILES}",
            *_direct(Stream.FILES, Bucket.BATCHES.stream),
            *_leader(Stream.FILES, Bucket.BATCHES.stream, Stream.JOBS),
            "jobs.*.*.*.*.*",
            "in.*.*.*",
            INPUT_REFUSED,
            *_RECORD,
            "cancel.*",
            f"{_API}.CONSUMER.INFO.JOBS.*",
            *_direct(*(b.stream for b in (Bucket.KEYS, Bucket.WORKERS, Bucket.DESIRED, Bucket.SERVING))),
            # Queues: makes their streams in the other account, and says how they stand.
            *_direct(*(b.stream for b in (Bucket.QUEUES, Bucket.QUEUE_STATES, Bucket.QUEUE_MARKS))),
            *_leader(Bucket.QUEUE_STATES.stream, Bucket.QUEUE_MARKS.stream),
            *_keys(Bucket.QUEUE_STATES, Bucket.QUEUE_MARKS),
        ),
        subscribe=(
            event_of_state(),
            *_events(Bucket.BATCHES, Bucket.KEYS, Bucket.WORKERS, Bucket.DESIRED, Bucket.SERVING),
            *_events(Bucket.SUBSCRIPTIONS, Bucket.WEBHOOKS, Bucket.HOOK_STATES, Bucket.MODELS),
            *_events(Bucket.QUEUES, Bucket.QUEUE_STATES, Bucket.QUEUE_MARKS),
            ask_delivery(),
            ask_queue(),
        ),
        answers=True,  # the console, which asks for a delivery by hand, and for acts on queues
    ),
    "host": Permissions(
        publish=(
            *_EVERY,
            *_keys(Bucket.HOSTS),  # its own presence, and what its workers have told
            *_direct(*(b.stream for b in (Bucket.WORKERS, Bucket.DESIRED, Bucket.HOSTS, Bucket.CACHES))),
            *_leader(Bucket.DUTIES.stream),  # when the first worker is needed next
        ),
        subscribe=(
            "evt.jobs.>",  # a job, while there is no worker
            delayed(),  # one that will be due: a worker has to look at it
            *_events(Bucket.WORKERS, Bucket.DESIRED, Bucket.HOSTS),
        ),
    ),
    "admin": Permissions(publish=(">",), subscribe=(">",)),
    "gateway-queues": _QUEUE_USER,
    "outbound-queues": Permissions(
        # The forwarder watches and puts as a gateway does; redriving reads and removes what is in REAR.
        publish=(
            *_QUEUE_USER.publish,
            *(f"{_API}.STREAM.{act}.*" for act in ("CREATE", "UPDATE", "DELETE")),
            *(f"{_API}.STREAM.{act}" for act in ("NAMES", "LIST")),
        ),
        subscribe=_QUEUE_USER.subscribe,
        answers=True,
    ),
    "admin-queues": Permissions(publish=(">",), subscribe=(">",)),
}
