"""Demonstration models, trained and exported here: ``python -m workers.demo_models DIR``.

Nothing is downloaded: the digits are the 1 797 real handwritten ones that scikit-learn bundles
(8x8 pixels of 0..16). Needs the extra ``demo``. Every model lies where TF Serving wants it,
``DIR/<model>/<version>/saved_model.pb``, and is kept between runs.

| model | signature | inputs | outputs |
|---|---|---|---|
| digits | serving_default | image ``[-1, 8, 8]`` float32 | probabilities ``[-1, 10]``, label |
| digits | features | image ``[-1, 8, 8]`` float32 | features ``[-1, 32]`` float32 |
| half_plus_two | serving_default | x ``[-1]`` float32 | y ``[-1]`` float32 |
| slow | serving_default | seconds ``[-1]`` float32 | steps ``[-1]`` int64 |
| large | serving_default | x ``[-1, 64]`` float32 | y ``[-1]`` float32 |
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

RECIPE: Final = "1"  # rises when an export changes, so that older ones are made anew
VERSION: Final = 1
EPOCHS: Final = 14
SEED: Final = 7
HELD_OUT: Final = 360  # digits never trained on; accuracy is measured on them
LARGE_ROWS: Final = 786_432  # x 64 float32 = 192 MiB of weights
SLOWEST_S: Final = 60.0
HOLDOUT_FILE: Final = "digits-holdout.json"
WARM_UP_FILE: Final = "tf_serving_warmup_requests"


class DemoModel(NamedTuple):
    """One model on disk. path: version directory. accuracy: share of held-out digits right."""

    name: str
    path: Path
    accuracy: float | None
    is_new: bool


def half_plus_two(path: Path) -> None:
    """TF Serving's classic: ``y = x / 2 + 2`` on ``x [-1] float32``."""
    import tensorflow as tf

    module = tf.Module()
    module.half = tf.Variable(0.5)
    module.two = tf.Variable(2.0)

    spec = tf.TensorSpec([None], tf.float32, name="x")

    def serve(x: Any) -> dict[str, Any]:
        return {"y": x * module.half + module.two}

    save(module, path, {"serving_default": (serve, spec)}, {"x": [1.0, 2.0, 5.0]})


def slow(path: Path) -> None:
    """Computes as long as it is told: ``seconds [-1] float32``, the longest counts, at most 60."""
    import tensorflow as tf

    module = tf.Module()
    module.matrix = tf.Variable(tf.eye(64) * 0.5)

    spec = tf.TensorSpec([None], tf.float32, name="seconds")

    def serve(seconds: Any) -> dict[str, Any]:
        wanted_s = tf.minimum(tf.reduce_max(tf.concat([seconds, [0.0]], 0)), SLOWEST_S)
        end = tf.timestamp() + tf.cast(wanted_s, tf.float64)
        steps, _ = tf.while_loop(
            lambda _steps, _value: tf.timestamp() < end,
            lambda steps, value: (steps + 1, tf.matmul(value, module.matrix)),
            (tf.constant(0, tf.int64), tf.eye(64)),
            parallel_iterations=1,
        )
        return {"steps": tf.fill(tf.shape(seconds), steps)}

    save(module, path, {"serving_default": (serve, spec)}, {"seconds": [0.01]})


def large(path: Path) -> None:
    """192 MiB of weights behind a cheap sum, to watch loading, memory and eviction."""
    import tensorflow as tf

    module = tf.Module()
    module.table = tf.Variable(tf.random.stateless_uniform([LARGE_ROWS, 64], seed=[SEED, 0]))

    spec = tf.TensorSpec([None, 64], tf.float32, name="x")

    def serve(x: Any) -> dict[str, Any]:
        return {"y": tf.reduce_sum(x * tf.reduce_mean(module.table[:4096], axis=0), axis=1)}

    save(module, path, {"serving_default": (serve, spec)}, {"x": [[1.0] * 64]})


def digits(path: Path) -> float:
    """A small CNN on the real digits. Returns its accuracy on the held-out ones, after export."""
    import keras
    import tensorflow as tf

    train_x, train_y, test_x, test_y = _digits()
    keras.utils.set_random_seed(SEED)
    image = keras.Input((8, 8), name="image")
    flow = keras.layers.Reshape((8, 8, 1))(keras.layers.Rescaling(1 / 16)(image))
    flow = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(flow)
    flow = keras.layers.Conv2D(32, 3, activation="relu")(flow)
    flow = keras.layers.Flatten()(keras.layers.MaxPooling2D()(flow))
    features = keras.layers.Dense(32, activation="relu")(keras.layers.Dropout(0.25)(flow))
    scores = keras.layers.Dense(10, activation="softmax")(features)
    model = keras.Model(image, [scores, features])
    trained = keras.Model(image, scores)
    trained.compile("adam", "sparse_categorical_crossentropy")
    trained.fit(train_x, train_y, epochs=EPOCHS, batch_size=64, verbose=0)

    module = tf.Module()
    module.model = model
    spec = tf.TensorSpec([None, 8, 8], tf.float32, name="image")

    def serve(image: Any) -> dict[str, Any]:
        probabilities, _ = model(image, training=False)
        return {"probabilities": probabilities, "label": tf.argmax(probabilities, axis=1)}

    def embed(image: Any) -> dict[str, Any]:
        return {"features": model(image, training=False)[1]}

    example = {"image": test_x[:1].tolist()}
    save(module, path, {"serving_default": (serve, spec), "features": (embed, spec)}, example)
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    labels = served(image=tf.constant(test_x, tf.float32))["label"].numpy()
    return float((labels == test_y).mean())


BUILDERS: Final[Mapping[str, Callable[[Path], float | None]]] = {
    "digits": digits,
    "half_plus_two": half_plus_two,
    "slow": slow,
    "large": large,
}


def export(name: str, root: Path) -> DemoModel:
    """The model ``name`` under ``root``; built only when missing or made by an older recipe."""
    final = root / name / str(VERSION)
    notes = root / f".{name}.json"
    if final.is_dir() and notes.exists():
        known = json.loads(notes.read_text())
        if known.get("recipe") == RECIPE:
            return DemoModel(name, final, known.get("accuracy"), is_new=False)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".building-") as scratch:
        building = Path(scratch) / str(VERSION)
        accuracy = BUILDERS[name](building)
        shutil.rmtree(final, ignore_errors=True)
        final.parent.mkdir(exist_ok=True)
        building.rename(final)  # a version appears whole or not at all
    if name == "digits":
        _keep_holdout(root)
    notes.write_text(json.dumps({"recipe": RECIPE, "accuracy": accuracy}))
    return DemoModel(name, final, accuracy, is_new=True)


def _digits() -> tuple[Any, Any, Any, Any]:
    """Images ``[n, 8, 8] float32`` of 0..16 and labels ``[n] int64``, for training and held out."""
    import numpy as np
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(SEED).permutation(len(bunch.target))
    images, labels = bunch.images[order].astype("float32"), bunch.target[order]
    return images[HELD_OUT:], labels[HELD_OUT:], images[:HELD_OUT], labels[:HELD_OUT]


def _keep_holdout(root: Path) -> None:
    """Writes the held-out digits as JSON, for ``signalbox demo``, which has no scikit-learn."""
    _, _, images, labels = _digits()
    doc = {"images": images.astype(int).tolist(), "labels": labels.tolist()}
    (root / HOLDOUT_FILE).write_text(json.dumps(doc, separators=(",", ":")))


def save(
    module: Any, path: Path, signatures: Mapping[str, tuple[Callable[..., Any], Any]], example: Mapping[str, Any]
) -> None:
    """Trace each function with its one input's spec, export them, write the warm-up file."""
    import tensorflow as tf

    traced = {name: tf.function(function, input_signature=[spec]) for name, (function, spec) in signatures.items()}
    tf.saved_model.save(module, str(path), signatures=traced)
    extra = path / "assets.extra"
    extra.mkdir()
    with tf.io.TFRecordWriter(str(extra / WARM_UP_FILE)) as out:
        out.write(_prediction_log("serving_default", example))


def _prediction_log(signature: str, example: Mapping[str, Any]) -> bytes:
    """A serialized ``tensorflow.serving.PredictionLog`` with one predict request.

    Written by hand, since TF Serving's Python protos are not a dependency: ``PredictionLog
    {predict_log = 6}``, ``PredictLog {request = 1}``, ``PredictRequest {model_spec = 1,
    inputs = 2}``, ``ModelSpec {signature_name = 3}`` (TF Serving's public .proto files).
    """
    import tensorflow as tf

    request = _field(1, _field(3, signature.encode()))
    for name, value in example.items():
        tensor = tf.make_tensor_proto(value, dtype=tf.float32).SerializeToString()
        request += _field(2, _field(1, name.encode()) + _field(2, tensor))
    return _field(6, _field(1, request))


def _field(number: int, data: bytes) -> bytes:
    """One length-delimited protobuf field."""
    size, length = len(data), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes([number << 3 | 2]) + bytes(length) + data


def main() -> None:
    """Exports the models asked for and says one line about each."""
    parser = argparse.ArgumentParser(prog="python -m workers.demo_models", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("directory", type=Path, help="model repository to write into")
    parser.add_argument("--only", default=",".join(BUILDERS), help="comma list of models")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for programs")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # GPUs belong to lease holders
    for name in options.only.split(","):
        if name not in BUILDERS:
            sys.exit(f"unknown model {name!r}; known: {', '.join(BUILDERS)}")
        made = export(name, options.directory.resolve())
        if options.json:
            print(json.dumps({**made._asdict(), "path": str(made.path)}), flush=True)
            continue
        right = f", {made.accuracy:.1%} of {HELD_OUT} held-out right" if made.accuracy else ""
        verb = "exported" if made.is_new else "kept"
        print(f"{made.name}: {verb} {made.path}{right}", flush=True)


if __name__ == "__main__":
    main()
