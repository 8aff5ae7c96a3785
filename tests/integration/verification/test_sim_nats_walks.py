"""Random walks of the model, walked again on nats-server: every outcome and every state told is the same."""

import asyncio
from typing import Final

import pytest

from tests import depth
from verification.simulation.cases.compare import on_a_server, on_the_model
from verification.simulation.cases.walks import Outcome

SEEDS: Final = range(depth.at(short=6, full=16))
STEPS: Final = 120


@pytest.fixture(scope="module")
def walks(request: pytest.FixtureRequest) -> dict[int, tuple[list[Outcome], list[Outcome] | Exception]]:
    """Both outcomes of every walk that this run of pytest has selected."""
    chosen = {item.name for item in request.session.items}
    model = {
        seed: on_the_model(seed, STEPS)
        for seed in SEEDS
        if f"test_a_walk_comes_to_the_same_everywhere[{seed}]" in chosen
    }
    real = asyncio.run(on_a_server(model, STEPS))
    return {seed: (model[seed], real[seed]) for seed in model}


@pytest.mark.proof
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_walk_comes_to_the_same_everywhere(
    seed: int, walks: dict[int, tuple[list[Outcome], list[Outcome] | Exception]]
) -> None:
    model, real = walks[seed]
    if isinstance(real, Exception):
        raise real
    assert real == model
    assert len(model) > STEPS


def test_walks_differ() -> None:
    assert on_the_model(0, STEPS) == on_the_model(0, STEPS)
    assert on_the_model(0, STEPS) != on_the_model(1, STEPS)
