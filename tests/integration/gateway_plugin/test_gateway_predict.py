"""Predictions over the real gRPC socket and a real NATS."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.table import remove
from signalbox.jobs import deadletters
from signalbox.jobs.records import Records
from signalbox.program.settings import Wire
from signalbox.wire import jobids
from signalbox.wire.keydocs import Share
from signalbox.wire.messages import DeadLetter, ErrorInfo, Job, decode
from signalbox.wire.modeldocs import Signature, TensorSpec, Version
from signalbox.wire.names import Bucket, Header, Stream
from signalbox.wire.tensors import Tensor
from tests.rigs.gateway import Key, Reply, Rig, ScriptedWorker, key, limits, model, rig
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from workers.recovery.reconciler import JobReconciler


@pytest.fixture
async def front(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(nats.url, tmp_path) as made:
        yield made


async def test_a_prediction_waits_for_its_answer_by_default(front: Rig, mine: Key) -> None:
    async with ScriptedWorker(front.bus, "half"):
        got = await front.call("POST", "/v1/models/half:predict", {"instances": [1.0, 2.0, 5.0]}, key=mine)
    assert got.status == 200
    assert got.body == b'{"predictions":[2.5,3.0,4.5]}'
    assert got.headers["Content-Type"] == "application/json"
    assert len(got.headers["X-Signalbox-Job-Id"]) == 36
    assert got.headers["Server-Timing"].startswith("queue;dur=")
    assert int(got.headers["X-Signalbox-Queue-Ms"]) >= 0


async def test_only_a_call_that_promises_nothing_for_later_has_a_short_lived_record(front: Rig, mine: Key) -> None:
    path, body = "/v1/models/half:predict", {"instances": [1.0]}
    asks: dict[str, dict[str, str]] = {
        "waits": {},
        "waits a while": {"Prefer": "wait=20"},
        "asks for an id": {"Prefer": "respond-async"},
        "asks for an id, and waits": {"Prefer": "respond-async, wait=20"},
        "may ask again": {"Idempotency-Key": "k"},
    }
    async with ScriptedWorker(front.bus, "half"):
        got = {name: await front.call("POST", path, body, key=mine, headers=headers) for name, headers in asks.items()}
        ids = {name: reply.headers["X-Signalbox-Job-Id"] for name, reply in got.items()}
        read = await front.call("GET", f"/v1/jobs/{ids['waits']}", key=mine)
    assert {name for name, job_id in ids.items() if jobids.is_short_lived(job_id)} == {"waits", "waits a while"}
    stored = await front.bus.leader_get(Stream.STATE, f"st.{jobids.slot_of(ids['waits'])}.{ids['waits']}")
    assert stored is not None
    assert read.doc["result"] == {"predictions": [2.5]}


async def test_columnar_inputs_get_outputs(front: Rig, mine: Key) -> None:
    async with ScriptedWorker(front.bus, "half"):
        got = await front.call("POST", "/v1/models/half/versions/1:predict", {"inputs": {"x": [2]}}, key=mine)
    assert (got.status, got.body) == (200, b'{"outputs":[3.0]}')


async def test_a_hundred_callers_at_once_each_get_their_own_answer(front: Rig, mine: Key) -> None:
    async with ScriptedWorker(front.bus, "half"):
        replies = await asyncio.gather(
            *(front.call("POST", "/v1/models/half:predict", {"instances": [n]}, key=mine) for n in range(100))
        )
    assert [reply.doc for reply in replies] == [{"predictions": [n / 2 + 2]} for n in range(100)]


async def test_respond_async_gives_a_job_to_fetch_later(front: Rig, mine: Key) -> None:
    async with ScriptedWorker(front.bus, "half") as worker:
        worker.go.clear()
        got = await front.call(
            "POST", "/v1/models/half:predict", {"instances": [1.0]}, key=mine, headers={"Prefer": "respond-async"}
        )
        assert got.status == 202
        assert got.headers["Location"] == f"/v1/jobs/{got.doc['id']}"
        assert int(got.headers["Retry-After"]) >= 1
        assert got.headers["Preference-Applied"] == "respond-async"
        assert got.doc["state"] == "queued"
        await asyncio.wait_for(worker.claimed.wait(), 60)
        running = await front.call("GET", got.headers["Location"], key=mine)
        assert running.doc["state"] == "running"
        assert running.doc["phase"] == "running, attempt 1"
        assert "Retry-After" in running.headers
        worker.go.set()
        await asyncio.wait_for(worker.finished.wait(), 60)
        done = await front.call("GET", got.headers["Location"], key=mine)
    assert done.status == 200
    assert done.doc["state"] == "succeeded"
    assert done.doc["result"] == {"predictions": [2.5]}
    assert [e["phase"] for e in done.doc["timeline"]] == ["accepted", "pulled", "claimed", "started", "done"]
    (attempt,) = done.doc["attempts"]
    assert (attempt["attempt"], attempt["gpu"], attempt["ended"]) == (1, "CPU-test-0", "succeeded")
    assert [part["part"] for part in attempt["parts"]] == ["queue", "batch", "run"]
    (under_way,) = running.doc["attempts"]
    assert under_way["ended"] is None, "and says what it waited for"
    assert [part["part"] for part in under_way["parts"]] == ["queue", "batch"]


async def test_time_out_says_so_and_names_the_job(front: Rig, mine: Key) -> None:
    await front.publish(model(limits=limits(sync_wait_s=0.2)))
    got = await front.call("POST", "/v1/models/half:predict", {"instances": [1.0]}, key=mine)
    assert (got.status, got.doc) == (504, {"error": "Timed out"})
    job = await front.call("GET", f"/v1/jobs/{got.headers['X-Signalbox-Job-Id']}", key=mine)
    assert job.doc["state"] == "queued"
    assert job.doc["phase"] == "waiting: no worker serves half"


async def test_a_lost_reply_is_made_up_for_by_the_record(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path, recheck_s=0.2) as front:
        mine = key()
        await front.publish(model(), mine)
        async with ScriptedWorker(front.bus, "half") as worker:
            worker.is_silent = True
            got = await front.call("POST", "/v1/models/half:predict", {"instances": [1.0]}, key=mine)
    assert (got.status, got.doc) == (200, {"predictions": [2.5]})


async def test_the_example_of_tensorflow_serving_s_documentation_is_answered(front: Rig, mine: Key) -> None:
    spec = TensorSpec(dtype="float32", shape=(-1, 1))
    signature = Signature(inputs={"x": spec}, outputs={"y": spec})
    version = Version(version=1, path="/nowhere", signatures={"serving_default": signature})
    await front.publish(model("half_plus_two", versions=(version,)))
    path = "/v1/models/half_plus_two:predict"
    async with ScriptedWorker(front.bus, "half_plus_two"):
        for body, want in (
            ({"instances": [1.0, 2.0, 5.0]}, {"predictions": [2.5, 3.0, 4.5]}),
            ({"inputs": [1.0, 2.0, 5.0]}, {"outputs": [2.5, 3.0, 4.5]}),
            ({"inputs": {"x": [[1.0], [2.0]]}}, {"outputs": [[2.5], [3.0]]}),
            ({"inputs": 5.0}, {"outputs": 4.5}),
        ):
            got = await front.call("POST", path, body, key=mine)
            assert (got.status, got.doc) == (200, want)
        row = await front.call("POST", path, {"instances": [[1.0], [2.0, 3.0]]}, key=mine)
    assert (row.status, "got a list of 2 at [1]" in row.doc["error"]) == (400, True)


async def test_a_model_s_refusal_is_the_caller_s_400(front: Rig, mine: Key) -> None:
    refusal = ErrorInfo(code="model_error", message="negative input")
    async with ScriptedWorker(front.bus, "half", lambda _: refusal):
        got = await front.call("POST", "/v1/models/half:predict", {"instances": [-1]}, key=mine)
    assert (got.status, got.doc) == (400, {"error": "negative input"})
    assert "X-Signalbox-Job-Id" in got.headers


async def test_large_bodies_go_by_another_process_and_by_claim_check(front: Rig, mine: Key) -> None:
    values = [float(n) for n in range(100_000)]
    async with ScriptedWorker(front.bus, "half"):
        got = await front.call("POST", "/v1/models/half:predict", {"instances": values}, key=mine)
    assert got.status == 200
    assert got.doc == {"predictions": [v / 2 + 2 for v in values]}


async def test_a_gzip_body_is_inflated(front: Rig, mine: Key) -> None:
    import gzip

    body = gzip.compress(json.dumps({"instances": [1.0]}).encode())
    async with ScriptedWorker(front.bus, "half"):
        got = await front.call("POST", "/v1/models/half:predict", body, key=mine, headers={"Content-Encoding": "gzip"})
    assert (got.status, got.doc) == (200, {"predictions": [2.5]})


async def test_a_caller_who_leaves_takes_the_queued_job_along(front: Rig, mine: Key) -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()

    def on_record(message: object) -> None:
        seen.put_nowait(message.headers["Sb-Record"])  # type: ignore[attr-defined]

    accepted = asyncio.Event()
    jobs = await front.bus.subscribe("evt.jobs.>", lambda _: accepted.set())
    records = await front.bus.subscribe("evt.st.>", on_record)
    told: asyncio.Queue[str] = asyncio.Queue()
    cancels = await front.bus.subscribe("cancel.*", lambda message: told.put_nowait(message.subject))
    call = asyncio.create_task(front.call("POST", "/v1/models/half:predict", {"instances": [1.0]}, key=mine))
    await asyncio.wait_for(accepted.wait(), 60)
    call.cancel()
    record = json.loads(await asyncio.wait_for(seen.get(), 60))
    assert record["state"] == "cancelled"
    assert await asyncio.wait_for(told.get(), 60) == f"cancel.{record['id']}", "a worker may have it already"
    for subscription in (jobs, records, cancels):
        await subscription.close()


async def test_the_gateway_s_own_nats_user_may_do_all_it_needs(tmp_path: Path) -> None:
    users = {"gateway": "g", "admin": "a"}
    async with NatsServer(tmp_path / "nats", users=users) as server:
        admin = Wire(nats_url=server.url, nats_user="admin", nats_password="a")
        bus = await Bus.connect(admin, role="admin")
        await topology.apply(bus)
        await bus.close()
        async with rig(server.url, tmp_path, admin_wire=admin, nats_user="gateway", nats_password="g") as front:
            mine = key()
            await front.publish(model(), mine)
            jobs = "/v1/jobs"
            body = {"model": "half", "instances": [1.0] * 80_000}
            left = await front.call("POST", jobs, {"model": "half", "instances": [1.0]}, key=mine)
            raised = await front.call("PATCH", left.headers["Location"], {"priority": "hi"}, key=mine)
            gone = await front.call("POST", f"{left.headers['Location']}/cancel", key=mine)
            deleted = await front.call("DELETE", left.headers["Location"], key=mine)
            assert (left.status, raised.status, gone.status, deleted.status) == (202, 200, 200, 202)
            given_up = await front.call("POST", jobs, body, key=mine)
            stored = await Records(front.bus).queued(given_up.doc["id"])
            assert stored is not None
            job, why = decode(Job, stored.headers[Header.JOB]), ErrorInfo(code="deadline_exceeded", message="It hung.")
            await deadletters.keep(front.bus, job, b"", DeadLetter(error=why))
            await front.call("POST", f"{given_up.headers['Location']}/cancel", key=mine)
            again = await front.call("POST", f"{given_up.headers['Location']}/retry", key=mine)
            assert (again.status, again.doc["redrive_of"]) == (202, given_up.doc["id"])
            async with ScriptedWorker(front.bus, "half") as worker:
                got = await front.call("POST", jobs, body, key=mine, headers={"Prefer": "wait=20"})
                assert got.status == 200
                read = await front.call("GET", f"{jobs}/{got.doc['id']}", key=mine)
                assert len(read.doc["result"]["predictions"]) == 80_000
                worker.go.clear()
                worker.claimed.clear()
                running = await front.call("POST", jobs, {"model": "half", "instances": [1.0]}, key=mine)
                await asyncio.wait_for(worker.claimed.wait(), 60)
                asked = await front.call("POST", f"{running.headers['Location']}/cancel", key=mine)
                assert asked.status == 202
                worker.go.set()


async def test_more_callers_than_may_wait_are_refused_before_anything_is_stored(
    nats: NatsServer, tmp_path: Path
) -> None:
    async with rig(nats.url, tmp_path, max_waiting=1) as front:
        mine = key()
        await front.publish(model(), mine)
        body = {"instances": [1.0]}
        async with ScriptedWorker(front.bus, "half") as worker:
            worker.go.clear()
            first = asyncio.create_task(front.call("POST", "/v1/models/half:predict", body, key=mine))
            await asyncio.wait_for(worker.claimed.wait(), 60)
            second = await front.call("POST", "/v1/models/half:predict", body, key=mine)
            worker.go.set()
            answered = await first
    assert (second.status, answered.status) == (503, 200)
    assert "Retry-After" in second.headers
    assert "X-Signalbox-Job-Id" not in second.headers


async def test_an_account_may_have_no_more_calls_waiting_than_may_still_come(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path, max_waiting=8) as front:
        mine = key(account_id="flood")
        again = key(account_id="flood")
        few = key(share=Share(waiting=1))
        other = key()
        await front.publish(model(), mine, again, few, other)

        async def predict(owner: Key) -> Reply:
            path = "/v1/models/half:predict"
            return await front.call("POST", path, {"instances": [1.0]}, key=owner)

        async with ScriptedWorker(front.bus, "half") as worker:
            worker.go.clear()
            calls = [asyncio.create_task(predict(owner)) for owner in [mine, again] * 6]
            calls += [asyncio.create_task(predict(few)) for _ in range(2)]
            first_to_end = asyncio.as_completed(calls, timeout=60)
            refused = [await next(first_to_end) for _ in range(9)]
            theirs = asyncio.create_task(predict(other))
            worker.go.set()
            served = [await theirs, *(await asyncio.gather(*calls))]
    assert {reply.status for reply in refused} == {429}
    assert all("Retry-After" in reply.headers for reply in refused)
    assert "respond-async" in refused[0].doc["error"]
    assert served[0].status == 200
    assert sum(reply.status == 200 for reply in served) == 1 + 4 + 1


@pytest.mark.parametrize("count", [30_000, 1_000_000], ids=["rendered", "not even fetched"])
async def test_a_result_too_large_for_an_answer_is_said_to_be_so(nats: NatsServer, tmp_path: Path, count: int) -> None:
    def many(_: Sequence[Tensor]) -> list[Tensor]:
        return [Tensor("y", "float32", (count,), bytes(4 * count))]

    async with rig(nats.url, tmp_path, max_answer_bytes=100_000) as front:
        mine = key()
        await front.publish(model(), mine)
        async with ScriptedWorker(front.bus, "half", many):
            path, body = "/v1/models/half:predict", {"inputs": [1.0]}
            got = await front.call("POST", path, body, key=mine)
            job_id = got.headers["X-Signalbox-Job-Id"]
            read = await front.call("GET", f"/v1/jobs/{job_id}", key=mine)
    assert got.status == 422
    assert "as JSON" in got.doc["error"]
    assert "Send fewer rows" in got.doc["error"]
    assert (read.status, read.doc["state"], read.doc["result"]) == (200, "succeeded", None)
    assert read.doc["error"]["code"] == "result_too_large"


async def test_what_a_worker_says_of_a_result_too_large_is_not_our_failure(front: Rig, mine: Key) -> None:
    def refuse(_: Sequence[Tensor]) -> ErrorInfo:
        return ErrorInfo(code="result_too_large", message="The results take more than is taken.")

    async with ScriptedWorker(front.bus, "half", refuse):
        got = await front.call("POST", "/v1/models/half:predict", {"instances": [1.0]}, key=mine)
    assert (got.status, got.doc["error"]) == (422, "The results take more than is taken.")


async def test_a_wait_that_ran_out_shows_the_job_as_it_is_by_then(front: Rig, mine: Key) -> None:
    async with ScriptedWorker(front.bus, "half") as worker:
        worker.go.clear()
        got = await front.call(
            "POST",
            "/v1/models/half:predict",
            {"instances": [1.0]},
            key=mine,
            headers={"Prefer": "respond-async, wait=1"},
        )
        worker.go.set()
    assert (got.status, got.doc["state"]) == (202, "running")


async def test_calls_that_wait_for_a_model_get_404_in_their_dialect_when_it_is_removed(front: Rig, mine: Key) -> None:
    def ask(path: str, body: object, **headers: str) -> asyncio.Task[Reply]:
        return asyncio.create_task(front.call("POST", path, body, key=mine, headers=headers))

    async def are_queued() -> bool:
        jobs = await front.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
        return bool(jobs["state"]["messages"] == 3)

    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}
    serving = ask("/v1/models/half:predict", {"instances": [1.0]})
    oip = ask("/v2/models/half/infer", {"inputs": [tensor]})
    job = await ask("/v1/models/half:predict", {"instances": [1.0]}, Prefer="respond-async")
    async with asyncio.timeout(30):
        await becomes(are_queued, limit_s=30.0)
        await remove(front.bus, Bucket.MODELS, "half")
        reconciler = JobReconciler(
            front.bus,
            Records(front.bus),
            workers=list,
            models=dict,
            is_removed=lambda name: name == "half",
            worker="w1",
            boot="b",
        )
        assert await reconciler.turn()
        answers = await asyncio.gather(serving, oip)
    why = "The model half is not in the catalog any more: it was deleted after the job was accepted."
    assert [(answer.status, answer.doc["error"]) for answer in answers] == [(404, why)] * 2
    read = await front.call("GET", f"/v1/jobs/{job.doc['id']}", key=mine)
    assert (read.status, read.doc["state"], read.doc["error"]["code"]) == (200, "failed", "not_found")
    late = await front.call("POST", "/v1/models/half:predict", {"instances": [1.0]}, key=mine)
    assert late.status == 404
