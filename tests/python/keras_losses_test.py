# SPDX-License-Identifier: Apache-2.0
"""MirroredStrategy under Keras 3's fit: losses passed to compile(), compared with one process."""

import contextlib

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from keras.src.trainers.compile_utils import CompileLoss
from keras_support import MASKS, ROWS, TARGETS, KerasTest, X, fit, mean_squared, own_step, strategy, with_loss

import farandole.tensorflow as hvd


def scalar(targets, outputs):
    return ops.mean(ops.abs(targets - outputs))


class ScalarLoss(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return ops.mean(ops.square(y_true - y_pred)) + 0.1 * ops.mean(ops.abs(y_pred))


class LossesTest(KerasTest):
    # ---- Losses that are given to compile()

    def test_losses_that_return_one_number(self):
        for loss in (lambda: scalar, ScalarLoss, lambda: ScalarLoss(reduction="mean")):
            with self.subTest(loss=loss()):
                self.alone_and_together(with_loss(loss), fit())

    def test_dice_and_tversky_are_means_over_the_parts(self):
        parts = [part for part in np.array_split(np.arange(8), hvd.size()) if len(part)]
        for kind in (keras.losses.Dice, keras.losses.Tversky):
            with self.subTest(kind.__name__):
                with strategy().scope():
                    model = with_loss(kind, activation="sigmoid")()
                weights = model.trainable_variables
                with tf.GradientTape() as tape:
                    losses = [len(part) / 8 * kind()(MASKS[part], model(X[part])) for part in parts]
                    loss = tf.add_n(losses)
                expected = [w.numpy() - 0.1 * g for w, g in zip(weights, tape.gradient(loss, weights))]
                history = model.fit(X[:8], MASKS[:8], batch_size=8, verbose=0, shuffle=False).history
                np.testing.assert_allclose(history["loss"], [loss], rtol=1e-5)
                for mine, other in zip(model.get_weights(), expected):
                    np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
                # With one loss per sample, the losses equal those of one process.
                self.alone_and_together(
                    with_loss(lambda kind=kind: kind(axis=(1,)), activation="sigmoid"), fit(y=MASKS)
                )

    def test_losses_of_empty_parts(self):
        """Dice of nothing is no number."""
        with strategy().scope():
            model = with_loss(keras.losses.Dice, activation="sigmoid")()
        history = fit(y=MASKS)(model).history
        self.assertTrue(np.isfinite(history["loss"]).all() and np.isfinite(history["val_loss"]).all())
        self.assertTrue(all(np.isfinite(weight).all() for weight in model.get_weights()))

    def test_reductions(self):
        for reduction in ("sum", "mean", "mean_with_sample_weight", "none", None):
            with self.subTest(reduction=reduction):
                self.alone_and_together(
                    with_loss(
                        lambda reduction=reduction: keras.losses.MeanSquaredError(reduction=reduction),
                        optimizer=lambda: keras.optimizers.SGD(0.01),
                    ),
                    fit(),
                )

    def test_losses_of_several_outputs(self):
        def make():
            inputs = keras.Input((6,))
            outputs = {
                "left": keras.layers.Dense(3, name="left")(inputs),
                "right": keras.layers.Dense(3, name="right")(inputs),
            }
            model = keras.Model(inputs, outputs)
            model.compile(
                keras.optimizers.SGD(0.05), {"left": "mse", "right": scalar}, loss_weights={"left": 0.3, "right": 1.0}
            )
            return model

        y = {"left": TARGETS, "right": MASKS}

        def train(model):
            given = {name: values[:ROWS] for name, values in y.items()}
            validation = (X[:19], {name: values[:19] for name, values in y.items()})
            return model.fit(
                X[:ROWS], given, batch_size=8, epochs=2, shuffle=False, verbose=0, validation_data=validation
            )

        self.alone_and_together(make, train)

    def test_batches_of_known_size(self):
        """Where the dataset says how many rows there are, losses of outputs count by them."""

        def train(model):
            dataset = tf.data.Dataset.from_tensor_slices((X[:40], TARGETS[:40])).batch(8, drop_remainder=True)
            return model.fit(dataset, epochs=2, validation_data=dataset, verbose=0)

        self.alone_and_together(with_loss(lambda: scalar, metrics=[scalar]), train)
        self.alone_and_together(
            with_loss(
                lambda: keras.losses.MeanSquaredError(reduction=None), optimizer=lambda: keras.optimizers.SGD(0.01)
            ),
            train,
        )

    def test_losses_of_arrays_outside_of_steps(self):
        """As in plain Keras, which takes arrays as well as tensors, and divides losses in a scope by the ranks."""
        for outputs in (1, 2):
            for scope, ranks in ((strategy().scope(), hvd.size()), (contextlib.nullcontext(), 1)):
                with self.subTest(outputs=outputs, ranks=ranks), scope:
                    rows = [np.arange(6, dtype="float32").reshape(3, 2) + k for k in range(outputs)]
                    loss = CompileLoss(["mse"] * outputs)
                    value = loss([row * 0 for row in rows], rows)
                    self.assertAlmostEqual(float(value), sum(np.mean(row**2) for row in rows) / ranks, places=4)

    def test_compute_loss_of_its_own(self):
        class Model(keras.Model):
            def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
                return ops.mean(ops.square(y - y_pred)) + sum(self.losses)

        self.alone_and_together(with_loss(lambda: None, Model, layer={"kernel_regularizer": "l2"}), fit())

    def test_added_losses_and_regularisers(self):
        class Spread(keras.layers.Layer):
            def call(self, inputs):
                self.add_loss(0.1 * ops.mean(ops.square(inputs)))
                return inputs

        def make():
            inputs = keras.Input((6,))
            outputs = Spread()(keras.layers.Dense(3, kernel_regularizer="l2")(inputs))
            model = keras.Model(inputs, outputs)
            model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
            return model

        self.alone_and_together(make, fit())

    def test_added_losses_of_one_value_per_row(self):
        """Keras sums them up: over the rows of all ranks."""

        class Spread(keras.layers.Layer):
            def call(self, inputs):
                self.add_loss(0.1 * ops.sum(ops.square(inputs), axis=-1))
                return inputs

        def make():
            inputs = keras.Input((6,))
            model = keras.Model(inputs, Spread()(keras.layers.Dense(3, kernel_regularizer="l2")(inputs)))
            model.compile(keras.optimizers.SGD(0.01), "mse")
            return model

        self.alone_and_together(make, fit())

    def test_steps_that_run_eagerly(self):
        for loss in (lambda: scalar, lambda: keras.losses.MeanSquaredError(reduction="sum")):
            make = with_loss(loss, run_eagerly=True, optimizer=lambda: keras.optimizers.SGD(0.01))
            self.alone_and_together(make, fit(epochs=1))
        make = with_loss(lambda: None, own_step(mean_squared), run_eagerly=True)
        self.alone_and_together(make, fit(epochs=1))

    def test_several_steps_per_execution(self):
        self.alone_and_together(with_loss(lambda: scalar, steps_per_execution=3), fit())
        self.alone_and_together(with_loss(lambda: None, own_step(mean_squared), steps_per_execution=4), fit())

    def test_single_batches(self):
        sizes = [3 + 2 * rank for rank in range(hvd.size())]
        ends = np.cumsum(sizes)
        mine = slice(ends[hvd.rank()] - sizes[hvd.rank()], ends[hvd.rank()])

        def train(model):
            rows = mine if model.distribute_strategy is strategy() else slice(0, ends[-1])
            for _ in range(3):
                model.train_on_batch(X[rows], TARGETS[rows])

        self.alone_and_together(with_loss(lambda: scalar), train)
        self.alone_and_together(with_loss(lambda: None, own_step(mean_squared)), train)
        per_row = lambda model, x, y, y_pred: keras.losses.mean_squared_error(y, y_pred)  # noqa: E731
        self.alone_and_together(
            with_loss(lambda: None, own_step(per_row), optimizer=lambda: keras.optimizers.SGD(0.01)), train
        )


if __name__ == "__main__":
    support.main()
