"""MirroredStrategy under Keras 3's fit: every way to pass data and to update weights, against one process that trains with
the whole batches."""

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole import errors

STRATEGY = None
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(64, 6)).astype(np.float32)
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)


def strategy():
    global STRATEGY
    if STRATEGY is None:
        STRATEGY = hvd.MirroredStrategy()
    return STRATEGY


def classifier(optimizer="sgd", **compile_arguments):
    """A function that makes the model."""

    def make():
        model = keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, activation="softmax")]
        )
        chosen = optimizer() if callable(optimizer) else keras.optimizers.get(optimizer)
        loss = keras.losses.SparseCategoricalCrossentropy()
        model.compile(chosen, loss, metrics=["accuracy"], **compile_arguments)
        return model

    return make


def sgd(**arguments):
    return lambda: keras.optimizers.SGD(0.1, **arguments)


class FitTest(support.RankedTest):
    def assert_same_on_all_ranks(self, values):
        for other in hvd.allgather_object([np.asarray(value) for value in values]):
            for mine, theirs in zip(values, other):
                np.testing.assert_array_equal(np.asarray(mine), theirs)

    def alone_and_together(self, make, train, rtol=1e-5, atol=1e-6):
        """Trains a model alone and one with the same start on all ranks; both must end alike. Returns them."""
        keras.utils.set_random_seed(11)
        alone = make()
        start = alone.get_weights()
        history = train(alone)
        keras.utils.set_random_seed(11)
        with strategy().scope():
            together = make()
        together.set_weights(start)
        histories = train(together)
        for mine, expected in zip(together.get_weights(), alone.get_weights()):
            np.testing.assert_allclose(mine, expected, rtol=rtol, atol=atol)
        self.assert_same_on_all_ranks(together.get_weights())
        if history is not None:
            for name, expected in history.history.items():
                np.testing.assert_allclose(histories.history[name], expected, rtol=rtol, atol=atol, err_msg=name)
            self.assert_same_on_all_ranks([histories.history[name] for name in sorted(histories.history)])
        return alone, together

    # ---- The numbers

    def test_losses_of_the_first_steps(self):
        # One batch in each epoch, so that the epoch's loss is the step's.
        self.alone_and_together(
            classifier("adam"), lambda model: model.fit(X, Y, batch_size=64, epochs=10, shuffle=False, verbose=0)
        )

    def test_losses_in_float64(self):
        before = keras.config.floatx()
        keras.config.set_floatx("float64")
        try:
            self.alone_and_together(
                classifier(sgd(momentum=0.9)),
                lambda model: model.fit(
                    X.astype(np.float64), Y, batch_size=64, epochs=100, shuffle=False, verbose=0
                ),
                rtol=1e-10,
                atol=1e-12,
            )
        finally:
            keras.config.set_floatx(before)

    # ---- Data

    def test_shuffled_arrays_are_dealt_out_once(self):
        seen = tf.Variable(tf.zeros([50], tf.int32))

        class Model(keras.Model):
            def train_step(self, rows):
                seen.scatter_add(tf.IndexedSlices(tf.ones_like(rows[:, 0]), rows[:, 0]))
                return {}

        with strategy().scope():
            inputs = keras.Input((1,), dtype="int32")
            model = Model(inputs, inputs)
            model.compile()
        order = []
        for _ in range(2):
            seen.assign(tf.zeros([50], tf.int32))
            model.fit(np.arange(50, dtype=np.int32)[:, np.newaxis], batch_size=8, verbose=0)
            order.append(seen.numpy())
            np.testing.assert_array_equal(hvd.allreduce(seen, op=hvd.Sum).numpy(), np.ones(50))
        if hvd.size() > 1:  # shuffled: it is not the same half each time
            self.assertFalse(np.array_equal(*order))

    def test_uneven_and_empty_last_batches(self):
        def make():
            regularizer = {"kernel_regularizer": "l2", "activity_regularizer": keras.regularizers.L2(0.1)}
            model = keras.Sequential(
                [keras.Input((6,)), keras.layers.Dense(5, **regularizer), keras.layers.Dense(3, activation="softmax")]
            )
            model.compile(keras.optimizers.SGD(0.2), "sparse_categorical_crossentropy", metrics=["accuracy"])
            return model

        for samples in (43, 41):  # the last of batches of 8: 3 rows, and 1, of which one rank gets none
            _, together = self.alone_and_together(
                make,
                lambda model: model.fit(X[:samples], Y[:samples], batch_size=8, epochs=2, shuffle=False, verbose=0),
            )
            self.assertTrue(all(np.isfinite(weight).all() for weight in together.get_weights()))

    def test_sum_reduction_is_not_weighted(self):
        def make():
            model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.001), keras.losses.MeanSquaredError(reduction="sum"))
            return model

        def train(model):
            model.fit(X[:43], Y[:43].astype(np.float32), batch_size=8, shuffle=False, verbose=0)

        self.alone_and_together(make, train)

    def test_sample_and_class_weights(self):
        weights = np.linspace(0, 2, len(X)).astype(np.float32)

        def weighted(model):
            return model.fit(
                X[:43], Y[:43], sample_weight=weights[:43], batch_size=8, epochs=2, shuffle=False, verbose=0
            )

        def by_class(model):
            return model.fit(X, Y, class_weight={0: 1.0, 1: 3.0, 2: 0.5}, batch_size=16, shuffle=False, verbose=0)

        self.alone_and_together(classifier(sgd()), weighted)
        self.alone_and_together(classifier(sgd()), by_class)

    def test_datasets_and_steps_per_execution(self):
        def train(model):
            dataset = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(64, seed=3, reshuffle_each_iteration=False)
            dataset = dataset.batch(10).prefetch(2)
            return model.fit(dataset, epochs=2, validation_data=dataset, verbose=0)

        self.alone_and_together(classifier(sgd()), train)
        self.alone_and_together(classifier(sgd(), steps_per_execution=3), train)

        def endless(model):
            dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(10).repeat()
            return model.fit(dataset, epochs=3, steps_per_epoch=4, verbose=0)

        self.alone_and_together(classifier(sgd()), endless)

    def test_py_datasets(self):
        class Batches(keras.utils.PyDataset):
            def __len__(self):
                return 5

            def __getitem__(self, index):
                return X[index * 10 : index * 10 + 9], Y[index * 10 : index * 10 + 9]

        self.alone_and_together(
            classifier(sgd()), lambda model: model.fit(Batches(workers=1), epochs=2, shuffle=True, verbose=0)
        )

    def test_generators(self):
        def batches():
            for begin in range(0, 60, 12):
                yield X[begin : begin + 12], Y[begin : begin + 12]

        self.alone_and_together(classifier(sgd()), lambda model: model.fit(batches(), verbose=0))

    def test_batches_of_each_rank_count_by_their_samples(self):
        """Each rank brings its own batches, of other sizes: one step equals one process with all of them."""
        sizes = [3 + 4 * rank for rank in range(hvd.size())]
        ends = np.cumsum(sizes)
        mine = slice(ends[hvd.rank()] - sizes[hvd.rank()], ends[hvd.rank()])
        own = tf.data.Dataset.from_tensors((X[mine], Y[mine])).repeat(4)
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        from_function = strategy().distribute_datasets_from_function(lambda context: own)
        for dataset in (own.with_options(options), from_function):

            def train(model):
                if model.distribute_strategy is not strategy():
                    dataset_of_all = tf.data.Dataset.from_tensors((X[: ends[-1]], Y[: ends[-1]])).repeat(4)
                    return model.fit(dataset_of_all, verbose=0)
                return model.fit(dataset, verbose=0)

            self.alone_and_together(classifier(sgd()), train)

    def test_inputs_and_outputs_with_names(self):
        def make():
            left, right = keras.Input((3,), name="left"), keras.Input((3,), name="right")
            both = keras.layers.Concatenate()([left, right])
            outputs = {"class": keras.layers.Dense(3)(both), "value": keras.layers.Dense(1)(both)}
            model = keras.Model({"left": left, "right": right}, outputs)
            losses = {"class": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "value": "mse"}
            model.compile("sgd", losses)
            return model

        inputs = {"left": X[:, :3], "right": X[:, 3:]}
        targets = {"class": Y, "value": X[:, :1]}
        _, together = self.alone_and_together(
            make, lambda model: model.fit(inputs, targets, batch_size=24, shuffle=False, verbose=0)
        )
        predicted = together.predict(inputs, batch_size=10, verbose=0)
        self.assertEqual(predicted["class"].shape, (64, 3))

    # ---- Updates

    def test_clipping_sees_the_gradient_of_all_ranks(self):
        for clipping in ({"clipnorm": 0.05}, {"global_clipnorm": 0.05}, {"clipvalue": 0.01}):
            with self.subTest(clipping):
                self.alone_and_together(
                    classifier(sgd(**clipping)),
                    lambda model: model.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0),
                )

    def test_gradient_accumulation(self):
        self.alone_and_together(
            classifier(sgd(gradient_accumulation_steps=4, global_clipnorm=0.05)),
            lambda model: model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0),
        )

    def test_weight_decay_and_moving_averages(self):
        self.alone_and_together(
            classifier(lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=3)),
            lambda model: model.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0),
            rtol=1e-4,
            atol=1e-5,
        )

    def test_embeddings(self):
        words = RANDOM.integers(0, 20, size=(40, 7))

        for optimizer in ("sgd", "adam"):

            def make():
                model = keras.Sequential(
                    [
                        keras.Input((7,)),
                        keras.layers.Embedding(20, 4),
                        keras.layers.GlobalAveragePooling1D(),
                        keras.layers.Dense(3, activation="softmax"),
                    ]
                )
                model.compile(optimizer, "sparse_categorical_crossentropy")
                return model

            self.alone_and_together(
                make, lambda model: model.fit(words, Y[:40], batch_size=8, epochs=2, shuffle=False, verbose=0)
            )

    def test_an_optimizer_made_outside_of_the_scope(self):
        optimizer = keras.optimizers.SGD(0.1)
        with strategy().scope():
            model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, activation="softmax")])
        model.compile(optimizer, "sparse_categorical_crossentropy")
        model.fit(X, Y, batch_size=16, verbose=0)
        self.assert_same_on_all_ranks(model.get_weights())

    def test_run_eagerly(self):
        self.alone_and_together(
            classifier(sgd(), run_eagerly=True),
            lambda model: model.fit(X[:20], Y[:20], batch_size=8, shuffle=False, verbose=0),
        )

    # ---- Precision

    def test_bfloat16(self):
        keras.config.set_dtype_policy("mixed_bfloat16")
        try:
            self.alone_and_together(
                classifier(sgd()),
                lambda model: model.fit(X, Y, batch_size=16, shuffle=False, verbose=0),
                rtol=0.01,
                atol=0.01,
            )
        finally:
            keras.config.set_dtype_policy("float32")

    def test_float16_skips_a_step_on_all_ranks(self):
        keras.config.set_dtype_policy("mixed_float16")
        try:
            with strategy().scope():
                model = classifier(sgd(global_clipnorm=1.0))()
            self.assertIsInstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
            x = X.copy()
            x[63] = np.nan  # so is the gradient of the last rank, and no other's
            before = model.get_weights()
            model.fit(x, Y, batch_size=64, shuffle=False, verbose=0)
            for old, new in zip(before, model.get_weights()):
                np.testing.assert_array_equal(old, new)
            self.assertEqual(int(model.optimizer.iterations.numpy()), 0)
            scale = float(model.optimizer.dynamic_scale.numpy())
            self.assertEqual(scale, model.optimizer.initial_scale / 2)
            model.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0)
            self.assertEqual(int(model.optimizer.iterations.numpy()), 8)
            self.assert_same_on_all_ranks([*model.get_weights(), float(model.optimizer.dynamic_scale.numpy())])
        finally:
            keras.config.set_dtype_policy("float32")

    # ---- Layers with state

    def normalising(self, **arguments):
        def make():
            model = keras.Sequential(
                [
                    keras.Input((6,)),
                    keras.layers.Dense(5),
                    keras.layers.BatchNormalization(momentum=0.5, **arguments),
                    keras.layers.Dense(3, activation="softmax"),
                ]
            )
            model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
            return model

        return make

    def test_synchronised_normalisation(self):
        self.alone_and_together(
            self.normalising(synchronized=True),
            lambda model: model.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0),
            rtol=1e-4,
            atol=1e-5,
        )

    def test_moving_statistics_are_averages_over_the_ranks(self):
        with strategy().scope():
            model = self.normalising()()
        model.fit(X[:41], Y[:41], batch_size=8, epochs=2, shuffle=False, verbose=0)  # with an empty part at the end
        self.assertTrue(all(np.isfinite(weight).all() for weight in model.get_weights()))
        self.assert_same_on_all_ranks(model.get_weights())

    def test_moving_statistics_by_samples(self):
        with strategy().scope():
            model = self.normalising()()
        dense, normalisation = model.layers[0], model.layers[1]
        outputs = X[:3] @ dense.kernel.numpy() + dense.bias.numpy()
        before = normalisation.moving_mean.numpy()
        model.fit(X[:3], Y[:3], batch_size=3, shuffle=False, verbose=0)
        # Whatever the parts: the mean of the parts' means by samples is the mean of all.
        np.testing.assert_allclose(normalisation.moving_mean.numpy(), (before + outputs.mean(axis=0)) / 2, rtol=1e-4)

    def test_dropout_differs_between_ranks(self):
        with strategy().scope():
            model = keras.Sequential([keras.Input((200,)), keras.layers.Dropout(0.5)])
        masks = hvd.allgather_object(keras.ops.convert_to_numpy(model(np.ones((1, 200), np.float32), training=True)))
        for other in masks[1:]:
            self.assertFalse(np.array_equal(masks[0], other))

    # ---- Evaluating and predicting

    def test_evaluate_and_predict(self):
        alone, together = self.alone_and_together(
            classifier(sgd()), lambda model: model.fit(X, Y, batch_size=16, shuffle=False, verbose=0)
        )
        for samples in (64, 43, 41):
            expected = alone.evaluate(X[:samples], Y[:samples], batch_size=8, verbose=0)
            found = together.evaluate(X[:samples], Y[:samples], batch_size=8, verbose=0)
            np.testing.assert_allclose(found, expected, rtol=1e-5)
            self.assert_same_on_all_ranks(found)
            rows = together.predict(X[:samples], batch_size=8, verbose=0)
            np.testing.assert_allclose(rows, alone.predict(X[:samples], batch_size=8, verbose=0), rtol=1e-4, atol=1e-6)

    def test_single_batches_of_each_rank(self):
        part = slice(hvd.rank() * 10, hvd.rank() * 10 + 10)
        everything = slice(0, 10 * hvd.size())

        def train(model):
            rows = part if model.distribute_strategy is strategy() else everything
            for _ in range(3):
                model.train_on_batch(X[rows], Y[rows])

        self.alone_and_together(classifier(sgd()), train)

    # ---- Own training steps

    def test_own_train_step_with_compute_loss(self):
        class Model(keras.Model):
            def train_step(self, batch):
                inputs, targets = batch
                with tf.GradientTape() as tape:
                    loss = self.compute_loss(inputs, targets, self(inputs, training=True))
                variables = self.trainable_variables
                self.optimizer.apply(tape.gradient(loss, variables), variables)
                return {}

        def make():
            inputs = keras.Input((6,))
            model = Model(inputs, keras.layers.Dense(3, activation="softmax")(inputs))
            model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
            return model

        def train(model):
            model.fit(X[:41], Y[:41], batch_size=8, epochs=2, shuffle=False, verbose=0)

        self.alone_and_together(make, train)

    def test_own_train_step_with_an_own_mean_is_the_sum_over_the_ranks(self):
        class Model(keras.Model):
            def train_step(self, batch):
                inputs, targets = batch
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(self(inputs, training=True) - targets))
                self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
                return {}

        def make():
            inputs = keras.Input((6,))
            model = Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(inputs))
            model.compile(keras.optimizers.SGD(0.1))
            return model

        targets = X[:16, :1]
        alone = make()
        before = alone.get_weights()
        alone.fit(X[:16], targets, batch_size=16, shuffle=False, verbose=0)
        with strategy().scope():
            together = make()
        together.fit(X[:16], targets, batch_size=16, shuffle=False, verbose=0)
        for start, one, all_of_them in zip(before, alone.get_weights(), together.get_weights()):
            np.testing.assert_allclose(all_of_them - start, hvd.size() * (one - start), rtol=1e-3, atol=1e-6)

    def test_jit_is_refused_by_name(self):
        with strategy().scope():
            model = classifier(sgd(), jit_compile=True)()
        with self.assertRaisesRegex(errors.Unsupported, "jit_compile"):
            model.fit(X, Y, batch_size=16, verbose=0)
        with strategy().scope():
            model = classifier(sgd(), jit_compile="auto")()
        model.fit(X, Y, batch_size=16, verbose=0)

    def test_learning_rate_is_a_number(self):
        with strategy().scope():
            model = classifier(sgd())()
        self.assertAlmostEqual(float(model.optimizer.learning_rate), 0.1, places=6)

    # ---- Programs that differ between ranks

    def need_several_ranks(self):
        if hvd.size() == 1:
            self.skipTest("needs several ranks")

    def assert_refused(self, text, call):
        with self.assertRaises((errors.Mismatch, tf.errors.InvalidArgumentError)) as caught:
            call()
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
            self.assert_refused("rank 1 has no more data", lambda: model.fit(batches(), verbose=0))

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
