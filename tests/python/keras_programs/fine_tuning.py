# SPDX-License-Identifier: Apache-2.0
"""Models that are trained a second time."""

import os

import keras
import numpy as np
import tensorflow as tf
from comparison import directory, program
from keras import layers

import farandole.tensorflow as hvd

RANDOM = np.random.default_rng(18)
X = RANDOM.normal(size=(41, 6)).astype("float32")
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)
LOSS = "sparse_categorical_crossentropy"


def pieces():
    base = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(4)], name="base")
    inputs = keras.Input((6,))
    outputs = layers.Dense(3, activation="softmax")(base(inputs, training=False))
    return base, keras.Model(inputs, outputs)


def train(model, epochs=2):
    return model.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0).history


@program()
def frozen_and_thawed(scope):
    """The guide on transfer learning: train the head on a frozen base, then all with a lower rate."""
    with scope():
        base, model = pieces()
        base.trainable = False
        model.compile(keras.optimizers.Adam(), LOSS, metrics=["accuracy"])
    head = train(model)
    before = base.get_weights()
    base.trainable = True
    with scope():
        model.compile(keras.optimizers.Adam(1e-3), LOSS, metrics=["accuracy"])
    return {"head": head, "frozen": before, "all": train(model), "weights": model.get_weights()}


@program()
def recompiled_outside_of_the_scope(scope):
    """Optimizers, with a state of their own, that were made and given to compile() outside of the scope."""
    with scope():
        base, model = pieces()
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), LOSS, metrics=["accuracy"])
    first = train(model)
    base.trainable = False
    model.compile(keras.optimizers.Adam(1e-2), LOSS, metrics=["accuracy"])
    return {"first": first, "second": train(model), "weights": model.get_weights()}


@program()
def optimizer_passed_into_a_function(scope):
    """One optimizer object, made before the scope is entered, for the model that a function builds."""

    def build(optimizer):
        _, model = pieces()
        model.compile(optimizer, LOSS, metrics=["accuracy"])
        return model

    optimizer = keras.optimizers.Adam(1e-2)
    with scope():
        model = build(optimizer)
    return {"history": train(model), "weights": model.get_weights(), "iterations": optimizer.iterations}


@program()
def lower_rate_without_compiling(scope):
    """The learning rate of a compiled model is set between two calls of fit; the optimizer's state goes on."""
    with scope():
        _, model = pieces()
        model.compile(keras.optimizers.RMSprop(1e-2, epsilon=1e-3), LOSS, metrics=["accuracy"])
    first = train(model)
    model.optimizer.learning_rate = 1e-3
    return {"first": first, "second": train(model), "weights": model.get_weights()}


@program()
def new_head_on_a_saved_model(scope):
    """A model that was saved, without its last layer, under a new one."""
    path = os.path.join(directory(), "base.keras")
    with scope():
        _, model = pieces()
        model.compile("sgd", LOSS)
        is_together = tf.distribute.has_strategy()
    train(model)
    if hvd.rank() == 0 or not is_together:
        model.save(path)
    if is_together:
        hvd.barrier()
    with scope():
        saved = keras.models.load_model(path)
        body = keras.Model(saved.inputs, saved.layers[-2].output)
        body.trainable = False
        tuned = keras.Sequential([body, layers.Dense(6, activation="relu"), layers.Dense(3, activation="softmax")])
        tuned.compile(keras.optimizers.SGD(0.1), LOSS, metrics=["accuracy"])
    return {"history": train(tuned), "weights": tuned.get_weights(), "predictions": tuned.predict(X, verbose=0)}


@program()
def statistics_that_stay(scope):
    """Fine-tuning of a base with BatchNormalization that is kept in inference mode."""
    with scope():
        inputs = keras.Input((6,))
        normalized = layers.BatchNormalization()
        normalized.trainable = False
        hidden = normalized(layers.Dense(8)(inputs), training=False)
        model = keras.Model(inputs, layers.Dense(3, activation="softmax")(hidden))
        model.compile(keras.optimizers.SGD(0.1), LOSS, metrics=["accuracy"])
    normalized.set_weights([np.full(8, value, "float32") for value in (1.5, 0.1, 0.2, 2.0)])
    return {"history": train(model), "weights": model.get_weights()}


@program(full_only=True)  # frozen_and_thawed covers the training of some of the weights
def low_rank_adaptation(scope):
    """Dense.enable_lora on a trained model: the kernel is frozen, and two small matrices are trained."""
    with scope():
        _, model = pieces()
        model.compile("sgd", LOSS)
    train(model)
    with scope():
        model.layers[-1].enable_lora(rank=2)
        model.compile(keras.optimizers.SGD(0.1), LOSS, metrics=["accuracy"])
    return {"history": train(model), "weights": model.get_weights()}
