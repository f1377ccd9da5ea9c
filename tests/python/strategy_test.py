# SPDX-License-Identifier: Apache-2.0
"""MirroredStrategy without fit: variables, collectives, datasets, loops, and the names of TensorFlow that it needs."""

import random
from unittest import mock

import support

support.need("numpy", "tensorflow")

import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole import errors
from farandole.tensorflow import mpi_ops
from farandole.tensorflow.strategy import _private_names, _seeds

STRATEGY = None


def strategy():
    global STRATEGY
    if STRATEGY is None:
        STRATEGY = hvd.MirroredStrategy()
    return STRATEGY


def ranks():
    return np.arange(hvd.size())


class VariablesTest(support.RankedTest):
    def test_they_start_with_the_first_ranks_values(self):
        for dtype in ("float32", "float64", "bfloat16", "int64", "bool", "uint8", "uint32", "complex64"):
            with strategy().scope():
                variable = tf.Variable(tf.cast([hvd.rank() + 1, 3], dtype))
                lazy = tf.Variable(lambda: tf.cast([hvd.rank() + 1, 3], dtype))
            for each in (variable, lazy):
                np.testing.assert_array_equal(each.numpy(), tf.cast([1, 3], dtype).numpy())
        with self.assertRaisesRegex(errors.Unsupported, "string"), strategy().scope():
            tf.Variable(["text"])

    def test_made_in_a_function(self):
        holder = []

        @tf.function
        def make():
            if not holder:
                with strategy().scope():
                    holder.append(tf.Variable(lambda: tf.fill([2], float(hvd.rank()))))
            return holder[0].read_value()

        np.testing.assert_array_equal(make().numpy(), [0, 0])

    def test_replicas_assign_by_aggregation(self):
        kinds = tf.VariableAggregation
        with strategy().scope():
            variables = {kind: tf.Variable([0.0], aggregation=kind) for kind in (kinds.SUM, kinds.MEAN)}
            first = tf.Variable([0.0], aggregation=kinds.ONLY_FIRST_REPLICA)

        def assign():
            value = tf.constant([1.0 + hvd.rank()])
            for variable in [*variables.values(), first]:
                variable.assign(value)

        for run in (strategy().run, tf.function(strategy().run)):
            run(assign)
            self.assertEqual(variables[kinds.SUM].numpy(), [(ranks() + 1).sum()])
            self.assertEqual(variables[kinds.MEAN].numpy(), [(ranks() + 1).mean()])
            self.assertEqual(first.numpy(), [1])

    def test_on_read(self):
        kinds = tf.VariableAggregation
        on_read = tf.VariableSynchronization.ON_READ
        with strategy().scope():
            total = tf.Variable(0.0, synchronization=on_read, aggregation=kinds.SUM, trainable=False)
            mean = tf.Variable(0.0, synchronization=on_read, aggregation=kinds.MEAN, trainable=False)

        @tf.function
        def add():
            strategy().run(lambda: (total.assign_add(1.0 + hvd.rank()), mean.assign(1.0 + hvd.rank())))

        add()
        self.assertEqual(total.numpy(), (ranks() + 1).sum())
        self.assertEqual(mean.numpy(), (ranks() + 1).mean())
        total.assign(12.0)  # outside of replicas it is what all of them have together
        self.assertAlmostEqual(float(total.numpy()), 12.0, places=5)

    def test_plain_where_they_can_be(self):
        with strategy().scope():
            variable = tf.Variable(1.5)
        self.assertEqual(float(variable), 1.5)
        self.assertIsInstance(variable, tf.Variable)
        self.assertTrue(strategy().extended.variable_created_in_scope(variable))


class CollectivesTest(support.RankedTest):
    def test_reduce(self):
        def checks():
            value = strategy().run(lambda: tf.constant([1.0 + hvd.rank(), 2.0]))
            return (
                strategy().reduce("SUM", value, axis=None),
                strategy().reduce(tf.distribute.ReduceOp.MEAN, value, axis=None),
                strategy().reduce("SUM", value, axis=0),
                strategy().reduce("MEAN", value, axis=0),
                strategy().reduce("MEAN", tf.constant(7.0 + hvd.rank()), axis=0),
            )

        size, first = hvd.size(), (ranks() + 1).sum()
        for run in (checks, tf.function(checks)):
            total, mean, whole, whole_mean, scalar = [each.numpy() for each in run()]
            np.testing.assert_allclose(total, [first, 2 * size])
            np.testing.assert_allclose(mean, [first / size, 2])
            self.assertAlmostEqual(float(whole), first + 2 * size)
            self.assertAlmostEqual(float(whole_mean), (first + 2 * size) / (2 * size), places=6)
            self.assertEqual(scalar, 7 + hvd.rank())

    def test_all_reduce_in_a_replica(self):
        def replica(x):
            context = tf.distribute.get_replica_context()
            slices = tf.IndexedSlices(tf.fill([1, 2], 1.0), tf.constant([hvd.rank()]), dense_shape=[hvd.size(), 2])
            total, sparse = context.all_reduce("SUM", [x, slices])
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_sum(context.all_reduce("SUM", x) * (1.0 + hvd.rank()))
            number = context.all_reduce("MEAN", tf.constant(3, tf.int64))
            return total, tf.convert_to_tensor(sparse), tape.gradient(y, x), number, context.replica_id_in_sync_group

        for run in (strategy().run, tf.function(strategy().run)):
            total, sparse, gradient, number, replica_id = run(replica, args=(tf.constant([1.0 + hvd.rank()]),))
            self.assertEqual(total.numpy(), [(ranks() + 1).sum()])
            np.testing.assert_array_equal(sparse.numpy(), np.ones((hvd.size(), 2)))
            self.assertEqual(gradient.numpy(), [(ranks() + 1).sum()])
            self.assertEqual((number.numpy(), replica_id.numpy()), (3, hvd.rank()))

    def test_means_of_integers_are_those_of_allreduce(self):
        negative = tf.constant([-1 if hvd.rank() == 0 else 0, -7 - hvd.rank()], tf.int64)

        def replica():
            return tf.distribute.get_replica_context().all_reduce("MEAN", negative)

        average = hvd.allreduce(negative, op=hvd.Average)
        self.assertEqual(average.numpy()[0], -1 if hvd.size() == 1 else 0)  # cut off toward zero
        np.testing.assert_array_equal(strategy().run(replica), average)

    def test_gather(self):
        mine = tf.fill([1 + hvd.rank(), 2], hvd.rank())
        expected = np.repeat(ranks(), ranks() + 1)
        np.testing.assert_array_equal(strategy().gather(mine, axis=0).numpy()[:, 0], expected)
        np.testing.assert_array_equal(strategy().gather(tf.transpose(mine), axis=1).numpy()[0], expected)

        def replica():
            return tf.distribute.get_replica_context().all_gather(mine, axis=0)

        np.testing.assert_array_equal(tf.function(lambda: strategy().run(replica))().numpy()[:, 0], expected)

    def test_facts(self):
        self.assertEqual(strategy().num_replicas_in_sync, hvd.size())
        self.assertEqual(strategy().cluster_resolver.task_id, hvd.rank())
        self.assertEqual(strategy().cluster_resolver.task_type, "worker")
        self.assertEqual(len(strategy().cluster_resolver.cluster_spec().as_dict()["worker"]), hvd.size())
        make = strategy().experimental_distribute_values_from_function
        value = make(lambda context: context.replica_id_in_sync_group)
        self.assertEqual(strategy().experimental_local_results(value), (hvd.rank(),))
        self.assertIsInstance(strategy(), tf.distribute.MultiWorkerMirroredStrategy)
        with self.assertRaises(RuntimeError), strategy().scope():  # of TensorFlow, for two strategies
            with tf.distribute.OneDeviceStrategy("CPU:0").scope():
                pass


class DigestTest(support.RankedTest):
    def digest(self, *tensors, **arguments):
        return int(mpi_ops._LIB.farandole_digest(tensors=[tf.convert_to_tensor(each) for each in tensors], **arguments))

    def test_it_tells_tensors_apart(self):
        values = np.arange(100, dtype=np.float32)
        variants = [[values[:n]] for n in range(70)] + [[values.reshape(10, 10)], [values.astype("float64")], [values, values]]
        for place in range(0, 100, 7):
            other = values.copy()
            other[place] += 1
            variants.append([other])
        variants += [[values[:1], values[1:]], [b"ab", b"c"], [b"a", b"bc"], [[b"a", b"bc"]], [], [np.zeros(0)], [True]]
        digests = [self.digest(*each) for each in variants]
        self.assertEqual(len(set(digests)), len(variants))
        self.assertEqual(digests, [self.digest(*each) for each in variants])
        for other in hvd.allgather_object(digests):
            self.assertEqual(other, digests)

    def test_every_row_of_a_large_tensor_counts(self):
        values = np.zeros((1000, 1000), np.float32)
        text = np.array([b"x" * 2000] * 1000)
        start, start_of_text = self.digest(values), self.digest(text)
        for row in (0, 1, 499, 999):
            values[row] = 1
            self.assertNotEqual(self.digest(values), start)
            values[row] = 0
            other = text.copy()
            other[row] = b"y" + other[row][1:]
            self.assertNotEqual(self.digest(other), start_of_text)
        whole = self.digest(values, whole=True)
        for place in np.random.default_rng(1).integers(1000, size=(20, 2)):
            values[tuple(place)] = 1
            self.assertNotEqual(self.digest(values, whole=True), whole)
            values[tuple(place)] = 0


class DatasetsTest(support.RankedTest):
    def gathered(self, dataset):
        """The batches of all ranks."""
        parts = [tf.convert_to_tensor(batch).numpy() for batch in dataset]
        return [np.concatenate(batch) for batch in zip(*hvd.allgather_object(parts))]

    def test_each_batch_is_dealt_out_in_order(self):
        for rows, size in ((24, 8), (23, 8), (17, 8), (3, 1)):
            batches = self.gathered(
                strategy().experimental_distribute_dataset(tf.data.Dataset.range(rows).batch(size))
            )
            np.testing.assert_array_equal(np.concatenate(batches), np.arange(rows))
            self.assertEqual([len(batch) for batch in batches[:-1]], [size] * (len(batches) - 1))

    def test_structures(self):
        ragged = tf.ragged.constant([[1], [2, 3], [], [4], [5, 6, 7]])
        sparse = tf.sparse.from_dense([[1, 0], [0, 2], [3, 0], [0, 0], [0, 5]])
        dataset = tf.data.Dataset.from_tensors({"r": ragged, "s": sparse, "t": [b"a", b"b", b"c", b"d", b"e"]})
        (batch,) = strategy().experimental_distribute_dataset(dataset)
        parts = hvd.allgather_object(
            [batch["r"].to_list(), tf.sparse.to_dense(batch["s"]).numpy().tolist(), list(batch["t"].numpy())]
        )
        self.assertEqual(sum((part[0] for part in parts), []), ragged.to_list())
        self.assertEqual(sum((part[1] for part in parts), []), tf.sparse.to_dense(sparse).numpy().tolist())
        self.assertEqual(sum((part[2] for part in parts), []), [b"a", b"b", b"c", b"d", b"e"])

    def test_in_a_function(self):
        dataset = strategy().experimental_distribute_dataset(tf.data.Dataset.range(10).batch(4))

        @tf.function
        def total(iterator):
            return strategy().reduce("SUM", iterator.get_next(), axis=0)

        @tf.function
        def loop(iterator):
            result = tf.constant(0, tf.int64)
            for batch in iterator:
                result += strategy().reduce("SUM", batch, axis=0)
            return result

        iterator = iter(dataset)
        self.assertEqual([int(total(iterator)) for _ in range(3)], [6, 22, 17])
        with self.assertRaises(tf.errors.OutOfRangeError):
            total(iterator)
        self.assertEqual(int(loop(iter(dataset))), 45)
        self.assertEqual(int(dataset.cardinality()), 3)
        self.assertEqual(dataset.element_spec.dtype, tf.int64)

    def test_loop_over_a_dataset_in_a_function(self):
        dataset = strategy().experimental_distribute_dataset(tf.data.Dataset.range(10).batch(4))
        batches = tf.Variable(0)

        @tf.function
        def loop():
            result = tf.constant(0, tf.int64)
            for batch in dataset:
                result += strategy().reduce("SUM", batch, axis=0)
            return result

        @tf.function
        def count():  # keeps nothing from batch to batch
            for _ in dataset:
                batches.assign_add(1)

        self.assertEqual([int(loop()), int(loop())], [45, 45])
        count()
        self.assertEqual(int(batches), 3)

    def test_element_spec_hides_empty_shares(self):
        dataset = strategy().experimental_distribute_dataset(tf.data.Dataset.from_tensors(tf.zeros([1, 3])))
        expected = [1, 3] if hvd.size() == 1 else [None, 3]
        self.assertEqual(dataset.element_spec.shape.as_list(), expected)

    def test_own_data_of_each_rank(self):
        def own(context):
            self.assertEqual((context.num_input_pipelines, context.input_pipeline_id), (hvd.size(), hvd.rank()))
            return tf.data.Dataset.from_tensors([context.input_pipeline_id])

        batches = self.gathered(strategy().distribute_datasets_from_function(own))
        np.testing.assert_array_equal(batches[0], ranks())
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        dataset = tf.data.Dataset.from_tensors([hvd.rank()]).with_options(options)
        np.testing.assert_array_equal(
            self.gathered(strategy().experimental_distribute_dataset(dataset))[0], ranks()
        )

    def test_refused(self):
        if hvd.size() == 1:
            self.skipTest("needs several ranks")
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
        with self.assertRaisesRegex(errors.Unsupported, "FILE"):
            strategy().experimental_distribute_dataset(tf.data.Dataset.range(4).batch(2).with_options(options))
        with self.assertRaisesRegex(errors.InvalidArgument, "batch"):
            strategy().experimental_distribute_dataset(tf.data.Dataset.range(4))
        one_more = tf.data.Dataset.range(8 + 4 * (hvd.rank() == 0)).batch(4)
        with self.assertRaisesRegex(errors.Mismatch, "(rank 1 has|ranks 1, 2.* have) no more batches; rank 0 has another"):
            list(strategy().experimental_distribute_dataset(one_more))
        ragged = tf.ragged.constant([[1], [2, hvd.rank()], [3]])
        sparse = tf.sparse.SparseTensor([[0, 0], [1, hvd.rank()], [2, 1]], [1, 2, 3], [3, 8])
        text = [b"first", b"middle" + b"s" * hvd.rank(), b"last"]
        for batch in ([0, hvd.rank(), 0], {"a": [0, 0, 0], "b": [[1, 2], [3, hvd.rank()], [5, 6]]}, ragged, sparse, text):
            with self.assertRaisesRegex(errors.Mismatch, "different data"):
                list(strategy().experimental_distribute_dataset(tf.data.Dataset.from_tensors(batch)))
        if hvd.rank() == 0:
            with self.assertRaisesRegex(errors.Mismatch, "rank 0 reads a value .*; (rank 1 takes|ranks 1, 2.* take) a batch"):
                strategy().reduce("SUM", tf.constant(1.0), axis=None)
        else:
            with self.assertRaisesRegex(errors.Mismatch, "rank 0 reads"):
                next(iter(strategy().experimental_distribute_dataset(tf.data.Dataset.range(4).batch(4))))
        self.assertEqual(strategy().reduce("SUM", tf.constant(1.0), axis=None).numpy(), hvd.size())

    def test_seeds(self):
        random.seed(hvd.rank())
        np.random.seed(hvd.rank())
        tf.random.set_seed(5)
        _seeds.agree()
        drawn = (random.random(), float(np.random.random()), float(tf.random.uniform([])))
        self.assertEqual(set(hvd.allgather_object(drawn)), {drawn})
        # Random states that are equal on all ranks stay as they are: the program has seeded them.
        random.seed(17)
        np.random.seed(17)
        _seeds.agree()
        self.assertEqual(random.random(), random.Random(17).random())
        self.assertEqual(np.random.random(), np.random.RandomState(17).random())
        shuffled = self.gathered(
            strategy().experimental_distribute_dataset(tf.data.Dataset.range(40).shuffle(40).batch(10))
        )
        self.assertEqual(sorted(np.concatenate(shuffled)), list(range(40)))


class LoopTest(support.RankedTest):
    def test_custom_loop_equals_one_process(self):
        random_numbers = np.random.default_rng(3)
        x = random_numbers.normal(size=(22, 3)).astype(np.float32)
        y = x @ np.array([[1.0], [2.0], [-1.0]], np.float32)

        def gradient_of(weights, x, y):
            with tf.GradientTape() as tape:
                losses = tf.reduce_sum(tf.square(x @ weights - y), axis=1)
                loss = tf.reduce_sum(losses) / 22
            return tape.gradient(loss, weights), loss

        alone = tf.Variable(tf.ones([3, 1]))
        with strategy().scope():
            together = tf.Variable(tf.ones([3, 1]))
        dataset = strategy().experimental_distribute_dataset(tf.data.Dataset.from_tensors((x, y)).repeat(5))

        def replica(x, y):
            gradient, loss = gradient_of(together, x, y)
            together.assign_sub(0.1 * tf.distribute.get_replica_context().all_reduce("SUM", gradient))
            return loss

        @tf.function
        def step(iterator):
            return strategy().reduce("SUM", strategy().run(replica, args=iterator.get_next()), axis=None)

        iterator = iter(dataset)
        for _ in range(5):
            gradient, expected = gradient_of(alone, x, y)
            alone.assign_sub(0.1 * gradient)
            self.assertAlmostEqual(float(step(iterator)), float(expected), places=4)
            np.testing.assert_allclose(together.numpy(), alone.numpy(), rtol=1e-5)


class PrivateNamesTest(support.RankedTest):
    """Each name is named in the error when it is missing."""

    def missing(self, module, attribute, check):
        owner, last = (module, attribute) if "." not in attribute else (None, attribute.rpartition(".")[2])
        if owner is None:
            owner = getattr(module, attribute.split(".")[0])
        original = getattr(owner, last)
        # An inherited attribute cannot be taken from its class: it is looked up through one that has none.
        with mock.patch.object(_private_names, "getattr", _without(original), create=True):
            with self.assertRaisesRegex(ImportError, last):
                check()

    def test_tensorflow(self):
        import importlib

        for module, attributes in _private_names.NAMES_OF_TENSORFLOW:
            for attribute in attributes:
                self.missing(
                    importlib.import_module(module),
                    attribute,
                    lambda: _private_names._find_all(_private_names.TENSORFLOW, _private_names.NAMES_OF_TENSORFLOW),
                )

    def test_overridden_private_names_are_listed(self):
        from farandole.tensorflow.strategy._extended import Extended

        base = tf.compat.v1.distribute.StrategyExtended
        for name in _private_names.EXTENDED:
            self.assertTrue(hasattr(base, name), name)
        own = {name for name in vars(Extended) if name.startswith("_") and hasattr(base, name)}
        self.assertLessEqual({name for name in own if not name.startswith("__")}, set(_private_names.EXTENDED))

    def test_attributes_of_objects(self):
        try:
            import keras
            from keras.src.backend.tensorflow.trainer import TFEpochIterator
        except ImportError:
            self.skipTest("no Keras")
        from tensorflow.python.eager import context

        graphs = []
        tf.function(lambda: graphs.append(tf.compat.v1.get_default_graph())).get_concrete_function()
        with strategy().scope():
            variable = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN)
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        objects = {
            "DistributedVariable": variable,
            "handle of a component of it": variable.values[0].handle,
            "graph of a tf.function": graphs[0],
            "context": context.context(),
            "keras.Variable": model.weights[0],
            "keras.Model": model,
            "functional keras.Model": keras.Model(model.inputs, model.outputs),
            "keras.Layer": model.layers[0],
            "keras.Optimizer": model.optimizer,
            "tf.GradientTape": tf.GradientTape(),
            "tf.Variable": model.layers[0].kernel.value,
            "TFEpochIterator": TFEpochIterator(
                x=np.ones((4, 1), np.float32), batch_size=4, steps_per_execution=1, distribute_strategy=strategy()
            ),
        }
        self.assertEqual(set(objects), set(_private_names.OF_OBJECTS))
        for kind, names in _private_names.OF_OBJECTS.items():
            for name in names:
                self.assertTrue(hasattr(objects[kind], name), f"{kind} has no {name}")

    def test_keras(self):
        try:
            import keras
        except ImportError:
            self.skipTest("no Keras")
        import importlib

        self.assertEqual(keras.config.backend(), "tensorflow")
        _private_names.check_keras()
        for module, attributes in _private_names.NAMES_OF_KERAS:
            for attribute in attributes:
                self.missing(importlib.import_module(module), attribute, _private_names.check_keras)


def _without(missing):
    def look_up(owner, name, *default):
        value = getattr(owner, name, *default)
        if value is missing:
            raise AttributeError(name)
        return value

    return look_up


if __name__ == "__main__":
    support.main()
