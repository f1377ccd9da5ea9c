# SPDX-License-Identifier: Apache-2.0
"""MirroredStrategy under Keras 3's fit: values of metrics with uneven and empty parts, compared with one process."""

import unittest.mock

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from keras_support import RANDOM, KerasTest, X, strategy

import farandole.tensorflow as hvd
from farandole import _engine, errors

ROWS = 41
VALUES = RANDOM.random((64, 3)).astype(np.float32)
LABELS = (RANDOM.random((64, 3)) < 0.4).astype(np.float32)
CLASSES = RANDOM.integers(0, 3, size=(64, 1))

# Targets, and the metrics of Keras that take these targets, with the arguments of each metric.
STOCK = {
    "values": (
        VALUES,
        {
            "MeanSquaredError": {},
            "RootMeanSquaredError": {},
            "MeanAbsoluteError": {},
            "MeanAbsolutePercentageError": {},
            "MeanSquaredLogarithmicError": {},
            "CosineSimilarity": {},
            "LogCoshError": {},
            "R2Score": {},
            "Poisson": {},
            "KLDivergence": {},
            "ConcordanceCorrelation": {},
            "PearsonCorrelation": {},
        },
    ),
    "labels": (
        LABELS,
        {
            "BinaryAccuracy": {},
            "BinaryCrossentropy": {},
            "Hinge": {},
            "SquaredHinge": {},
            "Accuracy": {},
            "AUC": {"num_thresholds": 20},
            "Precision": {},
            "Recall": {},
            "TruePositives": {},
            "TrueNegatives": {},
            "FalsePositives": {},
            "FalseNegatives": {},
            "PrecisionAtRecall": {"recall": 0.5},
            "RecallAtPrecision": {"precision": 0.4},
            "SensitivityAtSpecificity": {"specificity": 0.5},
            "SpecificityAtSensitivity": {"sensitivity": 0.5},
            "BinaryIoU": {},
            "F1Score": {"threshold": 0.5, "average": "micro"},
            "FBetaScore": {"threshold": 0.5, "average": "macro"},
        },
    ),
    "one of three": (
        np.eye(3, dtype=np.float32)[CLASSES[:, 0]],
        {
            "CategoricalAccuracy": {},
            "TopKCategoricalAccuracy": {"k": 2},
            "CategoricalCrossentropy": {},
            "CategoricalHinge": {},
            "OneHotIoU": {"num_classes": 3, "target_class_ids": [0, 2], "sparse_y_pred": False},
            "OneHotMeanIoU": {"num_classes": 3, "sparse_y_pred": False},
        },
    ),
    "classes": (
        CLASSES,
        {
            "SparseCategoricalAccuracy": {},
            "SparseTopKCategoricalAccuracy": {"k": 2},
            "SparseCategoricalCrossentropy": {},
            "IoU": {"num_classes": 3, "target_class_ids": [0, 2], "sparse_y_pred": False},
            "MeanIoU": {"num_classes": 3, "sparse_y_pred": False},
        },
    ),
}
# They are bases, or take other arguments; what the test of numbers says of them is below.
OTHERS = {"Metric", "Mean", "Sum", "MeanMetricWrapper"}


def scalar(y_true, y_pred):
    return ops.mean(ops.abs(y_true - y_pred))


class RunningMaximum(keras.metrics.Metric):
    def __init__(self, start="zeros", **kwargs):
        super().__init__(**kwargs)
        self.largest = self.add_variable(shape=(), initializer=start, name="largest")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.largest.assign(ops.maximum(self.largest, ops.max(y_pred)))

    def result(self):
        return self.largest + 0.0


class RunningMinimum(keras.metrics.Metric):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.smallest = self.add_variable(shape=(3,), initializer=keras.initializers.Constant(9.0), name="smallest")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.smallest.assign(ops.cast(ops.minimum(ops.min(y_pred, axis=0), self.smallest), "float32"))

    def reset_state(self):
        self.smallest.assign(9.0 * ops.ones((3,)))

    def result(self):
        return ops.sum(self.smallest)


class SumsOfSorts(keras.metrics.Metric):
    """Sums that are not written as `total + x`, one of which does not start with nothing."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.totals = [self.add_variable(shape=(), initializer="zeros", name=f"total_{i}") for i in range(3)]
        self.counts = self.add_variable(shape=(4,), initializer="ones", dtype="int32", name="counts")

    def update_state(self, y_true, y_pred, sample_weight=None):
        first, second, third = self.totals
        first.assign(ops.sum(y_pred) + first + 1.0 * ops.sum(y_true))
        second.assign_sub(ops.sum(y_pred))
        third.assign(ops.where(ops.sum(y_pred) > 100.0, third, third + ops.sum(y_pred)))
        bins = ops.cast(ops.clip(ops.ravel(y_pred) * 4, 0, 3), "int32")
        self.counts.assign(tf.tensor_scatter_nd_add(self.counts.value, bins[:, None], tf.ones_like(bins)))

    def reset_state(self):
        for total in self.totals:
            total.assign(0.0)
        self.counts.assign(ops.ones((4,), "int32"))

    def result(self):
        counts = ops.cast(self.counts, "float32")
        return self.totals[0] + 3.0 * self.totals[1] + 7.0 * self.totals[2] + ops.sum(counts * ops.arange(4.0))


def metric_of(assign, **arguments):
    """A class of metrics whose one variable gets the value `assign(metric, y_pred)`."""

    class Own(keras.metrics.Metric):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.state = self.add_variable(shape=(), initializer="zeros", name="state", **arguments)

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.state.assign(assign(self, y_pred))

        def result(self):
            return self.state + 0.0

    return Own


class MetricsTest(KerasTest):
    def compare(self, metrics, y=VALUES, rtol=1e-5, evaluates=True, **options):
        """Trains and evaluates with the result of `metrics`, alone and on all ranks."""

        def make():
            inputs = keras.Input((6,))
            model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(inputs))
            model.compile(keras.optimizers.SGD(0.01), scalar, metrics=metrics(), **options)
            return model

        def train(model):
            validation = (X[:19], y[:19]) if evaluates else None
            return model.fit(
                X[:ROWS], y[:ROWS], batch_size=8, epochs=2, shuffle=False, verbose=0, validation_data=validation
            )

        return self.alone_and_together(make, train, rtol=rtol)

    # ---- Metrics of Keras

    def test_all_metrics_of_keras(self):
        named = {name for _, kinds in STOCK.values() for name in kinds} | OTHERS
        public = {
            name
            for name, kind in vars(keras.metrics).items()
            if isinstance(kind, type) and issubclass(kind, keras.metrics.Metric)
        }
        self.assertLessEqual(public, named)
        for y, kinds in STOCK.values():
            known = {name: arguments for name, arguments in kinds.items() if name in public}
            self.compare(
                lambda known=known: [
                    getattr(keras.metrics, name)(**arguments, name=f"m_{name}") for name, arguments in known.items()
                ],
                y,
                rtol=1e-4,
            )

    def test_functions_that_return_one_number(self):
        self.compare(lambda: [scalar])
        self.compare(lambda: [keras.metrics.MeanMetricWrapper(scalar, name="own")], run_eagerly=True)

    def test_numbers_in_an_own_step(self):
        """Plain numbers count once per batch, weighted values count by their weight, and sums are added up."""

        class Model(keras.Model):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.means = [keras.metrics.Mean(name=f"mean_{i}") for i in range(5)]
                self.rows = keras.metrics.Sum(name="rows")

            @property
            def metrics(self):
                return [*self.means, self.rows]

            def train_step(self, data):
                x, y = data
                loss = ops.mean(ops.square(self(x) - y))
                rows = ops.shape(x)[0]
                self.means[0].update_state(loss)
                self.means[1].update_state(loss, sample_weight=rows)
                self.means[2].update_state(ops.sum(ops.square(self(x)), axis=1))
                self.means[3].update_state(ops.stack([loss, 0.5 * loss]))
                self.means[4].update_state(0.25)
                update = lambda: self.means[4].update_state(loss) or 0  # noqa: E731
                tf.cond(rows > 3, update, update)
                self.rows.update_state(rows)
                return {metric.name: metric.result() for metric in self.metrics}

        def make():
            inputs = keras.Input((6,))
            model = Model(inputs, keras.layers.Dense(3)(inputs))
            model.compile()
            return model

        self.alone_and_together(
            make, lambda model: model.fit(X[:ROWS], VALUES[:ROWS], batch_size=8, epochs=2, shuffle=False, verbose=0)
        )

    # ---- Metrics of the program

    def test_maxima_and_minima(self):
        self.compare(lambda: [RunningMaximum(name="above"), RunningMinimum(name="below")])
        # Below zero, from a start that is below too.
        kind = metric_of(lambda metric, y_pred: ops.maximum(metric.state, -1.0 - ops.mean(y_pred)))
        with strategy().scope():
            metric = RunningMaximum(start=keras.initializers.Constant(-100.0))
            inputs = keras.Input((6,))
            model = keras.Model(inputs, -5.0 - ops.relu(keras.layers.Dense(3)(inputs)))
            model.compile("sgd", scalar, metrics=[metric, kind()])

        class Start(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                metric.largest.assign(-100.0)

        model.fit(X[:ROWS], VALUES[:ROWS], batch_size=8, verbose=0, callbacks=[Start()])
        found = float(metric.result())
        self.assertLessEqual(found, -5.0)
        self.assertGreater(found, -50.0)
        self.assert_same_on_all_ranks([found])

    def test_sums(self):
        self.compare(lambda: [SumsOfSorts(name="sums")], rtol=1e-4)

    def test_state_that_cannot_be_combined(self):
        self.need_several_ranks()
        ways = {
            "last value": lambda metric, y_pred: ops.max(y_pred),
            "moving average": lambda metric, y_pred: 0.9 * metric.state + 0.1 * ops.max(y_pred),
            "running mean": lambda metric, y_pred: metric.state + 0.1 * (ops.max(y_pred) - metric.state),
            "product": lambda metric, y_pred: metric.state * ops.max(y_pred),
        }
        for name, way in ways.items():
            with self.subTest(name):
                with strategy().scope():
                    inputs = keras.Input((6,))
                    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
                    model.compile("sgd", "mse", metrics=[metric_of(way)(name="mine")])
                with self.assertRaisesRegex(errors.InvalidArgument, "'mine'.*state.*aggregation"):
                    model.fit(X[:ROWS], VALUES[:ROWS], batch_size=8, verbose=0)

    def test_aggregation_that_the_metric_names(self):
        def last(metric, y_pred):
            return ops.max(y_pred)

        seen = {}
        for aggregation in ("sum", "mean", "only_first_replica", "none"):
            with strategy().scope():
                inputs = keras.Input((6,))
                model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(inputs))
                metric = metric_of(last, aggregation=aggregation)(name="mine")
                model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[metric])
            model.fit(X[:8], VALUES[:8], batch_size=8, shuffle=False, verbose=0)
            outputs = np.array_split(model.predict(X[:8], verbose=0), hvd.size())
            of_ranks = [part.max() for part in outputs]
            shares = [len(part) / 8 for part in outputs]
            seen[aggregation] = (
                float(metric.result()),
                {
                    "sum": sum(of_ranks),
                    "mean": np.dot(shares, of_ranks),
                    "only_first_replica": of_ranks[0],
                    "none": of_ranks[hvd.rank()],
                }[aggregation],
            )
        for aggregation, (found, expected) in seen.items():
            np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=aggregation)

    def test_values_that_are_set_outside_of_steps(self):
        with strategy().scope():
            metric = SumsOfSorts()
        np.testing.assert_array_equal(metric.counts.numpy(), [1, 1, 1, 1])
        metric.counts.assign([5, 6, 7, 8])
        np.testing.assert_array_equal(metric.counts.numpy(), [5, 6, 7, 8])

    def test_eager_steps_warn_of_metrics_they_cannot_merge(self):
        said = []
        log = unittest.mock.patch.object(_engine, "log", lambda level, text: said.append(text))
        with log, strategy().scope():
            inputs = keras.Input((6,))
            model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(inputs))
            model.compile("sgd", "mse", metrics=[RunningMaximum(name="unseen"), "mae"], run_eagerly=True)
            model.fit(X[:16], VALUES[:16], batch_size=8, verbose=0)
        about = [text for text in said if "runs eagerly" in text]
        self.assertEqual(len(about), 1 if hvd.rank() == 0 and hvd.size() > 1 else 0)


if __name__ == "__main__":
    support.main()
