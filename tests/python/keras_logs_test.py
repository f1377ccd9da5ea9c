# SPDX-License-Identifier: Apache-2.0
"""Callbacks get the same logs on all ranks, whatever a training step returns. Ranks whose models drift apart raise an error."""

import tempfile
from pathlib import Path

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras_support import KerasTest, X, Y, classifier, sgd, strategy

import farandole.tensorflow as hvd
from farandole import errors

# The last of these batches of 8 has one row only: all ranks but the first have none.
SAMPLES = 41


class LikeTheGuide(keras.Model):
    """The step of Keras' guide, whose names nest: {"loss": …, "compile_metrics": {"accuracy": …}}."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in self.metrics:
            if metric.name != "loss":
                metric.update_state(y, predicted)
        return {metric.name: metric.result() for metric in self.metrics}


class WithLearningRate(keras.Model):
    def train_step(self, data):
        return {**super().train_step(data), "lr": self.optimizer.learning_rate}


class WithOwnNumbers(keras.Model):
    """Numbers of the last batch, one of which is called as a metric that nobody updates."""

    def train_step(self, data):
        x, y = data
        super().train_step(data)
        self._loss_tracker.reset_state()
        distance = tf.reduce_mean(tf.square(self(x)), axis=-1)
        return {
            "loss": tf.reduce_mean(distance),
            "inner": {"mean": tf.reduce_mean(x[:, 0]), "rank": tf.constant(f"rank {hvd.rank()}")},
            "renamed": self.metrics[1].result()["accuracy"],
        }


def functional(kind, **arguments):
    def make():
        inputs = keras.Input((6,))
        outputs = keras.layers.Dense(3, activation="softmax")(keras.layers.Dense(8, activation="tanh")(inputs))
        model = kind(inputs, outputs)
        loss = keras.losses.SparseCategoricalCrossentropy()
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"], **arguments)
        return model

    return make


class Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.logs = []

    def on_epoch_end(self, epoch, logs=None):
        self.logs.append({key: value for key, value in sorted(logs.items())})


class LogsTest(KerasTest):
    def fit(self, model, *callbacks, samples=SAMPLES, **arguments):
        options = {"batch_size": 8, "shuffle": False, "verbose": 0, "epochs": 2, **arguments}
        return model.fit(X[:samples], Y[:samples], callbacks=list(callbacks), **options)

    def assert_agreed(self, value):
        self.assertEqual(hvd.allgather_object(value), [value] * hvd.size())

    def together(self, make):
        with strategy().scope():
            return make()

    # ---- Logs

    def test_names_that_nest_as_in_the_guide(self):
        for arguments in ({}, {"steps_per_execution": 2}, {"run_eagerly": True}):
            with self.subTest(**arguments):
                model = self.together(functional(LikeTheGuide, **arguments))
                alone = functional(LikeTheGuide, **arguments)()
                alone.set_weights(model.get_weights())
                seen, expected = Seen(), Seen()
                samples = 44 if arguments.get("run_eagerly") else SAMPLES
                self.fit(model, seen, samples=samples)
                self.fit(alone, expected, samples=samples)
                self.assert_agreed(seen.logs)
                for mine, other in zip(seen.logs, expected.logs):
                    self.assertEqual(list(mine), list(other))
                    np.testing.assert_allclose(mine["accuracy"], other["accuracy"], rtol=1e-5)

    def test_the_learning_rate_among_the_logs(self):
        def train(model):
            return self.fit(model, validation_data=(X, Y))

        self.alone_and_together(functional(WithLearningRate), train)

    def test_custom_logs_are_weighted_by_the_last_batch(self):
        for samples in (SAMPLES, 44):  # 1 and 4 rows in the last batch
            model, alone = self.together(functional(WithOwnNumbers)), functional(WithOwnNumbers)()
            alone.set_weights(model.get_weights())
            seen, expected = Seen(), Seen()
            for each, callback in ((model, seen), (alone, expected)):
                self.fit(each, callback, samples=samples, epochs=1)
            self.assert_agreed(seen.logs)
            (mine,), (other,) = seen.logs, expected.logs
            self.assertEqual(mine.pop("rank"), b"rank 0")
            other.pop("rank")
            self.assertEqual(list(mine), list(other))
            self.assertGreater(mine["loss"], 0)
            np.testing.assert_allclose(list(mine.values()), list(other.values()), rtol=1e-4, err_msg=str(list(mine)))

    def test_evaluate_and_validation(self):
        class Model(keras.Model):
            def test_step(self, data):
                return {**super().test_step(data), "mean": tf.reduce_mean(data[0])}

        model = self.together(functional(Model))
        values = model.evaluate(X[:SAMPLES], Y[:SAMPLES], batch_size=8, verbose=0, return_dict=True)
        self.assert_agreed(values)
        np.testing.assert_allclose(values["mean"], X[SAMPLES - 1].mean(), rtol=1e-4)
        history = self.fit(model, validation_data=(X[:SAMPLES], Y[:SAMPLES])).history
        self.assert_agreed(history)

    def test_different_names(self):
        self.need_several_ranks()

        class Model(keras.Model):
            def train_step(self, data):
                logs = super().train_step(data)
                return {**logs, "more": logs["loss"]} if hvd.rank() == 1 else logs

        with self.assertRaisesRegex(errors.Mismatch, "rank 0 has accuracy, loss, rank 1 has accuracy, loss, more"):
            self.fit(self.together(functional(Model)))

    def test_callbacks_decide_alike(self):
        for kind in (LikeTheGuide, WithOwnNumbers):
            with self.subTest(kind=kind.__name__), tempfile.TemporaryDirectory() as folder:
                model = self.together(functional(kind))
                monitor = {"monitor": "accuracy" if kind is LikeTheGuide else "loss", "mode": "min"}
                reducing = keras.callbacks.ReduceLROnPlateau(**monitor, factor=0.5, patience=1)
                stopping = keras.callbacks.EarlyStopping(**monitor, patience=3, restore_best_weights=True)
                path = Path(folder) / "best.weights.h5"
                saving = keras.callbacks.ModelCheckpoint(
                    str(path), **monitor, save_best_only=True, save_weights_only=True
                )
                history = self.fit(model, reducing, stopping, saving, epochs=6)
                rate = float(model.optimizer.learning_rate)
                self.assert_agreed([len(history.epoch), rate, stopping.best, saving.best])
                self.assert_same_on_all_ranks(model.get_weights())

    # ---- Drift

    def assert_drift(self, callback, text, **arguments):
        model = self.together(classifier(sgd(momentum=0.9), **arguments))
        with self.assertRaises(errors.Mismatch) as caught:
            self.fit(model, callback, epochs=3)
        for part in text:
            self.assertIn(part, str(caught.exception))

    def test_weight_changed_on_one_rank_is_drift(self):
        self.need_several_ranks()

        class Change(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                if hvd.rank() == 1 and epoch == 1:
                    kernel = self.model.layers[1].kernel
                    kernel.assign(2 * kernel)

        self.assert_drift(Change(), ["after epoch 2", "/kernel on rank 1 is not that of rank 0"])

    def test_learning_rate_changed_on_one_rank_is_drift(self):
        self.need_several_ranks()

        class Change(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                if hvd.rank() == 1:
                    self.model.optimizer.learning_rate = 0.05

        self.assert_drift(Change(), ["after epoch 1", "learning_rate is 0.1 on rank 0 and 0.05 on rank 1"])

    def test_weights_that_are_loaded_on_one_rank(self):
        self.need_several_ranks()
        model = self.together(classifier(sgd()))
        if hvd.rank() == 0:
            model.set_weights([weight + 1 for weight in model.get_weights()])
        with self.assertRaisesRegex(errors.Mismatch, "before training .*; and 1 more difference"):
            self.fit(model)

    def test_rounding_is_no_drift(self):
        self.need_several_ranks()

        class Round(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                if hvd.rank() == 1:
                    kernel = self.model.layers[0].kernel
                    kernel.assign(kernel * (1 + 1e-6))

        model = self.together(classifier(sgd()))
        self.fit(model, Round())
        self.assert_same_on_all_ranks(model.get_weights())

    def test_per_rank_state_is_no_drift(self):
        with strategy().scope():
            layers = [keras.layers.Dropout(0.5), keras.layers.BatchNormalization(), keras.layers.Dense(3)]
            model = keras.Sequential([keras.Input((6,)), *layers])
            optimizer = keras.optimizers.Adam(gradient_accumulation_steps=4)
            model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        self.fit(model, epochs=2)  # ends between two updates


if __name__ == "__main__":
    support.main()
