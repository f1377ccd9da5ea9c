# SPDX-License-Identifier: Apache-2.0
"""farandole.tensorflow: distributed optimizers of Keras 3 and of tf.compat.v1, and synchronised batch normalisation,
compared with one process with the whole batch."""

import support

support.need("numpy", "tensorflow", "keras")

import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole import errors

v1 = tf.compat.v1
SAMPLES_PER_RANK = 4
STEPS = 6


def data(rank, step):
    """One rank's part of a batch."""
    random = np.random.default_rng(100 * step + rank)
    inputs = random.normal(size=(SAMPLES_PER_RANK, 3)).astype(np.float32)
    return inputs, inputs @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 1


def whole_batch(step):
    parts = [data(rank, step) for rank in range(hvd.size())]
    return np.concatenate([each[0] for each in parts]), np.concatenate([each[1] for each in parts])


def make_model():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones")])
    model.build((None, 3))
    return model


def keras_loss(model, inputs, targets):
    return tf.reduce_mean(tf.math.squared_difference(model(inputs), targets))


class KerasOptimizerTest(support.RankedTest):
    def alone(self, optimizer, steps=STEPS):
        model = make_model()
        for step in range(steps):
            inputs, targets = whole_batch(step)
            with tf.GradientTape() as tape:
                loss = keras_loss(model, inputs, targets)
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return model.get_weights()

    def together(self, optimizer, in_function, steps=STEPS):
        model = make_model()

        def train(inputs, targets):
            with tf.GradientTape() as tape:
                loss = keras_loss(model, inputs, targets)
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

        train = tf.function(train) if in_function else train
        for step in range(steps):
            train(*map(tf.constant, data(hvd.rank(), step)))
        return model.get_weights()

    def check_equal(self, these, those, tolerance=1e-5):
        for mine, expected in zip(these, those):
            np.testing.assert_allclose(mine, expected, rtol=tolerance, atol=tolerance)
        for of_rank in hvd.allgather_object(these):
            for mine, other in zip(these, of_rank):
                np.testing.assert_array_equal(mine, other)

    def test_same_as_one_process(self):
        for make in (
            lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9),
            lambda: tf.keras.optimizers.Adam(0.05),
            lambda: tf.keras.optimizers.SGD(0.1, global_clipnorm=0.1),
        ):
            expected = self.alone(make())
            for in_function in (False, True):
                wrapped = hvd.DistributedOptimizer(make())
                self.assertEqual(type(wrapped).__name__, type(make()).__name__)
                self.assertIsInstance(wrapped, type(make()))
                self.check_equal(self.together(wrapped, in_function), expected)

    def test_fit(self):
        expected = self.alone(tf.keras.optimizers.SGD(0.1), steps=1)
        model = make_model()
        model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse")
        model.fit(*data(hvd.rank(), 0), batch_size=SAMPLES_PER_RANK, verbose=0)
        self.check_equal(model.get_weights(), expected)

    def test_several_backward_passes(self):
        # Two passes of half of the learning rate's gradient sum up to one of both batches.
        for average, rate in ((True, 0.1), (False, 0.05)):
            model = make_model()
            optimizer = tf.keras.optimizers.SGD(0.1)
            for step in range(0, STEPS, 2):
                gradients = []
                for each in (step, step + 1):
                    with tf.GradientTape() as tape:
                        loss = keras_loss(model, *whole_batch(each))
                    gradients.append(tape.gradient(loss, model.trainable_variables))
                optimizer.apply([(a + b) / 2 for a, b in zip(*gradients)], model.trainable_variables)
            for in_function in (False, True):
                wrapped = hvd.DistributedOptimizer(
                    tf.keras.optimizers.SGD(rate), backward_passes_per_step=2, average_aggregated_gradients=average
                )
                self.check_equal(self.together(wrapped, in_function), model.get_weights())
                self.assertEqual(int(wrapped.iterations), STEPS)

    def test_an_overflow_on_one_rank(self):
        # Loss scaling skips a step before the optimizer within it reduces.
        for in_function in (False, True):
            model = make_model()
            wrapped = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
            scaled = tf.keras.optimizers.LossScaleOptimizer(wrapped, initial_scale=64.0)
            scaled.build(model.trainable_variables)

            def train(factor):
                with tf.GradientTape() as tape:
                    loss = scaled.scale_loss(keras_loss(model, *data(hvd.rank(), 0)) * factor)
                scaled.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

            train = tf.function(train) if in_function else train
            before = model.get_weights()
            train(tf.constant(np.inf if hvd.rank() == 0 else 1.0))
            self.check_equal(model.get_weights(), before)
            train(tf.constant(1.0))
            self.check_equal(model.get_weights(), self.after_one_step(before))
            self.assertEqual(float(scaled.dynamic_scale), 32.0)

    def after_one_step(self, weights):
        """In one process, on the whole of the first batch."""
        model = make_model()
        model.set_weights(weights)
        with tf.GradientTape() as tape:
            loss = keras_loss(model, *whole_batch(0))
        variables = model.trainable_variables
        tf.keras.optimizers.SGD(0.1).apply(tape.gradient(loss, variables), variables)
        return model.get_weights()

    def test_local_variables_and_refusals(self):
        wrapped = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), op=hvd.Sum)
        local, shared = (tf.keras.Variable([1.0]) for _ in range(2))
        wrapped.register_local_var(local)
        gradient = tf.constant([hvd.rank() + 1.0])
        wrapped.apply([gradient, gradient], [local, shared])
        np.testing.assert_allclose(local.numpy(), [1 - (hvd.rank() + 1) / hvd.size()], rtol=1e-6)
        np.testing.assert_allclose(shared.numpy(), [1 - sum(range(1, hvd.size() + 1))])
        for wrong in (
            lambda: hvd.DistributedOptimizer(wrapped),
            lambda: hvd.DistributedOptimizer(tf.keras.optimizers.SGD(), op=hvd.Adasum),
            lambda: hvd.DistributedOptimizer(tf.keras.optimizers.SGD(), backward_passes_per_step=0, op=hvd.Adasum),
            lambda: hvd.DistributedOptimizer(object()),
        ):
            with self.assertRaises(errors.InvalidArgument):
                wrong()

    def test_state_of_model_and_optimizer(self):
        model = make_model()
        model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1, momentum=0.9)), loss="mse")
        model.fit(*data(hvd.rank(), 0), batch_size=SAMPLES_PER_RANK, verbose=0)
        state = hvd.elastic.TensorFlowKerasState(model, batch=1)
        saved = model.get_weights()
        model.set_weights([weight * 0 for weight in saved])
        state.restore()
        for mine, expected in zip(model.get_weights(), saved):
            np.testing.assert_array_equal(mine, expected)


class V1OptimizerTest(support.RankedTest):
    def quadratic(self, variable, rank):
        return (rank + 1.0) * tf.reduce_sum(tf.math.square(variable))

    def mean_rank(self):
        return sum(range(1, hvd.size() + 1)) / hvd.size()

    def test_graph(self):
        with tf.Graph().as_default(), v1.Session() as session:
            variable = v1.get_variable("v", initializer=[1.0, 2.0])
            unused = v1.get_variable("u", initializer=1.0)
            step = v1.train.get_or_create_global_step()
            optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1))
            train = optimizer.minimize(
                self.quadratic(variable, hvd.rank()), global_step=step, var_list=[variable, unused]
            )
            session.run(v1.global_variables_initializer())
            for _ in range(2):
                session.run(train)
            factor = (1 - 0.2 * self.mean_rank()) ** 2
            np.testing.assert_allclose(session.run(variable), np.array([1.0, 2.0]) * factor, rtol=1e-6)
            self.assertEqual(session.run(step), 2)

    def test_eager(self):
        variable = tf.Variable([1.0, 2.0])
        optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.1, 0.0))
        optimizer.minimize(lambda: self.quadratic(variable, hvd.rank()))
        np.testing.assert_allclose(variable, np.array([1.0, 2.0]) * (1 - 0.2 * self.mean_rank()), rtol=1e-6)
        self.assertEqual(optimizer.get_slot_names(), ["momentum"])

    def test_several_backward_passes(self):
        # Gradients of v and 2v in turn: their sum is 3 times the first.
        with tf.Graph().as_default(), v1.Session() as session:
            variable = v1.get_variable("v", initializer=[1.0, 2.0])
            factor = v1.placeholder(tf.float32, [])
            step = v1.train.get_or_create_global_step()
            optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), backward_passes_per_step=2)
            loss = factor * tf.reduce_sum(variable) * (hvd.rank() + 1.0)
            train = optimizer.minimize(loss, global_step=step)
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            expected = np.array([1.0, 2.0])
            for number in range(2):
                session.run(train, {factor: 1.0})
                np.testing.assert_allclose(session.run(variable), expected, rtol=1e-6)
                session.run(train, {factor: 2.0})
                expected = expected - 0.1 * 3 * self.mean_rank()
                np.testing.assert_allclose(session.run(variable), expected, rtol=1e-6)
                self.assertEqual(session.run(step), 2 * number + 2)

    def test_an_initializer_that_was_made_before(self):
        for options in ({"op": hvd.Adasum}, {"op": hvd.Adasum, "backward_passes_per_step": 2}, {"backward_passes_per_step": 2}):
            with self.subTest(options), tf.Graph().as_default(), v1.Session() as session:
                variable = v1.get_variable("v", initializer=[0.0, 0.0])
                initializer = v1.global_variables_initializer()
                optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), **options)
                train = optimizer.minimize(tf.reduce_sum(variable))
                session.run(initializer)
                for _ in range(2):
                    session.run(train)
                np.testing.assert_allclose(session.run(variable), [-0.2, -0.2], rtol=1e-5)

    def test_reference_variables(self):
        def values(start):
            return start + np.arange(3, dtype=np.float32)

        for broadcast in (hvd.broadcast_variables, hvd.broadcast_):
            with self.subTest(broadcast.__name__), tf.Graph().as_default(), v1.Session() as session:
                variables = [
                    v1.Variable(values(10 * hvd.rank() + place), use_resource=place == 1, name=f"variable_{place}")
                    for place in range(3)
                ]
                operation = broadcast(variables, 0)
                session.run(v1.global_variables_initializer())
                results = session.run(operation)
                for place, variable in enumerate(variables):
                    np.testing.assert_array_equal(session.run(variable), values(place))
                    if results is not None:
                        np.testing.assert_array_equal(results[place], values(place))
        with tf.Graph().as_default(), v1.Session() as session:
            v1.Variable(values(10 * hvd.rank()), use_resource=False)
            operation = hvd.broadcast_global_variables(0)
            session.run(v1.global_variables_initializer())
            session.run(operation)
            np.testing.assert_array_equal(session.run(v1.global_variables()[0]), values(0))

    def test_adasum_combines_changes(self):
        # Equal changes on all ranks are averaged to themselves; orthogonal ones add up.
        gradients = [[1.0, 0.0], [0.0, 2.0]]
        mine = gradients[hvd.rank()] if hvd.size() == 2 else gradients[0]
        expected = [-0.1, -0.2] if hvd.size() == 2 else [-0.1, 0.0]
        for passes in (1, 2):
            with tf.Graph().as_default(), v1.Session() as session:
                variable = v1.get_variable("v", initializer=[0.0, 0.0])
                optimizer = hvd.DistributedOptimizer(
                    v1.train.GradientDescentOptimizer(0.1), op=hvd.Adasum, backward_passes_per_step=passes
                )
                train = optimizer.minimize(tf.reduce_sum(variable * mine))
                session.run(v1.global_variables_initializer())
                for _ in range(passes):
                    session.run(train)
                np.testing.assert_allclose(session.run(variable), np.array(expected) * passes, rtol=1e-5)
        variable = tf.Variable([0.0, 0.0])
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), op=hvd.Adasum)
        optimizer.minimize(lambda: tf.reduce_sum(variable * mine))
        np.testing.assert_allclose(variable, expected, rtol=1e-5)


class SyncBatchNormalizationTest(support.RankedTest):
    def test_same_as_one_process(self):
        # Ranks have batches of different lengths, the last one an empty one in the end.
        lengths = [5 + 3 * rank for rank in range(hvd.size())]
        self.check(lengths)
        self.check([*lengths[:-1], 0] if hvd.size() > 1 else lengths)

    def check(self, lengths):
        layer, whole = hvd.SyncBatchNormalization(momentum=0.5), tf.keras.layers.BatchNormalization(momentum=0.5)
        everything = np.random.default_rng(0).normal(3, 2, size=(sum(lengths), 4)).astype(np.float32)
        begin = sum(lengths[: hvd.rank()])
        mine = slice(begin, begin + lengths[hvd.rank()])
        weights = np.random.default_rng(1).normal(size=everything.shape).astype(np.float32)
        results = []
        for each, part in ((layer, mine), (whole, slice(None))):
            inputs = tf.constant(everything[part])
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = each(inputs, training=True)
                loss = tf.reduce_sum(outputs * weights[part])
            results.append((outputs.numpy(), tape.gradient(loss, inputs).numpy()))
        (outputs, gradient), (all_outputs, all_gradients) = results
        np.testing.assert_allclose(outputs, all_outputs[mine], atol=1e-5)
        np.testing.assert_allclose(gradient, all_gradients[mine], atol=1e-5)
        np.testing.assert_allclose(layer.moving_mean.numpy(), whole.moving_mean.numpy(), rtol=1e-5)
        np.testing.assert_allclose(layer.moving_variance.numpy(), whole.moving_variance.numpy(), rtol=1e-5)

    def test_refuses_invalid_arguments(self):
        with self.assertRaises(ValueError):
            hvd.SyncBatchNormalization(fused=True)
        with self.assertRaises(ValueError):
            hvd.SyncBatchNormalization(synchronized=True)


if __name__ == "__main__":
    support.main()
