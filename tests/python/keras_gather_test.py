# SPDX-License-Identifier: Apache-2.0
"""Results gathered from all ranks: tensors of every type in gather and predict, and results that cannot be summed. Also
class_weight with data that is already distributed."""

import support

support.need("tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras_support import ROWS, X, Y, KerasTest, classifier, strategy
from tensorflow_support import both_ways

import farandole.tensorflow as hvd
from farandole import errors

TEXTS = np.array([b"", b"id 1", "\u00e9\u4e2d".encode(), b"a\0b", b"", b"\xff" * 300, b"\0"], object)


def own_rows(rank):
    """All of the texts, or none, in another order on each rank."""
    return np.roll(TEXTS, rank) if rank != 1 else TEXTS[:0]


class GatherTest(KerasTest):
    def test_text(self):
        ranks = range(hvd.size())
        expected = np.concatenate([own_rows(rank) for rank in ranks])
        for gathered in both_ways(lambda: strategy().gather(tf.constant(own_rows(hvd.rank()), tf.string), axis=0)):
            np.testing.assert_array_equal(gathered, expected)
        # Columns of the ranks beside each other.
        mine = tf.fill([2, hvd.rank() + 1], f"rank {hvd.rank()}")
        expected = np.concatenate([np.full((2, rank + 1), f"rank {rank}".encode(), object) for rank in ranks], axis=1)
        np.testing.assert_array_equal(strategy().gather(mine, axis=1), expected)

    def test_numbers_that_are_not_added(self):
        for dtype in (tf.complex64, tf.complex128, tf.uint32, tf.uint64, tf.bool):
            of_rank = [tf.cast([[rank, 1], [0, rank]], dtype) for rank in range(hvd.size())]
            for axis in (0, 1):
                gathered = strategy().gather(of_rank[hvd.rank()], axis=axis)
                self.assertEqual(gathered.dtype, dtype)
                np.testing.assert_array_equal(gathered, tf.concat(of_rank, axis))

    def test_within_a_replica(self):
        def replica(value):
            return tf.distribute.get_replica_context().all_gather(value, axis=0)

        for value in (tf.constant(["a", "bc"]), tf.constant([1j, 2.0])):
            gathered = tf.function(lambda given: strategy().run(replica, args=(given,)))(value)
            np.testing.assert_array_equal(gathered, tf.concat([value] * hvd.size(), 0))

    def test_predict_of_text_beside_numbers(self):
        names = np.array([f"name {row}" for row in range(ROWS)])[:, None]
        with strategy().scope():
            name, features = keras.Input((1,), dtype="string"), keras.Input((6,))
            score = keras.layers.Dense(1)(features)
            lookup = keras.layers.StringLookup(vocabulary=["low", "high"], num_oov_indices=0, invert=True)
            kind = lookup(keras.ops.cast(score > 0, "int64"))
            model = keras.Model([name, features], {"name": name, "score": score, "kind": kind})
        rows = tf.data.Dataset.from_tensor_slices(((names, X[:ROWS]),)).batch(8)
        found = model.predict(rows, verbose=0)
        np.testing.assert_array_equal(found["name"].astype(str), names)
        self.assertEqual(found["score"].shape, (ROWS, 1))
        np.testing.assert_array_equal(found["kind"].astype(str), np.where(found["score"] > 0, "high", "low"))

    def test_predict_of_ragged_outputs(self):
        rows = tf.ragged.constant([[1, 2], [3], [4, 5, 1], [], [1, 1]])  # in batches of two: the last rank has none of the last

        class Twice(keras.Model):
            def call(self, x):
                return {"numbers": x * 2, "texts": tf.strings.as_string(tf.stack([x, x], axis=1))}

        dataset = tf.data.Dataset.from_tensor_slices(rows).batch(2)
        expected = Twice().predict(dataset, verbose=0)
        with strategy().scope():
            model = Twice()
        outputs = model.predict(dataset, verbose=0)
        for name in ("numbers", "texts"):
            self.assertEqual(outputs[name].to_list(), expected[name].to_list())
        mine = rows[hvd.rank() : hvd.rank() + 2]
        for gathered in both_ways(lambda: strategy().gather(mine, axis=0)):
            self.assertEqual(gathered.to_list(), sum([rows[i : i + 2].to_list() for i in range(hvd.size())], []))
        with self.assertRaisesRegex(errors.Unsupported, "axis 0"):
            strategy().gather(mine, axis=1)
        with self.assertRaisesRegex(errors.Unsupported, "tf.sparse.to_dense"):
            strategy().gather(tf.sparse.from_dense([[1, 0]]), axis=0)

    def test_types_that_do_not_move(self):
        value = tf.cast([1.0, 2.0], tf.as_dtype("float8_e4m3fn"))
        with self.assertRaisesRegex(errors.Unsupported, "float8_e4m3fn"):
            strategy().gather(value, axis=0)

    def test_types_that_are_not_added_up(self):
        text, imaginary = tf.constant(["a"]), tf.constant([1j])
        for value, reason in ((text, "string.*gather"), (imaginary, "complex.*real")):
            if hvd.size() == 1:
                continue
            for reduce in (
                lambda: strategy().reduce("SUM", value, axis=None),
                lambda: strategy().run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", value)),
                tf.function(lambda: strategy().reduce("MEAN", value, axis=None)),
            ):
                with self.assertRaisesRegex(errors.Unsupported, reason):
                    reduce()
        wave = tf.Variable([1j], name="wave")
        with tf.GradientTape() as tape:
            loss = tf.math.real(wave * tf.math.conj(wave))
        if hvd.size() > 1:
            with self.assertRaisesRegex(errors.Unsupported, "the gradient of wave:0 is complex128"):
                hvd.DistributedGradientTape(tape).gradient(loss, [wave])

    def test_widths_that_differ(self):
        self.need_several_ranks()

        class Padded(keras.Model):
            def call(self, inputs):
                return inputs.to_tensor() if isinstance(inputs, tf.RaggedTensor) else inputs

        lengths = [3] + [1] * (2 * hvd.size() - 1)
        rows = tf.RaggedTensor.from_row_lengths(tf.ones([sum(lengths)]), lengths)
        with strategy().scope():
            model = Padded()
        with self.assertRaisesRegex(errors.Mismatch, r"f32\[3\].*pad to a fixed length"):
            model.predict(tf.data.Dataset.from_tensors(rows), verbose=0)


class ClassWeightTest(KerasTest):
    WEIGHTS = {0: 1.0, 1: 3.0, 2: 0.25}

    def batches(self):
        return tf.data.Dataset.from_tensor_slices((X[:ROWS], Y[:ROWS])).batch(8)

    def of_rank(self, context):
        def own(x, y):
            return x[context.input_pipeline_id :: context.num_input_pipelines], y[
                context.input_pipeline_id :: context.num_input_pipelines
            ]

        return self.batches().map(own)

    def check(self, distribute):
        def train(model):
            is_alone = not isinstance(model.distribute_strategy, hvd.MirroredStrategy)
            data = self.batches() if is_alone else distribute()
            return model.fit(data, epochs=2, class_weight=self.WEIGHTS, verbose=0)

        self.alone_and_together(classifier("sgd"), train)

    def test_with_a_distributed_dataset(self):
        self.check(lambda: strategy().experimental_distribute_dataset(self.batches()))

    def test_with_data_of_each_rank(self):
        self.check(lambda: strategy().distribute_datasets_from_function(self.of_rank))


if __name__ == "__main__":
    support.main()
