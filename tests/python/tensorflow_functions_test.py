# SPDX-License-Identifier: Apache-2.0
"""Collectives in tf.function: order, names, shapes, and errors."""

from tensorflow_support import OpTest, main

import inspect
import os
import re
import time

import numpy as np
import tensorflow as tf

import farandole
import farandole.tensorflow
from farandole import errors
from farandole.tensorflow import _errors, _library, mpi_ops
from farandole.tensorflow.mpi_ops import Average, Max, Sum


class Functions(OpTest):
    def test_another_order_on_each_rank(self):
        names = [f"tensor_{i}" for i in range(8)]
        order = np.random.default_rng(self.rank).permutation(len(names))

        @tf.function
        def program(x):
            results = {}
            for i in order:
                with tf.name_scope(f"scope_of_rank_{self.rank}"):
                    kind = (mpi_ops._allreduce, mpi_ops.allgather)[i % 2]
                    results[i] = kind(x * float(i), name=names[i], ignore_name_scope=True)
            return [results[i] for i in range(len(names))]

        for _ in range(3):
            for i, result in enumerate(program(tf.ones([2]))):
                expected = np.full([2], i * self.size) if i % 2 == 0 else np.full([2 * self.size], i)
                self.check(result, expected)

    def test_ops_are_neither_merged_nor_pruned(self):
        @tf.function
        def program(x):
            mpi_ops._allreduce(x, name="unused")
            return mpi_ops._allreduce(x, name="first") + mpi_ops._allreduce(x, name="second")

        x = tf.ones([2])
        program(x)
        before = farandole.counters()["requests"]
        self.check(program(x), np.full([2], 2.0 * self.size))
        self.assertEqual(farandole.counters()["requests"], before + 3)

    def test_a_function_that_is_called_twice_in_another(self):
        @tf.function
        def inner(x):
            return mpi_ops._allreduce(x)

        @tf.function
        def outer(x):
            return inner(x) - inner(2.0 * x)

        self.check(outer(tf.ones([3])), np.full([3], -float(self.size)))

    def test_a_name_is_free_again_when_its_op_has_ended(self):
        @tf.function
        def program(x):
            first = mpi_ops._allreduce(x, name="again", ignore_name_scope=True)
            with tf.name_scope("other"):
                return mpi_ops._allreduce(first, name="again", ignore_name_scope=True)

        for _ in range(3):
            self.check(program(tf.ones([2])), np.full([2], float(self.size**2)))

    def test_an_error_names_the_line_that_made_the_op(self):
        if self.size < 2:
            self.skipTest("needs two ranks")

        @tf.function
        def program(x):
            return farandole.tensorflow.allreduce(x, name="line")  # here

        with self.assertRaises(tf.errors.OpError) as caught:
            program(tf.ones([2 + self.rank]))
        lines = re.findall(r'File "(.*)", line (\d+)', caught.exception.message.split("ranks disagree")[0])
        source = inspect.getsource(type(self)).splitlines()
        first = inspect.getsourcelines(type(self))[1]
        here = first + next(n for n, line in enumerate(source) if line.endswith("# here"))
        self.assertEqual((os.path.basename(lines[-1][0]), int(lines[-1][1])), (os.path.basename(__file__), here))
        self.assertFalse([name for name, _ in lines if f"{os.sep}farandole{os.sep}tensorflow" in name])

    def test_loops_and_branches(self):
        @tf.function
        def program(x, count):
            for _ in tf.range(count):
                x = mpi_ops._allreduce(x, op=Average) + 1.0
            if count > 2:
                x = mpi_ops._allreduce(x, name="branch")
            return x

        self.check(program(tf.zeros([2]), tf.constant(3)), np.full([2], 3.0 * self.size))

    def test_shapes_are_known_beforehand(self):
        seen = {}

        @tf.function(input_signature=[tf.TensorSpec([None, 3])])
        def program(x):
            seen["allreduce"] = mpi_ops._allreduce(x).shape.as_list()
            seen["allgather"] = mpi_ops.allgather(tf.ones([2, 3])).shape.as_list()
            seen["reducescatter"] = mpi_ops._reducescatter(tf.ones([4, 3])).shape.as_list()
            seen["alltoall"] = mpi_ops.alltoall(tf.ones([2 * self.size, 3])).shape.as_list()
            return x

        program(tf.ones([1, 3]))
        expected = {"allreduce": [None, 3], "allgather": [None, 3], "reducescatter": [None, 3], "alltoall": [None, 3]}
        self.assertEqual(seen, expected)


class Errors(OpTest):
    """Every rank is told the same, and then the job goes on."""

    def test_disagreements(self):
        odd = self.rank == self.size - 1
        calls = {
            "shape": lambda: mpi_ops._allreduce(tf.ones([3 if odd else 2])),
            "type": lambda: mpi_ops._allreduce(tf.ones([2], tf.float64 if odd else tf.float32)),
            "op": lambda: mpi_ops._allreduce(tf.ones([2]), op=Max if odd else Sum),
            "factor": lambda: mpi_ops._allreduce(tf.ones([2]), prescale_factor=2.0 if odd else 1.0),
            "root": lambda: mpi_ops.broadcast(tf.ones([2]), 1 if odd else 0),
            "collective": lambda: mpi_ops.allgather(tf.ones([2])) if odd else mpi_ops._allreduce(tf.ones([2])),
            "row": lambda: mpi_ops.allgather(tf.ones([2, 4 if odd else 3])),
            "group": lambda: mpi_ops._grouped_allreduce([tf.ones([1])] * (3 if odd else 2)),
        }
        for what, call in calls.items():
            with self.subTest(what), self.assertRaises(errors.Mismatch) as caught:
                call()
            self.assertIsInstance(caught.exception, tf.errors.FailedPreconditionError)
            self.assertRegex(str(caught.exception), f"rank {self.size - 1}")
            self.goes_on()

    def test_in_a_function(self):
        @tf.function
        def program(x):
            return mpi_ops._allreduce(x, name="disagreement")

        x = tf.ones([2 + self.rank])
        with self.assertRaises(tf.errors.FailedPreconditionError) as caught:
            program(x)
        self.assertIsInstance(_errors.converted(caught.exception), errors.Mismatch)
        with self.assertRaises(errors.Mismatch) as caught, _errors.converted_errors():
            program(x)
        self.assertRegex(str(caught.exception), "disagreement")
        self.goes_on()
        self.check(program(tf.ones([2])), [self.size, self.size])

    def test_in_a_function_with_other_collectives(self):
        @tf.function
        def program(x, y):
            return mpi_ops._allreduce(x, name="right"), mpi_ops._allreduce(y, name="wrong")

        for _ in range(3):
            with self.assertRaises(errors.Mismatch), _errors.converted_errors():
                program(tf.ones([2]), tf.ones([2 + self.rank]))
        right, wrong = program(tf.ones([2]), tf.ones([4]))
        self.check(right, [self.size, self.size])
        self.check(wrong, [self.size] * 4)

    @staticmethod
    def is_pending():
        while _library.pending() == 0:
            time.sleep(0.001)
        return True

    def test_unmatched_collective_fails_with_the_step(self):
        """The last rank comes to "late" only after "odd", about which it disagrees; the others have submitted both."""
        is_last = self.rank == self.size - 1

        @tf.function
        def program(x, y):
            if is_last:
                odd = mpi_ops._allreduce(y, name="odd")
                with tf.control_dependencies([odd]):
                    return mpi_ops._allreduce(x, name="late"), odd
            late = mpi_ops._allreduce(x, name="late")
            with tf.control_dependencies([tf.py_function(self.is_pending, [], tf.bool)]):
                return late, mpi_ops._allreduce(y, name="odd")

        for turn in range(3):
            start = time.monotonic()
            with self.assertRaises(errors.Mismatch) as caught, _errors.converted_errors():
                program(tf.fill([2], -1.0), tf.ones([2 + self.rank]))
            self.assertLess(time.monotonic() - start, 2.0)
            self.assertIn("'odd'", str(caught.exception))
            self.assertEqual(_library.pending(), 0)
            # In one turn this rank continues later than its peers, whose requests could match its earlier requests.
            if turn == self.rank:
                time.sleep(0.2)
            late, odd = program(tf.ones([2]), tf.ones([4]))
            self.check(late, [self.size] * 2)
            self.check(odd, [self.size] * 4)

    def test_unmatched_collective_fails_after_mismatch(self):
        """The last rank comes to "late" only after the mismatch; the others have submitted it before."""
        is_last = self.rank == self.size - 1

        @tf.function
        def program(x, text):
            if is_last:
                never = _library.load().farandole_mismatch(text=text)
                with tf.control_dependencies([never]):
                    return mpi_ops._allreduce(x, name="late"), never
            late = mpi_ops._allreduce(x, name="late")
            with tf.control_dependencies([tf.py_function(self.is_pending, [], tf.bool)]):
                return late, _library.load().farandole_mismatch(text=text)

        for _ in range(3):
            start = time.monotonic()
            with self.assertRaisesRegex(errors.Mismatch, "^found otherwise"), _errors.converted_errors():
                program(tf.ones([2]), "found otherwise")
            self.assertLess(time.monotonic() - start, 2.0)
            self.assertEqual(_library.pending(), 0)
            self.goes_on()

    def test_invalid_arguments(self):
        with self.assertRaises(errors.InvalidArgument) as caught:
            mpi_ops._allreduce(tf.constant([True, False]), op=Average)
        self.assertIsInstance(caught.exception, tf.errors.InvalidArgumentError)
        with self.assertRaises(errors.InvalidArgument):
            mpi_ops.alltoall(tf.ones([3]), splits=tf.constant([9] * self.size))
        with self.assertRaises(errors.InvalidArgument):
            mpi_ops.broadcast(tf.ones([2]), root_rank=self.size)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "must be integers"):
            mpi_ops.alltoall(tf.ones([self.size]), splits=tf.ones([self.size]))
        self.goes_on()

    def test_variable_without_a_value(self):
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[1], shared_name="without a value")
        with self.assertRaises(tf.errors.OpError):
            _library.load().farandole_broadcast_variables(variables=[handle], root_rank=0, caller_waits=True)
        self.goes_on()


if __name__ == "__main__":
    main()
