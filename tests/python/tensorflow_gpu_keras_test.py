# SPDX-License-Identifier: Apache-2.0
"""Keras on the fake GPU of tests/support/tensorflow_gpu: the losses equal those on the CPU."""

from unittest import mock

from tensorflow_gpu_support import Counted, hvd, support, tf  # isort: skip

support.need("keras")

import keras  # noqa: E402
import numpy as np  # noqa: E402

import farandole.keras  # noqa: E402
from farandole import _lifecycle  # noqa: E402
from farandole.tensorflow.strategy import _extended  # noqa: E402

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(48, 6)).astype(np.float32)
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)


class CountsAfterFirstEpoch(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.counted = Counted().__enter__()

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            self.counted.__exit__()


def classifier(optimizer, **options):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], **options)
    return model


def fit(model, x=X, y=Y, batch_size=12, callbacks=()):
    return model.fit(x, y, batch_size=batch_size, epochs=2, shuffle=False, verbose=0, callbacks=list(callbacks))


class KerasOnGpuTest(support.RankedTest):
    def setUp(self):
        super().setUp()
        tf.config.set_soft_device_placement(True)  # input pipelines and metrics have ops for the CPU only

    def both(self, train):
        """Trains on the CPU, then on the GPU. Returns the history and the weights of both, and the counts on the GPU."""
        results = []
        for device in ("/CPU:0", "/GPU:0"):
            counts = CountsAfterFirstEpoch()
            with tf.device(device):
                model, history = train(counts)
            self.assertRegex(model.trainable_variables[0].value.device, f"{device[1:]}$")
            results.append((history.history, [np.asarray(weight) for weight in model.get_weights()]))
        return *results, counts.counted

    def check_alike(self, on_cpu, on_gpu, rtol=1e-5):
        for name, values in on_cpu[0].items():
            np.testing.assert_allclose(on_gpu[0][name], values, rtol=rtol, err_msg=name)
        for ours, theirs in zip(on_gpu[1], on_cpu[1]):
            np.testing.assert_allclose(ours, theirs, rtol=10 * rtol, atol=rtol / 10)

    def check_on_gpu(self, counted):
        """The engine reduced in device memory, and waited for no device on the host."""
        self.assertGreater(counted.device_buckets, 0)
        self.assertGreater(counted.device_kernels, 0)
        self.assertEqual(counted.host_waits, 0)

    def check_optimizer(self, make, rtol=1e-5):
        """DistributedOptimizer trains on the GPU as on the CPU. Returns the counts on the GPU."""
        def train(counts):
            model = classifier(farandole.keras.DistributedOptimizer(make()))
            own = slice(hvd.rank(), None, hvd.size())
            broadcast = farandole.keras.callbacks.BroadcastGlobalVariablesCallback(0)
            return model, fit(model, X[own], Y[own], 4, [broadcast, counts])

        on_cpu, on_gpu, counted = self.both(train)
        self.check_alike(on_cpu, on_gpu, rtol)
        self.check_on_gpu(counted)
        return counted

    def check_strategy(self, make, rtol):
        """The strategy trains on the GPUs as one process on the CPU. Returns the model."""
        with tf.device("/CPU:0"):
            alone = fit(classifier(make(), jit_compile=False)).history
        counts = CountsAfterFirstEpoch()
        with hvd.MirroredStrategy().scope():
            model = classifier(make())
        history = fit(model, callbacks=[counts]).history
        self.assertRegex(model.trainable_variables[0].value.device, "GPU:0$")
        np.testing.assert_allclose(history["loss"], alone["loss"], rtol=rtol)
        self.check_on_gpu(counts.counted)
        return model

    def test_distributed_optimizer(self):
        for make in (lambda: keras.optimizers.SGD(0.1, momentum=0.9), lambda: keras.optimizers.Adam(0.01)):
            counted = self.check_optimizer(make)
            self.assertGreaterEqual(counted.device_buckets, 48 // hvd.size() // 4)

    def test_strategy(self):
        self.check_strategy(lambda: keras.optimizers.SGD(0.1), rtol=1e-5)

    def test_mixed_precision(self):
        self.addCleanup(keras.config.set_dtype_policy, keras.config.dtype_policy())
        keras.config.set_dtype_policy("mixed_float16")

        def scaled():  # the first steps overflow
            return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**20)

        model = self.check_strategy(scaled, rtol=2e-4)
        self.assertLess(float(model.optimizer.dynamic_scale), 2.0**20)
        self.check_optimizer(scaled, rtol=2e-4)

    def test_warning_about_a_gpu_of_several_ranks(self):
        with mock.patch.object(_extended, "_own_gpu", lambda device: "the GPU"):
            hvd.MirroredStrategy()
        warned = any("use the same GPU" in text for text in _lifecycle._warned)
        self.assertEqual(warned, hvd.rank() == 0)
        _lifecycle._warned.clear()
        hvd.MirroredStrategy()
        self.assertFalse(_lifecycle._warned)


if __name__ == "__main__":
    support.main()
