# SPDX-License-Identifier: Apache-2.0
"""MirroredStrategy with a custom training step that calls collectives, when ranks have uneven parts of a batch or none:
in float64, compared with one process that has the whole batches."""

import unittest.mock

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras_support import Float64Test, strategy

import farandole.tensorflow as hvd
from farandole import _engine, errors

X = np.random.default_rng(12).normal(size=(41, 5))
ONES = np.ones((1, 3))
NUMBERS = np.arange(len(X)) % 8  # of each row in its batch


def all_of(z):
    """The rows of all ranks."""
    if not tf.distribute.has_strategy():
        return z
    return tf.distribute.get_replica_context().all_gather(z, axis=0)


def all_of_by_horovod(z):
    return hvd.allgather(z) if tf.distribute.has_strategy() else z


def sum_of_all(value):
    return tf.distribute.get_replica_context().all_reduce("SUM", value) if tf.distribute.has_strategy() else value


def sum_of_all_by_horovod(value):
    return hvd.allreduce(value, op=hvd.Sum) if tf.distribute.has_strategy() else value


def contrastive(gather):
    """Each row against all rows of the batch. y: the number of the row in the batch."""

    def loss_of(model, x, y):
        first, second = (tf.math.l2_normalize(model(x * factor, training=True), axis=1) for factor in (1.0, 1.1))
        logits = tf.matmul(first, gather(second), transpose_b=True) / 0.5
        return tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True))

    return loss_of


def of_parts_of_sums(model, x, y):
    """Sums over the batch of 6 numbers, which are dealt out, put together, and sent by rank 0."""
    z = model(x, training=True)
    sums = tf.reduce_sum(tf.concat([z, z * z, tf.sin(z)], axis=1), axis=0)
    if tf.distribute.has_strategy():
        twice = 2 * hvd.reducescatter(sums, op=hvd.Sum)
        sums = hvd.broadcast(hvd.allgather(twice - hvd.size() * hvd.reducescatter(sums, op=hvd.Average)), 0)
    return tf.reduce_mean(tf.square(z - tf.cast(y, z.dtype)[:, tf.newaxis] / 8)) + tf.reduce_sum(tf.square(sums)) / 100


def of_whitened(total):
    def loss_of(model, x, y):
        z = model(x, training=True)
        count = total(tf.cast(tf.shape(z)[0], z.dtype))
        mean = total(tf.reduce_sum(z, axis=0)) / count
        variance = total(tf.reduce_sum(tf.square(z - mean), axis=0)) / count
        return tf.reduce_mean(tf.square((z - mean) * tf.math.rsqrt(variance + 0.1) - tf.cast(y, z.dtype)[:, tf.newaxis] / 8))

    return loss_of


def mean_squares(p, y):
    return tf.reduce_mean(tf.square(p - y))


def mean_loss(model, x, y):
    return tf.reduce_mean(tf.square(model(x, training=True) - tf.cast(y, "float64")[:, tf.newaxis] / 8))


def loss_of_rows(model, x, y):
    return keras.losses.mean_squared_error(tf.cast(y, "float64")[:, tf.newaxis] / 8, model(x, training=True))


def in_a_function(loss_of):
    return lambda model, x, y: tf.function(lambda x, y: loss_of(model, x, y))(x, y)


def with_penalty(model, x, y):
    """Of the gradients of each row's score, which other ranks' rows are in."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        score = model(x, training=True)[:, 0]
    norms = tf.norm(tape.gradient(score, x) + 1e-3, axis=1)
    return tf.reduce_mean(tf.square(norms - 1)) + mean_loss(model, x, y)


def stepping(loss_of, normalised=False, run_eagerly=False):
    """A function that makes a model with an own train_step."""

    def make():
        class Model(keras.Model):
            def train_step(self, data):
                x, y = data
                with tf.GradientTape() as tape:
                    loss = loss_of(self, x, y)
                self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
                return {"rows": tf.constant(0)}

        inputs = keras.Input((5,))
        hidden = keras.layers.Dense(3, "tanh")(inputs)
        if normalised:
            hidden = keras.layers.BatchNormalization(synchronized=True)(hidden)
        model = Model(inputs, keras.layers.Dense(2)(hidden))
        model.compile(keras.optimizers.SGD(0.5), run_eagerly=run_eagerly)
        return model

    return make


class CollectivesTest(Float64Test):
    def test_in_own_steps(self):
        cases = {
            "synchronised normalisation": (mean_loss, True),
            "synchronised normalisation, a loss for each row": (loss_of_rows, True),
            "synchronised normalisation, in a function": (in_a_function(mean_loss), True),
            "synchronised normalisation, penalised": (with_penalty, True),
            "all_gather": (contrastive(all_of), False),
            "allgather of Horovod": (contrastive(all_of_by_horovod), False),
            "all_reduce": (of_whitened(sum_of_all), False),
            "parts of sums": (of_parts_of_sums, False),
            "allreduce of Horovod": (of_whitened(sum_of_all_by_horovod), False),
        }
        for name, case in cases.items():
            with self.subTest(name):
                self.fit_as_in_one_process(stepping(*case), X, NUMBERS, epochs=1)

    def test_in_own_steps_that_run_eagerly(self):
        for case in ((mean_loss, True), (contrastive(all_of), False)):
            self.fit_as_in_one_process(stepping(*case, run_eagerly=True), X, NUMBERS, epochs=1)


# ---- Gradients on the way to others, and without a tape -------------------------------------------------------------


class WaysTest(Float64Test):
    def test_a_step_on_the_way(self):
        """The loss after a step of gradient descent on the rank's rows, which are the same on all ranks here."""

        def after_a_step(model, x, y):
            kernel, bias = model.layers[-1].kernel, model.layers[-1].bias
            hidden = model.layers[1](x)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.matmul(ONES, kernel) + bias))
            steps = [value - 0.1 * step for value, step in zip((kernel, bias), tape.gradient(loss, [kernel, bias]))]
            outputs = tf.matmul(hidden, steps[0]) + steps[1]
            return tf.reduce_mean(tf.square(outputs - tf.cast(y, "float64")[:, tf.newaxis] / 8))

        self.fit_as_in_one_process(stepping(after_a_step, run_eagerly=True), X, NUMBERS, batch_size=10)

    def test_gradients_that_another_tape_records(self):
        class Model(keras.Model):
            def train_step(self, data):
                x, y = data
                first, second = self.trainable_variables[:2], self.trainable_variables[2:]
                with tf.GradientTape() as outer:
                    with tf.GradientTape() as inner:
                        loss = mean_loss(self, x, y)
                    gradients = inner.gradient(loss, first)
                    other = tf.reduce_mean(tf.abs(self(x, training=True)))
                self.optimizer.apply([*gradients, *outer.gradient(other, second)], [*first, *second])
                return {"rows": tf.constant(0)}

        self.fit_as_in_one_process(self.model_of(Model), X, NUMBERS)

    def test_gradients_of_no_tape(self):
        class Model(keras.Model):
            def train_step(self, data):
                x, _ = data
                weights = self.trainable_variables
                self.optimizer.apply([tf.reduce_mean(x) * tf.ones_like(each) for each in weights], weights)
                return {"rows": tf.constant(0)}

        self.fit_as_in_one_process(self.model_of(Model), X, NUMBERS)

    def test_jacobians_are_this_ranks(self):
        """Products of the jacobian of each row's output with itself, which the step adds up by means."""

        class Model(keras.Model):
            def train_step(self, data):
                x, _ = data
                with tf.GradientTape() as tape:
                    outputs = self(x, training=True)
                jacobian = tape.jacobian(outputs, self.trainable_variables[0])
                self.tracker.update_state(tf.reduce_mean(tf.square(jacobian)), sample_weight=tf.shape(x)[0])
                return {"squares": self.tracker.result()}

        def make():
            model = self.model_of(Model)()
            model.tracker = keras.metrics.Mean(name="squares")
            return model

        self.fit_as_in_one_process(make, X[:40], NUMBERS[:40], batch_size=10)  # TensorFlow has none of no rows

    def test_a_tape_goes_on_where_another_has_ended(self):
        """The input gradient of the later layers is the output gradient of the earlier layers."""
        cases = {
            "beside variables": lambda tape, loss, h, late: tape.gradient(loss, [h, *late]),
            "alone": lambda tape, loss, h, late: [tape.gradient(loss, h), *tape.gradient(loss, late)],
        }
        losses = {
            "mean": mean_squares,
            "for each row": lambda p, y: tf.reduce_mean(tf.square(p - y), axis=1) / 8,
            "of all ranks": lambda p, y: tf.reduce_mean(tf.square(p - y)) + tf.reduce_mean(tf.square(all_of(p))),
        }
        for way, name in (("alone", "mean"), *[("beside variables", name) for name in losses]):
            with self.subTest(way=way, loss=name):
                make = self.chained(cases[way], losses[name], run_eagerly=way == "alone")
                self.fit_as_in_one_process(make, X[:33], NUMBERS[:33], epochs=1)

    def chained(self, late_gradients, loss_of, run_eagerly=False):
        class Model(keras.Model):
            def train_step(self, data):
                x, y = data
                early, late = self.trainable_variables[:2], self.trainable_variables[2:]
                with tf.GradientTape() as first:
                    h = self.layers[1](x)
                with tf.GradientTape(persistent=True) as second:
                    second.watch(h)
                    loss = loss_of(self.layers[2](h), tf.cast(y, "float64")[:, tf.newaxis] / 8)
                back, *of_late = late_gradients(second, loss, h, late)
                self.optimizer.apply([*first.gradient(h, early, output_gradients=back), *of_late], [*early, *late])
                return {"rows": tf.constant(0)}

        return self.model_of(Model, run_eagerly)

    def test_losses_with_as_many_numbers_as_rows(self):
        """Two outputs, of two rows on a rank, or of one."""
        losses = {
            "mean over rows": lambda d: tf.reduce_mean(tf.square(d), axis=0),
            "turned": lambda d: tf.reduce_mean(tf.square(tf.transpose(d)), axis=1),
            "products of outputs": lambda d: tf.matmul(d, d, transpose_a=True) / tf.cast(tf.shape(d)[0], d.dtype),
            "divided": lambda d: tf.reduce_sum(tf.square(d), axis=0) / tf.constant([1.0, 2.0], d.dtype) / d.shape[0],
            "for each row": lambda d: tf.reduce_mean(tf.square(d), axis=1) / 4,
            "for each row, turned": lambda d: tf.reduce_mean(tf.square(tf.transpose(d)), axis=0) / 4,
            "for each row and output": lambda d: tf.abs(d) / 8,
        }
        for name, loss_of in losses.items():
            if name == "divided" and hvd.size() == 3:
                continue  # by the rows of this rank, which it knows only if all have as many
            with self.subTest(name):
                make = stepping(lambda model, x, y, f=loss_of: f(model(x) - tf.cast(y, "float64")[:, tf.newaxis] / 8))
                self.fit_as_in_one_process(make, X[:12], NUMBERS[:12], batch_size=4, epochs=1)

    def test_losses_of_which_eager_steps_cannot_tell(self):
        self.need_several_ranks()
        said = []
        with unittest.mock.patch.object(_engine, "log", lambda level, text: said.append(text)), strategy().scope():
            model = stepping(lambda model, x, y: tf.reduce_mean(model(x), axis=0), run_eagerly=True)()
            model.fit(X[:12], NUMBERS[:12], batch_size=2 * hvd.size(), verbose=0)
        self.assertEqual(len([text for text in said if "one for each row" in text]), 1 if hvd.rank() == 0 else 0)

    def test_ambiguous_output_gradients_are_refused(self):
        self.need_several_ranks()

        def stepping_by(seed_of, run_eagerly=False):
            class Model(keras.Model):
                def train_step(self, data):
                    x, y = data
                    with tf.GradientTape() as tape:
                        outputs = self(x, training=True)
                    seed = seed_of(outputs - tf.cast(y, "float64")[:, tf.newaxis])
                    gradients = tape.gradient(outputs, self.trainable_variables, output_gradients=seed)
                    self.optimizer.apply(gradients, self.trainable_variables)
                    return {"rows": tf.constant(0)}

            return self.model_of(Model, run_eagerly)

        for run_eagerly in (False, True):
            with self.subTest(run_eagerly=run_eagerly):
                make = stepping_by(lambda d: d / tf.cast(tf.shape(d)[0], "float64"), run_eagerly)
                with self.assertRaisesRegex(errors.Unsupported, r"tf\.reduce_sum\(outputs \* seed\)"), strategy().scope():
                    make().fit(X, NUMBERS, batch_size=8, verbose=0)
        # The rows' own.
        self.fit_as_in_one_process(stepping_by(lambda d: d / 8), X, NUMBERS, epochs=1)

    def test_jacobians_of_rows_on_ranks_without_rows(self):
        class Model(keras.Model):
            def train_step(self, data):
                x, y = data
                with tf.GradientTape() as outer:
                    with tf.GradientTape() as inner:
                        inner.watch(x)
                        outputs = self(x, training=True)
                    loss = tf.reduce_mean(tf.square(inner.batch_jacobian(outputs, x))) + tf.reduce_mean(outputs)
                self.optimizer.apply(outer.gradient(loss, self.trainable_variables), self.trainable_variables)
                return {"rows": tf.constant(0)}

        for run_eagerly in (False, True):
            with self.subTest(run_eagerly=run_eagerly):  # the last batch has one row
                self.fit_as_in_one_process(self.model_of(Model, run_eagerly), X[:17], NUMBERS[:17], epochs=1)

    # Eagerly by default: in a graph TensorFlow 2.21 itself now and then reads variables too late where tapes are nested so.
    def model_of(self, base, run_eagerly=True):
        def make():
            inputs = keras.Input((5,))
            model = base(inputs, keras.layers.Dense(2)(keras.layers.Dense(3, "tanh")(inputs)))
            model.compile(keras.optimizers.SGD(0.1), run_eagerly=run_eagerly)
            return model

        return make


if __name__ == "__main__":
    support.main()
