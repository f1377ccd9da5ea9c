# SPDX-License-Identifier: Apache-2.0
"""A process sees several GPUs: MirroredStrategy makes only the rank's own GPU visible, and a variable then lies there."""

import os

import support

support.need("tensorflow")

import tensorflow as tf  # noqa: E402
from tensorflow.python.framework import load_library  # noqa: E402

load_library.load_pluggable_device_library(os.environ["TENSORFLOW_FAKE_GPU"])

import farandole.tensorflow as hvd  # noqa: E402


class VisibleTest(support.RankedTest):
    def test_strategy_sees_the_gpu_of_the_rank(self):
        gpus = tf.config.get_visible_devices("GPU")
        self.assertGreater(len(gpus), 1, "the double has several devices")
        strategy = hvd.MirroredStrategy()
        self.assertEqual(tf.config.get_visible_devices("GPU"), [gpus[hvd.local_rank()]])
        with strategy.scope():
            variable = tf.Variable(tf.ones(3))
        self.assertRegex(variable.device, "GPU:0$")
        total = strategy.run(lambda: hvd.allreduce(variable.read_value(), op=hvd.Sum))
        self.assertRegex(total.device, "GPU:0$")
        with tf.device("/CPU:0"):
            self.assertEqual(tf.identity(total).numpy().tolist(), [float(hvd.size())] * 3)


if __name__ == "__main__":
    support.main()
