"""Every fuzz target holds over its share of 100 000 executions, or of 10 000: ``python -m verification.fuzz``."""

from collections.abc import Hashable
from pathlib import Path

import pytest

from tests import depth
from verification.fuzz import harness

TOTAL = depth.at(short=10_000, full=100_000)
SEED = 20_261_121


@pytest.mark.proof
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", harness.names())
def test_nothing_hostile_crashes_hangs_or_is_our_fault(name: str, tmp_path: Path) -> None:
    target = harness.target(name)
    whole = sum(harness.target(each).share for each in harness.names())
    runs = round(TOTAL * target.share / whole) + 1
    report = harness.fuzz(target, runs=runs, seed=SEED, keep=tmp_path)
    assert not report.errors, str(report)
    assert report.runs == runs
    assert report.outcomes > 1 or target.one(target.seeds[0]) is None, "every input looks the same"


@pytest.mark.parametrize("name", ["serving", "serving_grpc", "oip"])
def test_more_than_two_thousand_malformed_calls_of_a_dialect_are_refused_in_its_shape(
    name: str, tmp_path: Path
) -> None:
    target = harness.target(name)
    refused: list[object] = []

    def one(data: bytes) -> Hashable:
        outcome = target.one(data)
        if isinstance(outcome, tuple) and isinstance(outcome[-1], str) and outcome[-1] != "accepted":
            refused.append(outcome)
        return outcome

    report = harness.fuzz(target._replace(one=one), runs=3_000, seed=SEED, keep=tmp_path)
    assert not report.errors, str(report)
    assert len(refused) >= 2_000
    assert len(set(refused)) >= 30, "as good as all are refused alike"


def test_a_broken_promise_is_found_reported_once_and_kept(tmp_path: Path) -> None:
    def one(data: bytes) -> int:
        assert b"]" in data, "no bracket"
        return len(data)

    target = harness.Target("broken", (b"[1]", b"[2]"), one, (), 1)
    report = harness.fuzz(target, runs=2_000, seed=1, keep=tmp_path)
    assert len(report.errors) == len(report.kept) == 1
    assert "no bracket" in report.errors[0]
    assert b"]" not in report.kept[0].read_bytes()


def test_code_that_does_not_end_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "LIMIT_S", 0.05)

    def one(data: bytes) -> None:
        while data:
            try:
                while True:
                    pass
            except Exception:  # noqa: BLE001, S110  code under test that swallows everything
                pass

    target = harness.Target("endless", (b"x",), one, (), 1)
    report = harness.fuzz(target, runs=1, seed=1, keep=tmp_path)
    assert "Hang" in report.errors[0]


def test_the_same_seed_makes_the_same_inputs(tmp_path: Path) -> None:
    def inputs(seed: int) -> list[bytes]:
        seen: list[bytes] = []
        target = harness.Target("any", (b"[1, 2]", b"{}"), seen.append, (b"token",), 1)
        harness.fuzz(target, runs=500, seed=seed, keep=tmp_path)
        return seen

    assert inputs(7) == inputs(7)
    assert inputs(7) != inputs(8)
