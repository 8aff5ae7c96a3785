"""Shadow runs: a sample of batches, already in hand, is run on a candidate too, and what it gives is compared.

That happens once they are committed, and only while nothing waits and nothing else is with the runner: a batch that
comes meanwhile waits for one run at most. No job is made of it and no record is written. The runner compares, so no
output comes back. Whatever comes of it is the candidate's: one that takes the runner down, or does not end in time, is
run in shadow no more by this worker, and what was behind it runs again without a strike.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from signalbox.program import log
from signalbox.program.errors import (
    DeadlineExceeded,
    LeaseLost,
    NotFound,
    RunnerCrashed,
    SignalboxError,
    TooLarge,
    Unavailable,
)
from signalbox.wire.modeldocs import Model
from signalbox.wire.shadows import MOST_DIFFERENCE, MOST_NAME, ShadowFigures, TensorDifference
from signalbox.wire.splits import Split
from workers.host import gauges
from workers.host.fleet import FleetTables
from workers.residency.activity import Activity
from workers.residency.versions import ResidentVersions
from workers.runner.frames import ShadowRan
from workers.runner.link import RunnerLink, RunReport
from workers.serving import cause
from workers.serving.inflight import InFlightJob
from workers.serving.revival import Revival
from workers.statistics.shadowed import shadows
from workers.statistics.worker import Statistics

MOST_INPUT_BYTES: Final = 8 * 1024 * 1024
"""Of the jobs of a batch that are run in shadow: they are kept until nothing waits."""
MOST_OUTPUT_BYTES: Final = 512 * 1024
"""The same of their outputs: so much is compared in a few milliseconds."""
MOST_OF_ONE_BYTES: Final = 4 * 1024 * 1024
"""Outputs of one job that is run in shadow alone."""

LEAST_PATIENCE_S: Final = 10.0
PATIENCE: Final = 20
"""A run may take so many times what the other version's took."""


class Sample(NamedTuple):
    """Part of a batch, the whole of it where ``is_whole``. rows: of its jobs. base_s: what the batch's run took."""

    model: str
    base: int
    split: Split
    signature: str
    outputs: tuple[str, ...]
    inputs: list[bytes]
    expected: list[bytes]
    rows: int
    base_s: float
    is_whole: bool

    @property
    def patience_s(self) -> float:
        """How long a run of it may take: one that hangs does not hold the runner for as long as a job's may."""
        return max(LEAST_PATIENCE_S, PATIENCE * self.base_s)


class Shadows:
    """The shadow runs of one hold. At most one batch waits for its own. statistics: outlive the hold. dice: a number
    below 1."""

    def __init__(
        self,
        *,
        runner: RunnerLink,
        residency: ResidentVersions,
        revival: Revival,
        fleet: FleetTables,
        activity: Activity,
        statistics: Statistics,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._runner = runner
        self._residency = residency
        self._revival = revival
        self._fleet = fleet
        self._activity = activity
        self._found = statistics.shadowed
        self._may_join = statistics.joinings.may_join
        self._dice = dice
        self.waiting: Sample | None = None
        """A sample whose jobs are committed, kept until nothing else waits; a later one takes its place."""
        self._is_running = False

    def sample(
        self, model: Model, jobs: Sequence[InFlightJob], frames: Sequence[bytes], report: RunReport, seconds: float
    ) -> Sample | None:
        """What of a batch of a split model that has run is to be run in shadow, if anything is."""
        first = jobs[0].job
        for split in shadows(model, first.version):
            if (
                self._dice() < split.shadow
                and self._residency.is_ready((first.model, split.candidate))
                and not self._found.is_halted(first.model, split, first.version)
            ):
                is_joined = self._may_join(model, split.candidate, first.signature)
                # To find the job that is refused takes several runs on end; that happens once.
                most = len(jobs) if is_joined and not self._found.has_failed(model.name, split, first.version) else 1
                return _sample(split, jobs, frames, report, seconds, most)
        return None

    @property
    def may_begin(self) -> bool:
        """Whether a sample waits and the runner has nothing to do."""
        return self.waiting is not None and not self._is_running and self._activity.now() is None

    async def run(self) -> None:
        """Run the sample that waits, if its candidate is in memory and nothing is loaded. The edge of a task."""
        if not self.may_begin or (sample := self.waiting) is None:
            return
        self.waiting = None
        self._is_running = True
        try:
            async with self._residency.lent((sample.model, sample.split.candidate)) as is_lent:
                if is_lent:
                    await self._run(sample)
        except LeaseLost:
            pass
        except Exception:  # noqa: BLE001  the edge of a task
            log.exception("shadow.failed", model=sample.model, version=sample.split.candidate)
        finally:
            self._is_running = False

    async def _run(self, sample: Sample) -> None:
        split, key = sample.split, (sample.model, sample.split.candidate)
        generation = self._revival.generation
        try:
            with self._activity.computing(key, ()):
                found = await self._runner.run_shadow(
                    *key,
                    sample.signature,
                    sample.inputs,
                    sample.outputs,
                    sample.expected,
                    tolerance=split.tolerance,
                    timeout_s=min(self._fleet.limits(sample.model).timeout_s, sample.patience_s),
                )
        except NotFound:
            self._residency.lost(key)
        except (RunnerCrashed, DeadlineExceeded) as error:
            if cause.is_cause(error, cause.Evidence(1, is_ended_by_us=self._revival.is_ended_by_us(generation))):
                self._halt(sample, error)
            await self._revival.after(generation)
            self._residency.look_again()
        except (LeaseLost, TooLarge, Unavailable):  # nothing is known of the candidate
            raise
        except SignalboxError as error:
            self._found.add(sample.model, split, _failed(sample))
            log.debug("shadow.refused", model=sample.model, version=split.candidate, code=error.code)
        else:
            self._found.add(sample.model, split, _figures(sample, found))
        gauges.SHADOW_RUNS.labels(sample.model).inc()

    def _halt(self, sample: Sample, error: SignalboxError) -> None:
        did = "ended the runner" if isinstance(error, RunnerCrashed) else "did not end in time"
        self._found.add(sample.model, sample.split, _failed(sample, halted=f"A run of it {did}."))
        log.warning("shadow.halted", model=sample.model, version=sample.split.candidate, why=error.code)


def _sample(
    split: Split,
    jobs: Sequence[InFlightJob],
    frames: Sequence[bytes],
    report: RunReport,
    seconds: float,
    most: int,
) -> Sample | None:
    """The first jobs of a batch that have outputs, as far as they are small enough."""
    kept: list[int] = []
    inputs = outputs = 0
    for at, frame in enumerate(report.frames):
        if at in report.errors:
            continue
        if len(kept) == most:
            break
        inputs += len(frames[at])
        outputs += len(frame)
        if inputs > MOST_INPUT_BYTES or outputs > (MOST_OUTPUT_BYTES if kept else MOST_OF_ONE_BYTES):
            break
        kept.append(at)
    if not kept:
        return None
    first = jobs[0].job
    return Sample(
        model=first.model,
        base=first.version,
        split=split,
        signature=first.signature,
        outputs=first.outputs,
        inputs=[frames[at] for at in kept],
        expected=[report.frames[at] for at in kept],
        rows=sum(max(1, jobs[at].job.rows) for at in kept),
        base_s=seconds,
        is_whole=len(kept) == len(jobs),
    )


def _figures(sample: Sample, found: ShadowRan) -> ShadowFigures:
    tensors = {
        name[:MOST_NAME]: TensorDifference(max(0, outside), _finite(largest))
        for name, (outside, largest) in found.tensors.items()
    }
    return ShadowFigures(
        base=sample.base,
        since=sample.split.since,
        compared=found.compared,
        outside=found.outside,
        failed=found.failed,
        runs=1,
        timed=int(sample.is_whole),
        run_s=_finite(found.seconds) if sample.is_whole else 0.0,
        base_run_s=sample.base_s if sample.is_whole else 0.0,
        tensors=tensors,
    )


def _failed(sample: Sample, *, halted: str = "") -> ShadowFigures:
    """A run that gave nothing. halted: why the candidate is run no more."""
    rows = sample.rows
    return ShadowFigures(
        base=sample.base,
        since=sample.split.since,
        compared=rows,
        outside=rows,
        failed=rows,
        runs=1,
        halted=halted,
    )


def _finite(number: float) -> float:
    """A hostile runner's figures spoil nothing but these."""
    return min(max(0.0, number), MOST_DIFFERENCE) if math.isfinite(number) else MOST_DIFFERENCE
