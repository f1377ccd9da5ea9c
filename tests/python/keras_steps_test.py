# SPDX-License-Identifier: Apache-2.0
"""MirroredStrategy under Keras 3's fit: custom training steps and models of the guides, compared with one process."""

import contextlib
import unittest.mock

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from keras_support import RANDOM, TARGETS, KerasTest, X, fit, mean_squared, network, own_step, strategy, with_loss

import farandole.tensorflow as hvd
from farandole import _engine


class StepsTest(KerasTest):
    @contextlib.contextmanager
    def warnings(self, about):
        """The texts that are logged meanwhile and hold the words."""
        said = []

        def log(level, text):
            if about in text:
                said.append(text)

        with unittest.mock.patch.object(_engine, "log", log):
            yield said

    def test_own_steps(self):
        losses = {
            "mean": mean_squared,
            "one for each row": lambda model, x, y, y_pred: keras.losses.mean_squared_error(y, y_pred),
            "compute_loss": lambda model, x, y, y_pred: model.compute_loss(x, y, y_pred),
            "loss of Keras": lambda model, x, y, y_pred: keras.losses.MeanSquaredError()(y, y_pred),
            "sum of Keras": lambda model, x, y, y_pred: keras.losses.MeanSquaredError(reduction="sum")(y, y_pred),
            "kept dimension": lambda model, x, y, y_pred: tf.reduce_mean(tf.square(y - y_pred), keepdims=True)[0],
            "average": lambda model, x, y, y_pred: tf.nn.compute_average_loss(
                keras.losses.mean_squared_error(y, y_pred)
            )
            + tf.nn.scale_regularization_loss(tf.reduce_sum(tf.square(model.trainable_weights[0]))),
        }
        for name, loss in losses.items():
            with self.subTest(name):
                make = with_loss(
                    lambda: "mse", own_step(loss), optimizer=lambda: keras.optimizers.SGD(0.01), auto_scale_loss=False
                )
                self.alone_and_together(make, fit())

    def test_an_average_over_the_batch_that_is_given(self):
        def loss(model, x, y, y_pred):
            return tf.nn.compute_average_loss(keras.losses.mean_squared_error(y, y_pred), global_batch_size=8)

        self.alone_and_together(with_loss(lambda: None, own_step(loss)), fit())

    def test_own_step_that_extends_that_of_keras(self):
        class Model(keras.Model):
            def train_step(self, data):
                logs = super().train_step(data)
                x, y = data
                with tf.GradientTape() as tape:
                    loss = ops.mean(ops.abs(y - self(x, training=True)))
                self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
                return logs

        self.alone_and_together(with_loss(lambda: "mse", Model), fit())

    def test_a_scaled_loss_that_is_not_used(self):
        def step(scales):
            class Model(keras.Model):
                def train_step(self, data):
                    x, y = data
                    with tf.GradientTape() as tape:
                        loss = ops.mean(ops.square(y - self(x, training=True)))
                        scaled = self.optimizer.scale_loss(loss)
                    self.optimizer.apply(
                        tape.gradient(scaled if scales else loss, self.trainable_weights), self.trainable_weights
                    )
                    return {"rows": tf.shape(x)[0]}

            return Model

        for scales in (True, False):
            make = with_loss(lambda: None, step(scales))
            self.alone_and_together(make, lambda model: fit(validation=False)(model) and None)

    def test_accumulated_gradients(self):
        make = with_loss(
            lambda: None,
            own_step(mean_squared),
            optimizer=lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=3, global_clipnorm=0.5),
        )
        self.alone_and_together(make, fit())

    def test_half_precision(self):
        class Model(keras.Model):
            def train_step(self, data):
                x, y = data
                with tf.GradientTape() as tape:
                    loss = ops.mean(ops.square(y - ops.cast(self(x, training=True), "float32")))
                    scaled = self.optimizer.scale_loss(loss)
                self.optimizer.apply(tape.gradient(scaled, self.trainable_weights), self.trainable_weights)
                return {"rows": tf.shape(x)[0]}

        keras.config.set_dtype_policy("mixed_float16")
        try:
            for base in (Model, keras.Model):

                def make(base=base):
                    model = network(base)
                    # A small scale: the gradient of a part may overflow where that of all rows does not.
                    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=256.0)
                    model.compile(optimizer, "mse")
                    return model

                _, together = self.alone_and_together(
                    make, lambda model: fit(validation=False)(model) and None, rtol=0.02, atol=0.01
                )
                self.assertEqual(int(together.optimizer.iterations.numpy()), 12)
        finally:
            keras.config.set_dtype_policy("float32")

    def test_half_precision_overflow_in_a_custom_step(self):
        keras.config.set_dtype_policy("mixed_float16")
        try:
            with strategy().scope():
                model = with_loss(lambda: None, own_step(mean_squared))()
            self.assertIsInstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
            x = X.copy()
            x[63] = np.nan
            before = model.get_weights()
            model.fit(x, TARGETS, batch_size=64, shuffle=False, verbose=0)
            for old, new in zip(before, model.get_weights()):
                np.testing.assert_array_equal(old, new)
        finally:
            keras.config.set_dtype_policy("float32")

    # ---- Models of the guides

    def test_gan(self):
        class Gan(keras.Model):
            def __init__(self):
                super().__init__()
                self.discriminator = keras.Sequential(
                    [keras.Input((6,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)]
                )
                self.generator = keras.Sequential([keras.Input((6,)), keras.layers.Dense(6)])
                self.d_loss_tracker = keras.metrics.Mean(name="d_loss")
                self.g_loss_tracker = keras.metrics.Mean(name="g_loss")

            @property
            def metrics(self):
                return [self.d_loss_tracker, self.g_loss_tracker]

            def compile(self, d_optimizer, g_optimizer, loss_fn):
                super().compile()
                self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn

            def train_step(self, data):
                real, noise = data
                batch_size = tf.shape(real)[0]
                labels = tf.concat([tf.ones((batch_size, 1)), tf.zeros((batch_size, 1))], axis=0)
                combined = tf.concat([self.generator(noise), real], axis=0)
                with tf.GradientTape() as tape:
                    d_loss = self.loss_fn(labels, self.discriminator(combined))
                gradients = tape.gradient(d_loss, self.discriminator.trainable_weights)
                self.d_optimizer.apply(gradients, self.discriminator.trainable_weights)
                with tf.GradientTape() as tape:
                    fooled = self.discriminator(self.generator(noise))
                    g_loss = self.loss_fn(tf.zeros((batch_size, 1)), fooled)
                gradients = tape.gradient(g_loss, self.generator.trainable_weights)
                self.g_optimizer.apply(gradients, self.generator.trainable_weights)
                self.d_loss_tracker.update_state(d_loss)
                self.g_loss_tracker.update_state(g_loss)
                return {"d_loss": self.d_loss_tracker.result(), "g_loss": self.g_loss_tracker.result()}

        def make():
            model = Gan()
            loss = keras.losses.BinaryCrossentropy(from_logits=True)
            model.compile(keras.optimizers.Adam(0.003), keras.optimizers.SGD(0.01), loss)
            return model

        noise = RANDOM.normal(size=(64, 6)).astype(np.float32)
        self.alone_and_together(make, fit(y=noise, validation=False), rtol=1e-4, atol=1e-5)

    def test_vae(self):
        class Vae(keras.Model):
            def __init__(self):
                super().__init__()
                inputs = keras.Input((6,))
                self.encoder = keras.Model(inputs, [keras.layers.Dense(2)(inputs), keras.layers.Dense(2)(inputs)])
                self.decoder = keras.Sequential([keras.Input((2,)), keras.layers.Dense(6, "sigmoid")])
                names = ("total_loss", "reconstruction_loss", "kl_loss")
                self.trackers = [keras.metrics.Mean(name=name) for name in names]
                self.built = True

            @property
            def metrics(self):
                return self.trackers

            def train_step(self, data):
                x, noise = data
                with tf.GradientTape() as tape:
                    mean, log_variance = self.encoder(x)
                    outputs = self.decoder(mean + noise[:, :2] * ops.exp(log_variance / 2))
                    reconstruction = ops.mean(ops.sum(ops.square(x - outputs), axis=1))
                    kl = -0.5 * (1 + log_variance - ops.square(mean) - ops.exp(log_variance))
                    kl = ops.mean(ops.sum(kl, axis=1))
                    total = reconstruction + kl
                gradients = tape.gradient(total, self.trainable_weights)
                self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
                for tracker, value in zip(self.trackers, (total, reconstruction, kl)):
                    tracker.update_state(value)
                return {tracker.name: tracker.result() for tracker in self.trackers}

        def make():
            model = Vae()
            model.compile(keras.optimizers.Adam(0.01))
            return model

        noise = RANDOM.normal(size=(64, 6)).astype(np.float32)
        self.alone_and_together(make, fit(y=noise, validation=False), rtol=1e-4, atol=1e-5)

    def test_wgan_with_a_gradient_penalty(self):
        class Critic(keras.Model):
            @property
            def metrics(self):
                return [self.tracker]

            def train_step(self, data):
                real, fake = data
                with tf.GradientTape() as tape:
                    middle = (real + fake) / 2
                    with tf.GradientTape() as inner:
                        inner.watch(middle)
                        score = self(middle, training=True)
                    norm = tf.norm(inner.gradient(score, [middle])[0] + 1e-6, axis=1)
                    penalty = tf.reduce_mean((norm - 1.0) ** 2)
                    cost = tf.reduce_mean(self(fake)) - tf.reduce_mean(self(real)) + 10.0 * penalty
                self.optimizer.apply(tape.gradient(cost, self.trainable_weights), self.trainable_weights)
                self.tracker.update_state(cost)
                return {"cost": self.tracker.result()}

        def make():
            model = network(Critic)
            model.tracker = keras.metrics.Mean(name="cost")
            model.compile(keras.optimizers.SGD(0.01))
            return model

        fake = RANDOM.normal(size=(64, 6)).astype(np.float32)
        self.alone_and_together(make, fit(y=fake, validation=False), rtol=1e-4, atol=1e-5)

    def test_tapes(self):
        """Of several losses, that are persistent, and with weights for each row."""

        class Model(keras.Model):
            def train_step(self, data):
                x, y = data
                first, second = self.trainable_weights[:2], self.trainable_weights[2:]
                with tf.GradientTape(persistent=True) as tape:
                    y_pred = self(x, training=True)
                    rows = tf.reduce_sum(tf.square(y - y_pred), axis=1)
                    mean = tf.reduce_mean(tf.abs(y - y_pred))
                left = tape.gradient([rows, mean], first, unconnected_gradients=tf.UnconnectedGradients.ZERO)
                right = tape.gradient(rows, second, output_gradients=tf.abs(x[:, 0]))
                self.optimizer.apply([*left, *right], [*first, *second])
                return {"rows": tf.shape(x)[0]}

        make = with_loss(lambda: None, Model, optimizer=lambda: keras.optimizers.SGD(0.01))
        self.alone_and_together(make, lambda model: fit(validation=False)(model) and None)

    # ---- Functions that are no step of a model

    def test_functions_of_tf_distribute_stay_sums(self):
        for reduce_by_hand in (False, True):
            keras.utils.set_random_seed(3)
            alone = network()
            weights = alone.trainable_variables
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(keras.losses.mean_squared_error(TARGETS[:8], alone(X[:8])))
            expected = [w.numpy() - 0.1 * g for w, g in zip(weights, tape.gradient(loss, weights))]
            with strategy().scope():
                model = network()
                optimizer = keras.optimizers.SGD(0.1)
                tracker = keras.metrics.Mean()
                optimizer.build(model.trainable_variables)
            model.set_weights(alone.get_weights())

            def replica_step(x, y):
                with tf.GradientTape() as tape:
                    losses = keras.losses.mean_squared_error(y, model(x, training=True))
                    loss = (
                        tf.reduce_sum(losses) / 8
                        if reduce_by_hand
                        else tf.nn.compute_average_loss(losses, global_batch_size=8)
                    )
                optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
                tracker.update_state(loss)
                return loss

            @tf.function
            def train(x, y):
                return strategy().reduce("SUM", strategy().run(replica_step, args=(x, y)), axis=None)

            dataset = tf.data.Dataset.from_tensor_slices((X[:8], TARGETS[:8])).batch(8)
            for x, y in strategy().experimental_distribute_dataset(dataset):
                np.testing.assert_allclose(train(x, y), loss, rtol=1e-5)
            for mine, other in zip(model.get_weights(), expected):
                np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(tracker.result(), loss / hvd.size(), rtol=1e-5)

    def test_division_by_the_number_of_ranks_warns(self):
        self.need_several_ranks()

        def loss(model, x, y, y_pred):
            return ops.mean(ops.square(y - y_pred)) / strategy().num_replicas_in_sync

        with self.warnings("num_replicas_in_sync") as said:
            with strategy().scope():
                model = with_loss(lambda: "mse")()
            fit()(model)  # Keras reads it too
            self.assertEqual(said, [])
            for _ in range(2):
                with strategy().scope():
                    model = with_loss(lambda: None, own_step(loss))()
                fit()(model)
        places = [text.partition(":")[0].rpartition("/")[2] for text in said]
        self.assertEqual(places, ["keras_steps_test.py"] * (hvd.rank() == 0))

    def test_a_sum_over_rows_is_warned_of(self):
        self.need_several_ranks()
        means = {
            "with a divisor": lambda model, x, y, y_pred: ops.sum(ops.square(y - y_pred))
            / ops.cast(ops.size(y), "float32"),
            "of Keras": lambda model, x, y, y_pred: model.compute_loss(x, y, y_pred),
            "of weights": lambda model, x, y, y_pred: mean_squared(model, x, y, y_pred)
            + 0.1 * ops.sum(ops.square(model.trainable_weights[0])),
            "average": lambda model, x, y, y_pred: tf.nn.compute_average_loss(
                keras.losses.mean_squared_error(y, y_pred), global_batch_size=8
            ),
        }

        def by_hand(model, x, y, y_pred):
            return ops.sum(keras.losses.mean_squared_error(y, y_pred)) * 0.5 / 8 + 0.1

        with self.warnings("sum over the rows") as said:
            for loss in [*means.values(), by_hand]:
                self.assertEqual(said, [])
                with strategy().scope():
                    model = with_loss(lambda: keras.losses.MeanSquaredError(reduction="sum"), own_step(loss))()
                fit(validation=False, epochs=1)(model)
        self.assertEqual(len(said), 1 if hvd.rank() == 0 else 0)


if __name__ == "__main__":
    support.main()
