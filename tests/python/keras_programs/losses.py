# SPDX-License-Identifier: Apache-2.0
"""Losses of Keras, losses that return one number or one per sample, weights, sums, and losses added by layers."""

import keras
import numpy as np
from comparison import over_parts, program, trained
from keras import layers, ops

RANDOM = np.random.default_rng(6)
ROWS, BATCH = 41, 8  # the last batch has one row
X = RANDOM.normal(size=(ROWS, 6)).astype("float32")
CLASSES = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)
NUMBERS = (X @ RANDOM.normal(size=(6, 1))).astype("float32")
WEIGHTS = RANDOM.uniform(0.2, 2.0, size=ROWS).astype("float32")
# 43 rows give each of 3 ranks a row of the last batch: TensorFlow's convolutions fail on empty batches.
IMAGES = RANDOM.uniform(size=(43, 6, 6, 1)).astype("float32")
MASKS = (IMAGES > 0.6).astype("float32")


def regression(outputs=1, activation=None, **arguments):
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, activation="tanh", **arguments),
            layers.Dense(outputs, activation=activation, **arguments),
        ]
    )


def segmentation():
    return keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Conv2D(4, 3, padding="same", activation="relu"),
            layers.Conv2D(1, 1, activation="sigmoid"),
        ]
    )


def fitted(model, x, y, **arguments):
    history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, **arguments)
    return trained(model, history, x)


# ---- One number for the whole batch


@program()
def function_that_returns_one_number(scope):
    """A loss function that ends with a mean over the batch, with validation and evaluate."""

    def log_cosh_mean(y_true, y_pred):
        return ops.mean(ops.log(ops.cosh(y_pred - y_true)))

    with scope():
        model = regression()
        model.compile("adam", loss=log_cosh_mean, metrics=["mae"])
    results = fitted(model, X, NUMBERS, validation_data=(X[:13], NUMBERS[:13]))
    return results | {"evaluated": model.evaluate(X, NUMBERS, batch_size=5, verbose=0)}


@program()
def loss_subclass_that_returns_one_number(scope):
    """A subclass of keras.losses.Loss whose call() takes the mean by itself, among several outputs."""

    class RootMeanSquares(keras.losses.Loss):
        def __init__(self, factor):
            super().__init__(name="root_mean_squares")
            self.factor = factor

        def call(self, y_true, y_pred):
            return self.factor * ops.mean(ops.abs(y_true - y_pred))

    with scope():
        inputs = keras.Input((6,))
        hidden = layers.Dense(8, activation="relu")(inputs)
        outputs = [layers.Dense(1, name="number")(hidden), layers.Dense(3, name="kind")(hidden)]
        model = keras.Model(inputs, outputs)
        model.compile(
            keras.optimizers.SGD(0.05),
            loss=[RootMeanSquares(2.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True)],
            loss_weights=[0.5, 1.0],
        )
    return fitted(model, X, [NUMBERS, CLASSES], validation_split=0.3)


@program(full_only=True)  # covered by sample_weight
def loss_subclass_for_each_sample(scope):
    """A subclass of keras.losses.Loss that returns a loss for each sample, with sample weights."""

    class Pinball(keras.losses.Loss):
        def call(self, y_true, y_pred):
            error = y_true - y_pred
            return ops.mean(ops.maximum(0.9 * error, -0.1 * error), axis=-1)

    with scope():
        model = regression()
        model.compile("adam", loss=Pinball(), weighted_metrics=["mae"])
    return fitted(model, X, NUMBERS, sample_weight=WEIGHTS)


@program(full_only=True)  # covered by function_that_returns_one_number
def contrastive_over_pairs(scope):
    """A loss between the halves of a sample, one number; the model has no target of its own."""

    def similarity(y_true, y_pred):
        left, right = y_pred[:, :2], y_pred[:, 2:]
        cosine = ops.sum(ops.normalize(left) * ops.normalize(right), axis=1)
        return ops.mean(ops.square(ops.squeeze(y_true, 1) - cosine))

    with scope():
        model = regression(outputs=4)
        model.compile(keras.optimizers.RMSprop(0.005), loss=similarity)
    return fitted(model, X, (CLASSES == 1).astype("float32")[:, np.newaxis])


# ---- Segmentation


@program()
def segmentation_with_dice(scope):
    """keras.losses.Dice of the whole batch, one number: the mean over the ranks' parts of it."""
    with scope():
        model = segmentation()
        model.compile("adam", loss=over_parts(keras.losses.Dice()), metrics=[keras.metrics.BinaryIoU()])
    return fitted(model, IMAGES, MASKS, validation_data=(IMAGES[:13], MASKS[:13]), validation_batch_size=5)


@program(full_only=True)  # covered by segmentation_with_dice and sample_weight
def segmentation_with_dice_of_each_image(scope):
    """keras.losses.Dice over the axes of an image, which is a loss for each sample."""
    with scope():
        model = segmentation()
        model.compile("adam", loss=keras.losses.Dice(axis=(1, 2, 3)), metrics=["accuracy"])
    return fitted(model, IMAGES, MASKS)


@program(full_only=True)  # covered by segmentation_with_dice
def segmentation_with_tversky(scope):
    """keras.losses.Tversky of the whole batch: the mean over the ranks' parts of it."""
    with scope():
        model = segmentation()
        model.compile("adam", loss=over_parts(keras.losses.Tversky(alpha=0.3, beta=0.7)))
    return fitted(model, IMAGES, MASKS)


@program(full_only=True)  # covered by segmentation_with_dice
def segmentation_with_dice_and_crossentropy(scope):
    """Dice and crossentropy added in one function, as segmentation programs often do."""
    dice, crossentropy = keras.losses.Dice(), keras.losses.BinaryCrossentropy()

    def combined(y_true, y_pred):
        return dice(y_true, y_pred) + crossentropy(y_true, y_pred)

    with scope():
        model = segmentation()
        model.compile("adam", loss=over_parts(combined), metrics=["accuracy"])
    return fitted(model, IMAGES, MASKS)


# ---- Reductions and weights


@program()
def reduction_sum(scope):
    """reduction="sum": loss, gradient and reported loss are sums over the batch."""
    with scope():
        model = regression()
        model.compile(keras.optimizers.SGD(0.01), loss=keras.losses.MeanSquaredError(reduction="sum"), metrics=["mae"])
    results = fitted(model, X, NUMBERS, validation_data=(X[:13], NUMBERS[:13]), validation_batch_size=5)
    return results | {"evaluated": model.evaluate(X, NUMBERS, batch_size=BATCH, verbose=0)}


@program()
def reduction_none(scope):
    """reduction=None: a loss for each sample, of which Keras takes the gradient of the sum and reports the mean."""
    with scope():
        model = regression()
        model.compile(keras.optimizers.SGD(0.01), loss=keras.losses.MeanAbsoluteError(reduction=None), metrics=["mse"])
    return fitted(model, X, NUMBERS, validation_data=(X[:13], NUMBERS[:13]))


@program(full_only=True)  # covered by sample_weight: Keras makes one of it
def class_weight(scope):
    """class_weight for unbalanced classes."""
    with scope():
        model = regression(outputs=3, activation="softmax")
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], weighted_metrics=["accuracy"])
    return fitted(model, X, CLASSES, class_weight={0: 0.5, 1: 2.0, 2: 1.25})


@program()
def sample_weight(scope):
    """sample_weight in fit, in validation and in evaluate."""
    with scope():
        model = regression()
        model.compile("adam", "mse", metrics=["mae"], weighted_metrics=["mae"])
    results = fitted(model, X, NUMBERS, sample_weight=WEIGHTS, validation_data=(X[:13], NUMBERS[:13], WEIGHTS[:13]))
    return results | {"evaluated": model.evaluate(X, NUMBERS, BATCH, sample_weight=WEIGHTS, verbose=0)}


@program(full_only=True)  # covered by sample_weight and models.two_inputs_and_two_outputs
def sample_weight_of_each_output(scope):
    """Weights for each of two outputs."""
    with scope():
        inputs = keras.Input((6,))
        hidden = layers.Dense(8, activation="relu")(inputs)
        model = keras.Model(inputs, {"number": layers.Dense(1)(hidden), "kind": layers.Dense(3)(hidden)})
        crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        metrics = {"number": ["mae"], "kind": ["accuracy"]}
        model.compile("adam", {"number": "mse", "kind": crossentropy}, weighted_metrics=metrics)
    weights = {"number": WEIGHTS, "kind": WEIGHTS[::-1].copy()}
    return fitted(model, X, {"number": NUMBERS, "kind": CLASSES}, sample_weight=weights)


# ---- What layers add


@program()
def add_loss_in_a_layer(scope):
    """A layer that adds a loss of its inputs, a mean over the batch, and a model without any other loss."""

    class Endpoint(layers.Layer):
        def call(self, predictions, targets):
            self.add_loss(ops.mean(ops.square(targets - predictions)))
            return predictions

    with scope():
        inputs, targets = keras.Input((6,)), keras.Input((1,))
        predictions = Endpoint()(layers.Dense(1)(layers.Dense(8, activation="tanh")(inputs)), targets)
        model = keras.Model([inputs, targets], predictions)
        model.compile("adam")
    history = model.fit([X, NUMBERS], batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return trained(model, history, [X, NUMBERS])


@program()
def kernel_regularizers(scope):
    """L1 and L2 of kernels, bias and output, and an orthogonal regulariser: they count once, however many ranks."""
    with scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(8, kernel_regularizer=keras.regularizers.L1L2(0.01, 0.02), bias_regularizer="l2"),
                layers.Dense(8, kernel_regularizer=keras.regularizers.OrthogonalRegularizer(0.01)),
                layers.Dense(1, kernel_regularizer="l1"),
            ]
        )
        model.compile(keras.optimizers.SGD(0.05), "mse")
    return fitted(model, X, NUMBERS, validation_data=(X[:13], NUMBERS[:13]))


@program()
def activity_regularizers(scope):
    """Regularisers of outputs, as for sparse autoencoders, and ActivityRegularization."""
    with scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(8, activation="relu", activity_regularizer=keras.regularizers.L1(0.05)),
                layers.ActivityRegularization(l2=0.02),
                layers.Dense(6),
            ]
        )
        model.compile(keras.optimizers.SGD(0.05), "mse")
    return fitted(model, X, X)


# ---- All that Keras has


STOCK = {
    "number": [
        keras.losses.MeanSquaredError(),
        keras.losses.MeanAbsoluteError(),
        keras.losses.MeanAbsolutePercentageError(),
        keras.losses.MeanSquaredLogarithmicError(),
        keras.losses.Huber(delta=0.5),
        keras.losses.LogCosh(),
        keras.losses.CosineSimilarity(),
    ],
    "probability": [
        keras.losses.BinaryCrossentropy(label_smoothing=0.1),
        keras.losses.BinaryFocalCrossentropy(apply_class_balancing=True),
        keras.losses.Hinge(),
        keras.losses.SquaredHinge(),
        keras.losses.Poisson(),
    ],
    "distribution": [
        keras.losses.CategoricalCrossentropy(),
        keras.losses.CategoricalFocalCrossentropy(),
        keras.losses.CategoricalHinge(),
        keras.losses.KLDivergence(),
        "sparse_categorical_crossentropy",
    ],
}


@program(full_only=True)  # covered by sample_weight: they are means over samples
def all_stock_losses(scope):
    """Every loss of Keras that is a mean over samples, each with an output of its own."""
    with scope():
        inputs = keras.Input((6,))
        hidden = layers.Dense(8, activation="tanh")(inputs)
        outputs, targets = [], []
        for _ in STOCK["number"]:
            outputs.append(layers.Dense(2, activation="softplus")(hidden))
            targets.append(np.abs(X[:, :2]) + 0.5)
        for _ in STOCK["probability"]:
            outputs.append(layers.Dense(1, activation="sigmoid")(hidden))
            targets.append((NUMBERS > 0).astype("float32"))
        for loss in STOCK["distribution"]:
            outputs.append(layers.Dense(3, activation="softmax")(hidden))
            targets.append(CLASSES if isinstance(loss, str) else np.eye(3, dtype="float32")[CLASSES])
        losses = [loss for kind in STOCK.values() for loss in kind]
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.SGD(0.001), losses)
    return fitted(model, X, targets)


@program(full_only=True)  # covered by sample_weight
def focal_crossentropies(scope):
    """Focal losses for unbalanced classes, binary and categorical."""
    with scope():
        inputs = keras.Input((6,))
        hidden = layers.Dense(8, activation="relu")(inputs)
        outputs = [layers.Dense(1, activation="sigmoid")(hidden), layers.Dense(3, activation="softmax")(hidden)]
        model = keras.Model(inputs, outputs)
        losses = [keras.losses.BinaryFocalCrossentropy(), keras.losses.CategoricalFocalCrossentropy(alpha=0.5)]
        model.compile("adam", losses, metrics=[["binary_accuracy"], ["categorical_accuracy"]])
    return fitted(model, X, [(NUMBERS > 0).astype("float32"), np.eye(3, dtype="float32")[CLASSES]])
