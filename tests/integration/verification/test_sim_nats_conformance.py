"""One set of scripted cases, run against the model of NATS and against nats-server: both do the same.

The real cases run all at once, as most of them wait for lifetimes to end; each test then reports its own.
"""

import asyncio
from contextlib import nullcontext
from typing import Final

import pytest

from tests.rigs.natsserver import NatsServer
from verification.simulation.cases import consumers, events, lifetimes, outages, writes
from verification.simulation.cases.playing import in_virtual_time, outcome, selected
from verification.simulation.cases.rig import CASES, Case
from verification.simulation.cases.rigs import ModelRig, RealRig, declared

MODULES: Final = (writes, lifetimes, events, consumers, outages)
_AT_ONCE: Final = 12
_OWN_AT_ONCE: Final = 3
_CASE_S: Final = 120.0


async def everything(wanted: list[tuple[str, Case]]) -> dict[str, Exception | None]:
    """Run cases against real servers; what each of them raised."""
    outcomes: dict[str, Exception | None] = {}
    room = {False: asyncio.Semaphore(_AT_ONCE), True: asyncio.Semaphore(_OWN_AT_ONCE)}

    async def run(id_: str, each: Case, shared: NatsServer) -> None:
        async with room[each.is_own], declared() if each.is_own else nullcontext(shared) as server:
            outcomes[each.name] = await outcome(RealRig(id_, server), each.run, _CASE_S)

    async with declared() as shared, asyncio.TaskGroup() as group:
        for id_, each in wanted:
            group.create_task(run(id_, each, shared))
    return outcomes


NUMBERED: Final = [(f"c{number:03}", each) for number, each in enumerate(CASES)]


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest) -> dict[str, Exception | None]:
    """What became of every real case that this run of pytest has selected."""
    return asyncio.run(everything(selected(request, "test_nats_server_behaves_so", NUMBERED)))


@pytest.mark.parametrize(("id_", "each"), NUMBERED, ids=[each.name for _, each in NUMBERED])
def test_the_model_behaves_so(id_: str, each: Case) -> None:
    in_virtual_time(lambda: ModelRig(id_, seed=1), each.run, seed=1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [each.name for each in CASES])
def test_nats_server_behaves_so(name: str, real: dict[str, Exception | None]) -> None:
    if (error := real[name]) is not None:
        raise error


def test_the_set_is_as_large_as_promised() -> None:
    assert MODULES
    assert len(CASES) >= 50
    assert len({each.name for each in CASES}) == len(CASES)
