"""Backup of all that NATS keeps for us into a folder of files, and its restore. For operators: docs/operations.md.

Streams are saved one after another while everything runs, so their moments differ; the order makes that harmless
(ADR 0152). Keys that expire within seconds are not kept, only the last sequences of their buckets: fencing tokens are
such sequences, and no token may be given twice.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.ops import queuebackup, snapshots
from signalbox.ops.replicas import wait_current
from signalbox.ops.snapshots import SavedStream
from signalbox.program.errors import Misconfigured
from signalbox.program.words import counted
from signalbox.wire.assets import AGES, COUNTED, STREAMS
from signalbox.wire.names import Bucket, Stream

KEPT: Final = (
    Stream.JOBS,
    Stream.INPUTS,
    Stream.RESULTS,
    Stream.STATE,
    Stream.PAYLOADS,
    Stream.DLQ,
    Stream.DLQ_PARTS,
    Stream.AUDIT,
    *(b.stream for b in (Bucket.MODELS, Bucket.MANIFESTS, Bucket.DIGESTS, Bucket.SERVING)),
    *(b.stream for b in (Bucket.KEYS, Bucket.IDEM, Bucket.DESIRED, Bucket.POISON)),
    *(b.stream for b in (Bucket.SUBSCRIPTIONS, Bucket.WEBHOOKS, Bucket.HOOK_SECRETS, Bucket.HOOK_STATES)),
    Bucket.BATCHES.stream,
    Stream.FILES,
    *(b.stream for b in (Bucket.QUEUES, Bucket.QUEUE_MARKS, Bucket.QUEUE_STATES)),
    Stream.DELIVERIES,
    Stream.EVENTS,
)
"""Streams in the order of saving. A job that changes meanwhile is saved twice, which its record settles, never lost.

An input that is removed between the savings of ``JOBS`` and ``INPUTS`` is one of a job whose end ``STATE`` then holds.
An end that comes between those of ``RESULTS`` and ``STATE`` is written from its record; a chunk of a batch that comes
between those of ``BATCHES`` and ``FILES`` is found there.
"""
MANIFEST: Final = "backup.json"
WRITES_PER_S: Final = 1000
"""More writes than any of :data:`COUNTED` gets in a second, so that new sequences begin above all given since."""
_FORMAT: Final = 1
_MIB: Final = 1024 * 1024
_REPORT_EVERY_S: Final = 1.0

Say = Callable[[str], None]
"""Called with a line a person should read."""


class Backup(msgspec.Struct, frozen=True):
    """What is in a folder. taken_at: UTC unix seconds. counted: last sequence of each of :data:`COUNTED`.

    queues: streams of the account of queues, in the order of saving.
    """

    format: int
    taken_at: float
    server: str
    streams: tuple[SavedStream, ...]
    counted: dict[str, int]
    queues: tuple[SavedStream, ...] = ()


async def take(bus: Bus, folder: Path, say: Say, *, queue_bus: Bus | None = None) -> Backup:
    """Save everything into a new folder. Without its last file, the manifest, it is not a backup.

    queue_bus: to the account of queues, None = it is the same one. Raises :class:`Misconfigured` where the folder is
    not new, and as :func:`signalbox.ops.snapshots.save`.
    """
    topology.refuse_old(bus)
    if await queuebackup.are_any(bus):
        queuebackup.require_way(bus, queue_bus or bus)
    _make(folder)
    taken_at = time.time()
    of_queues = await queuebackup.save(queue_bus or bus, partial(_save, folder=folder, say=say))
    streams = [await _save(bus, name, folder=folder, say=say) for name in KEPT]
    last = {name: await _last(bus, name) for name in COUNTED}
    made = Backup(_FORMAT, taken_at, bus.server_version, tuple(streams), last, tuple(of_queues))
    _sign(folder, made)
    return made


async def restore(
    bus: Bus, folder: Path, say: Say, *, replicas: int | None = None, queue_bus: Bus | None = None
) -> Backup:
    """Put everything back into a NATS that has none of our streams. replicas: None = as it was.

    queue_bus: as :func:`take` has it. Returns when every copy is current. Raises :class:`Misconfigured` before anything
    is written where a file is damaged or a stream exists, and :class:`Unavailable` where copies do not come.
    """
    topology.refuse_old(bus)
    found = read(folder)
    of_queues = queue_bus or bus
    if found.queues:
        queuebackup.require_way(bus, of_queues)
    _refuse_any([*await _existing(bus), *await queuebackup.existing(of_queues)])
    copies = replicas or max(saved.config.get("num_replicas", 1) for saved in found.streams)
    for saved in found.queues:
        await _put_back(of_queues, queuebackup.for_nodes(saved, copies), folder=folder, say=say)
    await _count_on(bus, found, copies)
    # JOBS, saved first, comes last: before it nothing is accepted and nothing runs.
    for saved in reversed(found.streams):
        await _put_back(bus, _as_declared(saved, copies), folder=folder, say=say)
    say("waiting until every copy is current")
    await wait_current(bus, (*COUNTED, *KEPT), copies)
    for number in {saved.config["num_replicas"] for saved in found.queues}:
        same = [saved.name for saved in found.queues if saved.config["num_replicas"] == number]
        await wait_current(of_queues, same, min(number, copies))
    return found


def read(folder: Path) -> Backup:
    """The manifest of a backup whose every file is whole. Raises :class:`Misconfigured` naming what is not."""
    try:
        found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Backup)
    except (OSError, msgspec.MsgspecError) as error:
        raise Misconfigured(f"{folder} is not a whole backup: {MANIFEST}: {error}.") from error
    names = {saved.name for saved in found.streams}
    if found.format != _FORMAT or names != set(KEPT) or set(found.counted) != set(COUNTED):
        raise Misconfigured(f"{folder} was made by another version of Signalbox; restore it with that.")
    for saved in (*found.queues, *found.streams):
        if not snapshots.is_whole(saved, folder / _file(saved.name)):
            raise Misconfigured(f"{folder / _file(saved.name)} is damaged; take another backup.")
    return found


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise Misconfigured(f"{folder} cannot be made: {error.strerror}.") from error


def _sign(folder: Path, made: Backup) -> None:
    """The manifest, in one piece: there is none until everything else is on the disk."""
    unsigned = folder / f"{MANIFEST}.part"
    with unsigned.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(made)))
        file.flush()
        os.fsync(file.fileno())
    unsigned.rename(folder / MANIFEST)
    entries = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(entries)
    finally:
        os.close(entries)


async def _save(bus: Bus, name: str, *, folder: Path, say: Say) -> SavedStream:
    reported = _Progress(name, say)
    saved = await snapshots.save(bus, name, folder / _file(name), reported.add)
    say(f"{name}: {counted(saved.state['messages'], 'message')}, {reported}")
    return saved


async def _put_back(bus: Bus, saved: SavedStream, *, folder: Path, say: Say) -> None:
    reported = _Progress(saved.name, say)
    await snapshots.put_back(bus, saved, folder / _file(saved.name), reported.add)
    say(f"{saved.name}: {counted(saved.state['messages'], 'message')}, {reported}")


async def _existing(bus: Bus) -> list[str]:
    names = await bus.listed("$JS.API.STREAM.NAMES", "streams")
    return [name for name in (*KEPT, *COUNTED) if name in names]


def _refuse_any(there: Sequence[str]) -> None:
    if there:
        raise Misconfigured(
            f"NATS already has {', '.join(there)}, and nothing is restored over it. Give it an empty store folder "
            "(jetstream.store_dir), start it, and restore before any `signalbox topology apply`."
        )


async def _count_on(bus: Bus, found: Backup, replicas: int) -> None:
    """Make what is not kept anew, with numbers above all that were ever given."""
    now = time.time()
    gone_s = max(0.0, now - found.taken_at)
    for declared in STREAMS:
        name = declared["name"]
        if name in COUNTED:
            counted_on = found.counted[name] + int(gone_s * WRITES_PER_S) + 1
            first = max(counted_on, topology.numbers_from(now))  # as if lost and made again since
            config = topology.wanted(declared, replicas) | {"first_seq": first}
            await bus.request_json(f"$JS.API.STREAM.CREATE.{name}", config)


def _as_declared(saved: SavedStream, replicas: int) -> SavedStream:
    """For so many replicas and as this version declares it; only disk and age stay what the operator gave it."""
    own = {"max_bytes": saved.config["max_bytes"]}
    if saved.name in AGES:
        own |= {name: saved.config[name] for name in ("max_age", "duplicate_window")}
    (declared,) = (config for config in STREAMS if config["name"] == saved.name)
    return msgspec.structs.replace(saved, config=topology.wanted(declared, replicas) | own)


async def _last(bus: Bus, name: str) -> int:
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{name}")
    return int(info["state"]["last_seq"])


def _file(name: str) -> str:
    return f"{name}.tar.s2"


class _Progress:
    """Says every second how much of a stream has passed."""

    def __init__(self, name: str, say: Say) -> None:
        self._name = name
        self._say = say
        self._bytes = 0
        self._reported_at = time.monotonic()

    def __str__(self) -> str:
        return f"{self._bytes / _MIB:.1f} MiB"

    def add(self, size_bytes: int) -> None:
        """So much more."""
        self._bytes += size_bytes
        now = time.monotonic()
        if now - self._reported_at >= _REPORT_EVERY_S:
            self._reported_at = now
            self._say(f"{self._name}: {self} so far")
