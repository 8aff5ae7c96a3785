"""What caused the failure of a part of a batch, and what its jobs do then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.program.errors import (
    Bug,
    DeadlineExceeded,
    InputLost,
    InvalidRequest,
    ModelError,
    NotFound,
    NotServing,
    OutOfMemory,
    RunnerCrashed,
    SignalboxError,
    Unavailable,
)
from workers.residency.cache import DoesNotFit
from workers.runner.wire import RunnerLost
from workers.serving.cause import MAX_TRIES, Again, Decision, Evidence, decide

ERRORS = (
    DeadlineExceeded(),
    DoesNotFit(),
    InputLost(),
    InvalidRequest("no"),
    ModelError(),
    NotFound("no"),
    NotServing("no"),
    OutOfMemory(),
    RunnerCrashed(),
    RunnerLost("gone"),
    Unavailable("away"),
)
EVIDENCE = st.builds(Evidence, st.integers(1, 64), st.booleans(), st.booleans(), st.integers(0, MAX_TRIES))


@given(st.sampled_from(ERRORS), EVIDENCE)
def test_jobs_either_have_an_outcome_or_run_again_and_that_ends(error: SignalboxError, evidence: Evidence) -> None:
    decision = decide(error, evidence)
    assert (decision.outcome is None) == (decision.again is not Again.NO)
    if decision.again is Again.SAME:
        assert decision.is_try, "or it would go on for ever"
        assert evidence.tries + 1 < MAX_TRIES
    if decision.again in {Again.HALVES, Again.APART, Again.ALONE}:
        assert evidence.jobs > 1


@given(st.sampled_from(ERRORS), EVIDENCE)
def test_an_error_that_is_a_strike_is_an_outcome_only_of_a_job_that_ran_alone(
    error: SignalboxError, evidence: Evidence
) -> None:
    outcome = decide(error, evidence).outcome
    if isinstance(outcome, OutOfMemory | RunnerCrashed | DeadlineExceeded) and not isinstance(outcome, DoesNotFit):
        assert evidence.jobs == 1
        assert not (evidence.is_ended_by_us and isinstance(outcome, RunnerCrashed))
        assert not isinstance(outcome, RunnerLost)


@pytest.mark.parametrize("error", [RunnerCrashed(), DeadlineExceeded()])
def test_suspects_of_a_death_run_alone_and_a_lone_culprit_is_judged(error: SignalboxError) -> None:
    assert decide(error, Evidence(jobs=2)) == Decision(Again.ALONE, is_suspect=True, is_dead=True)
    assert decide(error, Evidence(jobs=1)) == Decision(outcome=error, is_dead=True)


@pytest.mark.parametrize(
    ("error", "evidence"),
    [
        (RunnerLost("gone"), Evidence(jobs=1)),
        (RunnerCrashed(), Evidence(jobs=1, is_ended_by_us=True)),
        (DeadlineExceeded(), Evidence(jobs=1, is_beside_load=True)),
    ],
)
def test_a_death_that_is_the_fault_of_another_costs_a_try_and_no_strike(
    error: SignalboxError, evidence: Evidence
) -> None:
    assert decide(error, evidence) == Decision(Again.SAME, is_suspect=True, is_dead=True, is_try=True)
    last = decide(error, evidence._replace(tries=MAX_TRIES - 1))
    assert isinstance(last.outcome, Unavailable)
    assert last.is_dead


def test_memory_used_up_is_noted_as_too_many_rows_only_where_no_load_took_some_of_it() -> None:
    error = OutOfMemory()
    assert decide(error, Evidence(jobs=4)) == Decision(Again.HALVES, is_too_many=True)
    assert decide(error, Evidence(jobs=4, is_beside_load=True)) == Decision(Again.HALVES)
    assert decide(error, Evidence(jobs=1)) == Decision(outcome=error, is_too_many=True)
    assert decide(error, Evidence(jobs=1, is_beside_load=True)) == Decision(Again.SAME, is_suspect=True, is_try=True)


def test_a_version_that_was_not_loaded_after_all_is_loaded_a_few_times() -> None:
    error = NotFound("no such version")
    assert decide(error, Evidence(jobs=3)) == Decision(Again.SAME, is_try=True)
    assert isinstance(decide(error, Evidence(jobs=3, tries=MAX_TRIES - 1)).outcome, Bug)


@pytest.mark.parametrize("error", [ModelError(), InvalidRequest("no"), InputLost()])
def test_what_refuses_a_batch_is_found_by_running_each_job_by_itself(error: SignalboxError) -> None:
    assert decide(error, Evidence(jobs=2)) == Decision(Again.APART)
    assert decide(error, Evidence(jobs=1)) == Decision(outcome=error)
