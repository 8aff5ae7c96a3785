"""NATS, workers and the plugin killed under load, on a whole stack: what was accepted ends."""

import os
import signal
import time
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from signalbox.bus import topology
from signalbox.program import keys
from signalbox.program.errors import Unavailable
from signalbox.wire.modeldocs import Limits
from tests.rigs import lightworker, outage
from tests.rigs.outage import Caller, House, becomes, floats, load

pytestmark = pytest.mark.asyncio(loop_scope="module")
STALE_S = 4
"""How long the front trusts its key table without a word from NATS, here."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    settings = {"gateway": {"SIGNALBOX_GATEWAY_STALE_KEYS_S": str(STALE_S)}}
    async with outage.house(tmp_path_factory.mktemp("outage") / "data", settings, is_light=True) as made:
        await made.add_model("half", lightworker.version("half"), floats(), limits=Limits(sync_wait_s=8))
        await made.add_model("slow", lightworker.version("slow"), floats("seconds"))
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def caller(house: House) -> AsyncIterator[Caller]:
    """Somebody with a key the front knows."""
    async with house.caller(await house.add_key()) as made:
        await becomes(lambda: is_let_in(made))
        yield made


async def is_let_in(caller: Caller) -> bool:
    """Whether the front answers, and knows the caller and the model published last."""
    try:
        return (await caller.call("GET", "/v1/models/slow")).status_code == 200
    except httpx.TransportError:
        return False


async def set_workers(house: House, caller: Caller, count: int) -> None:
    """So many workers run, and one of them has a model at work."""
    await house.set_workers(count)
    await becomes(lambda: is_served(caller), limit_s=90)
    caller.answers.clear()


async def is_served(caller: Caller) -> bool:
    return await caller.predict("half", 0.0) == 200


async def test_jobs_wait_without_workers_and_say_so_and_run_when_one_comes(house: House, caller: Caller) -> None:
    await house.set_workers(0)
    for value in range(5):
        assert await caller.submit("half", value) == 202
    for job_id in caller.accepted:
        found = await caller.job(job_id)
        assert (found["state"], found["phase"]) == ("queued", "waiting: no worker serves half")
        assert (found["position"], found["estimated_wait_s"]) == (None, None)
    got = await caller.call("GET", "/v1/models/half")
    (version,) = got.json()["model_version_status"]
    assert version["status"]["error_message"] == "no worker serves half"
    await house.set_workers(1)
    await all_succeed(caller)


async def test_jobs_say_that_the_last_worker_died_and_run_when_it_returns(house: House, caller: Caller) -> None:
    await set_workers(house, caller, 1)
    await house.kill("worker-1")
    assert await caller.submit("half", 7.0) == 202
    (job_id,) = caller.accepted

    async def is_said() -> bool:
        return "no worker serves half" in (await caller.job(job_id))["phase"]

    await becomes(is_said, limit_s=60)
    await house.revive("worker-1")
    await all_succeed(caller)
    assert not caller.wrong


async def test_a_killed_nats_costs_503s_and_no_accepted_job_and_lets_no_other_caller_in(
    house: House, caller: Caller
) -> None:
    await set_workers(house, caller, 1)
    async with (
        house.caller(await house.add_key(revoked_at=time.time() - 1)) as revoked,
        house.caller(keys.mint("test")[0]) as unknown,
        house.caller("") as keyless,
        load(
            lambda number: caller.submit("half", number),
            lambda number: caller.predict("half", number),
            lambda number: revoked.submit("half", number),
            lambda number: unknown.submit("half", number),
            lambda number: keyless.predict("half", number),
        ),
    ):

        async def go_on(more: int) -> None:
            jobs, answers = caller.count("submit", 202), caller.count("predict", 200)
            await caller.until(
                lambda: caller.count("submit", 202) >= jobs + more and caller.count("predict", 200) >= answers + more
            )

        await go_on(20)
        for is_long in (False, True):
            was = caller.count("submit", 503)
            await house.kill("nats")
            await caller.until(lambda was=was: caller.count("submit", 503) >= was + 10)  # type: ignore[misc]
            if is_long:  # until the front no longer trusts what it knows of keys
                was = unknown.count("submit", 503)
                await unknown.until(lambda was=was: unknown.count("submit", 503) > was)  # type: ignore[misc]
            await house.revive("nats")
            await go_on(20)
    print(dict(caller.answers), dict(revoked.answers), dict(unknown.answers), dict(keyless.answers))
    assert caller.statuses("submit") == {202, 503}
    assert caller.statuses("predict") <= {200, 503, 504}
    assert caller.count("predict", 503) > 0
    for stranger in (revoked, unknown, keyless):
        assert stranger.statuses("submit") | stranger.statuses("predict") <= {401, 429, 503}  # 429: wrong too often
    await all_succeed(caller)


async def test_a_nats_that_restarted_has_forgotten_nothing_that_programs_check_when_they_start(
    house: House, caller: Caller
) -> None:
    await set_workers(house, caller, 1)
    await house.kill("nats")
    await house.revive("nats")
    await becomes(lambda: is_as_declared(house))
    await house.kill("worker-1")
    await house.kill("gateway")
    await house.revive("gateway", "worker-1")
    assert await caller.submit("half", 1.0) == 202
    await all_succeed(caller)


async def is_as_declared(house: House) -> bool:
    try:
        return not await topology.check(house.bus)
    except Unavailable:
        return False


async def test_a_killed_plugin_is_back_at_once_and_every_accepted_job_ends(house: House, caller: Caller) -> None:
    await set_workers(house, caller, 1)
    front = house.child("gateway")
    restarted: list[float] = []
    served: list[float] = []
    async with (
        house.supervised("gateway"),
        load(lambda number: caller.submit("half", number), lambda number: caller.predict("half", number)),
    ):
        for _ in range(2):
            was = caller.count("submit", 202)
            await caller.until(lambda was=was: caller.count("submit", 202) >= was + 25)  # type: ignore[misc]
            was, pid, began = caller.count("submit", 202), front.pid, time.monotonic()
            assert pid, front.tail()
            os.kill(pid, signal.SIGKILL)

            async def is_another(pid: int = pid) -> bool:
                return front.pid not in {0, pid}

            restarted.append(await becomes(is_another))
            await becomes(lambda: is_let_in(caller))
            served.append(time.monotonic() - began)
            await caller.until(lambda was=was: caller.count("submit", 202) >= was + 25)  # type: ignore[misc]
    print("started again after", restarted, "serving after", served, dict(caller.answers))
    assert max(restarted) < 1.5
    assert caller.statuses("submit") <= {0, 202, 503}
    assert caller.statuses("predict") <= {0, 200, 503}
    assert any("gateway was ended by SIGKILL; starting it again" in line for line in house.said)
    await all_succeed(caller)


async def all_succeed(caller: Caller) -> None:
    """Every job that got a 202 ends, with half of its value and two."""
    endings = await caller.endings()
    assert {found["state"] for found in endings.values()} == {"succeeded"}
    for job_id, value in caller.accepted.items():
        assert endings[job_id]["result"]["predictions"] == [value / 2 + 2]
    assert not caller.wrong
