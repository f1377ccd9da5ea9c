"""MirroredStrategy under Keras 3's fit: losses of every kind and own training steps, against one process.

With 41 rows in batches of 8 parts are uneven on 3 ranks, and the last batch leaves all ranks but the first without rows.
"""

import unittest.mock

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from keras_support import RANDOM, KerasTest, X, Y, strategy

import farandole.tensorflow as hvd
from farandole import _engine

ROWS = 41
TARGETS = (X @ RANDOM.normal(size=(6, 3))).astype(np.float32)
MASKS = (RANDOM.random((64, 3)) < 0.5).astype(np.float32)


def fit(x=X, y=TARGETS, epochs=2, validation=True, **options):
    """A function that trains, with validation data, and returns the history."""

    def train(model):
        given = {} if y is None else {"y": y[:ROWS]}
        if validation:
            given["validation_data"] = (x[:19],) if y is None else (x[:19], y[:19])
        return model.fit(x[:ROWS], **given, batch_size=8, epochs=epochs, shuffle=False, verbose=0, **options)

    return train


def network(base=keras.Model, activation=None, **layer):
    inputs = keras.Input((6,))
    hidden = keras.layers.Dense(5, activation="tanh", **layer)(inputs)
    return base(inputs, keras.layers.Dense(3, activation=activation)(hidden))


def with_loss(loss, base=keras.Model, optimizer=lambda: keras.optimizers.SGD(0.1), activation=None, layer=None, **options):
    """A function that makes a model with the loss that `loss` returns."""

    def make():
        model = network(base, activation, **(layer or {}))
        model.compile(optimizer(), loss(), **options)
        return model

    return make


def scalar(targets, outputs):
    return ops.mean(ops.abs(targets - outputs))


class ScalarLoss(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return ops.mean(ops.square(y_true - y_pred)) + 0.1 * ops.mean(ops.abs(y_pred))


def own_step(loss_of, before=None):
    """A model whose train_step, as in the guide's low-level version, takes its loss from `loss_of(model, x, y)`."""

    class Model(keras.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.loss_tracker = keras.metrics.Mean(name="loss")
            self.mae_metric = keras.metrics.MeanAbsoluteError(name="mae")

        @property
        def metrics(self):
            return [self.loss_tracker, self.mae_metric]

        def train_step(self, data):
            x, y = data[:2]
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = loss_of(self, x, y, y_pred)
            gradients = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
            self.loss_tracker.update_state(loss)
            self.mae_metric.update_state(y, y_pred)
            return {metric.name: metric.result() for metric in self.metrics}

        def test_step(self, data):
            x, y = data
            self.loss_tracker.update_state(loss_of(self, x, y, self(x, training=False)))
            self.mae_metric.update_state(y, self(x, training=False))
            return {metric.name: metric.result() for metric in self.metrics}

    return Model


def mean_squared(model, x, y, y_pred):
    return ops.mean(ops.square(y - ops.cast(y_pred, y.dtype)))


class LossesTest(KerasTest):
    # ---- Losses that are given to compile()

    def test_losses_that_return_one_number(self):
        for loss in (lambda: scalar, ScalarLoss, lambda: ScalarLoss(reduction="mean")):
            with self.subTest(loss=loss()):
                self.alone_and_together(with_loss(loss), fit())

    def test_dice_and_tversky_are_means_over_the_parts(self):
        parts = np.array_split(np.arange(8), hvd.size())
        for kind in (keras.losses.Dice, keras.losses.Tversky):
            with self.subTest(kind.__name__):
                with strategy().scope():
                    model = with_loss(kind, activation="sigmoid")()
                weights = model.trainable_variables

                def expected(model=model, kind=kind, weights=weights):
                    """One step, computed by hand."""
                    x, y = tf.constant(X[:8]), tf.constant(MASKS[:8])
                    with tf.GradientTape() as tape:
                        losses = [kind()(tf.gather(y, part), model(tf.gather(x, part))) for part in parts if len(part)]
                        shares = [len(part) / 8 for part in parts if len(part)]
                        loss = tf.add_n([share * each for share, each in zip(shares, losses)])
                    return loss, [w.numpy() - 0.1 * g for w, g in zip(weights, tape.gradient(loss, weights))]

                loss, after = expected()
                history = model.fit(X[:8], MASKS[:8], batch_size=8, verbose=0, shuffle=False).history
                np.testing.assert_allclose(history["loss"], [loss], rtol=1e-5)
                for mine, other in zip(model.get_weights(), after):
                    np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
                # By axes that leave the samples apart they are what one process has.
                self.alone_and_together(
                    with_loss(lambda kind=kind: kind(axis=(1,)), activation="sigmoid"), fit(y=MASKS)
                )
                for value in history.values():
                    self.assertTrue(np.isfinite(value).all())

    def test_losses_of_empty_parts(self):
        """Dice of nothing is no number."""
        with strategy().scope():
            model = with_loss(keras.losses.Dice, activation="sigmoid")()
        history = fit(y=MASKS)(model).history
        self.assertTrue(np.isfinite(history["loss"]).all() and np.isfinite(history["val_loss"]).all())
        self.assertTrue(all(np.isfinite(weight).all() for weight in model.get_weights()))

    def test_reductions(self):
        for reduction in ("sum", "mean", "mean_with_sample_weight", "none", None):
            with self.subTest(reduction=reduction):
                self.alone_and_together(
                    with_loss(
                        lambda reduction=reduction: keras.losses.MeanSquaredError(reduction=reduction),
                        optimizer=lambda: keras.optimizers.SGD(0.01),
                    ),
                    fit(),
                )

    def test_losses_of_several_outputs(self):
        def make(**arguments):
            inputs = keras.Input((6,))
            outputs = {
                "left": keras.layers.Dense(3, name="left")(inputs),
                "right": keras.layers.Dense(3, name="right")(inputs),
            }
            model = keras.Model(inputs, outputs)
            model.compile(
                keras.optimizers.SGD(0.05), {"left": "mse", "right": scalar}, loss_weights={"left": 0.3, "right": 1.0}
            )
            return model

        y = {"left": TARGETS, "right": MASKS}

        def train(model):
            given = {name: values[:ROWS] for name, values in y.items()}
            validation = (X[:19], {name: values[:19] for name, values in y.items()})
            return model.fit(
                X[:ROWS], given, batch_size=8, epochs=2, shuffle=False, verbose=0, validation_data=validation
            )

        self.alone_and_together(make, train)

    def test_batches_of_known_size(self):
        """Where the dataset says how many rows there are, losses of outputs count by them."""

        def train(model):
            dataset = tf.data.Dataset.from_tensor_slices((X[:40], TARGETS[:40])).batch(8, drop_remainder=True)
            return model.fit(dataset, epochs=2, validation_data=dataset, verbose=0)

        self.alone_and_together(with_loss(lambda: scalar, metrics=[scalar]), train)
        self.alone_and_together(with_loss(lambda: keras.losses.MeanSquaredError(reduction=None)), train)

    def test_compute_loss_of_its_own(self):
        class Model(keras.Model):
            def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
                return ops.mean(ops.square(y - y_pred)) + sum(self.losses)

        self.alone_and_together(
            with_loss(lambda: None, Model, layer={"kernel_regularizer": "l2", "activity_regularizer": "l1"}), fit()
        )

    def test_added_losses_and_regularisers(self):
        class Spread(keras.layers.Layer):
            def call(self, inputs):
                self.add_loss(0.1 * ops.mean(ops.square(inputs)))
                return inputs

        def make():
            inputs = keras.Input((6,))
            outputs = Spread()(keras.layers.Dense(3, kernel_regularizer="l2", activity_regularizer="l2")(inputs))
            model = keras.Model(inputs, outputs)
            model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
            return model

        self.alone_and_together(make, fit())

    def test_steps_that_run_eagerly(self):
        for loss in (lambda: scalar, lambda: keras.losses.MeanSquaredError(reduction="sum")):
            make = with_loss(loss, run_eagerly=True, optimizer=lambda: keras.optimizers.SGD(0.01))
            self.alone_and_together(make, fit(epochs=1))
        make = with_loss(lambda: None, own_step(mean_squared), run_eagerly=True)
        self.alone_and_together(make, fit(epochs=1))

    def test_several_steps_per_execution(self):
        self.alone_and_together(with_loss(lambda: scalar, steps_per_execution=3), fit())
        self.alone_and_together(with_loss(lambda: None, own_step(mean_squared), steps_per_execution=4), fit())

    def test_single_batches(self):
        sizes = [3 + 2 * rank for rank in range(hvd.size())]
        ends = np.cumsum(sizes)
        mine = slice(ends[hvd.rank()] - sizes[hvd.rank()], ends[hvd.rank()])

        def train(model):
            rows = mine if model.distribute_strategy is strategy() else slice(0, ends[-1])
            for _ in range(3):
                model.train_on_batch(X[rows], TARGETS[rows])

        self.alone_and_together(with_loss(lambda: scalar), train)
        self.alone_and_together(with_loss(lambda: None, own_step(mean_squared)), train)
        per_row = lambda model, x, y, y_pred: keras.losses.mean_squared_error(y, y_pred)  # noqa: E731
        self.alone_and_together(
            with_loss(lambda: None, own_step(per_row), optimizer=lambda: keras.optimizers.SGD(0.01)), train
        )

    # ---- Own steps

    def test_own_steps(self):
        losses = {
            "mean": mean_squared,
            "one for each row": lambda model, x, y, y_pred: keras.losses.mean_squared_error(y, y_pred),
            "compute_loss": lambda model, x, y, y_pred: model.compute_loss(x, y, y_pred),
            "loss of Keras": lambda model, x, y, y_pred: keras.losses.MeanSquaredError()(y, y_pred),
            "sum of Keras": lambda model, x, y, y_pred: keras.losses.MeanSquaredError(reduction="sum")(y, y_pred),
            "kept dimension": lambda model, x, y, y_pred: tf.reduce_mean(tf.square(y - y_pred), keepdims=True)[0],
            "average": lambda model, x, y, y_pred: tf.nn.compute_average_loss(
                keras.losses.mean_squared_error(y, y_pred)
            )
            + tf.nn.scale_regularization_loss(tf.reduce_sum(tf.square(model.trainable_weights[0]))),
        }
        for name, loss in losses.items():
            with self.subTest(name):
                make = with_loss(
                    lambda: "mse", own_step(loss), optimizer=lambda: keras.optimizers.SGD(0.01), auto_scale_loss=False
                )
                self.alone_and_together(make, fit())

    def test_an_average_over_the_batch_that_is_given(self):
        def loss(model, x, y, y_pred):
            return tf.nn.compute_average_loss(keras.losses.mean_squared_error(y, y_pred), global_batch_size=8)

        self.alone_and_together(with_loss(lambda: None, own_step(loss)), fit())

    def test_own_step_that_extends_that_of_keras(self):
        class Model(keras.Model):
            def train_step(self, data):
                logs = super().train_step(data)
                x, y = data
                with tf.GradientTape() as tape:
                    loss = ops.mean(ops.abs(y - self(x, training=True)))
                self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
                return logs

        self.alone_and_together(with_loss(lambda: "mse", Model), fit())

    def test_a_scaled_loss_that_is_not_used(self):
        def step(scales):
            class Model(keras.Model):
                def train_step(self, data):
                    x, y = data
                    with tf.GradientTape() as tape:
                        loss = ops.mean(ops.square(y - self(x, training=True)))
                        scaled = self.optimizer.scale_loss(loss)
                    self.optimizer.apply(
                        tape.gradient(scaled if scales else loss, self.trainable_weights), self.trainable_weights
                    )
                    return {"rows": tf.shape(x)[0]}

            return Model

        for scales in (True, False):
            self.alone_and_together(with_loss(lambda: None, step(scales)), lambda model: fit(validation=False)(model) and None)

    def test_accumulated_gradients(self):
        make = with_loss(
            lambda: None,
            own_step(mean_squared),
            optimizer=lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=3, global_clipnorm=0.5),
        )
        self.alone_and_together(make, fit())

    def test_half_precision(self):
        class Model(keras.Model):
            def train_step(self, data):
                x, y = data
                with tf.GradientTape() as tape:
                    loss = ops.mean(ops.square(y - ops.cast(self(x, training=True), "float32")))
                    scaled = self.optimizer.scale_loss(loss)
                self.optimizer.apply(tape.gradient(scaled, self.trainable_weights), self.trainable_weights)
                return {"rows": tf.shape(x)[0]}

        keras.config.set_dtype_policy("mixed_float16")
        try:
            for base in (Model, keras.Model):

                def make(base=base):
                    model = network(base)
                    model.compile(keras.optimizers.SGD(0.1), "mse")
                    return model

                _, together = self.alone_and_together(
                    make, lambda model: fit(validation=False)(model) and None, rtol=0.02, atol=0.01
                )
                self.assertIsInstance(together.optimizer, keras.optimizers.LossScaleOptimizer)
                self.assertEqual(int(together.optimizer.iterations.numpy()), 12)
        finally:
            keras.config.set_dtype_policy("float32")

    def test_half_precision_with_an_overflow_in_an_own_step(self):
        keras.config.set_dtype_policy("mixed_float16")
        try:
            with strategy().scope():
                model = with_loss(lambda: None, own_step(mean_squared))()
            self.assertIsInstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
            x = X.copy()
            x[63] = np.nan
            before = model.get_weights()
            model.fit(x, TARGETS, batch_size=64, shuffle=False, verbose=0)
            for old, new in zip(before, model.get_weights()):
                np.testing.assert_array_equal(old, new)
        finally:
            keras.config.set_dtype_policy("float32")

    # ---- Models of the guides

    def test_gan(self):
        class Gan(keras.Model):
            def __init__(self):
                super().__init__()
                self.discriminator = keras.Sequential(
                    [keras.Input((6,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)]
                )
                self.generator = keras.Sequential([keras.Input((6,)), keras.layers.Dense(6)])
                self.d_loss_tracker = keras.metrics.Mean(name="d_loss")
                self.g_loss_tracker = keras.metrics.Mean(name="g_loss")
                self.built = True

            @property
            def metrics(self):
                return [self.d_loss_tracker, self.g_loss_tracker]

            def compile(self, d_optimizer, g_optimizer, loss_fn):
                super().compile()
                self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn

            def train_step(self, data):
                real, noise = data
                batch_size = tf.shape(real)[0]
                labels = tf.concat([tf.ones((batch_size, 1)), tf.zeros((batch_size, 1))], axis=0)
                combined = tf.concat([self.generator(noise), real], axis=0)
                with tf.GradientTape() as tape:
                    d_loss = self.loss_fn(labels, self.discriminator(combined))
                gradients = tape.gradient(d_loss, self.discriminator.trainable_weights)
                self.d_optimizer.apply(gradients, self.discriminator.trainable_weights)
                with tf.GradientTape() as tape:
                    fooled = self.discriminator(self.generator(noise))
                    g_loss = self.loss_fn(tf.zeros((batch_size, 1)), fooled)
                gradients = tape.gradient(g_loss, self.generator.trainable_weights)
                self.g_optimizer.apply(gradients, self.generator.trainable_weights)
                self.d_loss_tracker.update_state(d_loss)
                self.g_loss_tracker.update_state(g_loss)
                return {"d_loss": self.d_loss_tracker.result(), "g_loss": self.g_loss_tracker.result()}

        def make():
            model = Gan()
            model.compile(
                keras.optimizers.Adam(0.003), keras.optimizers.SGD(0.01), keras.losses.BinaryCrossentropy(from_logits=True)
            )
            return model

        noise = RANDOM.normal(size=(64, 6)).astype(np.float32)
        self.alone_and_together(make, fit(y=noise, validation=False), rtol=1e-4, atol=1e-5)

    def test_vae(self):
        class Vae(keras.Model):
            def __init__(self):
                super().__init__()
                inputs = keras.Input((6,))
                self.encoder = keras.Model(inputs, [keras.layers.Dense(2)(inputs), keras.layers.Dense(2)(inputs)])
                self.decoder = keras.Sequential([keras.Input((2,)), keras.layers.Dense(6, "sigmoid")])
                names = ("total_loss", "reconstruction_loss", "kl_loss")
                self.trackers = [keras.metrics.Mean(name=name) for name in names]
                self.built = True

            @property
            def metrics(self):
                return self.trackers

            def train_step(self, data):
                x, noise = data
                with tf.GradientTape() as tape:
                    mean, log_variance = self.encoder(x)
                    outputs = self.decoder(mean + noise[:, :2] * ops.exp(log_variance / 2))
                    reconstruction = ops.mean(ops.sum(ops.square(x - outputs), axis=1))
                    kl = -0.5 * (1 + log_variance - ops.square(mean) - ops.exp(log_variance))
                    kl = ops.mean(ops.sum(kl, axis=1))
                    total = reconstruction + kl
                gradients = tape.gradient(total, self.trainable_weights)
                self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
                for tracker, value in zip(self.trackers, (total, reconstruction, kl)):
                    tracker.update_state(value)
                return {tracker.name: tracker.result() for tracker in self.trackers}

        def make():
            model = Vae()
            model.compile(keras.optimizers.Adam(0.01))
            return model

        noise = RANDOM.normal(size=(64, 6)).astype(np.float32)
        self.alone_and_together(make, fit(y=noise, validation=False), rtol=1e-4, atol=1e-5)

    def test_wgan_with_a_gradient_penalty(self):
        class Critic(keras.Model):
            @property
            def metrics(self):
                return [self.tracker]

            def train_step(self, data):
                real, fake = data
                with tf.GradientTape() as tape:
                    middle = (real + fake) / 2
                    with tf.GradientTape() as inner:
                        inner.watch(middle)
                        score = self(middle, training=True)
                    norm = tf.norm(inner.gradient(score, [middle])[0] + 1e-6, axis=1)
                    penalty = tf.reduce_mean((norm - 1.0) ** 2)
                    cost = tf.reduce_mean(self(fake)) - tf.reduce_mean(self(real)) + 10.0 * penalty
                self.optimizer.apply(tape.gradient(cost, self.trainable_weights), self.trainable_weights)
                self.tracker.update_state(cost)
                return {"cost": self.tracker.result()}

        def make():
            model = network(Critic)
            model.tracker = keras.metrics.Mean(name="cost")
            model.compile(keras.optimizers.SGD(0.01))
            return model

        fake = RANDOM.normal(size=(64, 6)).astype(np.float32)
        self.alone_and_together(make, fit(y=fake, validation=False), rtol=1e-4, atol=1e-5)

    def test_tapes(self):
        """Of several losses, that are persistent, that hold recomputed layers, and with weights for each row."""

        class Model(keras.Model):
            def train_step(self, data):
                x, y = data
                first, second = self.trainable_weights[:2], self.trainable_weights[2:]
                with tf.GradientTape(persistent=True) as tape:
                    y_pred = tf.recompute_grad(lambda inputs: self(inputs, training=True))(x)
                    rows = tf.reduce_sum(tf.square(y - y_pred), axis=1)
                    mean = tf.reduce_mean(tf.abs(y - y_pred))
                left = tape.gradient([rows, mean], first, unconnected_gradients=tf.UnconnectedGradients.ZERO)
                right = tape.gradient(rows, second, output_gradients=tf.abs(x[:, 0]))
                self.optimizer.apply([*left, *right], [*first, *second])
                return {"rows": tf.shape(x)[0]}

        make = with_loss(lambda: None, Model, optimizer=lambda: keras.optimizers.SGD(0.01))
        self.alone_and_together(make, lambda model: fit(validation=False)(model) and None)

    # ---- Functions that are no step of a model

    def test_functions_of_tf_distribute_stay_sums(self):
        for reduce_by_hand in (False, True):
            keras.utils.set_random_seed(3)
            alone = network()
            weights = alone.trainable_variables
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(keras.losses.mean_squared_error(TARGETS[:8], alone(X[:8])))
            expected = [w.numpy() - 0.1 * g for w, g in zip(weights, tape.gradient(loss, weights))]
            with strategy().scope():
                model = network()
                optimizer = keras.optimizers.SGD(0.1)
                tracker = keras.metrics.Mean()
                optimizer.build(model.trainable_variables)
            model.set_weights(alone.get_weights())

            def replica_step(x, y):
                with tf.GradientTape() as tape:
                    losses = keras.losses.mean_squared_error(y, model(x, training=True))
                    loss = (
                        tf.reduce_sum(losses) / 8
                        if reduce_by_hand
                        else tf.nn.compute_average_loss(losses, global_batch_size=8)
                    )
                optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
                tracker.update_state(loss)
                return loss

            @tf.function
            def train(x, y):
                return strategy().reduce("SUM", strategy().run(replica_step, args=(x, y)), axis=None)

            dataset = tf.data.Dataset.from_tensor_slices((X[:8], TARGETS[:8])).batch(8)
            for x, y in strategy().experimental_distribute_dataset(dataset):
                np.testing.assert_allclose(train(x, y), loss, rtol=1e-5)
            for mine, other in zip(model.get_weights(), expected):
                np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(tracker.result(), loss / hvd.size(), rtol=1e-5)

    def test_a_division_by_the_number_of_ranks_is_warned_of(self):
        self.need_several_ranks()

        def loss(model, x, y, y_pred):
            return ops.mean(ops.square(y - y_pred)) / strategy().num_replicas_in_sync

        said = []

        def log(level, text):
            if "num_replicas_in_sync" in text:
                said.append(text)

        with unittest.mock.patch.object(_engine, "log", log):
            with strategy().scope():
                model = with_loss(lambda: "mse")()
            fit()(model)  # Keras reads it too
            self.assertEqual(said, [])
            for _ in range(2):
                with strategy().scope():
                    model = with_loss(lambda: None, own_step(loss))()
                fit()(model)
        self.assertEqual([text.partition(":")[0].rpartition("/")[2] for text in said], ["keras_losses_test.py"] * (not hvd.rank()))


class SlicesTest(KerasTest):
    """Gradients of embeddings, under optimizers that square them."""

    OPTIMIZERS = {
        "adam": lambda: keras.optimizers.Adam(0.01),
        "rmsprop": lambda: keras.optimizers.RMSprop(0.01),
        "clipped": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.1),
        "accumulated": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
    }

    def compare(self, make):
        words = RANDOM.integers(0, 6, size=(64, 7))
        for name, optimizer in self.OPTIMIZERS.items():
            with self.subTest(name):
                alone, together = self.alone_and_together(
                    lambda optimizer=optimizer: make(optimizer()),
                    fit(words, Y, validation=False),
                    rtol=1e-4,
                    atol=1e-5,
                )
                for mine, expected in zip(together.optimizer.variables, alone.optimizer.variables):
                    if mine.shape:
                        np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=1e-3, atol=1e-7)

    def positions(self, known_length):
        class Positions(keras.layers.Layer):
            def __init__(self):
                super().__init__()
                self.words, self.places = keras.layers.Embedding(6, 4), keras.layers.Embedding(9, 4)

            def build(self, shape):
                self.words.build(shape)
                self.places.build(shape)

            def call(self, inputs):
                length = inputs.shape[1] if known_length else ops.shape(inputs + 0)[1]
                return self.words(inputs) + self.places(ops.arange(length) // 2)

        def make(optimizer, **arguments):
            model = keras.Sequential(
                [
                    keras.Input((7,), dtype="int32"),
                    Positions(),
                    keras.layers.GlobalAveragePooling1D(),
                    keras.layers.Dense(3, activation="softmax"),
                ]
            )
            model.compile(optimizer, "sparse_categorical_crossentropy", **arguments)
            return model

        return make

    def test_positions(self):
        self.compare(self.positions(known_length=True))
        self.compare(self.positions(known_length=False))

    def test_positions_in_steps_that_run_eagerly(self):
        words = RANDOM.integers(0, 6, size=(64, 7))
        self.alone_and_together(
            lambda: self.positions(True)(keras.optimizers.Adam(0.01), run_eagerly=True),
            fit(words, Y, epochs=1, validation=False),
            rtol=1e-4,
            atol=1e-5,
        )

    def test_positions_in_half_precision(self):
        """The optimizer applies within a condition there."""
        words = RANDOM.integers(0, 6, size=(64, 7))
        keras.config.set_dtype_policy("mixed_float16")
        try:
            alone, together = self.alone_and_together(
                lambda: self.positions(True)(keras.optimizers.Adam(0.01)),
                lambda model: fit(words[:8], Y[:8], epochs=1, validation=False)(model) and None,
                rtol=0.1,
                atol=0.01,
            )
            for mine, expected in zip(together.optimizer.variables, alone.optimizer.variables):
                if "velocity" in mine.path:
                    np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=0.1, atol=1e-7)
        finally:
            keras.config.set_dtype_policy("float32")


if __name__ == "__main__":
    support.main()
