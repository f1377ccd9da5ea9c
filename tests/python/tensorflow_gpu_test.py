# SPDX-License-Identifier: Apache-2.0
"""The collectives on the fake GPU of tests/support/tensorflow_gpu, compared with numpy."""

from tensorflow_gpu_support import Counted, GpuTest, hvd, support, tf  # isort: skip

import numpy as np
from farandole import errors
from farandole.tensorflow import mpi_ops
from tensorflow_support import FLOATS, INTEGERS, both_ways

OPERATIONS = {
    hvd.Sum: lambda values: values.sum(axis=0),
    hvd.Average: lambda values: values.mean(axis=0),
    hvd.Product: lambda values: values.prod(axis=0),
    hvd.Min: lambda values: values.min(axis=0),
    hvd.Max: lambda values: values.max(axis=0),
}


def constant(values, dtype=tf.float32):
    return tf.identity(tf.constant(values, dtype))


class CollectivesTest(GpuTest):
    def own(self, dtype, shape=(3, 2)):
        return constant(self.of_ranks(shape)[self.rank].astype(dtype.as_numpy_dtype), dtype)

    def test_allreduce_of_every_type(self):
        for dtype in FLOATS + INTEGERS:
            for op, expected in OPERATIONS.items():
                want = expected(self.of_ranks())
                if dtype.is_integer:
                    want = np.trunc(want)
                want = want.astype(dtype.as_numpy_dtype).astype(np.float64)
                with self.subTest(dtype=dtype.name, op=op):
                    for actual in both_ways(lambda tensor: mpi_ops._allreduce(tensor, op=op), self.own(dtype)):
                        self.check_on_gpu(actual, want, dtype)

    def test_group_of_many_shapes_and_types(self):
        shapes = [(), (1,), (0, 3), (7,), (3, 5), (64, 33), (100_003,)]
        dtypes = [tf.float32, tf.float16, tf.float32, tf.int64, tf.float64, tf.float32, tf.float32]
        with Counted() as counted:
            tensors = [self.own(dtype, shape) for shape, dtype in zip(shapes, dtypes)]
            for results in both_ways(lambda given: mpi_ops._grouped_allreduce(given, op=hvd.Sum), tensors):
                for shape, dtype, result in zip(shapes, dtypes, results):
                    self.check_on_gpu(result, self.of_ranks(shape).sum(axis=0), dtype)
        self.assertGreater(counted.device_buckets, 0)

    def test_factors(self):
        def scaled(tensor):
            return mpi_ops._allreduce(tensor, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)

        for actual in both_ways(scaled, self.own(tf.float32)):
            self.check_on_gpu(actual, 1.5 * self.of_ranks().sum(axis=0))

    def test_adasum_of_equal_vectors_is_the_vector(self):
        for actual in both_ways(lambda tensor: mpi_ops._allreduce(tensor, op=hvd.Adasum), constant([1.0, 2.0, 4.0])):
            self.check_on_gpu(actual, [1, 2, 4])

    def test_allgather_of_uneven_rows(self):
        rows = [rank % 2 * 3 + (rank == 0) for rank in range(self.size)]  # the third rank has none
        expected = np.concatenate([np.full((count, 2), rank) for rank, count in enumerate(rows)])
        for dtype in (tf.float32, tf.int64, tf.bool):
            own = constant(np.full((rows[self.rank], 2), self.rank), dtype)
            for actual in both_ways(mpi_ops.allgather, own):
                self.check_on_gpu(actual, expected.astype(dtype.as_numpy_dtype), dtype)

    def test_broadcast_from_every_rank(self):
        for root in range(self.size):
            for actual in both_ways(lambda tensor: mpi_ops.broadcast(tensor, root), self.own(tf.float32)):
                self.check_on_gpu(actual, self.of_ranks()[root])

    def test_broadcast_overwrites_variables(self):
        variables = [tf.Variable(self.own(dtype)) for dtype in (tf.float32, tf.float16, tf.int64)]
        before = variables[0].read_value()
        with Counted() as counted:
            hvd.broadcast_variables(variables, root_rank=self.size - 1)
        self.assertEqual(counted.copies, 0)
        for variable in variables:
            self.check_on_gpu(variable.read_value(), self.of_ranks()[-1])
        self.check_on_gpu(before, self.of_ranks()[self.rank])  # a value that was read stays
        variables[1].assign(self.own(tf.float16))
        tf.function(lambda: mpi_ops.broadcast_(variables, root_rank=0))()
        self.check_on_gpu(variables[1].read_value(), self.of_ranks()[0])

    def test_alltoall_with_splits(self):
        splits = [(self.rank + peer) % 3 for peer in range(self.size)]
        own = constant(np.repeat(np.arange(self.size) + 10 * self.rank, splits))
        received = [(rank + self.rank) % 3 for rank in range(self.size)]
        expected = np.repeat(np.arange(self.size) * 10 + self.rank, received)
        for actual, counts in both_ways(lambda tensor: mpi_ops.alltoall(tensor, splits), own):
            self.check_on_gpu(actual, expected)
            np.testing.assert_array_equal(counts.numpy(), received)

    def test_reducescatter_of_uneven_rows(self):
        rows = 2 * self.size + 1
        parts = np.array_split(self.of_ranks((rows, 2)).sum(axis=0), self.size)
        for actual in both_ways(lambda tensor: mpi_ops._reducescatter(tensor, op=hvd.Sum), self.own(tf.float32, (rows, 2))):
            self.check_on_gpu(actual, parts[self.rank])

    def test_later_ops_wait_for_the_result(self):
        def chain(tensor):
            for _ in range(4):
                tensor = mpi_ops._allreduce(tensor * 2.0, op=hvd.Average) + 1.0
            return tensor

        for actual in both_ways(chain, tf.fill([50_000], float(self.rank))) * 3:
            mean = (self.size - 1) / 2
            np.testing.assert_allclose(actual.numpy(), np.full(50_000, 16 * mean + 15), rtol=1e-6)

    def test_memory_is_reused_in_order(self):
        @tf.function
        def many():
            total = tf.zeros([1000])
            for i in range(30):
                total += mpi_ops._allreduce(tf.fill([1000], float(i)) + 1.0, op=hvd.Sum, name=f"many{i}")
                total += tf.reduce_sum(mpi_ops.allgather(tf.fill([self.rank + 1, 1000], 1.0), name=f"gather{i}"), 0)
            return total

        rows = self.size * (self.size + 1) // 2
        for _ in range(3):
            self.check_on_gpu(many(), np.full(1000, 465.0 * self.size + 30 * rows))

    def test_late_output_waits_for_earlier_users_of_its_memory(self):
        """On rank 0 the collective begins first: its output takes memory of the other ops, whose work is pending."""
        elements = 3000 * self.size

        @tf.function
        def step(ones, own):
            sums = [tf.reduce_sum(ones * float(i)) for i in range(60)]
            with tf.control_dependencies(sums if self.rank != 0 else []):
                own = tf.identity(own)
            return tf.add_n(sums), mpi_ops.allgather(own, name="late")

        for _ in range(20):
            total, gathered = step(tf.ones([elements]), tf.fill([3000], float(self.rank)))
            self.assertEqual(float(total), elements * sum(range(60)))
            self.check_on_gpu(gathered, np.repeat(np.arange(self.size), 3000))

    def test_process_set(self):
        others = hvd.add_process_set(range(1, self.size))
        if self.rank != 0:
            for actual in both_ways(lambda x: mpi_ops._allreduce(x, process_set=others), self.own(tf.float32)):
                self.check_on_gpu(actual, self.of_ranks()[1:].sum(axis=0))
        hvd.remove_process_set(others)

    def test_joined_ranks_count_as_zeros(self):
        if self.rank != 0:
            self.check_on_gpu(mpi_ops._allreduce(constant([1.0, 2.0]), op=hvd.Sum),
                              [self.size - 1, 2 * (self.size - 1)])
        self.assertIn(int(hvd.join()), range(self.size))

    def test_place_in_the_job(self):
        for actual in both_ways(lambda: (mpi_ops.rank_op(), mpi_ops.size_op(), mpi_ops.local_rank_op())):
            self.assertEqual([int(each) for each in actual], [self.rank, self.size, hvd.local_rank()])
        hvd.barrier()


class GradientsTest(GpuTest):
    def test_of_every_collective(self):
        own, rows = float(self.rank + 1), self.rank + 1
        average = sum(range(1, self.size + 1)) / self.size
        cases = {
            "allreduce": (lambda x: mpi_ops._allreduce(x, op=hvd.Sum), [2, 2], average * self.size),
            "allgather": (mpi_ops.allgather, [rows, 2], average),
            "broadcast": (lambda x: mpi_ops.broadcast(x, 0), [2, 2], average if self.rank == 0 else 0.0),
            "alltoall": (lambda x: mpi_ops.alltoall(x), [self.size, 2], None),
            "reducescatter": (lambda x: mpi_ops._reducescatter(x, op=hvd.Sum), [self.size, 2], None),
        }

        for name, (function, shape, expected) in cases.items():
            def gradient(x, function=function):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    loss = tf.reduce_sum(function(x)) * own
                return tape.gradient(loss, x)

            for actual in both_ways(gradient, tf.fill(shape, 2.0)):
                with self.subTest(name):
                    self.assertRegex(actual.device, "GPU:0$")
                    if expected is not None:
                        self.check_on_gpu(actual, np.full(shape, expected))
                    elif name == "alltoall":
                        self.check_on_gpu(actual, np.repeat(np.arange(1, self.size + 1), 2).reshape(shape))
                    else:
                        self.check_on_gpu(actual, self.size * np.repeat(np.arange(1, self.size + 1), 2).reshape(shape))

    def test_of_a_gradient(self):
        def second(x):
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    y = tf.reduce_sum(mpi_ops._allreduce(x * x, op=hvd.Average))
                first = inner.gradient(y, x)
            return outer.gradient(first, x)

        for actual in both_ways(second, constant([1.0, 2.0])):
            self.check_on_gpu(actual, [2, 2])

    def test_allreduce_of_slices(self):
        indices = constant(np.arange(self.rank + 1), tf.int64)
        own = tf.IndexedSlices(tf.fill([self.rank + 1, 2], float(self.rank)), indices)
        for actual in both_ways(lambda: hvd.allreduce(own, op=hvd.Sum, name="slices")):
            expected = np.concatenate([np.full((rank + 1, 2), rank) for rank in range(self.size)])
            self.check_on_gpu(actual.values, expected)
            self.check_on_gpu(actual.indices, np.concatenate([np.arange(rank + 1) for rank in range(self.size)]))


class StepTest(GpuTest):
    def test_training_step_stays_on_the_device(self):
        weights = tf.Variable(tf.fill([4, 3], 0.1 * (self.rank + 1)))
        bias = tf.Variable(tf.zeros([3]))
        hvd.broadcast_variables([weights, bias], root_rank=0)
        data = np.random.RandomState(self.rank).randn(8, 4).astype(np.float32)
        features, labels = constant(data), constant(np.arange(8) % 3, tf.int64)

        @tf.function
        def step():
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                outputs = tf.nn.relu(tf.matmul(features, weights) + bias)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs))
            gradients = tape.gradient(loss, [weights, bias])
            weights.assign_sub(0.1 * gradients[0])
            bias.assign_sub(0.1 * gradients[1])
            return loss

        for _ in range(3):
            step()
        with Counted() as counted:
            losses = [step() for _ in range(5)]
        self.assertEqual((counted.copies, counted.host_waits), (0, 0))
        self.assertGreaterEqual(counted.device_buckets, 5)
        self.assertGreater(counted.device_kernels, 0)
        self.assertTrue(np.isfinite([loss.numpy() for loss in losses]).all())
        everywhere = mpi_ops.allgather(weights[tf.newaxis]).numpy()
        np.testing.assert_array_equal(everywhere, everywhere[:1].repeat(self.size, axis=0))


class ErrorsTest(GpuTest):
    def goes_on(self):
        self.check_on_gpu(mpi_ops._allreduce(constant([1.0]), op=hvd.Sum), [self.size])

    def test_ranks_with_different_shapes(self):
        for function in (mpi_ops._allreduce, tf.function(mpi_ops._allreduce)):
            with self.assertRaises(tf.errors.FailedPreconditionError):
                function(tf.zeros([2 + (self.rank == 0)]))
            self.goes_on()

    def test_rank_with_a_tensor_of_the_host(self):
        with tf.device("/CPU:0" if self.rank == 0 else "/GPU:0"), self.assertRaisesRegex(errors.Mismatch, "memory"):
            mpi_ops._allreduce(tf.zeros([2]))
        self.goes_on()

    def test_tensor_that_the_op_does_not_support(self):
        with self.assertRaises(errors.InvalidArgument):
            mpi_ops._allreduce(tf.constant([True]), op=hvd.Average)
        self.goes_on()


class FactsTest(GpuTest):
    def test_answers_about_the_build(self):
        self.assertTrue(hvd.cuda_built() and hvd.gpu_available())
        self.assertEqual(hvd.nccl_built(), 22809)


if __name__ == "__main__":
    support.main()
