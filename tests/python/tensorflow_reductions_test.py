# SPDX-License-Identifier: Apache-2.0
"""farandole.tensorflow: reductions with Horovod's arguments, slices, compression, tapes, variables and objects."""

import warnings

import support

support.need("numpy", "tensorflow")

import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole import errors
from farandole.tensorflow import _gradients


tf.get_logger().setLevel("ERROR")  # about functions that are traced in loops


def ranks_sum(function):
    return sum(function(rank) for rank in range(hvd.size()))


class AllreduceTest(support.RankedTest):
    def test_default_is_the_average(self):
        mine = tf.constant([1.0, 2.0]) * (hvd.rank() + 1)
        expected = ranks_sum(lambda rank: np.array([1.0, 2.0]) * (rank + 1)) / hvd.size()
        np.testing.assert_allclose(hvd.allreduce(mine), expected)
        np.testing.assert_allclose(hvd.allreduce(mine, op=hvd.Sum), expected * hvd.size())
        np.testing.assert_allclose(hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2.0), expected * hvd.size() * 2)
        np.testing.assert_allclose(hvd.allreduce(tf.Variable(mine), op=hvd.Max), np.array([1.0, 2.0]) * hvd.size())

    def test_the_older_argument(self):
        mine = tf.constant(2.0)
        self.assertEqual(hvd.allreduce(mine, average=True).numpy(), 2.0)
        self.assertEqual(hvd.allreduce(mine, average=False).numpy(), 2.0 * hvd.size())
        with self.assertRaises(ValueError):
            hvd.allreduce(mine, average=True, op=hvd.Sum)

    def test_average_of_integers_is_cut_off(self):
        mine = tf.constant([-3, 3, 7], tf.int32) * (hvd.rank() + 1)
        total = ranks_sum(lambda rank: np.array([-3, 3, 7]) * (rank + 1))
        np.testing.assert_array_equal(hvd.allreduce(mine), np.trunc(total / hvd.size()))
        mixed = hvd.grouped_allreduce([mine, tf.constant(1.5)])
        np.testing.assert_array_equal(mixed[0], np.trunc(total / hvd.size()))
        self.assertEqual(mixed[1].numpy(), 1.5)

    def test_slices_of_integers_add_up_to_the_average(self):
        """As in Horovod, whose average of slices is a quotient of TensorFlow's: a sum of parts that were cut off is none."""
        size = hvd.size()
        for dtype, expected in {tf.uint8: tf.float32, tf.int16: tf.float32, tf.int32: tf.float64, tf.float16: tf.float16}.items():
            mine = tf.IndexedSlices(tf.cast([[1, 3]], dtype), tf.constant([0]), tf.constant([1, 2]))
            grouped, tensor = hvd.grouped_allreduce([mine, tf.cast([3], dtype)])
            self.assertEqual((tensor.dtype, tensor.numpy().tolist()), (dtype, [3]))
            for reduced in (hvd.allreduce(mine), grouped):
                self.assertEqual((reduced.values.dtype, reduced.values.shape), (expected, [size, 2]))
                np.testing.assert_array_equal(tf.convert_to_tensor(reduced), [[1, 3]])
            self.assertEqual(hvd.allreduce(mine, op=hvd.Sum).values.dtype, dtype)

    def test_compression(self):
        mine = tf.constant([1.0 + 2.0**-12, 70000.0]) * (hvd.rank() + 1)
        half = hvd.allreduce(mine, op=hvd.Sum, compression=hvd.Compression.fp16)
        brain = hvd.allreduce(mine, op=hvd.Sum, compression=hvd.Compression.bf16)
        self.assertEqual((half.dtype, brain.dtype), (tf.float32, tf.float32))
        ranks = sum(range(1, hvd.size() + 1))
        self.assertEqual(half.numpy()[0], ranks)  # its precision is 2^-10
        self.assertTrue(np.isinf(half.numpy()[1]))
        np.testing.assert_allclose(brain, [ranks, ranks * 70000], rtol=2.0**-7)
        kept = hvd.allreduce(tf.constant([1, 2]), op=hvd.Sum, compression=hvd.Compression.fp16)
        self.assertEqual(kept.dtype, tf.int32)

    def test_slices(self):
        rank = hvd.rank()
        mine = tf.IndexedSlices(
            tf.fill([2, 3], rank + 1.0), tf.constant([0, rank + 1]), dense_shape=tf.constant([5, 3])
        )
        dense = ranks_sum(lambda r: np.array([[r + 1.0] * 3 if row in (0, r + 1) else [0.0] * 3 for row in range(5)]))
        for op, factor in ((hvd.Sum, 1), (hvd.Average, hvd.size())):
            reduced = hvd.allreduce(mine, op=op)
            self.assertIsInstance(reduced, tf.IndexedSlices)
            np.testing.assert_allclose(tf.convert_to_tensor(reduced), dense / factor)
        slices, tensor = hvd.grouped_allreduce([mine, tf.ones(3)], op=hvd.Sum)
        np.testing.assert_allclose(tf.convert_to_tensor(slices), dense)
        np.testing.assert_allclose(tensor, [hvd.size()] * 3)
        with self.assertRaises(NotImplementedError):
            hvd.allreduce(mine, op=hvd.Max)
        with self.assertRaises(NotImplementedError):
            hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2.0)

    def test_reducescatter(self):
        rank, size = hvd.rank(), hvd.size()
        mine = tf.reshape(tf.range(2.0 * size), [size, 2]) + rank
        total = ranks_sum(lambda r: np.arange(2.0 * size).reshape(size, 2) + r)
        np.testing.assert_allclose(hvd.reducescatter(mine), total[rank : rank + 1] / size)
        for each in hvd.grouped_reducescatter([mine, mine], op=hvd.Sum, compression=hvd.Compression.fp16):
            np.testing.assert_allclose(each, total[rank : rank + 1])
        self.assertEqual(hvd.grouped_reducescatter([]), [])

    def test_gradient_through_an_average(self):
        weight = tf.Variable(3.0)
        with tf.GradientTape() as tape:
            loss = hvd.allreduce(weight * (hvd.rank() + 1.0))
        expected = ranks_sum(lambda rank: 1.0) / hvd.size() * (hvd.rank() + 1.0)
        self.assertEqual(tape.gradient(loss, weight).numpy(), expected)

    def test_mismatch_in_a_function(self):
        @tf.function
        def reduce(tensor):
            return hvd.allreduce(tensor, name="of_different_shapes")

        with self.assertRaises(tf.errors.FailedPreconditionError):
            reduce(tf.zeros(3 + hvd.rank()))
        with self.assertRaises(errors.Mismatch):
            with hvd.converted_errors():
                reduce(tf.zeros(3 + hvd.rank()))
        self.assertEqual(hvd.allreduce(tf.constant(1.0)).numpy(), 1.0)


class TapeTest(support.RankedTest):
    def setUp(self):
        super().setUp()
        self.weights = [tf.Variable([1.0, 2.0]), tf.Variable(3.0), tf.Variable([[4.0]])]

    def loss(self):
        a, b, c = self.weights
        return (hvd.rank() + 1.0) * (tf.reduce_sum(a * a) * b + tf.reduce_sum(c))

    def expected(self, divisor):
        total = sum(range(1, hvd.size() + 1)) / divisor
        return [np.array([6.0, 12.0]) * total, 5.0 * total, np.array([[1.0]]) * total]

    def check(self, gradients, divisor=None):
        for gradient, expected in zip(gradients, self.expected(divisor or hvd.size())):
            np.testing.assert_allclose(gradient, expected, rtol=1e-6)

    def test_eager_and_function(self):
        def step():
            with tf.GradientTape() as tape:
                loss = self.loss()
            return hvd.DistributedGradientTape(tape).gradient(loss, self.weights)

        self.check(step())
        self.check(tf.function(step)())

    def test_as_a_context(self):
        with hvd.DistributedGradientTape(tf.GradientTape(persistent=True), op=hvd.Sum) as tape:
            loss = self.loss()
        self.assertIsInstance(tape, tf.GradientTape)
        self.check(tape.gradient(loss, self.weights), 1)
        self.check([tape.gradient(loss, self.weights[0]), *tape.gradient(loss, self.weights[1:])], 1)
        named = tape.gradient(loss, {"a": self.weights[0], "c": self.weights[2]})
        np.testing.assert_allclose(named["c"], self.expected(1)[2])
        self.assertEqual(len(tape.watched_variables()), 3)

    def test_groups_and_predivision(self):
        for groups in (None, 1, 2, 7, [self.weights[:2]], [[self.weights[2]], [self.weights[0], self.weights[1]]]):
            for factor in (1.0, 2.0):

                @tf.function
                def step():
                    with tf.GradientTape() as tape:
                        loss = self.loss()
                    tape = hvd.DistributedGradientTape(tape, groups=groups, gradient_predivide_factor=factor)
                    return tape.gradient(loss, self.weights)

                self.check(step())
        for wrong in (0, -1):
            with self.assertRaises(ValueError):
                hvd.DistributedGradientTape(tf.GradientTape(), groups=wrong)
        with self.assertRaises(ValueError):
            hvd.DistributedGradientTape(tf.GradientTape(), gradient_predivide_factor=2.0, op=hvd.Sum)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            hvd.DistributedGradientTape(tf.GradientTape(), num_groups=2)
        self.assertTrue(any("num_groups" in str(each.message) for each in caught))

    def test_large_gradients_are_split_in_graphs(self):
        element_count = _gradients.GROUP_BYTES // 4
        large = [tf.Variable(tf.zeros(element_count)) for _ in range(2)]

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = sum(tf.reduce_sum(each) for each in large) * (hvd.rank() + 1.0)
            return hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, large)

        names = [op.type for op in step.get_concrete_function().graph.get_operations()]
        self.assertEqual(names.count("FarandoleAllreduce"), 2)
        for gradient in step():
            self.assertTrue((gradient.numpy() == sum(range(1, hvd.size() + 1))).all())

    def test_none_and_slices(self):
        table = tf.Variable(tf.zeros([4, 2]))
        unused = tf.Variable(1.0)
        for sparse_as_dense in (False, True):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table, [hvd.rank(), 3])) + self.weights[1]
            tape = hvd.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense, op=hvd.Sum)
            gathered, nothing, dense = tape.gradient(loss, [table, unused, self.weights[1]])
            self.assertIsNone(nothing)
            self.assertEqual(isinstance(gathered, tf.IndexedSlices), not sparse_as_dense)
            expected = np.zeros([4, 2])
            for rank in range(hvd.size()):
                expected[[rank, 3]] += 1
            np.testing.assert_array_equal(tf.convert_to_tensor(gathered), expected)
            self.assertEqual(dense.numpy(), hvd.size())

    def test_local_sources(self):
        for scale in (True, False):
            with tf.GradientTape() as tape:
                loss = self.loss()
            tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
            tape.register_local_source(self.weights[1])
            local, shared = tape.get_local_and_global_gradients(loss, self.weights)
            self.assertEqual((len(local), len(shared)), (1, 2))
            mine = 5.0 * (hvd.rank() + 1) / (hvd.size() if scale else 1)
            self.assertAlmostEqual(local[0][1].numpy(), mine, places=5)
            np.testing.assert_allclose(shared[1][1], self.expected(hvd.size())[2])

    def test_partial_tape(self):
        layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        layer.build((None, 2))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(tf.ones([1, 2]))) * (hvd.rank() + 1.0) + self.loss()
        tape = hvd.PartialDistributedGradientTape(tape, local_layers=layer, scale_local_gradients=False)
        kernel, a = tape.gradient(loss, [layer.trainable_weights[0].value, self.weights[0]])
        np.testing.assert_allclose(kernel, [[hvd.rank() + 1.0]] * 2)
        np.testing.assert_allclose(a, self.expected(hvd.size())[0], rtol=1e-6)
        with self.assertRaises(ValueError):
            hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[3])

    def test_ranks_outside_of_the_set_keep_theirs(self):
        first = hvd.add_process_set([0])
        with tf.GradientTape() as tape:
            loss = self.loss()
        gradients = hvd.DistributedGradientTape(tape, process_set=first).gradient(loss, self.weights)
        np.testing.assert_allclose(gradients[1], 5.0 * (hvd.rank() + 1))
        hvd.remove_process_set(first)


class FunctionsTest(support.RankedTest):
    def test_variables(self):
        for inplace in (False, True):
            variables = [
                tf.Variable([float(hvd.rank()), 1.0]),
                tf.Variable(hvd.rank(), dtype=tf.int64),
                tf.Variable([hvd.rank() + 5], dtype=tf.uint32, trainable=False),
                tf.Variable([complex(hvd.rank(), 1)], dtype=tf.complex64),
            ]
            hvd.broadcast_variables(variables, root_rank=hvd.size() - 1, inplace=inplace)
            last = hvd.size() - 1
            self.assertEqual(variables[0].numpy().tolist(), [last, 1.0])
            self.assertEqual(variables[1].numpy(), last)
            self.assertEqual(variables[2].numpy().tolist(), [last + 5])
            self.assertEqual(variables[3].numpy().tolist(), [complex(last, 1)])

    def test_variables_of_keras(self):
        tf.keras.utils.set_random_seed(hvd.rank())
        model = tf.keras.Sequential([tf.keras.layers.Dense(3), tf.keras.layers.Dropout(0.5)])
        model.build((None, 2))
        hvd.broadcast_variables(model.variables, root_rank=0)
        weights = hvd.allgather_object([np.asarray(each) for each in model.variables])
        for of_rank in weights:
            for mine, first in zip(of_rank, weights[0]):
                np.testing.assert_array_equal(mine, first)

    def test_only_in_graphs(self):
        with self.assertRaisesRegex(RuntimeError, "broadcast_variables"):
            hvd.broadcast_global_variables(0)

    def test_hook_in_a_graph(self):
        for use_resource in (False, True):
            with tf.Graph().as_default():
                variable = tf.compat.v1.get_variable("v", initializer=float(hvd.rank() + 1), use_resource=use_resource)
                hook = hvd.BroadcastGlobalVariablesHook(hvd.size() - 1)
                with tf.compat.v1.train.MonitoredSession(hooks=[hook]) as session:
                    self.assertEqual(session.run(variable), hvd.size())

    def test_objects(self):
        self.assertEqual(hvd.broadcast_object({"epoch": hvd.rank()}, root_rank=0), {"epoch": 0})
        self.assertEqual(hvd.broadcast_object_fn(root_rank=0)([hvd.rank()]), [0])
        self.assertEqual(hvd.allgather_object(hvd.rank()), list(range(hvd.size())))
        self.assertEqual(hvd.allgather_object(hvd.rank(), pickle=True), list(range(hvd.size())))

    def test_elastic_state(self):
        variable = tf.Variable(float(hvd.rank()))
        state = hvd.elastic.TensorFlowState([variable], batch=hvd.rank())

        @hvd.elastic.run
        def train(state):
            self.assertEqual((variable.numpy(), state.batch), (0.0, 0))
            variable.assign(5.0)
            state.batch = 3
            state.commit()
            variable.assign(6.0)
            state.restore()
            return variable.numpy(), state.batch

        self.assertEqual(train(state), (5.0, 3))

    def test_names_that_horovod_has(self):
        for name in (
            "init shutdown is_initialized start_timeline stop_timeline size local_size cross_size rank local_rank "
            "cross_rank is_homogeneous rank_op local_rank_op size_op local_size_op process_set_included_op "
            "mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built "
            "cuda_built rocm_built ProcessSet global_process_set add_process_set remove_process_set Average Sum Adasum "
            "Min Max Product join barrier SyncBatchNormalization allreduce grouped_allreduce allgather "
            "grouped_allgather broadcast broadcast_ alltoall reducescatter grouped_reducescatter "
            "broadcast_global_variables BroadcastGlobalVariablesHook DistributedOptimizer DistributedGradientTape "
            "PartialDistributedGradientTape allgather_object broadcast_object broadcast_object_fn broadcast_variables "
            "Compression elastic handle_average_backwards_compatibility check_num_rank_power_of_2 gpu_available"
        ).split():
            self.assertTrue(hasattr(hvd, name), name)


if __name__ == "__main__":
    support.main()
