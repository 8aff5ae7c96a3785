"""When requests move to a new version: the rule that every gateway applies."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from signalbox.wire import rollout
from signalbox.wire.modeldocs import Model, Serving, Version
from signalbox.wire.workerdocs import Residency, Worker
from tests.rigs.presence import presence

OLD = Serving(publication=1, default=1)


def model(default: int | None = 2, versions: tuple[int, ...] = (1, 2), **fields: Any) -> Model:
    known = tuple(Version(version=v, path="/m") for v in versions)
    return Model(**{"name": "m", "versions": known, "default_version": default, **fields})


def worker(device: str = "g1", *, token: int = 1, **states: str) -> Worker:
    """A holder of its device. states: ``v1="ready"``."""
    models = tuple(Residency(model="m", version=int(v[1:]), state=s) for v, s in states.items())
    return presence(f"w-{device}-{token}", device, token=token, models=models)


def default_after(
    workers: list[Worker], serving: Serving | None = OLD, *, is_deserted: bool = False, **fields: Any
) -> int | None:
    after, _ = rollout.decide(model(**fields), 2, serving, workers, is_deserted=is_deserted)
    assert after is not None
    return after.default


def test_requests_stay_with_the_old_version_while_the_new_one_is_made_ready() -> None:
    for state in ("", "loading", "failed"):
        new = [Residency(model="m", version=2, state=state)] if state else []
        holder = worker(v1="ready")
        assert default_after([replace(holder, models=(*holder.models, *new))]) == 1
        assert rollout.resolve(model(), OLD, "") == 1


def test_requests_move_when_the_new_version_is_ready_wherever_the_model_is_served() -> None:
    ready, not_yet = worker("g1", v1="ready", v2="ready"), worker("g2", v1="ready", v2="loading")
    assert default_after([ready, not_yet], replicas=2) == 1
    assert default_after([ready, worker("g2", v1="ready", v2="ready")], replicas=2) == 2


def test_one_that_does_not_fit_beside_the_old_one_is_not_waited_for() -> None:
    assert default_after([worker(v1="ready", v2="crowded")]) == 2


def test_where_no_version_is_resident_requests_move_at_once() -> None:
    assert default_after([worker()]) == 2
    assert default_after([worker(v2="loading")]) == 2


@pytest.mark.parametrize("state", ["ready", "crowded"])
def test_a_home_with_no_version_in_memory_is_not_waited_for(state: str) -> None:
    served, bare = worker("g1", v1="ready", v2=state), worker("g2")
    assert default_after([served, bare], replicas=2) == 2
    for waited in (worker("g1", v1="ready"), worker("g1", v1="ready", v2="loading")):
        assert default_after([waited, bare], replicas=2) == 1


def test_one_of_two_homes_that_failed_and_starts_anew_is_not_taken_for_one_without_a_failure() -> None:
    ready, failed = worker("g1", v1="ready", v2="ready"), worker("g2", v1="ready", v2="failed")
    two = model(replicas=2)
    record, _ = rollout.decide(two, 2, OLD, [ready, failed])
    assert record == Serving(publication=2, default=1, failed=(2,))
    for anew in (worker("g2"), worker("g2", v1="ready")):
        assert rollout.decide(two, 2, record, [ready, anew])[0] == record


@pytest.mark.parametrize("state", ["ready", "crowded"])
def test_a_failure_that_presence_told_after_the_publication_that_cleared_it_holds_nothing_back(state: str) -> None:
    record, _ = rollout.decide(model(), 2, OLD, [worker(v1="ready", v2="failed")])
    for reported, default, failed in (("failed", 1, (2,)), ("loading", 1, ()), (state, 2, ())):
        record, _ = rollout.decide(model(), 3, record, [worker(v1="ready", v2=reported)])
        assert record == Serving(publication=3, default=default, failed=failed)


def test_a_version_that_failed_to_load_is_not_moved_to_because_a_worker_restarts() -> None:
    after, _ = rollout.decide(model(), 2, OLD, [worker(v1="ready", v2="failed")])
    assert after == Serving(publication=2, default=1, failed=(2,))
    assert default_after([worker()], after) == 1
    assert default_after([], after, is_deserted=True) == 1
    assert default_after([worker(v1="ready", v2="ready")], after) == 2
    assert rollout.targets(model(), OLD) == [2, 1]
    assert rollout.targets(model(), after) == [1, 2], "a worker that starts anew: what works first"
    again, _ = rollout.decide(model(), 3, after, [worker()])
    assert again == Serving(publication=3, default=2), "published again, it is tried again"


def test_a_rollout_of_a_model_without_workers_waits_for_one_for_a_while() -> None:
    for absent in ([], [worker(token=0, v1="ready")]):
        after, is_unserved = rollout.decide(model(), 2, OLD, absent)
        assert after is not None
        assert (after.default, is_unserved) == (1, True)
        assert default_after(absent, is_deserted=True) == 2


@pytest.mark.parametrize("fields", [{"is_enabled": False}, {"replicas": 0}, {"versions": (2,)}, {"default": 1}])
def test_what_may_not_serve_or_shall_not_change_waits_for_nothing(fields: dict[str, Any]) -> None:
    wanted = fields.get("default", 2)
    assert default_after([worker(v1="ready", v2="loading")], **fields) == wanted


def test_labels_move_each_by_itself_and_a_new_one_is_there_at_once() -> None:
    serving = Serving(publication=1, default=1, labels={"stable": 1, "gone": 1})
    moved = model(versions=(1, 2, 3), labels={"stable": 3, "new": 3})
    after, _ = rollout.decide(moved, 2, serving, [worker(v1="ready", v2="ready", v3="loading")])
    assert after == Serving(publication=2, default=2, labels={"stable": 1, "new": 3})
    assert [rollout.resolve(moved, serving, alias) for alias in ("", "stable", "new", "gone")] == [1, 1, 3, None]
    assert rollout.targets(moved, serving) == [2, 3, 1]


def test_a_rollback_is_a_move_like_any_other() -> None:
    served = Serving(publication=1, default=2)
    assert default_after([worker(v2="ready", v1="loading")], served, default=1) == 2
    assert default_after([worker(v2="ready", v1="ready")], served, default=1) == 1


def test_who_knows_an_older_publication_decides_nothing() -> None:
    newer = Serving(publication=3, published_at=30.0, default=1)
    older = model(updated_at=20.0)
    assert rollout.decide(older, 2, newer, [worker(v2="ready")]) == (None, False)


@pytest.mark.parametrize(("revision", "at"), [(2, 40.0), (4, 20.0)])
def test_a_stream_that_begins_anew_and_a_clock_that_is_set_back_stop_nothing(revision: int, at: float) -> None:
    newer = Serving(publication=3, published_at=30.0, default=1)
    after, _ = rollout.decide(model(updated_at=at), revision, newer, [worker(v1="ready", v2="ready")])
    assert after == Serving(publication=revision, published_at=at, default=2)


STATES = st.sampled_from(["", "fetching", "loading", "ready", "failed", "crowded"])
PRESENCE = st.lists(st.tuples(STATES, STATES, STATES), max_size=2)
ACTS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 3)),
    st.tuples(st.just("presence"), PRESENCE),
    st.tuples(st.just("learn"), st.integers(0, 1)),
    st.tuples(st.just("read"), st.integers(0, 1)),
    st.tuples(st.just("decide"), st.integers(0, 1)),
)


class Gateway:
    """What one gateway knows: a publication, the record and its revision, and presence, all as old as may be."""

    def __init__(self) -> None:
        self.publication, self.default = 1, 1
        self.workers: list[Worker] = []
        self.record: tuple[int, Serving] = (1, OLD)


HOMES: st.SearchStrategy[list[str]] = st.lists(st.sampled_from(["ready", "crowded", "bare"]), min_size=1, max_size=2)
"""What each holder says of the new version beside the old one, when all is done; bare: it has neither."""


@given(st.lists(ACTS, max_size=60), HOMES)
def test_requests_move_once_a_publication_whatever_the_gateways_see_late(
    acts: list[tuple[str, Any]], homes: list[str]
) -> None:
    gateways = [Gateway(), Gateway()]
    published, present = [1], [worker(v1="ready")]
    record = (1, OLD)
    for act, what in acts:
        if act == "publish":
            published.append(what)
        elif act == "presence":
            present = [
                worker(f"g{n}", **{f"v{i + 1}": s for i, s in enumerate(states) if s}) for n, states in enumerate(what)
            ]
        elif act == "learn":
            gateways[what].publication, gateways[what].default = len(published), published[-1]
            gateways[what].workers = present
        elif act == "read":
            gateways[what].record = record
        else:
            g = gateways[what]
            document = model(g.default, versions=(1, 2, 3), replicas=2, updated_at=float(g.publication))
            after, _ = rollout.decide(document, g.publication, g.record[1], g.workers)
            if after is None or after == g.record[1] or g.record[0] != record[0]:
                continue  # compare-and-set refuses what was decided from an old record
            before, record = record[1], (record[0] + 1, after)
            assert after.publication >= before.publication
            if after.default != before.default:
                assert after.default == published[after.publication - 1]
                is_same = after.publication == before.publication
                assert not is_same or before.default != published[before.publication - 1]
    assert settled(record[1], published, homes).default == published[-1]


def settled(record: Serving, published: list[int], homes: list[str]) -> Serving:
    """What is recorded when all gateways know the last publication and a presence that changes no more."""
    old, new, publication = record.default, published[-1], len(published)
    document = model(new, versions=(1, 2, 3), replicas=2, updated_at=float(publication))
    has_failed = record.publication == publication and new in record.failed
    present = []
    for n, state in enumerate(homes):
        states: dict[str, Any] = {f"v{old}": "ready"}
        states[f"v{new}"] = state.replace("bare", "ready")
        # Where a load has failed before, a home that tells nothing of another try is waited for.
        present.append(worker(f"g{n}", **({} if state == "bare" and not has_failed else states)))
    for _ in range(2):  # a second look finds nothing more to do
        after, _ = rollout.decide(document, publication, record, present)
        assert after is not None
        record = after
    return record
