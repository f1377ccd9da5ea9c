# SPDX-License-Identifier: Apache-2.0
"""The list of functions of Keras and TensorFlow that the package replaces: a test for each entry."""

import dataclasses
import pathlib
from unittest import mock

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras_support import KerasTest, strategy

import farandole.tensorflow as hvd
from farandole import errors
from farandole.tensorflow.strategy import _patches, _private_names, _tapes

HERE = pathlib.Path(__file__).resolve().parent
SCOPE = strategy().scope()  # installs the patches


class PatchesTest(KerasTest):
    def check_entry(self, patch):
        function = _private_names.find(patch.library, patch.module, patch.name)
        self.assertTrue(callable(function))
        self.assertEqual(function.__qualname__.rpartition(".")[2], patch.name.rpartition(".")[2])
        self.assertEqual(hasattr(function, "__wrapped__"), patch.shows_base)
        self.assertTrue(patch.why)
        self.assertTrue((HERE / patch.test).exists(), patch.test)
        absent = dataclasses.replace(patch, name=f"{patch.name}_of_another_version")
        with mock.patch.object(_patches, "PATCHES", (absent,)):
            with self.assertRaisesRegex(ImportError, rf"{absent.name}, which {patch.library.name} \S+ does not have"):
                _patches.check()

    def test_own_step_of_keras_weights_the_loss_only(self):
        """The gradients of Keras' own train_step need no weights, because the loss has the rank's weight."""
        self.need_several_ranks()
        for make in (lambda each: each, keras.optimizers.LossScaleOptimizer):
            with strategy().scope():
                model = keras.Sequential([keras.layers.Dense(1)])
                model.compile(make(keras.optimizers.SGD()), "mse")
            with mock.patch.object(_tapes, "times", side_effect=_tapes.times) as times:
                model.fit(np.ones((4, 2), np.float32), np.ones((4, 1), np.float32), batch_size=4, verbose=0)
            self.assertEqual(times.call_count, 0)

    def test_loss_scaling_keeps_the_weights_of_gradients(self):
        """Gradients that another tape records carry their weighted form, which loss scaling would drop."""

        class Model(keras.Sequential):
            def train_step(self, data):
                x, y = data
                with tf.GradientTape(), tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
                    gradients = tape.gradient(loss, self.trainable_weights)
                self.optimizer.apply(gradients, self.trainable_weights)
                return {"rows": tf.shape(x)[0]}

        def make():
            model = Model([keras.Input((2,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=1.0), "mse")
            return model

        x = np.arange(6, dtype=np.float32).reshape(3, 2)  # an uneven batch for two ranks
        self.alone_and_together(make, lambda model: model.fit(x, x[:, :1] ** 2, batch_size=3, verbose=0) and None)

    def test_output_losses_in_loops_are_means_of_all_rows(self):
        """Keras weights them by the number of rows only where that is known before the step."""
        with strategy().scope():
            inputs = keras.Input((1,))
            outputs = [keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(inputs) for _ in range(2)]
            model = keras.Model(inputs, outputs)
            model.compile("sgd", ["mse", "mse"])

        def step(x):
            model.compute_loss(x=x, y=[tf.zeros_like(x)] * 2, y_pred=model(x, training=True))

        def run(x):
            strategy().run(step, args=(x,))

        x = tf.fill((hvd.rank() + 1, 1), hvd.rank() + 1.0)
        rows = np.arange(1, hvd.size() + 1)
        for train in (run, tf.function(run, input_signature=[tf.TensorSpec((None, 1))])):
            model.reset_metrics()
            train(x)
            for metric in model._compile_loss.metrics:
                np.testing.assert_allclose(metric.result(), np.sum(rows**3) / np.sum(rows), rtol=1e-6)

    def test_errors_in_graphs_are_classes_of_the_package(self):
        self.need_several_ranks()

        class Differing(keras.layers.Layer):
            def call(self, inputs):
                return inputs + 0.0 * tf.reduce_sum(hvd.allreduce(tf.ones(hvd.rank() + 1), op=hvd.Sum))

        with strategy().scope():
            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1), Differing()])
            model.compile("sgd", "mse", jit_compile=False)
        x, y = np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)
        for call in (
            lambda: model.fit(x, y, verbose=0),
            lambda: model.evaluate(x, y, verbose=0),
            lambda: model.predict(x, verbose=0),
            lambda: model.train_on_batch(x, y),
            lambda: model.test_on_batch(x, y),
            lambda: model.predict_on_batch(x),
        ):
            with self.assertRaises(errors.Mismatch):
                call()

    def test_optimizers_without_momenta_are_adopted(self):
        """Such an optimizer, if it was made outside of the scope, creates no variable by which it could be recognised."""
        for make in (lambda each: each, keras.optimizers.LossScaleOptimizer):
            optimizer = make(keras.optimizers.SGD(0.1 * (1 + hvd.rank())))
            with strategy().scope():
                model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])

            def step(x):
                gradients = [tf.ones_like(each.value) for each in model.trainable_weights]
                optimizer.apply(gradients, model.trainable_weights)

            strategy().run(step, args=(tf.ones((4, 2)),))
            self.assertIs(optimizer._distribution_strategy, strategy())
            self.assert_same_on_all_ranks(model.get_weights())

    def test_single_batches_by_different_functions(self):
        self.need_several_ranks()
        with strategy().scope():
            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        x, y = np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)
        calls = {
            "train_on_batch": lambda: model.train_on_batch(x, y),
            "test_on_batch": lambda: model.test_on_batch(x, y),
            "predict_on_batch": lambda: model.predict_on_batch(x),
        }
        names = list(calls)
        for pair in zip(names, names[1:] + names[:1]):
            with self.assertRaises(errors.Mismatch) as caught:
                calls[pair[min(hvd.rank(), 1)]]()
            for name in pair:
                self.assertIn(f"of {name}()", str(caught.exception))

    def test_jacobians_of_variables_are_this_ranks(self):
        class Model(keras.Sequential):
            def train_step(self, data):
                with tf.GradientTape() as tape:
                    target = tf.reduce_mean(self(data, training=True), axis=0)
                return tape.jacobian(target, self.trainable_weights[0].value)

        with strategy().scope():
            model = Model([keras.Input((2,)), keras.layers.Dense(1)])
        rows = tf.ones((hvd.rank() + 1, 2))
        step = tf.function(lambda: strategy().run(model.train_step, args=(rows,)))
        np.testing.assert_allclose(np.ravel(step()), [1.0, 1.0])

    def test_both_modules_of_nn(self):
        """tf.compat.v1.nn has functions of its own, which must scale in a step of a model as those of tf.nn."""

        class Model(keras.Model):
            def train_step(self, data):
                averages = [nn.compute_average_loss(data) for nn in (tf.nn, tf.compat.v1.nn)]
                return averages + [nn.scale_regularization_loss(2.0 * data[0]) for nn in (tf.nn, tf.compat.v1.nn)]

        results = strategy().run(Model().train_step, args=(tf.constant([1.0, 3.0]),))
        self.assertEqual([float(each) for each in results], [2.0] * 4)

    def test_installed_once(self):
        before = keras.Model.fit
        with strategy().scope():
            pass
        self.assertIs(keras.Model.fit, before)

    def test_tested_versions(self):
        for library, version in ((_private_names.KERAS, keras.__version__), (_private_names.TENSORFLOW, tf.__version__)):
            self.assertEqual(library.version(), version)
            self.assertIn(f"{library.first[0]}.{library.first[1]}", library.tested())
        too_old = dataclasses.replace(_private_names.KERAS, first=(99, 0))
        with mock.patch.object(_private_names, "KERAS", too_old):
            with self.assertRaisesRegex(ImportError, "known to work with Keras 99.0"):
                _patches.check()

    def test_another_backend(self):
        with mock.patch.object(keras.config, "backend", lambda: "jax"):
            with self.assertRaisesRegex(errors.Unsupported, "not on jax"):
                _patches.install.__wrapped__()


def _add_tests():
    for number, patch in enumerate(_patches.PATCHES + _patches.OTHER_PATCHES):
        name = f"test_{number:02}_{patch.name.replace('.', '_')}"
        setattr(PatchesTest, name, lambda self, patch=patch: self.check_entry(patch))


_add_tests()

if __name__ == "__main__":
    support.main()
