"""Kinds of models."""

import keras
import numpy as np
from comparison import program
from keras import layers

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(41, 6)).astype("float32")
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)


@program()
def sequential(scope):
    """A Sequential classifier with validation data, evaluate and predict, as in the first guide."""
    with scope():
        model = keras.Sequential(
            [keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(3, activation="softmax")]
        )
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(X, Y, batch_size=8, epochs=2, validation_data=(X[:13], Y[:13]), shuffle=False, verbose=0)
    return {
        "history": history.history,
        "evaluated": model.evaluate(X, Y, batch_size=8, verbose=0),
        "weights": model.get_weights(),
        "predictions": model.predict(X, batch_size=8, verbose=0),
    }
