"""The TensorFlow ops, eagerly and in tf.function, on two ranks or more."""

import os
import tempfile

import support

support.need("tensorflow")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import farandole  # noqa: E402
from farandole import errors  # noqa: E402
from farandole.tensorflow import _errors, _library, mpi_ops  # noqa: E402
from farandole.tensorflow.mpi_ops import Adasum, Average, Max, Min, Product, Sum  # noqa: E402

FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]
INTEGERS = [tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64]
LARGE = 1 << 20  # elements of float32: 4 MiB, from the pool of windows


def both_ways(function, *arguments):
    """Results of the function, eagerly and as a tf.function."""
    return [function(*arguments), tf.function(function)(*arguments)]


class Test(support.RankedTest):
    def setUp(self):
        super().setUp()
        self.rank, self.size = farandole.rank(), farandole.size()

    def check(self, actual, expected, dtype=None):
        if dtype is not None:
            self.assertEqual(actual.dtype, dtype)
        np.testing.assert_array_equal(tf.cast(actual, tf.float64).numpy(), np.asarray(expected, np.float64))

    def own(self, dtype, shape=(3, 2)):
        """A tensor of small integers that are exact in every type; other values on each rank."""
        return tf.cast(tf.reshape(tf.range(int(np.prod(shape))), shape) % 7 + self.rank, dtype)

    def of_ranks(self, shape=(3, 2)):
        values = np.arange(int(np.prod(shape))).reshape(shape) % 7
        return np.stack([values + rank for rank in range(self.size)]).astype(np.float64)


class Allreduce(Test):
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

    def test_gradient_of_a_group_has_zeros_for_what_is_not_used(self):
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


class OtherRows(Test):
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


class Broadcast(Test):
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

    def test_variables_that_can_not_be_sent(self):
        with self.assertRaisesRegex(errors.InvalidArgument, "of type string"):
            mpi_ops.broadcast_([tf.Variable("text")], 0)
        self.assertEqual(mpi_ops.broadcast_([], 0), [])


class Waiting(Test):
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


class Functions(Test):
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
            seen["alltoall"] = mpi_ops.alltoall(tf.ones([4, 3])).shape.as_list()
            return x

        program(tf.ones([1, 3]))
        expected = {"allreduce": [None, 3], "allgather": [None, 3], "reducescatter": [None, 3], "alltoall": [None, 3]}
        self.assertEqual(seen, expected)


class Errors(Test):
    """Every rank is told the same, and then the job goes on."""

    def goes_on(self):
        self.check(mpi_ops._allreduce(tf.ones([2])), [self.size, self.size])

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
            self.assertIsInstance(caught.exception, tf.errors.AbortedError)
            self.assertIsInstance(caught.exception, tf.errors.FailedPreconditionError)
            self.assertRegex(str(caught.exception), f"rank {self.size - 1}")
            self.goes_on()

    def test_in_a_function(self):
        @tf.function
        def program(x):
            return mpi_ops._allreduce(x, name="disagreement")

        x = tf.ones([2 + self.rank])
        with self.assertRaises(tf.errors.AbortedError) as caught:
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

    def test_what_can_not_work(self):
        with self.assertRaises(errors.InvalidArgument) as caught:
            mpi_ops._allreduce(tf.constant([1, 2]), op=Average)
        self.assertIsInstance(caught.exception, tf.errors.InvalidArgumentError)
        with self.assertRaises(errors.InvalidArgument):
            mpi_ops.alltoall(tf.ones([3]), splits=tf.constant([9] * self.size))
        with self.assertRaises(errors.InvalidArgument):
            mpi_ops.broadcast(tf.ones([2]), root_rank=self.size)
        with self.assertRaisesRegex(TypeError, "must be integers"):
            mpi_ops.alltoall(tf.ones([self.size]), splits=tf.ones([self.size]))
        self.goes_on()

    def test_one_name_twice(self):
        @tf.function
        def program(x):
            first = mpi_ops._allreduce(x, name="twice", ignore_name_scope=True)
            with tf.name_scope("other"):
                second = mpi_ops.allgather(first, name="once", ignore_name_scope=True)
            return first, second

        program(tf.ones([2]))
        farandole.numpy.barrier()
        self.goes_on()

    def test_variable_without_a_value(self):
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[1], shared_name="without a value")
        with self.assertRaises(tf.errors.OpError):
            _library.load().farandole_broadcast_variables(variables=[handle], root_rank=0, caller_waits=True)
        self.goes_on()


class Memory(Test):
    def setUp(self):
        super().setUp()
        self.windows = farandole.local_size() > 1 and os.environ.get("FARANDOLE_TENSORFLOW_WINDOWS", "on") == "on"

    def test_large_tensors_come_from_windows(self):
        before = _library.memory()
        x = tf.random.normal([LARGE])
        after = _library.memory()
        self.assertEqual(_library.describe()["windows"], self.windows)
        if self.windows:
            self.assertEqual(after["windows_in_use"] - before["windows_in_use"], 4 * LARGE)
        farandole_sum = mpi_ops._allreduce(x)
        everyone = mpi_ops.allgather(x[tf.newaxis])
        np.testing.assert_allclose(farandole_sum.numpy(), everyone.numpy().sum(0), rtol=1e-5, atol=1e-5)
        del x, farandole_sum, everyone
        self.assertLessEqual(_library.memory()["windows_in_use"], after["windows_in_use"])

    def test_small_tensors_do_not(self):
        before = _library.memory()
        tensors = [tf.random.normal([100]) for _ in range(100)]
        self.assertEqual(_library.memory()["windows_in_use"], before["windows_in_use"])
        del tensors

    def test_blocks_are_used_again_and_given_back(self):
        if not self.windows:
            self.skipTest("no windows here")
        limit = _library.memory()["limit"]
        block = 64 << 20
        tensors = [tf.random.uniform([block // 4]) for _ in range(3)]
        del tensors
        kept = _library.memory()["windows_kept"]
        tensors = [tf.random.uniform([block // 4]) for _ in range(3)]
        self.assertLess(_library.memory()["windows_kept"], kept)
        many = [tf.zeros([block]) for _ in range(int(limit // (4 * block)) + 2)]  # pages that nobody writes to cost nothing
        del many, tensors
        memory = _library.memory()
        self.assertLessEqual(memory["windows_kept"] + memory["ordinary_kept"], limit)

    def test_statistics(self):
        before = tf.config.experimental.get_memory_info("CPU:0")["current"]
        x = tf.random.normal([LARGE])
        self.assertGreaterEqual(tf.config.experimental.get_memory_info("CPU:0")["current"] - before, 4 * LARGE)
        del x

    def test_a_forked_child_keeps_its_hands_off(self):
        x = tf.fill([LARGE], 3.0)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                good = float(x.numpy().sum()) == 3.0 * LARGE
                y = tf.constant(np.full([LARGE], 4.0, np.float32))
                good = good and float(y.numpy()[-1]) == 4.0
                del x, y
                os.write(writer, b"good" if good else b"bad")
            finally:
                os._exit(0)
        os.close(writer)
        self.assertEqual(os.read(reader, 16), b"good")
        os.waitpid(child, 0)
        self.check(mpi_ops._allreduce(x)[:2], [3.0 * self.size] * 2)


class Library(Test):
    def test_ranks_that_start_together_build_once(self):
        names = [None]
        with tempfile.TemporaryDirectory() as directory:
            names = farandole.objects.allgather_object(directory)
            old = os.environ.get("XDG_CACHE_HOME")
            os.environ["XDG_CACHE_HOME"] = names[0]
            try:
                recipe = _library._Recipe(_library._header_dir())
                path = _library._from_cache(recipe)
                self.assertTrue(recipe.fits(path))
                inodes = farandole.objects.allgather_object(path.stat().st_ino)
                self.assertEqual(len(set(inodes)), 1)
                self.assertEqual([each.suffix for each in sorted(path.parent.iterdir())], [".lock", ".so"])
            finally:
                os.environ.pop("XDG_CACHE_HOME")
                if old is not None:
                    os.environ["XDG_CACHE_HOME"] = old
            farandole.numpy.barrier()

    def test_without_a_compiler_it_says_what_to_install(self):
        old = os.environ["PATH"]
        os.environ["PATH"] = "/nonexistent"
        try:
            with self.assertRaisesRegex(ImportError, "apt-get install g"):
                _library._need_compiler("9.9.9")
        finally:
            os.environ["PATH"] = old


if __name__ == "__main__":
    import farandole.numpy  # noqa: F401
    import farandole.objects  # noqa: F401

    tf.get_logger().setLevel("ERROR")  # functions are traced many times here
    support.main()
