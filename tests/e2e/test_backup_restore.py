"""NATS loses its disk under a whole stack, and a backup is put back: jobs end, keys work, no token comes twice."""

import asyncio
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from signalbox.bus import topology
from signalbox.ops.backup import MANIFEST
from signalbox.program.errors import NotFound, Unavailable
from tests.rigs import lightworker, outage
from tests.rigs.outage import Caller, Holders, House, becomes, floats

BUSY_S = 5.0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with outage.house(tmp_path / "data", is_light=True) as made:
        await made.add_model("half", lightworker.version("half"), floats())
        await made.add_model("slow", lightworker.version("slow"), floats("seconds"))
        await made.set_workers(1)
        yield made


async def command(house: House, *arguments: str) -> tuple[int, str, str]:
    """Exit status, output and errors of the signalbox command, as an operator of this stack types it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "signalbox",
        *arguments,
        env=house.env("admin"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def lose_the_disk(house: House) -> None:
    """NATS dies with all it kept, and stands there again with nothing. What used it was stopped, as is told to."""
    for name in ("gateway", "worker-1", "nats"):
        await house.kill(name)
    shutil.rmtree(house.data.path / "nats" / "store")
    await house.revive("nats")
    await becomes(lambda: is_empty(house))


async def is_empty(house: House) -> bool:
    try:
        await house.bus.request_json("$JS.API.STREAM.INFO.JOBS")
    except NotFound:
        return True
    except Unavailable:
        return False
    return False


@pytest.mark.parametrize(
    "forgotten", [pytest.param("by the worker's machine", marks=pytest.mark.slow), "by the backup"]
)
async def test_after_a_lost_disk_and_a_restore_jobs_end_and_no_token_comes_twice(
    house: House, tmp_path: Path, forgotten: str
) -> None:
    folder = tmp_path / "backups" / "tonight"
    async with house.caller(await house.add_key()) as caller:
        await becomes(lambda: is_let_in(caller))
        ended = [await accepted(caller, "half", float(number)) for number in range(3)]
        await caller.endings()
        busy = await accepted(caller, "slow", BUSY_S)
        await becomes(lambda: is_in(caller, busy, "running"))
        waiting = [await accepted(caller, "slow", number / 100) for number in range(1, 4)]
        for job_id in waiting:
            assert (await caller.job(job_id))["state"] == "queued"
        status, out, err = await command(house, "backup", str(folder))
        assert (status, out) == (0, f"saved in {folder}\n"), err

        # What the backup does not know: a job, a key, and tokens.
        late = await accepted(caller, "half", 9.0)
        stranger = await house.add_key()
        await caller.endings()
        token = await tokens_go_on(house)

        await lose_the_disk(house)
        # Three remember tokens, one may forget: the lock file, the backup, the clock (ADR 0022).
        if forgotten == "by the backup":
            forget_the_numbers(folder)
        else:
            shutil.rmtree(house.data.path / "locks")
        status, out, err = await command(house, "restore", str(folder))
        assert (status, out) == (0, "restored, and as declared\n"), err
        assert await lease_sequence(house) >= token
        await house.revive("gateway", "worker-1")

        await becomes(lambda: is_let_in(caller))
        assert (await caller.call("GET", f"/v1/jobs/{late}")).status_code == 404
        del caller.accepted[late]
        endings = await caller.endings(limit_s=90)
        assert {found["state"] for found in endings.values()} == {"succeeded"}
        values = [endings[job_id]["result"]["predictions"] for job_id in (*ended, busy, *waiting)]
        assert values == [[2.0], [2.5], [3.0], [BUSY_S], *([pytest.approx(n / 100)] for n in (1, 2, 3))]
        async with Holders(house) as holders:
            await holders.after(token)
        async with house.caller(stranger) as unknown:
            assert (await unknown.call("GET", "/v1/models/half")).status_code == 401
        assert await caller.predict("half", 1.0) == 200
        assert await topology.check(house.bus) == []
        status, _, err = await command(house, "restore", str(folder))
        assert (status, "already has JOBS" in err) == (2, True)


async def accepted(caller: Caller, model: str, value: float) -> str:
    """The id of a job that got a 202."""
    known = set(caller.accepted)
    assert await caller.submit(model, value) == 202
    (job_id,) = caller.accepted.keys() - known
    return job_id


async def is_let_in(caller: Caller) -> bool:
    """Whether the front knows the caller and the model published last."""
    return (await caller.call("GET", "/v1/models/slow")).status_code == 200


async def is_in(caller: Caller, job_id: str, state: str) -> bool:
    return bool((await caller.job(job_id))["state"] == state)


async def tokens_go_on(house: House) -> int:
    """A token that was given after the backup: to the same worker, started anew."""
    async with Holders(house) as holders:
        _, token = await holders.after(0)
        await house.kill("worker-1")
        await house.revive("worker-1")
        _, newer = await holders.after(token)
    return newer


async def lease_sequence(house: House) -> int:
    """How far the numbers of the lease bucket have come."""
    info = await house.bus.request_json("$JS.API.STREAM.INFO.KV_leases")
    return int(info["state"]["last_seq"])


def forget_the_numbers(folder: Path) -> None:
    """A backup whose lease bucket had never been written to, taken by a clock that is ahead."""
    path = folder / MANIFEST
    doc = json.loads(path.read_text())
    doc["counted"] = dict.fromkeys(doc["counted"], 0)
    doc["taken_at"] = time.time() + 3600
    path.write_text(json.dumps(doc))
