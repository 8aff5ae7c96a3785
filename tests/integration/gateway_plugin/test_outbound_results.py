"""Ends of jobs that somebody is subscribed to come to RESULTS, each once, whatever happens to the followers."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial

import msgspec
import pytest

from gateway_plugin.outbound import follower as following
from gateway_plugin.outbound import gauges
from gateway_plugin.outbound.duty import Duty
from gateway_plugin.outbound.follower import follow
from gateway_plugin.outbound.settings import OutboundSettings
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.table import remove
from signalbox.jobs import deletion, life, payloads
from signalbox.program.metrics import REGISTRY
from signalbox.program.settings import Wire
from signalbox.wire import names, outboundnames, tensors
from signalbox.wire.messages import ErrorInfo, State, decode, encode
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.outbound import Delivery, End
from signalbox.wire.tensors import Tensor
from tests.rigs.ends import EndsRig
from tests.rigs.natsserver import NatsServer
from tests.rigs.streams import PATIENT_S
from tests.rigs.submit import floats


@pytest.fixture
async def rig(bus: Bus, nats: NatsServer) -> AsyncIterator[EndsRig]:
    async with EndsRig.on(bus, nats.url) as made:
        yield made


async def test_an_end_comes_as_json_with_the_outputs_in_the_form_that_was_asked_for(rig: EndsRig) -> None:
    await rig.subscribe(account_id="test")
    await rig.follow()
    job = await rig.ended(tags=("night",), trace="00-1-2-01")
    columnar = await rig.ended(
        tensors.encode([Tensor("a", "int32", (), b"\1\0\0\0"), Tensor("b", "int32", (), bytes(4))]), style="columnar"
    )
    failed = await rig.ended(error="No such thing.")
    await rig.ended(account_id="another")
    ends = {end.request_id: end for end in await rig.until(3)}
    await rig.until_past(await rig.ended(account_id="another"))
    assert {stored.subject for stored in await rig.stored()} == {
        outboundnames.result("test", "half", one.id) for one in (job, columnar, failed)
    }
    end = ends[job.id]
    assert (end.prediction, end.state, end.account, end.model, end.version) == (
        [0.5, 1.5],
        "succeeded",
        "test",
        "half",
        1,
    )
    assert (end.tags, end.trace, end.attempt, end.outputs, end.error) == (("night",), "00-1-2-01", 1, None, None)
    assert end.created_at <= end.finished_at
    assert ends[columnar.id].prediction == {"a": 1, "b": 0}
    assert ends[failed.id].error == ErrorInfo(code="model_error", message="No such thing.")
    assert ends[failed.id].state is State.FAILED
    assert ends[failed.id].prediction is None


async def test_outputs_above_the_bound_are_named_where_they_lie(rig: EndsRig) -> None:
    await rig.subscribe()
    await rig.follow(inline_bytes=100)
    bodies = [floats(*range(size), name="y") for size in (200, 100_000)]
    jobs = [await rig.ended(body) for body in bodies]
    ends = {end.request_id: end for end in await rig.until(2)}
    for job, body in zip(jobs, bodies, strict=True):
        outputs = ends[job.id].outputs
        assert outputs is not None
        assert (outputs.stream, outputs.ref.subject.split(".")[:3]) == ("PAYLOADS", ["pl", "test", job.id])
        assert await payloads.fetch(rig.bus, outputs.ref) == body
        assert ends[job.id].prediction is None


async def test_nothing_is_written_or_read_where_nobody_subscribes(rig: EndsRig) -> None:
    before = await rig.ended()
    await rig.follow()
    async with asyncio.timeout(60):
        while not (await rig.position()).at:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not (await rig.position()).is_watched
    info = await rig.bus.request_json("$JS.API.STREAM.INFO.STATE")
    assert info["state"]["consumer_count"] == 0
    await rig.subscribe("off", is_enabled=False)
    await rig.subscribe(model="half")
    job = await rig.ended()
    ends = await rig.until(1)
    assert [end.request_id for end in ends] == [job.id] != [before.id]
    await remove(rig.bus, Bucket.SUBSCRIPTIONS, "s")
    async with asyncio.timeout(60):
        while (await rig.position()).is_watched:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await rig.ended()
    assert len(await rig.stored()) == 1


async def test_a_follower_that_ends_tells_of_no_lag(rig: EndsRig) -> None:
    await rig.subscribe()
    follower = await rig.follow()
    await rig.until_past(await rig.ended())
    gauges.FOLLOWER_LAG.set(20_000)  # it was behind when its lease was lost
    await rig.stop(follower)
    assert REGISTRY.get_sample_value("signalbox_outbound_follower_lag") == 0


async def test_ends_from_the_subscription_on_come_though_the_program_ran_later(rig: EndsRig) -> None:
    await rig.ended()
    await rig.subscribe()
    jobs = [await rig.ended() for _ in range(3)]
    await rig.follow()
    assert [end.request_id for end in await rig.until(3)] == [job.id for job in jobs]


async def test_a_killed_follower_is_followed_by_another_and_each_end_comes_once(
    rig: EndsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SWEEP", 20)
    monkeypatch.setattr(following, "KEPT_EVERY_S", 0.05)
    await rig.subscribe()
    jobs = [await rig.ended() for _ in range(60)]
    for number in (5, 25, 45):
        task = await rig.follow()
        await rig.until(number)
        await rig.kill(task)
        jobs += [await rig.ended() for _ in range(20)]
    last = await rig.follow()
    await rig.until(len(jobs))
    await rig.until_past(jobs[-1])
    await rig.stop(last)
    stored = await rig.stored()
    assert sorted(one.subject for one in stored) == sorted(outboundnames.result("test", "half", job.id) for job in jobs)
    info = await rig.bus.request_json("$JS.API.STREAM.INFO.RESULTS")
    assert info["state"]["last_seq"] - info["state"]["first_seq"] + 1 == len(jobs)  # none was written a second time


async def test_two_followers_at_once_write_each_end_once(rig: EndsRig) -> None:
    await rig.subscribe()
    for _ in range(2):
        await rig.follow()
    jobs = [await rig.ended() for _ in range(100)]
    await rig.until(len(jobs))
    info = await rig.bus.request_json("$JS.API.STREAM.INFO.RESULTS")
    assert info["state"]["last_seq"] - info["state"]["first_seq"] + 1 == len(jobs)


async def test_of_two_copies_of_the_program_one_writes_and_the_other_takes_over(rig: EndsRig, nats: NatsServer) -> None:
    await rig.subscribe()
    writes: list[int] = []
    buses = [await Bus.connect(rig.wire, role="outbound") for _ in range(2)]

    async def work(number: int) -> None:
        writes.append(number)
        await follow(buses[number], OutboundSettings(nats_url=nats.url))

    duties = [
        Duty(buses[number], "results", partial(work, number), owner=f"copy {number}", boot=str(number), ttl_s=1)
        for number in range(2)
    ]
    copies = [asyncio.create_task(duty.keep()) for duty in duties]
    try:
        jobs = [await rig.ended() for _ in range(20)]
        await rig.until(20)
        (first,) = set(writes)
        await buses[first].close()  # it dies without giving its lease up
        copies[first].cancel()
        jobs += [await rig.ended() for _ in range(20)]
        ends = await rig.until(40)
        assert set(writes) == {0, 1}
        assert sorted(end.request_id for end in ends) == sorted(job.id for job in jobs)
        info = await rig.bus.request_json("$JS.API.STREAM.INFO.RESULTS")
        assert info["state"]["last_seq"] - info["state"]["first_seq"] + 1 == 40
    finally:
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        for bus in buses:
            await bus.close()


async def test_a_server_that_was_killed_and_came_back_costs_no_end_and_doubles_none(own_nats: NatsServer) -> None:
    async with await Bus.connect(Wire(nats_url=own_nats.url, request_timeout_s=PATIENT_S), role="admin") as bus:
        rig = EndsRig(bus, own_nats.url)
        await rig.subscribe()
        await rig.follow()
        jobs = []
        for number in range(3):
            jobs += [await rig.ended() for _ in range(30)]
            if number < 2:
                await own_nats.kill()
                await own_nats.start()
                await rig.connected()
        ends = await rig.until(90)
        await rig.until_past(jobs[-1])
        assert sorted(end.request_id for end in ends) == sorted(job.id for job in jobs)
        info = await bus.request_json("$JS.API.STREAM.INFO.RESULTS")
        assert info["state"]["last_seq"] == 90
        for task in list(rig.own):
            await rig.stop(task)


async def test_shares_are_those_of_the_stream_that_is_there_after_it_was_lost(own_nats: NatsServer) -> None:
    async with await Bus.connect(Wire(nats_url=own_nats.url, request_timeout_s=PATIENT_S), role="admin") as bus:
        rig = EndsRig(bus, own_nats.url)
        await rig.subscribe()
        await rig.follow(account_bytes=1024 * 1024)
        before = [await rig.ended(floats(*range(4000), name="y")) for _ in range(30)]
        await rig.until_past(before[-1])
        await bus.request_json("$JS.API.STREAM.DELETE.RESULTS")
        await topology.apply(bus)
        await own_nats.kill()
        await own_nats.start()
        await rig.connected()
        after = [await rig.ended(floats(*range(4000), name="y")) for _ in range(15)]
        await rig.until_past(after[-1])
        assert [decode(End, stored.data).request_id for stored in await rig.stored()] == [job.id for job in after]
        for task in list(rig.own):
            await rig.stop(task)


async def test_a_full_stream_takes_the_ends_of_who_has_few_and_lets_go_of_who_has_most(rig: EndsRig) -> None:
    config = (await rig.bus.request_json("$JS.API.STREAM.INFO.RESULTS"))["config"]
    await rig.bus.request_json("$JS.API.STREAM.UPDATE.RESULTS", config | {"max_bytes": 500_000})
    await rig.subscribe()
    quiet = [await rig.ended(account_id="quiet") for _ in range(3)]
    await rig.follow()
    loud = [await rig.ended(floats(*range(2000), name="y"), account_id="loud") for _ in range(100)]
    quiet += [await rig.ended(account_id="quiet") for _ in range(3)]
    await rig.until_past(quiet[-1])
    found = [decode(End, stored.data).request_id for stored in await rig.stored()]
    assert [job_id for job_id in found if job_id in {job.id for job in quiet}] == [job.id for job in quiet]
    left = [job_id for job_id in found if job_id in {job.id for job in loud}]
    assert 0 < len(left) < 100
    assert left == [job.id for job in loud[-len(left) :]]


async def test_a_deleted_job_has_no_end(rig: EndsRig) -> None:
    await rig.subscribe()
    job, other = await rig.ended(), await rig.ended()
    found = await rig.records.read(job.id)
    assert found is not None
    await rig.records.write(life.deleted(found[0], now=time.time()), expect=found[1])
    await rig.follow()
    await rig.until_past(job)
    assert [end.request_id for end in await rig.until(1)] == [other.id]


async def test_the_end_of_a_job_that_is_deleted_later_is_erased(rig: EndsRig) -> None:
    await rig.subscribe()
    await rig.follow(inline_bytes=10)
    job, other = await rig.ended(floats(*range(100), name="y")), await rig.ended()
    await rig.until(2)
    found = await rig.records.read(job.id)
    assert found is not None
    tombstone = life.deleted(found[0], now=time.time())
    await rig.records.write(tombstone, expect=found[1])
    answered = Delivery(hook="h", job_id=job.id, attempt=1, at=1.0, answer="got [0.0, 1.0]")
    await rig.bus.write(outboundnames.delivery("h", job.id, 1), encode(answered))
    assert await deletion.erase(rig.bus, tombstone, most=10) == 3
    assert await deletion.is_gone(rig.bus, tombstone)
    assert [end.request_id for end in await rig.until(1)] == [other.id]
    assert await rig.bus.list_latest(Stream.PAYLOADS, [names.payload("test", job.id, "*")]) == []


async def test_an_account_loses_its_own_oldest_ends_and_no_other_does(rig: EndsRig) -> None:
    await rig.subscribe()
    quiet = [await rig.ended(account_id="quiet") for _ in range(3)]
    tag = ("x" * 60,) * 8
    many = [await rig.ended(floats(*range(4000), name="y"), account_id="loud", tags=tag) for _ in range(60)]
    await rig.follow(account_bytes=1024 * 1024, inline_bytes=64 * 1024)
    await rig.until_past(many[-1])
    found = {msgspec.json.decode(stored.data)["request_id"]: len(stored.data) for stored in await rig.stored()}
    assert {job.id for job in quiet} <= found.keys()
    left = [job.id for job in many if job.id in found]
    assert left == [job.id for job in many[-len(left) :]]
    assert 0 < sum(size for job_id, size in found.items() if job_id in left) <= 1024 * 1024
    assert len(left) < len(many)
    # What a predecessor wrote counts.
    task = next(iter(rig.own))
    await rig.stop(task)
    await rig.follow(account_bytes=1024 * 1024, inline_bytes=64 * 1024)
    more = [await rig.ended(floats(*range(4000), name="y"), account_id="loud") for _ in range(20)]
    await rig.until_past(more[-1])
    sizes = [len(stored.data) for stored in await rig.stored() if ".loud." in stored.subject]
    assert sum(sizes) <= 1024 * 1024
