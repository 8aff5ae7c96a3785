"""Acts on many jobs in one call: by ids, by a filter that the console resolves page by page, and within bounds."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway_plugin.service import manyacts
from signalbox.bus.client import Bus, Message
from signalbox.jobs.records import Records
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.wire import jobids
from signalbox.wire.asks import ConsoleAnswer, ConsoleAsk, JobPage, JobQuery, ListedJob
from signalbox.wire.messages import State, decode, encode
from signalbox.wire.names import ask_console
from tests.integration.gateway_plugin.test_job_acts import give_up, submit
from tests.rigs.gateway import ALL_SCOPES, Key, Reply, Rig, key

CONFLICT = "conflict"


async def many(front: Rig, mine: Key, what: str, **fields: object) -> Reply:
    return await front.call("POST", f"/v1/jobs/{what}", fields, key=mine)


async def state_of(front: Rig, job_id: str) -> State:
    found = await Records(front.bus).find(job_id)
    assert found is not None
    return found.record.state


async def test_jobs_named_by_their_ids_are_each_done_or_refused_by_themselves(front: Rig, mine: Key) -> None:
    other = key()
    await front.publish(other)
    jobs = [await submit(front, mine) for _ in range(3)]
    foreign = await submit(front, other)
    gone = await give_up(front, await submit(front, mine))
    got = await many(front, mine, "cancel", ids=[*jobs, foreign, gone.id, "nonsense", jobs[0]])
    assert got.status == 200
    told = got.doc["refusals"]
    assert [(one["id"], one["code"]) for one in told] == [
        (foreign, "not_found"),
        (gone.id, CONFLICT),
        ("nonsense", "not_found"),
    ]
    assert told[1]["detail"] == "The job has already ended: failed."
    assert {name: got.doc[name] for name in ("done", "refused", "cursor", "as_of")} == {
        "done": 3,
        "refused": 3,
        "cursor": None,
        "as_of": None,
    }
    assert [await state_of(front, job) for job in (*jobs, foreign)] == [State.CANCELLED] * 3 + [State.QUEUED]
    again = await many(front, mine, "retry", ids=[gone.id, jobs[0]])
    assert (again.doc["done"], again.doc["refused"]) == (1, 1)
    deleted = await many(front, mine, "delete", ids=[*jobs, gone.id, foreign])
    assert (deleted.doc["done"], deleted.doc["refusals"][0]["code"]) == (4, "not_found")
    for job in (*jobs, gone.id):
        assert (await front.call("GET", f"/v1/jobs/{job}", key=mine)).status == 410
    assert (await front.call("GET", f"/v1/jobs/{foreign}", key=other)).status == 200


async def test_a_thousand_jobs_go_in_one_call_and_the_first_refusals_are_told(front: Rig, mine: Key) -> None:
    unknown = [str(uuid.uuid4()) for _ in range(900)]
    jobs = [await submit(front, mine) for _ in range(100)]
    got = await many(front, mine, "cancel", ids=[*unknown, *jobs])
    assert (got.doc["done"], got.doc["refused"]) == (100, 900)
    assert [one["id"] for one in got.doc["refusals"]] == unknown[:20]


@asynccontextmanager
async def listing(bus: Bus, jobs: list[ListedJob]) -> AsyncIterator[list[JobQuery]]:
    """A console that lists these jobs, whatever is asked; the cursor is the number of the next one."""
    asked: list[JobQuery] = []

    async def answer(message: Message) -> None:
        query = decode(ConsoleAsk, message.data).jobs
        assert query is not None
        asked.append(query)
        start = int(query.cursor or 0)
        end = start + query.limit
        page = JobPage(jobs=tuple(jobs[start:end]), cursor=str(end) if end < len(jobs) else "", as_of=1_795_928_500.0)
        await bus.publish(message.reply, encode(ConsoleAnswer(status="ok", page=page)))

    listening = await bus.subscribe(ask_console("jobs"), answer)
    try:
        yield asked
    finally:
        await listening.close()


def listed(job_id: str, state: str = "queued") -> ListedJob:
    return ListedJob(id=job_id, model="half", version=1, state=state, created_at=time.time())


async def test_a_filter_goes_from_page_to_page_up_to_the_limit_and_on_from_the_cursor(front: Rig, mine: Key) -> None:
    jobs = [await submit(front, mine) for _ in range(250)]
    async with listing(front.bus, [listed(job) for job in jobs]) as asked:
        first = await many(front, mine, "cancel", filter={"tag": ["night", "a"], "model": "half"}, limit=230)
        rest = await many(front, mine, "cancel", filter={}, cursor=first.doc["cursor"])
    assert (first.doc["done"], first.doc["cursor"], first.doc["as_of"]) == (230, "230", "2026-11-29T05:01:40.000Z")
    assert (rest.doc["done"], rest.doc["cursor"]) == (20, None)
    assert [(one.limit, one.cursor) for one in asked] == [(200, ""), (30, "200"), (200, "230")]
    assert asked[0].tags == ("night", "a")
    assert {one.states for one in asked} == {("queued", "running")}, "what has ended cannot be cancelled"
    assert {await state_of(front, job) for job in jobs} == {State.CANCELLED}


async def test_what_only_the_console_knows_goes_too(front: Rig, mine: Key) -> None:
    """Its record has had its time, its row says what came of it."""
    now = time.time()
    old, waiting = (jobids.new_job_id(now - age, uuid.uuid4().int) for age in (3 * 86_400, 5))
    async with listing(front.bus, [listed(old, "failed"), listed(waiting)]) as asked:
        got = await many(front, mine, "delete", filter={"error": "secret"})
    assert (got.doc["done"], [one["id"] for one in got.doc["refusals"]]) == (1, [waiting])
    assert set(asked[0].states) == {"succeeded", "failed", "cancelled", "expired"}
    found = await Records(front.bus).read(old)
    assert found is not None
    assert (found[0].account_id, found[0].state, found[0].deleted_at > 0) == (mine.stored.account_id, "failed", True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "The body must choose jobs"),
        ({"ids": [], "filter": {}}, "The body must choose jobs"),
        ({"ids": []}, '"ids" must be a list of 1 to 1000'),
        ({"ids": [3]}, '"ids" must be a list of 1 to 1000'),
        ({"ids": ["0"] * 1001}, '"ids" must be a list of 1 to 1000'),
        ({"ids": ["a" * 65]}, '"ids" must be a list of 1 to 1000'),
        ({"ids": ["0"], "limit": 3}, '"limit"'),
        ({"filter": []}, '"filter" must be an object'),
        ({"filter": {"satet": "failed"}}, 'Did you mean "state"?'),
        ({"filter": {}, "limit": 0}, '"limit" must be a whole number from 1 to 1000.'),
        ({"filter": {}, "cursor": 3}, '"cursor" must be that of the answer before.'),
    ],
)
async def test_what_chooses_no_jobs_is_400(front: Rig, mine: Key, fields: dict[str, Any], words: str) -> None:
    for what in ("cancel", "retry", "delete"):
        got = await many(front, mine, what, **fields)
        assert (got.status, got.doc["code"]) == (400, "invalid_request")
        assert words in got.doc["detail"]


async def test_each_act_on_many_needs_its_scope_and_a_filter_that_to_read(front: Rig) -> None:
    needed = {"cancel": "jobs:cancel", "retry": "jobs:submit", "delete": "jobs:cancel"}
    for what, scope in needed.items():
        one, both, other = (
            key(scopes=scopes)
            for scopes in ((scope,), (scope, "jobs:read"), tuple(each for each in ALL_SCOPES if each != scope))
        )
        await front.publish(one, both, other)
        assert (await many(front, one, what, ids=["0"])).status == 200
        assert (await many(front, other, what, ids=["0"])).status == 403
        assert (await many(front, one, what, filter={})).status == 403
        async with listing(front.bus, []):
            assert (await many(front, both, what, filter={})).status == 200


async def test_where_nats_is_away_the_rest_is_not_tried() -> None:
    tried: list[str] = []

    async def away(_key: object, job_id: str, _listed: object) -> None:
        tried.append(job_id)
        await asyncio.sleep(0)
        raise Unavailable("NATS is away.")

    async def refuse(_key: object, _id: str, _listed: object) -> None:
        raise SignalboxError("No.")

    jobs = [(str(number), None) for number in range(500)]
    acted = await manyacts._each(key().stored, away, list(jobs))
    assert (acted.done, acted.refused, acted.refusals[0].error.code) == (0, 500, "unavailable")
    assert len(tried) <= 32
    assert (await manyacts._each(key().stored, refuse, list(jobs))).refused == 500


async def test_an_account_has_no_more_such_calls_at_once_than_are_free(front: Rig, mine: Key) -> None:
    other = key()
    await front.publish(other)
    held, asked = asyncio.Event(), asyncio.Semaphore(0)

    async def answer(message: Message) -> None:
        asked.release()

        async def later() -> None:
            await held.wait()
            page = JobPage(jobs=(), as_of=1.0)
            await front.bus.publish(message.reply, encode(ConsoleAnswer(status="ok", page=page)))

        waiting.append(asyncio.create_task(later()))

    waiting: list[asyncio.Task[None]] = []
    listening = await front.bus.subscribe(ask_console("jobs"), answer)
    calls = [asyncio.create_task(many(front, mine, "cancel", filter={})) for _ in range(4)]
    for _ in calls:
        await asyncio.wait_for(asked.acquire(), 60)
    refused = await many(front, mine, "cancel", filter={})
    assert (refused.status, refused.doc["code"], refused.doc["bound"]) == (429, "limit_exceeded", "acts")
    assert (await many(front, other, "cancel", ids=["0"])).status == 200
    held.set()
    assert [got.status for got in await asyncio.gather(*calls)] == [200] * 4
    await asyncio.gather(*waiting)
    await listening.close()
