"""``python -m benchmarks.cold.model FOLDER``: a SavedModel of 100 MB that answers ``y = x`` after its weights came."""

import sys
from typing import Any, Final

FLOATS: Final = 25_000_000
"""float32: 100 MB."""


def main() -> None:
    """Write it to the folder that the command names."""
    import tensorflow as tf

    module = tf.Module()
    module.w = tf.Variable(tf.random.stateless_uniform([FLOATS], seed=(1, 2)))  # what does not compress

    def serve(x: Any) -> dict[str, Any]:
        return {"y": x + 0.0 * module.w[0]}

    run = tf.function(serve, input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    tf.saved_model.save(module, sys.argv[1], {"serving_default": run.get_concrete_function()})


if __name__ == "__main__":
    main()
