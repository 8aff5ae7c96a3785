"""All use of TensorFlow: loads SavedModels, runs their signatures on frames. Only a runner imports this.

A signature takes inputs of its dtypes and of any shape, as a fed Placeholder does in TensorFlow Serving: what no
operation of the graph refuses is right, and what one refuses is the caller's input that was wrong.
"""

import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import numpy as np
import tensorflow as tf

from signalbox.program import errors
from signalbox.wire import signatures, tensors
from signalbox.wire.modeldocs import Signature, TensorSpec
from signalbox.wire.tensors import Tensor
from signalbox.wire.warmups import WarmUp
from workers.runner import arrays, operations, savedmodel, sessions, warmup
from workers.runner.arrays import Array, Output
from workers.runner.frames import LoadReport
from workers.runner.sessions import GraphSession, Run
from workers.runner.tferrors import brief, translated

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_trim: Final = ctypes.CDLL(None).malloc_trim
_MOST_HINTS: Final = 3
_MOST_RUNS: Final = 8
_MOST_SAMPLES: Final = 16
"""Warm-up requests of a version's files that are kept, to try joined requests with."""
T = TypeVar("T")


class Function:
    """One signature, for inputs of any shape: from the tensors that it names to those that are wanted."""

    def __init__(self, session: GraphSession, signature: Signature) -> None:
        self._signature = signature
        self.inputs = signature.inputs
        self._outputs = signature.outputs
        self._session = session
        self._runs: dict[tuple[str, ...], tuple[Run, list[tuple[str, str]]]] = {}
        """By the outputs that are wanted; with each output its dtype."""

    def __call__(self, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Output]:
        """The outputs that are named, all where none is.

        Raises :class:`InvalidInput` where other inputs or outputs are meant, and what TensorFlow raises.
        """
        if inputs.keys() != self.inputs.keys():
            given, wanted = (", ".join(map(repr, sorted(names)))[:200] for names in (inputs, self.inputs))
            msg = f"The inputs are {given or 'none'}; the signature's are {wanted or 'none'}."
            raise errors.InvalidInput(msg)
        run, named = self._runs.get(outputs) or self._made(outputs)
        results = run(*[inputs[name] for name in self.inputs])
        return {name: Output.of(name, dtype, value) for (name, dtype), value in zip(named, results, strict=True)}

    def _made(self, outputs: tuple[str, ...]) -> tuple[Run, list[tuple[str, str]]]:
        """A run for these outputs, which TensorFlow prepares once: the latest few are kept."""
        if unknown := [name for name in outputs if name not in self._outputs]:
            msg = f"The signature has no output {unknown[0]!r}."
            raise errors.InvalidInput(msg)
        if reason := signatures.refusal(self._signature, outputs):
            raise errors.ModelError(reason)
        wanted = {name: self._outputs[name].tensor for name in outputs or self._outputs}
        feeds = [spec.tensor for spec in self.inputs.values()]
        run, dtypes = _of_the_model(
            lambda: (self._session.callable_of(feeds, [*wanted.values()]), [*map(self._session.dtype, wanted.values())])
        )
        if len(self._runs) == _MOST_RUNS:
            del self._runs[next(iter(self._runs))]
        made = self._runs[outputs] = run, [*zip(wanted, dtypes, strict=True)]
        return made


class LoadedVersion(msgspec.Struct, frozen=True):
    """A loaded version. functions: by signature name."""

    session: GraphSession
    functions: dict[str, Function]


class TensorFlowEngine:
    """Everything this process has loaded.

    intra_threads, inter_threads: of TensorFlow; 0 leaves the choice to it. One of each is fastest
    and by far cheapest for small batches (measured, see docs/lease.md).
    """

    def __init__(self, kind: str, *, intra_threads: int, inter_threads: int) -> None:
        self._kind = kind
        self._is_open = False
        self._loaded: dict[tuple[str, int], LoadedVersion] = {}
        self._at_rest = threading.Lock()
        """Held by runs, and by a load that measures the memory: it may have a thread to itself, beside runs."""
        tf.config.threading.set_intra_op_parallelism_threads(intra_threads)
        tf.config.threading.set_inter_op_parallelism_threads(inter_threads)
        self._config = sessions.settings(kind, intra_threads, inter_threads)
        if kind == "cpu":  # a virtual device has no context to keep off: start the executor now
            tf.compat.v1.Session(graph=tf.Graph(), config=self._config).close()
        _settle()

    def open(self) -> None:
        """Let the device be touched from now on; the guard has let us in.

        The sessions' memory is that of TensorFlow's one allocator per device, whose figures the eager context shows
        (:meth:`_memory_bytes`). Whichever of the two comes first makes it: both let it grow.
        """
        if self._is_open or self._kind == "cpu":
            return
        gpus = tf.config.list_physical_devices("GPU")
        if not gpus:
            raise errors.ModelError("TensorFlow sees no GPU; the driver or CUDA libraries do not fit.")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        self._is_open = True

    def load(
        self, model: str, version: int, path: str, *, is_warm: bool, digest: str, warm_ups: Sequence[WarmUp] = ()
    ) -> LoadReport:
        """Load a SavedModel directory and run its warm-up requests, then ``warm_ups``. Raises our errors.

        digest: of the files when they were registered; other files are refused unread. Empty = any.
        """
        self.open()
        with self._at_rest:
            _trim(0)  # what runs have left would hide what the version takes
            before = self._memory_bytes()
        directory = Path(path)
        graph, signatures, digest, verify_s = _verified(directory, digest)
        session = _of_the_model(lambda: GraphSession(graph, directory, self._config))
        functions = {
            name: Function(session, signature) for name, signature in signatures.items() if name not in operations.OWN
        }
        self._loaded[model, version] = LoadedVersion(session, functions)
        began = time.perf_counter()
        try:
            requests = warmup.read(directory) if is_warm else []
            made = warmup.made(warm_ups, signatures) if is_warm else ()
            warmed = self._warm_up(model, version, chain(requests, made))
        except errors.SignalboxError:
            self.unload(model, version)
            raise
        warm_s = time.perf_counter() - began
        _settle()
        with self._at_rest:
            size = max(self._memory_bytes() - before, _stored_bytes(directory))
        samples = [(request.signature, request.frame) for request in requests[:_MOST_SAMPLES]]
        return LoadReport(size, warmed, signatures, samples, digest, verify_s, warm_s)

    def unload(self, model: str, version: int) -> None:
        """Forget a version. What it took goes back to TensorFlow's allocator, not to the device.

        What a load has frozen is freed as nothing refers to it any more: a search for garbage among all that TensorFlow
        is stops every run for as long as a small version takes to load.
        """
        loaded = self._loaded.pop((model, version), None)
        if loaded is not None:
            loaded.session.close()
            del loaded
            _settle()

    def run(
        self, model: str, version: int, signature: str, jobs: Sequence[bytes], outputs: tuple[str, ...]
    ) -> tuple[list[bytes], dict[int, tuple[str, str]]]:
        """One call of ``signature`` on all jobs; (frames, errors by index) as :class:`frames.Ran`.

        Where the joint run fails, or its outputs have no rows to split, halves of the jobs are run, and
        halves of those, so that one bad input does not fail its neighbours.
        """
        with self._at_rest:
            return self._run(model, version, signature, jobs, outputs)

    @contextmanager
    def without_tensor_float_32(self) -> Iterator[None]:
        """Have GPUs compute with whole floats inside the context.

        TensorFlow multiplies with 10 bits by default, and not where there is one row: that differs by more than the
        tolerance of :mod:`workers.runner.joining`, and says nothing of the model.
        """
        was_enabled = tf.config.experimental.tensor_float_32_execution_enabled()
        tf.config.experimental.enable_tensor_float_32_execution(False)
        try:
            yield
        finally:
            tf.config.experimental.enable_tensor_float_32_execution(was_enabled)

    def _run(
        self, model: str, version: int, signature: str, jobs: Sequence[bytes], outputs: tuple[str, ...]
    ) -> tuple[list[bytes], dict[int, tuple[str, str]]]:
        loaded = self._loaded.get((model, version))
        if loaded is None:
            msg = f"{model} version {version} is not loaded."
            raise errors.NotFound(msg)
        function = loaded.functions.get(signature)
        if function is None:
            msg = f"{model} version {version} has no signature {signature!r}."
            raise errors.InvalidInput(msg)
        inputs = [_decoded(frame) for frame in jobs]

        def together(some: list[list[Tensor]]) -> list[bytes]:
            if len(some) == 1:
                return [_alone(function, some[0], outputs)]
            rows = [_rows(job) for job in some]
            return _split(_call(function, _joined(some), outputs), rows)

        try:
            return together(inputs), {}
        except (errors.ModelError, errors.InvalidInput) as error:
            if len(jobs) == 1 or isinstance(error, errors.OutOfMemory | errors.RunnerCrashed):
                raise
            first = error
        return _bisected(together, inputs, first)

    def _warm_up(self, model: str, version: int, requests: Iterable[warmup.Warmup]) -> int:
        """How many runs it took."""
        count = 0
        for request in requests:
            self._run(model, version, request.signature, [request.frame], request.outputs)
            count += 1
        return count

    def _memory_bytes(self) -> int:
        if self._kind != "cpu":
            return int(tf.config.experimental.get_memory_info("GPU:0")["current"])
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def _verified(directory: Path, digest: str) -> tuple[memoryview, dict[str, Signature], str, float]:
    """The graph to serve, its signatures, the files' digest, and the seconds that it took.

    Raises :class:`ModelError` for files that are not the registered ones.
    """
    try:
        next(directory.iterdir(), None)  # what may not be read looks empty to those that walk it
        began = time.perf_counter()
        found = savedmodel.manifest(directory)[1]
        seconds = time.perf_counter() - began
        if digest and found != digest:
            raise errors.ModelError("The files are not those that were registered: their digest differs.")
        return *savedmodel.served(directory), found, seconds
    except PermissionError as error:
        raise errors.ModelError(
            f"{directory} may not be read by the process that runs models;"
            " SIGNALBOX_WORKER_MODEL_FOLDERS names the folders that may."
        ) from error
    except OSError as error:
        raise errors.ModelError(f"The files cannot be read: {error.strerror}.") from error


class _NoRows(errors.ModelError):
    """The outputs have no row for each row of the inputs."""


def _smaller(part: range, error: errors.SignalboxError) -> list[range]:
    """What to run where ``part`` failed, the first last: halves, or each job where no batch can work."""
    step = 1 if isinstance(error, _NoRows) else (len(part) + 1) // 2
    return [part[at : at + step] for at in range(0, len(part), step)][::-1]


def _bisected(
    run: Callable[[list[list[Tensor]]], list[bytes]], jobs: list[list[Tensor]], first: errors.SignalboxError
) -> tuple[list[bytes], dict[int, tuple[str, str]]]:
    """Each job's frame or error, by halves: one bad job of 64 costs a dozen runs and not 64.

    ``run`` takes some of the jobs together, and has raised ``first`` for all of them. Raises what it
    raised for the last job where no job succeeds alone.
    """
    frames = [b""] * len(jobs)
    failed: dict[int, tuple[str, str]] = {}
    last: errors.SignalboxError | None = None
    parts = _smaller(range(len(jobs)), first)
    while parts:
        part = parts.pop()
        try:
            frames[part.start : part.stop] = run([jobs[at] for at in part])
        except (errors.ModelError, errors.InvalidInput) as error:
            if isinstance(error, errors.OutOfMemory | errors.RunnerCrashed):
                raise
            if len(part) > 1:
                parts += _smaller(part, error)
                continue
            failed[part.start] = (error.code, error.public_message)
            last = error
    if last is not None and len(failed) == len(jobs):
        raise last
    return frames, failed


def _alone(function: Function, job: list[Tensor], outputs: tuple[str, ...]) -> bytes:
    """The frame of one job. What is wrong with its inputs is said in TensorFlow's words, and where to look in ours."""
    try:
        results = _call(function, {tensor.name: arrays.array_of(tensor) for tensor in job}, outputs)
    except errors.InvalidInput as error:
        if hint := _hint(job, function.inputs):
            msg = f"{error.public_message.rstrip('.')}. {hint}"
            raise errors.InvalidInput(msg) from error
        raise
    return _frame(results)


def _hint(job: Sequence[Tensor], specs: Mapping[str, TensorSpec]) -> str:
    """Which inputs have other shapes than the signature says."""
    found = [
        f'Input "{tensor.name[:60]}" has shape {list(tensor.shape)}; the signature says {list(spec.shape)}.'
        for tensor in job
        if (spec := specs.get(tensor.name)) is not None
        and spec.shape is not None
        and not _fits(tensor.shape, spec.shape)
    ]
    return " ".join(found[:_MOST_HINTS])


def _fits(shape: Sequence[int], stated: Sequence[int]) -> bool:
    return len(shape) == len(stated) and all(want in {-1, size} for size, want in zip(shape, stated, strict=True))


def _call(function: Function, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Output]:
    """The outputs asked for, all where none is named, as arrays: copied from the device, where errors may come up."""
    return translated(lambda: function(inputs, outputs))


def _of_the_model(act: Callable[[], T]) -> T:
    """``act()``, which depends on no input: what TensorFlow calls an invalid argument there is the model's fault."""
    try:
        return translated(act)
    except errors.InvalidInput as error:
        raise errors.ModelError(error.public_message) from error


def _decoded(frame: bytes) -> list[Tensor]:
    try:
        return tensors.decode(frame)
    except msgspec.MsgspecError as error:
        raise errors.InvalidInput(f"The body of the job is no frame of tensors: {error}.") from error


def _rows(job: list[Tensor]) -> int:
    sizes = {tensor.shape[0] if tensor.shape else -1 for tensor in job}
    if len(sizes) != 1 or -1 in sizes:
        raise errors.InvalidInput("The inputs of a batched job need one common size of dimension 0.")
    return sizes.pop()


def _joined(jobs: list[list[Tensor]]) -> dict[str, Array]:
    first = jobs[0]
    joined: dict[str, Array] = {}
    for index, head in enumerate(first):
        same = [job[index] for job in jobs if len(job) == len(first)]
        if len(same) != len(jobs) or any(
            (t.name, t.dtype, t.shape[1:]) != (head.name, head.dtype, head.shape[1:]) for t in same
        ):
            return _joined_by_name(jobs)
        joined[head.name] = arrays.joined(same)
    return joined


def _joined_by_name(jobs: list[list[Tensor]]) -> dict[str, Array]:
    """The slow way, for jobs that name their inputs in different orders."""
    named = [{tensor.name: arrays.array_of(tensor) for tensor in job} for job in jobs]
    if any(one.keys() != named[0].keys() for one in named):
        raise errors.InvalidInput("Jobs of one batch name different inputs.")
    try:
        return {name: np.concatenate([one[name] for one in named]) for name in named[0]}
    except ValueError as error:
        raise errors.InvalidInput(brief(error)) from error


def _split(results: Mapping[str, Output], rows: list[int]) -> list[bytes]:
    total = sum(rows)
    if any(output.array.shape[:1] != (total,) for output in results.values()):
        raise _NoRows
    frames, start = [], 0
    for count in rows:
        end = start + count
        frames.append(_frame({name: output.rows(start, end) for name, output in results.items()}))
        start = end
    return frames


def _frame(results: Mapping[str, Output]) -> bytes:
    return tensors.encode([output.tensor(name) for name, output in results.items()])


def _stored_bytes(directory: Path) -> int:
    """The least a version takes, whatever the allocator had lying around: what it has on disk."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _settle() -> None:
    """Give back what a load or a version has left, and take all that lives now out of the collector's sight: with
    TensorFlow imported a full collection takes about 160 ms, and JSON triggers it."""
    gc.collect()
    gc.freeze()
    _trim(0)  # loads leave pages that glibc keeps: a third of what a convolutional network takes
