import pytest

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


def decision(error: SignalboxError, *, crashes: int = 0, max_delivery: int = 5) -> Decision:
    return judge(error, crashes=crashes, max_delivery=max_delivery)


def test_an_error_of_the_model_fails_a_job_at_once() -> None:
    assert decision(ModelError()) == Decision(Action.FAIL)
    assert decision(InvalidInput()) == Decision(Action.FAIL)
    assert decision(InputLost()) == Decision(Action.FAIL)


@pytest.mark.parametrize("error", [RunnerCrashed(), OutOfMemory()])
def test_a_dead_runner_is_a_strike_and_the_delay_doubles(error: SignalboxError) -> None:
    assert decision(error) == Decision(Action.RETRY, 1.0, is_strike=True)
    assert decision(error, crashes=1) == Decision(Action.RETRY, 2.0, is_strike=True)


@pytest.mark.parametrize("error", [RunnerCrashed(), OutOfMemory()])
@pytest.mark.parametrize("max_delivery", [0, 3, 100])
def test_the_third_strike_is_poison_whatever_the_model_allows(error: SignalboxError, max_delivery: int) -> None:
    found = decision(error, crashes=2, max_delivery=max_delivery)
    assert found == Decision(Action.FAIL, is_strike=True, is_dead_letter=True, is_poison=True)


def test_a_model_may_allow_fewer_strikes() -> None:
    assert decision(RunnerCrashed(), crashes=1, max_delivery=2).is_poison


def test_a_run_over_its_time_is_not_repeated() -> None:
    assert decision(DeadlineExceeded()) == Decision(Action.FAIL, is_strike=True, is_dead_letter=True)


def test_an_input_in_quarantine_is_refused_without_another_dead_letter() -> None:
    assert decision(Poisoned()) == Decision(Action.FAIL)


def test_our_own_outages_are_no_strikes() -> None:
    for error in (LeaseLost(), Unavailable()):
        assert decision(error, crashes=2) == Decision(Action.RETRY, 1.0)


def test_a_version_that_cannot_be_loaded_is_waited_for_only_so_often_and_is_no_poison() -> None:
    assert decision(NotServing(), crashes=2) == Decision(Action.RETRY, 4.0, is_strike=True)
    found = decision(NotServing(), crashes=4)
    assert found == Decision(Action.FAIL, is_strike=True, is_dead_letter=True)


def test_a_version_that_does_not_fit_fails_its_jobs_at_once_and_blames_none() -> None:
    assert judge(DoesNotFit(), crashes=0, max_delivery=0) == (Action.FAIL, 0.0, False, False, False)


def test_what_must_not_happen_cannot_happen_for_ever() -> None:
    assert decision(Bug(), crashes=4) == Decision(Action.FAIL, is_strike=True, is_dead_letter=True)
