"""Creating and checking what :mod:`signalbox.wire.assets` declares on a running NATS.

``apply`` makes the server be as declared, and may be repeated. ``check`` names each difference in words. Programs call
``require`` when they start and refuse to run on anything else.
"""

import asyncio
import re
from typing import Any, Final

from signalbox.bus.client import Bus
from signalbox.program.errors import Misconfigured, NotFound, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire.assets import (
    AGES,
    DUPLICATE_WINDOW,
    SECOND,
    SHARES,
    STORAGE_BYTES,
    STREAMS,
    Config,
)
from signalbox.wire.names import Bucket, Stream

OLDEST: Final = (2, 12)
REMEMBERED: Final = frozenset({Stream.STATE.value, Bucket.LEASES.stream})
"""Streams whose revisions and tokens programs remember: where one was lost, every program must start anew."""
_SOURCES_TIMEOUT_S: Final = 15.0
_SOURCES_PAUSE_S: Final = 0.02
_NEW: Final = frozenset({"created", "numbered"})
_PARKED: Final = "parked"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


async def apply(bus: Bus, replicas: int = 1, *, storage_bytes: int = STORAGE_BYTES, first_seq: int = 0) -> list[str]:
    """Create what is missing and change what differs; returns what was done, one phrase each.

    Idempotent. replicas: 1 on a single server, 3 on a cluster. storage_bytes: disk that all streams share. first_seq:
    where a stream that has no number yet begins (:func:`numbers_from`); 0 = at 1. How long streams keep what they hold
    is as the bus's settings say. Raises :class:`Misconfigured` for a server that is too old or that refuses a change.
    """
    refuse_old(bus)
    done, made = [], set()
    for declared in STREAMS:
        config = wanted(declared, replicas, storage_bytes) | _ages(declared["name"], bus.settings)
        name = config["name"]
        if act := await _declare(bus, config, first_seq):
            done.append(f"{act} {name}")
        if act in _NEW:
            made.add(name)
        elif made.intersection(source["name"] for source in config["sources"]):
            # The server asks for a source that it has once missed only now and then.
            found = (await bus.request_json(f"$JS.API.STREAM.INFO.{name}"))["config"]
            await bus.request_json(f"$JS.API.STREAM.UPDATE.{name}", found | {"sources": []})
            await bus.request_json(f"$JS.API.STREAM.UPDATE.{name}", found)
            done.append(f"connected {name}")
    await _sources_connected(bus)
    return done


async def check(bus: Bus) -> list[str]:
    """Every difference between the server and the declaration, one sentence each; empty = as declared."""
    refuse_old(bus)
    faults = []
    for declared in STREAMS:
        name = declared["name"]
        info = await stream_info(bus, name)
        if info is None:
            faults.append(f"stream {name} does not exist")
            continue
        found = info["config"]
        config = wanted(declared, found.get("num_replicas", 1))
        if found.get("max_bytes", -1) > 0:
            del config["max_bytes"]  # how much disk there is, is the operator's to say
        if name in AGES and found.get("max_age", 0) > 0:
            config |= _aged(found["max_age"])  # and how long these are kept
        faults += differences(config, found)
    return faults


async def last_sequences(bus: Bus) -> dict[str, int]:
    """The last sequence of each existing stream whose first one ``apply`` sets; 0 = the stream has lost even that."""
    found = {}
    for declared in STREAMS:
        info = await stream_info(bus, declared["name"])
        if info is not None and declared["subjects"]:
            found[declared["name"]] = int(info["state"]["last_seq"])
    return found


async def require(bus: Bus) -> None:
    """Refuse to run on a server configured otherwise: raises :class:`Misconfigured` naming each difference."""
    faults = await check(bus)
    if faults:
        raise Misconfigured(
            f"NATS is not configured as declared: {'; '.join(faults)}. Run: signalbox topology apply", faults=faults
        )


def numbers_from(now: float) -> int:
    """The first sequence of a stream made at ``now`` (UTC unix seconds): ``now`` in microseconds.

    It is above every sequence that a stream of that name ever gave, without a record of them, as no stream is written
    to a million times a second. So no fencing token and no revision goes backwards when a stream was lost (ADR 0022).
    """
    return int(now * 1_000_000)


def version(bus: Bus) -> tuple[int, int]:
    """Major and minor of the connected server; zeros where it says none."""
    found = _VERSION.match(bus.server_version)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def refuse_old(bus: Bus) -> None:
    """Raise :class:`Misconfigured` for a server older than :data:`OLDEST`."""
    if version(bus) < OLDEST:
        raise Misconfigured(
            f"NATS server {bus.server_version} is too old: Signalbox needs {OLDEST[0]}.{OLDEST[1]} or newer."
        )


def wanted(declared: Config, replicas: int, storage_bytes: int = STORAGE_BYTES) -> Config:
    """A declaration for a cluster of this many replicas, with its share of the disk.

    Only ``EVENTS`` may delay its disk syncs, and only where it has no replicas: no decision depends on it, and a
    synced write per renewed lease would take disk time away from jobs.
    """
    config = declared | {"num_replicas": replicas}
    share = SHARES.get(config["name"])
    if share is not None:
        config["max_bytes"] = int(storage_bytes * share)
    if config["name"] == Stream.EVENTS and replicas == 1:
        config["persist_mode"] = "async"
    return config


def _ages(name: str, settings: Wire) -> Config:
    """How long a stream keeps what it holds, where that is a setting."""
    if name not in AGES:
        return {}
    field, times = AGES[name]
    return _aged(round(getattr(settings, field) * times * SECOND))


def _aged(max_age: int) -> Config:
    """The age limits of a stream: the server remembers message ids no longer than messages."""
    return {"max_age": max_age, "duplicate_window": min(DUPLICATE_WINDOW, max_age)}


def _still_held(config: Config, info: dict[str, Any]) -> Config:
    """The configuration with room for all that the stream holds: a smaller size would remove the oldest messages."""
    most: int = info["config"].get("max_bytes", -1)
    if not 0 < config["max_bytes"] < most:
        return {}
    return {"max_bytes": min(most, max(config["max_bytes"], info["state"]["bytes"]))}


async def _sources_connected(bus: Bus) -> None:
    """Return when ``EVENTS`` reads all its sources: it misses what is overwritten before that.

    The server connects them some hundred milliseconds after it made the stream and does not report it, so this polls.
    """
    try:
        async with asyncio.timeout(_SOURCES_TIMEOUT_S):
            while True:
                info = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.EVENTS}")
                if all(source.get("active", -1) >= 0 for source in info.get("sources", [])):
                    return
                await asyncio.sleep(_SOURCES_PAUSE_S)
    except TimeoutError:
        raise Unavailable("EVENTS does not read its sources; is a stream without a leader?") from None


async def _declare(bus: Bus, config: Config, first_seq: int) -> str:
    """Make one stream as declared; returns what was done, empty for nothing."""
    name = config["name"]
    info = await stream_info(bus, name)
    if info is None:
        await _create(bus, config, {}, first_seq)
        return "created"
    found = info["config"]
    if first_seq and _is_numbered(config) and not info["state"]["last_seq"]:
        await _create(bus, config, found, first_seq)
        return "numbered"
    config = config | _still_held(config, info)
    if differences(config, found):
        await bus.request_json(f"$JS.API.STREAM.UPDATE.{name}", found | config)
        return "changed"
    return ""


def _is_numbered(config: Config) -> bool:
    """Whether a stream's first sequence is set, by a purge. ``AUDIT``, which no purge may touch, has numbers of its
    own."""
    return bool(config["subjects"]) and not config.get("deny_purge")


async def _create(bus: Bus, config: Config, found: Config, first_seq: int) -> None:
    """Make a stream whose sequences begin at ``first_seq``, or set that beginning of an empty one.

    Until its first sequence is set it listens to a subject that no program writes to: no message can come between. It
    is not made with ``first_seq`` in its configuration: where only ``meta.inf`` was lost, the server finds the messages
    again when the stream is made, and would throw them away for that.
    """
    name = config["name"]
    if first_seq and _is_numbered(config):
        act = "UPDATE" if found else "CREATE"
        parked = found | config | {"subjects": [f"{_PARKED}.{name}"], "sources": []}
        info = await bus.request_json(f"$JS.API.STREAM.{act}.{name}", parked)
        if not info["state"]["last_seq"]:
            await bus.request_json(f"$JS.API.STREAM.PURGE.{name}", {"seq": first_seq})
        await bus.request_json(f"$JS.API.STREAM.UPDATE.{name}", info["config"] | config)
    else:
        await bus.request_json(f"$JS.API.STREAM.CREATE.{name}", config)


async def stream_info(bus: Bus, name: str) -> dict[str, Any] | None:
    """What the server tells of a stream; None where there is none. Raises as :meth:`Bus.request_json`."""
    try:
        return await bus.request_json(f"$JS.API.STREAM.INFO.{name}")
    except NotFound:
        return None


def differences(config: Config, found: Config) -> list[str]:
    """Where a stream as it was found differs from its declaration, one phrase a field."""
    return [
        f"{config['name']}: {field} is {_shown(found.get(field))}, declared {_shown(value)}"
        for field, value in sorted(config.items())
        if not _is_same(found.get(field), value)
    ]


def _is_same(found: Any, declared: Any) -> bool:
    """Whether two configurations are equal to the server, which leaves out false, zero and empty values and adds
    derived ones."""
    if not declared:
        return not found
    if isinstance(declared, dict):
        return isinstance(found, dict) and all(_is_same(found.get(k), v) for k, v in declared.items())
    if isinstance(declared, list):
        return (
            isinstance(found, list)
            and len(found) == len(declared)
            and all(_is_same(f, d) for f, d in zip(found, declared, strict=True))
        )
    return bool(found == declared)


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)
