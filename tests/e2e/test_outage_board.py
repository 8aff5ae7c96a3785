"""Programs of a whole stack killed or stopped, and what board, job list, job page and both APIs say of it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from console.feed.feed import Feed
from signalbox.ops.up.consoleclient import ConsoleClient
from signalbox.program.settings import Wire
from tests.console.mirror import TOPICS, Viewer
from tests.rigs import models, outage
from tests.rigs.outage import Caller, House, becomes

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]
WORKERS = ("worker-1", "worker-2")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A stack with a console and two workers, which serves a model that is slow."""
    async with outage.house(tmp_path_factory.mktemp("board") / "data", is_light=True) as made:
        await made.start_console()
        for number in (1, 2):
            await made.start_worker(number)
        async with ConsoleClient(made.console_url, await made.operator_token()) as console:
            await console.register("slow", models.slow().parent, "sleeps")
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def operator(house: House) -> AsyncIterator[httpx.AsyncClient]:
    """The console's REST API with an admin's token."""
    async with house.operator(await house.operator_token()) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def caller(house: House, operator: httpx.AsyncClient) -> AsyncIterator[Caller]:
    """Somebody with a key, whose jobs of the model run."""
    made = await operator.post("/api/keys", json={"name": f"shop {time.time()}"})
    async with house.caller(made.json()["key"]) as caller:

        async def is_served() -> bool:
            got = await caller.call("POST", "/v1/models/slow:predict", json={"instances": [{"seconds": 0.0}]})
            return got.status_code == 200

        await becomes(is_served, limit_s=120)
        yield caller


@pytest_asyncio.fixture(loop_scope="module")
async def board(house: House) -> AsyncIterator[Viewer]:
    """What a browser holds of the board, by the code of the console's own process."""
    password = house.data.secret("nats_console").read_text()
    feed, viewer = Feed(Wire(nats_url=house.nats_url, nats_user="console", nats_password=password)), Viewer()
    task = asyncio.create_task(feed.run())
    feed.hub.subscribe(viewer, TOPICS, {}, time.time())
    await viewer.until(lambda: viewer.source.get("nats") == "ok")
    yield viewer
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def submit(caller: Caller, seconds: float) -> str:
    got = await caller.call("POST", "/v1/jobs", json={"model": "slow", "input": {"seconds": [seconds]}})
    assert got.status_code == 202, got.text
    return str(got.json()["id"])


async def test_all_workers_killed_and_the_jobs_they_had_stay_and_say_so(
    house: House, operator: httpx.AsyncClient, caller: Caller, board: Viewer
) -> None:
    ids = [await submit(caller, 300.0)]

    async def runs() -> bool:
        return str((await caller.job(ids[0]))["state"]) == "running"

    await becomes(runs)
    ids += [await submit(caller, 0.0) for _ in range(5)]
    (lane,) = board.mirror.rows["lanes"].values()
    for name in sorted(WORKERS, key=lambda name: name == lane["holder"]):  # nobody is to take over before it is killed
        await house.kill(name)
    await board.until(lambda: board.row("health", "workers").get("value", "").startswith("0/"))
    assert board.row("health", "workers")["state"] == "failed"
    await board.until(
        lambda: board.row("queues", "slow").get("lost", 0) > 0
    )  # a second one may be claimed ahead of time
    row = board.row("queues", "slow")
    assert (row["lost"] + row["waiting"], row["running"]) == (6, 0)
    await board.until(lambda: "worker that is gone" in board.row("alarms", "lost-jobs:slow").get("text", ""))
    await board.until(lambda: "wait and no worker runs" in board.row("alarms", "unserved:slow").get("text", ""))

    async def is_said() -> bool:
        shown = (await operator.get(f"/api/jobs/{ids[0]}")).json()["job"]
        listed = (await operator.get("/api/jobs", params={"q": f"id:{ids[0]}"})).json()["jobs"]
        phase = (await caller.job(ids[0]))["phase"]
        return "is gone" in shown["standing"] and "is gone" in listed[0]["standing"] and "worker is gone" in phase

    await becomes(is_said, limit_s=30)
    await caller.call("POST", f"/v1/jobs/{ids[0]}/cancel")
    await house.revive(*WORKERS)

    async def are_ended() -> bool:
        return {str((await caller.job(i))["state"]) for i in ids[1:]} == {"succeeded"}

    await becomes(are_ended, limit_s=120)
    await board.until(lambda: not board.row("alarms", "lost-jobs:slow"))


async def test_a_stopped_projector_and_controller_are_seen_on_board_and_list(
    house: House, operator: httpx.AsyncClient, board: Viewer
) -> None:
    await board.until(lambda: board.row("health", "controller").get("state") == "ok")
    for name in ("projector", "controller"):
        await house.kill(name)
    await board.until(lambda: "projector does not run" in board.row("alarms", "projector").get("text", ""))
    await board.until(lambda: "controller does not run" in board.row("alarms", "controller").get("text", ""))

    async def is_said() -> bool:
        return "projector does not run" in (await operator.get("/api/jobs")).json()["old_rows"]

    await becomes(is_said, limit_s=30)
    await house.revive("projector", "controller")
    await board.until(lambda: not board.row("alarms", "controller") and not board.row("alarms", "projector"))
