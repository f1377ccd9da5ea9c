# SPDX-License-Identifier: Apache-2.0
"""Every optimizer of Keras, and every argument that changes gradients or weights."""

import keras
import numpy as np
from comparison import program
from keras import layers

RANDOM = np.random.default_rng(7)
BATCH = 8
X = RANDOM.normal(size=(41, 6)).astype("float32")  # the last batch has one row
NUMBERS = (X @ RANDOM.normal(size=(6, 2))).astype("float32")


def small_model():
    return keras.Sequential([keras.Input((6,)), layers.Dense(5, activation="tanh"), layers.Dense(2)])


def fitted(model, **arguments):
    model.compile(loss="mse", **arguments)
    history = model.fit(X, NUMBERS, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    states = [each.numpy() for each in model.optimizer.variables]
    return {"history": history.history, "weights": model.get_weights(), "optimizer": states}


def with_optimizer(scope, **arguments):
    """The results of a model that Adam trains with these arguments."""
    with scope():
        return fitted(small_model(), optimizer=keras.optimizers.Adam(0.01, **arguments))


def each_of(scope, names):
    """The results of a model for each of these classes of optimizers, those that this Keras has."""
    results = {}
    for name in names:
        kind = getattr(keras.optimizers, name, None)
        if kind is not None:
            with scope():
                model, optimizer = small_model(), kind(learning_rate=0.01)
                # In one process fit builds it in a function, where ScheduleFreeAdamW of Keras 3.15 starts from zeros.
                optimizer.build(model.trainable_variables)
                results[name] = fitted(model, optimizer=optimizer)
    return results


@program()
def momentum_and_adaptive_optimizers(scope):
    """The optimizers that most programs use."""
    return each_of(scope, ["SGD", "RMSprop", "Adam", "AdamW"])


@program(full_only=True)  # covered by momentum_and_adaptive_optimizers
def other_optimizers(scope):
    """The optimizers that are left. Lion takes signs, Muon makes matrices orthogonal: no mean of updates is theirs."""
    first = each_of(scope, ["Adadelta", "Adagrad", "Adamax", "Adafactor", "Nadam"])
    return first | each_of(scope, ["Ftrl", "Lion", "Lamb", "Muon", "ScheduleFreeAdamW"])


if hasattr(keras.optimizers, "MultiOptimizer"):  # since Keras 3.15

    @program()
    def several_optimizers_in_one(scope):
        """MultiOptimizer: other optimizers for other layers."""
        with scope():
            model = keras.Sequential([keras.Input((6,)), layers.Dense(5, name="first"), layers.Dense(2, name="last")])
            chosen = keras.optimizers.OptimizerMap(default_optimizer=keras.optimizers.SGD(0.05, momentum=0.9))
            chosen[".*last.*"] = keras.optimizers.Adam(0.01, clipnorm=0.5)
            return fitted(model, optimizer=keras.optimizers.MultiOptimizer(chosen))


@program(full_only=True)  # covered by momentum_and_adaptive_optimizers
def sgd_with_nesterov(scope):
    """SGD with Nesterov's momentum."""
    with scope():
        return fitted(small_model(), optimizer=keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True))


@program(full_only=True)  # covered by momentum_and_adaptive_optimizers
def centered_rmsprop_and_amsgrad(scope):
    """RMSprop with centered=True and momentum, Adam with amsgrad=True."""
    with scope():
        rmsprop = fitted(small_model(), optimizer=keras.optimizers.RMSprop(0.01, momentum=0.9, centered=True))
        adam = fitted(small_model(), optimizer=keras.optimizers.Adam(0.01, amsgrad=True))
    return {"rmsprop": rmsprop, "adam": adam}


@program(full_only=True)  # covered by gradient_accumulation: it decays weights too
def weight_decay(scope):
    """AdamW that leaves biases out of weight decay."""
    with scope():
        model = small_model()
        optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1)
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        return fitted(model, optimizer=optimizer)


@program()
def moving_average_of_weights(scope):
    """use_ema: weights are averaged over time, and overwritten every few steps and at the end."""
    return with_optimizer(scope, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=4)


@program()
def clipnorm(scope):
    """clipnorm: each gradient's norm is bounded. The data is such that the bound is hit."""
    with scope():
        return fitted(small_model(), optimizer=keras.optimizers.SGD(0.05, clipnorm=0.3))


@program(full_only=True)  # covered by clipnorm: clipped in the same place
def global_clipnorm(scope):
    """global_clipnorm: the norm of all gradients together is bounded."""
    with scope():
        return fitted(small_model(), optimizer=keras.optimizers.SGD(0.05, global_clipnorm=0.3))


@program(full_only=True)  # covered by clipnorm: clipped in the same place
def clipvalue(scope):
    """clipvalue: each number of a gradient is bounded."""
    with scope():
        return fitted(small_model(), optimizer=keras.optimizers.SGD(0.05, clipvalue=0.05))


@program()
def gradient_accumulation(scope):
    """gradient_accumulation_steps that do not divide the steps of an epoch, with clipping and weight decay."""
    return with_optimizer(scope, gradient_accumulation_steps=4, global_clipnorm=0.5, weight_decay=0.01)


@program()
def learning_rate_schedules(scope):
    """A schedule in the optimizer: the rate follows the optimizer's steps."""
    schedules = {
        "exponential": keras.optimizers.schedules.ExponentialDecay(0.05, decay_steps=3, decay_rate=0.5, staircase=True),
        "cosine": keras.optimizers.schedules.CosineDecay(0.0, 10, warmup_target=0.05, warmup_steps=3),
    }
    results = {}
    for name, schedule in schedules.items():
        with scope():
            model = small_model()
            results[name] = fitted(model, optimizer=keras.optimizers.SGD(schedule, momentum=0.5))
        results[name]["rate"] = float(model.optimizer.learning_rate)
    return results


@program(full_only=True)  # covered by learning_rate_schedules
def other_learning_rate_schedules(scope):
    """The other schedules that Keras has."""
    kinds = keras.optimizers.schedules
    schedules = {
        "piecewise": kinds.PiecewiseConstantDecay([3, 7], [0.1, 0.05, 0.01]),
        "polynomial": kinds.PolynomialDecay(0.1, 8, end_learning_rate=0.01, power=2.0),
        "inverse": kinds.InverseTimeDecay(0.1, 2, 0.5),
        "restarts": kinds.CosineDecayRestarts(0.1, 4),
    }
    results = {}
    for name, schedule in schedules.items():
        with scope():
            results[name] = fitted(small_model(), optimizer=keras.optimizers.SGD(schedule))
    return results


@program()
def learning_rate_set_between_fits(scope):
    """optimizer.learning_rate is assigned between two calls of fit, the state of the optimizer goes on."""
    with scope():
        model = small_model()
        model.compile(keras.optimizers.Adam(0.02), "mse")
    first = model.fit(X, NUMBERS, batch_size=BATCH, shuffle=False, verbose=0)
    model.optimizer.learning_rate = 0.005
    second = model.fit(X, NUMBERS, batch_size=BATCH, shuffle=False, verbose=0)
    histories = [first.history, second.history]
    return {"histories": histories, "weights": model.get_weights(), "steps": int(model.optimizer.iterations)}


@program()
def steps_per_execution(scope):
    """Several training steps in one call of a function, more than an epoch's last call has."""
    with scope():
        model = small_model()
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], steps_per_execution=4)
    history = model.fit(X, NUMBERS, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return {"history": history.history, "weights": model.get_weights()}


@program(full_only=True)  # covered by momentum_and_adaptive_optimizers
def optimizer_by_config(scope):
    """compile with an optimizer from a configuration, as programs with settings in files do."""
    with scope():
        settings = {"class_name": "Nadam", "config": {"learning_rate": 0.01, "beta_1": 0.8}}
        return fitted(small_model(), optimizer=keras.optimizers.get(settings))
