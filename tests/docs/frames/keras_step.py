# SPDX-License-Identifier: Apache-2.0
# A training step of a user's own, in fit.
import keras
import numpy as np
import tensorflow as tf

import farandole.tensorflow as farandole


def my_mean_loss(expected, outputs):
    return tf.reduce_mean((expected - outputs) ** 2)


# BLOCK
with farandole.MirroredStrategy().scope():
    inputs = keras.Input((4,))
    model = Model(inputs, keras.layers.Dense(1)(inputs))  # noqa: F821
    model.loss_tracker = keras.metrics.Mean(name="loss")
    model.compile(optimizer="sgd")
model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=4, verbose=0)
