"""One real worker process, a real nats-server, real SavedModels or a toy; a model of its own for each test."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put, remove
from signalbox.jobs import cancel, deadletters, life, message, payloads, times
from signalbox.jobs.change import change
from signalbox.jobs.records import Records
from signalbox.program.errors import Conflict, NotFound
from signalbox.wire import names
from signalbox.wire.messages import Record, State
from signalbox.wire.modeldocs import Batching, Limits
from signalbox.wire.names import Bucket, Header, Stream, token
from signalbox.wire.steering import Desired
from signalbox.wire.warmups import WarmUp, WarmUpInput
from signalbox.wire.workerdocs import Worker
from tests.rigs import lightworker, models, workerhouse
from tests.rigs.outage import becomes
from tests.rigs.submit import Ledger, floats, read_floats, register
from tests.rigs.workerhouse import House
from tests.rigs.workerprocess import WorkerProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("worker")
    async with workerhouse.house(folder, worker_cancel_grace_s=0.5, worker_retire_s=0.5) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def light(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A house whose worker computes with a toy: what the worker does is the subject."""
    folder = tmp_path_factory.mktemp("light")
    async with workerhouse.house(folder, program=lightworker.PROGRAM, worker_cancel_grace_s=0.5) as made:
        yield made


async def queue_is_empty(bus: Bus, model: str) -> None:
    """Wait until no message of the model is left in the queue."""

    async def is_empty() -> bool:
        ask = {"subjects_filter": names.jobs_of_model(model)}
        state = (await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}", ask))["state"]
        return not state.get("subjects")

    await becomes(is_empty, limit_s=30.0)


async def test_a_job_runs_and_whoever_waits_is_told(house: House) -> None:
    bus, ledger, _ = house
    await register(bus, "half", models.half_plus_two())
    job_id = await ledger.submit("half", floats(1.0, 2.0, 5.0))
    (record,) = await ledger.ended(job_id)
    assert record.state is State.SUCCEEDED, record
    assert read_floats(await ledger.result(job_id)) == (2.5, 3.0, 4.5)
    await ledger.until(lambda: job_id in ledger.reported)
    assert read_floats(ledger.reported[job_id]) == (2.5, 3.0, 4.5)
    assert [r.state for r in ledger.records[job_id]] == [State.RUNNING, State.SUCCEEDED]
    assert (record.attempt, record.worker) == (1, "w1")
    assert record.token > 0
    moments = [record.phases[name] for name in ("pulled", "started", "computed", "done")]
    assert moments == sorted(moments)
    assert moments[0] <= record.phases["claimed"] <= moments[-1], "beside the run"
    assert {"queue", "batch", "run", "commit"} <= record.parts.keys() <= set(times.PARTS)
    assert sum(record.parts.values()) == pytest.approx(record.phases["done"], abs=0.05)
    await queue_is_empty(bus, "half")


async def test_a_worker_runs_the_warm_ups_of_a_model_s_document_with_its_load(house: House) -> None:
    bus, ledger, worker = house
    busy = WarmUp("busy", {"seconds": WarmUpInput("float32", (64,), is_random=True)})
    await register(bus, "warmed", models.slow(), warm_ups=(busy,))
    await ledger.ended(await ledger.submit("warmed", floats(0.0, name="seconds")))
    loaded = await worker.said("model.loaded", lambda line: line["model"] == "warmed")
    assert loaded["seconds"] > 0.5, "the model computes for the largest of 64 numbers below 1, in seconds"


async def test_a_job_that_kills_the_runner_becomes_a_dead_letter_and_its_neighbours_succeed(light: House) -> None:
    bus, ledger, worker = light
    await register(
        bus,
        "fatal",
        lightworker.version("fatal"),
        batching=Batching(max_size=8, max_delay_ms=300.0, rows_independent=True),
        limits=Limits(max_delivery=2),
    )
    good = [await ledger.submit("fatal", floats(float(i))) for i in range(3)]
    fatal = await ledger.submit("fatal", floats(-1000.0))
    records = await ledger.ended(*good, fatal, timeout_s=60)
    assert {r.state for r in records if r.id != fatal} == {State.SUCCEEDED}
    last = ledger.last(fatal)
    assert last is not None
    assert last.state is State.FAILED
    assert last.error is not None
    assert last.error.code == "poison"
    states = [r.state for r in ledger.records[fatal]]
    assert states == [State.RUNNING, State.QUEUED, State.RUNNING, State.FAILED]
    assert {r.strikes for r in records if r.id != fatal} == {0}, "neighbours have no strike"
    assert {r.attempt for r in records if r.id != fatal} == {1}, "and ran again in place"
    again = await ledger.submit("fatal", floats(-1000.0))
    (refused,) = await ledger.ended(again)
    assert refused.error is not None
    assert refused.error.code == "poison"
    assert refused.attempt == 1, "the same input in another job is not run"
    (other,) = await ledger.ended(await ledger.submit("fatal", floats(7.0)))
    assert other.state is State.SUCCEEDED
    letter = await deadletters.find(bus, fatal)
    assert await deadletters.input_of(bus, letter) == floats(-1000.0)
    assert letter.notice is not None
    assert (letter.notice.error, letter.notice.attempt, letter.notice.strikes) == (last.error, 2, 2)
    assert (last.strikes, last.failures) == (2, 0), "the last one counts too"
    assert [(one.number, one.code, one.counts) for one in last.attempts] == [(1, "runner_crashed", "strike")]
    for parts in (last.attempts[0].parts, last.parts):
        assert parts["runner"] > parts["run"], "the end of a runner, and the start of the next one, is no run"
    redriven = (await deadletters.redrive(bus, fatal)).job_id
    (record,) = await ledger.ended(redriven, timeout_s=60)
    assert record.redrive_of == fatal
    assert record.attempt == 2, "it ran: a person has lifted the quarantine of its input"
    await queue_is_empty(bus, "fatal")
    of_jobs = [line for line in worker.lines if str(line.get("event")).startswith("job.")]
    reported = [line for line in of_jobs if line["job"] == fatal]
    assert [(line["event"], line["attempt"], line["code"]) for line in reported] == [
        ("job.retried", 1, "runner_crashed"),
        ("job.ended", 2, "poison"),
    ]
    assert {line["level"] for line in reported} == {"info"}


async def test_a_message_that_is_no_job_becomes_a_dead_letter_once_there_is_a_stream_for_it(light: House) -> None:
    bus, ledger, worker = light
    await register(bus, "garbled", lightworker.version("half"))
    job_id = ledger.job("garbled", b"").id
    subject = names.job("garbled", "mid", "t", job_id)
    tried = asyncio.Event()
    await bus.subscribe(names.dead_letter("garbled", job_id), lambda _: tried.set())
    config = (await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.DLQ}"))["config"]
    await bus.request_json(f"$JS.API.STREAM.DELETE.{Stream.DLQ}")
    await bus.write(subject, b"some bytes", headers={Header.JOB: '{"id": 7}'})
    await tried.wait()
    await bus.request_json(f"$JS.API.STREAM.CREATE.{Stream.DLQ}", config)
    await worker.said("dead_letter.no_job")
    assert await bus.leader_get(Stream.JOBS, subject) is None
    letter = await deadletters.find(bus, job_id)
    assert (letter.model, letter.body) == ("garbled", b"some bytes")
    assert letter.notice is not None
    assert letter.notice.error.code == deadletters.UNREADABLE
    with pytest.raises(Conflict, match="only be discarded"):
        await deadletters.redrive(bus, job_id)
    assert deadletters.summary(letter)["version"] is None
    assert deadletters.described(letter.body) == []
    await deadletters.discard(bus, job_id)


@pytest.mark.parametrize(
    ("of_message", "moved_to", "end"), [(-5.0, 600.0, State.SUCCEEDED), (600.0, -5.0, State.EXPIRED)]
)
async def test_a_deadline_that_its_owner_moved_counts_and_not_the_message_s(
    light: House, of_message: float, moved_to: float, end: State
) -> None:
    bus, ledger, _ = light
    now = time.time()
    job = ledger.job("moved", floats(1.0), deadline_at=now + of_message)
    moved = life.changed(life.first_record(job, State.QUEUED), priority="mid", deadline_at=now + moved_to)
    await Records(bus).write(moved, expect=0)
    await register(bus, "moved", lightworker.version("half"))
    await message.submit(bus, job, floats(1.0))
    (record,) = await ledger.ended(job.id)
    assert record.state is end
    assert (record.attempt, record.deadline_at) == (int(end is State.SUCCEEDED), now + moved_to)


async def test_a_job_whose_deadline_has_passed_expires_without_a_run(light: House) -> None:
    bus, ledger, _ = light
    await register(bus, "late", lightworker.version("half"))
    job_id = await ledger.submit("late", floats(1.0), deadline_at=time.time() - 1)
    (record,) = await ledger.ended(job_id)
    assert record.state is State.EXPIRED
    assert record.attempt == 0


async def test_a_run_over_its_time_fails_and_the_worker_goes_on(light: House) -> None:
    bus, ledger, _ = light
    await register(bus, "endless", lightworker.version("slow"), limits=Limits(timeout_s=1.0))
    job_id = await ledger.submit("endless", floats(60.0, name="seconds"))
    (record,) = await ledger.ended(job_id)
    assert record.state is State.FAILED
    assert record.error is not None
    assert record.error.code == "deadline_exceeded"
    again = await ledger.submit("endless", floats(0.0, name="seconds"))
    (record,) = await ledger.ended(again)
    assert record.state is State.SUCCEEDED


async def test_a_job_cancelled_in_the_queue_never_runs(light: House) -> None:
    bus, ledger, _ = light
    await put(bus, Bucket.DESIRED, f"model.{token('paused')}", Desired(is_paused=True))
    await register(bus, "paused", lightworker.version("half"))
    job_id = await ledger.submit("paused", floats(1.0))
    job = ledger.job("paused", b"", id=job_id)
    record = life.cancelled(life.first_record(job, State.QUEUED), now=time.time())
    await Records(bus).write(record, expect=0)
    await bus.publish(names.cancel(job_id))
    await put(bus, Bucket.DESIRED, f"model.{token('paused')}", Desired())
    assert [r.state for r in ledger.records[job_id]] == [State.CANCELLED]


async def test_a_paused_model_waits_and_a_resumed_one_runs(light: House) -> None:
    bus, ledger, _ = light
    await put(bus, Bucket.DESIRED, f"model.{token('halted')}", Desired(is_paused=True))
    await register(bus, "halted", lightworker.version("half"))
    await register(bus, "other", lightworker.version("half"))
    waiting = await ledger.submit("halted", floats(1.0))
    await ledger.ended(await ledger.submit("other", floats(1.0)))
    assert ledger.last(waiting) is None
    await put(bus, Bucket.DESIRED, f"model.{token('halted')}", Desired())
    (record,) = await ledger.ended(waiting)
    assert record.state is State.SUCCEEDED


async def test_cancelling_a_running_job_stops_it_and_spares_its_neighbours(light: House) -> None:
    bus, ledger, _ = light
    await register(
        bus,
        "long",
        lightworker.version("slow"),
        batching=Batching(max_size=4, max_delay_ms=300.0, rows_independent=True),
    )
    short = [await ledger.submit("long", floats(0.1, name="seconds")) for _ in range(2)]
    long = await ledger.submit("long", floats(100.0, name="seconds"))
    await ledger.begun(long)
    records = Records(bus)
    found = await records.read(long)
    assert found is not None
    await records.write(life.cancel_asked(found[0]), expect=found[1])
    await bus.publish(names.cancel(long))
    ended = await ledger.ended(long, *short)
    assert [r.state for r in ended] == [State.CANCELLED, State.SUCCEEDED, State.SUCCEEDED]
    assert [r.strikes for r in ended] == [0, 0, 0]
    assert [r.attempt for r in ended] == [1, 1, 1]


async def test_large_inputs_and_results_travel_by_reference(light: House) -> None:
    bus, ledger, _ = light
    await register(bus, "large", lightworker.version("half"), batching=Batching(max_size=1_000_000))
    values = [float(i % 1000) for i in range(300_000)]
    job = ledger.job("large", floats(*values))
    ref = (await payloads.store_input(bus, job, floats(*values))).ref
    await ledger.submit("large", floats(*values), id=job.id, ref=ref, rows=len(values), reply=job.reply)
    (record,) = await ledger.ended(job.id)
    assert record.state is State.SUCCEEDED, record
    assert record.ref is not None
    assert await ledger.result(job.id) == b""
    frame = await payloads.fetch(bus, record.ref)
    assert read_floats(frame) == tuple(value / 2 + 2 for value in values)
    async with asyncio.timeout(60):
        while True:  # until the reconciler has read its end
            if not await bus.list_latest(Stream.INPUTS, [ref.subject]):
                break
            await asyncio.sleep(0.02)


async def test_important_jobs_overtake_those_that_wait(light: House) -> None:
    bus, ledger, _ = light
    await register(bus, "order", lightworker.version("slow"), batching=Batching(max_size=1))
    low = [await ledger.submit("order", floats(0.2, name="seconds"), priority="lo") for _ in range(8)]
    await ledger.until(lambda: ledger.last(low[0]) is not None)
    high = await ledger.submit("order", floats(0.0, name="seconds"), priority="hi")
    await ledger.ended(high)
    assert len(ledger.open(low)) >= 5
    await ledger.ended(*low)


async def admitted(_: Record) -> None:
    """There is room in every class."""


async def test_a_raised_job_is_run_before_others_of_its_class_and_not_again_in_its_turn(light: House) -> None:
    bus, ledger, _ = light
    await register(bus, "raised", lightworker.version("slow"), batching=Batching(max_size=1))
    await ledger.ended(await ledger.submit("raised", floats(0.7, name="seconds")))  # slow: none is asked for beside
    first, before, raised, after = [
        await ledger.submit("raised", floats(seconds, name="seconds"), priority="lo")
        for seconds in (1.0, 0.6, 0.5, 60.0)
    ]
    await ledger.until(lambda: ledger.last(first) is not None)
    records = Records(bus)
    found, last = [await records.find(job_id) for job_id in (raised, after)]
    assert found is not None
    assert last is not None
    await change(bus, records, found, priority="hi", deadline_at=None, admit=admitted)
    await ledger.ended(raised)
    assert ledger.open([before, after]) == [before, after]
    await ledger.ended(before)
    await ledger.until(lambda: ledger.last(after) is not None)
    stored = await bus.list_latest(Stream.JOBS, [names.jobs_of_model("raised")])
    classes = {(names.job_of(one.subject), names.class_of(one.subject)[1]) for one in stored}
    assert (after, "lo") in classes
    assert (raised, "lo") not in classes
    await cancel.cancel(bus, records, last, by=cancel.OWNER, clock=time.time)
    await ledger.ended(after)


async def test_jobs_cancelled_while_they_wait_leave_the_queue_beside_those_that_wait_on(light: House) -> None:
    bus, ledger, _ = light
    await register(bus, "withdrawn", lightworker.version("slow"), batching=Batching(max_size=1))
    slow = await ledger.submit("withdrawn", floats(0.7, name="seconds"))
    await ledger.ended(slow)  # so none is asked for beside the next
    first, *others = [await ledger.submit("withdrawn", floats(100.0, name="seconds")) for _ in range(21)]
    await ledger.begun(first)
    records = Records(bus)
    for job_id in others:
        found = await records.find(job_id)
        assert found is not None
        if job_id in others[::2]:
            await cancel.cancel(bus, records, found, by=cancel.OWNER, clock=time.time)

    async def left() -> list[str]:
        stored = await bus.list_latest(Stream.JOBS, [names.jobs_of_model("withdrawn")])
        return [job_id for one in stored if (job_id := names.job_of(one.subject)) != slow]

    async def are_gone() -> bool:
        return await left() == [first, *others[1::2]]

    await becomes(are_gone, limit_s=60.0)
    assert ledger.open([first, *others]) == [first, *others[1::2]]
    for job_id in (*others[1::2], first):
        found = await records.find(job_id)
        assert found is not None
        await cancel.cancel(bus, records, found, by=cancel.OWNER, clock=time.time)
    ended = await ledger.ended(first, *others)
    assert {(record.state, record.attempt) for record in ended[1:]} == {(State.CANCELLED, 0)}
    (last,) = await ledger.ended(await ledger.submit("withdrawn", floats(0.0, name="seconds")))
    assert last.state is State.SUCCEEDED, "no run of 100 s before it"


async def doom(bus: Bus, ledger: Ledger) -> None:
    """Put a job of three seconds into the queue that was cancelled, and one of a tenth behind it, which is to end."""
    job = ledger.job("doomed", floats(3.0, name="seconds"))
    await Records(bus).write(life.cancelled(life.first_record(job, State.QUEUED), now=time.time()), expect=0)
    await bus.publish(names.cancel(job.id))
    await message.submit(bus, job, floats(3.0, name="seconds"))
    await ledger.submit("doomed", floats(0.1, name="seconds"))


async def test_a_job_whose_cancellation_a_worker_has_heard_of_is_not_run_when_it_comes(light: House) -> None:
    bus, ledger, _ = light
    await register(bus, "doomed", lightworker.version("slow"), batching=Batching(max_size=1))
    await ledger.ended(await ledger.submit("doomed", floats(0.0, name="seconds")))
    before = await reported(bus, lambda worker: worker.run is None)
    await doom(bus, ledger)
    await ledger.ended(ledger.submitted[-1])
    after = await reported(bus, lambda worker: worker.run is None and worker.computing_s >= before.computing_s + 0.1)
    assert after.computing_s < before.computing_s + 2.0


async def test_a_job_that_was_cancelled_while_there_was_no_worker_is_not_run_by_the_next(tmp_path: Path) -> None:
    async with workerhouse.declared(tmp_path) as (url, bus):
        ledger = await Ledger(bus).start()
        await register(bus, "doomed", lightworker.version("slow"), batching=Batching(max_size=1))
        async with WorkerProcess(url, tmp_path, "w1", program=lightworker.PROGRAM):
            await ledger.ended(await ledger.submit("doomed", floats(0.0, name="seconds")))
        await doom(bus, ledger)
        async with WorkerProcess(url, tmp_path, "w2", program=lightworker.PROGRAM):
            await ledger.ended(ledger.submitted[-1])
            worker = await reported(bus, lambda worker: worker.run is None and worker.computing_s >= 0.1, "w2")
    assert worker.computing_s < 2.0


async def test_a_job_that_was_blocked_by_another_model_says_so(light: House) -> None:
    bus, ledger, _ = light
    await register(bus, "blocks", lightworker.version("slow"), batching=Batching(max_size=1))
    await register(bus, "blocked", lightworker.version("slow"), batching=Batching(max_size=1))
    for model in ("blocks", "blocked"):
        await ledger.ended(await ledger.submit(model, floats(0.0, name="seconds")))
    first = await ledger.submit("blocks", floats(2.0, name="seconds"))
    await ledger.until(lambda: ledger.last(first) is not None)
    own, behind = [await ledger.submit("blocked", floats(0.3, name="seconds")) for _ in range(2)]
    records = {record.id: record for record in await ledger.ended(first, own, behind)}
    for job in (own, behind):
        parts = records[job].parts
        assert parts["other-model"] > 500
        assert 300 <= parts["run"] < parts["other-model"], "the own run alone"
    assert records[behind].parts["batch"] > 250, "behind the other job of its model, most of whose time it was there"
    assert "other-model" not in records[first].parts


async def test_a_job_of_a_version_that_left_the_catalog_ends_as_not_found_at_once(light: House) -> None:
    bus, ledger, _ = light
    await register(bus, "half", lightworker.version("half"))
    job_id = await ledger.submit("half", floats(1.0), version=9)
    (record,) = await ledger.ended(job_id)
    assert record.error is not None
    assert (record.state, record.error.code, record.attempt) == (State.FAILED, NotFound.code, 1)
    assert "Version 9 of model half is not served any more" in record.error.message
    assert (record.strikes, record.failures) == (0, 0)
    with pytest.raises(NotFound):
        await deadletters.find(bus, job_id)


async def test_a_queued_job_of_a_model_that_is_removed_ends_as_not_found(light: House) -> None:
    bus, ledger, _ = light
    await register(bus, "unplaced", lightworker.version("half"), replicas=0)
    job_id = await ledger.submit("unplaced", floats(1.0))
    await remove(bus, Bucket.MODELS, "unplaced")
    (record,) = await ledger.ended(job_id)
    assert record.error is not None
    assert (record.state, record.error.code) == (State.FAILED, NotFound.code)


async def test_a_version_that_cannot_be_loaded_ends_its_jobs_with_the_reason(light: House) -> None:
    bus, ledger, _ = light
    await register(bus, "broken", Path("/nowhere/1"), limits=Limits(max_delivery=2))
    job_id = await ledger.submit("broken", floats(1.0))
    (record,) = await ledger.ended(job_id)
    assert record.state is State.FAILED
    assert record.error is not None
    assert record.error.code == "not_serving"
    assert "cannot be loaded" in record.error.message
    assert (record.strikes, record.failures) == (0, 2), "no run ended the runner"
    assert [(one.number, one.code, one.counts) for one in record.attempts] == [(1, "not_serving", "failure")]
    for parts in (record.attempts[0].parts, record.parts):
        assert "load" in parts
        assert "run" not in parts
    assert record.parts["retry"] > 0
    assert times.split(record).run_ms is None
    notice = (await deadletters.find(bus, job_id)).notice
    assert notice is not None
    assert (notice.strikes, notice.failures) == (0, 2)


async def test_a_runner_that_dies_between_jobs_costs_nobody_a_strike(light: House) -> None:
    bus, ledger, worker = light
    await register(bus, "idle", lightworker.version("half"))
    await ledger.ended(await ledger.submit("idle", floats(1.0)))
    pids = [line["pid"] for line in worker.lines if line.get("event") == "runner.ready"]
    restarts = asyncio.create_task(reported(bus, lambda worker: worker.state == "restarting"))
    os.kill(pids[-1], signal.SIGKILL)
    await worker.said("runner.died", lambda line: line["pid"] == pids[-1])
    assert (await restarts).token, "it holds its GPU, and can compute nothing"
    await reported(bus, lambda worker: worker.state == "ready")
    (record,) = await ledger.ended(await ledger.submit("idle", floats(1.0)))
    assert (record.state, record.strikes) == (State.SUCCEEDED, 0), record


async def reported(bus: Bus, condition: Callable[[Worker], bool], name: str = "w1") -> Worker:
    """The first presence of the worker from now on of which ``condition`` holds."""
    table = Table(bus, Bucket.WORKERS, Worker)
    changed = asyncio.Event()
    table.on_change(lambda *_: changed.set())
    await table.start()
    try:
        async with asyncio.timeout(60):  # a runner may be started anew meanwhile, beside other work
            while (found := table.get(token(name))) is None or not condition(found):
                changed.clear()
                await changed.wait()
    finally:
        await table.close()
    return found


async def test_presence_tells_what_is_resident_and_how_fast_it_is(house: House) -> None:
    bus, ledger, worker = house
    await register(bus, "seen", models.half_plus_two())
    await ledger.ended(await ledger.submit("seen", floats(1.0)))
    found = await reported(bus, lambda worker: "seen" in worker.rates)
    assert found.state == "ready"
    assert found.token > 0
    assert found.pid == worker.pid
    resident = {r.model: r for r in found.models}
    assert resident["seen"].state == "ready"
    assert resident["seen"].size_bytes > 0
    assert found.rss_bytes < 80 * 1024 * 1024 < found.runner_rss_bytes


async def test_presence_tells_what_runs_and_what_waits_behind_it(light: House) -> None:
    bus, ledger, _ = light
    await register(bus, "busy", lightworker.version("slow"))
    await register(bus, "behind", lightworker.version("half"))
    await ledger.ended(
        await ledger.submit("busy", floats(0.05, name="seconds")), await ledger.submit("behind", floats(1.0))
    )
    await reported(bus, lambda worker: worker.run is None)
    began = time.time()
    long = await ledger.submit("busy", floats(100.0, name="seconds"))
    found = await reported(bus, lambda worker: worker.run is not None and long in worker.run.jobs)
    run = found.run
    assert run is not None
    assert (run.activity, run.model, run.version, run.jobs) == ("computing", "busy", 1, (long,))
    assert abs(run.since - began) < 60, "by the clock of NATS, which is not that of this test"
    assert run.expected_s > 0, "measured by the run before"
    assert not found.waiting
    for _ in range(3):
        await ledger.submit("behind", floats(1.0))
    found = await reported(bus, lambda worker: worker.waiting == {"behind": 3})
    assert found.oldest["behind"] == pytest.approx(time.time(), abs=60)
    assert len(found.running) == 4, "in flight, and one of them runs"
    records = Records(bus)
    await ledger.until(lambda: ledger.last(long) is not None)
    read = await records.read(long)
    assert read is not None
    record, revision, _ = read
    await records.write(life.cancel_asked(record), expect=revision)
    await bus.publish(names.cancel(long))
    await reported(bus, lambda worker: worker.run is None and not worker.waiting)


async def test_presence_tells_for_how_long_the_runner_has_computed(light: House) -> None:
    bus, ledger, _ = light
    await register(bus, "paced", lightworker.version("slow"))
    await ledger.ended(await ledger.submit("paced", floats(0.0, name="seconds")))
    before = await reported(bus, lambda worker: worker.run is None)
    assert before.loading_s > 0
    jobs = [await ledger.submit("paced", floats(0.4, name="seconds")) for _ in range(3)]
    await ledger.ended(*jobs)
    after = await reported(bus, lambda worker: worker.run is None and worker.computing_s >= before.computing_s + 0.4)
    assert after.computing_s - before.computing_s <= after.beat_at - before.beat_at


async def test_a_batch_that_uses_the_memory_up_runs_in_smaller_parts_and_the_ceiling_is_told(house: House) -> None:
    bus, ledger, _ = house
    full = Batching(max_size=8, max_delay_ms=20_000.0, rows_independent=True)  # it leaves when it is full, however slow
    await register(bus, "greedy", models.greedy(), batching=full)
    workers = Table(bus, Bucket.WORKERS, Worker)
    changed = asyncio.Event()
    workers.on_change(lambda _, __, ___: changed.set())
    await workers.start()

    def ceiling() -> int:
        found = workers.get(token("w1"))
        return {r.model: r.max_rows for r in found.models}.get("greedy", 0) if found else 0

    async with asyncio.timeout(150):
        while not ceiling():  # a batch that ran beside a load ahead says nothing of its own memory
            ids = [await ledger.submit("greedy", floats(float(i))) for i in range(8)]
            records = await ledger.ended(*ids, timeout_s=120)
            assert {r.state for r in records} == {State.SUCCEEDED}
            assert {(r.strikes, r.attempt) for r in records} == {(0, 1)}
            changed.clear()
            await changed.wait()
    assert ceiling() == 4
    await workers.close()
    ids = [await ledger.submit("greedy", floats(float(i))) for i in range(8)]
    records = await ledger.ended(*ids)
    assert max(r.batch for r in records) <= 4
