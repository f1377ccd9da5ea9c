# SPDX-License-Identifier: Apache-2.0
"""Optimizers of tf-keras wrapped by DistributedOptimizer, used as packages written for Horovod do: eagerly, in a
tf.function, in fit, and in graphs of TensorFlow 1."""

import os

import support

support.need("numpy", "tensorflow", "tf_keras")

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf

import farandole.tensorflow as htf
import farandole.tensorflow.keras as hvd
from farandole import errors
from farandole.tensorflow.gradient_aggregation import (
    LocalGradientAggregationHelper,
    LocalGradientAggregationHelperEager,
)

KINDS = {"new": tf.keras.optimizers.SGD, "legacy": tf.keras.optimizers.legacy.SGD}
WAYS = {"eager": lambda function: function, "function": tf.function}


class WrappedTest(support.RankedTest):
    def setUp(self):
        super().setUp()
        self.rank, self.size = hvd.rank(), hvd.size()
        self.mean = (self.size - 1) / 2  # of the ranks' numbers
        self.where = ""

    def optimizers(self, **options):
        for kind, make in KINDS.items():
            self.where = kind
            yield hvd.DistributedOptimizer(make(1.0), **options)

    def ways(self, **options):
        for optimizer in self.optimizers(**options):
            kind = self.where
            for way, wrapped in WAYS.items():
                self.where = f"{kind}, {way}"
                yield type(optimizer).from_config(optimizer.get_config()), wrapped

    def shortDescription(self):
        return f"{super().shortDescription()} ({getattr(self, 'where', '')})"

    # ---- What can be seen of them

    def test_recognition(self):
        for optimizer in self.optimizers():
            self.assertIn("horovod", str(type(optimizer)))
            self.assertEqual(type(optimizer).__name__, "SGD")
            self.assertIn("keras", type(optimizer).__module__)
            self.assertEqual(optimizer.get_config()["name"], "DistributedSGD")
            self.assertIsNone(optimizer._agg_helper)
            self.assertIs(optimizer.process_set, htf.global_process_set)
            optimizer.build([tf.Variable(1.0)]) if hasattr(optimizer, "build") else optimizer.iterations
            self.assertEqual(list(optimizer.variables()), list(optimizer.variables))
            with self.assertRaises(errors.InvalidArgument):
                hvd.DistributedOptimizer(optimizer)
        named = hvd.DistributedOptimizer(KINDS["legacy"](1.0), name="mine")
        self.assertEqual(named.get_config()["name"], "mine")

    # ---- Gradients

    def test_compute_gradients(self):
        for optimizer, wrapped in self.ways():
            variable, unused = tf.Variable([1.0, 2.0]), tf.Variable(1.0)

            def loss():
                return tf.reduce_sum(variable * self.rank)

            @wrapped
            def computed():
                first = optimizer._compute_gradients(loss, [variable, unused])
                with tf.GradientTape() as tape:
                    value = loss()
                second = optimizer.compute_gradients(value, [variable], tape=tape)
                self.assertIsNone(first[1][0])
                return first[0][0], second[0][0], optimizer._allreduce([tf.constant([1.0 * self.rank])], [variable])[0]

            for gradient in computed():
                np.testing.assert_allclose(gradient, np.full(gradient.shape, self.mean))

    def test_only_what_computes_reduces(self):
        for optimizer, wrapped in self.ways():
            variable = tf.Variable([0.0])

            @wrapped
            def step():
                optimizer.apply_gradients([(tf.constant([float(self.rank)]), variable)])

            step()
            np.testing.assert_allclose(variable, [-float(self.rank)])

    def test_minimize(self):
        for optimizer, wrapped in self.ways():
            variable = tf.Variable([0.0])
            optimizer.build([variable]) if hasattr(optimizer, "build") else None

            @wrapped
            def step():
                optimizer.minimize(lambda: tf.reduce_sum(variable * self.rank), [variable])

            step()
            np.testing.assert_allclose(variable, [-self.mean])

    def test_process_set(self):
        first = htf.add_process_set([0])
        for optimizer in self.optimizers(process_set=first):
            for gradient in (np.array([1.0 + self.rank], np.float32), tf.constant([1.0 + self.rank])):
                self.check_all(optimizer._allreduce([gradient], [tf.Variable([0.0])]), [1.0 + self.rank])
        htf.remove_process_set(first)
        for optimizer in self.optimizers():
            numpy_gradient = np.array([1.0 * self.rank], np.float32)
            self.check_all(optimizer._allreduce([numpy_gradient], [tf.Variable([0.0])]), [self.mean])

    def check_all(self, gradients, expected):
        for gradient in gradients:
            np.testing.assert_allclose(gradient, expected)

    def test_local_variables(self):
        for passes in (1, 2):
            for scaled in (True, False):
                options = {"backward_passes_per_step": passes, "scale_local_gradients": scaled}
                for optimizer, wrapped in self.ways(**options):
                    shared, local = tf.Variable([0.0]), tf.Variable([0.0])
                    optimizer.register_local_var(local)
                    gradients = [tf.constant([1.0 * self.rank])] * 2

                    @wrapped
                    def reduced():
                        return optimizer._allreduce(gradients, [shared, local])

                    for _ in range(passes):
                        of_shared, of_local = reduced()
                    np.testing.assert_allclose(of_shared, [passes * self.mean])
                    np.testing.assert_allclose(of_local, [passes * self.rank / (self.size if scaled else 1)])

    def test_partial(self):
        for kind, make in KINDS.items():
            with self.subTest(kind):
                layers = [tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros") for _ in range(2)]
                model = tf.keras.Sequential([tf.keras.Input((1,)), *layers])
                layers[0].kernel.assign([[1.0]])
                optimizer = hvd.PartialDistributedOptimizer(make(1.0), local_layers=layers[0])
                optimizer.register_local_var(tf.Variable(0.0))
                optimizer.build(model.trainable_variables) if hasattr(optimizer, "build") else None
                # The loss is w1 w0 x; its gradients are w0 x for w1 and w1 x for w0.
                layers[1].kernel.assign([[3.0]])
                optimizer.minimize(lambda: tf.reduce_sum(model(tf.constant([[1.0 * self.rank]]))), model.trainable_variables)
                np.testing.assert_allclose(layers[0].kernel, [[1.0 - 3 * self.rank / self.size]])
                np.testing.assert_allclose(layers[1].kernel, [[3.0 - self.mean]])

    # ---- Several backward passes

    def test_aggregation(self):
        passes = 3
        for average in (False, True):
            options = {"backward_passes_per_step": passes, "average_aggregated_gradients": average}
            for optimizer, wrapped in self.ways(**options):
                variable, unused = tf.Variable([0.0]), tf.Variable([0.0])
                helper = optimizer._agg_helper
                self.assertEqual((helper.backward_passes_per_step, helper.average_aggregated_gradients), (passes, average))

                @wrapped
                def step(gradient):
                    reduced = optimizer._allreduce([gradient, None], [variable, unused])
                    optimizer.apply_gradients([(reduced[0], variable)])
                    return reduced[0]

                expected, total = 0.0, 0.0
                for number in range(2 * passes):
                    gradient = (number + 1.0) * self.rank
                    result = step(tf.constant([gradient]))
                    total += (number + 1.0) * self.mean
                    passed = (number + 1) % passes
                    sums = sum(range(number - passed + 2, number + 2)) * self.rank if passed else 0
                    if not passed:
                        total /= passes if average else 1
                        expected -= total
                        np.testing.assert_allclose(result, [total], rtol=1e-6)
                        total = 0.0
                    else:
                        np.testing.assert_allclose(result, [sums])
                    np.testing.assert_allclose(variable, [expected], rtol=1e-6)
                    self.assertEqual(int(helper.counter), passed)
                    np.testing.assert_allclose(helper.locally_aggregated_grads[0], [sums])
                    self.assertEqual(int(optimizer.iterations), number + 1)

    def test_sparse_gradients(self):
        slices = tf.IndexedSlices(tf.ones([1, 2]), [self.rank], tf.constant([self.size, 2]))
        variable = tf.Variable(tf.zeros([self.size, 2]))
        for optimizer, wrapped in self.ways(backward_passes_per_step=2):
            with self.assertRaisesRegex(ValueError, "sparse_as_dense"):
                wrapped(lambda: optimizer._allreduce([slices], [variable]))()
        for optimizer, wrapped in self.ways(backward_passes_per_step=2, sparse_as_dense=True):
            reduce = wrapped(lambda: optimizer._allreduce([slices], [variable])[0])
            reduce()
            np.testing.assert_allclose(reduce(), np.full([self.size, 2], 2 / self.size))

    def test_infinite_gradients_are_gone_with_their_step(self):
        for optimizer, wrapped in self.ways(backward_passes_per_step=2):
            variable = tf.Variable([0.0])
            reduce = wrapped(lambda gradient: optimizer._allreduce([gradient], [variable])[0])
            reduce(tf.constant([np.inf if self.rank == 0 else 1.0]))
            np.testing.assert_allclose(reduce(tf.constant([1.0])), [np.inf])
            reduce(tf.constant([1.0]))
            np.testing.assert_allclose(reduce(tf.constant([1.0])), [2.0])

    def test_helpers_on_their_own(self):
        seen = []

        def reduce(gradients, variables):
            seen.append(len(variables))
            return [10 * gradient for gradient in gradients]

        for make in (
            lambda: LocalGradientAggregationHelperEager(2, reduce, False, True),
            lambda: LocalGradientAggregationHelper(2, reduce, False, True, self.rank, "optimizer_type_legacy"),
        ):
            helper, variables = make(), [tf.Variable([0.0]), tf.Variable([0.0])]
            helper.register_local_var(variables[1])
            helper.compute_gradients((tf.constant([1.0]), tf.constant([1.0])), variables)
            shared, local = helper.compute_gradients((tf.constant([2.0]), tf.constant([2.0])), variables)
            np.testing.assert_allclose(shared, [15.0])
            np.testing.assert_allclose(local, [1.5 / self.size])
            with self.assertRaisesRegex(ValueError, "1 gradients in this pass, 2 in the first"):
                helper.compute_gradients((tf.constant([1.0]), None), variables)
        self.assertEqual(seen, [1, 1])
        with self.assertRaises(ValueError):
            LocalGradientAggregationHelperEager(0, reduce, False, True)

    # ---- fit

    def history(self, make, **options):
        """Losses and weights of a few epochs with Horovod's callbacks."""
        tf.keras.utils.set_random_seed(1 + self.rank)
        layers = [tf.keras.layers.Dense(3, "relu", input_shape=(4,)), tf.keras.layers.Dense(1)]
        model = tf.keras.Sequential(layers)
        model.build((None, 4))
        random = np.random.default_rng(0)
        weights = [random.normal(size=each.shape).astype(np.float32) for each in model.get_weights()]
        model.set_weights(weights if self.rank == 0 else [0 * each for each in weights])
        rate = 0.02 * self.size
        model.compile(hvd.DistributedOptimizer(make(rate, momentum=0.9), **options), "mse", metrics=["mae"])
        x = np.random.default_rng(self.rank).random((48, 4)).astype(np.float32)
        callbacks = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(rate, warmup_epochs=2),
            hvd.callbacks.LearningRateScheduleCallback(rate, lambda epoch: 0.1, start_epoch=2),
        ]
        fitted = model.fit(x, x.sum(axis=1), 16, epochs=3, shuffle=False, verbose=0, callbacks=callbacks)
        if options and not tf.executing_eagerly():
            session, helper = tf.compat.v1.keras.backend.get_session(), model.optimizer._agg_helper
            self.assertEqual(session.run(helper.counter), 9 % helper.backward_passes_per_step)
            self.assertEqual(session.run(helper.locally_aggregated_grads[0]).shape, (4, 3))
        return fitted.history, model.get_weights()

    def test_fit_in_a_graph_is_fit(self):
        for options in ({}, {"backward_passes_per_step": 2}):
            with self.subTest(options):
                histories, weights = zip(*[self.history(make, **options) for make in KINDS.values()])
                with tf.Graph().as_default():
                    history, of_graph = self.history(KINDS["legacy"], **options)
                for eager in histories:
                    np.testing.assert_allclose(history["lr"], eager["lr"])
                    np.testing.assert_allclose(history["loss"], histories[1]["loss"], rtol=1e-4)
                for mine, expected in zip(of_graph, weights[1]):
                    np.testing.assert_allclose(mine, expected, rtol=1e-3, atol=1e-5)
                everyone = htf.allgather_object([history, [each.tolist() for each in of_graph]])
                self.assertTrue(all(each == everyone[0] for each in everyone))

    def test_graphs_take_older_optimizers(self):
        with tf.Graph().as_default():
            with self.assertRaisesRegex(errors.Unsupported, r"use tf\.keras\.optimizers\.legacy\.SGD"):
                hvd.DistributedOptimizer(KINDS["new"](1.0))


if __name__ == "__main__":
    support.main()
