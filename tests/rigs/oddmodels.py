"""SavedModels that TensorFlow Serving serves though Python could not call them, or not wholly. Built once and kept."""

import sys
from pathlib import Path
from typing import Any, Final

from tests.rigs import models

FAR: Final = "/job:worker/replica:0/task:0/device:GPU:0"


def folder() -> Path:
    """A folder with ``<model>/1`` of each; x, y and n are of shape ``[-1]``.

    - names: inputs, float32 ``[-1]``, that are no names in Python. Signatures: serving_default, ``y = x / 2 + 2``;
      keywords, ``y = self + 10 class + 100 from``; area, ``y = 2 area (m²)``; twins, ``y = a-b + 10 a_b``
    - graphs: the graphs tagged ``serve, gpu``, ``train`` and ``serve`` give ``y = x + 1``, ``+ 2`` and ``+ 3``
    - gpu_only: its one graph is tagged ``serve, gpu``
    - elsewhere: serving_default, ``y = x`` on a device of another machine; near, ``y = x / 2 + 2``. A graph of
      TensorFlow 1, which is placed as a whole. away: the same of TensorFlow 2, whose functions are placed when called
    - composite: text, string ``[-1]``. Signatures: serving_default, n int32: their lengths; ragged and sparse, the
      same and ``words``, which is no dense tensor
    - sparse_input: serving_default, ``y = x / 2 + 2``; sums, of the rows of a sparse placeholder ``s``,
      float32 ``[-1, 3]``
    - defaults: serving_default, ``y = x scale + shift``, scale 2 and shift ``[0, 1]`` where they are left out;
      constant, ``y = [1, 2]`` of nothing
    """
    made = models._cache(Path(__file__)) / "odd"
    models._once(made.parent / "odd.lock", made, ["-m", "tests.rigs.oddmodels", str(made)])
    return made


def _save_graphs(tf: Any, path: str, **graphs: dict[str, Any]) -> None:
    """Graphs of TensorFlow 1, each by its tags: signatures by name, whose maker returns inputs and outputs."""
    v1 = tf.compat.v1
    info, build = v1.saved_model.build_tensor_info, v1.saved_model.build_signature_def
    builder = v1.saved_model.Builder(path)
    for number, (tags, makers) in enumerate(graphs.items()):
        # What is placed elsewhere is saved, and not run.
        pruned = v1.ConfigProto(graph_options=v1.GraphOptions(place_pruned_graph=True))
        with v1.Graph().as_default(), v1.Session(config=pruned) as session:
            v1.get_variable("v", initializer=1.0)
            made = {name: maker(v1) for name, maker in makers.items()}
            session.run(v1.global_variables_initializer())
            signatures = {
                name: build(*({key: info(value) for key, value in side.items()} for side in sides))
                for name, sides in made.items()
            }
            if number:
                builder.add_meta_graph(tags.split("_"), signatures)
            else:
                builder.add_meta_graph_and_variables(session, tags.split("_"), signatures)
    builder.save()


def _plus(tf: Any, added: float) -> Any:
    def made(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(tf.float32, [None])
        return {"x": x}, {"y": x + added}

    return made


def _summed(tf: Any, **factors: float) -> Any:
    def made(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        given = {name: v1.placeholder(tf.float32, [None]) for name in factors}
        return given, {"y": tf.add_n([given[name] * factor for name, factor in factors.items()])}

    return made


def _half_plus_two(tf: Any) -> Any:
    def made(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(tf.float32, [None])
        return {"x": x}, {"y": x / 2.0 + 2.0}

    return made


def _away(tf: Any) -> Any:
    def made(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(tf.float32, [None])
        with tf.device(FAR):
            return {"x": x}, {"y": tf.identity(x, name="far")}

    return made


def _row_sums(tf: Any) -> Any:
    def made(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        s = v1.sparse_placeholder(tf.float32, [None, 3])
        return {"s": s}, {"y": tf.sparse.reduce_sum(s, axis=1)}

    return made


def _save_away(tf: Any, path: str) -> None:
    spec = [tf.TensorSpec([None], tf.float32, name="x")]

    def far(x: Any) -> dict[str, Any]:
        with tf.device(FAR):
            return {"y": tf.sin(x, name="far")}

    def near(x: Any) -> dict[str, Any]:
        return {"y": x / 2.0 + 2.0}

    signatures = {
        name: tf.function(run, input_signature=spec) for name, run in (("serving_default", far), ("near", near))
    }
    tf.saved_model.save(tf.Module(), path, signatures=signatures)


def _save_composite(tf: Any, path: str) -> None:
    spec = [tf.TensorSpec([None], tf.string, name="text")]

    def given(**more: Any) -> Any:
        def run(text: Any) -> dict[str, Any]:
            return {"n": tf.strings.length(text), **{name: make(text) for name, make in more.items()}}

        return tf.function(run, input_signature=spec)

    signatures = {
        "serving_default": given(),
        "ragged": given(words=tf.strings.split),
        "sparse": given(words=lambda text: tf.strings.split(text).to_sparse()),
    }
    tf.saved_model.save(tf.Module(), path, signatures=signatures)


def _save_defaults(tf: Any, path: str) -> None:
    floats = tf.TensorSpec([None], tf.float32, name="x")
    specs = [floats, tf.TensorSpec([], tf.float32, name="scale"), tf.TensorSpec([2], tf.float32, name="shift")]

    two, step = tf.constant(2.0), tf.constant([0.0, 1.0])

    def scaled(x: Any, scale: Any = two, shift: Any = step) -> dict[str, Any]:
        return {"y": x * scale + shift}

    def constant() -> dict[str, Any]:
        return {"y": tf.constant([1.0, 2.0])}

    signatures = {
        "serving_default": tf.function(scaled, input_signature=specs),
        "constant": tf.function(constant, input_signature=[]),
    }
    tf.saved_model.save(tf.Module(), path, signatures=signatures)


def _build(made: str) -> None:
    import tensorflow as tf

    draft = Path(f"{made}.draft")
    draft.mkdir()
    _save_graphs(
        tf,
        str(draft / "names" / "1"),
        serve={
            "serving_default": _half_plus_two(tf),
            "keywords": _summed(tf, **{"self": 1.0, "class": 10.0, "from": 100.0}),
            "area": _summed(tf, **{"area (m²)": 2.0}),
            "twins": _summed(tf, **{"a-b": 1.0, "a_b": 10.0}),
        },
    )
    _save_graphs(
        tf,
        str(draft / "graphs" / "1"),
        serve_gpu={"serving_default": _plus(tf, 1.0)},
        train={"serving_default": _plus(tf, 2.0)},
        serve={"serving_default": _plus(tf, 3.0)},
    )
    _save_graphs(tf, str(draft / "gpu_only" / "1"), serve_gpu={"serving_default": _plus(tf, 1.0)})
    _save_graphs(tf, str(draft / "elsewhere" / "1"), serve={"serving_default": _away(tf), "near": _half_plus_two(tf)})
    _save_graphs(
        tf, str(draft / "sparse_input" / "1"), serve={"serving_default": _half_plus_two(tf), "sums": _row_sums(tf)}
    )
    _save_away(tf, str(draft / "away" / "1"))
    _save_composite(tf, str(draft / "composite" / "1"))
    _save_defaults(tf, str(draft / "defaults" / "1"))
    draft.rename(made)


if __name__ == "__main__":
    _build(*sys.argv[1:])
