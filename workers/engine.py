"""TensorFlow, and all of it: loads SavedModels, runs their signatures on frames. Only a runner imports this."""

import gc
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import ml_dtypes
import msgspec
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from signalbox import errors, tensors
from signalbox.messages import Signature
from signalbox.tensors import Tensor
from workers import savedmodel, warmup

Array = npt.NDArray[Any]
T = TypeVar("T")
_NUMPY: Final[dict[str, npt.DTypeLike]] = {
    name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in tensors.ITEM_SIZE
}
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_LENGTH_BYTES: Final = 4
_DEVICE_FAILED: Final = re.compile(r"CUDA|CUDNN|CUBLAS|GPU sync failed|\bXid\b", re.IGNORECASE)
_NOISE: Final = (
    "Graph execution error",
    "Detected at",
    "<stack traces",
    "File ",
    "[[",
    "Traceback",
)


class Loaded(msgspec.Struct, frozen=True):
    """A loaded version. ``module`` keeps its variables alive; functions are by signature name."""

    module: Any
    functions: dict[str, Callable[..., dict[str, Any]]]
    signatures: dict[str, Signature]
    size_bytes: int
    warmed: int


class TensorFlowEngine:
    """Everything this process has loaded.

    intra_threads, inter_threads: of TensorFlow; 0 leaves the choice to it. One of each is fastest
    and by far cheapest for small batches (measured, see docs/lease.md).
    """

    def __init__(self, kind: str, *, intra_threads: int, inter_threads: int) -> None:
        self._kind = kind
        self._is_open = False
        self._loaded: dict[tuple[str, int], Loaded] = {}
        tf.config.threading.set_intra_op_parallelism_threads(intra_threads)
        tf.config.threading.set_inter_op_parallelism_threads(inter_threads)
        if kind == "cpu":
            tf.constant(0)  # a virtual device has no context to keep off: start the executor now
        _settle()

    def open(self) -> None:
        """Touch the device for the first time; the guard has let us in."""
        if self._is_open or self._kind == "cpu":
            return
        gpus = tf.config.list_physical_devices("GPU")
        if not gpus:
            raise errors.ModelError(
                "TensorFlow sees no GPU; the driver or CUDA libraries do not fit."
            )
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        self._is_open = True

    def load(self, model: str, version: int, path: str, *, is_warm: bool, digest: str) -> Loaded:
        """Load a SavedModel directory and run its warm-up requests. Raises our errors.

        digest: of the files when they were registered; other files are refused unread. Empty = any.
        """
        self.open()
        before = self._memory_bytes()
        directory = Path(path)
        signatures = _verified(directory, digest)
        module = _translated(lambda: tf.saved_model.load(path))
        functions = {
            name: module.signatures[name] for name in signatures if name in module.signatures
        }
        draft = Loaded(module, functions, signatures, 0, 0)
        self._loaded[model, version] = draft
        try:
            warmed = self._warm_up(model, version, directory) if is_warm else 0
        except errors.SignalboxError:
            del self._loaded[model, version]
            raise
        size = max(self._memory_bytes() - before, _stored_bytes(directory))
        loaded = Loaded(module, functions, signatures, size, warmed)
        self._loaded[model, version] = loaded
        _settle()
        return loaded

    def unload(self, model: str, version: int) -> None:
        """Forget a version. What it took goes back to TensorFlow's allocator, not to the device."""
        if self._loaded.pop((model, version), None) is not None:
            gc.unfreeze()
            _settle()

    def run(
        self,
        model: str,
        version: int,
        signature: str,
        jobs: Sequence[bytes],
        outputs: tuple[str, ...],
    ) -> tuple[list[bytes], dict[int, tuple[str, str]]]:
        """One call of ``signature`` on all jobs; (frames, errors by index) as :class:`frames.Ran`.

        Where the joint run fails, or its outputs have no rows to split, halves of the jobs are run, and
        halves of those, so that one bad input does not fail its neighbours.
        """
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
                return [_frame(_call(function, _single(some[0])), outputs)]
            rows = [_rows(job) for job in some]
            return _split(_call(function, _joined(some)), rows, outputs)

        try:
            return together(inputs), {}
        except (errors.ModelError, errors.InvalidInput) as error:
            if len(jobs) == 1 or isinstance(error, errors.OutOfMemory | errors.RunnerCrashed):
                raise
            first = error
        return _bisected(together, inputs, first)

    def _warm_up(self, model: str, version: int, directory: Path) -> int:
        requests = warmup.read(directory)
        for request in requests:
            self.run(model, version, request.signature, [request.frame], request.outputs)
        return len(requests)

    def _memory_bytes(self) -> int:
        if self._kind != "cpu":
            return int(tf.config.experimental.get_memory_info("GPU:0")["current"])
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def _verified(directory: Path, digest: str) -> dict[str, Signature]:
    """Signatures of the files that were registered. Raises :class:`ModelError` for any others."""
    try:
        next(directory.iterdir(), None)  # what may not be read looks empty to those that walk it
        if digest and savedmodel.manifest(directory)[1] != digest:
            raise errors.ModelError(
                "The files are not those that were registered: their digest differs."
            )
        return savedmodel.read(directory)[0]
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
    run: Callable[[list[list[Tensor]]], list[bytes]],
    jobs: list[list[Tensor]],
    first: errors.SignalboxError,
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


def _call(function: Callable[..., dict[str, Any]], inputs: dict[str, Any]) -> dict[str, Array]:
    results = _translated(lambda: function(**{name: tf.constant(x) for name, x in inputs.items()}))
    return {name: result.numpy() for name, result in results.items()}


def _translated(act: Callable[[], T]) -> T:
    """``act()``, with TensorFlow's errors made ours."""
    try:
        return act()
    except tf.errors.ResourceExhaustedError as error:
        raise errors.OutOfMemory(_brief(error)) from error
    except tf.errors.OpError as error:
        if _is_of_the_device(error):
            raise errors.RunnerCrashed(_brief(error)) from error  # a CUDA context does not recover
        raise errors.ModelError(_brief(error)) from error
    except (TypeError, ValueError, KeyError) as error:
        raise errors.InvalidInput(_brief(error)) from error
    except (OSError, AttributeError, RuntimeError) as error:
        raise errors.ModelError(_brief(error)) from error


def _is_of_the_device(error: Exception) -> bool:
    """Whether the GPU or its libraries failed, not the model. InvalidArgument and the like never are."""
    kinds = (
        tf.errors.InternalError, tf.errors.AbortedError, tf.errors.DataLossError,
        tf.errors.UnknownError, tf.errors.UnavailableError, tf.errors.FailedPreconditionError,
    )  # fmt: skip
    return isinstance(error, kinds) and _DEVICE_FAILED.search(str(error)) is not None


def _brief(error: Exception) -> str:
    """First line that says something, without TensorFlow's graph trace and our paths."""
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    useful = [line for line in lines if not line.startswith(_NOISE)]
    return (useful or lines or [type(error).__name__])[0][:500]


def _decoded(frame: bytes) -> list[Tensor]:
    try:
        return tensors.decode(frame)
    except msgspec.MsgspecError as error:
        raise errors.InvalidInput(
            f"The body of the job is no frame of tensors: {error}."
        ) from error


def _array(tensor: Tensor) -> Array:
    dtype = _NUMPY.get(tensor.dtype)
    if dtype is None:
        return _strings(tensor)
    try:
        return np.frombuffer(tensor.data, dtype).reshape(tensor.shape)
    except ValueError as error:
        msg = f"{tensor.name}: {len(tensor.data)} bytes do not fill {tensor.dtype}{list(tensor.shape)}."
        raise errors.InvalidInput(msg) from error


def _strings(tensor: Tensor) -> Array:
    items, at, data = [], 0, tensor.data
    while at < len(data):
        size = int.from_bytes(data[at : at + _LENGTH_BYTES], "little")
        at += _LENGTH_BYTES
        items.append(data[at : at + size])
        at += size
    if at != len(data) or len(items) != int(np.prod(tensor.shape)):
        msg = f"{tensor.name}: {len(items)} strings do not fill {list(tensor.shape)}."
        raise errors.InvalidInput(msg)
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array.reshape(tensor.shape)


def _single(job: list[Tensor]) -> dict[str, Array]:
    return {tensor.name: _array(tensor) for tensor in job}


def _rows(job: list[Tensor]) -> int:
    sizes = {tensor.shape[0] if tensor.shape else -1 for tensor in job}
    if len(sizes) != 1 or -1 in sizes:
        raise errors.InvalidInput(
            "The inputs of a batched job need one common size of dimension 0."
        )
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
        if head.dtype == "string":
            joined[head.name] = np.concatenate([_strings(t) for t in same])
        else:
            whole = Tensor(
                head.name, head.dtype, (sum(t.shape[0] for t in same), *head.shape[1:]),
                b"".join([t.data for t in same]),
            )  # fmt: skip
            joined[head.name] = _array(whole)
    return joined


def _joined_by_name(jobs: list[list[Tensor]]) -> dict[str, Array]:
    """The slow way, for jobs that name their inputs in different orders."""
    named = [_single(job) for job in jobs]
    if any(one.keys() != named[0].keys() for one in named):
        raise errors.InvalidInput("Jobs of one batch name different inputs.")
    try:
        return {name: np.concatenate([one[name] for one in named]) for name in named[0]}
    except ValueError as error:
        raise errors.InvalidInput(_brief(error)) from error


def _split(results: dict[str, Array], rows: list[int], outputs: tuple[str, ...]) -> list[bytes]:
    total = sum(rows)
    wanted = _wanted(results, outputs)
    if any(array.ndim == 0 or array.shape[0] != total for array in wanted.values()):
        raise _NoRows
    frames, start = [], 0
    for count in rows:
        end = start + count
        frames.append(tensors.encode([_tensor(n, a[start:end]) for n, a in wanted.items()]))
        start = end
    return frames


def _frame(results: dict[str, Array], outputs: tuple[str, ...]) -> bytes:
    return tensors.encode([_tensor(n, a) for n, a in _wanted(results, outputs).items()])


def _wanted(results: dict[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
    try:
        return {name: np.asarray(results[name]) for name in (outputs or results)}
    except KeyError as error:
        msg = f"The signature has no output {error.args[0]!r}."
        raise errors.InvalidInput(msg) from error


def _tensor(name: str, array: Array) -> Tensor:
    if array.dtype == object:
        parts: list[bytes] = []
        for item in array.ravel():
            parts += (len(item).to_bytes(_LENGTH_BYTES, "little"), item)
        return Tensor(name, "string", array.shape, b"".join(parts))
    dtype = array.dtype.name
    if dtype not in _NUMPY:
        msg = f"Output {name} is of type {dtype}, which cannot travel."
        raise errors.ModelError(msg)
    return Tensor(name, dtype, array.shape, array.tobytes())


def _stored_bytes(directory: Path) -> int:
    """The least a version takes, whatever the allocator had lying around: what it has on disk."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _settle() -> None:
    """With TensorFlow imported a full collection takes about 160 ms and JSON triggers it: take all
    that lives now out of the collector's sight."""
    gc.collect()
    gc.freeze()
