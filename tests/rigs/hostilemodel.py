"""A SavedModel that tries what a hostile one would: files, the network, floods. Built once and kept.

Each signature takes ``[1]`` and answers ``[1]``, so that its jobs look like anybody's:

* ``read``, ``find``: ``path`` (string) -> the content, or the names that match;
* ``write``: ``path`` (string) -> writes ``x`` there;
* ``call``: ``address`` (string, ``host:port``) -> speaks gRPC to it;
* ``flood``: ``lines`` (int32) -> prints that many lines of a kilobyte;
* ``big``: ``size`` (int32) -> that many bytes.

Another, :func:`curious`, has the paths of its neighbour's files in its graph; ``x`` (float32 ``[1]``) matters to none:

* ``map``: maps a file of the neighbour -> its first bytes;
* ``vocabulary``: takes that file for a vocabulary -> how many of its lines are in itself;
* ``abort``: ends the process.
"""

import sys
from pathlib import Path
from typing import Any

from tests.rigs import models

PEEKED_BYTES = 64


def hostile() -> Path:
    """The version's folder."""
    source = Path(__file__)
    cache = models._cache(source)
    path = cache / "hostile" / "1"
    models._once(cache / "hostile.lock", path, ["-m", "tests.rigs.hostilemodel", str(path)])
    return path


def curious() -> Path:
    """The version's folder; the neighbour is :func:`tests.rigs.models.half_plus_two`."""
    cache = models._cache(Path(__file__))
    path = cache / "curious" / "1"
    theirs = models.half_plus_two() / "saved_model.pb"
    models._once(cache / "curious.lock", path, ["-m", "tests.rigs.hostilemodel", str(path), str(theirs)])
    return path


def _build_curious(path: str, theirs: str) -> None:
    import tensorflow as tf

    x = tf.TensorSpec([1], tf.float32, name="x")

    def map_file(x: Any) -> dict[str, Any]:
        found = tf.raw_ops.ImmutableConst(dtype=tf.uint8, shape=[1, PEEKED_BYTES], memory_region_name=theirs)
        return {"bytes": found + tf.cast(x[0] * 0.0, tf.uint8)}

    def vocabulary(x: Any) -> dict[str, Any]:
        found = tf.raw_ops.GenerateVocabRemapping(
            new_vocab_file=theirs, old_vocab_file=theirs, new_vocab_offset=0, num_new_vocab=1
        )
        return {"present": tf.reshape(found.num_present, [1]) + tf.cast(x * 0.0, tf.int32)}

    def abort(x: Any) -> dict[str, Any]:
        with tf.control_dependencies([tf.raw_ops.Abort(error_msg="ended by a model")]):
            return {"y": tf.identity(x)}

    signatures = {
        name: tf.function(function, input_signature=[x]).get_concrete_function()
        for name, function in (("map", map_file), ("vocabulary", vocabulary), ("abort", abort))
    }
    draft = f"{path}.draft"
    tf.saved_model.save(tf.Module(), draft, signatures=signatures)
    Path(draft).rename(path)


def _build(path: str) -> None:
    import tensorflow as tf

    def one(dtype: Any, name: str) -> list[Any]:
        return [tf.TensorSpec([1], dtype, name=name)]

    def read(path: Any) -> dict[str, Any]:
        return {"text": tf.expand_dims(tf.io.read_file(path[0]), 0)}

    def find(path: Any) -> dict[str, Any]:
        return {"text": tf.expand_dims(tf.strings.reduce_join(tf.io.matching_files(path[0])), 0)}

    def write(path: Any) -> dict[str, Any]:
        with tf.control_dependencies([tf.io.write_file(path[0], "x")]):
            return {"path": tf.identity(path)}

    def call(address: Any) -> dict[str, Any]:
        registered = tf.raw_ops.RegisterDataset(
            dataset=tf.data.Dataset.range(1)._variant_tensor,
            address=address[0],
            protocol=tf.constant("grpc"),
            external_state_policy=0,
        )
        return {"id": tf.expand_dims(registered, 0)}

    def flood(lines: Any) -> dict[str, Any]:
        line = tf.strings.reduce_join(tf.fill([1000], "~"))

        def say(at: Any) -> tuple[Any]:
            with tf.control_dependencies([tf.print(line)]):
                return (at + 1,)

        ended = tf.while_loop(lambda at: at < lines[0], say, (tf.constant(0),))
        return {"lines": tf.expand_dims(ended[0], 0)}

    def big(size: Any) -> dict[str, Any]:
        return {"zeros": tf.zeros([1, size[0]], tf.uint8)}

    given = {
        read: one(tf.string, "path"),
        find: one(tf.string, "path"),
        write: one(tf.string, "path"),
        call: one(tf.string, "address"),
        flood: one(tf.int32, "lines"),
        big: one(tf.int32, "size"),
    }
    module = tf.Module()
    signatures = {
        function.__name__: tf.function(function, input_signature=spec).get_concrete_function()
        for function, spec in given.items()
    }
    draft = f"{path}.draft"
    tf.saved_model.save(module, draft, signatures=signatures)
    Path(draft).rename(path)


if __name__ == "__main__":
    (_build_curious if len(sys.argv) > 2 else _build)(*sys.argv[1:])
