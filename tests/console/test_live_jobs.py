"""Pages of open jobs: what becomes of a job, and why it waits, comes to the browser by itself."""

import time

import pytest
from msgspec.structs import replace

from console.board.rows import WatchedJob
from console.board.view import LiveView
from console.feed import watched as module
from console.feed.hub import Hub
from console.feed.watched import WatchedJobs
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.jobs import delivery, life
from signalbox.jobs.reasons import UNPLACED, QueuedJob
from signalbox.program.settings import Wire
from signalbox.wire.jobids import new_job_id
from signalbox.wire.names import Bucket, token
from signalbox.wire.scaling import Host, HostDevice, Measured
from signalbox.wire.steering import Desired
from tests.console.mirror import TOPICS, Viewer
from tests.console.test_live_feed import watching
from tests.console.traffic import GPU, Railway, accepted_in_turn, submit

T0 = 1_000.0


async def test_a_job_that_waits_says_its_place_then_that_it_runs_and_its_end(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    documents = accepted_in_turn("digits", 3)
    for document in documents:
        await submit(bus, document)
    await delivery.find(bus, "digits", "mid", 0)
    last = documents[-1].id
    topic = f"job:{last}"
    async with watching(wire) as (feed, viewer):
        feed.hub.subscribe(viewer, [topic], {}, time.time())
        await viewer.until(lambda: viewer.row(topic, last).get("why") == "waiting: no worker serves digits")
        assert viewer.row(topic, last)["words"] == "queued: no worker serves digits"
        await railway.acquire("worker-a")
        await railway.presence("worker-a")
        await viewer.until(lambda: viewer.row(topic, last)["why"] == "waiting: 2 jobs ahead")
        assert viewer.row(topic, last)["starts"] == "Starts in about 1 s."
        await put(bus, Bucket.DESIRED, f"model.{token('digits')}", Desired(is_paused=True, actor="ann"))
        await viewer.until(lambda: viewer.row(topic, last)["why"] == "waiting: digits is paused by an operator")
        claimed, revision = await railway.claim(documents[-1])
        await viewer.until(lambda: viewer.row(topic, last)["state"] == "running")
        assert viewer.row(topic, last)["revision"] == revision
        await railway.end(claimed, revision)
        await viewer.until(lambda: viewer.row(topic, last)["state"] == "succeeded")


async def test_a_job_without_a_worker_says_that_a_host_starts_one_and_when_it_begins(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    (document,) = accepted_in_turn("digits", 1)
    await submit(bus, document)
    topic = f"job:{document.id}"
    async with watching(wire) as (feed, viewer):
        feed.hub.subscribe(viewer, [topic], {}, time.time())
        await viewer.until(lambda: viewer.row(topic, document.id).get("why") == "waiting: no worker serves digits")
        measured = Measured(start_s=60.0, load_s={"digits": 1.0}, rates={"digits": 10.0})
        host = Host(id="h1", host="h", devices=(HostDevice(device=GPU, class_="cpu"),), measured=measured)
        await put(bus, Bucket.HOSTS, token("h1"), host)
        coming = "waiting: no worker serves digits yet: one is being started"
        await viewer.until(lambda: viewer.row(topic, document.id)["why"] == coming)
        assert viewer.row(topic, document.id)["starts"].startswith("Starts in about")


async def test_a_job_that_ran_before_somebody_looked_is_read(bus: Bus, wire: Wire) -> None:
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    (document,) = accepted_in_turn("digits", 1)
    await submit(bus, document)
    await railway.acquire("worker-a")
    await railway.presence("worker-a")
    await railway.claim(document)
    topic = f"job:{document.id}"
    async with watching(wire) as (feed, viewer):
        feed.hub.subscribe(viewer, [topic], {}, time.time())
        await viewer.until(lambda: viewer.row(topic, document.id).get("state") == "running")


async def test_an_event_that_was_lost_without_a_word_from_the_connection_is_made_up_for(
    bus: Bus, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DOUBT_S", 0.2)
    railway = Railway(bus)
    await railway.lay_track({"digits": 2})
    (document,) = accepted_in_turn("digits", 1)
    await submit(bus, document)
    await railway.acquire("worker-a")
    await railway.presence("worker-a")
    claimed, revision = await railway.claim(document)
    topic = f"job:{document.id}"
    async with watching(wire) as (feed, viewer):
        feed.hub.subscribe(viewer, [topic], {}, time.time())
        await viewer.until(lambda: viewer.row(topic, document.id).get("state") == "running")
        monkeypatch.setattr(WatchedJobs, "record", lambda *_: None)
        await railway.end(claimed, revision)
        await viewer.until(lambda: viewer.row(topic, document.id)["state"] == "succeeded")


def test_a_job_has_a_topic_as_long_as_somebody_looks_at_it_and_others_are_not_told_of_it() -> None:
    view = LiveView("e", T0)
    hub = Hub(view, WatchedJobs(view, lambda _: None, lambda: T0))
    job_id = new_job_id(T0, 1)
    topic = f"job:{job_id}"
    one, other, board = Viewer(), Viewer(), Viewer()
    hub.subscribe(board, [*TOPICS], {}, T0)
    for viewer in (one, other):
        hub.subscribe(viewer, [topic], {}, T0)
    assert topic in view.topics.topics
    frames: list[str] = []
    board.push = lambda frame: frames.append(frame.text)  # type: ignore[method-assign]
    hub.tick(T0, {"nats": "ok"})
    assert job_id not in frames[0]
    assert not one.mirror.wants, "its tick names the topic"
    hub.leave(one)
    assert topic in view.topics.topics
    hub.leave(other)
    hub.leave(other)
    assert topic not in view.topics.topics


async def test_an_older_record_never_hides_a_newer_one() -> None:
    view = LiveView("e", T0)
    watched = WatchedJobs(view, lambda _: None, lambda: T0)
    (document,) = accepted_in_turn("digits", 1)
    topic = f"job:{document.id}"
    watched.open(topic)
    claimed = life.claimed(document, None, worker="w", gpu="g", token=1, now=T0)
    watched.record(claimed, 7)
    watched.record(replace(claimed, attempt=9), 6)
    row = view.topics.topics[topic].rows[document.id]
    assert isinstance(row, WatchedJob)
    assert (row.revision, row.state) == (7, "unknown"), "NATS is away"
    place = await watched.locate(document.id, QueuedJob("digits", 1, "mid"))
    assert place == UNPLACED
