# SPDX-License-Identifier: Apache-2.0
"""MirroredStrategy under Keras 3's fit: custom training steps, refused programs, programs that differ between ranks."""

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras_support import KerasTest, X, Y, classifier, sgd, strategy

import farandole.tensorflow as hvd
from farandole import errors


class ProgramsTest(KerasTest):
    # ---- Own training steps

    def test_own_train_step_with_compute_loss(self):
        class Model(keras.Model):
            def train_step(self, batch):
                inputs, targets = batch
                with tf.GradientTape() as tape:
                    loss = self.compute_loss(inputs, targets, self(inputs, training=True))
                variables = self.trainable_variables
                self.optimizer.apply(tape.gradient(loss, variables), variables)
                return {"loss": loss}

        def make():
            inputs = keras.Input((6,))
            model = Model(inputs, keras.layers.Dense(3, activation="softmax")(inputs))
            model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
            return model

        def train(model):
            model.fit(X[:41], Y[:41], batch_size=8, epochs=2, shuffle=False, verbose=0)

        self.alone_and_together(make, train)

    def test_jit_is_refused_by_name(self):
        with strategy().scope():
            model = classifier(sgd(), jit_compile=True)()
        with self.assertRaisesRegex(errors.Unsupported, "jit_compile"):
            model.fit(X, Y, batch_size=16, verbose=0)
        with strategy().scope():
            model = classifier(sgd(), jit_compile="auto")()
        model.fit(X, Y, batch_size=16, verbose=0)

    def test_objects_made_outside_of_the_scope(self):
        self.need_several_ranks()
        with strategy().scope():
            model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, activation="softmax")])
        optimizer = keras.optimizers.SGD(0.1)  # may be
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=[keras.metrics.SparseCategoricalAccuracy()])
        with self.assertRaisesRegex(errors.InvalidArgument, "outside of strategy.scope"):
            model.fit(X, Y, batch_size=16, verbose=0)
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])  # may be, too
        history = model.fit(X, Y, batch_size=16, verbose=0).history
        self.assert_same_on_all_ranks([history["loss"], history["accuracy"]])

    def test_learning_rate_is_a_number(self):
        with strategy().scope():
            model = classifier(sgd())()
        self.assertAlmostEqual(float(model.optimizer.learning_rate), 0.1, places=6)

    # ---- Programs that differ between ranks

    def assert_refused(self, text, call):
        with self.assertRaises(errors.Mismatch) as caught, hvd.converted_errors():
            call()
        self.assertIsInstance(caught.exception, tf.errors.FailedPreconditionError)
        self.assertIn(text, str(caught.exception))

    def test_different_numbers_of_batches(self):
        self.need_several_ranks()
        with strategy().scope():
            model = classifier(sgd())()
        samples = 64 - 16 * (hvd.rank() == 1)
        for train in (
            lambda: model.fit(X[:samples], Y[:samples], batch_size=16, shuffle=False, verbose=0),
            lambda: model.evaluate(X[:samples], Y[:samples], batch_size=16, verbose=0),
            lambda: model.predict(X[:samples], batch_size=16, verbose=0),
            lambda: model.fit(X, Y, batch_size=16, steps_per_epoch=4 - (hvd.rank() == 1), verbose=0),
        ):
            self.assert_refused("rank 1", train)

    def test_generators_of_different_length(self):
        self.need_several_ranks()
        def batches():
            for _ in range(4 - (hvd.rank() == 1)):
                yield X[:16], Y[:16]

        for steps in (1, 2):
            with strategy().scope():
                model = classifier(sgd(), steps_per_execution=steps)()
            self.assert_refused("rank 1 has no more batches", lambda: model.fit(batches(), verbose=0))

    def test_different_data(self):
        self.need_several_ranks()
        with strategy().scope():
            model = classifier(sgd())()
        order = np.random.default_rng(hvd.rank()).permutation(64)
        dataset = tf.data.Dataset.from_tensor_slices((X[order], Y[order])).batch(16)
        self.assert_refused("different data", lambda: model.fit(dataset, verbose=0))
        # The job goes on.
        model.fit(X, Y, batch_size=16, verbose=0)


if __name__ == "__main__":
    support.main()
