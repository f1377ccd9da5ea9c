# SPDX-License-Identifier: Apache-2.0
"""Several models in one program."""

import keras
import numpy as np
from comparison import program
from keras import layers

import farandole.tensorflow as hvd

RANDOM = np.random.default_rng(17)
X = RANDOM.normal(size=(41, 6)).astype("float32")
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)
FOLDS = np.array_split(RANDOM.permutation(41), 3)


def build(rate=0.1):
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3, activation="softmax")]
    )
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def score(model, fold):
    """Trains on the rows outside of the fold."""
    rest = np.setdiff1d(np.arange(41), fold)
    history = model.fit(X[rest], Y[rest], batch_size=8, epochs=2, shuffle=False, verbose=0)
    return {"history": history.history, "score": model.evaluate(X[fold], Y[fold], batch_size=8, verbose=0)}


@program()
def folds(scope):
    """Cross-validation: a new model for each fold, in a loop."""
    scores = []
    for fold in FOLDS:
        with scope():
            model = build()
        scores.append(score(model, fold))
    return scores


@program()
def folds_of_clones(scope):
    """Cross-validation with clones of one model, which start with its weights."""
    scores = []
    with scope():
        first = build()
    for fold in FOLDS:
        with scope():
            model = keras.models.clone_model(first)
            model.set_weights(first.get_weights())
            model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        scores.append(score(model, fold))
    return {"scores": scores, "first": first.get_weights()}


@program(full_only=True)  # folds covers several models
def folds_of_one_model(scope):
    """Cross-validation with one model, whose weights are set back, and whose optimizer is a new one for each fold."""
    with scope():
        model = build()
    start = model.get_weights()
    scores = []
    for fold in FOLDS:
        model.set_weights(start)
        with scope():
            model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
        scores.append(score(model, fold))
    return scores


@program()
def search_for_the_rate(scope):
    """A search over learning rates, all ranks alike; the best model is trained on, and an ensemble predicts."""
    models = []
    for rate in (0.01, 0.1, 0.5):
        with scope():
            models.append(build(rate))
    losses = [score(model, FOLDS[0])["score"][0] for model in models]
    best = models[int(np.argmin(losses))]
    history = best.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    with scope():
        inputs = keras.Input((6,))
        ensemble = keras.Model(inputs, layers.average([model(inputs) for model in models]))
    return {"losses": losses, "history": history.history, "predictions": ensemble.predict(X, verbose=0)}


@program()
def copy_on_the_first_rank(scope):
    """Rank 0 makes a copy of the model, and layers and an optimizer to try something; then all train on, and anew."""
    with scope():
        model = build()
    first = score(model, FOLDS[0])
    if hvd.rank() == 0:
        copied = keras.models.clone_model(model)
        copied.set_weights(model.get_weights())
        tried = keras.Sequential([copied, layers.Dense(2)])
        tried.compile(keras.optimizers.SGD(0.1), "mse")
        tried(X[:3])
    second = score(model, FOLDS[1])
    with scope():
        other = build()
        other.set_weights(model.get_weights())
    return [first, second, score(other, FOLDS[2])]
