"""``python -m benchmarks.cold.model FOLDER [FLOATS [OPERATIONS]]``: a SavedModel, of 100 MB, that answers a number."""

import sys
from pathlib import Path
from typing import Any, Final

from workers import demo_models

FLOATS: Final = 25_000_000
"""Weights of four bytes, as many as are read before it answers."""


def main() -> None:
    """Write it to the folder that the command names. OPERATIONS: of its graph, beside a few; then it has a warm-up
    request too, as the first run of a graph with very many takes longer than its load."""
    import tensorflow as tf

    given = [int(each) for each in sys.argv[2:]]
    floats, operations = (*given, *(FLOATS, 0)[len(given) :])
    module = tf.Module()
    module.w = tf.Variable(tf.random.stateless_uniform([floats], seed=(1, 2)))  # what does not compress

    def serve(x: Any) -> dict[str, Any]:
        for _ in range(operations):
            x = tf.tanh(x)  # which TensorFlow does not simplify
        return {"y": x + 0.0 * module.w[0]}

    spec = tf.TensorSpec([None], tf.float32, name="x")
    if operations:
        demo_models.save(module, Path(sys.argv[1]), {"serving_default": (serve, spec)}, {"x": [1.0]})
    else:
        run = tf.function(serve, input_signature=[spec])
        tf.saved_model.save(module, sys.argv[1], {"serving_default": run.get_concrete_function()})


if __name__ == "__main__":
    main()
