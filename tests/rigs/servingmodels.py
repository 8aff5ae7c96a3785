"""SavedModels for TensorFlow Serving's API: many inputs, bytes, classification and regression. Built once and kept."""

import sys
from pathlib import Path
from typing import Any

from tests.rigs import models


def folder() -> Path:
    """A folder with ``pair/1`` and ``scorer/1``.

    pair: ``a`` int32 ``[-1, 2]`` and ``s`` string ``[-1]`` to ``sum`` int32 ``[-1]``, ``s`` and ``raw_bytes``.
    scorer: a graph of TensorFlow 1 that parses examples of ``x`` (float32 ``[1]``), ``k`` (int64, 0) and ``name``
    (string, empty). ``y = x / 2 + 2 + k``. By its signatures' names:

    - serving_default: classes ``low`` and ``high``, with the scores y and x
    - labels, scores: the one without the other; shrunk: the scores of the first example
    - names: one class, the feature ``name``
    - regress: y ``[-1, 1]``; flat: y ``[-1]``; wide: ``[-1, 2]``; double: float64; first: y of the first example
    - features: the method of a regression whose input is x itself, not examples, and whose k is 0
    - predict: x to y, with a k of 0
    """
    made = models._cache(Path(__file__)) / "serving"
    models._once(made.parent / "serving.lock", made, ["-m", "tests.rigs.servingmodels", str(made)])
    return made


def _save_pair(tf: Any, path: str) -> None:
    def run(a: Any, s: Any) -> dict[str, Any]:
        return {"sum": tf.reduce_sum(a, axis=1), "s": tf.strings.upper(s), "raw_bytes": s}

    specs = [tf.TensorSpec([None, 2], tf.int32, name="a"), tf.TensorSpec([None], tf.string, name="s")]
    concrete = tf.function(run, input_signature=specs).get_concrete_function()
    tf.saved_model.save(tf.Module(), path, signatures=concrete)


def _save_scorer(tf: Any, path: str) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        examples = v1.placeholder(tf.string, [None], name="tf_example")
        features = {
            "x": tf.io.FixedLenFeature([1], tf.float32),
            "k": tf.io.FixedLenFeature([1], tf.int64, [0]),
            "name": tf.io.FixedLenFeature([1], tf.string, [""]),
        }
        parsed = v1.io.parse_example(examples, features)
        x = tf.identity(parsed["x"], name="x")
        half = tf.add(x * v1.get_variable("half", initializer=0.5), 2.0, name="half_plus_two")
        y = tf.add(half, tf.cast(parsed["k"], tf.float32), name="y")
        scores = tf.concat([y, x], axis=1, name="scores")
        classes = tf.tile(tf.constant([["low", "high"]]), [tf.shape(examples)[0], 1], name="classes")
        session.run(v1.global_variables_initializer())
        info, build = v1.saved_model.build_tensor_info, v1.saved_model.build_signature_def

        def signature(verb: str, input_: Any, **outputs: Any) -> Any:
            tensors = {name: info(value) for name, value in outputs.items()}
            given = {"x" if verb == "predict" else "inputs": info(input_)}
            return build(given, tensors, f"tensorflow/serving/{verb}")

        builder = v1.saved_model.Builder(path)
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            signature_def_map={
                "serving_default": signature("classify", examples, classes=classes, scores=scores),
                "labels": signature("classify", examples, classes=classes),
                "scores": signature("classify", examples, scores=scores),
                "shrunk": signature("classify", examples, scores=scores[:1]),
                "names": signature("classify", examples, classes=tf.identity(parsed["name"], name="names")),
                "regress": signature("regress", examples, outputs=y),
                "flat": signature("regress", examples, outputs=tf.squeeze(y, axis=1)),
                "wide": signature("regress", examples, outputs=scores),
                "double": signature("regress", examples, outputs=tf.cast(y, tf.float64)),
                "first": signature("regress", examples, outputs=y[:1]),
                "features": signature("regress", x, outputs=half),
                "predict": signature("predict", x, y=half),
            },
        )
        builder.save()


def _build(made: str) -> None:
    import tensorflow as tf

    draft = Path(f"{made}.draft")
    draft.mkdir()
    _save_pair(tf, str(draft / "pair" / "1"))
    _save_scorer(tf, str(draft / "scorer" / "1"))
    draft.rename(made)


if __name__ == "__main__":
    _build(*sys.argv[1:])
