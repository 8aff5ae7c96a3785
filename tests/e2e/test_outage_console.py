"""The console and its PostgreSQL away: jobs flow, keys are enforced, and it catches up afterwards."""

import secrets
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from signalbox.ops.up.consoleclient import ConsoleClient
from tests.rigs import models, outage, postgres
from tests.rigs.outage import Caller, House, becomes
from tests.rigs.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(240), pytest.mark.asyncio(loop_scope="module")]
CONSOLE = ("console", "controller", "projector")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def database() -> AsyncIterator[Postgres]:
    programs = postgres.programs()
    if programs is None:
        pytest.skip("PostgreSQL's own programs are not installed")
    async with Postgres(programs) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(database: Postgres, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A stack whose console bootstrapped on PostgreSQL and has registered a model."""
    settings = {"console": {"SIGNALBOX_CONSOLE_DATABASE_URL": database.url}}
    async with outage.house(tmp_path_factory.mktemp("outage") / "data", settings, is_light=True) as made:
        await made.start_console()
        await made.start_worker(1)
        async with ConsoleClient(made.console_url, await made.operator_token()) as console:
            await console.register("half", models.half_plus_two().parent, "y = x / 2 + 2")
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def operator(house: House) -> AsyncIterator[httpx.AsyncClient]:
    """The console's REST API with an admin's token."""
    async with house.operator(await house.operator_token()) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def caller(house: House, operator: httpx.AsyncClient) -> AsyncIterator[Caller]:
    """Somebody with a key of the console's that the front knows, and a model at work."""
    made = await operator.post("/api/keys", json={"name": f"shop {secrets.token_hex(4)}"})
    async with house.caller(made.json()["key"]) as caller:
        await becomes(lambda: is_served(caller), limit_s=90)
        caller.answers.clear()
        yield caller


async def is_served(caller: Caller) -> bool:
    return await caller.predict("half", 0.0) == 200


async def is_refused(caller: Caller) -> bool:
    return await caller.predict("half", 0.0) == 401


async def jobs_flow(caller: Caller) -> None:
    """Ten predictions and ten jobs, without a hitch."""
    for value in range(10):
        assert await caller.predict("half", value) == 200
        assert await caller.submit("half", value) == 202
    endings = await caller.endings()
    assert {found["state"] for found in endings.values()} == {"succeeded"}
    assert not caller.wrong


async def test_the_console_keeps_its_rows_in_postgresql(
    house: House, operator: httpx.AsyncClient, caller: Caller
) -> None:
    assert not (house.data.path / "console" / "console.sqlite3").exists()
    listed = await operator.get("/api/models")
    assert [model["name"] for model in listed.json()["models"]] == ["half"]
    await jobs_flow(caller)
    await becomes(lambda: are_projected(operator, caller))
    assert await are_listed(caller)


async def test_jobs_flow_and_keys_are_enforced_without_any_console(
    house: House, operator: httpx.AsyncClient, caller: Caller
) -> None:
    made = (await operator.post("/api/keys", json={"name": "left"})).json()
    async with house.caller(made["key"]) as leaver, house.caller("sbx_live_guessed") as guesser:
        await becomes(lambda: is_served(leaver))
        revoked = await operator.post(f"/api/keys/{made['id']}/revoke", json={"reason": "left"})
        assert revoked.status_code == 200, revoked.text
        await becomes(lambda: is_refused(leaver), limit_s=15)
        for name in CONSOLE:
            await house.kill(name)
        with pytest.raises(httpx.TransportError):
            await operator.get("/login")
        await jobs_flow(caller)
        lists = await caller.call("GET", "/v1/jobs")
        assert (lists.status_code, "each can be read by its id" in lists.text) == (503, True), lists.text
        assert await is_refused(leaver)
        assert await is_refused(guesser)
    for name in CONSOLE:
        await house.revive(name)
    await becomes(lambda: are_projected(operator, caller))
    await becomes(lambda: are_listed(caller))


async def test_jobs_flow_without_the_database_and_the_console_says_so_and_catches_up(
    house: House, database: Postgres, operator: httpx.AsyncClient, caller: Caller
) -> None:
    await database.stop()
    try:
        await jobs_flow(caller)
        api = await operator.get("/api/jobs")
        page = await operator.get("/login", headers={"Accept": "text/html"})
        board = await operator.get("/", headers={"Cookie": "signalbox_session=anything"})
        front = await caller.call("GET", "/v1/models")
        lists = await caller.call("GET", "/v1/jobs")
        assert (lists.status_code, "database" in lists.json()["detail"]) == (503, True), lists.text
        assert front.status_code == 200
        assert api.status_code == 503, api.text
        assert api.headers["content-type"] == "application/problem+json"
        assert (api.json()["code"], api.headers["retry-after"]) == ("unavailable", "5")
        assert "database" in api.json()["detail"]
        for shown in (page, board):
            assert shown.status_code in {200, 503}, shown.text
        assert board.status_code == 503
        assert "database" in board.text
    finally:
        await database.start()
    await becomes(lambda: are_projected(operator, caller))
    made = await operator.post("/api/keys", json={"name": "after"})
    async with house.caller(made.json()["key"]) as newcomer:
        await becomes(lambda: is_served(newcomer), limit_s=60)
    assert all(house.child(name).pid for name in CONSOLE)


async def are_listed(caller: Caller) -> bool:
    """Whether the front lists the end of every job of ``caller``, a few on a page, and no synchronous prediction."""
    found: dict[str, str] = {}
    path = "/v1/jobs?limit=3"
    while path:
        got = await caller.call("GET", path)
        if got.status_code != 200:
            return False
        found |= {job["id"]: job["state"] for job in got.json()["jobs"]}
        path = got.links["next"]["url"] if "next" in got.links else ""
    return found == dict.fromkeys(caller.accepted, "succeeded")


async def are_projected(operator: httpx.AsyncClient, caller: Caller) -> bool:
    """Whether the console's rows tell the end of every job of ``caller``."""
    for job_id in caller.accepted:
        # The list, which is rows and nothing else: a job's own page asks NATS where there is no row.
        got = await operator.get("/api/jobs", params={"q": f"id:{job_id}"})
        if got.status_code != 200 or [job["state"] for job in got.json()["jobs"]] != ["succeeded"]:
            return False
    return True
