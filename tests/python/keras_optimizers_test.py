# SPDX-License-Identifier: Apache-2.0
"""Optimizers under MirroredStrategy that are made outside of its scope, used twice, or different on the ranks."""

import support

support.need("numpy", "tensorflow", "keras")

import functools

import keras
import numpy as np
import tensorflow as tf
from keras_support import KerasTest, X, Y, captured_log, strategy

import farandole.tensorflow as hvd
from farandole import errors

CLASSES = sorted(
    kind.__name__
    for kind in vars(keras.optimizers).values()
    if isinstance(kind, type)
    and issubclass(kind, keras.optimizers.Optimizer)
    and kind.__name__ not in ("Optimizer", "LossScaleOptimizer", "MultiOptimizer")
)


def network():
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)])


def loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class OptimizersTest(KerasTest):
    def fit(self, model, *callbacks, **arguments):
        options = {"batch_size": 16, "shuffle": False, "verbose": 0, **arguments}
        return model.fit(X, Y, callbacks=list(callbacks), **options)

    def in_scope(self, make):
        with strategy().scope():
            return make()

    def assert_trains_as_alone(self, make_optimizer, rtol=1e-4, atol=1e-5):
        """`make_optimizer()` is called outside of the scope."""
        alone, together = network(), self.in_scope(network)
        alone.set_weights(together.get_weights())
        optimizer = make_optimizer()
        optimizer.build(alone.trainable_variables)  # ScheduleFreeAdamW starts with zeros if it is built while traced
        alone.compile(optimizer, loss(), run_eagerly=True)
        together.compile(make_optimizer(), loss())
        self.fit(alone)
        self.fit(together)
        for mine, expected in zip(together.get_weights(), alone.get_weights()):
            np.testing.assert_allclose(mine, expected, rtol=rtol, atol=atol)
        self.assert_same_on_all_ranks(together.get_weights())

    def test_optimizer_that_already_reduces_is_refused(self):
        self.need_several_ranks()

        class WithTape(keras.Model):
            def train_step(self, data):
                x, y = data
                with tf.GradientTape() as tape:
                    value = loss()(y, self(x, training=True))
                variables = self.trainable_variables
                self.optimizer.apply(hvd.DistributedGradientTape(tape).gradient(value, variables), variables)
                return {"loss": value}

        def with_tape():
            inputs = keras.Input((6,))
            return WithTape(inputs, network()(inputs))

        for make, optimizer, words in (
            (network, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "DistributedOptimizer reduces"),
            (with_tape, keras.optimizers.SGD(0.1), "DistributedGradientTape reduces"),
        ):
            model = self.in_scope(make)
            model.compile(optimizer, loss())
            with self.assertRaisesRegex(errors.InvalidArgument, words):
                self.fit(model)

    # ---- Made outside of the scope

    def test_each_class_made_outside(self):
        self.assertIn("Adam", CLASSES)
        for name in CLASSES:
            with self.subTest(name):
                # Optimizers that divide by the square root of a gradient amplify rounding errors of gradients near 0.
                self.assert_trains_as_alone(lambda: getattr(keras.optimizers, name)(0.01), rtol=1e-2, atol=1e-4)

    def test_options_made_outside(self):
        # The usual epsilon makes much of rounding where a gradient is nearly zero.
        adam, scaled = functools.partial(keras.optimizers.Adam, epsilon=1e-3), keras.optimizers.LossScaleOptimizer
        several = []
        if hasattr(keras.optimizers, "MultiOptimizer"):

            def several_kinds():
                kinds = {"kernel": adam(0.01), "bias": keras.optimizers.SGD(0.1, momentum=0.9)}
                return keras.optimizers.MultiOptimizer(lambda variable: kinds[variable.name])

            several.append(several_kinds)
        for make in (
            lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
            lambda: adam(0.01, use_ema=True, ema_overwrite_frequency=2),
            lambda: adam(0.01, gradient_accumulation_steps=2, global_clipnorm=0.5),
            lambda: adam(keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)),
            lambda: scaled(adam(0.01), initial_scale=256.0),
            *several,
        ):
            self.assert_trains_as_alone(make)

    def test_variables_that_exist_get_the_values_of_rank_0(self):
        model = self.in_scope(network)
        for optimizer in (keras.optimizers.Adam(0.01), keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01))):
            optimizer.iterations.assign(3 + hvd.rank())
            optimizer.build(model.trainable_variables)
            if hasattr(optimizer, "dynamic_scale"):
                optimizer.dynamic_scale.assign(16.0 + hvd.rank())
            model.compile(optimizer, loss())
            self.assert_same_on_all_ranks([variable.numpy() for variable in optimizer.variables])
            self.assertEqual(int(optimizer.iterations.numpy()), 3)
            self.fit(model)
            self.assert_same_on_all_ranks(model.get_weights())

    def test_optimizer_passed_into_the_model_builder(self):
        def build(optimizer):
            model = network()
            model.compile(optimizer, loss(), metrics=["accuracy"])
            return model

        optimizer = keras.optimizers.Adam(0.01)
        self.fit(self.in_scope(lambda: build(optimizer)))
        self.assertEqual(int(optimizer.iterations.numpy()), 4)

    def test_fine_tuning(self):
        def train(outside):
            def model_of():
                keras.utils.set_random_seed(3)
                return network()

            model = model_of() if not outside else self.in_scope(model_of)
            first = keras.optimizers.Adam(0.01)
            model.compile(first, loss())
            self.fit(model)
            model.layers[0].trainable = False
            model.compile(first, loss())  # the same one, for some of the variables
            self.fit(model)
            model.layers[0].trainable = True
            model.compile(keras.optimizers.RMSprop(0.001), loss())
            self.fit(model)
            return model.get_weights()

        for mine, expected in zip(train(outside=True), train(outside=False)):
            np.testing.assert_allclose(mine, expected, rtol=1e-3, atol=1e-4)

    def test_own_loops(self):
        def trained(optimizer, is_built, is_eager):
            keras.utils.set_random_seed(3)
            model = self.in_scope(network)
            if is_built:
                optimizer.build(model.trainable_variables)

            def step(x, y):
                with tf.GradientTape() as tape:
                    losses = keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True)
                    value = tf.nn.compute_average_loss(losses, global_batch_size=8 * hvd.size())
                optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)

            def train(x, y):
                strategy().run(step, args=(x, y))

            run = train if is_eager else tf.function(train)
            for _ in range(3):
                run(tf.constant(X[8 * hvd.rank() :][:8]), tf.constant(Y[8 * hvd.rank() :][:8]))
            self.assert_same_on_all_ranks(model.get_weights())
            return model.get_weights()

        for is_built in (False, True):
            for is_eager in (False, True):
                expected = trained(self.in_scope(lambda: keras.optimizers.Adam(0.01)), True, is_eager)
                for mine, other in zip(trained(keras.optimizers.Adam(0.01), is_built, is_eager), expected):
                    np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)

    # ---- Passed differently

    def assert_replaced(self, call):
        """On rank 1 a learning rate of 0.01 is replaced by 0.1, and said so there only."""
        with captured_log() as texts:
            call()
        expected = "the learning rate 0.01 of this rank is replaced by rank 0's 0.1"
        self.assertEqual(texts[0].count(expected), int(hvd.rank() == 1), texts[0])

    def test_other_learning_rates(self):
        self.need_several_ranks()
        rate = 0.01 if hvd.rank() == 1 else 0.1
        model = self.in_scope(network)
        self.assert_replaced(lambda: self.in_scope(lambda: keras.optimizers.Adam(rate)))
        optimizer = keras.optimizers.Adam(rate)
        self.assert_replaced(lambda: model.compile(optimizer, loss()))
        self.assertAlmostEqual(float(optimizer.learning_rate), 0.1, places=6)
        optimizer.learning_rate = rate
        self.assert_replaced(lambda: self.fit(model))
        self.assertAlmostEqual(float(optimizer.learning_rate), 0.1, places=6)
        self.assert_same_on_all_ranks(model.get_weights())

    def test_other_settings(self):
        self.need_several_ranks()
        differs = hvd.rank() == 1
        schedule, kinds = keras.optimizers.schedules.CosineDecay, keras.optimizers
        cases = {
            "momentum of SGD is 0.9 on rank 0 and 0.5 on rank 1": lambda: kinds.SGD(momentum=0.5 if differs else 0.9),
            "decay_steps of Adam is 100 on rank 0 and 50 on rank 1": lambda: kinds.Adam(schedule(0.1, 50 if differs else 100)),
            "class is Adam on rank 0 and RMSprop on rank 1": lambda: [kinds.Adam(), kinds.RMSprop()][differs],
        }
        for text, make in cases.items():
            model = self.in_scope(network)
            for optimizer in (make(), self.in_scope(make)):
                with self.assertRaises(errors.Mismatch) as caught:
                    model.compile(optimizer, loss())
                self.assertIn(text, str(caught.exception))


if __name__ == "__main__":
    support.main()
