"""Inputs above the inline limit: kept until their job has ended, bounded for all and for one account."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from signalbox.bus.client import Bus
from signalbox.jobs.records import Records
from signalbox.wire import names
from signalbox.wire.keydocs import Share
from signalbox.wire.messages import Job, State, decode, encode
from signalbox.wire.names import Header, Stream
from signalbox.wire.refused import RefusedInput
from signalbox.wire.tensors import Tensor
from tests.rigs import gateway
from tests.rigs.gateway import Key, Reply, Rig, ScriptedWorker, key, limits, model
from tests.rigs.natsserver import NatsServer
from workers.recovery.inputs import InputRemoval
from workers.recovery.reconciler import JobReconciler

MIB = 1024 * 1024
TWO_MB = json.dumps({"model": "half", "inputs": {"x": [1] * 500_000}}).encode()


@pytest.fixture
async def rig(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Rig]:
    async with gateway.rig(nats.url, tmp_path) as made:
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


async def stored(bus: Bus) -> int:
    """Chunks in ``INPUTS``."""
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.INPUTS}")
    return int(info["state"]["messages"])


class Ends:
    """The ends of jobs, as they are told. Enter it before the jobs may end."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._reported = await self._bus.subscribe("evt.st.>", lambda _: self._changed.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._reported.close()

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
        await shrink(rig.bus, stream, max_bytes=16 * MIB)
    ours, theirs = key(), key()
    await rig.publish(ours, theirs)
    accepted = await submit(rig, ours)
    assert accepted.status == 202
    replies = [await submit(rig, theirs) for _ in range(30)]
    taken = [reply.doc["id"] for reply in replies if reply.status == 202]
    async with Ends(rig.bus) as ends, ScriptedWorker(rig.bus, "half", short):
        for job_id in (accepted.doc["id"], *taken):
            assert await ends.of(job_id) is State.SUCCEEDED
    assert {reply.status for reply in replies} <= {202, 429, 503}
    assert len(taken) < len(replies)


async def test_an_input_is_its_account_s_and_no_age_takes_it(rig: Rig) -> None:
    ours = key(account_id="acme corp.")
    await rig.publish(ours)
    job_id = (await submit(rig, ours)).doc["id"]
    queued = await Records(rig.bus).queued(job_id)
    assert queued is not None
    ref = decode(Job, queued.headers[Header.JOB]).ref
    assert ref is not None
    assert ref.subject == f"in.acme=20corp=2E.{job_id}.{ref.size}"
    config = (await rig.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.INPUTS}"))["config"]
    assert (config["discard"], config.get("max_age", 0)) == ("new", 0)


async def test_an_account_is_held_to_its_share_and_another_is_not(rig: Rig) -> None:
    ours = [key(account_id="ours", share=Share(stored_bytes=5_000_000)) for _ in range(2)]
    theirs = key(account_id="theirs")
    await rig.publish(*ours, theirs)
    taken = [(await submit(rig, ours[n % 2])).doc["id"] for n in range(2)]
    refused = await submit(rig, ours[0])
    assert refused.status == 429
    assert refused.doc["code"] == "limit_exceeded"
    assert "4000" in refused.doc["detail"]
    assert "wait until jobs have ended" in refused.doc["detail"]
    assert int(refused.headers["Retry-After"]) >= 1
    small = await rig.call("POST", "/v1/jobs", {"model": "half", "inputs": {"x": [1.0]}}, key=ours[0])
    assert small.status == 202, "an input in the job's own message takes no room here"
    assert (await submit(rig, theirs)).status == 202
    async with Ends(rig.bus) as ends, ScriptedWorker(rig.bus, "half", short):
        for job_id in taken:
            await ends.of(job_id)
    await rig.bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.INPUTS}", {"filter": names.job_inputs("ours")})
    async with asyncio.timeout(60):
        while (await submit(rig, ours[0])).status != 202:
            pass


async def test_what_is_refused_to_one_account_counts_for_no_other(rig: Rig) -> None:
    ours, theirs = key(account_id="ours", share=Share(stored_bytes=1)), key()
    await rig.publish(ours, theirs)
    stored_inputs = rig.gateway._acceptance._submitter._stored
    for _ in range(4):
        assert (await submit(rig, ours)).status == 429
    assert stored_inputs._all.held("") == 0
    assert (await submit(rig, theirs)).status == 202


async def test_the_setting_is_the_share_of_an_account_without_one(nats: NatsServer, tmp_path: Path) -> None:
    async with gateway.rig(nats.url, tmp_path, max_stored_bytes=3_000_000) as rig:
        ours = key()
        await rig.publish(model("half"), ours)
        assert [(await submit(rig, ours)).status for _ in range(2)] == [202, 429]


async def test_when_all_the_room_is_taken_it_is_our_failure(rig: Rig) -> None:
    await shrink(rig.bus, Stream.INPUTS, max_bytes=10 * MIB)
    keys = [key(share=Share(stored_bytes=100 * MIB)) for _ in range(6)]
    await rig.publish(*keys)
    replies = [await submit(rig, whose) for whose in keys]
    assert [reply.status for reply in replies] == [202] * 4 + [503] * 2
    assert "All room for the inputs of waiting jobs is taken" in replies[-1].doc["detail"]
    assert int(replies[-1].headers["Retry-After"]) >= 1
    assert await stored(rig.bus) == 4 * 4, "nothing of a refused input is left"


async def test_two_gateways_do_not_pass_an_account_s_share_together(nats: NatsServer, tmp_path: Path) -> None:
    """By no more than an eighth of it and what both write at the same moment."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    async with gateway.rig(nats.url, tmp_path / "one") as one, gateway.rig(nats.url, tmp_path / "other") as other:
        ours = key(share=Share(stored_bytes=20_100_000))
        await one.publish(model("half"), ours)
        await gateway.holds(other.gateway._keys, lambda: other.gateway._keys.get(ours.stored.id))
        await gateway.holds(other.gateway._models, lambda: other.gateway._models.get("half"))
        statuses = [(await submit(rig, ours)).status for _ in range(8) for rig in (one, other)]
    assert statuses.count(202) in {10, 11}
    assert set(statuses) == {202, 429}


@pytest.fixture
async def reconciler(rig: Rig) -> AsyncIterator[JobReconciler]:
    """That of a worker, after its first turn."""
    made = JobReconciler(rig.bus, Records(rig.bus), workers=list, models=dict, worker="w", boot="w", settled_s=-60.0)
    await made.turn()
    yield made
    await made.close()


async def test_the_input_of_a_job_that_the_queue_refused_goes_with_the_next_turn(
    rig: Rig, reconciler: JobReconciler
) -> None:
    ours, theirs = key(), key()
    await rig.publish(ours, theirs)
    accepted = await submit(rig, theirs)
    await shrink(rig.bus, Stream.JOBS, max_msgs=1)
    assert (await submit(rig, ours)).status in {429, 503}
    assert await stored(rig.bus) == 2 * 4
    await reconciler.turn()
    assert await stored(rig.bus) == 4
    async with Ends(rig.bus) as ends, ScriptedWorker(rig.bus, "half", short):
        assert await ends.of(accepted.doc["id"]) is State.SUCCEEDED


async def test_a_refused_submission_may_be_tried_again_at_once(rig: Rig, reconciler: JobReconciler) -> None:
    """By its Idempotency-Key it is the same job, so the same input; what goes is what the refused try stored."""
    ours = key()
    await rig.publish(ours)
    await rig.call("POST", "/v1/jobs", {"model": "half", "inputs": {"x": [1.0]}}, key=ours)
    retried = partial(rig.call, "POST", "/v1/jobs", TWO_MB, key=ours, headers={"Idempotency-Key": "once"})
    await shrink(rig.bus, Stream.JOBS, max_msgs=1)
    assert (await retried()).status in {429, 503}
    await shrink(rig.bus, Stream.JOBS, max_msgs=1_000_000)
    reported = InputRemoval._remove_orphan
    accepted: list[Reply] = []

    async def retry_first(self: InputRemoval, subject: str, last_seq: int) -> bool:
        """The reconciler has judged, and the caller is faster than its removal."""
        judged = await self._is_orphan(subject)
        accepted.append(await retried())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self, "_is_orphan", lambda _: asyncio.sleep(0, judged))
            return await reported(self, subject, last_seq)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InputRemoval, "_remove_orphan", retry_first)
        await reconciler.turn()
    assert [reply.status for reply in accepted] == [202]
    assert await stored(rig.bus) == 4
    async with Ends(rig.bus) as ends, ScriptedWorker(rig.bus, "half", short):
        assert await ends.of(accepted[0].doc["id"]) is State.SUCCEEDED


@pytest.mark.parametrize(
    "reported",
    [b"no json", b'{"subject":"in.*.*.*","last_seq":9999}', b'{"subject":"in.>","last_seq":9999}', b"x" * 4_000],
)
async def test_nothing_but_one_refused_input_can_be_told_away(
    rig: Rig, reconciler: JobReconciler, reported: bytes
) -> None:
    ours = key()
    await rig.publish(ours)
    accepted = (await submit(rig, ours)).doc["id"]
    info = await rig.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.INPUTS}", {"subjects_filter": names.job_inputs()})
    (subject,) = info["state"]["subjects"]
    assert names.job_of_input(subject) == accepted
    mine = encode(RefusedInput(subject=subject, last_seq=1 << 40))
    for body in (reported, mine):
        await rig.bus.publish(names.INPUT_REFUSED, body)
    await rig.bus.flush()
    await reconciler.turn()
    assert await stored(rig.bus) == 4
