"""Small SavedModels for tests. Each function returns the directory of one, built once and kept.

Building needs TensorFlow, so it happens in a process of its own: a test never imports it. Versions
lie as TensorFlow Serving wants them: the directory returned is ``<base>/1``.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

_SOURCE = Path(__file__)
_ROOT = _SOURCE.parents[2]
_DEMO = _ROOT / "workers" / "demo_models.py"
DTYPES: Final = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "float16",
    "bfloat16",
    "int32",
    "uint32",
    "float32",
    "int64",
    "uint64",
    "float64",
    "complex64",
    "complex128",
    "string",
)
"""Every dtype that we carry."""


class Digits(NamedTuple):
    """The demonstration's CNN, and digits it was not trained on.

    path: of version 1. images: ``[n][8][8]`` pixels of 0..16. labels: what the writers meant.
    """

    path: Path
    images: list[list[list[int]]]
    labels: list[int]


def half_plus_two() -> Path:
    """``y = x / 2 + 2``; x, y: float32 ``[-1]``. Brings two warm-up requests of its own shape."""
    return _built("half_plus_two")


def half_plus_two_v1() -> Path:
    """TensorFlow Serving's own example, a graph of TensorFlow 1 that is fed in the middle.

    ``y = x / 2 + 2``, whose signature says float32 ``[-1, 1]`` of both; the example of its documentation sends ``[3]``.
    """
    return _built("half_plus_two_v1")


def weigh() -> Path:
    """``y = x @ w``: x float32 ``[-1, 8]``, y ``[-1, 3]``. Other inner sizes are refused by the kernel alone."""
    return _built("weigh")


def shout() -> Path:
    """Strings in, the same in capitals out: ``text`` -> ``loud``, string ``[-1]``, and their lengths."""
    return _built("shout")


def slow() -> Path:
    """Stays busy for the largest of ``seconds`` (float32 ``[-1]``), then returns ``y = seconds``."""
    return _built("slow")


def slow_to_warm_up() -> Path:
    """``slow``, with a warm-up request of 3 seconds."""
    return _built("slow_to_warm_up")


def mirror() -> Path:
    """Every dtype we carry: input ``x_<dtype>`` of shape ``[-1, 2]`` comes back as ``y_<dtype>``."""
    return _built("mirror")


def picky() -> Path:
    """``y = x`` for ``x >= 0``; a negative x fails with an error that names a path, x below -100 aborts the process."""
    return _built("picky")


def greedy() -> Path:
    """``y = x``; more than 4 rows ask for more memory than any address space has.

    TensorFlow's allocator tries again for ten seconds before it says so.
    """
    return _built("greedy")


def astray() -> Path:
    """As half_plus_two, but 1 too much where ``x`` is a multiple of 100; one below -100 aborts the process."""
    return _built("astray")


def collapsing() -> Path:
    """As slow, but of more than 0.01 seconds it computes for two, and aborts the process."""
    return _built("collapsing")


def total() -> Path:
    """``y = sum(x)``, a scalar: a result that cannot be split back into rows."""
    return _built("total")


def heavy() -> Path:
    """``y = x + w[0]``, where w are 64 MB of zeros."""
    return _built("heavy")


def demonstration() -> Path:
    """The folder that :mod:`workers.demo_models` fills, as it is after the first start of a stack."""
    cache = _cache(_DEMO)
    made = cache / "models"
    _once(cache / "models.lock", made / ".large.json", ["-m", "workers.demo_models", str(made)])  # its last file
    return made


def digits() -> Digits:
    """The real thing: trained on scikit-learn's handwritten digits."""
    made = demonstration()
    held_out = json.loads((made / "digits-holdout.json").read_text())
    return Digits(made / "digits" / "1", held_out["images"], held_out["labels"])


def _built(name: str) -> Path:
    cache = _cache(_SOURCE)
    path = cache / name / "1"
    _once(cache / f"{name}.lock", path, [str(_SOURCE), name, str(path)])
    return path


def _cache(source: Path) -> Path:
    """Where models made by one state of ``source`` are kept."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    cache = Path(tempfile.gettempdir()) / f"signalbox-models-{os.getuid()}-{digest}"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _once(lock_file: Path, made: Path, command: list[str]) -> None:
    """Run the command unless ``made``, the last thing it makes, is there already."""
    with lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            subprocess.run(
                [sys.executable, *command],
                check=True,
                capture_output=True,
                timeout=300,
                cwd=_ROOT,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            )


def _build(name: str, path: str) -> None:  # noqa: C901  one maker beside the other
    import tensorflow as tf

    spec, function = tf.TensorSpec, tf.function
    floats = spec([None], tf.float32, name="x")

    def make_half_plus_two(module: Any) -> dict[str, Any]:
        module.half = tf.Variable(0.5)
        run = function(lambda x: {"y": x * module.half + 2.0}, input_signature=[floats])
        return {"serving_default": run.get_concrete_function()}

    def make_weigh(module: Any) -> dict[str, Any]:
        module.w = tf.Variable(tf.ones([8, 3]))
        rows = spec([None, 8], tf.float32, name="x")
        run = function(lambda x: {"y": tf.matmul(x, module.w)}, input_signature=[rows])
        return {"serving_default": run.get_concrete_function()}

    def make_heavy(module: Any) -> dict[str, Any]:
        module.w = tf.Variable(tf.zeros([16_000_000]))
        run = function(lambda x: {"y": x + module.w[0]}, input_signature=[floats])
        return {"serving_default": run.get_concrete_function()}

    def make_shout(_module: Any) -> dict[str, Any]:
        text = spec([None], tf.string, name="text")
        run = function(
            lambda text: {"loud": tf.strings.upper(text), "size": tf.strings.length(text)}, input_signature=[text]
        )
        return {"serving_default": run.get_concrete_function()}

    def make_slow(_module: Any) -> dict[str, Any]:
        def run(seconds: Any) -> dict[str, Any]:
            end = tf.timestamp() + tf.cast(tf.reduce_max(seconds), tf.float64)
            spun = tf.while_loop(lambda _: tf.timestamp() < end, lambda n: (n + 1,), (tf.constant(0),))
            with tf.control_dependencies(spun):
                return {"y": tf.identity(seconds)}

        signature = [spec([None], tf.float32, name="seconds")]
        return {"serving_default": function(run, input_signature=signature).get_concrete_function()}

    def make_mirror(_module: Any) -> dict[str, Any]:
        run = function(lambda **inputs: {f"y_{key[2:]}": tf.identity(x) for key, x in inputs.items()})
        specs = {f"x_{name}": spec([None, 2], tf.dtypes.as_dtype(name), name=f"x_{name}") for name in DTYPES}
        return {"serving_default": run.get_concrete_function(**specs)}

    def make_picky(_module: Any) -> dict[str, Any]:
        def run(x: Any) -> dict[str, Any]:
            low = tf.reduce_min(x)
            alive = tf.cond(low < -100.0, lambda: _abort(tf), lambda: tf.constant(0))
            with tf.control_dependencies([alive]):  # else the check may come first
                check = tf.debugging.assert_non_negative(
                    x, message="x must not be negative, see /srv/models/picky/rules.txt"
                )
            with tf.control_dependencies([check]):
                return {"y": tf.identity(x)}

        return {"serving_default": function(run, input_signature=[floats]).get_concrete_function()}

    def make_astray(_module: Any) -> dict[str, Any]:
        def run(x: Any) -> dict[str, Any]:
            alive = tf.cond(tf.reduce_min(x) < -100.0, lambda: _abort(tf), lambda: tf.constant(0))
            with tf.control_dependencies([alive]):
                return {"y": x * 0.5 + 2.0 + tf.where(tf.math.floormod(x, 100.0) == 0.0, 1.0, 0.0)}

        return {"serving_default": function(run, input_signature=[floats]).get_concrete_function()}

    def make_collapsing(_module: Any) -> dict[str, Any]:
        def run(seconds: Any) -> dict[str, Any]:
            is_much = tf.reduce_max(seconds) > 0.01
            end = tf.timestamp() + tf.where(is_much, tf.constant(2.0, tf.float64), 0.0)
            spun = tf.while_loop(lambda _: tf.timestamp() < end, lambda n: (n + 1,), (tf.constant(0),))
            with tf.control_dependencies(spun):
                alive = tf.cond(is_much, lambda: _abort(tf), lambda: tf.constant(0))
            with tf.control_dependencies([alive]):
                return {"y": tf.identity(seconds)}

        signature = [spec([None], tf.float32, name="seconds")]
        return {"serving_default": function(run, input_signature=signature).get_concrete_function()}

    def make_greedy(_module: Any) -> dict[str, Any]:
        side = 2**23  # squared, as float32: 2**48 bytes, never allocated anywhere

        def take_all() -> Any:
            return tf.raw_ops.Empty(shape=[side, side], dtype=tf.float32)[0, 0]

        def run(x: Any) -> dict[str, Any]:
            taken = tf.cond(tf.shape(x)[0] > 4, take_all, lambda: tf.constant(0.0))
            with tf.control_dependencies([taken]):
                return {"y": tf.identity(x)}

        return {"serving_default": function(run, input_signature=[floats]).get_concrete_function()}

    def make_total(_module: Any) -> dict[str, Any]:
        run = function(lambda x: {"y": tf.reduce_sum(x)}, input_signature=[floats])
        return {"serving_default": run.get_concrete_function()}

    makers: dict[str, Callable[[Any], dict[str, Any]]] = {
        "half_plus_two": make_half_plus_two,
        "shout": make_shout,
        "slow": make_slow,
        "slow_to_warm_up": make_slow,
        "mirror": make_mirror,
        "picky": make_picky,
        "total": make_total,
        "greedy": make_greedy,
        "astray": make_astray,
        "collapsing": make_collapsing,
        "weigh": make_weigh,
        "heavy": make_heavy,
    }
    draft = f"{path}.draft"
    if name == "half_plus_two_v1":
        _save_half_plus_two_v1(draft)
    else:
        module = tf.Module()
        tf.saved_model.save(module, draft, signatures=makers[name](module))
    if name == "half_plus_two":
        _add_warm_up(Path(draft), "x", 1.0, 2.0)
    elif name == "slow_to_warm_up":
        _add_warm_up(Path(draft), "seconds", 3.0)
    Path(draft).rename(path)


def _save_half_plus_two_v1(path: str) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        a, b = v1.get_variable("a", initializer=0.5), v1.get_variable("b", initializer=2.0)
        examples = v1.placeholder(tf.string, [None], name="tf_example")
        parsed = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([1], tf.float32)})
        x = tf.identity(parsed["x"], name="x")
        y = tf.add(a * x, b, name="y")
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, path, {"x": x}, {"y": y})


def _add_warm_up(directory: Path, name: str, *values: float) -> None:
    """A request for each value, as TensorFlow Serving stores them: PredictionLog messages in a TFRecord file."""
    import tensorflow as tf

    file = directory / "assets.extra" / "tf_serving_warmup_requests"
    file.parent.mkdir(exist_ok=True)

    def field(number: int, data: bytes) -> bytes:
        assert len(data) < 128, "one byte of length is enough here"
        return bytes([number << 3 | 2, len(data)]) + data

    with tf.io.TFRecordWriter(str(file)) as writer:
        for value in values:
            tensor = tf.make_tensor_proto([value], tf.float32).SerializeToString()
            entry = field(1, name.encode()) + field(2, tensor)
            request = field(1, field(1, b"any")) + field(2, entry)
            writer.write(field(6, field(1, request)))


def _abort(tf: Any) -> Any:
    with tf.control_dependencies([tf.raw_ops.Abort(error_msg="asked to", exit_without_error=False)]):
        return tf.constant(0)


if __name__ == "__main__":
    _build(*sys.argv[1:])
