"""Inputs above the inline limit: kept until their job has ended, whoever stores beside it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest

from signalbox import names
from signalbox.bus import Bus
from signalbox.messages import Job, State, decode
from signalbox.names import Header, Stream
from signalbox.natsserver import NatsServer
from signalbox.records import Records
from signalbox.tensors import Tensor
from tests import gatewayrig
from tests.gatewayrig import Key, Reply, Rig, ScriptedWorker, key, limits, model

MIB = 1024 * 1024
TWO_MB = json.dumps({"model": "half", "inputs": {"x": [1] * 500_000}}).encode()


@pytest.fixture
async def rig(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Rig]:
    async with gatewayrig.rig(nats.url, tmp_path) as made:
        await made.publish(model("half", limits=limits(max_queue=10_000)))
        yield made


def short(_: object) -> list[Tensor]:
    """A small result, quickly, whatever went in."""
    return [Tensor("y", "float32", (1,), bytes(4))]


async def shrink(bus: Bus, stream: str, **config: Any) -> None:
    found = (await bus.request_json(f"$JS.API.STREAM.INFO.{stream}"))["config"]
    await bus.request_json(f"$JS.API.STREAM.UPDATE.{stream}", found | config)


async def submit(rig: Rig, whose: Key) -> Reply:
    return await rig.call("POST", "/v1/jobs", TWO_MB, key=whose)


class Ends:
    """The ends of jobs, as they are told. Enter it before the jobs may end."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._told = await self._bus.subscribe("evt.st.*", lambda _: self._changed.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._told.close()

    async def of(self, job_id: str) -> State:
        async with asyncio.timeout(60):
            while True:
                self._changed.clear()
                found = await Records(self._bus).read(job_id)
                if found is not None and found[0].state.is_terminal:
                    return found[0].state
                await self._changed.wait()


async def test_a_neighbour_s_bodies_take_no_accepted_job_s_input_away(rig: Rig) -> None:
    for stream in (Stream.PAYLOADS, Stream.INPUTS):
        await shrink(rig.bus, stream, max_bytes=64 * MIB)
    ours, theirs = key(), key()
    await rig.publish(ours, theirs)
    accepted = await submit(rig, ours)
    assert accepted.status == 202
    replies = [await submit(rig, theirs) for _ in range(120)]
    taken = [reply.doc["id"] for reply in replies if reply.status == 202]
    async with Ends(rig.bus) as ends, ScriptedWorker(rig.bus, "half", short):
        for job_id in (accepted.doc["id"], *taken):
            assert await ends.of(job_id) is State.SUCCEEDED
    assert 0 < len(taken) < len(replies)


async def test_an_input_is_its_account_s_and_no_age_takes_it(rig: Rig) -> None:
    ours = key(tenant="acme corp.")
    await rig.publish(ours)
    job_id = (await submit(rig, ours)).doc["id"]
    queued = await rig.bus.leader_get(Stream.JOBS, names.job("half", "mid", job_id))
    assert queued is not None
    ref = decode(Job, queued.headers[Header.JOB]).ref
    assert ref is not None
    assert ref.subject == f"in.acme=20corp=2E.{job_id}.{ref.size}"
    config = (await rig.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.INPUTS}"))["config"]
    assert (config["discard"], config.get("max_age", 0)) == ("new", 0)
