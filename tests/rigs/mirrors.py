"""A SavedModel for each dtype that gives back what it is given, for dialects that know some of the dtypes only."""

import sys
from pathlib import Path

from tests.rigs import models


def folder() -> Path:
    """A folder with ``mirror_<dtype>/1`` for each dtype: ``x`` of shape ``[-1, 2]`` comes back as ``y``."""
    made = models._cache(Path(__file__)) / "mirrors"
    models._once(made.parent / "mirrors.lock", made, ["-m", "tests.rigs.mirrors", str(made)])
    return made


def _build(made: str) -> None:
    import tensorflow as tf

    draft = Path(f"{made}.draft")
    for name in models.DTYPES:
        spec = tf.TensorSpec([None, 2], tf.dtypes.as_dtype(name), name="x")
        run = tf.function(lambda x: {"y": tf.identity(x)}, input_signature=[spec])
        tf.saved_model.save(tf.Module(), str(draft / f"mirror_{name}" / "1"), signatures=run.get_concrete_function())
    draft.rename(made)


if __name__ == "__main__":
    _build(*sys.argv[1:])
