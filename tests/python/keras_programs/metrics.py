# SPDX-License-Identifier: Apache-2.0
"""Metrics of Keras, user-defined metrics, and their values with uneven batches."""

import keras
import numpy as np
from comparison import program
from keras import layers, ops

RANDOM = np.random.default_rng(8)
BATCH = 8
X = RANDOM.normal(size=(41, 6)).astype("float32")  # the last batch has one row
NUMBERS = (X @ RANDOM.normal(size=(6, 1))).astype("float32")
POSITIVE = (NUMBERS > 0).astype("float32")
CLASSES = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)
ONE_HOT = np.eye(3, dtype="float32")[CLASSES]
WEIGHTS = RANDOM.uniform(0.2, 2.0, size=41).astype("float32")


def model_for(outputs, activation=None):
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(outputs, activation=activation)]
    )


def fitted(model, y, validation_rows=13, **arguments):
    """Trains with validation and evaluates, in batches of other sizes."""
    history = model.fit(
        X,
        y,
        batch_size=BATCH,
        epochs=2,
        validation_data=(X[:validation_rows], y[:validation_rows]),
        validation_batch_size=5,
        shuffle=False,
        verbose=0,
        **arguments,
    )
    evaluated = model.evaluate(X, y, batch_size=10, verbose=0, return_dict=True)
    return {"history": history.history, "evaluated": evaluated, "weights": model.get_weights()}


@program()
def metrics_of_regression(scope):
    """All metrics of Keras for numbers."""
    with scope():
        kinds = keras.metrics
        model = model_for(2)
        model.compile(
            "adam",
            "mse",
            metrics=[
                kinds.MeanSquaredError(),
                kinds.RootMeanSquaredError(),
                kinds.MeanAbsoluteError(),
                kinds.MeanAbsolutePercentageError(),
                kinds.MeanSquaredLogarithmicError(),
                kinds.LogCoshError(),
                kinds.CosineSimilarity(),
                kinds.R2Score(),
            ],
        )
    return fitted(model, np.concatenate([NUMBERS, X[:, :1]], axis=1))


@program()
def metrics_of_two_classes(scope):
    """Accuracy, AUC, and metrics derived from the confusion matrix, for two classes."""
    with scope():
        kinds = keras.metrics
        model = model_for(1, "sigmoid")
        model.compile(
            "adam",
            "binary_crossentropy",
            metrics=[
                "accuracy",
                kinds.BinaryCrossentropy(),
                kinds.AUC(num_thresholds=50),
                kinds.AUC(curve="PR", name="area_pr"),
                kinds.Precision(),
                kinds.Recall(thresholds=[0.3, 0.6]),
                kinds.TruePositives(),
                kinds.FalseNegatives(),
                kinds.F1Score(threshold=0.5),
                kinds.BinaryIoU(),
            ],
        )
    return fitted(model, POSITIVE)


@program(full_only=True)  # covered by metrics_of_two_classes
def other_metrics_of_two_classes(scope):
    """The other metrics that Keras has for two classes."""
    with scope():
        kinds = keras.metrics
        model = model_for(1, "sigmoid")
        model.compile(
            "adam",
            "binary_crossentropy",
            metrics=[
                kinds.BinaryAccuracy(threshold=0.4),
                kinds.FalsePositives(),
                kinds.TrueNegatives(),
                kinds.PrecisionAtRecall(0.5),
                kinds.RecallAtPrecision(0.5),
                kinds.SensitivityAtSpecificity(0.5),
                kinds.SpecificityAtSensitivity(0.5),
                kinds.FBetaScore(beta=2.0, threshold=0.5),
                kinds.Hinge(),
                kinds.SquaredHinge(),
                kinds.Poisson(),
            ],
        )
    return fitted(model, POSITIVE)


@program(full_only=True)  # covered by metrics_of_two_classes: states are sums there too
def metrics_of_several_classes(scope):
    """Metrics of one-hot targets: accuracies, F1 of each class, intersection over union."""
    with scope():
        kinds = keras.metrics
        model = model_for(3, "softmax")
        model.compile(
            "adam",
            "categorical_crossentropy",
            metrics=[
                "acc",
                kinds.CategoricalCrossentropy(),
                kinds.TopKCategoricalAccuracy(k=2),
                kinds.F1Score(average="macro"),
                kinds.FBetaScore(average=None, beta=0.5, name="of_each_class"),
                kinds.OneHotMeanIoU(num_classes=3),
                kinds.AUC(multi_label=True, num_labels=3, num_thresholds=20),
            ],
        )
    return fitted(model, ONE_HOT)


@program(full_only=True)  # covered by metrics_of_two_classes
def other_metrics_of_several_classes(scope):
    """The other metrics that Keras has for several classes."""
    with scope():
        kinds = keras.metrics
        model = model_for(3, "softmax")
        model.compile(
            "adam",
            "categorical_crossentropy",
            metrics=[
                kinds.CategoricalAccuracy(),
                kinds.CategoricalHinge(),
                kinds.KLDivergence(),
                kinds.OneHotIoU(num_classes=3, target_class_ids=[0, 2]),
                kinds.Precision(top_k=2),
                kinds.Recall(class_id=1),
            ],
        )
    return fitted(model, ONE_HOT)


@program(full_only=True)  # covered by metrics_of_two_classes
def metrics_of_sparse_classes(scope):
    """Metrics of targets that are numbers of classes."""
    with scope():
        kinds = keras.metrics
        model = model_for(3, "softmax")
        model.compile(
            "adam",
            "sparse_categorical_crossentropy",
            metrics=[
                kinds.SparseCategoricalAccuracy(),
                kinds.SparseTopKCategoricalAccuracy(k=2),
                kinds.SparseCategoricalCrossentropy(),
                kinds.MeanIoU(num_classes=3, sparse_y_pred=False),
                kinds.IoU(num_classes=3, target_class_ids=[1], sparse_y_pred=False),
            ],
        )
    return fitted(model, CLASSES)


@program(full_only=True)  # covered by metrics_of_regression
def correlations(scope):
    """Metrics of correlation within each sample."""
    with scope():
        model = model_for(4)
        names = [name for name in ("PearsonCorrelation", "ConcordanceCorrelation") if hasattr(keras.metrics, name)]
        model.compile("adam", "mse", metrics=["cosine_similarity", *(getattr(keras.metrics, name)() for name in names)])
    return fitted(model, X[:, :4])


@program()
def own_metric_with_sums(scope):
    """A subclass of Metric with add_variable, whose states are sums over the samples, as in the guide."""

    class CategoricalTruePositives(keras.metrics.Metric):
        def __init__(self, name="categorical_true_positives", **kwargs):
            super().__init__(name=name, **kwargs)
            self.true_positives = self.add_variable(shape=(), name="ctp", initializer="zeros")
            self.of_class = self.add_variable(shape=(3,), name="of_class", initializer="zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            y_pred = ops.reshape(ops.argmax(y_pred, axis=1), (-1, 1))
            values = ops.cast(ops.equal(ops.cast(y_true, "int32"), ops.cast(y_pred, "int32")), "float32")
            if sample_weight is not None:
                values = ops.multiply(values, ops.cast(sample_weight, "float32"))
            self.true_positives.assign_add(ops.sum(values))
            chosen = ops.one_hot(ops.squeeze(y_pred, 1), 3)
            self.of_class.assign(self.of_class + ops.sum(chosen, axis=0))

        def result(self):
            return self.true_positives + 0.001 * self.of_class[1]

        def reset_state(self):
            self.true_positives.assign(0.0)
            self.of_class.assign(ops.zeros(3))

    with scope():
        model = model_for(3, "softmax")
        model.compile("adam", "sparse_categorical_crossentropy", metrics=[CategoricalTruePositives()])
    return fitted(model, CLASSES[:, np.newaxis])


@program()
def functions_as_metrics(scope):
    """Functions: of each sample, and of the whole batch, which return one number."""

    def of_each_sample(y_true, y_pred):
        return ops.abs(y_true - y_pred)

    def of_the_batch(y_true, y_pred):
        return ops.mean(ops.cast(ops.sign(y_true) == ops.sign(y_pred), "float32"))

    with scope():
        model = model_for(1)
        model.compile("adam", "mse", metrics=[of_each_sample, of_the_batch, "mae"])
    return fitted(model, NUMBERS)


@program()
def weighted_metrics(scope):
    """Metrics with and without the weights of samples, in training and evaluation."""
    with scope():
        model = model_for(3, "softmax")
        model.compile(
            "adam",
            "categorical_crossentropy",
            metrics=["accuracy"],
            weighted_metrics=["accuracy", keras.metrics.AUC(num_thresholds=20), keras.metrics.F1Score(average="micro")],
        )
    results = fitted(model, ONE_HOT, sample_weight=WEIGHTS)
    return results | {"weighted": model.evaluate(X, ONE_HOT, BATCH, sample_weight=WEIGHTS, verbose=0, return_dict=True)}


@program()
def metrics_within_a_model(scope):
    """add_metric's successor: a layer that keeps a Mean of its activations as a metric."""

    class Watched(layers.Layer):
        def __init__(self):
            super().__init__()
            self.level = keras.metrics.Mean(name="level")

        def call(self, inputs):
            self.level.update_state(ops.mean(ops.abs(inputs), axis=-1))
            return inputs

    with scope():
        watched = Watched()
        model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), watched, layers.Dense(1)])
        model.compile("adam", "mse")
    results = fitted(model, NUMBERS)
    return results | {"metrics": sorted(model.metrics_names)}


@program(full_only=True)  # covered by weighted_metrics
def uneven_last_batches(scope):
    """One row more and one less than batches have, in training, validation and evaluation."""
    results = {}
    for rows in (39, 40, 41):
        with scope():
            model = model_for(3, "softmax")
            model.compile("adam", "categorical_crossentropy", metrics=["accuracy", keras.metrics.F1Score()])
        last = (X[rows - 17 : rows], ONE_HOT[rows - 17 : rows])
        history = model.fit(X[:rows], ONE_HOT[:rows], BATCH, validation_data=last, shuffle=False, verbose=0)
        evaluated = model.evaluate(X[:rows], ONE_HOT[:rows], BATCH, verbose=0)
        results[rows] = {"history": history.history, "evaluated": evaluated, "weights": model.get_weights()}
    return results


@program(full_only=True)  # covered by models.sequential: evaluate after fit
def metrics_in_a_loop_of_evaluate(scope):
    """evaluate again and again with a stateful metric, and metrics reset between: the numbers do not add up."""
    with scope():
        model = model_for(1, "sigmoid")
        model.compile("sgd", "binary_crossentropy", metrics=["accuracy", keras.metrics.TruePositives()])
    results = []
    for rows in (41, 16, 7):
        model.fit(X[:rows], POSITIVE[:rows], BATCH, shuffle=False, verbose=0)
        results.append(model.evaluate(X[:rows], POSITIVE[:rows], BATCH, verbose=0, return_dict=True))
    return {"evaluated": results, "weights": model.get_weights()}
