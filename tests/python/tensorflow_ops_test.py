# SPDX-License-Identifier: Apache-2.0
"""Each TensorFlow op, eagerly and in tf.function, with its gradient; on two ranks or more."""

from tensorflow_support import FLOATS, INTEGERS, OpTest, both_ways, main

import numpy as np
import tensorflow as tf

import farandole
import farandole.tensorflow as hvd
from farandole import errors
from farandole.tensorflow import mpi_ops
from farandole.tensorflow.mpi_ops import Adasum, Average, Max, Min, Product, Sum


class Allreduce(OpTest):
    def test_types_and_ops(self):
        everyone = self.of_ranks()
        expected = {Sum: everyone.sum(0), Product: everyone.prod(0), Min: everyone.min(0), Max: everyone.max(0)}
        for dtype in FLOATS + INTEGERS:
            for op, values in expected.items():
                for result in both_ways(lambda x, op=op: mpi_ops._allreduce(x, op=op), self.own(dtype)):
                    self.check(result, values, dtype)

    def test_average(self):
        for dtype in FLOATS:
            for result in both_ways(lambda x: mpi_ops._allreduce(x, op=Average), self.own(dtype) * 2):
                self.check(result, self.of_ranks().mean(0) * 2, dtype)

    def test_factors_and_averages_of_integers(self):
        """Inputs and the sum are multiplied in double, and cut off toward zero each time."""
        for dtype in INTEGERS:
            values = [np.array([3, 7, 20]) * (-1 if dtype.min < 0 else 1) + rank for rank in range(self.size)]
            mine = tf.constant(values[self.rank], dtype)
            for op, prescale, postscale in ((Average, 1.0, 1.0), (Sum, 0.7, 1.0), (Sum, 1.0, 0.3), (Average, 1.5, 0.9)):
                def reduce(x, rows, op=op, prescale=prescale, postscale=postscale):
                    factors = {"op": op, "prescale_factor": prescale, "postscale_factor": postscale}
                    group = mpi_ops._grouped_allreduce([x, tf.ones([2])], **factors)
                    part = mpi_ops._grouped_reducescatter([rows], **factors)
                    return hvd.allreduce(x, **factors), group[0], hvd.reducescatter(rows, **factors)[0], part[0][0]

                total = sum(np.trunc(each * prescale) for each in values)
                expected = np.trunc(total * (postscale / self.size if op == Average else postscale))
                for results in both_ways(reduce, mine, tf.stack([mine] * self.size)):
                    for result in results:
                        self.check(result, expected, dtype)

    def test_bool(self):
        result = mpi_ops._allreduce(tf.constant([True, False, self.rank == 0]), op=Max)
        self.assertEqual(result.numpy().tolist(), [True, False, True])

    def test_adasum_of_equal_vectors_is_one_of_them(self):
        if self.size & (self.size - 1):
            self.skipTest("Adasum wants a power of two")
        vector = tf.constant([1.0, 2.0, 3.0])
        np.testing.assert_allclose(mpi_ops._allreduce(vector, op=Adasum).numpy(), vector.numpy(), rtol=1e-6)

    def test_factors_have_all_digits(self):
        ones = tf.ones([2], tf.float64)
        for result in both_ways(lambda x: mpi_ops._allreduce(x, prescale_factor=0.1, postscale_factor=0.3), ones):
            np.testing.assert_allclose(result.numpy(), self.size * 0.1 * 0.3, rtol=1e-14)

    def test_a_factor_of_zero_makes_zeros(self):
        ones = tf.ones([2])
        for factors in ({"prescale_factor": 0}, {"postscale_factor": 0.0}):
            for result in both_ways(lambda x, factors=factors: mpi_ops._allreduce(x, **factors), ones):
                np.testing.assert_array_equal(result.numpy(), [0.0, 0.0])

    def test_scalars_and_empty_tensors(self):
        self.check(mpi_ops._allreduce(tf.constant(2.0)), 2.0 * self.size)
        self.assertEqual(mpi_ops._allreduce(tf.zeros([0, 3])).shape, [0, 3])

    def test_input_is_kept(self):
        given = self.own(tf.float32)
        mpi_ops._allreduce(given)
        self.check(given, self.of_ranks()[self.rank])

    def test_group_of_many_types(self):
        tensors = [self.own(tf.float32), self.own(tf.int64, (4,)), self.own(tf.bfloat16, (1, 2, 3)), tf.zeros([0])]
        for results in both_ways(mpi_ops._grouped_allreduce, tensors):
            for result, tensor in zip(results, tensors):
                self.check(result, self.of_ranks(tuple(tensor.shape)).sum(0) if tensor.shape.num_elements() else [])
                self.assertEqual(result.dtype, tensor.dtype)
        self.assertEqual(mpi_ops._grouped_allreduce([]), [])

    def test_gradient(self):
        for op, factor in ((Sum, 1.0), (Average, 1.0 / self.size)):
            for dtype in FLOATS:
                x = tf.Variable(tf.ones([2, 2], dtype))

                def gradient(x=x, op=op):
                    with tf.GradientTape() as tape:
                        y = mpi_ops._allreduce(x, op=op, prescale_factor=2.0)
                        loss = tf.reduce_sum(y * (self.rank + 1))
                    return tape.gradient(loss, x)

                for result in both_ways(gradient):
                    ranks = sum(rank + 1 for rank in range(self.size))
                    np.testing.assert_allclose(tf.cast(result, tf.float64), np.full([2, 2], 2 * ranks * factor))

    def test_group_gradient_is_zero_for_unused_outputs(self):
        x, y = tf.Variable([1.0, 2.0]), tf.Variable([[3.0]])

        def gradients():
            with tf.GradientTape() as tape:
                reduced = mpi_ops._grouped_allreduce([x, y])
                loss = tf.reduce_sum(reduced[0]) if self.rank == 0 else tf.reduce_sum(reduced[1])
            return tape.gradient(loss, [x, y])

        for of_x, of_y in both_ways(gradients):
            self.check(of_x, [1.0, 1.0])
            self.check(of_y, [[self.size - 1.0]])

    def test_gradient_of_max_is_refused(self):
        x = tf.Variable([1.0])
        with tf.GradientTape() as tape:
            y = mpi_ops._allreduce(x, op=Max)
        with self.assertRaisesRegex(NotImplementedError, "not for Max"):
            tape.gradient(y, x)


class OtherRows(OpTest):
    def test_allgather(self):
        expected = np.concatenate([np.full([rank + 1, 2], rank) for rank in range(self.size)])
        for dtype in FLOATS + INTEGERS:
            own = tf.cast(tf.fill([self.rank + 1, 2], self.rank), dtype)
            for result in both_ways(mpi_ops.allgather, own):
                self.check(result, expected, dtype)
        flags = mpi_ops.allgather(tf.fill([self.rank], True))
        self.assertEqual(flags.numpy().tolist(), [True] * (self.size * (self.size - 1) // 2))

    def test_allgather_of_nothing_from_a_rank(self):
        result = mpi_ops.allgather(tf.ones([0 if self.rank == 0 else 2, 3]))
        self.assertEqual(result.shape, [2 * (self.size - 1), 3])
        self.assertEqual(mpi_ops.allgather(tf.ones([0, 3])).shape, [0, 3])

    def test_grouped_allgather(self):
        tensors = [tf.fill([self.rank, 1], 1.0), tf.fill([2], self.rank)]
        for first, second in both_ways(mpi_ops.grouped_allgather, tensors):
            self.check(first, np.ones([self.size * (self.size - 1) // 2, 1]))
            self.check(second, np.repeat(np.arange(self.size), 2), tf.int32)

    def test_allgather_gradient(self):
        x = tf.Variable(tf.ones([self.rank + 1, 2]))

        def gradient():
            with tf.GradientTape() as tape:
                y = mpi_ops.allgather(x)
                weights = tf.cast(tf.range(tf.shape(y)[0])[:, tf.newaxis], tf.float32) * (self.rank + 1.0)
                loss = tf.reduce_sum(y * weights)
            return tape.gradient(loss, x)

        first = self.rank * (self.rank + 1) // 2
        average = np.mean([rank + 1 for rank in range(self.size)])
        for result in both_ways(gradient):
            rows = np.arange(first, first + self.rank + 1)
            np.testing.assert_allclose(result.numpy(), np.repeat(rows[:, None], 2, 1) * average)

    def test_reducescatter(self):
        rows = 2 * self.size + 1  # the first rank gets one more
        begin = 0 if self.rank == 0 else 2 * self.rank + 1
        end = 2 * self.rank + 3
        for dtype in FLOATS + INTEGERS:
            own = self.own(dtype, (rows, 2))
            for result in both_ways(mpi_ops._reducescatter, own):
                self.check(result, self.of_ranks((rows, 2)).sum(0)[begin:end], dtype)
        everyone = self.of_ranks((rows, 2))
        self.check(mpi_ops._reducescatter(self.own(tf.float32, (rows, 2)), op=Max), everyone.max(0)[begin:end])
        self.check(
            mpi_ops._reducescatter(self.own(tf.float64, (rows, 2)), op=Average), everyone.mean(0)[begin:end]
        )

    def test_grouped_reducescatter(self):
        tensors = [tf.ones([self.size, 3]), tf.ones([2 * self.size], tf.int32)]
        for first, second in both_ways(mpi_ops._grouped_reducescatter, tensors):
            self.check(first, np.full([1, 3], self.size))
            self.check(second, np.full([2], self.size), tf.int32)

    def test_reducescatter_gradient(self):
        x = tf.Variable(tf.ones([self.size, 2]))
        for op, factor in ((Sum, self.size), (Average, 1)):

            def gradient(op=op):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(mpi_ops._reducescatter(x, op=op) * (self.rank + 1.0))
                return tape.gradient(loss, x)

            for result in both_ways(gradient):
                self.check(result, np.repeat(np.arange(1, self.size + 1)[:, None], 2, 1) * factor)

    def test_alltoall(self):
        # Rank r sends s + 1 rows of its number to each rank s.
        for dtype in (tf.int32, tf.int64):
            splits = tf.range(1, self.size + 1, dtype=dtype)
            own = tf.fill([self.size * (self.size + 1) // 2, 2], self.rank)
            for result, received in both_ways(mpi_ops.alltoall, own, splits):
                self.check(result, np.repeat(np.arange(self.size), self.rank + 1)[:, None].repeat(2, 1), tf.int32)
                self.check(received, np.full([self.size], self.rank + 1), dtype)

    def test_alltoall_of_equal_parts(self):
        for dtype in FLOATS + INTEGERS + [tf.bool]:
            own = tf.cast(tf.range(2 * self.size), dtype)
            for result in both_ways(mpi_ops.alltoall, own):
                expected = np.tile(own.numpy()[2 * self.rank : 2 * self.rank + 2], self.size)
                self.assertEqual(result.dtype, dtype)
                np.testing.assert_array_equal(result.numpy(), expected)

    def test_alltoall_gradient(self):
        splits = tf.range(1, self.size + 1)
        x = tf.Variable(tf.ones([self.size * (self.size + 1) // 2]))

        def gradient():
            with tf.GradientTape() as tape:
                received, _ = mpi_ops.alltoall(x, splits)
                loss = tf.reduce_sum(received) * (self.rank + 1.0)
            return tape.gradient(loss, x)

        for result in both_ways(gradient):
            self.check(result, np.repeat(np.arange(1, self.size + 1), np.arange(1, self.size + 1)))


class Broadcast(OpTest):
    def test_types(self):
        for root in range(self.size):
            for dtype in FLOATS + INTEGERS:
                for result in both_ways(lambda x, root=root: mpi_ops.broadcast(x, root), self.own(dtype)):
                    self.check(result, self.of_ranks()[root], dtype)
        self.assertTrue(mpi_ops.broadcast(tf.constant([self.rank == 1]), 1).numpy()[0])

    def test_gradient(self):
        x = tf.Variable([1.0, 2.0])

        def gradient():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(mpi_ops.broadcast(x, 1)) * (self.rank + 1.0)
            return tape.gradient(loss, x)

        average = np.mean([rank + 1 for rank in range(self.size)])
        for result in both_ways(gradient):
            self.check(result, [average, average] if self.rank == 1 else [0.0, 0.0])

    def test_variables_in_place(self):
        variables = [tf.Variable(self.own(dtype)) for dtype in FLOATS + INTEGERS]
        before = variables[0].read_value()  # shares the variable's memory
        for variable, value in zip(variables, mpi_ops.broadcast_(variables, 1)):
            self.check(variable, self.of_ranks()[1])
            self.check(value, self.of_ranks()[1])
        self.check(before, self.of_ranks()[self.rank])

    def test_variables_in_a_function_keep_their_order(self):
        variable = tf.Variable([0.0])

        @tf.function
        def program():
            variable.assign([float(self.rank + 5)])
            (received,) = mpi_ops.broadcast_([variable], 0)
            variable.assign_add([1.0])
            return received, variable.read_value()

        received, after = program()
        self.check(received, [5.0])
        self.check(after, [6.0])

    def test_variables_that_cannot_be_sent(self):
        with self.assertRaisesRegex(errors.InvalidArgument, "of type string"):
            mpi_ops.broadcast_([tf.Variable("text")], 0)
        self.assertEqual(mpi_ops.broadcast_([], 0), [])


class Waiting(OpTest):
    def test_join(self):
        # The last rank has one batch more.
        for _ in range(2 if self.rank == self.size - 1 else 1):
            total = mpi_ops._allreduce(tf.ones([2]), name="uneven")
        last = mpi_ops.join()
        self.assertEqual(last.numpy(), self.size - 1)
        if self.rank == self.size - 1:
            self.check(total, [1.0, 1.0])

    def test_barrier(self):
        self.assertIsNone(mpi_ops.barrier())

        @tf.function
        def program():
            mpi_ops.barrier()
            return tf.constant(1)

        before = farandole.counters()["requests"]
        program()
        self.assertEqual(farandole.counters()["requests"], before + 1)

    def test_facts(self):
        @tf.function
        def program():
            return (
                mpi_ops.rank_op(),
                mpi_ops.size_op(),
                mpi_ops.local_rank_op(),
                mpi_ops.local_size_op(),
                mpi_ops.process_set_included_op(),
                mpi_ops.process_set_included_op(77),
            )

        expected = (self.rank, self.size, farandole.local_rank(), farandole.local_size(), 1, -2)
        self.assertEqual(tuple(value.numpy() for value in program()), expected)

    def test_process_set(self):
        last = self.size - 1
        members = farandole.add_process_set([last])
        if self.rank == last:
            self.check(mpi_ops._allreduce(tf.ones([2]), process_set=members), [1.0, 1.0])
            self.assertEqual(mpi_ops.rank_op(process_set=members.process_set_id).numpy(), 0)
        else:
            with self.assertRaisesRegex(errors.InvalidArgument, "not in process set"):
                mpi_ops._allreduce(tf.ones([2]), process_set=members)
        included = mpi_ops.process_set_included_op(members.process_set_id).numpy()
        self.assertEqual(included, 1 if self.rank == last else 0)
        farandole.remove_process_set(members)


if __name__ == "__main__":
    main()
