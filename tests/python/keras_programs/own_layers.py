# SPDX-License-Identifier: Apache-2.0
"""Normalisations, layers with a state, and layers of the user's own."""

import keras
import numpy as np
from comparison import program
from keras import layers, ops

RANDOM = np.random.default_rng(20)
X = RANDOM.normal(1.0, 2.0, size=(41, 6)).astype("float32")
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)


def train(scope, *between, optimizer=None):
    """A classifier with the layers that `between` makes, inside of the scope, between its dense layers."""
    with scope():
        model = keras.Sequential([keras.Input((6,)), layers.Dense(8)])
        for make in between:
            model.add(make())
        model.add(layers.Dense(3, activation="softmax"))
        model.compile(optimizer or keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(X, Y, batch_size=8, epochs=2, validation_data=(X[:13], Y[:13]), shuffle=False, verbose=0)
    return {"history": history.history, "weights": model.get_weights(), "predictions": model.predict(X, verbose=0)}


# ---- Normalisations


@program()
def synchronized_batch_normalization(scope):
    """BatchNormalization with the statistics of the whole batch."""
    return train(scope, lambda: layers.BatchNormalization(synchronized=True), lambda: layers.Activation("relu"))


@program()
def moving_means_of_batch_normalization(scope):
    """BatchNormalization with each rank's statistics: the mean that is kept for inference is that of all samples."""
    with scope():
        normalized = layers.BatchNormalization(momentum=0.9)
        model = keras.Sequential([keras.Input((6,)), normalized, layers.Dense(3, activation="softmax")])
        model.compile("adam", "sparse_categorical_crossentropy")
    # In 40 rows no rank is without a part; of more than the mean nothing else is promised.
    model.fit(X[:40], Y[:40], batch_size=8, epochs=2, shuffle=False, verbose=0)
    return normalized.moving_mean.numpy()


@program()
def normalizations_of_samples(scope):
    """Normalisations that look at one sample only."""
    return train(
        scope,
        layers.LayerNormalization,
        lambda: layers.GroupNormalization(groups=2),
        layers.UnitNormalization,
        lambda: layers.Dropout(0.0),
        lambda: layers.GaussianNoise(0.0),
        layers.PReLU,
    )


@program()
def spectral_normalization(scope):
    """A kernel that is divided by its largest singular value, which the layer keeps an estimate of."""
    return train(scope, lambda: layers.SpectralNormalization(layers.Dense(8)))


# ---- Layers of the user's own


# On 3 ranks 1.2e-5 from one process in f32, 1e-12 in f64: rounding, which the doubling of every activation magnifies.
@program(rtol=3e-5)
def own_weights(scope):
    """A layer as the guide makes it, with weights that are trained, and one that is not."""

    class Linear(layers.Layer):
        def __init__(self, units):
            super().__init__()
            self.units = units

        def build(self, input_shape):
            self.w = self.add_weight(shape=(input_shape[-1], self.units), initializer="glorot_uniform")
            self.b = self.add_weight(shape=(self.units,), initializer="zeros")
            self.scale = self.add_weight(shape=(), initializer="ones", trainable=False)

        def call(self, inputs):
            return (ops.matmul(inputs, self.w) + self.b) * self.scale

    class Block(layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = Linear(8), Linear(8)

        def build(self, input_shape):
            self.inner.build(input_shape)
            self.outer.build(input_shape)

        def call(self, inputs, training=False):
            return inputs + self.outer(ops.relu(self.inner(inputs)))

    return train(scope, Block, lambda: layers.Lambda(lambda x: x * 2))


@program()
def counter_of_calls(scope):
    """A layer that counts the batches it was trained on, and lets its output fade in by the count."""

    class FadeIn(layers.Layer):
        def build(self, _):
            self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, inputs, training=False):
            if training:
                self.calls.assign(self.calls + 1)
            return inputs * (1 - 0.5**self.calls)

    return train(scope, FadeIn)


@program()
def sum_of_what_was_seen(scope):
    """The guide's ComputeSum: a weight to which each call adds the sum of its inputs."""

    class ComputeSum(layers.Layer):
        def build(self, input_shape):
            self.total = self.add_weight(
                shape=(input_shape[-1],), initializer="zeros", trainable=False, aggregation="sum"
            )

        def call(self, inputs, training=False):
            if training:
                self.total.assign_add(ops.sum(ops.stop_gradient(inputs), axis=0))
            return inputs

    return train(scope, ComputeSum)


@program()
def regularized_kernels(scope):
    """Weights that are regularised and constrained; the added loss counts once."""

    def regularized():
        return layers.Dense(
            8,
            activation="tanh",
            kernel_regularizer=keras.regularizers.L1L2(0.01, 0.01),
            bias_regularizer="l2",
            kernel_constraint=keras.constraints.MaxNorm(1.0),
        )

    return train(scope, regularized)


@program()
def regularized_activities(scope):
    """A penalty on a layer's outputs, which Keras sums over the batch."""
    return train(scope, lambda: layers.Dense(8, activation="tanh", activity_regularizer=keras.regularizers.L2(0.01)))
