# SPDX-License-Identifier: Apache-2.0
"""Shared by the Keras tests: data, models, and the comparison with one process that trains on the whole batches."""

import contextlib
import os
import tempfile

import keras
import numpy as np
import support
import tensorflow as tf

import farandole.tensorflow as hvd

STRATEGY = None  # made with the first use
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(64, 6)).astype(np.float32)
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)
ROWS = 41  # in batches of 8: parts are uneven on 3 ranks, and in the last batch all but the first rank have none
TARGETS = (X @ np.random.default_rng(6).normal(size=(6, 3))).astype(np.float32)
MASKS = (np.random.default_rng(7).random((64, 3)) < 0.5).astype(np.float32)


def strategy():
    global STRATEGY
    if STRATEGY is None:
        STRATEGY = hvd.MirroredStrategy()
    return STRATEGY


def classifier(optimizer="sgd", **compile_arguments):
    """A function that makes the model."""

    def make():
        model = keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, activation="softmax")]
        )
        chosen = optimizer() if callable(optimizer) else keras.optimizers.get(optimizer)
        loss = keras.losses.SparseCategoricalCrossentropy()
        model.compile(chosen, loss, metrics=["accuracy"], **compile_arguments)
        return model

    return make


def sgd(**arguments):
    return lambda: keras.optimizers.SGD(0.1, **arguments)


@contextlib.contextmanager
def captured_log():
    """A list that contains this process's standard error, as text, after the block has ended."""
    texts = []
    with tempfile.TemporaryFile("w+") as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield texts
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            texts.append(file.read())


def fit(x=X, y=TARGETS, epochs=2, validation=True, **options):
    """A function that trains, with validation data, and returns the history."""

    def train(model):
        if validation:
            options["validation_data"] = (x[:19], y[:19])
        return model.fit(x[:ROWS], y[:ROWS], batch_size=8, epochs=epochs, shuffle=False, verbose=0, **options)

    return train


def network(base=keras.Model, activation=None, **layer):
    inputs = keras.Input((6,))
    hidden = keras.layers.Dense(5, activation="tanh", **layer)(inputs)
    return base(inputs, keras.layers.Dense(3, activation=activation)(hidden))


def with_loss(loss, base=keras.Model, optimizer=sgd(), activation=None, layer=None, **options):
    """A function that makes a model with the loss that `loss` returns."""

    def make():
        model = network(base, activation, **(layer or {}))
        model.compile(optimizer(), loss(), **options)
        return model

    return make


def own_step(loss_of):
    """A model whose train_step, as in the guide's low-level version, takes its loss from `loss_of(model, x, y)`."""

    class Model(keras.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.loss_tracker = keras.metrics.Mean(name="loss")
            self.mae_metric = keras.metrics.MeanAbsoluteError(name="mae")

        @property
        def metrics(self):
            return [self.loss_tracker, self.mae_metric]

        def train_step(self, data):
            x, y = data[:2]
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = loss_of(self, x, y, y_pred)
            gradients = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
            self.loss_tracker.update_state(loss)
            self.mae_metric.update_state(y, y_pred)
            return {metric.name: metric.result() for metric in self.metrics}

        def test_step(self, data):
            x, y = data
            self.loss_tracker.update_state(loss_of(self, x, y, self(x, training=False)))
            self.mae_metric.update_state(y, self(x, training=False))
            return {metric.name: metric.result() for metric in self.metrics}

    return Model


def mean_squared(model, x, y, y_pred):
    return keras.ops.mean(keras.ops.square(y - keras.ops.cast(y_pred, y.dtype)))


class KerasTest(support.RankedTest):
    def assert_same_on_all_ranks(self, values):
        for other in hvd.allgather_object([np.asarray(value) for value in values]):
            for mine, theirs in zip(values, other):
                np.testing.assert_array_equal(np.asarray(mine), theirs)

    def alone_and_together(self, make, train, rtol=1e-5, atol=1e-6):
        """Trains a model alone and one with the same start on all ranks; both must end alike. Returns them."""
        keras.utils.set_random_seed(11)
        alone = make()
        start = alone.get_weights()
        history = train(alone)
        keras.utils.set_random_seed(11)
        with strategy().scope():
            together = make()
        together.set_weights(start)
        histories = train(together)
        for mine, expected in zip(together.get_weights(), alone.get_weights()):
            # A small element may be the difference of large ones.
            scale = max(1.0, np.max(np.abs(expected), initial=0.0))
            np.testing.assert_allclose(mine, expected, rtol=rtol, atol=atol * scale)
        self.assert_same_on_all_ranks(together.get_weights())
        if history is not None:
            for name, expected in history.history.items():
                np.testing.assert_allclose(histories.history[name], expected, rtol=rtol, atol=atol, err_msg=name)
            self.assert_same_on_all_ranks([histories.history[name] for name in sorted(histories.history)])
        return alone, together

    def need_several_ranks(self):
        if hvd.size() == 1:
            self.skipTest("needs several ranks")


class Float64Test(KerasTest):
    """Compares in float64, to some units of the last digit."""

    def setUp(self):
        super().setUp()
        keras.config.set_floatx("float64")

    def tearDown(self):
        keras.config.set_floatx("float32")
        super().tearDown()

    def assert_same_weights(self, alone, together):
        for mine, expected in zip(together.get_weights(), alone.get_weights()):
            np.testing.assert_allclose(mine, expected, rtol=1e-10, atol=1e-12)
        self.assert_same_on_all_ranks(together.get_weights())

    def fit_as_in_one_process(self, make, x, y, **options):
        """Batches of 8 of 41 rows: the last has one row."""
        options = {"batch_size": 8, "shuffle": False, "verbose": 0, "epochs": 2, **options}
        self.alone_and_together(make, lambda model: model.fit(x, y, **options), rtol=1e-10, atol=1e-12)
