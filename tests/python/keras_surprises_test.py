# SPDX-License-Identifier: Apache-2.0
"""Programs that look right but break the strategy's assumptions give the results of one process, or an error."""

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras_support import TARGETS, KerasTest, X, captured_log, fit, network, strategy, with_loss

import farandole.tensorflow as hvd
from farandole import errors


def mean_step(model, data):
    x, y = data
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
    model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return {"loss": loss}


class SurprisesTest(KerasTest):
    # ---- Rows

    def test_tensors_with_other_numbers_of_rows(self):
        self.need_several_ranks()
        with strategy().scope():
            model = network()
            model.compile("sgd", "mse")
        rows = tf.data.Dataset.from_tensor_slices((X[:16], TARGETS[:16])).batch(8)
        for is_known in (True, False):
            data = rows.map(lambda x, y: (x, tf.reduce_mean(y, axis=0, keepdims=True)))
            if not is_known:
                data = data.map(lambda x, y: (x, tf.compat.v1.placeholder_with_default(y, (None, 3))))
            with self.assertRaisesRegex((errors.InvalidArgument, tf.errors.InvalidArgumentError), "rows: each rank takes"):
                model.fit(data, verbose=0)

    # ---- Steps

    def test_a_step_of_another_name(self):
        class Model(keras.Model):
            train_step = mean_step

        self.alone_and_together(with_loss(lambda: None, Model), lambda model: fit(validation=False)(model) and None)

    def test_a_function_in_several_steps(self):
        class Model(keras.Model):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.tracker = keras.metrics.Mean(name="error")

            @tf.function
            def track(self, x, y):
                self.tracker.update_state(tf.reduce_mean(tf.abs(self(x) - y)))

            def train_step(self, data):
                self.track(*data)
                return super().train_step(data)

            def test_step(self, data):
                self.track(*data)
                return super().test_step(data)

        self.alone_and_together(with_loss(lambda: "mse", Model), fit())

    def test_a_sum_in_compile_is_warned_of(self):
        self.need_several_ranks()
        with strategy().scope():
            model = network()
            model.compile("sgd", lambda y, y_pred: keras.ops.sum(keras.ops.square(y - y_pred)))
        with captured_log() as log:
            model.fit(X[:16], TARGETS[:16], batch_size=8, verbose=0)
        self.assertEqual("is a sum over the rows of this rank" in log[0], hvd.rank() == 0)

    # ---- States

    def test_a_counter_that_is_summed_up(self):
        class Counter(keras.layers.Layer):
            def build(self, shape):
                self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False, aggregation="sum")

            def call(self, x, training=False):
                if training:
                    self.seen.assign_add(keras.ops.cast(keras.ops.shape(x)[0], "float32"))
                return x

        def make():
            inputs = keras.Input((6,))
            model = keras.Model(inputs, keras.layers.Dense(3)(Counter()(inputs)))
            model.compile("sgd", "mse")
            return model

        _, together = self.alone_and_together(make, fit(validation=False))
        self.assertEqual(float(together.layers[1].seen.numpy()), 82.0)

    def test_a_mean_with_a_number_as_weight(self):
        class Model(keras.Model):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.tracker = keras.metrics.Mean(name="error")

            def train_step(self, data):
                x, y = data
                self.tracker.update_state(tf.reduce_mean(tf.abs(self(x) - y)), sample_weight=2.0)
                return super().train_step(data)

        self.alone_and_together(with_loss(lambda: "mse", Model), fit(validation=False))

    # ---- Batch by batch

    def test_models_that_drift_apart_batch_by_batch(self):
        self.need_several_ranks()
        with strategy().scope():
            model = network()
            model.compile("sgd", "mse")
        with self.assertRaisesRegex(errors.Mismatch, "after 10 batches the models of the ranks differ"):
            for batch in range(20):
                model.train_on_batch(X[:8], TARGETS[:8])
                if hvd.rank() == 1 and batch == 3:
                    model.layers[1].bias.assign_add(np.ones(5))

    def test_equal_models_are_distinguished(self):
        self.need_several_ranks()
        with strategy().scope():
            models = [network(), network()]
            for model in models:
                model.compile("sgd", "mse")
        for call in ("train_on_batch", "fit"):
            with self.assertRaises(errors.Mismatch), hvd.converted_errors():
                getattr(models[min(hvd.rank(), 1)], call)(X[:8], TARGETS[:8])


if __name__ == "__main__":
    support.main()
