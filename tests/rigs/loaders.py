"""Compares what a runner's engine answers with what TensorFlow's own loader for Python does."""

import json
import sys
from typing import Any, Final

RANDOM: Final = {"images", "images_and_boxes"}
"""Families whose answers nobody can foretell: only shapes and dtypes are compared."""
_MOST_OFF: Final = 1e-5


def differences(paths: list[str]) -> dict[str, str]:
    """By ``<family>/<signature>`` how the answers to the same input differ; empty where they do not."""
    import tensorflow as tf

    from workers.runner.engine import TensorFlowEngine

    engine = TensorFlowEngine("cpu", intra_threads=1, inter_threads=1)
    found = {}
    for path in paths:
        family = path.split("/")[-2]
        report = engine.load(family, 1, path, is_warm=False, digest="")
        theirs = tf.saved_model.load(path)
        for name, signature in report.signatures.items():
            if not name.startswith("__"):
                given = {key: _value(tf, family, spec) for key, spec in signature.inputs.items()}
                ours = _ours(engine, family, name, given)
                want = theirs.signatures[name](**{key: tf.constant(value) for key, value in given.items()})
                found[f"{family}/{name}"] = _difference(
                    family, ours, {key: value.numpy() for key, value in want.items()}
                )
        engine.unload(family, 1)
    return found


def _value(tf: Any, family: str, spec: Any) -> Any:
    import numpy as np

    shape = [2 if size < 0 else size for size in spec.shape]
    if spec.dtype != "string":
        values = np.random.default_rng(7).uniform(0, 4, shape)
        return values.astype(spec.dtype)
    if family == "images_and_boxes":
        text = tf.io.encode_png(tf.zeros([4, 4, 3], tf.uint8)).numpy()
    elif family in {"examples", "estimator"}:
        features = {
            "x": tf.train.Feature(float_list={"value": [2.0]}),
            "word": tf.train.Feature(bytes_list={"value": [b"one"]}),
            "words": tf.train.Feature(bytes_list={"value": [b"a", b"b"]}),
        }
        text = tf.train.Example(features={"feature": features}).SerializeToString()
    else:
        text = b"one two"
    return np.full(shape, text, dtype=object)


def _ours(engine: Any, family: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    from signalbox.wire import tensors
    from workers.runner.arrays import STRING, Output, array_of

    job = [
        Output.of(key, STRING if value.dtype == object else value.dtype.name, value).tensor(key)
        for key, value in given.items()
    ]
    frames, _ = engine.run(family, 1, name, [tensors.encode(job)], ())
    return {tensor.name: array_of(tensor) for tensor in tensors.decode(frames[0])}


def _difference(family: str, ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    import numpy as np

    if ours.keys() != theirs.keys():
        return f"outputs {sorted(ours)} and {sorted(theirs)}"
    for name, want in theirs.items():
        got = ours[name]
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            return f"{name}: {got.dtype}{got.shape} and {want.dtype}{want.shape}"
        is_equal = np.allclose(got, want, _MOST_OFF, _MOST_OFF) if want.dtype.kind == "f" else np.array_equal(got, want)
        if family not in RANDOM and not is_equal:
            return f"{name}: {got} and {want}"
    return ""


if __name__ == "__main__":
    print(json.dumps(differences(sys.argv[1:])))
