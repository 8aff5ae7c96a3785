"""Clean streams for the next test on a server that many tests share."""

import asyncio
import contextlib
from typing import Any, Final

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.jobs import delivery
from signalbox.program.errors import NotFound
from signalbox.program.settings import Wire
from signalbox.wire.assets import STREAMS
from signalbox.wire.names import Bucket, Priority, Stream

PATIENT_S: Final = 30.0
"""Request timeout of a test's own connections: a disk that others use takes seconds now and then."""
_DECLARED: Final = {each["name"]: each for each in STREAMS}
_SOURCES: Final = (Bucket.LEASES, Bucket.WAITERS)
"""Buckets that ``EVENTS`` reads."""
_SENTINEL: Final = "clean"
"""Key of their last entry: once it has come to ``EVENTS``, all before it has."""
_SOURCED_S: Final = 2.0
_NOT_PURGED: Final = frozenset({Stream.PAYLOADS, Stream.INPUTS, Stream.AUDIT})
"""A purge leaves the ids of messages, which a later test may write again; the last one takes none."""


async def make_clean(bus: Bus) -> None:
    """Empty every declared stream and bucket and delete its consumers; sequences go on.

    Made anew is what is not as declared, and what a purge would not empty of all that it knows.
    """
    found = {each["config"]["name"]: each for each in await bus.listed("$JS.API.STREAM.LIST", "streams")}
    faulty = {name for name, info in found.items() if not _is_as_declared(info)}
    kept = {name: info["state"] for name, info in found.items() if name not in faulty}
    await asyncio.gather(*(_delete_consumers(bus, name) for name, state in kept.items() if state["consumer_count"]))
    holding = {name for name, state in kept.items() if state["messages"]}
    history = {Stream.EVENTS.value, *(bucket.stream for bucket in _SOURCES)}
    if holding & history:
        holding -= history
        if history <= kept.keys() and await _sourced(bus):
            holding |= history
        else:
            faulty |= history & kept.keys()
    await asyncio.gather(*(bus.request_json(f"$JS.API.STREAM.PURGE.{name}") for name in holding))
    for name in faulty:
        await bus.request_json(f"$JS.API.STREAM.DELETE.{name}")
    if faulty or kept.keys() != _DECLARED.keys():
        await topology.apply(bus)


def _is_as_declared(info: dict[str, Any]) -> bool:
    config = info["config"]
    declared = _DECLARED.get(config["name"])
    if declared is None or (config["name"] in _NOT_PURGED and info["state"]["last_seq"]):
        return False
    wanted = topology.wanted(declared, 1) | topology._ages(declared["name"], Wire())
    return not topology.differences(wanted, config)


async def _delete_consumers(bus: Bus, stream: str) -> None:
    for name in await bus.listed(f"$JS.API.CONSUMER.NAMES.{stream}", "consumers"):
        with contextlib.suppress(NotFound):  # it has been idle for its time
            await bus.request_json(f"$JS.API.CONSUMER.DELETE.{stream}.{name}")


async def _sourced(bus: Bus) -> bool:
    """Whether ``EVENTS`` has read all that its buckets hold; false where it does not read one."""
    for bucket in _SOURCES:
        await bus.write(f"$KV.{bucket}.{_SENTINEL}")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SOURCED_S):
            for bucket in _SOURCES:
                while await bus.leader_get(Stream.EVENTS, f"evt.kv.{bucket}.{_SENTINEL}") is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            return True
    return False


async def last_sequence(bus: Bus, stream: Stream | str) -> int:
    """Of the last message that the stream was given."""
    return int((await bus.request_json(f"$JS.API.STREAM.INFO.{stream}"))["state"]["last_seq"])


async def counted(bus: Bus, model: str, priority: Priority, *, waiting: int, generation: int = 0) -> None:
    """Return when a class's consumer counts so many: it follows the acknowledgement of a write, by milliseconds.

    Of a consumer that nobody asks for jobs meanwhile: another count may be all that there ever is.
    """
    async with asyncio.timeout(60):
        while (await delivery.find(bus, model, priority, generation)).num_pending != waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
