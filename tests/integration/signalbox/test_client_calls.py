"""The Python client's calls against a real edge, NATS, and a worker that is a script."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace

from gateway_plugin.upstream.server import HttpServer
from signalbox.client import Acted, AsyncClient, Client, Job, JobError, Submission, errors
from signalbox.client.jobs import JobFilter
from signalbox.wire.asks import ConsoleAnswer, JobPage, JobQuery
from signalbox.wire.messages import ErrorInfo
from signalbox.wire.tensors import Tensor
from tests.integration.gateway_plugin.test_gateway_asks import console
from tests.integration.gateway_plugin.test_gateway_lists import LISTED
from tests.integration.gateway_plugin.test_job_acts import give_up, reconciler
from tests.rigs.gateway import Rig, ScriptedWorker, key, model, rig
from tests.rigs.natsserver import NatsServer

X = np.array([1.0, 2.0, 5.0], np.float32)
Y = [2.5, 3.0, 4.5]


class At(NamedTuple):
    """A plugin with its edge, and a client of that."""

    made: Rig
    url: str
    key: str
    client: AsyncClient


@pytest.fixture
async def at(nats: NatsServer, tmp_path: Path) -> AsyncIterator[At]:
    mine = key()
    async with rig(nats.url, tmp_path) as made:
        await made.publish(mine, model())
        server = await HttpServer.start(made.gateway.http_upstream(is_front=True), listen="127.0.0.1:0")
        url = f"http://{server.address}"
        try:
            async with AsyncClient(url, mine.text) as client:
                yield At(made, url, mine.text, client)
        finally:
            made.gateway.stop_waiting()
            await server.close(1)


async def test_arrays_come_as_arrays_and_lists_as_json(at: At) -> None:
    async with ScriptedWorker(at.made.bus, "half"):
        arrays = await at.client.predict("half", {"x": X})
        assert (arrays["y"].dtype, arrays["y"].tolist()) == (np.dtype("float32"), Y)
        assert await at.client.predict("half", instances=[1.0, 2.0, 5.0]) == {"predictions": Y}
        assert await at.client.predict("half", {"x": [1.0]}, version=1) == {"outputs": [2.5]}
        with pytest.raises(errors.InvalidInput, match="FP32"):
            await at.client.predict("half", {"x": X.astype(np.float64)})
    assert [one["name"] for one in (await at.client.metadata("half"))["inputs"]] == ["x"]
    assert (await at.client.models())["models"] == ["half"]


async def test_a_job_is_submitted_waited_for_and_read(at: At) -> None:
    job = await at.client.submit("half", {"x": X}, priority="lo")
    assert (job.state, job.priority, job.has_ended) == ("queued", "lo", False)
    assert (await at.client.job(job)).created_at == job.created_at
    with pytest.raises(errors.DeadlineExceeded, match="wait again"):
        await at.client.wait(job, timeout_s=0)
    async with ScriptedWorker(at.made.bus, "half"):
        assert (await at.client.result(job))["y"].tolist() == Y
        assert (await at.client.wait(job)).state == "succeeded"
        listed = await at.client.submit("half", {"x": [1.0]}, deadline_s=60)
        assert (await at.client.result(listed.id))["y"].tolist() == [2.5]


async def test_the_same_idempotency_key_is_the_same_job(at: At) -> None:
    one, two = [await at.client.submit("half", {"x": X}, idempotency_key="order-17") for _ in range(2)]
    assert one.id == two.id
    assert (await at.client.submit("half", {"x": X})).id != one.id


async def test_a_job_without_a_result_says_why(at: At) -> None:
    cancelled = await at.client.cancel(await at.client.submit("half", {"x": X}))
    assert cancelled.state == "cancelled"
    with pytest.raises(errors.Cancelled, match="cancelled"):
        await at.client.result(cancelled)

    def refuse(_inputs: Sequence[Tensor]) -> ErrorInfo:
        return ErrorInfo(code="invalid_input", message="The matrix is singular.")

    async with ScriptedWorker(at.made.bus, "half", refuse):
        with pytest.raises(errors.InvalidInput, match="singular") as caught:
            await at.client.result(job := await at.client.submit("half", {"x": X}))
        assert (caught.value.facts["job_id"], caught.value.facts["state"]) == (job.id, "failed")
        assert (failed := (await at.client.job(job)).error) is not None
        assert failed.code == "invalid_input"
    with pytest.raises(errors.NoLongerKept):
        await at.client.job("01890000-0000-7000-8000-000000000000")


@pytest.mark.parametrize("ordered", [True, False])
async def test_many_inputs_are_predicted_a_few_at_a_time(at: At, *, ordered: bool) -> None:
    taken = 0

    def items() -> Sequence[dict[str, np.ndarray]]:
        return [{"x": np.array([number], np.float32)} for number in range(50)]

    async with ScriptedWorker(at.made.bus, "half"):
        found = [pair async for pair in at.client.map("half", items(), in_flight=4, ordered=ordered)]

        def plainly() -> list[float]:
            with Client(at.url, at.key) as client:
                return [float(y["y"][0]) for _, y in client.map("half", items(), in_flight=4, ordered=ordered)]

        plain = await asyncio.to_thread(plainly)
    for item, answer in found:
        taken += 1
        assert answer["y"] == item["x"] / 2 + 2
    numbers = [float(item["x"][0]) for item, _ in found]
    wanted = [number / 2 + 2 for number in range(50)]
    assert (numbers if ordered else sorted(numbers)) == list(range(50))
    assert (plain if ordered else sorted(plain)) == wanted
    assert taken == 50


async def test_jobs_are_listed_page_after_page(at: At) -> None:
    pages = [
        ConsoleAnswer(status="ok", page=JobPage(jobs=(LISTED, LISTED), cursor="next", as_of=0.0)),
        ConsoleAnswer(status="ok", page=JobPage(jobs=(LISTED,), as_of=0.0)),
    ]
    since = datetime(2026, 11, 1, tzinfo=UTC)
    chosen: JobFilter = {"state": ["failed", "queued"], "tags": ["a", "b/1"], "since": since, "sync": True}
    async with console(at.made, *pages) as asked:
        found = [job async for job in at.client.jobs(limit=250, **chosen)]
        one, two = [(await asked.get()).jobs for _ in pages]
    assert [job.error for job in found] == [JobError("model_error", "No such op.")] * 3
    assert (found[0].finished_at, found[0].tags) == (datetime(2026, 11, 29, 5, 0, 1, 500_000, UTC), ("nightly",))
    wanted = JobQuery(
        states=("failed", "queued"), tags=("a", "b/1"), since=since.timestamp(), with_sync=True, limit=200
    )
    assert (one, two) == (wanted, replace(wanted, cursor="next"))
    with pytest.raises(errors.Unavailable, match="each can be read by its id"):
        _ = [job async for job in at.client.jobs()]


async def test_a_job_is_followed_to_its_end(at: At) -> None:
    job = await at.client.submit("half", {"x": X})
    async with aclosing(at.client.events(job)) as events:
        first = await anext(events)
        assert (first.state, first.phase, first.result_url) == ("queued", "waiting: no worker serves half", None)
        async with ScriptedWorker(at.made.bus, "half"):
            rest = [event async for event in events]
    assert (rest[-1].state, rest[-1].has_ended) == ("succeeded", True)
    assert rest[-1].result_url == f"/v1/jobs/{job.id}/result"
    assert [event.state async for event in at.client.events(job.id)] == ["succeeded"]

    def plainly() -> list[str]:
        with Client(at.url, at.key) as client:
            return [event.state for event in client.events(job)]

    assert await asyncio.to_thread(plainly) == ["succeeded"]
    with pytest.raises(errors.NoLongerKept):
        await anext(at.client.events("01890000-0000-7000-8000-000000000000"))


async def test_jobs_are_changed_retried_and_deleted(at: At) -> None:
    raised = await at.client.change(await at.client.submit("half", {"x": X}, priority="lo"), priority="hi")
    assert raised.priority == "hi"
    with pytest.raises(errors.Conflict, match="cancel it first"):
        await at.client.delete(raised)
    given_up = await at.client.submit("half", {"x": X})
    await give_up(at.made, given_up.id)
    again = await at.client.retry(given_up)
    assert (await at.client.retry(given_up, after=again)).id not in {again.id, given_up.id}
    with pytest.raises(errors.Conflict, match="has not ended"):
        await at.client.retry(again)
    acted = await at.client.cancel_all([raised, again, given_up])
    assert (acted.done, acted.refused, acted.refusals[0].code) == (2, 1, "conflict")
    erasing = reconciler(at.made)
    working = asyncio.create_task(erasing.keep())
    await at.client.delete(given_up)
    assert (await at.client.delete_all([raised, again])).done == 2
    working.cancel()
    await asyncio.wait([working])
    with pytest.raises(errors.NoLongerKept, match="was deleted"):
        await at.client.job(given_up)


async def test_many_are_submitted_in_one_call_and_each_is_accepted_or_refused(at: At) -> None:
    jobs = [
        Submission("half", {"x": X}, tags=["a"]),
        Submission("nobody", instances=[1.0]),
        Submission("half", {"x": X}),
    ]
    one, refused, two = await at.client.submit_many(jobs, idempotency_key="night-17")
    again = await at.client.submit_many(jobs, idempotency_key="night-17")
    assert isinstance(one, Job)
    assert isinstance(two, Job)
    assert isinstance(refused, errors.NotFound)
    assert [job.id for job in again if isinstance(job, Job)] == [one.id, two.id]
    assert (await at.client.job(one)).tags == ("a",)
    async with ScriptedWorker(at.made.bus, "half"):
        assert (await at.client.result(two))["y"].tolist() == Y
    with pytest.raises(errors.InvalidRequest, match="1 to 1000"):
        await at.client.submit_many(jobs * 400)


async def test_a_waiting_job_is_changed_and_an_ended_one_deleted(at: At) -> None:
    job = await at.client.submit("half", {"x": X}, priority="lo", deadline_s=60)
    raised = await at.client.change(job, priority="hi", deadline_s=600)
    assert raised.priority == "hi"
    assert raised.deadline_at is not None
    assert job.deadline_at is not None
    assert raised.deadline_at > job.deadline_at
    with pytest.raises(errors.Conflict):
        await at.client.delete(job)
    await at.client.cancel(job)
    with pytest.raises(errors.DeadlineExceeded, match="being deleted"):
        await at.client.delete(job, timeout_s=0)
    assert await reconciler(at.made).turn(is_whole=False)
    await at.client.delete(job)
    with pytest.raises(errors.NoLongerKept, match="was deleted"):
        await at.client.job(job)


async def test_a_job_that_was_given_up_is_run_again(at: At) -> None:
    job = await at.client.submit("half", {"x": X})
    await give_up(at.made, job.id)
    with pytest.raises(errors.DeadlineExceeded, match="ran too long"):
        await at.client.result(job)
    again = await at.client.retry(job)
    assert again == await at.client.retry(job)
    async with ScriptedWorker(at.made.bus, "half"):
        assert (await at.client.result(again))["y"].tolist() == Y
    with pytest.raises(errors.Conflict):
        await at.client.retry(again)


async def test_acts_on_many_say_how_many_were_done_and_refused(at: At) -> None:
    jobs = [await at.client.submit("half", {"x": X}) for _ in range(3)]
    assert await at.client.cancel_all(jobs) == Acted(3, 0)
    twice = await at.client.retry_all([jobs[0].id])
    assert (twice.done, twice.refused, twice.refusals[0].id, twice.refusals[0].code) == (0, 1, jobs[0].id, "conflict")
    listed = [replace(LISTED, id=job.id, state="cancelled") for job in jobs]
    pages = [JobPage(jobs=(listed[0],), cursor="next", as_of=1.0), JobPage(jobs=tuple(listed[1:]), as_of=1.0)]
    async with console(at.made, *(ConsoleAnswer(status="ok", page=page) for page in pages)):
        assert await at.client.delete_all(tags=["nightly"]) == Acted(3, 0)


async def test_arrays_with_tags_are_submitted_too(at: At) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    later = await at.client.submit("half", {"x": X}, tags=("nightly",), deadline_s=60, not_before=due)
    assert (later.not_before, later.tags) == (due.replace(microsecond=due.microsecond // 1000 * 1000), ("nightly",))
    assert later.deadline_at is not None
    assert later.not_before is not None
    assert later.deadline_at - later.not_before == timedelta(seconds=60)
    with pytest.raises(errors.InvalidRequest, match="at most 64 characters"):
        await at.client.submit("half", {"x": X}, tags=["no spaces"])
    with pytest.raises(ValueError, match="no time zone"):
        await at.client.submit("half", {"x": X}, not_before=due.replace(tzinfo=None))
    job = await at.client.submit("half", {"x": X}, tags=["nightly", "run=7"], priority="hi")
    assert (job.tags, job.priority) == (("nightly", "run=7"), "hi")
    async with ScriptedWorker(at.made.bus, "half"):
        assert (await at.client.result(job))["y"].tolist() == Y


async def test_the_first_error_of_many_ends_them_unless_errors_are_kept(at: At) -> None:
    items = [{"x": X}, {"x": X.astype(np.int8)}, {"x": X}]
    async with ScriptedWorker(at.made.bus, "half"):
        with pytest.raises(errors.InvalidInput):
            _ = [pair async for pair in at.client.map("half", items)]
        kept = [answer async for _, answer in at.client.map("half", items, keep_errors=True)]
    assert isinstance(kept[1], errors.InvalidInput)
    assert [answer["y"].tolist() for answer in (kept[0], kept[2])] == [Y, Y]


async def test_plain_code_has_the_same_calls(at: At) -> None:
    def plainly() -> None:
        with Client(at.url, at.key) as client:
            assert client.predict("half", {"x": X})["y"].tolist() == Y
            job = client.submit("half", {"x": X})
            assert client.result(job)["y"].tolist() == Y
            assert client.wait(job).has_ended
            with pytest.raises(errors.Conflict):
                client.cancel(job)

    async with ScriptedWorker(at.made.bus, "half"):
        await asyncio.to_thread(plainly)
