# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests on the fake GPU of tests/support/tensorflow_gpu. Each rank sees all GPUs, and uses its own GPU.

Import this module before anything that runs an op of TensorFlow.
"""

import ctypes
import os

import support

support.need("tensorflow")

import tensorflow as tf  # noqa: E402
from tensorflow.python.framework import load_library  # noqa: E402

load_library.load_pluggable_device_library(os.environ["TENSORFLOW_FAKE_GPU"])
_fake_gpu = ctypes.CDLL(os.environ["TENSORFLOW_FAKE_GPU"])
_fake_gpu.fake_gpu_copies_to_host.restype = ctypes.c_int64

import farandole.tensorflow as hvd  # noqa: E402

hvd.init()
tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[hvd.local_rank()], "GPU")
tf.config.set_soft_device_placement(False)
tf.get_logger().setLevel("ERROR")  # functions are traced many times

from farandole import _engine  # noqa: E402
from tensorflow_support import OpTest  # noqa: E402


def copies_to_host():
    """Number of copies from the GPU to the host that TensorFlow has asked for."""
    return _fake_gpu.fake_gpu_copies_to_host()


class Counted:
    """What happens in a `with` block, as counted by the engine and by the fake GPU."""

    def __enter__(self):
        self._before, self._copies_before = _engine.counters(), copies_to_host()
        return self

    def __exit__(self, *_):
        self.copies = copies_to_host() - self._copies_before
        for name, value in _engine.counters().items():
            setattr(self, name, value - self._before[name])


class GpuTest(OpTest):
    """Ops run on the GPU; an op without a kernel there is an error."""

    def setUp(self):
        super().setUp()
        self._device = tf.device("/GPU:0")
        self._device.__enter__()

    def tearDown(self):
        self._device.__exit__(None, None, None)
        super().tearDown()

    def check_on_gpu(self, actual, expected, dtype=None):
        self.assertRegex(actual.device, "GPU:0$")
        with tf.device("/CPU:0"):
            self.check(tf.identity(actual), expected, dtype)
