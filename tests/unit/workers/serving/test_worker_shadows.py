"""Which batches are run in shadow, what of them, and what is kept of it."""

from typing import Any, NamedTuple, cast

import pytest
from msgspec.structs import replace

from signalbox.program.errors import InvalidInput
from signalbox.wire.modeldocs import Batching, Model, Version
from signalbox.wire.shadows import ShadowFigures, TensorDifference
from signalbox.wire.splits import Split
from workers.runner.link import RunReport
from workers.serving.shadows import (
    LEAST_PATIENCE_S,
    MOST_INPUT_BYTES,
    MOST_OF_ONE_BYTES,
    MOST_OUTPUT_BYTES,
    PATIENCE,
    Sample,
    Shadows,
)
from workers.statistics.shadowed import Shadowed, shadows
from workers.statistics.worker import Statistics

SPLIT = Split(candidate=2, weight=0.0, shadow=0.25, since=1.0)
MODEL = Model(
    name="m",
    versions=tuple(Version(version=v, path=f"/m/{v}", joined=("s",)) for v in (1, 2, 3)),
    default_version=1,
    labels={"stable": 3},
    batching=Batching(max_size=8, rows_independent=True),
    splits=(SPLIT,),
)


class Job(NamedTuple):
    """What is read of one."""

    model: str = "m"
    version: int = 1
    signature: str = "s"
    outputs: tuple[str, ...] = ()
    rows: int = 1


class Held(NamedTuple):
    """The same in flight."""

    job: Job


class Residency:
    """What is in memory."""

    def __init__(self) -> None:
        self.ready = {("m", 1), ("m", 2)}

    def is_ready(self, key: tuple[str, int]) -> bool:
        return key in self.ready


class Rig:
    """Shadows whose die shows ``die``."""

    def __init__(self) -> None:
        self.die = 0.0
        statistics = Statistics()
        self.found = statistics.shadowed
        self.model, self.residency = MODEL, Residency()
        nothing = cast("Any", None)
        self.shadows = Shadows(
            runner=nothing,
            residency=cast("Any", self.residency),
            revival=nothing,
            fleet=nothing,
            activity=nothing,
            statistics=statistics,
            dice=lambda: self.die,
        )

    def sample(self, *answers: bytes, version: int = 1, size: int = 1, **report: Any) -> Sample | None:
        jobs = [Held(Job(version=version)) for _ in answers]
        return self.shadows.sample(
            self.model,
            cast("Any", jobs),
            [bytes(size)] * len(answers),
            RunReport(frames=list(answers), seconds=0.5, **report),
            0.5,
        )


def test_a_share_of_the_batches_of_the_version_that_the_target_names_is_sampled() -> None:
    rig = Rig()
    sampled = []
    for rig.die in [at / 100 for at in range(100)]:
        sampled.append(rig.sample(b"y"))
    assert [bool(one) for one in sampled] == [at < 25 for at in range(100)]
    assert sampled[0] == Sample("m", 1, SPLIT, "s", (), [b"\0"], [b"y"], 1, 0.5, True)


@pytest.mark.parametrize("version", [2, 3])
def test_batches_of_other_versions_are_not(version: int) -> None:
    assert Rig().sample(b"y", version=version) is None


def test_a_label_s_candidate_gets_batches_of_what_the_label_names() -> None:
    by_label = replace(SPLIT, target="stable")
    model = replace(MODEL, splits=(by_label, replace(SPLIT, shadow=0.0, weight=0.5)))
    assert [shadows(model, version) for version in (1, 2, 3)] == [[], [], [by_label]]


def test_nothing_is_sampled_while_the_candidate_is_not_in_memory() -> None:
    rig = Rig()
    rig.residency.ready.discard(("m", 2))
    assert rig.sample(b"y") is None


def test_jobs_without_an_answer_are_left_out_and_what_a_part_took_is_not_told() -> None:
    sample = Rig().sample(b"", b"y", errors={0: InvalidInput("no")})
    assert sample is not None
    assert (sample.expected, sample.rows, sample.is_whole) == ([b"y"], 1, False)
    assert Rig().sample(b"", errors={0: InvalidInput("no")}) is None


def test_what_is_kept_and_compared_is_bounded_and_one_large_answer_is_taken_alone() -> None:
    small, large = bytes(MOST_OUTPUT_BYTES // 2), bytes(MOST_OF_ONE_BYTES)
    for answers, count in (([small] * 3, 2), ([large, b"y"], 1), ([large + b"y"], 0)):
        sample = Rig().sample(*answers)
        assert (len(sample.expected) if sample is not None else 0) == count
    assert (sample := Rig().sample(b"y", b"y", b"y", size=MOST_INPUT_BYTES // 2)) is not None
    assert len(sample.inputs) == 2


def figures(outside: int, **more: Any) -> ShadowFigures:
    tensors = {"y": TensorDifference(outside, float(outside))}
    return ShadowFigures(base=1, since=1.0, compared=100, outside=outside, runs=1, tensors=tensors, **more)


def test_figures_add_up_and_begin_anew_with_the_split() -> None:
    found = Shadowed()
    for outside in (2, 1):
        found.add("m", SPLIT, figures(outside))
    told = found.of(("m", 2), lambda _: MODEL)
    assert told == ShadowFigures(
        base=1, since=1.0, compared=200, outside=3, runs=2, tensors={"y": TensorDifference(3, 2.0)}
    )
    anew = replace(SPLIT, since=2.0)
    assert found.of(("m", 2), lambda _: replace(MODEL, splits=(anew,))) is None
    found.add("m", anew, replace(figures(0), since=2.0))
    told = found.of(("m", 2), lambda _: replace(MODEL, splits=(anew,)))
    assert told is not None
    assert (told.compared, told.outside) == (100, 0)


def test_a_candidate_that_halted_is_not_sampled_until_its_split_begins_anew() -> None:
    rig = Rig()
    rig.found.add("m", SPLIT, figures(1, halted="A run of it ended the runner."))
    assert rig.sample(b"y") is None
    rig.model = replace(MODEL, splits=(replace(SPLIT, since=2.0),))
    assert rig.sample(b"y") is not None


def test_one_job_is_taken_where_the_candidate_s_requests_are_not_joined_or_one_was_refused() -> None:
    rig = Rig()
    sample = rig.sample(b"y", b"y")
    assert sample is not None
    assert len(sample.expected) == 2
    alone = tuple(replace(one, joined=()) for one in MODEL.versions)
    rig.model = replace(MODEL, versions=alone)
    assert (sample := rig.sample(b"y", b"y")) is not None
    assert (len(sample.expected), sample.is_whole) == (1, False)
    rig.model = MODEL
    rig.found.add("m", SPLIT, figures(1, failed=1))
    assert (sample := rig.sample(b"y", b"y")) is not None
    assert len(sample.expected) == 1


def test_a_run_that_hangs_is_ended_by_what_the_other_version_s_took() -> None:
    sample = Rig().sample(b"y")
    assert sample is not None
    assert (sample.patience_s, sample._replace(base_s=1.0).patience_s) == (LEAST_PATIENCE_S, PATIENCE)
