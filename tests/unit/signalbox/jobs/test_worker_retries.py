import pytest

from signalbox.jobs.penalty import Penalty
from signalbox.program.errors import (
    Bug,
    DeadlineExceeded,
    InputLost,
    InvalidInput,
    LeaseLost,
    ModelError,
    NotServing,
    OutOfMemory,
    Poisoned,
    RunnerCrashed,
    SignalboxError,
    Unavailable,
)
from workers.residency.cache import DoesNotFit
from workers.serving.retries import Action, Decision, judge


def decision(error: SignalboxError, *, strikes: int = 0, failures: int = 0, max_delivery: int = 5) -> Decision:
    return judge(error, strikes=strikes, failures=failures, max_delivery=max_delivery)


def test_an_error_of_the_model_fails_a_job_at_once() -> None:
    assert decision(ModelError()) == Decision(Action.FAIL)
    assert decision(InvalidInput()) == Decision(Action.FAIL)
    assert decision(InputLost()) == Decision(Action.FAIL)


@pytest.mark.parametrize("error", [RunnerCrashed(), OutOfMemory()])
def test_a_dead_runner_is_a_strike_and_the_delay_doubles(error: SignalboxError) -> None:
    assert decision(error) == Decision(Action.RETRY, 1.0, penalty=Penalty.STRIKE)
    assert decision(error, strikes=1) == Decision(Action.RETRY, 2.0, penalty=Penalty.STRIKE)


@pytest.mark.parametrize("error", [RunnerCrashed(), OutOfMemory()])
@pytest.mark.parametrize("max_delivery", [0, 3, 100])
def test_the_third_strike_is_poison_whatever_the_model_allows(error: SignalboxError, max_delivery: int) -> None:
    found = decision(error, strikes=2, max_delivery=max_delivery)
    assert found == Decision(Action.FAIL, penalty=Penalty.STRIKE, is_dead_letter=True, is_poison=True)


def test_a_model_may_allow_fewer_strikes() -> None:
    assert decision(RunnerCrashed(), strikes=1, max_delivery=2).is_poison


def test_a_run_over_its_time_is_not_repeated() -> None:
    assert decision(DeadlineExceeded()) == Decision(Action.FAIL, penalty=Penalty.STRIKE, is_dead_letter=True)


def test_an_input_in_quarantine_is_refused_without_another_dead_letter() -> None:
    assert decision(Poisoned()) == Decision(Action.FAIL)


def test_our_own_outages_are_no_strikes() -> None:
    for error in (LeaseLost(), Unavailable()):
        assert decision(error, strikes=2) == Decision(Action.RETRY, 1.0)


def test_a_version_that_cannot_be_loaded_is_waited_for_only_so_often_and_is_no_poison() -> None:
    assert decision(NotServing(), failures=2) == Decision(Action.RETRY, 4.0, penalty=Penalty.FAILURE)
    found = decision(NotServing(), failures=4)
    assert found == Decision(Action.FAIL, penalty=Penalty.FAILURE, is_dead_letter=True)


def test_attempts_of_both_kinds_count_together_and_only_strikes_make_an_input_poison() -> None:
    assert decision(NotServing(), strikes=2, failures=2).action is Action.FAIL
    last = decision(RunnerCrashed(), failures=4)
    assert last == Decision(Action.FAIL, penalty=Penalty.STRIKE, is_dead_letter=True)
    assert decision(RunnerCrashed(), failures=2) == Decision(Action.RETRY, 4.0, penalty=Penalty.STRIKE)


def test_a_version_that_does_not_fit_fails_its_jobs_at_once_without_a_strike() -> None:
    assert decision(DoesNotFit(), max_delivery=0) == Decision(Action.FAIL)


def test_what_must_not_happen_cannot_happen_for_ever() -> None:
    assert decision(Bug(), failures=4) == Decision(Action.FAIL, penalty=Penalty.FAILURE, is_dead_letter=True)
