"""Lists of jobs for owners of API keys: their account's rows alone, page by page, as gateways ask over NATS."""

import asyncio
import secrets
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from msgspec.structs import replace

from console.accounts.rights import Actor, system_actor
from console.asked import answering, jobs, listener
from console.asked.listener import answer_asks
from console.jobs import retention
from console.jobs.fold import JobMessage
from console.jobs.models import Job, JobTag
from console.keys import services as keys
from console.keys.models import ApiKey
from console.projector import store
from gateway_plugin.service.console import Console
from signalbox.jobs import life
from signalbox.jobs.penalty import Penalty
from signalbox.program.errors import Forbidden, InvalidRequest, Unavailable
from signalbox.wire import asks, keydocs
from signalbox.wire.asks import ConsoleAnswer, ConsoleAsk, JobPage, JobQuery
from signalbox.wire.jobids import new_job_id
from signalbox.wire.messages import ErrorInfo, decode, encode
from tests.console.conftest import in_thread
from tests.console.test_asked import connect, listening, wire
from tests.console.test_jobs import make, tags_of
from tests.console.test_projector import NOW, accept, accepted, projecting, run_job


def reader(admin: Actor, scopes: tuple[str, ...] = ("jobs:read",)) -> ApiKey:
    """A key of an account of its own."""
    return keys.create(admin, keys.KeyGrant(name=f"ci {secrets.token_hex(4)}", scopes=scopes))[0]


def said(key: ApiKey, **query: Any) -> ConsoleAnswer:
    asked = ConsoleAsk(key_id=key.pk, account=key.account_id, what="jobs", jobs=JobQuery(**query))
    return decode(ConsoleAnswer, answering.answer(encode(asked), 5.0))


def page(key: ApiKey, **query: Any) -> JobPage:
    answer = said(key, **query)
    assert answer.page is not None, answer.text
    return answer.page


def numbers(page: JobPage) -> list[int]:
    return [int(job.id[-4:], 16) for job in page.jobs]


def mine(key: ApiKey, number: int, **changes: Any) -> Job:
    return make(number, account_id=key.account_id, **changes)


@pytest.fixture
def key(admin: Actor) -> ApiKey:
    """A key that may list, with seven jobs of different kinds; another account has some too."""
    made = reader(admin)
    mine(made, 1)
    mine(made, 2, state="failed", error_code="model_error", error_message="No such op: Foo", tags=["nightly", "a"])
    mine(made, 3, state="running", model="slow", attempt=2, tags=["nightly"])
    mine(made, 4, state="queued", tags=["a"], not_before=timezone.now())
    mine(made, 5, state="cancelled", error_code="cancelled", error_message="The job was cancelled.")
    mine(made, 6, error_code="model_error", error_message="no such op, the first time")
    mine(made, 7, id="00000000-0000-8000-8000-000000000007", is_sync=True)
    for number in (8, 9):
        make(number, account_id="other", tags=["nightly"], state="failed", error_code="no_such")
    return made


def test_a_list_is_of_the_account_s_own_jobs_newest_first(key: ApiKey) -> None:
    whole = page(key)
    assert numbers(whole) == [6, 5, 4, 3, 2, 1]
    assert (whole.cursor, whole.as_of, whole.looked_until) == ("", 5.0, 0.0)
    failed = whole.jobs[4]
    assert (failed.model, failed.version, failed.state, failed.tags) == ("digits", 1, "failed", ("nightly", "a"))
    assert (failed.error_code, failed.error_message) == ("model_error", "No such op: Foo")
    assert whole.jobs[2].not_before > 0
    assert not whole.jobs[0].error_code, "an attempt's that is over, and the job succeeded"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"states": ("failed",)}, [2]),
        ({"states": ("queued", "running")}, [4, 3]),
        ({"model": "slow"}, [3]),
        ({"model": "digits", "states": ("succeeded",)}, [6, 1]),
        ({"tags": ("nightly",)}, [3, 2]),
        ({"tags": ("nightly", "a")}, [2]),
        ({"tags": ("nightly",), "states": ("running",)}, [3]),
        ({"tags": ("night",)}, []),
        ({"error": "NO SUCH"}, [2]),
        ({"error": "cancel"}, [5]),
        ({"error": "model_error", "states": ("succeeded",)}, []),
        ({"error": "%"}, []),
        ({"error": "no such", "tags": ("a",)}, [2]),
        ({"with_sync": True}, [7, 6, 5, 4, 3, 2, 1]),
        ({"with_sync": True, "states": ("succeeded",), "limit": 2}, [7, 6]),
        ({"with_sync": True, "error": "no such"}, [2]),
        ({"limit": 2}, [6, 5]),
    ],
)
def test_a_list_is_chosen_by_what_is_asked_for(key: ApiKey, query: dict[str, Any], found: list[int]) -> None:
    assert numbers(page(key, **query)) == found


def test_a_list_is_from_an_instant_on_and_before_another(key: ApiKey) -> None:
    third = Job.objects.get(pk__endswith="0003").created_at.timestamp()
    assert numbers(page(key, since=third)) == [6, 5, 4, 3]
    assert numbers(page(key, until=third)) == [2, 1]
    assert numbers(page(key, since=third, until=third + 61, tags=("a",))) == [4]


def test_a_key_lists_with_the_scope_of_reads_and_with_no_other(admin: Actor) -> None:
    assert said(reader(admin, scopes=("models:manage",))).status == "forbidden"
    revoked = reader(admin)
    keys.revoke(admin, revoked.pk)
    assert said(revoked).status == "unauthorized"
    strange = ConsoleAsk(key_id=reader(admin).pk, account="other", what="jobs")
    assert decode(ConsoleAnswer, answering.answer(encode(strange))).status == "unauthorized"


def test_pages_follow_one_another_though_jobs_arrive_and_change(key: ApiKey) -> None:
    for query in ({}, {"with_sync": True}, {"states": ("failed", "succeeded", "queued", "running")}, {"tags": ("a",)}):
        at_once = numbers(page(key, **query))
        found, cursor, arriving = [], "", 100
        while True:
            one = page(key, **query, limit=1, cursor=cursor)
            found += numbers(one)
            mine(key, arriving, tags=["a"], id=f"{arriving:08x}-0000-4000-8000-00000000ffff")
            arriving += 1
            if not one.cursor:
                break
            cursor = one.cursor
        assert found == at_once
        retention.delete(list(Job.objects.filter(pk__endswith="ffff").values_list("pk", flat=True)))


def test_jobs_of_one_instant_are_neither_lost_nor_shown_twice_between_pages(key: ApiKey) -> None:
    at = timezone.now()
    for number in range(20, 29):
        mine(key, number, created_at=at, state="failed" if number % 2 else "succeeded", tags=["same"])
    for query in ({"since": at.timestamp()}, {"tags": ("same",)}):
        found: list[int] = []
        cursor = ""
        while True:
            one = page(key, **query, limit=2, cursor=cursor)
            found += numbers(one)
            if not one.cursor:
                break
            cursor = one.cursor
        assert found == list(range(28, 19, -1))


def test_what_no_index_serves_is_looked_for_in_a_bounded_scan_that_says_how_far_it_came(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SCAN", 25)  # five of each state but succeeded
    for number in range(20, 50):
        mine(key, number, state="failed", error_code="timeout", error_message="slow")
    first = page(key, error="No such op")
    assert first.jobs == ()
    assert first.cursor
    assert first.looked_until == Job.objects.get(pk__endswith=f"{45:04x}").created_at.timestamp()
    found: list[asks.ListedJob] = []
    cursor, looks = first.cursor, 1
    while cursor:
        one = page(key, error="No such op", cursor=cursor)
        assert one.looked_until < first.looked_until
        found += one.jobs
        cursor, looks = one.cursor, looks + 1
    assert [int(job.id[-4:], 16) for job in found] == [2]
    assert looks >= 6


def test_a_page_that_an_answer_has_no_room_for_ends_sooner(key: ApiKey) -> None:
    for number in range(20, 220):
        mine(key, number, state="failed", error_code="model_error", error_message="ü" * 2000)
    asked = encode(
        ConsoleAsk(key_id=key.pk, account=key.account_id, what="jobs", jobs=JobQuery(states=("failed",), limit=200))
    )
    data = answering.answer(asked)
    first = decode(ConsoleAnswer, data).page
    assert len(data) <= asks.MOST_BYTES
    assert first is not None
    assert 50 < len(first.jobs) < 200
    rest, cursor = numbers(first), first.cursor
    while cursor:
        one = page(key, states=("failed",), limit=200, cursor=cursor)
        rest += numbers(one)
        cursor = one.cursor
    assert rest == [*range(219, 19, -1), 2]


@pytest.mark.parametrize(
    "query",
    [
        {"cursor": "nonsense"},
        {"cursor": "1.000000_\0"},
        {"cursor": "999999999999.000000_"},
        {"states": ("happy",)},
        {"model": "a\0b"},
        {"tags": ("a\0",)},
        {"tags": tuple("abcdefghi")},
        {"error": "a\0b"},
        {"limit": 0},
        {"limit": 1001},
        {"since": 1e300},
        {"until": float("1e18")},
    ],
)
def test_a_question_that_no_gateway_of_ours_asks_is_refused_and_no_database_is_asked(
    key: ApiKey, query: dict[str, Any]
) -> None:
    assert said(key, **query).status == InvalidRequest.code


def test_every_list_is_served_by_an_index_of_the_account_or_its_tags(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SCAN", 500)
    rows = [
        Job(
            id=f"{number:08x}-0000-4000-8000-000000000000",
            model=f"m{number % 3}",
            state="failed" if number % 50 == 0 else "succeeded",
            account_id=key.account_id if number % 5 == 0 else f"account{number % 5}",
            created_at=timezone.now() + timedelta(seconds=number),
            updated_at=timezone.now(),
            tags=["t1", "t2"] if number % 2 else [],
        )
        for number in range(3000)
    ]
    Job.objects.bulk_create(rows)
    JobTag.objects.bulk_create(tags_of(rows))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
        if connection.vendor == "postgresql":  # of three thousand rows it would rather read all
            cursor.execute("SET LOCAL enable_seqscan = off")
    for query in (
        {},
        {"states": ("failed", "queued")},
        {"with_sync": True},
        {"model": "m1"},
        {"error": "op"},
        {"tags": ("t1",)},
        {"tags": ("t1", "t2"), "states": ("failed",), "since": 1.0},
    ):
        with CaptureQueriesContext(connection) as asked:
            page(key, **query, limit=5, cursor=page(key, **query, limit=5).cursor)
        for entry in asked.captured_queries:
            if 'FROM "jobs_' not in entry["sql"]:
                continue
            with connection.cursor() as cursor:
                prefix = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
                cursor.execute(f"{prefix} {entry['sql']}")
                plan = "\n".join(str(row) for row in cursor.fetchall())
            assert "Seq Scan" not in plan, f"{entry['sql']}\n{plan}"
            if connection.vendor == "sqlite":
                assert any(name in plan for name in ("job_of_owner", "job_by_account", "tag_of_owner")), plan
                assert "SCAN" not in plan, plan
                assert "TEMP B-TREE FOR ORDER BY" not in plan, f"{entry['sql']}\n{plan}"


def test_tags_and_the_kind_of_a_job_reach_its_row_once_and_go_with_it(db: None) -> None:
    job = accepted(1, tags=("b", "a"), not_before=NOW + 5)
    running = life.claimed(job, None, worker="w1", gpu="g", token=1, now=NOW)
    failed = life.failed(running, ErrorInfo(code="model_error", message="No"), now=NOW + 1, penalty=Penalty.NONE)
    short = accepted(2, id=new_job_id(NOW, 2, is_short_lived=True))
    store.write([JobMessage.accepted(job, NOW), JobMessage.accepted(short, NOW)])
    for number, record in enumerate((running, failed), 1):
        store.write([JobMessage(NOW, number, record)])
    row = Job.objects.get(pk=job.id)
    assert (row.tags, row.is_sync, row.state) == (["b", "a"], False, "failed")
    assert row.not_before is not None
    assert row.not_before.timestamp() == NOW + 5
    assert Job.objects.get(pk=short.id).is_sync
    rows = JobTag.objects.order_by("tag").values_list("job_id", "tag", "account_id", "created_at")
    assert list(rows) == [(job.id, tag, "shop", row.created_at) for tag in ("a", "b")]
    assert retention.delete_oldest(timezone.now() + timedelta(days=10_000), 10) == 1
    assert not JobTag.objects.exists()


def test_tags_that_nobody_could_have_given_reach_no_row(db: None) -> None:
    odd = accepted(1, tags=("ok", "a\0b", "x" * 100, "ok", *(f"t{number}" for number in range(20))))
    store.write([JobMessage.accepted(odd, NOW)])
    assert Job.objects.get().tags == ["ok", "t0", "t1", "t2", "t3"]


async def all_of(console: Console, key: keydocs.ApiKey, query: JobQuery) -> list[str]:
    """Ids of every page."""
    ids: list[str] = []
    while True:
        one = await console.jobs(key, query)
        ids += [job.id for job in one.jobs]
        if not one.cursor:
            return ids
        query = replace(query, cursor=one.cursor)


async def listed(console: Console, key: keydocs.ApiKey, ids: Iterable[str]) -> JobPage:
    """The list, once it has these jobs."""
    expected = sorted(ids)
    async with asyncio.timeout(60):
        while True:
            try:
                found = await console.jobs(key, JobQuery())
            except Unavailable:  # the console does not listen yet
                continue
            if sorted(job.id for job in found.jobs) == expected:
                return found


@pytest.mark.django_db(transaction=True)
async def test_a_gateway_lists_what_is_written_to_nats_as_soon_as_the_projector_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "AS_OF_S", 0.0)
    me = system_actor("tests")
    key = await in_thread(reader, me)
    plain = await in_thread(lambda: reader(me, scopes=("jobs:submit",)))
    document, other = await in_thread(key.document), await in_thread(plain.document)
    made = [accepted(number, account_id=key.account_id, tags=("nightly",)) for number in range(1, 6)]
    foreign = accepted(99, account_id=plain.account_id, tags=("nightly",))
    async with listening(tmp_path) as (server, bus):
        console = Console(bus)
        with pytest.raises(Unavailable, match="Jobs cannot be listed now"):
            await console.jobs(document, JobQuery())
        program = asyncio.create_task(answer_asks(wire(server, "console")))
        reading, writing = await connect(server, "console"), await connect(server, "admin")
        try:
            async with projecting(reading):
                for job in (*made[:3], foreign):
                    await accept(writing, job)
                await run_job(writing, made[0])
                before = await listed(console, document, [job.id for job in made[:3]])
                assert {job.id: job.state for job in before.jobs}[made[0].id] in {"queued", "running", "succeeded"}
                first = await console.jobs(document, JobQuery(tags=("nightly",), limit=1))
                assert first.jobs[0].id == made[2].id
                for job in made[3:]:
                    await accept(writing, job)
                now = await listed(console, document, [job.id for job in made])
                rest = await all_of(console, document, JobQuery(tags=("nightly",), limit=1, cursor=first.cursor))
                assert rest == [made[1].id, made[0].id]
                assert 0 < before.as_of <= now.as_of
                async with asyncio.timeout(60):
                    while (late := await console.jobs(document, JobQuery())).as_of <= now.as_of:
                        pass
                assert len(late.jobs) == 5, "complete up to now, with nothing new"
            await accept(writing, accepted(7, account_id=key.account_id))
            stuck, again = [await console.jobs(document, JobQuery()) for _ in range(2)]
            assert late.as_of < stuck.as_of == again.as_of, "up to the first job that has no row"
            assert len(again.jobs) == 5
            with pytest.raises(Forbidden):
                await console.jobs(other, JobQuery())
            with pytest.raises(InvalidRequest, match="cursor is damaged"):
                await console.jobs(document, JobQuery(cursor="x"))
        finally:
            program.cancel()
            await asyncio.wait([program])
            await reading.close()
            await writing.close()
