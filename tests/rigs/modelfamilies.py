"""SavedModels of every kind that people bring, which may serve without anybody's approval. Built once and kept.

One process builds them all, since TensorFlow and Keras take seconds to import. It also writes down the operations that
TensorFlow has.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tests.rigs import models


def families() -> Path:
    """A folder with one version's folder for each family, and ``operations.json``."""
    cache = models._cache(Path(__file__))
    made = cache / "families"
    models._once(cache / "families.lock", made, ["-m", "tests.rigs.modelfamilies", str(made)])
    return made


def _layers(keras: Any) -> dict[str, Any]:
    """Models of one or a few layers, by family."""
    layers = keras.layers

    def chain(shape: tuple[int | None, ...], *some: Any, dtype: str = "float32") -> Any:
        return keras.Sequential([keras.Input(shape, dtype=dtype), *some])

    def attention() -> Any:
        x = keras.Input((4, 8))
        return keras.Model(x, layers.MultiHeadAttention(2, 4)(x, layers.Attention()([x, x])))

    def merging() -> Any:
        x = keras.Input((4,))
        both = [layers.Dense(4)(x), layers.Dense(4)(x)]
        kinds = (layers.Add, layers.Multiply, layers.Average, layers.Maximum, layers.Concatenate)
        return keras.Model(x, layers.Concatenate()([kind()(both) for kind in kinds]))

    cell = layers.StackedRNNCells([layers.LSTMCell(4), layers.GRUCell(4)])
    return {
        "dense": chain((8,), layers.Dense(4, "gelu"), layers.PReLU(), layers.Softmax()),
        "conv": chain(
            (16, 16, 3),
            layers.Conv2D(4, 3),
            layers.DepthwiseConv2D(3),
            layers.SeparableConv2D(4, 3),
            layers.Conv2DTranspose(4, 3),
            layers.MaxPooling2D(),
            layers.GlobalAveragePooling2D(),
        ),
        "conv1d": chain((16, 3), layers.Conv1D(4, 3, dilation_rate=2), layers.AveragePooling1D(2)),
        "conv3d": chain((8, 8, 8, 1), layers.Conv3D(2, 3), layers.GlobalMaxPooling3D()),
        "normalise": chain(
            (8, 8, 4),
            layers.BatchNormalization(),
            layers.LayerNormalization(),
            layers.GroupNormalization(2),
            layers.UnitNormalization(),
            layers.SpatialDropout2D(0.5),
            layers.GaussianNoise(0.1),
        ),
        "shape": chain(
            (8, 8, 4),
            layers.ZeroPadding2D(),
            layers.Cropping2D(),
            layers.UpSampling2D(),
            layers.Permute((2, 1, 3)),
            layers.Reshape((-1, 4)),
            layers.Flatten(),
            layers.RepeatVector(2),
        ),
        "lstm": chain((None, 8), layers.LSTM(4, return_sequences=True), layers.LSTM(4)),
        "gru": chain((None, 8), layers.GRU(4, reset_after=False), layers.RepeatVector(3)),
        "rnn": chain((None, 8), layers.Bidirectional(layers.SimpleRNN(4)), layers.Dense(1)),
        "rnn_cells": chain((None, 8), layers.RNN(cell)),
        "conv_lstm": chain((4, 8, 8, 1), layers.ConvLSTM2D(2, 3)),
        "time": chain((4, 8), layers.TimeDistributed(layers.Dense(2)), layers.Masking()),
        "embedding": chain((None,), layers.Embedding(10, 4), layers.GlobalAveragePooling1D(), dtype="int32"),
        "attention": attention(),
        "merging": merging(),
        "images": chain(
            (16, 16, 3),
            layers.Rescaling(1 / 255),
            layers.Resizing(8, 8),
            layers.CenterCrop(4, 4),
            layers.RandomFlip(),
            layers.RandomRotation(0.1),
            layers.RandomZoom(0.1),
            layers.RandomContrast(0.1),
        ),
    }


def _functions(tf: Any, keras: Any) -> dict[str, tuple[Any, list[Any], Any]]:
    """By family: what holds tables and variables, the inputs, and what computes."""
    lookup = keras.layers.StringLookup(vocabulary=["a", "b"])
    inverse = keras.layers.StringLookup(vocabulary=["a", "b"], invert=True)
    vectors = keras.layers.TextVectorization(ngrams=2)
    vectors.adapt(tf.constant(["one two", "two three"]))
    integers = keras.layers.IntegerLookup(vocabulary=[3, 5])
    buckets = keras.layers.Discretization(bin_boundaries=[0.0, 1.0])
    hashing = keras.layers.Hashing(8)
    holder = tf.Module()
    vocabulary = Path(sys.argv[1]).with_suffix(".vocabulary")
    vocabulary.write_text("zero\none\ntwo\n")
    from_file = tf.lookup.StaticVocabularyTable(
        tf.lookup.TextFileInitializer(
            str(vocabulary),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        ),
        1,
    )
    holder.parts = [lookup, inverse, vectors, integers, buckets, hashing, from_file]
    text, floats = tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.float32)
    features = {
        "x": tf.io.FixedLenFeature([], tf.float32, 0.0),
        "words": tf.io.VarLenFeature(tf.string),
        "ragged": tf.io.RaggedFeature(tf.int64),
    }

    def strings(text: Any) -> dict[str, Any]:
        return {"ids": hashing(inverse(lookup(text))), "grams": vectors(text)}

    def numbers(x: Any) -> dict[str, Any]:
        return {"ids": integers(tf.cast(x, tf.int64)), "buckets": buckets(x)}

    def examples(serialized: Any) -> dict[str, Any]:
        parsed = tf.io.parse_example(serialized, features)
        words = tf.sparse.to_dense(parsed["words"])
        return {"x": parsed["x"], "words": words, "ragged": parsed["ragged"].to_tensor()}

    def control(x: Any) -> dict[str, Any]:
        larger = tf.cond(tf.reduce_sum(x) > 0.0, lambda: x + 1.0, lambda: x - 1.0)
        looped = tf.while_loop(lambda n, _: n < 3, lambda n, y: (n + 1, y * 2.0), (0, larger))[1]
        switched = tf.switch_case(tf.size(x) % 2, [lambda: x, lambda: x + 2.0])
        return {"y": tf.map_fn(tf.sin, looped) + tf.vectorized_map(tf.cos, switched)}

    def detect(image: Any) -> dict[str, Any]:
        pixels = tf.map_fn(
            lambda one: tf.image.resize(tf.io.decode_image(one, 3, expand_animations=False), [8, 8]),
            image,
            fn_output_signature=tf.float32,
        )
        boxes = tf.random.uniform([1, 6, 1, 4]) + tf.reduce_mean(pixels)
        found = tf.image.combined_non_max_suppression(boxes, tf.random.uniform([1, 6, 2]), 3, 3)
        chosen = tf.image.non_max_suppression(boxes[0, :, 0], tf.random.uniform([6]), 3)
        crops = tf.image.crop_and_resize(pixels, boxes[0, :1, 0], [0], [2, 2])
        return {"boxes": found.nmsed_boxes, "chosen": chosen, "crops": crops}

    def signal(x: Any) -> dict[str, Any]:
        padded = tf.pad(x, [[0, 64]])
        spectrum = tf.signal.stft(padded, 16, 8)
        return {"y": tf.abs(spectrum), "top": tf.math.top_k(padded, 2).values, "sorted": tf.sort(padded)}

    def from_vocabulary(text: Any) -> dict[str, Any]:
        return {"ids": from_file.lookup(text)}

    return {
        "strings": (holder, [text], strings),
        "numbers": (holder, [floats], numbers),
        "examples": (holder, [text], examples),
        "control": (holder, [floats], control),
        "images_and_boxes": (holder, [text], detect),
        "signal": (holder, [floats], signal),
        "vocabulary_file": (holder, [text], from_vocabulary),
    }


def _save_as_an_estimator(tf: Any, path: str) -> None:
    """A graph of TensorFlow 1 with examples parsed, a vocabulary's table, a saver and an initializer."""
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        examples = v1.placeholder(tf.string, [None], name="input_example_tensor")
        words = v1.io.parse_example(examples, {"word": tf.io.FixedLenFeature([], tf.string, "")})
        table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                str(Path(sys.argv[1]).with_suffix(".vocabulary")),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            -1,
        )
        weights = v1.get_variable("weights", [4], initializer=v1.ones_initializer())
        scores = tf.gather(weights, tf.maximum(table.lookup(words["word"]), 0))
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        v1.summary.scalar("mean", tf.reduce_mean(scores))
        v1.saved_model.simple_save(
            session, path, {"examples": examples}, {"scores": scores}, legacy_init_op=v1.tables_initializer()
        )


def _build(made: str) -> None:
    import keras
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    draft = Path(f"{made}.draft")
    draft.mkdir()
    for name, (holder, inputs, function) in _functions(tf, keras).items():
        concrete = tf.function(function, input_signature=inputs).get_concrete_function()
        tf.saved_model.save(holder, str(draft / name / "1"), signatures=concrete)
    for name, model in _layers(keras).items():
        model.export(str(draft / name / "1"), verbose=False)
    _save_as_an_estimator(tf, str(draft / "estimator" / "1"))
    names = [name for name in dir(tf.raw_ops) if op_def_registry.get(name) is not None]
    (draft / "operations.json").write_text(json.dumps(names))
    draft.rename(made)


if __name__ == "__main__":
    _build(*sys.argv[1:])
