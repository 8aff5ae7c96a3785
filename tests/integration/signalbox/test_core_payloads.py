"""Claim check: what is stored comes back byte for byte, or with a reason."""

import hashlib
import os

import pytest
from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.jobs.payloads import CHUNK_BYTES, fetch, store
from signalbox.program.errors import Bug, NotFound
from signalbox.wire.names import Stream, payload

JOB_ID = "00000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 9 * CHUNK_BYTES + 17])
async def test_what_is_stored_comes_back(bus: Bus, size: int) -> None:
    data = os.urandom(size)
    ref = await store(bus, "shop", JOB_ID, "out1", data)
    assert (ref.size, ref.chunks) == (size, max(1, -(-size // CHUNK_BYTES)))
    assert await fetch(bus, ref) == data


async def test_two_parts_of_one_job_do_not_mix(bus: Bus) -> None:
    one = await store(bus, "shop", JOB_ID, "out1", b"a" * 700_000)
    two = await store(bus, "shop", JOB_ID, "out2", b"b" * 700_000)
    assert await fetch(bus, one) == b"a" * 700_000
    assert await fetch(bus, two) == b"b" * 700_000


async def test_storing_again_stores_nothing_twice(bus: Bus) -> None:
    data = os.urandom(3 * CHUNK_BYTES)
    first = await store(bus, "shop", JOB_ID, "out1", data)
    assert await store(bus, "shop", JOB_ID, "out1", data) == first
    state = (await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.PAYLOADS}"))["state"]
    assert state["messages"] == 3


async def test_a_try_that_stored_only_a_later_chunk_is_gone_on_with(bus: Bus) -> None:
    data = os.urandom(2 * CHUNK_BYTES)
    subject = payload("shop", JOB_ID, "out1")
    later = f"{subject}.{hashlib.sha256(data).hexdigest()[:16]}.1"
    await bus.write(subject, data[CHUNK_BYTES:], headers={"Sb-Chunk": "1"}, msg_id=later)
    assert await fetch(bus, await store(bus, "shop", JOB_ID, "out1", data)) == data


async def test_an_aged_out_payload_is_not_found(bus: Bus) -> None:
    ref = await store(bus, "shop", JOB_ID, "out1", b"x" * 10)
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.PAYLOADS}")
    with pytest.raises(NotFound):
        await fetch(bus, ref)


async def test_a_damaged_payload_is_refused(bus: Bus) -> None:
    ref = await store(bus, "shop", JOB_ID, "out1", b"x" * 10)
    with pytest.raises(Bug, match="damaged"):
        await fetch(bus, replace(ref, sha256="0" * 64))
