# SPDX-License-Identifier: Apache-2.0
"""Models that compute with 16-bit and 64-bit numbers."""

import keras
import numpy as np
from comparison import program
from keras import layers

RANDOM = np.random.default_rng(15)
X = RANDOM.normal(size=(41, 6)).astype("float32")
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)


def outcome(scope, optimizer):
    with scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(8, activation="tanh"),
                layers.Dense(3),
                layers.Activation("softmax", dtype=keras.config.floatx()),
            ]
        )
        model.compile(optimizer(), "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return model, {
        "history": history.history,
        "weights": model.get_weights(),
        "predictions": model.predict(X, verbose=0),
    }


# bfloat16 has 8 bits, and each rank's gradients lose the last bit before the sum: an error of 2^-8 of each gradient.
@program(rtol=1e-2, atol=1e-2)
def mixed_bfloat16(scope):
    """The policy mixed_bfloat16: weights stay float32."""
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    return outcome(scope, lambda: keras.optimizers.SGD(0.1))[1]


# float16 has 11 bits, and each rank's gradients lose the last bit before the sum: an error of 2^-11 of each gradient.
@program(rtol=2e-3, atol=2e-3)
def mixed_float16(scope):
    """The policy mixed_float16: Keras puts a LossScaleOptimizer around the optimizer."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    model, values = outcome(scope, lambda: keras.optimizers.SGD(0.1))
    return {**values, "scale": model.optimizer.dynamic_scale}


@program(rtol=2e-3, atol=2e-3)  # as mixed_float16
def mixed_float16_that_overflows(scope):
    """A scale with which the first gradients overflow: updates are skipped until it is low enough, then it grows."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    model, values = outcome(
        scope,
        lambda: keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.1), initial_scale=2.0**20, dynamic_growth_steps=3
        ),
    )
    return {**values, "scale": model.optimizer.dynamic_scale, "updates": model.optimizer.inner_optimizer.iterations}


@program(full_only=True)  # the weights of mixed_bfloat16 are rounded in the same places
def one_layer_of_bfloat16(scope):
    """A policy of one layer only, on inputs that bfloat16 holds without loss."""
    inputs = np.round(X)
    with scope():
        model = keras.Sequential([keras.Input((6,)), layers.Dense(8, dtype="mixed_bfloat16"), layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.0), "mse")
    return {
        "evaluated": model.evaluate(inputs, Y, batch_size=8, verbose=0),
        "predicted": model.predict(inputs, verbose=0),
    }


# History and metrics are computed in float32 whatever the policy.
@program(rtol=1e-7, atol=1e-7)
def float64(scope):
    """floatx("float64"): nothing on the way is rounded to 32 bits."""
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    _, values = outcome(scope, lambda: keras.optimizers.Adam(0.01))
    return {"weights": values["weights"], "predictions": values["predictions"]}
