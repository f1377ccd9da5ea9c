# SPDX-License-Identifier: Apache-2.0
"""Batches of MirroredStrategy with composite tensors: divided by rows like the labels, or refused by name."""

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras_support import KerasTest, strategy

import farandole.tensorflow as hvd
from farandole import errors


class Pair(tf.experimental.BatchableExtensionType):
    first: tf.Tensor
    second: tf.Tensor


class CompositesTest(KerasTest):
    def setUp(self):
        super().setUp()
        self.need_several_ranks()

    def batches(self, value):
        return tf.data.Dataset.from_tensor_slices((value, tf.range(8))).batch(4)

    def test_ragged_and_sparse(self):
        ragged = tf.RaggedTensor.from_row_lengths(tf.range(8), [1] * 8)
        sparse = tf.sparse.from_dense(np.eye(8))
        for value in (ragged, sparse, {"one": ragged, "other": sparse}):
            for given, labels in strategy().experimental_distribute_dataset(self.batches(value)):
                for each in tf.nest.flatten(given):
                    self.assertEqual(each.shape[0], labels.shape[0])

    def test_extension_types(self):
        pair = Pair(tf.range(8), tf.range(8))
        with strategy().scope():
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        for use in (strategy().experimental_distribute_dataset, lambda batches: model.fit(batches, verbose=0)):
            with self.assertRaisesRegex(errors.Unsupported, "has a Pair, which the ranks cannot divide"):
                use(self.batches(pair))
            with self.assertRaisesRegex(errors.Unsupported, "has a Pair"):
                use(self.batches({"within": pair, "besides": tf.range(8)}))

    def test_user_defined_extension_types(self):
        batches = self.batches(Pair(tf.range(8), tf.range(8)))
        for pair, labels in strategy().distribute_datasets_from_function(lambda context: batches):
            self.assertEqual(pair.first.shape, labels.shape)


if __name__ == "__main__":
    support.main()
