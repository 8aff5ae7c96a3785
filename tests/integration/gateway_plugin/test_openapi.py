"""The description of the job API: served, complete, and what an edge answers to whatever it allows or does not."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import checks
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway_plugin.api.jobs.paths import _FIXED, _OF_ONE
from tests import depth
from tests.rigs.edge import edge
from tests.rigs.gateway import ScriptedWorker, key, model, rig
from tests.rigs.natsserver import NatsServer

# The gateway, on another thread of this process, draws random numbers too.
pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore:Do not use the `random` module")]
EXAMPLES = depth.at(short=12, full=400)
SEED = 20_261_129


def our_own_fault(_context: checks.CheckContext, answer: Any, _case: Any) -> None:
    """No answer is a fault of ours; 503 says when to come back."""
    assert answer.status_code < 500 or (answer.status_code == 503 and "retry-after" in answer.headers)


CHECKS = [
    our_own_fault,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]


def routes() -> Iterator[tuple[str, str]]:
    """Method and path of every route of the dialect; HEAD is GET's."""
    paths = {**_FIXED, **{f"/v1/jobs/{{id}}{below or ''}": methods for below, methods in _OF_ONE.items()}}
    for path, methods in paths.items():
        yield from ((method.lower(), path) for method in methods if method != "HEAD")


def try_all(doc: dict[str, Any], url: str, text: str) -> int:
    """Call every operation with what its description allows and what it does not; how many calls that were."""
    calls = 0
    schema = schemathesis.openapi.from_dict(doc, config=SchemathesisConfig())
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()

        @seed(SEED)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def one(case: Any) -> None:
            nonlocal calls
            calls += 1
            case.call_and_validate(base_url=url, headers={"Authorization": f"Bearer {text}"}, checks=CHECKS)

        one()
    return calls


async def test_each_operation_answers_as_it_is_described(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front, edge(front) as client, ScriptedWorker(front.bus, "half"):
        mine = key()
        await front.publish(model("half"), mine)
        answer = await client.get("/v1/openapi.json")
        assert answer.status_code == 200
        doc = answer.json()
        described = {(method, path) for path, methods in doc["paths"].items() for method in methods}
        assert {one for one in described if one[0] != "parameters"} == set(routes())
        assert (await client.post("/v1/openapi.json")).status_code == 405
        assert await asyncio.to_thread(try_all, doc, str(client.base_url), mine.text) > EXAMPLES
