# SPDX-License-Identifier: Apache-2.0
"""Horovod's Keras API (farandole.keras and farandole.tensorflow.keras), compared with one process with the whole batches.

Runs on Keras 3, and as keras_legacy_test.py on tf-keras.
"""

import atexit
import inspect
import shutil
import tempfile
from pathlib import Path

import support

support.need("numpy", "tensorflow", "keras")

import numpy as np
import tensorflow as tf

import farandole.keras as keras_hvd
import farandole.tensorflow as core
import farandole.tensorflow.keras as hvd
from farandole import errors

keras = tf.keras
IS_LEGACY = not hasattr(keras, "ops")
PER_RANK = 8
STEPS = 4


def rows(rank):
    random = np.random.default_rng(rank)
    x = random.normal(size=(PER_RANK * STEPS, 4)).astype(np.float32)
    return x, (x @ np.array([[1.0], [2.0], [-1.0], [0.5]], np.float32)) + 1


def whole():
    """The batches of all ranks together, one after the other."""
    parts = [rows(rank) for rank in range(hvd.size())]

    def joined(which):
        return np.concatenate(
            [part[which][step * PER_RANK : (step + 1) * PER_RANK] for step in range(STEPS) for part in parts]
        )

    return joined(0), joined(1)


def make_model(initializer="ones"):
    dense = keras.layers.Dense
    return keras.Sequential([keras.Input((4,)), dense(3, kernel_initializer=initializer), dense(1)])


class OptimizerTest(support.RankedTest):
    def setUp(self):
        super().setUp()
        self.folder = Path(core.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None))
        if hvd.rank() == 0:
            atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def trained(self, optimizer, together, epochs=2, callbacks=(), start=None, **compile_arguments):
        model = make_model()
        if start is not None:
            model.set_weights(start)
        model.compile(optimizer, "mse", **compile_arguments)
        x, y = rows(hvd.rank()) if together else whole()
        batch = PER_RANK if together else PER_RANK * hvd.size()
        history = model.fit(x, y, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks))
        return model, history

    def assert_like_one_process(self, optimizer, wrap=hvd.DistributedOptimizer, **arguments):
        start = core.broadcast_object(make_model().get_weights())
        alone, _ = self.trained(optimizer(), False, start=start, **arguments)
        together, _ = self.trained(wrap(optimizer()), True, start=start, **arguments)
        for mine, expected in zip(together.get_weights(), alone.get_weights()):
            np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)
        for other in core.allgather_object(together.get_weights()):
            for mine, theirs in zip(together.get_weights(), other):
                np.testing.assert_array_equal(mine, theirs)

    def test_fit(self):
        self.assert_like_one_process(lambda: keras.optimizers.SGD(0.01, momentum=0.9))
        self.assert_like_one_process(lambda: keras.optimizers.Adam(0.01), wrap=keras_hvd.DistributedOptimizer)
        if IS_LEGACY:
            self.assert_like_one_process(lambda: keras.optimizers.legacy.SGD(0.01, momentum=0.9))

    def test_clipping(self):
        self.assert_like_one_process(lambda: keras.optimizers.SGD(0.01, global_clipnorm=0.1))

    def test_local_aggregation(self):
        def wrap(optimizer):
            return hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2, average_aggregated_gradients=True)

        start = core.broadcast_object(make_model().get_weights())
        model, _ = self.trained(wrap(keras.optimizers.SGD(0.01)), True, epochs=1, start=start)
        alone = make_model()
        alone.set_weights(start)
        alone.compile(keras.optimizers.SGD(0.01), "mse")
        x, y = whole()
        alone.fit(x, y, batch_size=2 * PER_RANK * hvd.size(), shuffle=False, verbose=0)
        for mine, expected in zip(model.get_weights(), alone.get_weights()):
            np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)

    def test_partial(self):
        start = core.broadcast_object(make_model().get_weights())
        model = make_model()
        model.set_weights(start)
        optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.01), local_layers=model.layers[-1])
        model.compile(optimizer, "mse")
        x, y = rows(hvd.rank())
        model.fit(x[:PER_RANK], y[:PER_RANK], batch_size=PER_RANK, verbose=0)
        everyone = core.allgather_object(model.get_weights())
        for other in everyone[1:]:
            np.testing.assert_array_equal(everyone[0][0], other[0])
            self.assertFalse(np.array_equal(everyone[0][2], other[2]))
        with self.assertRaisesRegex(errors.InvalidArgument, "local_layers"):
            hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.01), local_layers=["dense"])

    def test_a_step_that_one_rank_skips(self):
        if IS_LEGACY:
            self.skipTest("Keras 3 only")
        keras.config.set_dtype_policy("mixed_float16")
        try:
            model = make_model()
            model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
            self.assertIsInstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
            before = model.get_weights()
            x, y = rows(hvd.rank())
            if hvd.rank() == hvd.size() - 1:
                x[0] = np.nan
            model.fit(x[:PER_RANK], y[:PER_RANK], batch_size=PER_RANK, verbose=0)
            for old, new in zip(before, model.get_weights()):
                np.testing.assert_array_equal(old, new)
        finally:
            keras.config.set_dtype_policy("float32")

    def test_load_model(self):
        path = self.folder / ("model.h5" if IS_LEGACY else "model.keras")
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        model, _ = self.trained(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), True, callbacks=[callback])
        if hvd.rank() == 0:
            model.save(path)
        core.barrier()
        plain = keras.models.load_model(path)
        self.assertIs(type(plain.optimizer), keras.optimizers.Adam)
        loaded = hvd.load_model(path)
        self.assertEqual(int(loaded.optimizer.iterations.numpy()), 2 * STEPS)
        x, y = rows(hvd.rank())
        for each in (model, loaded):
            each.fit(x, y, batch_size=PER_RANK, shuffle=False, verbose=0)
        for mine, expected in zip(loaded.get_weights(), model.get_weights()):
            np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)

    # ---- Callbacks

    def test_broadcast_callback(self):
        model = make_model(keras.initializers.Constant(float(hvd.rank() + 1)))
        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
        local = model.layers[-1].bias
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank=hvd.size() - 1, local_variables=[local])
        local.assign([float(hvd.rank())])
        x, y = rows(hvd.rank())
        model.fit(x, y, batch_size=PER_RANK, verbose=0, callbacks=[callback])
        weights = core.allgather_object(model.get_weights())
        for other in weights[1:]:
            for mine, theirs in zip(weights[0][:-1], other[:-1]):
                np.testing.assert_array_equal(mine, theirs)
            self.assertFalse(np.array_equal(weights[0][-1], other[-1]))
        self.assertGreater(float(model.layers[0].kernel.numpy().mean()), hvd.size() - 0.5)
        with self.assertRaises(errors.InvalidArgument):
            hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[1.0])

    def test_metric_average_callback(self):
        model = make_model()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), "mse", metrics=["mae"])
        x, y = rows(hvd.rank())
        own = model.evaluate(x, y, verbose=0, return_dict=True)

        class Seen(keras.callbacks.Callback):
            logs = None

            def on_epoch_end(self, epoch, logs=None):
                self.logs = dict(logs)

        seen = Seen()
        callbacks = [hvd.callbacks.MetricAverageCallback(), seen]
        model.fit(x, y, batch_size=PER_RANK, verbose=0, callbacks=callbacks, validation_data=(x, y))
        for name in ("loss", "mae"):
            expected = np.mean(core.allgather_object(own[name]))
            np.testing.assert_allclose(seen.logs[name], expected, rtol=1e-4)
            np.testing.assert_allclose(seen.logs[f"val_{name}"], expected, rtol=1e-4)

    def rates(self, callback, optimizer=None, epochs=3):
        class Rates(keras.callbacks.Callback):
            def __init__(self):
                super().__init__()
                self.values = []

            def on_batch_end(self, batch, logs=None):
                self.values.append(float(np.asarray(self.model.optimizer.learning_rate)))

        rates = Rates()
        optimizer = hvd.DistributedOptimizer(optimizer or keras.optimizers.SGD(1e-3))
        model, history = self.trained(optimizer, True, epochs, callbacks=[callback, rates])
        np.testing.assert_allclose(history.history["lr"], rates.values[STEPS - 1 :: STEPS], rtol=1e-5)
        return rates.values, model

    def test_warmup(self):
        callback = hvd.callbacks.LearningRateWarmupCallback(initial_lr=1e-3, warmup_epochs=2)
        values, _ = self.rates(callback)
        size = hvd.size()
        steps = np.minimum(np.arange(1, 3 * STEPS + 1), 2 * STEPS)
        np.testing.assert_allclose(values, 1e-3 / size * (steps / STEPS * (size - 1) / 2 + 1), rtol=1e-5)

    def test_schedules(self):
        schedule = hvd.callbacks.LearningRateScheduleCallback
        values, _ = self.rates(schedule(1e-3, lambda epoch: 0.5 if epoch == 1 else 0.25, start_epoch=1, end_epoch=2))
        np.testing.assert_allclose(values, [1e-3] * STEPS + [5e-4] * 2 * STEPS, rtol=1e-5)
        values, _ = self.rates(schedule(1e-3, 0.1))
        np.testing.assert_allclose(values, np.repeat([1e-3, 1e-4, 1e-5], STEPS), rtol=1e-5)
        values, _ = self.rates(schedule(1e-3, 0.1, start_epoch=1))
        np.testing.assert_allclose(values, np.repeat([1e-3, 1e-3, 1e-4], STEPS), rtol=1e-5)
        values, _ = self.rates(schedule(1e-3, lambda epoch: 1 + epoch, staircase=False, steps_per_epoch=STEPS))
        np.testing.assert_allclose(values, 1e-3 * (1 + np.arange(3 * STEPS) / STEPS), rtol=1e-5)
        with self.assertRaises(ValueError):
            schedule(None, 1.0)

    def test_momentum_is_corrected(self):
        """Halving the rate also halves the momentum's share of that step."""
        x, y = rows(0)
        weights = {}
        for correction in (True, False):
            model = make_model()
            model.set_weights([np.ones_like(weight) for weight in model.get_weights()])
            model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3, momentum=0.9)), "mse")
            schedule = hvd.callbacks.LearningRateScheduleCallback(
                1e-3, lambda epoch: 0.5**epoch, momentum_correction=correction
            )
            steps = []
            record = keras.callbacks.LambdaCallback(
                on_batch_end=lambda batch, logs: steps.append(np.concatenate([w.ravel() for w in model.get_weights()]))
            )
            model.fit(x[:PER_RANK], y[:PER_RANK], batch_size=PER_RANK, epochs=2, verbose=0, callbacks=[schedule, record])
            weights[correction] = steps
        start = np.ones_like(weights[True][0])
        first = weights[True][0] - start
        np.testing.assert_allclose(weights[False][1] - weights[True][1], 0.9 * 0.5 * first, rtol=1e-3, atol=1e-6)

    def test_best_model_checkpoint(self):
        checkpoint = hvd.callbacks.BestModelCheckpoint(monitor="loss", save_weights_only=True)
        model = make_model()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3)), "mse")
        x, y = rows(hvd.rank())
        with self.assertRaisesRegex(errors.InvalidArgument, "filepath"):
            model.fit(x, y, verbose=0, callbacks=[checkpoint])
        checkpoint.filepath = str(self.folder / "best.weights.h5")
        model.fit(x, y, batch_size=PER_RANK, verbose=0, callbacks=[checkpoint] if hvd.rank() == 0 else [])
        core.barrier()
        self.assertTrue((self.folder / "best.weights.h5").exists())
        keras_hvd.callbacks.BestModelCheckpoint(monitor="loss", mode="min")

    # ---- Values

    def test_values(self):
        size, rank = hvd.size(), hvd.rank()
        mean = (size - 1) / 2
        for package in (hvd, keras_hvd):
            np.testing.assert_allclose(package.allreduce(float(rank)), mean)
            np.testing.assert_allclose(package.allreduce([float(rank)], average=False), [mean * size])
            np.testing.assert_allclose(package.allreduce([float(rank)], op=hvd.Sum, postscale_factor=2.0), [mean * size * 2])
            np.testing.assert_array_equal(package.allgather([rank]), np.arange(size))
            np.testing.assert_array_equal(package.broadcast([rank], root_rank=size - 1), [size - 1])
            mine = package.reducescatter(np.ones((size, 2), np.float32), op=hvd.Sum)
            np.testing.assert_array_equal(mine, np.full((1, 2), size))
            with self.assertRaises(errors.Unsupported):
                package.broadcast_global_variables(0)
            for name in ("init", "rank", "local_size", "mpi_built", "Compression", "callbacks", "elastic"):
                self.assertTrue(hasattr(package, name), name)

    def test_arguments(self):
        def names(function):
            return list(inspect.signature(function).parameters)

        # What Horovod 0.28 takes, in its order.
        common = "optimizer name device_dense device_sparse compression sparse_as_dense gradient_predivide_factor op".split()
        self.assertEqual(names(keras_hvd.DistributedOptimizer), [*common, "num_groups", "groups"])
        more = "backward_passes_per_step average_aggregated_gradients num_groups groups process_set scale_local_gradients"
        self.assertEqual(names(hvd.DistributedOptimizer), [*common, *more.split()])
        partial = "groups process_set local_layers scale_local_gradients"
        self.assertEqual(names(keras_hvd.PartialDistributedOptimizer), [*common, *partial.split()])
        self.assertEqual(
            names(hvd.load_model), ["filepath", "custom_optimizers", "custom_objects", "compression", "legacy_opts"]
        )

    def test_elastic_states(self):
        model = make_model(keras.initializers.Constant(float(hvd.rank())))
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3)), "mse")
        state = hvd.elastic.KerasState(model, batch=0, epoch=0)
        callbacks = [
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
        ]

        @hvd.elastic.run
        def train(state):
            x, y = rows(hvd.rank())
            model.fit(x, y, batch_size=PER_RANK, epochs=2, verbose=0, callbacks=callbacks)

        train(state)
        self.assertEqual((state.epoch, state.batch), (2, 0))
        everyone = core.allgather_object(model.get_weights())
        for other in everyone[1:]:
            np.testing.assert_array_equal(everyone[0][0], other[0])
        committed = model.get_weights()
        model.set_weights([np.zeros_like(weight) for weight in committed])
        state.restore()
        for mine, expected in zip(model.get_weights(), committed):
            np.testing.assert_array_equal(mine, expected)


if __name__ == "__main__":
    support.main()
