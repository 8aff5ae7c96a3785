"""One set of scripted cases, run against the model of NATS and against nats-server: both do the same.

The real cases run all at once, as most of them wait for lifetimes to end; each test then reports its own.
"""

import asyncio
from typing import Final

import pytest

from signalbox.natsserver import NatsServer
from tests.sim.cases import batching, consumers, events, lifetimes, outages, reads, writes
from tests.sim.cases.rig import CASES, Case
from tests.sim.cases.rigs import ModelRig, RealRig, declared
from tests.sim.loop import running

MODULES: Final = (writes, batching, lifetimes, reads, events, consumers, outages)
_AT_ONCE: Final = 12
_OWN_AT_ONCE: Final = 3
_CASE_S: Final = 120.0


async def everything(wanted: list[tuple[str, Case]]) -> dict[str, BaseException | None]:
    """Run cases against real servers; what each of them raised."""
    outcomes: dict[str, BaseException | None] = {}
    room = {False: asyncio.Semaphore(_AT_ONCE), True: asyncio.Semaphore(_OWN_AT_ONCE)}

    async def play(id_: str, each: Case, server: NatsServer) -> None:
        rig = RealRig(id_, server)
        try:
            async with asyncio.timeout(_CASE_S):
                await each.run(rig)
            outcomes[each.name] = None
        except Exception as error:  # noqa: BLE001  reported by the case's own test
            outcomes[each.name] = error
        finally:
            await rig.close()

    async def run(id_: str, each: Case, shared: NatsServer) -> None:
        async with room[each.is_own]:
            if each.is_own:
                async with declared() as server:
                    await play(id_, each, server)
            else:
                await play(id_, each, shared)

    async with declared() as shared, asyncio.TaskGroup() as group:
        for id_, each in wanted:
            group.create_task(run(id_, each, shared))
    return outcomes


NUMBERED: Final = [(f"c{number:03}", each) for number, each in enumerate(CASES)]


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest) -> dict[str, BaseException | None]:
    """What became of every real case that this run of pytest has selected."""
    chosen = {item.name for item in request.session.items}
    wanted = [
        (id_, each)
        for id_, each in NUMBERED
        if f"test_nats_server_behaves_so[{each.name}]" in chosen
    ]
    return asyncio.run(everything(wanted))


@pytest.mark.parametrize(("id_", "each"), NUMBERED, ids=[each.name for _, each in NUMBERED])
def test_the_model_behaves_so(id_: str, each: Case) -> None:
    async def play() -> None:
        rig = ModelRig(id_, seed=1)
        try:
            await each.run(rig)
        finally:
            await rig.close()

    with running(1) as loop:
        loop.run_until_complete(play())


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("id_", "each"), NUMBERED, ids=[each.name for _, each in NUMBERED])
def test_nats_server_behaves_so(
    id_: str, each: Case, real: dict[str, BaseException | None]
) -> None:
    assert id_
    outcome = real[each.name]
    if outcome is not None:
        raise outcome


def test_the_set_is_as_large_as_promised() -> None:
    assert MODULES
    assert len(CASES) >= 60
    assert len({each.name for each in CASES}) == len(CASES)
