"""Everything one can ask of NATS, by every role, on a server that enforces it: allowed are these, and nothing else.

The lists below are written out, not derived from :mod:`signalbox.wire.roles`: a right that slips in is found here.
"""

import asyncio
import json
from collections.abc import Iterator

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.errors import Bug
from signalbox.program.settings import Wire
from signalbox.wire.assets import STREAMS
from signalbox.wire.names import Bucket
from signalbox.wire.roles import OWN_RIGHTS, permissions
from tests.conftest import ServerThread
from tests.rigs.natsserver import NatsServer
from tests.rigs.rights import refused

BOUND = ("worker-1", "worker-2")
QUEUE_USERS = ("gateway-queues", "outbound-queues", "admin-queues")
USERS = ("admin", "gateway", "worker", "console", "outbound", "host", *QUEUE_USERS, *BOUND)
PASSWORDS = {user: f"secret of {user}" for user in USERS}
GPUS = {"worker-1": ["GPU-1"], "worker-2": ["GPU-2"]}

QUEUE_STREAMS = ("Q_n_source", "Q_n_sink", "REAR")
STREAM_NAMES = (*(str(config["name"]) for config in STREAMS), *QUEUE_STREAMS)
"""Of both accounts: whoever may ask for one by its name is asked of each."""
STREAM_ACTS = (
    "STREAM.CREATE",
    "STREAM.UPDATE",
    "STREAM.DELETE",
    "STREAM.PURGE",
    "STREAM.MSG.DELETE",
    "STREAM.MSG.GET",
    "STREAM.SNAPSHOT",
    "STREAM.RESTORE",
    "STREAM.LEADER.STEPDOWN",
    "STREAM.PEER.REMOVE",
    "STREAM.INFO",
    "CONSUMER.NAMES",
    "CONSUMER.LIST",
    "DIRECT.GET",
)
CONSUMER_ACTS = (
    "CONSUMER.CREATE",
    "CONSUMER.DURABLE.CREATE",
    "CONSUMER.DELETE",
    "CONSUMER.PAUSE",
    "CONSUMER.INFO",
    "CONSUMER.MSG.NEXT",
    "CONSUMER.LEADER.STEPDOWN",
)
OTHER_ACTS = ("INFO", "STREAM.NAMES", "STREAM.LIST", "ACCOUNT.PURGE.G", "META.LEADER.STEPDOWN", "SERVER.REMOVE")
_JOBS = ("jobs.m.hi.t.s.j",)
DATA = (
    *_JOBS,
    "st.j",
    "st.s.j",
    "dlq.m.j",
    "dlp.in.t.j",
    "dlp.redriven.j",
    "pl.a.j.out1",
    "in.t.j.1",
    "rsp.g.j",
    "progress.j",
    "results.t.m.j",
    "dlv.h.j.1",
    "files.t.f.0",
    "deliver.h",
    "ask.queue.n",
    "ask.watch.i",
    "q.n.source.hi.r",
    "q.n.sink.lo.-",
    "rear.n.source.r",
    "watching.i",
    "back.n.source.g",
    "evt.q.n.source.hi.r",
    "cancel.j",
    "release.GPU-1",
    "evict.w",
    "redeliver.m",
    "anew.m.hi",
    "used.keys",
    "alive.controller",
    "ask.console.load",
    "evt.jobs.m.hi.j",
    "evt.st.j",
    "evt.results.t.m.j",
    "evt.kv.keys.k",
    "evt.kv.nats.fault",
    "evt.kv.nats.stalled",
    "refused.input",
    "delayed.j",
    "refused.x",
    "audit.head",
    "made.up",
    "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.JOBS.x",
    OWN_RIGHTS,
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.ACCOUNT.PING.CONNZ",
    "$SYS.ACCOUNT.G.CONNECT",
    "_INBOX.x.1",
    "_R_.x.1",
)
KEYS = (
    "$KV.leases.GPU-1",
    "$KV.leases.GPU-2",
    "$KV.waiters.GPU-1.worker-1",
    "$KV.waiters.GPU-1.worker-2",
    "$KV.waiters.GPU-2.worker-1",
    "$KV.workers.worker-1",
    "$KV.workers.worker-2",
    "$KV.models.m",
    "$KV.keys.k",
    "$KV.idem.k",
    "$KV.desired.pause.m",
    "$KV.duties.reconcile",
    "$KV.poison.k",
    "$KV.serving.m",
    "$KV.manifests.m.1",
    "$KV.digests.m.1",
    "$KV.caches.h",
    "$KV.duties.outbound.results",
    "$KV.subscriptions.s",
    "$KV.webhooks.h",
    "$KV.hooksecrets.h",
    "$KV.hookstates.h",
    "$KV.batches.t.b",
    "$KV.queues.n",
    "$KV.queuestates.n",
    "$KV.queuemarks.n.source",
    "$KV.hosts.h",
)
LISTENED = (
    ">",
    "*",
    "$JS.>",
    "$JS.API.>",
    "$JS.ACK.>",
    "$JS.ACK.Q_n_source.eas-hi.>",
    "$JS.ACK.Q_n_source.eas-hi.1.*.0.0.0",
    "$JS.ACK.*.*.1.*.0.0.0",
    "$JS.EVENT.ADVISORY.>",
    "$SYS.>",
    "$KV.>",
    "jobs.>",
    "jobs.m.hi.*",
    "st.>",
    "st.*",
    "dlq.>",
    "dlp.>",
    "pl.>",
    "in.>",
    "rsp.>",
    "rsp.*.*",
    "progress.*",
    "results.>",
    "deliver.*",
    "evt.results.>",
    "cancel.*",
    "release.*",
    "evict.*",
    "redeliver.*",
    "anew.*.*",
    "used.keys",
    "used.>",
    "alive.*",
    "ask.>",
    "ask.console.*",
    "ask.queue.*",
    "ask.watch.*",
    "q.>",
    "rear.>",
    "watching.*",
    "back.*.*.*",
    "evt.q.>",
    "evt.>",
    "evt.jobs.>",
    "evt.st.*",
    "evt.st.>",
    "evt.kv.>",
    "evt.results.*.*.*",
    "_INBOX.>",
    "_R_.>",
    "audit.>",
    "refused.input",
    "delayed.*",
    "refused.>",
)


def publishes() -> Iterator[str]:
    """Every subject somebody could try to publish to."""
    yield from (f"$JS.API.{act}.{name}" for act in STREAM_ACTS for name in STREAM_NAMES)
    yield from (f"$JS.API.{act}.{name}.x" for act in CONSUMER_ACTS for name in STREAM_NAMES)
    yield from (f"$JS.API.DIRECT.GET.{name}.subject.y" for name in STREAM_NAMES)
    yield from (f"$JS.API.CONSUMER.CREATE.{name}.x.jobs.m.hi.>" for name in STREAM_NAMES)
    yield from (f"$JS.API.CONSUMER.CREATE.{name}.eas-hi.q.n.source.hi.*" for name in STREAM_NAMES)
    yield from (
        f"$JS.API.{act}.{name}.{whose}"
        for act in CONSUMER_ACTS
        for name in STREAM_NAMES
        for whose in ("reconciler", "projector", "outbound")
    )
    yield from (f"$JS.API.CONSUMER.CREATE.{name}.x.results.t.m.*" for name in STREAM_NAMES)
    yield from (f"$JS.ACK.{name}.x.1.1.1.1.0" for name in STREAM_NAMES)
    yield from (f"$JS.API.CONSUMER.NAMES.{name}" for name in STREAM_NAMES)
    yield from (f"$JS.API.{act}" for act in OTHER_ACTS)
    yield from (f"_INBOX_{user}.x.1" for user in USERS)
    yield from DATA
    yield from KEYS


def subscribes() -> Iterator[str]:
    """Every subject somebody could try to listen to."""
    yield from LISTENED
    yield from (f"_INBOX_{user}.>" for user in USERS)
    yield from (f"$KV.{bucket}.>" for bucket in Bucket)
    yield from (f"evt.kv.{bucket}.>" for bucket in Bucket)


def _info() -> set[str]:
    return {"$JS.API.INFO", OWN_RIGHTS, "evt.kv.nats.stalled"} | {
        f"$JS.API.STREAM.INFO.{name}" for name in STREAM_NAMES
    }


def _direct(*streams: str) -> set[str]:
    return {s for n in streams for s in (f"$JS.API.DIRECT.GET.{n}", f"$JS.API.DIRECT.GET.{n}.subject.y")}


def _leader(*streams: str) -> set[str]:
    return {f"$JS.API.STREAM.MSG.GET.{name}" for name in streams}


NAMED = ("x", "reconciler", "projector", "outbound")
ERASED = ("INPUTS", "PAYLOADS", "RESULTS", "DELIVERIES", "DLQ", "DLQ_PARTS")
QUEUES = {f"$JS.API.CONSUMER.INFO.JOBS.{n}" for n in NAMED}
_WORKER = {
    *_info(),
    *QUEUES,
    "$JS.API.CONSUMER.CREATE.JOBS.x.jobs.m.hi.>",
    *(f"$JS.API.CONSUMER.{a}.JOBS.{n}" for a in ("MSG.NEXT", "DELETE") for n in NAMED),
    "$JS.API.STREAM.PURGE.JOBS",
    "$JS.API.STREAM.MSG.DELETE.JOBS",
    "st.j",
    "st.s.j",
    "pl.a.j.out1",
    "dlq.m.j",
    "dlp.in.t.j",
    "rsp.g.j",
    *_leader("JOBS", "STATE", "KV_leases", "KV_waiters", "KV_duties", "KV_digests"),
    # What deleted jobs left is found and erased.
    *_leader(*ERASED),
    *(f"$JS.API.STREAM.MSG.DELETE.{name}" for name in ERASED),
    *_direct("STATE", "PAYLOADS", "INPUTS", "KV_models", "KV_workers", "KV_desired", "KV_poison", "KV_serving"),
    *_direct("KV_manifests"),
    "$KV.digests.m.1",
    "$KV.caches.h",
    "$JS.API.STREAM.PURGE.INPUTS",
    "$JS.API.STREAM.PURGE.STATE",
    # The one that reconciles for all.
    *_JOBS,
    "$KV.duties.reconcile",
    "$KV.duties.outbound.results",
    "$KV.poison.k",
    "redeliver.m",
    "anew.m.hi",
    "$JS.API.CONSUMER.CREATE.JOBS.reconciler",
    *(f"$JS.API.CONSUMER.{a}.STATE.reconciler" for a in ("CREATE", "DELETE", "MSG.NEXT")),
}
_WORKER_HEARS = {
    "cancel.*",
    "release.*",
    "evict.*",
    "redeliver.*",
    "anew.*.*",
    "refused.input",
    "delayed.*",
    "evt.jobs.>",
    *(f"evt.kv.{b}.>" for b in ("leases", "waiters", "workers", "models", "desired", "poison", "serving")),
}
_CONSUMERS = ("INFO", "MSG.NEXT", "DELETE")
_OF_QUEUES = {
    # In an account where all streams are those of queues; other names lead to nothing there.
    *_info(),
    "q.n.source.hi.r",
    "q.n.sink.lo.-",
    "rear.n.source.r",
    "watching.i",
    "ask.watch.i",
    "back.n.source.g",
    *_direct(*STREAM_NAMES),
    *_leader(*STREAM_NAMES),
    *(f"$JS.API.STREAM.{act}.{name}" for act in ("MSG.DELETE", "PURGE") for name in STREAM_NAMES),
    *(f"$JS.API.CONSUMER.CREATE.{name}.eas-hi.q.n.source.hi.*" for name in STREAM_NAMES),
    *(f"$JS.API.CONSUMER.{act}.{name}.{n}" for act in _CONSUMERS for name in STREAM_NAMES for n in NAMED),
    *(f"$JS.API.CONSUMER.{act}.{name}" for act in ("NAMES", "LIST") for name in STREAM_NAMES),
    *(f"$JS.ACK.{name}.x.1.1.1.1.0" for name in STREAM_NAMES),
}
MAY_PUBLISH: dict[str, set[str]] = {
    "gateway": {
        *_info(),
        *_JOBS,
        "st.j",
        "st.s.j",
        "in.t.j.1",
        "cancel.j",
        "$KV.idem.k",
        "used.keys",
        "ask.console.load",
        "refused.input",
        "delayed.j",
        "$KV.serving.m",
        *_direct("STATE", "PAYLOADS", "KV_keys", "KV_models", "KV_workers", "KV_desired", "KV_serving", "KV_hosts"),
        *_leader("STATE", "JOBS", "KV_idem"),
        *_direct("DLQ", "DLQ_PARTS"),  # dead letters, run again for their owners
        "dlp.redriven.j",
        *_direct("RESULTS", "KV_subscriptions", "KV_webhooks"),  # ends of an account, and whether any are kept
        # Files of batches, and the batches of them.
        "files.t.f.0",
        "$KV.batches.t.b",
        "$JS.API.STREAM.PURGE.FILES",
        *_direct("FILES", "KV_batches"),
        *_leader("FILES", "KV_batches"),
        # Queues there are, what is in them, and sides of them that have ended.
        *_direct("KV_queues", "KV_queuestates", "KV_queuemarks"),
        *_leader("KV_queuemarks"),
        "$KV.queuemarks.n.source",
        *QUEUES,
    },
    "worker": _WORKER | {key for key in KEYS if key.split(".")[1] in {"leases", "waiters", "workers"}},
    "worker-1": _WORKER | {"$KV.leases.GPU-1", "$KV.waiters.GPU-1.worker-1", "$KV.workers.worker-1"},
    "worker-2": _WORKER | {"$KV.leases.GPU-2", "$KV.workers.worker-2"},
    "console": {
        *_info(),
        *_leader("JOBS", "STATE", "KV_leases", "KV_waiters", "KV_models", "KV_keys", "KV_desired", "KV_digests"),
        *_leader("KV_manifests", "KV_duties"),
        *_direct("STATE", "EVENTS", "KV_models", "KV_keys", "KV_workers", "KV_desired", "KV_serving", "KV_manifests"),
        *_direct("KV_hosts"),
        *_direct("KV_caches"),
        # What goes out. Secrets of webhooks are written, and not read.
        *(f"$KV.{key}" for key in ("subscriptions.s", "webhooks.h", "hooksecrets.h", "batches.t.b")),
        *_leader("KV_subscriptions", "KV_webhooks", "KV_batches"),
        *_direct("KV_subscriptions", "KV_webhooks", "KV_hookstates", "KV_batches", "DELIVERIES"),
        "deliver.h",
        # Queues: what they are, how they stand, and what an operator has done with one.
        "$KV.queues.n",
        "$KV.queuemarks.n.source",
        *_leader("KV_queues"),
        *_direct("KV_queues", "KV_queuestates", "KV_queuemarks"),
        "ask.queue.n",
        *QUEUES,
        *(f"$JS.API.CONSUMER.INFO.STATE.{n}" for n in NAMED),
        # The projector's own consumers, by their name.
        *(f"$JS.API.CONSUMER.{a}.{s}.projector" for a in ("CREATE", "DELETE", "MSG.NEXT") for s in ("JOBS", "STATE")),
        "st.j",
        "st.s.j",
        "cancel.j",
        "release.GPU-1",
        "evict.w",
        "alive.controller",
        "$KV.models.m",
        "$KV.manifests.m.1",
        "$KV.keys.k",
        "$KV.desired.pause.m",
        # Dead letters: read, redriven, discarded.
        "audit.head",
        *_leader("AUDIT"),
        *_direct("AUDIT"),
        *_direct("DLQ", "DLQ_PARTS"),
        *_direct("INPUTS", "PAYLOADS"),  # shown to operators who may
        "$JS.API.STREAM.PURGE.DLQ",
        "$JS.API.STREAM.PURGE.DLQ_PARTS",
        *_JOBS,
        "in.t.j.1",
        "dlp.redriven.j",
        "$KV.poison.k",
    },
    "outbound": {
        *_info(),
        "results.t.m.j",
        "pl.a.j.out1",  # outputs of records that are too large for a message
        "dlv.h.j.1",
        "alive.controller",
        "$KV.duties.reconcile",
        "$KV.duties.outbound.results",
        "$KV.hookstates.h",
        *(f"$JS.API.CONSUMER.{act}.STATE.outbound" for act in ("CREATE", "DELETE", "INFO", "MSG.NEXT")),
        *_direct("STATE", "PAYLOADS", "RESULTS", "KV_hooksecrets", "KV_hookstates"),
        *_direct("KV_subscriptions", "KV_webhooks", "KV_models"),
        *_leader("STATE", "RESULTS", "KV_duties", "KV_hookstates"),
        *(f"$JS.API.CONSUMER.{act}.RESULTS.{n}" for act in ("CREATE", "DELETE", "INFO", "MSG.NEXT") for n in NAMED),
        "$JS.API.CONSUMER.CREATE.RESULTS.x.results.t.m.*",
        "$JS.API.CONSUMER.NAMES.RESULTS",
        "$JS.ACK.RESULTS.x.1.1.1.1.0",
        "$JS.API.STREAM.PURGE.RESULTS",
        # Batches: their files, and their jobs, submitted and cancelled as a gateway does.
        "files.t.f.0",
        "$KV.batches.t.b",
        "$JS.API.STREAM.PURGE.FILES",
        *_direct("FILES", "KV_batches", "KV_keys", "KV_workers", "KV_desired", "KV_serving"),
        *_leader("FILES", "KV_batches", "JOBS"),
        *_JOBS,
        "in.t.j.1",
        "refused.input",
        "st.j",
        "st.s.j",
        "cancel.j",
        # Queues: what they are to be, how they stand.
        *_direct("KV_queues", "KV_queuestates", "KV_queuemarks"),
        *_leader("KV_queuestates", "KV_queuemarks"),
        "$KV.queuestates.n",
        "$KV.queuemarks.n.source",
        *QUEUES,
    },
    "host": {
        *_info(),
        "$KV.hosts.h",
        *_direct("KV_workers", "KV_desired", "KV_hosts", "KV_caches"),
        *_leader("KV_duties"),
    },
    "gateway-queues": _OF_QUEUES,
    "outbound-queues": {
        *_OF_QUEUES,
        *(f"$JS.API.STREAM.{act}.{name}" for act in ("CREATE", "UPDATE", "DELETE") for name in STREAM_NAMES),
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.LIST",
    },
}
_HEARD_OF_QUEUES = {
    "evt.q.>",
    "watching.*",
    "ask.watch.*",
    "back.*.*.*",
    "$JS.ACK.Q_n_source.eas-hi.1.*.0.0.0",  # commits by index
    "$JS.ACK.*.*.1.*.0.0.0",
}
MAY_HEAR: dict[str, set[str]] = {
    "gateway": {
        "rsp.*.*",
        "evt.st.*",
        "evt.st.>",
        "_INBOX_gateway.>",
        *(f"evt.kv.{b}.>" for b in ("keys", "models", "workers", "desired", "serving", "hosts")),
        "evt.kv.subscriptions.>",
        "evt.kv.webhooks.>",
        *(f"evt.kv.{b}.>" for b in ("queues", "queuestates", "queuemarks")),
        "evt.results.*.*.*",
    },
    "worker": {*_WORKER_HEARS, "_INBOX_worker.>"},
    "worker-1": {*_WORKER_HEARS, "_INBOX_worker-1.>"},
    "worker-2": {*_WORKER_HEARS, "_INBOX_worker-2.>"},
    "console": {
        "used.keys",
        "alive.*",
        "ask.console.*",
        "evt.jobs.>",
        "evt.st.*",
        "evt.st.>",
        "evt.kv.>",
        *(f"evt.kv.{b}.>" for b in Bucket),
        "_INBOX_console.>",
    },
    "outbound": {
        "evt.st.*",
        "evt.st.>",
        *(f"evt.kv.{b}.>" for b in ("subscriptions", "webhooks", "hookstates", "models", "batches")),
        *(f"evt.kv.{b}.>" for b in ("keys", "workers", "desired", "serving")),
        *(f"evt.kv.{b}.>" for b in ("queues", "queuestates", "queuemarks")),
        "deliver.*",
        "ask.queue.*",
        "_INBOX_outbound.>",
    },
    "host": {
        "evt.jobs.>",
        "delayed.*",
        *(f"evt.kv.{b}.>" for b in ("workers", "desired", "hosts")),
        "_INBOX_host.>",
    },
    "gateway-queues": {*_HEARD_OF_QUEUES, "_INBOX_gateway-queues.>"},
    "outbound-queues": {*_HEARD_OF_QUEUES, "_INBOX_outbound-queues.>"},
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server with every role's user, and two workers that have one to themselves."""
    folder = tmp_path_factory.mktemp("rights")
    owner = ServerThread(folder)
    owner.server = server = NatsServer(folder, users=PASSWORDS, workers=GPUS)
    owner.call(server.start)
    try:
        asyncio.run(_lay(server))
        yield server
    finally:
        owner.close()


async def _lay(server: NatsServer) -> None:
    wire = Wire(nats_url=server.url, nats_user="admin", nats_password=PASSWORDS["admin"])
    bus = await Bus.connect(wire, role="admin")
    await topology.apply(bus)
    await bus.close()


@pytest.mark.parametrize("user", MAY_PUBLISH)
async def test_a_role_may_publish_its_own_subjects_and_no_other(guarded: NatsServer, user: str) -> None:
    tried = set(publishes())
    assert MAY_PUBLISH[user] <= tried
    # No reply subject: what is allowed is not answered, and JetStream's API does nothing without one to answer to.
    lines = [f"PUB {subject} 0\r\n\r\n".encode() for subject in sorted(tried)]
    denied = await refused(guarded, user, PASSWORDS[user], lines)
    assert tried - denied == MAY_PUBLISH[user]
    assert len(denied) > 250


@pytest.mark.parametrize("user", MAY_HEAR)
async def test_a_role_may_receive_its_own_subjects_and_no_other(guarded: NatsServer, user: str) -> None:
    tried = set(subscribes())
    assert MAY_HEAR[user] <= tried
    lines = [f"SUB {subject} {n}\r\n".encode() for n, subject in enumerate(sorted(tried), 1)]
    denied = await refused(guarded, user, PASSWORDS[user], lines)
    assert tried - denied == MAY_HEAR[user]


@pytest.mark.parametrize("user", USERS)
async def test_a_user_is_told_its_own_rights_and_they_are_the_declared_ones(guarded: NatsServer, user: str) -> None:
    wire = Wire(nats_url=guarded.url, nats_user=user, nats_password=PASSWORDS[user])
    role = "worker" if user in BOUND else user
    bus = await Bus.connect(wire, role=role)
    reported = (await bus.request_json(OWN_RIGHTS))["data"]["permissions"]
    declared = permissions(role, worker=user, gpus=GPUS[user]) if user in BOUND else permissions(user)
    assert set(reported["publish"]["allow"]) == set(declared.publish)
    assert set(reported["subscribe"]["allow"]) == set(declared.subscribe)
    await bus.close()


async def test_nobody_gets_in_without_a_password(guarded: NatsServer) -> None:
    for login in ({}, {"user": "admin", "pass": "wrong"}, {"user": "nobody", "pass": "x"}):
        reader, writer = await asyncio.open_connection(guarded.host, guarded.port)
        async with asyncio.timeout(60):
            await reader.readline()
            writer.write(b"CONNECT " + json.dumps(login).encode() + b"\r\nPING\r\n")
            assert b"Authorization Violation" in await reader.readline()
        writer.close()


def _matches(pattern: str, subject: str) -> bool:
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(given) >= len(wanted) and _matches(".".join(wanted[:-1]), ".".join(given[: len(wanted) - 1]))
    return len(wanted) == len(given) and all(w in {"*", g} for w, g in zip(wanted, given, strict=True))


@pytest.mark.parametrize("role", ["gateway", "worker", "console", "outbound", "gateway-queues", "outbound-queues"])
def test_every_right_a_role_has_is_tried_above(role: str) -> None:
    declared = permissions(role)
    for pattern in declared.publish:
        assert any(_matches(pattern, subject) for subject in MAY_PUBLISH[role]), pattern
    for pattern in declared.subscribe:
        assert pattern in MAY_HEAR[role], pattern


def test_a_role_nobody_declared_is_a_bug() -> None:
    with pytest.raises(Bug):
        permissions("intern")
