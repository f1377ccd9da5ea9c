# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the TensorFlow ops."""

import support

support.need("tensorflow")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import farandole  # noqa: E402
from farandole.tensorflow import mpi_ops  # noqa: E402

FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]
INTEGERS = [tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64, tf.uint32, tf.uint64]


def both_ways(function, *arguments):
    """Results of the function, eagerly and as a tf.function."""
    return [function(*arguments), tf.function(function)(*arguments)]


class OpTest(support.RankedTest):
    def setUp(self):
        super().setUp()
        self.rank, self.size = farandole.rank(), farandole.size()

    def check(self, actual, expected, dtype=None):
        if dtype is not None:
            self.assertEqual(actual.dtype, dtype)
        np.testing.assert_array_equal(tf.cast(actual, tf.float64).numpy(), np.asarray(expected, np.float64))

    def own(self, dtype, shape=(3, 2)):
        """A tensor of small integers that are exact in every type; other values on each rank."""
        return tf.cast(tf.reshape(tf.range(int(np.prod(shape))), shape) % 3 + self.rank, dtype)

    def of_ranks(self, shape=(3, 2)):
        values = np.arange(int(np.prod(shape))).reshape(shape) % 3
        return np.stack([values + rank for rank in range(self.size)]).astype(np.float64)

    def goes_on(self):
        """The job is usable."""
        self.check(mpi_ops._allreduce(tf.ones([2])), [self.size, self.size])


def main(process_sets=None):
    tf.get_logger().setLevel("ERROR")  # functions are traced many times here
    support.main(process_sets)
