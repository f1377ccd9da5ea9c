# SPDX-License-Identifier: Apache-2.0
"""Saving and loading: files of Keras, exported models, checkpoints of TensorFlow."""

import os

import keras
import numpy as np
import tensorflow as tf
from comparison import directory, program
from keras import layers

import farandole.tensorflow as hvd

RANDOM = np.random.default_rng(19)
X = RANDOM.normal(size=(41, 6)).astype("float32")
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)


@keras.saving.register_keras_serializable("programs")
class Scale(layers.Layer):
    """A user-defined layer in a saved model."""

    def __init__(self, start=1.0, **kwargs):
        super().__init__(**kwargs)
        self.start = start

    def build(self, input_shape):
        self.factor = self.add_weight(shape=(input_shape[-1],), initializer=keras.initializers.Constant(self.start))

    def call(self, inputs):
        return inputs * self.factor

    def get_config(self):
        return {**super().get_config(), "start": self.start}


def build(scope):
    with scope():
        model = keras.Sequential(
            [keras.Input((6,)), layers.Dense(8, activation="tanh"), Scale(0.7), layers.Dense(3, activation="softmax")]
        )
        model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def train(model, epochs=2):
    return model.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0).history


def on_first_rank(scope, write):
    """Calls `write` where the program runs alone, or on rank 0 of all, for which the others wait."""
    with scope():
        is_together = tf.distribute.has_strategy()
    if hvd.rank() == 0 or not is_together:
        write()
    if is_together:
        hvd.barrier()


def outcome(model, *histories):
    return {
        "histories": histories,
        "weights": model.get_weights(),
        "optimizer": [np.asarray(variable) for variable in model.optimizer.variables],
        "predictions": model.predict(X, verbose=0),
    }


@program()
def resumed_from_a_keras_file(scope):
    """model.save and load_model: the optimizer's state goes on."""
    path = os.path.join(directory(), "model.keras")
    model = build(scope)
    first = train(model)
    on_first_rank(scope, lambda: model.save(path))
    with scope():
        loaded = keras.models.load_model(path)
    return outcome(loaded, first, train(loaded))


@program()
def resumed_from_weights(scope):
    """save_weights and load_weights into a model that is made anew; one more load into the trained model."""
    path = os.path.join(directory(), "model.weights.h5")
    model = build(scope)
    first = train(model)
    on_first_rank(scope, lambda: model.save_weights(path))
    again = build(scope)
    again.load_weights(path)
    second = train(again)
    again.load_weights(path)
    return outcome(again, first, second)


@program()
def exported_model(scope):
    """model.export, loaded as a SavedModel by all ranks."""
    path = os.path.join(directory(), "exported")
    model = build(scope)
    train(model)
    on_first_rank(scope, lambda: model.export(path, verbose=False))
    exported = tf.saved_model.load(path)
    return {"served": exported.serve(tf.constant(X)), "predictions": model.predict(X, verbose=0)}


@program()
def resumed_from_a_checkpoint(scope):
    """tf.train.Checkpoint of model and optimizer, to a path for each rank, restored into new ones."""
    path = os.path.join(directory(), f"rank{hvd.rank()}", "checkpoint")
    model = build(scope)
    first = train(model)
    written = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(path)
    again = build(scope)
    again.optimizer.build(again.trainable_variables)
    tf.train.Checkpoint(model=again, optimizer=again.optimizer).restore(written).expect_partial()
    return outcome(again, first, train(again))


@program()
def weights_as_arrays(scope):
    """get_weights and set_weights, of the model and of layers, before and after training."""
    model = build(scope)
    start = model.get_weights()
    history = train(model)
    trained = model.get_weights()
    model.set_weights(start)
    model.layers[-1].set_weights([trained[-2], np.zeros_like(trained[-1])])
    model.layers[0].kernel.assign(trained[0] * 0.5)
    return outcome(model, history, train(model))


@program(full_only=True)  # resumed_from_a_keras_file covers configurations and weights
def model_from_its_configuration(scope):
    """to_json, from_json and get_config; a model that is compiled from a configuration; the output of summary."""
    model = build(scope)
    history = train(model)
    lines = []
    with scope():
        again = keras.models.model_from_json(model.to_json())
        again.compile_from_config(model.get_compile_config())
        copied = keras.Sequential.from_config(model.get_config())
    again.set_weights(model.get_weights())
    again.summary(print_fn=lambda line, **_: lines.append(line.split(chr(10))[2:]))
    return {**outcome(again, history, train(again)), "parameters": [again.count_params(), copied.count_params()]}
