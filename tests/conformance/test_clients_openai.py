"""Files and batches through ``openai``, unmodified, in an environment of its own."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.clients.environments import environment
from tests.conformance.clients.steps import Target
from tests.conformance.programs import ROOT
from tests.integration.gateway_plugin.test_batches import doing
from tests.integration.gateway_plugin.test_job_results import edge
from tests.rigs.gateway import ScriptedWorker, key
from tests.rigs.natsserver import NatsServer

pytestmark = pytest.mark.proof
SCRIPT_S = 120.0


def program() -> str:
    """The program of ``docs/batches.md``."""
    page = (ROOT / "docs" / "batches.md").read_text(encoding="utf-8")
    return page.split("```python\n", 1)[1].split("```", 1)[0].replace("half_plus_two", "half")


async def report(nats: NatsServer, folder: Path) -> dict[str, Any]:
    """What the client's script reports, of an edge, a scripted worker, and the program that does batches."""
    made = environment("openai")
    if made.python is None:
        pytest.skip(f"the packages of openai cannot be had: {made.missing}")
    mine = key()
    async with edge(nats, folder, mine) as at, ScriptedWorker(at.made.bus, "half"), doing(nats):
        address = f"{at.client.base_url.host}:{at.client.base_url.port}"
        process = await asyncio.create_subprocess_exec(
            made.python,
            ROOT / "tests" / "conformance" / "clients" / "openai_client.py",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        target = json.dumps(Target(address, "", mine.text, program())._asdict()).encode()
        async with asyncio.timeout(SCRIPT_S):
            printed, _ = await process.communicate(target)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


async def test_openai_s_client_makes_files_and_batches_and_reads_what_came_of_them(
    nats: NatsServer, tmp_path: Path
) -> None:
    found = await report(nats, tmp_path)
    assert found["a_file"] == {
        "same": [True, "rows.jsonl", "batch", "processed"],
        "listed": True,
        "content": True,
        "deleted": [True, True],
        "then": {"kind": "NotFoundError", "code": "not_found", "status": 404},
    }
    assert found["a_file_in_parts"] == {
        "pending": ["upload", "pending", True, 3600],
        "wrong": {"kind": "BadRequestError", "code": "invalid_request", "status": 400},
        "completed": ["completed", "rows.jsonl", True],
        "helped": [True, True],
        "cancelled": "cancelled",
    }
    assert found["a_batch"] == {
        "counts": {"total": 201, "completed": 200, "failed": 1},
        "status": "completed",
        "metadata": {"run": "nightly"},
        "listed": True,
        "right": True,
        "lines": 200,
        "wrong": "invalid_json",
    }
    assert found["a_batch_whose_answer_was_lost"] == {"sent": ["nightly 17"] * 2, "batches": 1, "same": True}
    assert found["a_cancelled_batch"] == {"asked": "cancelling", "ended": "cancelled"}
    assert found["refusals"] == {
        "wrong key": {"kind": "AuthenticationError", "code": "unauthorized", "status": 401},
        "unknown file": {"kind": "NotFoundError", "code": "not_found", "status": 404},
        "unknown batch": {"kind": "NotFoundError", "code": "not_found", "status": 404},
        "wrong purpose": {"kind": "BadRequestError", "code": "invalid_request", "status": 400},
        "wrong endpoint": {"kind": "BadRequestError", "code": "invalid_request", "status": 400},
    }
    assert found["documented"].split("\n")[:3] == ["row-0 [2.0]", "row-1 [2.5]", "row-2 [3.0]"]
