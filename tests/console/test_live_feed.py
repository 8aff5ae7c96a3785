"""The live feed against a real nats-server: what a browser would show is what NATS says."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from console.board.queues import Gauge
from console.board.view import LiveView
from console.feed import faults, leases, programs, queues, retry
from console.feed import feed as feed_module
from console.feed.feed import Feed
from console.feed.gauges import Gauges
from console.feed.jobs import JobEvents
from console.feed.queues import WatchedQueues
from console.feed.scaling import FleetScaling
from console.feed.tables import Tables
from console.feed.watched import WatchedJobs
from console.outbox import program
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.table import put, remove
from signalbox.jobs import delivery
from signalbox.program.errors import Unavailable
from signalbox.program.settings import Wire
from signalbox.wire.names import NATS_FAULT, SCALE, Bucket, Stream, event_of_key, job, key, token
from signalbox.wire.scaling import ClassScale, Scale
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Lease, Residency
from tests.console.mirror import TOPICS, Viewer
from tests.console.test_live_view import worker
from tests.console.traffic import GPU, Railway, accepted, accepted_in_turn, submit
from tests.rigs.natsserver import NatsServer

Watch = Callable[..., "contextlib.AbstractAsyncContextManager[tuple[Feed, Viewer]]"]


@contextlib.asynccontextmanager
async def watching(wire: Wire) -> AsyncIterator[tuple[Feed, Viewer]]:
    """A running feed and one viewer of every topic."""
    feed, viewer = Feed(wire), Viewer()
    task = asyncio.create_task(feed.run())
    try:
        feed.hub.subscribe(viewer, TOPICS, {}, time.time())
        yield feed, viewer
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and task.exception():
            raise AssertionError from task.exception()


async def test_jobs_queued_before_the_console_started_are_counted_and_aged(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    documents = [accepted("digits", priority=p) for p in ("lo", "hi", "mid", "hi", "lo")]
    for document in documents:
        await submit(bus, document)
    first = await bus.leader_get(Stream.JOBS, job("digits", "lo", documents[0].account_id, documents[0].id))
    async with watching(wire) as (_, viewer):
        await viewer.until(lambda: viewer.row("queues", "digits").get("waiting") == 5)
        assert first is not None
        assert viewer.row("queues", "digits")["oldest_at"] == pytest.approx(first.time, abs=0.1)
        assert viewer.row("queues", "digits")["deadline_at"] == pytest.approx(documents[0].deadline_at, abs=0.01)


async def test_a_nats_that_does_not_answer_at_the_start_is_asked_again(
    wire: Wire, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe, refusals = Bus.subscribe, [Unavailable("NATS does not answer."), Unavailable("NATS does not answer.")]

    async def late(self: Bus, *args: Any, **more: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await subscribe(self, *args, **more)

    monkeypatch.setattr(retry, "RETRY_S", 0.0)
    monkeypatch.setattr(Bus, "subscribe", late)
    async with watching(wire) as (feed, _):
        await feed.synced.wait()
        assert not feed.is_blind
    assert not refusals


async def test_a_job_that_is_taken_and_run_waits_no_more_and_the_next_is_the_oldest(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    for document in accepted_in_turn("digits", 3):
        await submit(bus, document)
    async with watching(wire) as (_, viewer):
        await viewer.until(lambda: viewer.row("queues", "digits").get("waiting") == 3)
        oldest_at = viewer.row("queues", "digits")["oldest_at"]
        puller = await railway.pull("digits")
        puller.ask(1)
        delivery = await railway.queue.get()
        await railway.acquire("worker-a")
        await railway.run_one(delivery)
        await viewer.until(
            lambda: viewer.row("queues", "digits")["waiting"] == 2 and viewer.row("queues", "digits")["running"] == 0
        )
        await viewer.until(lambda: viewer.row("queues", "digits")["oldest_at"] > oldest_at)
        await puller.close()


async def test_jobs_a_worker_has_pulled_and_not_begun_wait_all_the_same(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    documents = accepted_in_turn("digits", 3)
    for document in documents:
        await submit(bus, document)
    first = await bus.leader_get(Stream.JOBS, job("digits", "mid", documents[0].account_id, documents[0].id))
    assert first is not None
    puller = await railway.pull("digits")
    puller.ask(2)
    for _ in range(2):
        await railway.queue.get()
    await railway.acquire("worker-a")
    railway.waiting = {"digits": 2}
    await railway.presence("worker-a")
    async with watching(wire) as (_, viewer):
        await viewer.until(
            lambda: (
                [viewer.row("queues", "digits").get(each) for each in ("prefetched", "waiting", "running", "oldest_at")]
                == [2, 3, 0, pytest.approx(first.time, abs=1e-6)]
            )
        )
    await puller.close()


async def test_the_jobs_of_a_dead_worker_stay_on_the_board_also_for_a_console_that_starts_later(
    bus: Bus, wire: Wire
) -> None:
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    await railway.acquire("worker-a")
    documents = accepted_in_turn("digits", 4)
    for document in documents:
        await submit(bus, document)
    puller = await railway.pull("digits")
    puller.ask(3)
    pulled = [await railway.queue.get() for _ in range(3)]
    await puller.close()
    await railway.end(*await railway.claim(pulled[0].job))
    await railway.claim(pulled[1].job)
    railway.running[documents[1].id], railway.waiting = documents[1], {"digits": 1}
    await railway.presence("worker-a")

    def figures(viewer: Viewer) -> tuple[int, int, int]:
        row = viewer.row("queues", "digits")
        return row.get("waiting", -1), row.get("running", -1), row.get("lost", -1)

    async with watching(wire) as (_, viewer):
        await viewer.until(lambda: figures(viewer) == (2, 1, 0))
        await remove(bus, Bucket.WORKERS, token("worker-a"))
        await viewer.until(lambda: figures(viewer) == (2, 0, 1))
        row = viewer.row("queues", "digits")
        assert row["oldest_at"] == pytest.approx(documents[2].created_at, abs=1.0)
        assert row["deadline_at"] == pytest.approx(documents[2].deadline_at, abs=0.01)
        await viewer.until(lambda: viewer.row("health", "workers").get("state") == "failed")
        await viewer.until(lambda: "worker that is gone" in viewer.row("alarms", "lost-jobs:digits").get("text", ""))
        assert "2 jobs wait" in viewer.row("alarms", "unserved:digits")["text"]
    async with watching(wire) as (_, viewer):
        await viewer.until(lambda: figures(viewer) == (2, 0, 1))
        await railway.acquire("worker-b")
        await railway.claim(pulled[2].job)
        railway.running, railway.waiting = {documents[2].id: documents[2]}, {}
        await railway.presence("worker-b")
        await viewer.until(lambda: figures(viewer) == (1, 1, 1))


async def test_a_queue_made_anew_counts_no_job_twice_that_was_delivered_or_ended_before(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    documents = accepted_in_turn("digits", 5)
    for document in documents:
        await submit(bus, document)
    puller = await railway.pull("digits")
    puller.ask(4)
    pulled = [await railway.queue.get() for _ in range(4)]
    await puller.close()
    await railway.acquire("worker-a")
    await railway.end(*await railway.claim(pulled[0].job))
    claimed, revision = await railway.claim(pulled[1].job)
    railway.running[documents[1].id], railway.waiting = documents[1], {"digits": 2}
    await railway.presence("worker-a")
    assert (await delivery.make_anew(bus, "digits", "mid", 0)).num_pending == 5, "all that is stored"

    def figures(viewer: Viewer) -> tuple[int, int, int]:
        row = viewer.row("queues", "digits")
        return row.get("waiting", -1), row.get("running", -1), row.get("prefetched", -1)

    async with watching(wire) as (_, viewer):
        await viewer.until(lambda: figures(viewer) == (3, 1, 2))
        assert viewer.row("queues", "digits")["oldest_at"] == pytest.approx(documents[2].created_at, abs=1.0)
        await railway.end(claimed, revision)
        await viewer.until(lambda: figures(viewer)[:2] == (3, 0))
        railway.running.clear()
        await railway.presence("worker-a")
        anew = await railway.pull("digits")
        anew.ask(5)
        for _ in range(5):
            await railway.queue.get()
        await anew.close()
        railway.waiting = {"digits": 3}
        await railway.presence("worker-a")
        await viewer.until(lambda: figures(viewer) == (3, 0, 3))


async def test_a_job_that_was_cancelled_is_the_oldest_no_more(bus: Bus) -> None:
    await delivery.find(bus, "digits", "mid", 0)
    gauges, now = Gauges(bus), time.time()
    first = accepted("digits")
    await submit(bus, first)
    subject = job("digits", "mid", first.account_id, first.id)
    stored = await bus.leader_get(Stream.JOBS, subject)
    gauge = await _read_one(gauges, now)
    assert stored is not None
    assert gauge.oldest_at == stored.time
    await bus.request_json(f"$JS.API.STREAM.MSG.DELETE.{Stream.JOBS}", {"seq": stored.seq})
    second = accepted("digits")
    await submit(bus, second)
    stored = await bus.leader_get(Stream.JOBS, job("digits", "mid", second.account_id, second.id))
    gauge = await _read_one(gauges, now + 1.0)
    assert stored is not None
    assert gauge.oldest_at == stored.time


async def _read_one(gauges: Gauges, now: float) -> Gauge:
    """The gauge, once one job waits: consumers are told what is stored or deleted just after its acknowledgement."""
    gauge = await gauges.read("digits", [], now, is_attended=True)
    while gauge.waiting != 1:
        gauge = await gauges.read("digits", [], now, is_attended=True)
    return gauge


async def test_of_many_jobs_without_a_worker_all_that_the_queue_holds_wait(
    bus: Bus, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "FEW", 2)
    await Railway(bus).lay_track({"digits": 2})
    for _ in range(3):
        await submit(bus, accepted("digits"))
    async with watching(wire) as (_, viewer):
        await viewer.until(lambda: viewer.row("queues", "digits").get("waiting") == 3)
        assert viewer.row("queues", "digits")["oldest_at"] is not None


async def test_a_heartbeat_has_gauges_read_only_while_a_browser_watches(bus: Bus) -> None:
    view = LiveView("e", 0.0)
    watched = WatchedQueues(view, time.time)
    jobs = WatchedJobs(view, lambda _: None, time.time)
    tables, events = Tables(view, watched, time.time), JobEvents(view, watched, jobs, time.time)
    heartbeat = worker("worker-a", waiting={"digits": 2})
    tables.on_worker("worker-a", heartbeat, 1)
    assert watched.dirty == {"digits"}, "until now its jobs were counted by themselves"
    watched.dirty.clear()
    tables.on_worker("worker-a", heartbeat, 2)
    assert watched.dirty == set()
    await events.follow(bus)
    tables.on_worker("worker-a", heartbeat, 3)
    assert watched.dirty == {"digits"}
    await events.leave()
    assert not view.queues.is_counting


async def test_a_board_counts_what_waits_under_the_fleets_generation_and_makes_no_consumer(
    bus: Bus, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "SWEEP_S", 0.1)
    await Railway(bus).lay_track({"digits": 2, "idle": 1})
    loaded = (Residency(model="digits", version=2, state="ready"),)
    await put(bus, Bucket.WORKERS, token("worker-a"), worker("worker-a", generation=3, models=loaded))
    await submit(bus, accepted("digits"))
    async with watching(wire) as (_, viewer):
        await viewer.until(lambda: viewer.row("queues", "digits").get("waiting") == 1)
        await asyncio.sleep(1.0)  # several sweeps
        assert viewer.row("queues", "idle")["waiting"] == 0
        assert not await bus.listed(f"$JS.API.CONSUMER.NAMES.{Stream.JOBS}", "consumers")
        puller = await bus.pull((await delivery.find(bus, "digits", "mid", 3)).name, lambda _: None)
        puller.ask(1)
        await viewer.until(lambda: viewer.row("queues", "digits").get("waiting") == 0)
        await puller.close()


async def test_what_came_while_nobody_watched_is_counted_and_found_with_the_first_viewer(
    bus: Bus, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "SWEEP_S", 0.1)
    await Railway(bus).lay_track({"digits": 2, "later": 1})
    await submit(bus, accepted("digits"))
    feed, viewer = Feed(wire), Viewer()
    series = feed.view.topics.topics["throughput"]
    task = asyncio.create_task(feed.run())
    try:
        async with asyncio.timeout(60):
            await feed.synced.wait()
        await submit(bus, accepted("later"))
        async with asyncio.timeout(60):
            while sum(getattr(row, "arrived", 0) for row in series.rows.values()) != 1:  # noqa: ASYNC110  no event tells
                await asyncio.sleep(0.05)
        assert feed.view.queues.registered == {"digits", "later"}
        waiting = {model: row.waiting for model, row in feed.view.queues.called().items()}
        assert waiting == {"digits": 1}, "no event told of the other, and not every model is asked for"
        feed.hub.subscribe(viewer, TOPICS, {}, time.time())
        await viewer.until(lambda: viewer.row("queues", "later").get("waiting") == 1, timeout_s=queues.DISCOVER_S / 2)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_lane_changes_hands_before_the_viewers_eyes(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    async with watching(wire) as (_, viewer):
        first = await railway.acquire("worker-a")
        await railway.presence("worker-a")
        await railway.presence("worker-b")
        await railway.queue_up("worker-b")
        await viewer.until(
            lambda: (
                viewer.row("lanes", GPU.id).get("holder") == "worker-a"
                and [w["worker"] for w in viewer.row("lanes", GPU.id)["waiters"]] == ["worker-b"]
            )
        )
        lane = viewer.row("lanes", GPU.id)
        assert (lane["state"], lane["token"], lane["ttl_s"]) == ("held", first, 20.0)
        assert lane["expires_at"] == pytest.approx(time.time() + 20, abs=5)
        await railway.release("worker-b")
        await viewer.until(lambda: viewer.row("lanes", GPU.id)["state"] == "handover")
        assert viewer.row("lanes", GPU.id)["next"] == "worker-b"
        second = await railway.acquire("worker-b")
        await viewer.until(lambda: viewer.row("lanes", GPU.id)["holder"] == "worker-b")
        lane = viewer.row("lanes", GPU.id)
        assert lane["token"] == second > first
        assert lane["waiters"] == []
        assert [s[1:3] for s in lane["strip"]][-3:] == [["held", "worker-a"], ["handover", ""], ["held", "worker-b"]]


async def test_a_renewed_lease_moves_its_end_and_counts(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    async with watching(wire) as (_, viewer):
        await railway.acquire("worker-a")
        await viewer.until(lambda: viewer.row("lanes", GPU.id).get("state") == "held")
        before = viewer.row("lanes", GPU.id)
        await railway.renew()
        await viewer.until(lambda: viewer.row("lanes", GPU.id)["renewals"] == 1)
        after = viewer.row("lanes", GPU.id)
        assert after["expires_at"] > before["expires_at"]
        assert after["token"] == before["token"]


async def test_a_lease_that_runs_out_is_shown_as_expired_and_raises_an_alarm(bus: Bus, wire: Wire) -> None:
    async with watching(wire) as (_, viewer):
        await put(
            bus,
            Bucket.LEASES,
            token(GPU.id),
            Lease(state="HELD", gpu=GPU.id, owner="worker-a", host="north", since=time.time()),
            ttl_s=1,
        )
        await viewer.until(lambda: viewer.row("lanes", GPU.id).get("state") == "expired")
        await viewer.until(lambda: viewer.row("alarms", f"expired:{GPU.id}"))
        assert viewer.row("lanes", GPU.id)["holder"] == "worker-a"


async def test_a_nats_that_stores_nothing_is_an_alarm_as_long_as_it_is_told(
    bus: Bus, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "KEPT_S", 1.0)
    async with watching(wire) as (feed, viewer):
        await asyncio.wait_for(feed.synced.wait(), 60)
        await bus.publish(NATS_FAULT, b"NATS stores nothing: its disk was full.")
        await viewer.until(lambda: viewer.row("alarms", "nats"))
        assert viewer.row("alarms", "nats")["text"] == "NATS stores nothing: its disk was full."
        assert viewer.row("alarms", "nats")["level"] == "error"
        await viewer.until(lambda: not viewer.row("alarms", "nats"))


async def test_a_disk_of_nats_that_is_short_of_room_is_an_alarm_also_when_nats_is_away(
    wire: Wire, tmp_path: Path
) -> None:
    low = replace(wire, nats_url="nats://127.0.0.1:1", nats_store=str(tmp_path), nats_reserve_bytes=2**62)
    async with watching(low) as (_, viewer):
        await viewer.until(lambda: "Make room there" in viewer.row("alarms", "disk").get("text", ""))


async def test_what_happened_between_the_start_and_the_first_viewer_is_in_the_ticker_once(bus: Bus, wire: Wire) -> None:
    """A console that came back said that it was live, and missed every job that ended before it followed them."""
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    await railway.acquire("worker-a")
    puller = await railway.pull("digits")
    feed, viewer = Feed(wire), Viewer()
    task = asyncio.create_task(feed.run())
    try:
        async with asyncio.timeout(60):
            await feed.synced.wait()
        document = accepted("digits")
        await submit(bus, document)
        puller.ask(1)
        await railway.run_one(await railway.queue.get())
        feed.hub.subscribe(viewer, TOPICS, {}, time.time())
        await viewer.until(lambda: viewer.mirror.entries.get("ticker"))
        later = accepted("digits")
        await submit(bus, later)
        puller.ask(1)
        await railway.run_one(await railway.queue.get())
        await viewer.until(lambda: viewer.mirror.entries["ticker"][-1]["id"] == later.id)
        assert [e["id"] for e in viewer.mirror.entries["ticker"]].count(document.id) == 1
    finally:
        await puller.close()
        task.cancel()
        await asyncio.wait([task])


async def test_running_jobs_are_on_the_lane_and_in_the_ticker(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    held = await railway.acquire("worker-a")
    async with watching(wire) as (feed, viewer):
        await viewer.until(lambda: viewer.row("lanes", GPU.id).get("state") == "held")
        await viewer.until(lambda: feed.view.topics.topics["queues"].rows)
        await viewer.until(lambda: feed._jobs.are_followed)
        puller = await railway.pull("digits")
        puller.ask(1)
        document = accepted("digits")
        await submit(bus, document)
        await railway.run_one(await railway.queue.get())
        await viewer.until(
            lambda: (
                [e["state"] for e in viewer.mirror.entries["ticker"] if e["id"] == document.id][-1:]
                in (["succeeded"], ["failed"])
            )
        )
        reported = [e for e in viewer.mirror.entries["ticker"] if e["id"] == document.id]
        assert [e["state"] for e in reported][:2] == ["queued", "running"]
        assert reported[1]["token"] == held
        assert viewer.row("lanes", GPU.id)["job_count"] == 0
        await puller.close()


async def test_a_job_that_runs_is_shown_with_its_model_on_the_lane(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    await railway.acquire("worker-a")
    railway.running["11111111-1111-1111-1111-111111111111"] = accepted("digits")
    await railway.presence("worker-a")
    async with watching(wire) as (_, viewer):
        # Until all has been read once the lane's state is unknown, and what its holder does is not shown.
        await viewer.until(lambda: viewer.row("lanes", GPU.id).get("activity") == "computing")
        lane = viewer.row("lanes", GPU.id)
        assert lane["models"] == ["digits:2", "half_plus_two:1"]
        assert (lane["job_count"], lane["jobs"][0]["model"]) == (1, "digits")
        railway.running.clear()
        await railway.presence("worker-a")
        await viewer.until(lambda: viewer.row("lanes", GPU.id)["job_count"] == 0, timeout_s=60)


async def test_a_paused_queue_says_who_paused_it_and_why(bus: Bus, wire: Wire) -> None:
    await Railway(bus).lay_track({"digits": 2})
    desired = Desired(is_paused=True, actor="ada", reason="new weights", updated_at=time.time())
    await put(bus, Bucket.DESIRED, "model.digits", desired)
    async with watching(wire) as (_, viewer):
        await viewer.until(lambda: viewer.row("queues", "digits").get("is_paused"))
        row = viewer.row("queues", "digits")
        assert (row["paused_by"], row["paused_reason"]) == ("ada", "new weights")
        await put(bus, Bucket.DESIRED, "model.digits", Desired(updated_at=time.time()))
        await viewer.until(lambda: not viewer.row("queues", "digits")["is_paused"])


async def test_a_queue_that_no_worker_serves_raises_an_alarm_that_ends_with_it(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    await submit(bus, accepted("digits"))
    async with watching(wire) as (_, viewer):
        await viewer.until(lambda: viewer.row("alarms", "unserved:digits"))
        assert "no worker runs" in viewer.row("alarms", "unserved:digits")["text"]
        await railway.acquire("worker-a")
        await railway.presence("worker-a")
        await viewer.until(lambda: not viewer.row("alarms", "unserved:digits"))


async def test_a_worker_that_says_goodbye_is_lost_and_not_forgotten(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    await railway.presence("worker-a")
    async with watching(wire) as (_, viewer):
        await viewer.until(lambda: viewer.row("workers", "worker-a").get("state") == "ready")
        await remove(bus, Bucket.WORKERS, token("worker-a"))
        await viewer.until(lambda: viewer.row("workers", "worker-a")["state"] == "lost")
        await railway.presence("worker-a")
        await viewer.until(lambda: viewer.row("workers", "worker-a")["state"] == "ready")


async def in_history(bus: Bus) -> None:
    """Return when ``EVENTS`` has the lease as it is: it misses what is overwritten before it was read."""
    gpu = token(GPU.id)
    async with asyncio.timeout(60):
        while True:
            now = await bus.leader_get(Bucket.LEASES.stream, key(Bucket.LEASES, gpu))
            reported = await bus.direct_get(Stream.EVENTS, event_of_key(Bucket.LEASES, gpu))
            if now is not None and reported is not None and reported.data == now.data:
                return
            await asyncio.sleep(0.01)


async def test_the_strip_reaches_back_before_the_console_started(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    first = await railway.acquire("worker-a")
    await in_history(bus)
    await railway.renew()
    await in_history(bus)
    await railway.release("worker-b")
    await in_history(bus)
    second = await railway.acquire("worker-b")
    await in_history(bus)
    async with watching(wire) as (_, viewer):
        await viewer.until(lambda: viewer.row("lanes", GPU.id).get("holder") == "worker-b")
        strip = viewer.row("lanes", GPU.id)["strip"]
        assert [s[1:] for s in strip] == [
            ["held", "worker-a", first],
            ["handover", "", 0],
            ["held", "worker-b", second],
        ]


async def test_the_board_says_that_nats_is_away_and_comes_back_by_itself(own_nats: NatsServer) -> None:
    wire = Wire(nats_url=own_nats.url)
    bus = await Bus.connect(wire, role="admin")
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    await railway.acquire("worker-a")
    async with watching(wire) as (_, viewer):
        await viewer.until(lambda: viewer.row("lanes", GPU.id).get("state") == "held")
        await viewer.until(lambda: viewer.source.get("nats") == "ok")
        await railway.presence("worker-a")
        await viewer.until(lambda: viewer.row("health", "workers").get("state") == "ok")
        await own_nats.kill()
        await viewer.until(lambda: viewer.source["nats"] == "down")
        await viewer.until(lambda: viewer.row("lanes", GPU.id)["state"] == "unknown")
        assert viewer.row("workers", "worker-a")["label"] == "not known now"
        await viewer.until(lambda: "refused with 503" in viewer.row("alarms", "away").get("text", ""))
        health = viewer.mirror.rows["health"]
        assert health["nats"]["state"] == "failed"
        assert {row["state"] for key, row in health.items() if key != "nats"} == {"unknown"}
        await own_nats.start()
        await viewer.until(lambda: viewer.source["nats"] == "ok", timeout_s=60)
        await viewer.until(lambda: bus.is_connected)
        railway.lease_rev = 0
        await railway.acquire("worker-b")
        await viewer.until(lambda: viewer.row("lanes", GPU.id)["holder"] == "worker-b")
        await viewer.until(lambda: not viewer.row("alarms", "away"))
    await bus.close()


async def test_a_program_of_the_console_that_falls_silent_is_an_alarm_until_it_is_received_again(
    bus: Bus, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "SILENT_S", 2.0)
    async with watching(wire) as (feed, viewer):
        await asyncio.wait_for(feed.synced.wait(), 60)
        saying = asyncio.create_task(program.say_alive(bus, "controller"))
        await viewer.until(lambda: viewer.row("health", "controller").get("state") == "ok")
        await viewer.until(lambda: viewer.row("alarms", "projector"))
        assert viewer.row("health", "projector")["value"] == "stopped"
        assert not viewer.row("alarms", "controller")
        saying.cancel()
        await viewer.until(lambda: "controller does not run" in viewer.row("alarms", "controller").get("text", ""))
        assert viewer.row("health", "controller")["state"] == "failed"
        saying = asyncio.create_task(program.say_alive(bus, "controller"))
        await viewer.until(lambda: not viewer.row("alarms", "controller"))
        saying.cancel()


async def test_a_console_that_starts_before_nats_fills_its_board_later(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats")
    await server.start()
    wire = Wire(nats_url=server.url, connect_timeout_s=0.5)
    await server.stop()
    async with watching(wire) as (_, viewer):
        await viewer.until(lambda: viewer.source.get("nats") == "down")
        await server.start()
        bus = await Bus.connect(Wire(nats_url=server.url), role="admin")
        await topology.apply(bus)
        await Railway(bus).lay_track({"digits": 2})
        await viewer.until(lambda: viewer.row("queues", "digits"), timeout_s=60)
        await bus.close()
    await server.stop()


async def test_what_is_wanted_of_the_fleet_is_read_again_though_no_event_told_of_it(
    bus: Bus, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "RECALL_S", 0.1)
    monkeypatch.setattr(FleetScaling, "_receive", lambda *_: None)  # every event is lost
    wanted = Scale(at=time.time(), classes={"t4": ClassScale(wanted=1)})
    async with watching(wire) as (feed, viewer), asyncio.timeout(20):
        await feed.synced.wait()
        await put(bus, Bucket.DESIRED, SCALE, wanted)
        await viewer.until(lambda: feed.scaling.scale == wanted)


async def test_a_device_that_was_freed_is_idle_though_no_event_told_of_it(
    bus: Bus, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "AGAIN_S", 0.1)
    monkeypatch.setattr(leases.Leases, "receive", lambda *_: None)  # every event is lost
    railway = Railway(bus)
    await railway.acquire("worker-a")
    async with watching(wire) as (_, viewer), asyncio.timeout(20):
        await viewer.until(lambda: viewer.row("lanes", GPU.id).get("state") == "held")
        await railway.release("")
        await viewer.until(lambda: viewer.row("lanes", GPU.id)["state"] == "idle")
