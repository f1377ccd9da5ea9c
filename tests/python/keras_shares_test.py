# SPDX-License-Identifier: Apache-2.0
"""MirroredStrategy when ranks have uneven parts or none: loops of tf.distribute and custom training steps, in float64,
compared with one process that has the whole batches."""

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras_support import Float64Test, strategy

import farandole.tensorflow as hvd
from farandole import errors

RANDOM = np.random.default_rng(12)
X = RANDOM.normal(size=(41, 5))
Y = RANDOM.normal(size=(41, 1))
PRIORS = RANDOM.normal(size=10)


def linear():
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])


class Loop:
    """A loop of tf.distribute, in the strategy or, to compare, in one process without any."""

    def __init__(self, strategy, make=linear):
        self.strategy = strategy
        keras.utils.set_random_seed(3)
        with strategy.scope():
            self.model = make()
            self.optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
            self.optimizer.build(self.model.trainable_variables)

    def batches(self, size=10, rows=21):
        """The last of them has one row."""
        dataset = tf.data.Dataset.from_tensor_slices((X[:rows], Y[:rows])).batch(size)
        return self.strategy.experimental_distribute_dataset(dataset)

    def update(self, loss_of, *batch):
        weights = self.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = loss_of(*batch)
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    def sum_of(self, function, *args, **kwargs):
        return self.strategy.reduce("SUM", self.strategy.run(function, *args, **kwargs), axis=None)


class LoopTest(Float64Test):
    def assert_as_in_one_process(self, program, make=linear):
        """program: takes a Loop and returns numbers; the weights are compared too."""
        loops = [Loop(tf.distribute.get_strategy(), make), Loop(strategy(), make)]
        loops[1].model.set_weights(loops[0].model.get_weights())
        expected, result = [np.asarray(program(loop)) for loop in loops]
        np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-12)
        self.assert_same_weights(*[loop.model for loop in loops])


# ---- Ranks without rows, which is known before the step --------------------------------------------------------------


LOSSES = {
    "average": lambda y, p: tf.nn.compute_average_loss(
        keras.losses.MeanSquaredError(reduction=None)(y, p), global_batch_size=10
    ),
    "mean of Keras": lambda y, p: keras.losses.MeanSquaredError()(y, p),
    "sum of Keras": lambda y, p: keras.losses.MeanSquaredError(reduction="sum")(y, p),
}


class EmptyPartsTest(LoopTest):
    def test_loops_whose_last_batch_is_short(self):
        def program(loss_of, way):
            def run(loop):
                def step(x, y):
                    return loop.update(lambda x, y: loss_of(y, loop.model(x, training=True)), x, y)

                def train(batch):
                    return loop.sum_of(step, args=batch)

                if way == "iterator":
                    function, iterator = tf.function(lambda it: train(next(it))), iter(loop.batches())
                    return [function(iterator) for _ in range(3)]
                function = tf.function(train) if way == "function" else train
                return [function(batch) for batch in loop.batches()]

            return run

        ways = [("average", way) for way in ("function", "iterator", "eager")]
        ways += [(name, "function") for name in LOSSES if name != "average"]
        for name, way in ways:
            with self.subTest(loss=name, way=way):
                self.assert_as_in_one_process(program(LOSSES[name], way))

    def test_regularisers_count_on_ranks_without_rows(self):
        def run(loop):
            def loss_of(x, y):
                weights = tf.add_n([tf.reduce_sum(tf.square(each)) for each in loop.model.trainable_variables])
                losses = keras.losses.mean_squared_error(y, loop.model(x))
                return tf.nn.compute_average_loss(losses, global_batch_size=10) + tf.nn.scale_regularization_loss(weights)

            step = tf.function(lambda batch: loop.sum_of(lambda x, y: loop.update(loss_of, x, y), args=batch))
            return [step(batch) for batch in loop.batches()]

        self.assert_as_in_one_process(run)

    def test_evaluation(self):
        def run(loop):
            with loop.strategy.scope():
                metrics = [keras.metrics.Mean(), keras.metrics.MeanAbsoluteError(), keras.metrics.AUC()]

            def step(x, y):
                outputs = loop.model(x, training=False)
                metrics[0].update_state(keras.losses.mean_squared_error(y, outputs))
                metrics[1].update_state(y, outputs)
                metrics[2].update_state(y > 0, tf.sigmoid(outputs))
                return keras.losses.MeanSquaredError()(y, outputs)

            def evaluate(batch):
                return loop.sum_of(step, args=batch)

            losses = [function(batch) for function in (evaluate, tf.function(evaluate)) for batch in loop.batches()]
            return [*losses, *[metric.result() for metric in metrics]]

        self.assert_as_in_one_process(run)

    def test_steps_of_models_in_loops(self):
        for way in (lambda function: function, tf.function):
            for loss in ("mse", keras.losses.MeanSquaredError(reduction="sum")):
                models = []
                for each in (tf.distribute.get_strategy(), strategy()):
                    loop = Loop(each)
                    with each.scope():
                        loop.model.compile(keras.optimizers.SGD(0.05), loss, metrics=["mae"])
                    models.append(loop.model)
                    step = way(lambda batch, loop=loop: loop.strategy.run(loop.model.train_step, args=(batch,)))
                    if models[1:]:
                        models[1].set_weights(models[0].get_weights())
                    else:
                        start = loop.model.get_weights()
                    loop.model.set_weights(start)
                    for batch in loop.batches():
                        step(batch)
                self.assert_same_weights(*models)

    def test_batches_without_rows_on_some_ranks(self):
        """train_on_batch, with this rank's rows."""
        alone, loop = Loop(tf.distribute.get_strategy()).model, Loop(strategy())
        together = loop.model
        together.set_weights(alone.get_weights())
        alone.compile(keras.optimizers.SGD(0.1), "mse")
        together.compile(keras.optimizers.SGD(0.1), "mse")
        for rows in (4 * hvd.size(), 1, 2):
            alone.train_on_batch(X[:rows], Y[:rows])
            mine = np.array_split(np.arange(rows), hvd.size())[hvd.rank()]
            together.train_on_batch(X[mine], Y[mine])
        self.assert_same_weights(alone, together)


# ---- Which of the tensors is the batch -------------------------------------------------------------------------------


class NamedBatchTest(LoopTest):
    def passing(self, pass_batch, way=tf.function):
        """A program whose step gets a vector of priors besides the batch, in batches of 7."""

        def run(loop):
            def loss_of(x, y, priors):
                return keras.losses.MeanSquaredError()(y + tf.reduce_mean(priors), loop.model(x, training=True))

            def step(x, y, priors):
                return loop.update(loss_of, x, y, priors)

            train = way(lambda batch: pass_batch(loop, step, *batch))
            return [train(batch) for batch in loop.batches(7, rows=23)]

        return run

    def test_priors_do_not_decide(self):
        ways = {
            "first": lambda loop, step, x, y: loop.sum_of(lambda p, x, y: step(x, y, p), args=(tf.constant(PRIORS), x, y)),
            "keyword": lambda loop, step, x, y: loop.sum_of(step, kwargs={"priors": tf.constant(PRIORS), "x": x, "y": y}),
            "dictionary": lambda loop, step, x, y: loop.sum_of(
                lambda d: step(d["x"], d["y"], d["a"]), args=({"a": tf.constant(PRIORS), "x": x, "y": y},)
            ),
            "last": lambda loop, step, x, y: loop.sum_of(step, args=(x, y, tf.constant(PRIORS))),
            "variable": lambda loop, step, x, y: loop.sum_of(
                lambda p, x, y: step(x, y, p[0]), args=(loop.model.trainable_variables, x, y)
            ),
        }
        for name, pass_batch in ways.items():
            with self.subTest(name):
                self.assert_as_in_one_process(self.passing(pass_batch))
        self.assert_as_in_one_process(self.passing(ways["first"], way=lambda function: function))

    def test_a_batch_that_the_function_takes_itself(self):
        def run(loop):
            iterator = iter(loop.batches(7, rows=23))

            def step(*unused):
                x, y = next(iterator)
                return loop.update(lambda: keras.losses.MeanSquaredError()(y, loop.model(x, training=True)))

            @tf.function
            def train():
                return loop.sum_of(step)

            return [loop.sum_of(step), loop.sum_of(step, args=(iterator,)), train(), train()]

        self.assert_as_in_one_process(run)

    def test_the_next_batch_is_taken_before_the_step(self):
        def run(loop):
            def loss_of(x, y, priors):
                return keras.losses.MeanSquaredError()(y + tf.reduce_mean(priors), loop.model(x, training=True))

            def step(priors, x, y):
                return loop.update(loss_of, x, y, priors)

            train = tf.function(lambda x, y: loop.sum_of(step, args=(tf.constant(PRIORS), x, y)))
            losses, before = [], None
            for batch in [*loop.batches(5, rows=9), None]:
                losses += [] if before is None else [train(*before)]
                before = batch
            return losses

        self.assert_as_in_one_process(run)

    def test_batches_of_two_datasets(self):
        """Of which one comes out even: the rows of the other must not be forgotten for it."""
        self.need_several_ranks()
        size = hvd.size()
        loop = Loop(strategy())

        def step(u, x, y):
            return keras.losses.MeanSquaredError()(y, x[:, :1]) + 0 * tf.reduce_sum(loop.model(u))

        def train(a, b, way, **options):
            return way(lambda: loop.sum_of(step, args=(b[0], *a), **options))()

        def takes(*iterators):
            def function():
                batches = {len(each): each for each in (next(iterator) for iterator in iterators)}
                return step(*batches[1], *batches[2])

            return function

        expected = np.mean((Y[: 2 * size + 1] - X[: 2 * size + 1, :1]) ** 2)
        uneven = loop.batches(2 * size + 1, rows=2 * size + 1)
        even = loop.strategy.experimental_distribute_dataset(
            tf.data.Dataset.from_tensor_slices((X[: 2 * size],)).batch(2 * size)
        )
        for way in (lambda function: function, tf.function):
            for first, second in ((uneven, even), (even, uneven)):
                a, b = sorted((batch for pair in zip(first, second) for batch in pair), key=len, reverse=True)
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"batch=\(x, y\)"):
                    train(a, b, way)
                np.testing.assert_allclose(train(a, b, way, batch=a), expected, rtol=1e-12)
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"batch=\(x, y\)"):
                    way(lambda pair=(iter(first), iter(second)): loop.sum_of(takes(*pair)))()

    def own_rows(self):
        """Data that this rank has made itself: rank 0 has more than the others."""
        mine = slice(0, 3) if hvd.rank() == 0 else slice(2 + hvd.rank(), 3 + hvd.rank())
        return tf.constant(X[mine]), tf.constant(Y[mine])

    def run_of_own_rows(self, way, priors=PRIORS, **options):
        x, y = self.own_rows()

        def step(priors, x, y):
            return keras.losses.MeanSquaredError()(y + tf.reduce_mean(priors), x[:, :1])

        loop = Loop(strategy())
        return way(lambda: loop.sum_of(step, args=(tf.constant(priors), x, y), **options))()

    def test_ambiguous_batches_are_refused(self):
        self.need_several_ranks()
        for _ in Loop(strategy()).batches(2 * hvd.size(), rows=2 * hvd.size()):
            pass  # a batch that was even
        strategy().run(lambda: None)
        x, y = X[: 2 + hvd.size()], Y[: 2 + hvd.size()]
        expected = np.mean((y + PRIORS.mean() - x[:, :1]) ** 2)
        for way in (lambda function: function, tf.function):
            for _ in Loop(strategy()).batches(4 * hvd.size() + 1, rows=4 * hvd.size() + 1):
                pass  # another batch than the one that is used
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"batch=\(x, y\)"):
                self.run_of_own_rows(way)
            np.testing.assert_allclose(self.run_of_own_rows(way, batch=self.own_rows()), expected, rtol=1e-12)
        with self.assertRaisesRegex(errors.InvalidArgument, r"\(10, [31], [31]\)"):
            self.run_of_own_rows(lambda function: function)

    def test_functions_without_a_batch(self):
        self.need_several_ranks()

        def step():
            return keras.losses.MeanSquaredError()(tf.ones([2, 1]), tf.zeros([2, 1]))

        loop = Loop(strategy())
        for _ in loop.batches(2 * hvd.size(), rows=2 * hvd.size()):
            pass
        np.testing.assert_allclose(loop.sum_of(step), 1)
        for x, _ in loop.batches(2 * hvd.size() + 1, rows=2 * hvd.size() + 1):
            # The function has taken it from around itself.
            with self.assertRaisesRegex(errors.InvalidArgument, "is given no tensor"):
                loop.strategy.run(lambda x=x: keras.losses.MeanSquaredError()(x, x))
        for way in (lambda function: function, tf.function):
            np.testing.assert_allclose(way(lambda: loop.sum_of(step, batch=()))(), 1)


# ---- Gradients that are gathered by hand -----------------------------------------------------------------------------


class AccumulationTest(LoopTest):
    def test_in_loops(self):
        for sizes in ([6, 6, 1], [1, 6, 6], [6, 1, 5]):
            with self.subTest(sizes):
                self.assert_as_in_one_process(lambda loop, sizes=sizes: self.accumulated(loop, sizes))

    def accumulated(self, loop, sizes):
        ends = np.cumsum(sizes * 2)
        parts = [(X[end - size : end], Y[end - size : end]) for size, end in zip(sizes * 2, ends)]
        spec = (tf.TensorSpec((None, 5), tf.float64), tf.TensorSpec((None, 1), tf.float64))
        data = tf.data.Dataset.from_generator(lambda: iter(parts), output_signature=spec)
        weights = loop.model.trainable_variables
        with loop.strategy.scope():
            kept = [self.kept(each) for each in weights]

        def gather(x, y):
            with tf.GradientTape() as tape:
                losses = keras.losses.mean_squared_error(y, loop.model(x, training=True))
                # A rank without rows computes NaN.
                loss = tf.nn.compute_average_loss(losses, global_batch_size=12) + 0 * tf.sqrt(tf.reduce_mean(losses))
            for each, gradient in zip(kept, tape.gradient(loss, weights)):
                each.assign_add(gradient)

        def gather_and_apply(x, y):
            gather(x, y)
            loop.optimizer.apply([each.read_value() for each in kept], weights)
            for each in kept:
                each.assign(tf.zeros_like(each))

        functions = [tf.function(lambda b, f=f: loop.strategy.run(f, args=b)) for f in (gather, gather_and_apply)]
        for number, batch in enumerate(loop.strategy.experimental_distribute_dataset(data)):
            functions[number % 3 == 2](batch)
        return 0

    def kept(self, variable):
        return tf.Variable(
            tf.zeros(variable.shape, tf.float64),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.NONE,
        )

    def test_in_a_step_of_fit(self):
        test = self

        class Model(keras.Model):
            def build_kept(self):
                self.kept = [test.kept(each) for each in self.trainable_variables]
                self.count = tf.Variable(0, trainable=False)

            def train_step(self, data):
                x, y = data
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
                self.count.assign_add(1)
                for kept, gradient in zip(self.kept, tape.gradient(loss, self.trainable_variables)):
                    kept.assign_add(gradient / 3)
                tf.cond(self.count % 3 == 0, self.apply_kept, lambda: None)
                return {"rows": tf.constant(0)}

            def apply_kept(self):
                self.optimizer.apply([each.read_value() for each in self.kept], self.trainable_variables)
                for each in self.kept:
                    each.assign(tf.zeros_like(each))

        def make():
            inputs = keras.Input((5,))
            model = Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(3, "tanh")(inputs)))
            model.build_kept()
            model.compile(keras.optimizers.SGD(0.1))
            return model

        for run_eagerly in (False, True):  # batches of 8, of which the last, the sixth, has one row
            with self.subTest(run_eagerly=run_eagerly):
                self.fit_as_in_one_process(make if not run_eagerly else lambda: self.eager(make()), X, Y)

    def eager(self, model):
        model.run_eagerly = True
        return model


if __name__ == "__main__":
    support.main()
