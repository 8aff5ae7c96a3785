"""The laws of the lease, under any order of events that the model of the world allows."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests import depth
from tests.rigs.leaseworld import RULES, World

pytestmark = pytest.mark.proof
ACTS = (
    "deliver",
    "deliver",
    "deliver",
    "store",
    "store",
    "read",
    "lose",
    "store_unheard",
    "time_out",
    "refuse",
    "late",
    "read_fails",
    "freeze",
    "thaw",
    "crash",
    "runner_crash",
    "runner_start",
    "want",
    "release",
    "tick",
    "tick",
    "jump",
    "wipe",
    "settle",
    "settle",
    "settle",
    "settle",
)
STEPS = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 2)), min_size=40, max_size=90)
STOOD_BACK = ("settle", "freeze", "crash", "wipe", "settle", "jump", "settle", "jump", "jump")
LAWS = settings(max_examples=depth.at(short=60, full=250), suppress_health_check=list(HealthCheck))


def played(steps: list[tuple[str, int]]) -> World:
    """A world after ``steps``; the model itself asserts exclusion and growing tokens at every entry."""
    world = World(3)
    for act, number in steps:
        getattr(world, act)(world.nodes[number])
        assert len(world.inside()) <= 1
    return world


@LAWS
@given(STEPS)
def test_nobody_is_inside_together_and_tokens_only_grow(steps: list[tuple[str, int]]) -> None:
    world = played(steps)
    tokens = [token for _, _, token in world.entries]
    assert tokens == sorted(tokens)
    owner: dict[int, tuple[str, int]] = {}
    for name, life, token in world.entries:
        assert owner.setdefault(token, (name, life)) == (name, life)


@LAWS
@given(STEPS)
def test_runner_is_out_once_its_deadline_has_passed(steps: list[tuple[str, int]]) -> None:
    world = played(steps)
    world.advance(RULES.fence_s + 0.001)
    for node in world.inside():
        assert node.guard.deadline > world.now


@LAWS
@given(STEPS)
def test_once_the_faults_end_one_worker_holds_the_device(steps: list[tuple[str, int]]) -> None:
    world = played(steps)
    world.heal(RULES.ttl_s + 3 * RULES.reserved_s + RULES.fence_s)
    (node,) = world.inside()
    assert world.holder() == node.name
    assert node.is_held
    assert [n.name for n in world.nodes if n.lease.held] == [node.name]


@LAWS
@example([(act, int(act == "freeze")) for act in STOOD_BACK], 0)
@given(STEPS, st.integers(0, 2))
def test_everybody_who_waits_gets_a_turn(steps: list[tuple[str, int]], number: int) -> None:
    world = played(steps)
    # Who met a lock that was not free leaves the device to others for its quarantine.
    world.heal(RULES.ttl_s + 3 * RULES.reserved_s + RULES.fence_s + RULES.quarantine_s)
    for _ in range(3):
        (inside,) = world.inside()
        if inside is world.nodes[number]:
            return
        world.want(world.nodes[number])
        world.heal(1.0)
        world.release(inside)
        world.heal(2 * RULES.reserved_s)
    assert world.inside() == [world.nodes[number]]
