# SPDX-License-Identifier: Apache-2.0
"""MirroredStrategy under Keras 3's fit: every way to pass data, compared with one process with the whole batches."""

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras_support import KerasTest, X, Y, classifier, sgd, strategy

import farandole.tensorflow as hvd


class FitTest(KerasTest):
    # ---- The numbers

    def losses(self, epochs, **options):
        """Trains as `alone_and_together`, on the same batch again and again, and compares the losses of all steps."""

        class Losses(keras.callbacks.Callback):
            def __init__(self):
                super().__init__()
                self.values = []

            def on_train_batch_end(self, batch, logs=None):
                self.values.append(logs["loss"])  # the mean so far, on this rank

        seen = []

        def train(model):
            seen.append(Losses())
            x, y = np.tile(X.astype(keras.config.floatx()), (epochs, 1)), np.tile(Y, epochs)
            return model.fit(x, y, batch_size=64, shuffle=False, verbose=0, callbacks=[seen[-1]])

        self.alone_and_together(classifier(sgd(momentum=0.9)), train, **options)
        rows = [len(part) for part in np.array_split(X, hvd.size())]
        mean = np.average(hvd.allgather_object(seen[1].values), axis=0, weights=rows)
        self.assertEqual(len(mean), epochs)
        np.testing.assert_allclose(mean, seen[0].values, rtol=options["rtol"])

    def test_losses_of_the_first_steps(self):
        self.losses(10, rtol=1e-5)

    def test_losses_in_float64(self):
        keras.config.set_floatx("float64")
        keras.config.set_dtype_policy("float64")
        try:
            self.losses(100, rtol=1e-10, atol=1e-12)
        finally:
            keras.config.set_floatx("float32")
            keras.config.set_dtype_policy("float32")

    def test_optimizer_made_and_compiled_outside_the_scope(self):
        """Also in a job of one process."""

        def train(model):
            model.compile(keras.optimizers.Adam(0.01, global_clipnorm=1.0), "sparse_categorical_crossentropy")
            return model.fit(X, Y, batch_size=10, epochs=2, shuffle=False, verbose=0)

        self.alone_and_together(classifier(), train)

    # ---- Data

    def test_shuffled_arrays_are_dealt_out_once(self):
        seen = tf.Variable(tf.zeros([50], tf.int32))

        class Model(keras.Model):
            def train_step(self, rows):
                seen.scatter_add(tf.IndexedSlices(tf.ones_like(rows[:, 0]), rows[:, 0]))
                return {"rows": tf.size(rows)}

        with strategy().scope():
            inputs = keras.Input((1,), dtype="int32")
            model = Model(inputs, inputs)
            model.compile()
        own = []

        class Epoch(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                own.append(seen.numpy())
                seen.assign(tf.zeros([50], tf.int32))

        for shuffle in (True, "batch"):
            own.clear()
            rows = np.arange(50, dtype=np.int32)[:, np.newaxis]
            model.fit(rows, batch_size=8, epochs=2, shuffle=shuffle, callbacks=[Epoch()], verbose=0)
            for epoch in own:
                np.testing.assert_array_equal(hvd.allreduce(epoch, op=hvd.Sum), np.ones(50))
            if hvd.size() > 1:  # each rank sees others in the next epoch
                self.assertFalse(np.array_equal(*own))

    def test_setting_the_seed_again_repeats_the_orders(self):
        of_trials = []
        for _ in range(2):
            keras.utils.set_random_seed(3)
            with strategy().scope():
                model = classifier(sgd())()
            fits = [model.fit(X, Y, batch_size=8, epochs=2, verbose=0) for _ in range(2)]
            of_trials.append([each.history["loss"] for each in fits])
        np.testing.assert_allclose(*of_trials, rtol=1e-6)

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


if __name__ == "__main__":
    support.main()
