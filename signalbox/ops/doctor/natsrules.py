"""Rules for nats-server: its configuration file, and a running server as its API and monitor show it."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from signalbox.bus import damage, storage, topology
from signalbox.bus.client import Bus
from signalbox.bus.storage import NEARLY_FULL
from signalbox.bus.transport.encryption import is_loopback
from signalbox.ops.doctor.catalog import Finding
from signalbox.ops.doctor.natsconf import Conf
from signalbox.program.errors import Bug, Misconfigured, SignalboxError
from signalbox.wire.assets import STREAMS
from signalbox.wire.names import Bucket, host_user, is_host_user
from signalbox.wire.outboundnames import account_of_reader
from signalbox.wire.queuenames import QUEUES_ACCOUNT
from signalbox.wire.roles import OWN_RIGHTS, USERS, Permissions, host_permissions, permissions, reader_permissions
from signalbox.wire.workerdocs import Worker

_TRUE: Final = frozenset({"true", "on", "yes", "1"})
_SYNC: Final = ("jetstream", "sync_interval")
_COPIES: Final = 3
_LAZY_COPIES: Final = (2, 15)
"""From this version on nats-server syncs a replicated stream with its Raft log, not with every write (ADR 0144)."""
_PROMISED: Final = 0.7
"""Most of the storage that streams may take: the rest is for buckets, indexes and the compaction of files."""


def examine_conf(conf: Conf, where: str) -> Iterator[Finding]:
    """Every weak line of a configuration file."""
    if conf.text(*_SYNC) != "always":
        yield Finding("nats.unsynced", where, f"sync_interval: {conf.text(*_SYNC) or 'the default'}")
    yield from _users(conf, where)
    if user := conf.text("no_auth_user"):
        yield Finding("nats.no_auth_user", where, user)
    for name in ("http", "http_port", "monitor_port", "https", "https_port"):
        if (text := conf.text(name)) and not is_loopback(text.rpartition(":")[0]):
            yield Finding("nats.monitor_exposed", where, f"{name}: {text}")
    yield from _links(conf, where)
    for name in ("trace", "trace_verbose", "debug", "logfile_trace"):
        if conf.text(name).lower() in _TRUE:
            yield Finding("nats.trace", where, f"{name}: {conf.text(name)}")
    if not conf.text("max_payload"):
        yield Finding("nats.no_limit", where, "max_payload is not set")
    if not conf.text("jetstream", "cipher"):
        yield Finding("nats.unencrypted", where, "jetstream has no cipher")


def _links(conf: Conf, where: str) -> Iterator[Finding]:
    """Findings about connections of clients and other nodes that may cross a network unencrypted."""
    listen = conf.text("listen") or conf.text("host") or conf.text("net") or "0.0.0.0"
    host = listen.rpartition(":")[0] if conf.text("listen") else listen
    if not is_loopback(host):
        if not conf.block("tls"):
            yield Finding("nats.client_plain", where, f"listens on {listen} without tls")
        elif conf.text("allow_non_tls").lower() in _TRUE:
            yield Finding("nats.client_plain", where, "allow_non_tls: true")
    if conf.block("cluster") and not _is_closed_to_strangers(conf):
        yield Finding("nats.cluster_open", where, "the cluster block lacks tls with verify")


def _is_closed_to_strangers(conf: Conf) -> bool:
    """Whether a node that joins the cluster must show a certificate, or a password that is never sent in the clear."""
    is_mutual = conf.text("cluster", "tls", "verify").lower() in _TRUE
    return bool(conf.block("cluster", "tls")) and (is_mutual or bool(conf.block("cluster", "authorization")))


def _users(conf: Conf, where: str) -> Iterator[Finding]:
    found = _listed(conf.get("authorization", "users"))
    for account in conf.block("accounts"):
        found += _listed(conf.get("accounts", account, "users"))
    if not found:
        yield Finding("nats.no_users", where, "neither an accounts block nor an authorization block with users")
    elif not conf.block("accounts", QUEUES_ACCOUNT.lower()):
        yield Finding("queues.one_account", where, f"no account {QUEUES_ACCOUNT}")
    elif not conf.text("accounts", QUEUES_ACCOUNT.lower(), "jetstream", "max_file"):
        yield Finding("queues.unbounded", where, f"account {QUEUES_ACCOUNT} has no max_file")
    for user in found:
        key, password = str(user.get("nkey", "")), str(user.get("password", ""))
        name = host_user(key) if key else str(user.get("user", ""))
        if password and not password.startswith(("$",)):
            yield Finding("nats.literal_password", where, f"user {name}")
        allowed = user.get("permissions")
        extra = beyond(name, allowed if isinstance(allowed, Mapping) else None)
        if extra:
            yield Finding("nats.too_much", where, f"user {name}: {', '.join(extra[:5])}")


def _listed(users: object) -> list[dict[str, Any]]:
    return [user for user in users if isinstance(user, dict)] if isinstance(users, list) else []


def beyond(user: str, given: "Mapping[str, Any] | None", role: str = "") -> list[str]:
    """Subjects a user may use that its role does not need; ``>`` stands for a user without any permissions."""
    wanted = declared(user, role)
    if wanted is None:
        return [] if given else [">"]
    if given is None:
        return [] if wanted.publish == (">",) else [">"]
    extra = []
    for side, needed in (("publish", wanted.publish), ("subscribe", wanted.subscribe)):
        extra += sorted(set(_subjects(given.get(side))) - set(needed))
    return extra


def declared(user: str, role: str = "") -> Permissions | None:
    """What a user of ours may do at most: its role, an account's reader, a host, a worker bound to itself.

    None for others.
    """
    if user in USERS:
        return permissions(role or user)
    if is_host_user(user):
        return host_permissions(user) if role in {"", "worker", "host"} else None
    account = account_of_reader(user)
    if account is not None and not role:
        return reader_permissions(account)
    bound = permissions("worker", worker=user)
    if role not in {"", "worker"}:
        return None
    return Permissions(bound.publish, bound.subscribe)


def _subjects(side: object) -> Sequence[str]:
    """Allowed subjects, in any of the forms nats-server takes; not limited at all = ``>``."""
    if side is None:
        return [">"]
    if isinstance(side, str):
        return [side]
    if isinstance(side, Mapping):
        return _subjects(side.get("allow")) if "allow" in side else [">"]
    return [str(subject) for subject in side] if isinstance(side, list | tuple) else [">"]


async def examine_server(bus: Bus, *, role: str) -> Iterator[Finding]:
    """Every weakness of the running server that its API shows to this user."""
    found: list[Finding] = []
    where = f"nats-server {bus.server_version}"
    try:
        topology.refuse_old(bus)
        faults = await topology.check(bus)
    except Misconfigured as error:
        return iter([Finding("nats.old", where, error.public_message)])
    found += [Finding("nats.streams_differ", where, fault) for fault in faults]
    found += await examine_rights(bus, where, role)
    found += await _copies(bus, where)
    found += await _filled(bus, where)
    found += [Finding("nats.damaged", where, f"{one.stream}: {one.what}") for one in await damage.find(bus)]
    return iter(found)


async def examine_rights(bus: Bus, where: str, role: str) -> list[Finding]:
    """What the user of a connection may do on the running server beyond what its role needs."""
    user = bus.settings.nats_user
    if not user:
        return []
    try:
        reported = (await bus.request_json(OWN_RIGHTS)).get("data", {})
    except SignalboxError as error:
        return [Finding("nats.other_rights", where, f"{user} may not ask: {error.public_message}")]
    try:
        extra = beyond(user, reported.get("permissions"), role)
    except Bug:
        extra = [">"]
    return [Finding("nats.other_rights", where, f"{user}: {', '.join(extra[:5])}")] if extra else []


async def _copies(bus: Bus, where: str) -> list[Finding]:
    single: list[str] = []
    several: list[str] = []
    for config in STREAMS:
        try:
            info = await bus.request_json(f"$JS.API.STREAM.INFO.{config['name']}")
        except SignalboxError:
            continue
        copies = info["config"].get("num_replicas", 1)
        (single if copies < _COPIES else several).append(str(config["name"]))
    found = []
    if single:
        found.append(Finding("nats.single_copy", where, f"one copy of {', '.join(single)}"))
    if several and topology.version(bus) >= _LAZY_COPIES:
        found.append(Finding("nats.lazy_copies", where, f"several copies of {', '.join(several)}"))
    return found


async def _filled(bus: Bus, where: str) -> list[Finding]:
    try:
        found = await storage.read(bus)
    except SignalboxError:
        return []  # a stream that is missing is told as that
    return [
        Finding("nats.nearly_full", where, f"{one.stream} holds {one.share:.0%} of its max_bytes")
        for one in found
        if one.share >= NEARLY_FULL
    ]


def examine_varz(varz: Mapping[str, Any], where: str) -> Iterator[Finding]:
    """What a server's monitor (``/varz``) shows of the configuration it really runs with."""
    config = (varz.get("jetstream") or {}).get("config") or {}
    if not config.get("sync_always"):
        yield Finding("nats.unsynced", where, f"sync_interval: {config.get('sync_interval', '?')}")
    host = str(varz.get("http_host", ""))
    if varz.get("http_port") and not is_loopback(host):
        yield Finding("nats.monitor_exposed", where, f"{host}:{varz['http_port']}")
    if not varz.get("auth_required"):
        yield Finding("nats.no_users", where, "it lets in every client")
    yield from _room(varz.get("jetstream") or {}, where)


def _room(jetstream: Mapping[str, Any], where: str) -> Iterator[Finding]:
    """What a node may store, and the disk it stores on where that is this machine's."""
    stats, config = jetstream.get("stats") or {}, jetstream.get("config") or {}
    most, used = int(config.get("max_storage", 0)), int(stats.get("storage", 0))
    if used >= NEARLY_FULL * most > 0:
        yield Finding("nats.nearly_full", where, f"JetStream holds {used / most:.0%} of max_file_store")
    folder = str(config.get("store_dir", ""))
    try:
        disk = shutil.disk_usage(folder)
    except OSError:
        pass
    else:
        full = disk.used / (disk.used + disk.free)
        if full >= NEARLY_FULL:
            yield Finding("nats.nearly_full", where, f"the disk of {folder} is {full:.0%} full")
        most = min(most or disk.total, disk.total)
    promised = int(stats.get("reserved_storage", 0))
    if promised > _PROMISED * most > 0:
        yield Finding("nats.overcommitted", where, f"streams may take {promised / most:.0%} of the storage")


def examine_workers(workers: Iterable[Worker]) -> Iterator[Finding]:
    """Findings about the sandboxes that workers report; a worker that reports none counts as having none."""
    for worker in workers:
        if not worker.sandbox and worker.state == "ready":
            yield Finding("worker.no_sandbox", f"{Bucket.WORKERS}/{worker.id}", "no layer is in force")
