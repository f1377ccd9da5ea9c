# SPDX-License-Identifier: Apache-2.0
"""MirroredStrategy under Keras 3 when ranks make different calls: all ranks raise an error that names the program's calls
and values, and no rank hangs. Allowed differences, such as an additional model on one rank, have no effect."""

import time

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras_support import KerasTest, X, Y, classifier, sgd, strategy

import farandole
import farandole.tensorflow as hvd
from farandole import errors


def make(optimizer="sgd", **compile_arguments):
    with strategy().scope():
        return classifier(optimizer, **compile_arguments)()


class OneMoreTest(KerasTest):
    """A rank has made one more model, layer or optimizer, so that Keras numbers the next ones differently."""

    def setUp(self):
        super().setUp()
        self.need_several_ranks()

    def fits_and_predicts(self, model):
        history = model.fit(X[:41], Y[:41], batch_size=8, validation_data=(X, Y), verbose=0).history
        self.assert_same_on_all_ranks([history["loss"], history["val_loss"], model.predict(X[:20], verbose=0)])
        self.assert_same_on_all_ranks(model.get_weights())

    def test_model(self):
        if hvd.rank() == 0:
            classifier("adam")()
        for steps in (1, 2):
            self.fits_and_predicts(make("adam", steps_per_execution=steps))

    def test_layers(self):
        if hvd.rank() == 1:
            for _ in range(9):  # the number of digits differs, too
                keras.layers.BatchNormalization()
                keras.layers.Dense(3)
                keras.layers.Embedding(4, 6)
        with strategy().scope():
            ids = keras.Input((4,), dtype="int32")
            flat = keras.layers.Flatten()(keras.layers.Embedding(10, 6)(ids))
            normal = keras.layers.BatchNormalization(synchronized=True)(keras.layers.Dense(8)(flat))
            normal = keras.layers.BatchNormalization()(normal)
            model = keras.Model(ids, keras.layers.Dense(3, activation="softmax")(normal))
            model.compile("adam", "sparse_categorical_crossentropy")
        history = model.fit(np.arange(64).reshape(16, 4) % 10, Y[:16], batch_size=8, verbose=0).history
        self.assert_same_on_all_ranks([history["loss"], *model.get_weights()])

    def test_optimizer(self):
        if hvd.rank() == 0:
            keras.optimizers.SGD()
        model = make(lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), 2.0))
        self.fits_and_predicts(model)

    def test_clone_to_look_at(self):
        model = make("adam")
        if hvd.rank() == 0:
            keras.models.clone_model(model)
        self.fits_and_predicts(model)

    def test_cross_validation(self):
        for fold in range(3):
            if hvd.rank() == fold % hvd.size():
                classifier("adam")()
            held_out = np.arange(64) % 3 == fold
            model = make("adam")
            model.fit(X[~held_out], Y[~held_out], batch_size=16, verbose=0)
            self.assert_same_on_all_ranks([model.evaluate(X[held_out], Y[held_out], verbose=0), *model.get_weights()])

    def test_two_optimizers_and_two_tapes(self):
        """As in a GAN: both tapes go through the same synchronized normalisation."""

        class Model(keras.Model):
            def __init__(self):
                super().__init__()
                self.first = keras.layers.Dense(4)
                self.normal = keras.layers.BatchNormalization(synchronized=True)
                self.second = keras.layers.Dense(1)

            def build(self, shape):
                self.first.build(shape)
                self.normal.build((None, 4))
                self.second.build((None, 4))
                self.optimizers = [keras.optimizers.Adam(), keras.optimizers.Adam()]
                self.built = True

            def call(self, inputs, training=False):
                return self.second(self.normal(self.first(inputs), training=training))

            def train_step(self, batch):
                parts = (self.first.trainable_variables, self.second.trainable_variables)
                with tf.GradientTape() as one, tf.GradientTape() as other:
                    loss = tf.reduce_mean(self(batch[0], training=True) ** 2)
                for optimizer, tape, variables in zip(self.optimizers, (one, other), parts):
                    optimizer.apply(tape.gradient(loss, variables), variables)
                return {"loss": loss}

        if hvd.rank() == 0:
            Model().build((None, 6))
        with strategy().scope():
            model = Model()
            model.build((None, 6))
            model.compile()
        model.fit(X, Y, batch_size=16, epochs=2, verbose=0)
        self.assert_same_on_all_ranks(model.get_weights())


class ToldTest(KerasTest):
    """Ranks that make different calls."""

    model = None  # with which the job goes on

    def setUp(self):
        super().setUp()
        self.need_several_ranks()
        self.is_second = hvd.rank() == 1
        ToldTest.model = ToldTest.model or make()

    def assert_told(self, words, call):
        """All ranks raise Mismatch with these words, soon, and can go on."""
        begin = time.monotonic()
        with self.assertRaises(errors.Mismatch) as caught, hvd.converted_errors():
            call()
        self.assertLess(time.monotonic() - begin, 20)
        for each in words:
            self.assertIn(each, str(caught.exception))
        self.model.evaluate(X, Y, batch_size=16, verbose=0)

    def test_numbers_of_rows(self):
        model = make()
        rows = 40 if self.is_second else 64
        for shuffle in (False, True):
            words = ["fit(): the number of rows of x is 64 on rank 0 and 40 on rank 1"]
            self.assert_told(words, lambda: model.fit(X[:rows], Y[:rows], batch_size=16, shuffle=shuffle, verbose=0))
        words = ["evaluate(): the number of rows of x is 64 on rank 0 and 40 on rank 1"]
        self.assert_told(words, lambda: model.evaluate(X[:rows], Y[:rows], batch_size=16, verbose=0))
        words = ["predict(): the number of rows of x is 64 on rank 0 and 40 on rank 1"]
        self.assert_told(words, lambda: model.predict(X[:rows], batch_size=16, verbose=0))
        # Both ranks take the same number of batches.
        model.fit(X[:rows], Y[:rows], batch_size=16, steps_per_epoch=2, shuffle=False, verbose=0)

    def test_numbers_of_batches(self):
        def batches():
            for first in range(0, 48 if self.is_second else 64, 16):
                yield X[first : first + 16], Y[first : first + 16]

        for steps in (1, 2):
            words = [
                "rank 1 has no more batches after 3 of epoch 1; rank 0 has a 4th: "
                "give all ranks the same number of rows or set steps_per_epoch"
            ]
            self.assert_told(words, lambda: make(steps_per_execution=steps).fit(batches(), verbose=0))
        words = ["rank 1 has no more batches after 3 of evaluate(); rank 0 has a 4th: ", "set steps"]
        self.assert_told(words, lambda: make().evaluate(batches(), verbose=0))
        words = ["rank 1 has no more batches after 3 of predict(); rank 0 has a 4th: "]
        self.assert_told(words, lambda: make().predict(((x,) for x, _ in batches()), verbose=0))

    def test_a_row_in_the_middle(self):
        x, y = X.copy(), Y.copy()
        x[5, 3] += self.is_second
        y[21] = (y[21] + self.is_second) % 3
        for data in ((x, Y), (X, y)):
            for shuffle in (False, True):
                fit = lambda: self.model.fit(*data, batch_size=16, shuffle=shuffle, verbose=0)
                self.assert_told(["The ranks read different data"], fit)

    def test_loss(self):
        model = make()
        model.compile("sgd", "mae" if self.is_second else "mse")
        words = ["compile(): the loss is 'mse' on rank 0 and 'mae' on rank 1"]
        self.assert_told(words, lambda: model.fit(X, Y, verbose=0))

        def own(y, y_pred):
            return tf.reduce_mean(y_pred)

        for of_rank, words in (
            (own if self.is_second else keras.losses.MeanSquaredError(), ["the loss is MeanSquaredError(", "and own on"]),
            (
                keras.losses.MeanSquaredError(reduction="sum" if self.is_second else "sum_over_batch_size"),
                ["reduction='sum_over_batch_size'", "reduction='sum'"],
            ),
        ):
            model.compile("sgd", of_rank)
            self.assert_told(words, lambda: model.fit(X, Y, verbose=0))

    def test_optimizer_and_metrics(self):
        model = make()
        optimizers = keras.optimizers
        self.assert_told(
            ["class is Adam on rank 0 and SGD on rank 1"],
            lambda: model.compile(optimizers.SGD() if self.is_second else optimizers.Adam(), "mse"),
        )
        self.assert_told(
            ["momentum of SGD is 0.9 on rank 0 and 0.5 on rank 1"],
            lambda: model.compile(optimizers.SGD(momentum=0.5 if self.is_second else 0.9), "mse"),
        )
        model.compile("sgd", "mse", metrics=["mae"] if self.is_second else ["mae", "mse"])
        self.assert_told(["compile(): the metrics is ['mae', 'mse'] on rank 0"], lambda: model.evaluate(X, Y))

    def test_arguments(self):
        model = make()
        self.assert_told(
            ["fit(): epochs is 1 on rank 0 and 2 on rank 1"],
            lambda: model.fit(X, Y, epochs=2 if self.is_second else 1, verbose=0),
        )
        self.assert_told(
            ["fit(): steps_per_epoch is 3 on rank 0 and 4 on rank 1"],
            lambda: model.fit(X, Y, batch_size=16, steps_per_epoch=4 if self.is_second else 3, verbose=0),
        )
        self.assert_told(
            ["fit(): batch_size is 16 on rank 0 and 32 on rank 1"],
            lambda: model.fit(X, Y, batch_size=32 if self.is_second else 16, verbose=0),
        )
        self.assert_told(
            ["fit(): validation_data is given on rank 0 and left out on rank 1"],
            lambda: model.fit(X, Y, verbose=0, **({} if self.is_second else {"validation_data": (X, Y)})),
        )

    def test_model(self):
        layers = [keras.Input((6,)), keras.layers.Dense(8), keras.layers.Dense(3)]
        with strategy().scope():
            frozen = keras.Sequential(layers)
            frozen.layers[0].trainable = not self.is_second
            frozen.compile("sgd", "mse")
        self.assert_told(
            ["the number of trainable variables is 4 on rank 0 and 2 on rank 1"], lambda: frozen.fit(X, X[:, :3], verbose=0)
        )

    def test_another_function(self):
        model = make()
        one, other = lambda: model.fit(X, Y, verbose=0), lambda: model.evaluate(X, Y, verbose=0)
        words = ["rank 0 calls fit(); rank 1 calls evaluate(): all ranks must run the same program"]
        self.assert_told(words, other if self.is_second else one)
        predict = lambda: model.predict_on_batch(X[:4])
        words = ["rank 0 calls fit(); rank 1 takes batch 1 of predict_on_batch()"]
        self.assert_told(words, predict if self.is_second else one)
        words = ["train_on_batch(); rank 1 ", "test_on_batch(): all ranks"]
        on_batch = model.test_on_batch if self.is_second else model.train_on_batch
        self.assert_told(words, lambda: on_batch(X[:4], Y[:4]))

    def test_evaluation_within_fit_on_one_rank(self):
        test = self

        class Evaluates(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                if test.is_second:
                    self.model.evaluate(X, Y, verbose=0)

        def fit():
            make().fit(X, Y, batch_size=16, epochs=2, verbose=0, callbacks=[Evaluates()])

        self.assert_told(["rank 0 ends epoch 1 of fit(); rank 1 calls evaluate()"], fit)

    def test_prediction_within_an_epoch_on_one_rank(self):
        test = self

        class Predicts(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if test.is_second and batch == 1:
                    self.model.predict(X, verbose=0)

        def fit():
            make().fit(X, Y, batch_size=16, verbose=0, callbacks=[Predicts()])

        self.assert_told(["rank 0 takes batch 3 of epoch 1 of fit(); rank 1 calls predict()"], fit)

    def test_evaluation_after_fit_on_one_rank(self):
        model = make()
        model.fit(X, Y, verbose=0)

        def go_on():
            if self.is_second:
                model.evaluate(X, Y, verbose=0)
            model.fit(X, Y, verbose=0)

        self.assert_told(["rank 0 calls fit(); rank 1 calls evaluate()"], go_on)

    def test_allowed_differences(self):
        """Objects that are equal but not the same, names, and how much is printed."""
        model = make()
        if self.is_second:
            keras.losses.MeanSquaredError(), keras.optimizers.SGD(), keras.metrics.MeanAbsoluteError()
        with strategy().scope():
            loss = keras.losses.MeanSquaredError(name=f"of_rank_{hvd.rank()}")
            model.compile(keras.optimizers.SGD(), loss, metrics=[keras.metrics.MeanAbsoluteError()])
        model.fit(X, X[:, :3], batch_size=16, verbose=2 if hvd.rank() == 0 else 0)


class SharesTest(KerasTest):
    """The part of the samples that a rank has is known from the message about the batch."""

    def test_custom_batches(self):
        """As many rows of each batch as the rank says: the mean is that over all of them."""
        rows = 3 + 4 * hvd.rank()
        values = np.full((rows, 1), hvd.rank(), np.float32)
        numbers = 3 + 4 * np.arange(hvd.size())
        mean = (numbers * np.arange(hvd.size())).sum() / numbers.sum()

        def made():
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
            model.compile(keras.optimizers.SGD(1.0), lambda y, y_pred: -y * y_pred)
            return model

        inputs = np.ones_like(values)
        with strategy().scope():
            model = made()
        for _ in range(2):  # the gradient is minus the mean of the targets
            before = model.get_weights()[1]
            model.train_on_batch(inputs, values)
            np.testing.assert_allclose(model.get_weights()[1] - before, mean, rtol=1e-5)
            model.test_on_batch(inputs, values)
            # Something else in between.
            model.predict(np.ones((5, 1)), verbose=0)
        before = model.get_weights()[1]
        model.make_train_function()
        model.train_function(iter([(inputs, values)]))
        np.testing.assert_allclose(model.get_weights()[1] - before, mean, rtol=1e-5)
        # In a loop of one's own nobody has told how many there are.
        for run in (strategy().run, tf.function(strategy().run)):
            before = model.get_weights()[1]
            run(model.train_step, args=((tf.constant(inputs), tf.constant(values)),))
            np.testing.assert_allclose(model.get_weights()[1] - before, mean, rtol=1e-5)

    def test_one_collective_for_a_step(self):
        self.need_several_ranks()
        with strategy().scope():
            model = classifier(sgd())()
        model.make_train_function()
        dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).repeat()
        iterator = iter(strategy().experimental_distribute_dataset(dataset))
        model.train_function(iterator)
        before = farandole.counters()["requests"]
        for _ in range(5):
            model.train_function(iterator)
        self.assertEqual(farandole.counters()["requests"] - before, 5 * 2)  # the batch, and the gradients


if __name__ == "__main__":
    support.main()
