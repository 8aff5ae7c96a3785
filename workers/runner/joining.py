"""Tries whether joined requests of a version get the same answers as alone. Pure, but for the runs it asks for.

Some requests with unlike inputs run each alone, each alone again, and all as one. A model whose rows depend on one
another, by a mean over them, by the longest text or by anything else, answers its rows otherwise when they are joined.
The inputs are made up by dtype and shape, with a seed, so that every worker tries the same; warm-up requests that the
version brings are tried too. What shows nothing, because the inputs are refused or all answers are alike, counts as
not tried.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from signalbox.program.errors import OutOfMemory, RunnerCrashed, SignalboxError
from signalbox.wire import tensors
from signalbox.wire.modeldocs import Signature
from workers.runner.arrays import Array, Output, array_of
from workers.runner.likeness import floor, is_inexact, unlike, wide
from workers.runner.madeup import random_values

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of the joined inputs of a trial; as much as a batch may have."""
_ROWS: Final = (1, 3, 2)
_FEW_ROWS: Final = (1, 1)
_SIZES: Final = (8, 64, 224)
"""Tried in turn for inner dimensions of any size, all of them alike; the first that is not refused counts."""
_STRING_BYTES: Final = 256
_SEED: Final = 45
_MOST_SAMPLES: Final = 4
_MOST_SHOWN: Final = 300

Job = dict[str, Output]
"""The inputs of one request, or the outputs, by name."""
Run = Callable[[str, bytes], bytes]
"""Runs a signature on one frame of inputs, alone; the frame of its outputs. Raises our errors."""


class Findings(NamedTuple):
    """The fields of :class:`signalbox.wire.workerdocs.Joining`."""

    joined: tuple[str, ...] = ()
    differs: str = ""
    untried: str = ""


class _DifferenceError(Exception):
    """Joined, the answer is another one."""


class _UntriedError(Exception):
    """These inputs show nothing."""


def tried(
    signatures: Mapping[str, Signature],
    samples: Sequence[tuple[str, bytes]],
    run: Run,
    *,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> Findings:
    """Try every signature whose requests could be joined.

    samples: requests that are known to run, as signature and frame. seconds: no run begins later. Raises
    :class:`RunnerCrashed`.
    """
    end = clock() + seconds

    def run_in_time(signature: str, frame: bytes) -> bytes:
        if clock() >= end:
            msg = f"the trial took longer than {seconds:g} s"
            raise TimeoutError(msg)
        return run(signature, frame)

    joined: list[str] = []
    untried: list[str] = []
    for name, signature in signatures.items():
        if not signature.has_rows or not _may_travel(signature):
            continue
        try:
            _try(name, signature, [frame for of, frame in samples if of == name], run_in_time)
        except _DifferenceError as error:
            return Findings(differs=f'Signature "{name[:60]}": {error}.'[:_MOST_SHOWN])
        except (_UntriedError, TimeoutError) as error:
            untried.append(f'Signature "{name[:60]}": {error}.'[:_MOST_SHOWN])
        else:
            joined.append(name)
    if not joined and not untried:
        untried.append("No signature has a free dimension 0 in all inputs and outputs: there is nothing to join.")
    return Findings(tuple(joined), untried=" ".join(untried)[: 2 * _MOST_SHOWN])


def _may_travel(signature: Signature) -> bool:
    return all(spec.dtype in tensors.DTYPES for spec in (*signature.inputs.values(), *signature.outputs.values()))


def _try(name: str, signature: Signature, samples: Sequence[bytes], run: Run) -> None:
    """Return where joined requests of one signature get the same answers as alone."""
    reasons: list[str] = []

    def shows(jobs: Sequence[Job]) -> bool:
        try:
            _compare(name, jobs, run)
        except _UntriedError as error:
            reasons.append(str(error))
            return False
        return True

    has_shown = any(map(shows, _made_up(signature)))
    of_samples = [shows(jobs) for jobs in _sampled(signature, samples)]  # all of them, not up to the first
    if not has_shown and not any(of_samples):
        why = reasons[0] if reasons else "a batch holds no two of its rows"
        msg = f"nothing is shown by made-up inputs ({why}); add two or more unlike warm-up requests, to be tried too"
        raise _UntriedError(msg)


# ---------------------------------------------------------------------------------- one comparison


def _compare(name: str, jobs: Sequence[Job], run: Run) -> None:
    """Raises :class:`_DifferenceError`, or :class:`_UntriedError` where nothing can be said."""
    alone, again = ([_answer(name, job, run) for job in jobs] for _ in range(2))
    if difference := _difference(alone, again):
        raise _DifferenceError(f"it is not deterministic: asked again alone, {difference}")
    try:
        whole = _answer(name, _joined(jobs), run)
    except _UntriedError as error:
        if isinstance(error.__cause__, OutOfMemory):
            raise
        raise _DifferenceError(f"requests that run alone do not run joined: {error}") from error
    rows = [_rows(job) for job in jobs]
    for output, one in whole.items():
        if one.array.shape[:1] != (sum(rows),):
            raise _DifferenceError(f'joined, output "{output[:60]}" has no row for each row of the inputs')
    if difference := _difference(alone, _split(whole, rows)):
        raise _DifferenceError(f"joined with other requests, {difference}")
    if all(_is_uniform(one.array) for one in whole.values()):
        raise _UntriedError("all rows get the same answer")


def _answer(name: str, job: Job, run: Run) -> Job:
    frame = tensors.encode([one.tensor(at) for at, one in job.items()])
    try:
        answer = run(name, frame)
    except RunnerCrashed:
        raise
    except OutOfMemory as error:
        raise _UntriedError("the memory is used up") from error
    except SignalboxError as error:
        raise _UntriedError(error.public_message.rstrip(".")[:120]) from error
    return _arrays(frame_of=answer)


def _arrays(frame_of: bytes) -> Job:
    return {one.name: Output(one.dtype, array_of(one)) for one in tensors.decode(frame_of)}


def _joined(jobs: Sequence[Job]) -> Job:
    return {name: Output(one.dtype, np.concatenate([job[name].array for job in jobs])) for name, one in jobs[0].items()}


def _split(whole: Job, rows: Sequence[int]) -> list[Job]:
    ends = [sum(rows[: at + 1]) for at in range(len(rows))]
    return [
        {name: one.rows(end - count, end) for name, one in whole.items()} for count, end in zip(rows, ends, strict=True)
    ]


def _rows(job: Job) -> int:
    rows: int = next(iter(job.values())).array.shape[0]
    return rows


def _is_uniform(array: Array) -> bool:
    """Whether all rows are alike."""
    return not unlike(array, np.broadcast_to(array[:1], array.shape), np.zeros(array.shape)).any()


# ---------------------------------------------------------------------------------- answers


def _difference(ones: Sequence[Job], others: Sequence[Job]) -> str:
    """Which output differs, and how, in words; empty where none does."""
    for name in ones[0]:
        one, other = ([job[name].array for job in jobs if name in job] for jobs in (ones, others))
        if len(other) != len(one):
            return f'output "{name[:60]}" is not there'
        for mine, theirs in zip(one, other, strict=True):
            if mine.shape != theirs.shape:
                return f'output "{name[:60]}" has shape {list(theirs.shape)} and not {list(mine.shape)}'
        if len({array.shape[1:] for array in one}) == 1 and one[0].shape:
            one, other = [np.concatenate(one)], [np.concatenate(other)]
        if words := next(filter(None, map(_of_values, one, other)), ""):
            return f'output "{name[:60]}" {words}'
    return ""


def _of_values(one: Array, other: Array) -> str:
    if not is_inexact(one):
        count = int((one != other).sum())
        return f"differs in {count} of {one.size} values" if count else ""
    wrong = unlike(one, other, floor(one))
    if not wrong.any():
        return ""
    with np.errstate(all="ignore"):
        worst = np.abs(wide(one) - wide(other))[wrong] / np.maximum(np.abs(wide(one)), np.abs(wide(other)))[wrong]
    finite = worst[np.isfinite(worst)]
    return f"differs by up to {100 * finite.max():.3g} % of its value" if finite.size else "is a number only one time"


# ---------------------------------------------------------------------------------- inputs


def _made_up(signature: Signature) -> Iterator[list[Job]]:
    """Requests to try in turn: the first that is not refused will do."""
    inner = [dim for spec in signature.inputs.values() for dim in (spec.shape or ())[1:]]
    for size, is_tame in product(_SIZES if -1 in inner else _SIZES[:1], (False, True)):
        shapes = {
            name: tuple(size if dim == -1 else dim for dim in (spec.shape or ())[1:])
            for name, spec in signature.inputs.items()
        }
        row_bytes = sum(
            math.prod(shapes[name]) * tensors.ITEM_SIZE.get(spec.dtype, _STRING_BYTES)
            for name, spec in signature.inputs.items()
        )
        rows = next((rows for rows in (_ROWS, _FEW_ROWS) if row_bytes * sum(rows) <= MOST_BYTES), None)
        if rows is not None:
            dice = np.random.default_rng(_SEED)
            whole = {
                name: Output(spec.dtype, random_values(dice, spec.dtype, (sum(rows), *shapes[name]), is_tame=is_tame))
                for name, spec in signature.inputs.items()
            }
            yield _split(whole, rows)


def _sampled(signature: Signature, frames: Sequence[bytes]) -> Iterator[list[Job]]:
    """Unlike samples that could be joined; of one alone, its first row and the others."""
    groups: dict[tuple[Any, ...], dict[bytes, Job]] = {}
    for frame in frames:
        found = _arrays(frame_of=frame)
        if found.keys() != signature.inputs.keys():
            continue
        job = {name: found[name] for name in signature.inputs}
        ranks_fit = all(one.array.ndim == len(signature.inputs[name].shape or ()) for name, one in job.items())
        if ranks_fit and len({one.array.shape[0] for one in job.values()}) == 1 and _rows(job):
            shapes = tuple((one.dtype, one.array.shape[1:]) for one in job.values())
            groups.setdefault(shapes, {})[frame] = job
    for group in groups.values():
        jobs = list(group.values())[:_MOST_SAMPLES]
        if len(jobs) == 1 and _rows(jobs[0]) > 1:
            jobs = _split(jobs[0], (1, _rows(jobs[0]) - 1))
        if len(jobs) > 1:
            yield jobs
