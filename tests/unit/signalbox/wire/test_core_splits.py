"""Which side of a split a request is on, and when a split counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from signalbox.wire import rollout
from signalbox.wire.modeldocs import Model, Serving, Version
from signalbox.wire.splits import Split, canonical, gets_candidate
from signalbox.wire.workerdocs import Residency, Worker
from tests.rigs.presence import presence

KEYS = [f"key-{n}" for n in range(2000)]
READY = Serving(publication=1, default=1, labels={"stable": 1}, candidates=(2,))


def split(weight: float = 0.5, target: str = "", header: str = "") -> Split:
    return Split(target=target, candidate=2, weight=weight, header=header)


def model(*splits: Split, default: int = 1) -> Model:
    versions = tuple(Version(version=v, path="/m") for v in (1, 2))
    return Model(name="m", versions=versions, default_version=default, labels={"stable": 1}, splits=splits)


def worker(device: str = "g1", **states: str) -> Worker:
    models = tuple(Residency(model="m", version=int(v[1:]), state=s) for v, s in states.items())
    return presence(f"w-{device}", device, token=1, models=models)


def candidates(serving: Serving | None, *workers: Worker, replicas: int = 1, weight: float = 0.5) -> tuple[int, ...]:
    after, _ = rollout.decide(replace(model(split(weight)), replicas=replicas), 2, serving, workers)
    assert after is not None
    return after.candidates


def on_candidate(one: Split, keys: list[str] = KEYS) -> set[str]:
    return {key for key in keys if gets_candidate(one, "m", key, {})}


@pytest.mark.parametrize("weight", [0.01, 0.1, 0.5, 0.9])
def test_about_as_many_keys_get_the_candidate_as_the_weight_says(weight: float) -> None:
    assert len(on_candidate(split(weight))) / len(KEYS) == pytest.approx(weight, abs=0.05)


def test_a_weight_of_one_is_every_key_and_a_weight_of_zero_none() -> None:
    assert on_candidate(split(1.0)) == set(KEYS)
    assert on_candidate(split(0.0)) == set()


@given(st.text(max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_whoever_gets_the_candidate_gets_it_at_every_higher_weight(key: str, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert gets_candidate(split(high), "m", key, {}) >= gets_candidate(split(low), "m", key, {})


def test_a_header_that_is_named_decides_and_the_key_where_it_is_missing() -> None:
    by_header = split(header="X-User")
    sides = {gets_candidate(by_header, "m", key, {"X-User": "ann"}) for key in KEYS}
    assert len(sides) == 1, "the key has no say"
    assert len({gets_candidate(by_header, "m", "k", {"X-User": user}) for user in KEYS}) == 2
    assert on_candidate(by_header) == on_candidate(split())
    assert gets_candidate(by_header, "m", "k", {"X-User": "\udcff"}) in {True, False}, "whatever it holds"


def test_each_rollout_has_other_callers_first() -> None:
    assert on_candidate(split(0.1)) != on_candidate(split(0.1, target="stable"))


@pytest.mark.parametrize("name", ["x-user", "X-USER", "X-User"])
def test_a_header_is_named_as_gateways_have_it(name: str) -> None:
    assert canonical(name) == "X-User"


def test_a_split_is_of_its_default_or_label_alone() -> None:
    chosen = {
        alias: rollout.choose(model(split(1.0, target="stable")), READY, alias, "k", {}) for alias in ("", "stable")
    }
    assert chosen == {"": 1, "stable": 2}
    assert rollout.choose(model(split(1.0)), READY, "unknown", "k", {}) is None


@pytest.mark.parametrize("serving", [None, replace(READY, candidates=())])
def test_while_the_candidate_is_not_known_to_be_ready_all_get_the_other_version(serving: Serving | None) -> None:
    assert rollout.choose(model(split(1.0)), serving, "", "k", {}) == 1


@pytest.mark.parametrize("state", ["loading", "fetching", "failed", "crowded"])
def test_a_weight_counts_only_when_the_candidate_is_ready_wherever_the_model_is_served(state: str) -> None:
    ready = worker("g1", v1="ready", v2="ready")
    assert candidates(None, ready) == (2,)
    for other in (worker("g2", v1="ready", v2=state), worker("g2", v1="ready"), worker("g2")):
        assert candidates(READY, ready, other, replicas=2) == ()
    assert candidates(None, ready, worker("g2", v1="ready", v2="ready"), replicas=2) == (2,)


def test_while_nothing_serves_the_model_it_stays_as_it_was() -> None:
    assert candidates(READY) == (2,)
    assert candidates(None) == ()


def test_a_split_that_was_halted_has_no_candidate() -> None:
    assert candidates(READY, worker(v1="ready", v2="ready"), weight=0.0) == ()
    assert rollout.targets(model(split(0.0)), READY) == [1]


def test_a_candidate_is_worth_having_in_memory_after_what_requests_get() -> None:
    assert rollout.targets(model(split()), None) == [1, 2]


def test_nobody_leaves_the_candidate_for_a_moment_when_it_is_promoted() -> None:
    """The document without the split comes before the record that it makes."""
    promoted = model(default=2)
    assert rollout.choose(promoted, READY, "", "k", {}) == 2
    after, _ = rollout.decide(promoted, 2, READY, [worker(v1="ready", v2="ready")])
    assert after == Serving(publication=2, default=2, labels={"stable": 1})


def test_all_leave_the_candidate_when_it_is_rolled_back() -> None:
    assert rollout.choose(model(), READY, "", "k", {}) == 1
