"""A version that takes its runner down, given to part of the callers, is rolled back by itself: a whole stack."""

import asyncio
import json
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from signalbox.ops.httppool import ConnectionPool
from signalbox.ops.up.consoleclient import ConsoleClient
from tests.e2e.upprocess import EDGE, Up
from tests.rigs import lightrunner, lightup, models

NAME: Final = "rolling_half"
"""The toy engine keeps versions of this one apart."""
FATAL: Final = -101.0
"""An input of at most so much ends the runner that runs a ``fatal`` version."""
MOST_JOBS: Final = 10
NOTICED_S: Final = 120.0

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[Up]:
    """A stack whose repository has the model."""
    for number, kind in enumerate(("rolling", "fatal"), 1):
        folder = tmp_path / "models" / NAME / str(number)
        shutil.copytree(models.half_plus_two(), folder)
        (folder / lightrunner.KIND).write_text(kind)
    places = ("--repository", f"file://{tmp_path}/models")
    started = Up(tmp_path / "data", *EDGE, "--no-demo", *places, program=lightup.PROGRAM)
    try:
        await asyncio.to_thread(started.wait_until_up)
        yield started
    finally:
        if started.process.poll() is None:
            await asyncio.to_thread(started.end, signal.SIGTERM)


async def _ask(console: ConsoleClient, method: str, path: str, doc: dict[str, Any] | None = None) -> Any:
    answer = await console.request(method, f"/api/models/{NAME}{path}", json.dumps(doc).encode() if doc else b"")
    assert answer.status < 300, answer.body
    return json.loads(answer.body)


async def _noticed(console: ConsoleClient) -> None:
    async with asyncio.timeout(NOTICED_S):
        while True:
            if await console.has(NAME):
                return
            await asyncio.sleep(0.2)  # the console's own pace


async def _split_of(console: ConsoleClient) -> dict[str, Any]:
    (found,) = (await _ask(console, "GET", "/splits"))["splits"]
    return dict(found)


async def test_a_version_that_takes_its_runner_down_is_rolled_back_within_ten_jobs(up: Up) -> None:
    doc = json.loads((up.data / "up.json").read_text())
    operator = (up.data / "secrets" / "operator_token").read_text()
    async with ConsoleClient(doc["console"], operator) as console:
        await _noticed(console)
        await _ask(console, "PUT", "/default", {"version": 1})
        key = await console.create_key("caller")
        async with ConnectionPool(doc["front"], headers={"Authorization": f"Bearer {key}"}, timeout_s=120) as front:
            await _ask(console, "PUT", "/splits/-", {"candidate": 2, "weight": 1.0})
            given, halted = await _call_until_halted(console, front)
            assert halted["halted"].endswith("of its last 3 calls ended the runner."), halted
            assert halted["evidence"]["candidate"]["crashes"] == 3
            assert given <= MOST_JOBS
            answers = [await _predict(front, number) for number in range(1000, 1010)]
            assert answers == [1] * 10, "all get the version that works, with such inputs too"
        (entry,) = [one for one in await _audit(console) if one["via"] == "canary"]
        assert entry["after"]["evidence"]["candidate"]["version"] == 2


async def _call_until_halted(console: ConsoleClient, front: ConnectionPool) -> tuple[int, dict[str, Any]]:
    """Submit one job after another, each with another input, until the split is halted; how many had the candidate."""
    given = number = 0
    while True:
        split = await _split_of(console)
        if split["halted"]:
            return given, split
        number += 1
        body = json.dumps({"model": NAME, "inputs": {"x": [FATAL - number]}}).encode()
        answer = await front.request("POST", "/v1/jobs", body, {"Prefer": "wait=5"})
        assert answer.status in {200, 202}, answer.body
        job = json.loads(answer.body)
        given += job["version"] == 2


async def _predict(front: ConnectionPool, number: int) -> int:
    answer = await front.request("POST", f"/v1/models/{NAME}:predict", b'{"instances": [%d]}' % (FATAL - number))
    assert answer.status == 200, answer.body
    return int(json.loads(answer.body)["predictions"][0])


async def _audit(console: ConsoleClient) -> list[dict[str, Any]]:
    answer = await console.request("GET", "/api/audit")
    found: list[dict[str, Any]] = json.loads(answer.body)["entries"]
    return found
