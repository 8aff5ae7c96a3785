"""SavedModels whose rows depend on one another, as people bring them, and one that dies of a large request.

Built once and kept, all of them by one process. ``distances`` takes ``x`` (float32 ``[-1, 2]``), ``padded`` and
``sparse`` take ``text`` (string ``[-1]``), the others ``x`` (float32 ``[-1]``); each answers ``y``.
"""

import sys
from pathlib import Path
from typing import Any, Final

from tests.rigs import models

KINDS: Final = ("mean", "distances", "scores", "padded", "sparse")
"""Those whose rows depend on one another."""
FRAGILE: Final = "fragile"
"""``y = x``; more than four rows abort the process."""


def version(kind: str) -> Path:
    """The version's folder."""
    cache = models._cache(Path(__file__))
    made = cache / "dependent"
    models._once(cache / "dependent.lock", made, ["-m", "tests.rigs.dependentrows", str(made)])
    return made / kind / "1"


def _build(path: Path) -> None:
    import tensorflow as tf

    def mean(x: Any) -> Any:
        return x - tf.reduce_mean(x)

    def distances(x: Any) -> Any:
        return tf.norm(x[:, None] - x[None, :], axis=2)

    def scores(x: Any) -> Any:
        return tf.nn.softmax(x, axis=0)

    def padded(text: Any) -> Any:
        lengths = tf.cast(tf.strings.length(tf.strings.split(text).to_tensor("")), tf.float32)
        return tf.reduce_mean(lengths, axis=1)  # of the padding, too

    def sparse(text: Any) -> Any:
        words = tf.strings.split(text).to_sparse()
        hashed = tf.strings.to_hash_bucket_fast(words.values, 100)
        return tf.sparse.to_dense(tf.SparseTensor(words.indices, hashed, words.dense_shape))

    def fragile(x: Any) -> Any:
        def abort() -> Any:
            with tf.control_dependencies([tf.raw_ops.Abort(error_msg="too many rows")]):
                return tf.constant(0)

        alive = tf.cond(tf.shape(x)[0] > 4, abort, lambda: tf.constant(0))
        with tf.control_dependencies([alive]):
            return tf.identity(x)

    line = tf.TensorSpec([None], tf.float32, name="x")
    text = tf.TensorSpec([None], tf.string, name="text")
    specs = {distances: tf.TensorSpec([None, 2], tf.float32, name="x"), padded: text, sparse: text}
    draft = path.with_suffix(".draft")
    for function in (mean, distances, scores, padded, sparse, fragile):

        def serve(given: Any, function: Any = function) -> dict[str, Any]:
            return {"y": function(given)}

        traced = tf.function(serve, input_signature=[specs.get(function, line)]).get_concrete_function()
        tf.saved_model.save(tf.Module(), str(draft / function.__name__ / "1"), signatures={"serving_default": traced})
    draft.rename(path)


if __name__ == "__main__":
    _build(Path(sys.argv[1]))
