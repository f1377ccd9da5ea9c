# SPDX-License-Identifier: Apache-2.0
"""farandole.numpy: every collective, with every type, in groups, windows and process sets; invalid calls."""

import inspect
import os
import signal
import threading
import time

import support

support.need("numpy")

import numpy as np

import farandole
import farandole.numpy as collectives
from farandole import _work, errors

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

FLOATS = ["float16", "float32", "float64"] + (["bfloat16"] if ml_dtypes else [])
INTEGERS = ["uint8", "int8", "uint16", "int16", "int32", "int64", "uint32", "uint64"]


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


class AllreduceTest(support.RankedTest):
    def test_sum_of_every_type(self):
        size = farandole.size()
        for name in FLOATS + INTEGERS:
            for shape in [(), (1,), (0,), (3, 5), (2, 0, 4), (1000,)]:
                count = int(np.prod(shape))
                mine = (np.arange(count) % 7 + farandole.rank()).reshape(shape).astype(dtype_of(name))
                total = collectives.allreduce(mine, op=farandole.Sum, name=f"sum.{name}.{shape}")
                expected = sum((np.arange(count) % 7 + rank).reshape(shape) for rank in range(size))
                self.assertEqual(total.dtype, mine.dtype)
                self.assertEqual(total.shape, shape)
                np.testing.assert_array_equal(total.astype(np.float64), expected)

    def test_other_operations(self):
        rank, size = farandole.rank(), farandole.size()
        mine = np.array([rank + 1.0, -rank, 2.0])
        everyone = np.array([[each + 1.0, -each, 2.0] for each in range(size)])
        np.testing.assert_allclose(collectives.allreduce(mine), everyone.mean(axis=0))
        np.testing.assert_array_equal(collectives.allreduce(mine, op=farandole.Min), everyone.min(axis=0))
        np.testing.assert_array_equal(collectives.allreduce(mine, op=farandole.Max), everyone.max(axis=0))
        np.testing.assert_allclose(collectives.allreduce(mine, op=farandole.Product), everyone.prod(axis=0))
        np.testing.assert_allclose(collectives.allreduce(mine, average=False), everyone.sum(axis=0))
        both = collectives.allreduce(np.array([True, rank == 0]), op=farandole.Min)
        self.assertEqual(both.tolist(), [True, size == 1])

    def test_bitwise_operations(self):
        rank, size = farandole.rank(), farandole.size()
        reductions = {farandole.BitAnd: np.bitwise_and, farandole.BitOr: np.bitwise_or, farandole.BitXor: np.bitwise_xor}
        for name in [*INTEGERS, "bool"]:
            dtype = np.dtype(name)
            random = np.random.RandomState(5)
            everyone = random.randint(0, 256, (size, 2 * size * dtype.itemsize), np.uint8)
            everyone = everyone % 2 == 1 if name == "bool" else everyone.view(dtype)
            for op, reduction in reductions.items():
                expected = reduction.reduce(everyone, axis=0)
                total = collectives.allreduce(everyone[rank], op=op, name=f"bits.{name}.{op}")
                self.assertEqual(total.dtype, dtype)
                np.testing.assert_array_equal(total, expected, f"{op} of {name}")
                rows = collectives.reducescatter(everyone[rank], op=op, name=f"bits of rows.{name}.{op}")
                np.testing.assert_array_equal(rows, expected[2 * rank : 2 * rank + 2], f"{op} of {name}")
        with self.assertRaisesRegex(errors.InvalidArgument, "no bit_xor of f32"):
            collectives.allreduce(np.ones(3, np.float32), op=farandole.BitXor, name="bits of floats")
        with self.assertRaisesRegex(errors.InvalidArgument, "bit_and takes no factors"):
            collectives.allreduce(np.ones(3, np.int32), op=farandole.BitAnd, prescale_factor=2.0, name="factor of bits")

    def test_factors(self):
        mine = np.full(10, farandole.rank() + 1.0, np.float32)
        scaled = collectives.allreduce(mine, op=farandole.Sum, prescale_factor=0.5, postscale_factor=4.0)
        np.testing.assert_allclose(scaled, np.full(10, 2.0 * sum(range(1, farandole.size() + 1))))

    def test_factors_multiply_in_float32_as_in_horovod(self):
        """Its own tests allow no difference up to 3 ranks, where sums of equal numbers are multiples of them."""
        if farandole.size() > 3:
            self.skipTest("sums of more ranks round")
        random = np.random.RandomState(1234)
        factor = random.uniform()
        mine = random.uniform(-100, 100, 1000).astype(np.float32)
        product = np.float32(factor) * mine
        in_double = (factor * mine.astype(np.float64)).astype(np.float32)
        self.assertGreater(np.count_nonzero(product != in_double), 0, "no number shows the difference")
        size = np.float32(farandole.size())
        before = {"op": farandole.Sum, "prescale_factor": factor}
        after = {"op": farandole.Sum, "postscale_factor": factor}
        np.testing.assert_array_equal(collectives.allreduce(mine, **before), product * size)
        np.testing.assert_array_equal(collectives.allreduce(mine, **after), np.float32(factor) * (mine * size))
        np.testing.assert_array_equal(collectives.grouped_allreduce([mine, mine[:3]], **before)[1], product[:3] * size)
        rows = collectives.reducescatter(np.tile(mine, (farandole.size(), 1)), **before)
        np.testing.assert_array_equal(rows[0], product * size)
        whole = np.round(mine)
        np.testing.assert_array_equal(collectives.allreduce(whole), whole)

    def test_averages_whose_sum_leaves_the_type(self):
        for name in INTEGERS[:5] + ["uint32"]:
            limits = np.iinfo(name)
            mine = np.array([limits.max, limits.min, limits.max - 1] * 700, name)
            for short in (mine[:3], mine):
                np.testing.assert_array_equal(collectives.allreduce(short), short)
                rows = collectives.reducescatter(np.tile(short, (farandole.size(), 1)))
                np.testing.assert_array_equal(rows[0], short)
        halves = np.full(3000, 60000, np.float16)
        for short in (halves[:3], halves):
            np.testing.assert_allclose(collectives.allreduce(short).astype(np.float32), 60000, rtol=2e-3)

    def test_a_factor_of_zero_makes_zeros(self):
        mine = np.full(3, farandole.rank() + 1.0, np.float32)
        for factors in ({"prescale_factor": 0}, {"postscale_factor": 0.0}):
            np.testing.assert_array_equal(collectives.allreduce(mine, op=farandole.Sum, **factors), np.zeros(3))
            rows = collectives.reducescatter(np.tile(mine, (farandole.size(), 1)), op=farandole.Sum, **factors)
            np.testing.assert_array_equal(rows, np.zeros((1, 3)))

    def test_factors_and_averages_of_integers(self):
        size = farandole.size()
        for name in INTEGERS:
            mine = np.array([3, 7, 10], dtype_of(name)) + farandole.rank()
            of_ranks = [np.array([3, 7, 10]) + rank for rank in range(size)]
            scaled = collectives.allreduce(mine, op=farandole.Sum, prescale_factor=0.5, postscale_factor=1.5)
            np.testing.assert_array_equal(scaled, sum(each // 2 for each in of_ranks) * 3 // 2)
            average = collectives.allreduce(mine)
            self.assertEqual((scaled.dtype, average.dtype), (mine.dtype, mine.dtype))
            np.testing.assert_array_equal(average, sum(of_ranks) // size)
            rows = collectives.reducescatter(np.tile(mine, (size, 1)), postscale_factor=2.0)
            np.testing.assert_array_equal(rows, [np.trunc(sum(of_ranks) * (2.0 / size))])
        negative = collectives.allreduce(np.array([-3]) * (farandole.rank() + 1))
        self.assertEqual(negative[0], int(-3 * size * (size + 1) / 2 / size))

    def test_adasum_of_equal_and_of_orthogonal_vectors(self):
        # Adasum averages vectors of one direction and adds orthogonal ones.
        same = collectives.allreduce(np.array([3.0, 4.0]), op=farandole.Adasum)
        np.testing.assert_allclose(same, [3.0, 4.0], rtol=1e-6)
        if farandole.size() == 2:
            mine = np.array([1.0, 0.0]) if farandole.rank() == 0 else np.array([0.0, 2.0])
            np.testing.assert_allclose(collectives.allreduce(mine, op=farandole.Adasum), [1.0, 2.0], rtol=1e-6)

    def test_result_in_the_input(self):
        mine = np.full(100, farandole.rank(), np.int32)
        result = collectives.allreduce(mine, op=farandole.Sum, out=mine)
        self.assertIs(result, mine)
        self.assertEqual(mine[99], sum(range(farandole.size())))

    def test_lists_and_strided_arrays(self):
        self.assertEqual(
            collectives.allreduce([1, 2], op=farandole.Sum).tolist(), [farandole.size(), 2 * farandole.size()]
        )
        every_second = np.arange(10.0)[::2]
        np.testing.assert_allclose(collectives.allreduce(every_second), every_second)
        transposed = np.arange(6.0).reshape(2, 3).T
        np.testing.assert_allclose(collectives.allreduce(transposed), transposed)

    def test_group(self):
        tensors = [np.full(n, farandole.rank() + 1.0, np.float32) for n in (1, 7, 300)]
        tensors.append(np.full((2, 2), farandole.rank() + 1.0, np.float64))
        results = collectives.grouped_allreduce(tensors, op=farandole.Sum)
        for tensor, result in zip(tensors, results):
            np.testing.assert_allclose(result, np.full(tensor.shape, sum(range(1, farandole.size() + 1))))
        self.assertEqual(collectives.grouped_allreduce([]), [])

    def test_names_in_opposite_orders(self):
        names = [f"opposite.{i}" for i in range(50)]
        order = names if farandole.rank() % 2 == 0 else names[::-1]
        works = {
            name: collectives.allreduce_async(np.full(i + 1, float(i)), op=farandole.Sum, name=name)
            for name in order
            for i in [names.index(name)]
        }
        for i, name in enumerate(names):
            np.testing.assert_array_equal(
                collectives.synchronize(works[name]), np.full(i + 1, float(i * farandole.size()))
            )
            self.assertTrue(collectives.poll(works[name]))

    def test_windows(self):
        for dtype in FLOATS:
            mine = collectives.window((64, 1024), dtype_of(dtype))
            self.assertEqual(mine.shape, (64, 1024))
            mine[...] = farandole.rank() + 1
            collectives.allreduce(mine, op=farandole.Sum, out=mine, name=f"window.{dtype}")
            self.assertTrue((mine.astype(np.float32) == sum(range(1, farandole.size() + 1))).all())
        self.assertEqual(collectives.window(0).shape, (0,))


class OtherCollectivesTest(support.RankedTest):
    def test_allgather_of_different_lengths(self):
        rank, size = farandole.rank(), farandole.size()
        for dtype in FLOATS + INTEGERS + ["bool"]:
            mine = np.full((rank + 1, 3), rank + 1).astype(dtype_of(dtype))
            everything = collectives.allgather(mine, name=f"gather.{dtype}")
            expected = np.concatenate([np.full((each + 1, 3), each + 1) for each in range(size)])
            self.assertEqual(everything.dtype, mine.dtype)
            np.testing.assert_array_equal(
                everything.astype(np.float64), expected.astype(dtype_of(dtype)).astype(np.float64)
            )

    def test_allgather_with_an_empty_rank(self):
        mine = np.arange(4.0) if farandole.rank() == 0 else np.empty(0)
        np.testing.assert_array_equal(collectives.allgather(mine), np.arange(4.0))

    def test_grouped_allgather(self):
        first, second = collectives.grouped_allgather([np.array([farandole.rank()]), np.full((2, 2), 1.5)])
        self.assertEqual(first.tolist(), list(range(farandole.size())))
        self.assertEqual(second.shape, (2 * farandole.size(), 2))

    def test_groups_of_no_arrays(self):
        for name in ("grouped_allreduce", "grouped_allgather", "grouped_reducescatter"):
            self.assertEqual(getattr(collectives, name)([]), [])
            work = getattr(collectives, name + "_async")([])
            self.assertTrue(collectives.poll(work))
            self.assertEqual(work.wait(), [])

    def test_both_forms_take_the_same_arguments(self):
        pairs = [(name, name + "_async") for name in collectives.__all__ if name + "_async" in collectives.__all__]
        self.assertEqual(len(pairs), 8)
        for pair in pairs:
            blocking, begin = (getattr(collectives, name) for name in pair)
            self.assertEqual((blocking.__name__, begin.__name__), pair)
            self.assertEqual(*(inspect.signature(each).parameters for each in (blocking, begin)))
            self.assertFalse([name for name in inspect.signature(begin).parameters if name.startswith("_")])
            self.assertIs(inspect.signature(begin).return_annotation, collectives.Work)
            self.assertIn("As `", begin.__doc__)
            self.assertGreater(len(blocking.__doc__), len(begin.__doc__))

    def test_broadcast(self):
        for root in range(farandole.size()):
            mine = np.arange(1000) * (farandole.rank() + 1)
            np.testing.assert_array_equal(collectives.broadcast(mine, root), np.arange(1000) * (root + 1))
            np.testing.assert_array_equal(mine, np.arange(1000) * (farandole.rank() + 1))
            self.assertIs(collectives.broadcast_(mine, root), mine)
            np.testing.assert_array_equal(mine, np.arange(1000) * (root + 1))

    def test_alltoall(self):
        rank, size = farandole.rank(), farandole.size()
        even = collectives.alltoall(np.repeat(np.arange(size), 2) * 10 + rank)
        self.assertEqual(even.tolist(), [10 * rank + sender for sender in range(size) for _ in range(2)])
        # Rank r sends r + 1 rows to rank 0 and none to the others.
        splits = [rank + 1] + [0] * (size - 1)
        rows, received = collectives.alltoall(np.full((rank + 1, 2), rank), splits)
        self.assertEqual(received.tolist(), [sender + 1 if rank == 0 else 0 for sender in range(size)])
        self.assertEqual(rows.shape, (sum(range(1, size + 1)) if rank == 0 else 0, 2))
        self.assertEqual(rows[:, 0].tolist(), [s for s in range(size) for _ in range(s + 1)] if rank == 0 else [])

    def test_reducescatter(self):
        rank, size = farandole.rank(), farandole.size()
        rows = 3 * size + 1  # the first rank gets one more
        mine = np.arange(rows * 2.0).reshape(rows, 2) + rank
        everyone = sum(np.arange(rows * 2.0).reshape(rows, 2) + each for each in range(size))
        begin = 0 if rank == 0 else 3 * rank + 1
        expected = everyone[begin : 3 * rank + 4]
        np.testing.assert_allclose(collectives.reducescatter(mine, op=farandole.Sum), expected)
        np.testing.assert_allclose(collectives.reducescatter(mine), expected / size)
        for result in collectives.grouped_reducescatter([mine, mine], op=farandole.Sum):
            np.testing.assert_allclose(result, expected)

    def test_barrier_and_join(self):
        collectives.barrier()
        # Every rank has one tensor more than the one before; those that have joined supply zeros.
        for i in range(farandole.rank() + 1):
            total = collectives.allreduce([1.0], op=farandole.Sum, name=f"join.{i}")
            self.assertEqual(total[0], farandole.size() - i)
        self.assertIn(collectives.join(), range(farandole.size()))

    def test_ranks_that_have_joined_change_nothing(self):
        rank, size = farandole.rank(), farandole.size()
        last = size - 1
        types = ["bool", "uint8", "int8", "uint16", "int16", "int32", "int64", "uint32", "uint64", "float16", "float32", "float64"]
        for dtype in types if rank == last else []:
            mine = np.array([0, 1, 1], dtype) if dtype == "bool" else np.array([5, 3, 1], dtype)
            if np.dtype(dtype).kind in "if":
                mine = mine * np.array([1, -1, 1], dtype)
            operations = [farandole.Sum, farandole.Product, farandole.Min, farandole.Max]
            if np.dtype(dtype).kind != "f":
                operations += [farandole.BitAnd, farandole.BitOr, farandole.BitXor]
            for op in operations:
                result = collectives.allreduce(mine, op=op, name=f"joined.{dtype}.{op}")
                np.testing.assert_array_equal(result, mine, f"{op} of {dtype}")
        self.assertIn(collectives.join(), range(size))

    def test_other_threads_run_while_one_waits(self):
        turns = []
        stop = threading.Event()

        def count():
            while not stop.is_set():
                turns.append(time.monotonic())
                time.sleep(0.001)

        counter = threading.Thread(target=count)
        counter.start()
        if farandole.rank() == 0:
            time.sleep(0.3)
        began = time.monotonic()
        collectives.barrier()
        ended = time.monotonic()
        stop.set()
        counter.join()
        if farandole.rank() == 1:
            during = [turn for turn in turns if began < turn < ended]
            self.assertGreater(len(during), 20)


class InterruptTest(support.RankedTest):
    def test_a_signal_within_a_callback_of_the_library(self):
        finish = _work.Work.finish
        armed, sent, raised = False, 0, 0

        def interrupt(work, index, error):
            nonlocal armed, sent
            if armed and threading.current_thread() is threading.main_thread():
                armed = False
                sent += 1
                os.kill(os.getpid(), signal.SIGINT)
                sum(range(100))  # where the handler would run
            finish(work, index, error)

        # A shell that starts a rank in the background lets it ignore the signal.
        previous = signal.signal(signal.SIGINT, signal.default_int_handler)
        _work.Work.finish = interrupt
        try:
            # Either thread may finish them: some are finished by this one.
            for _ in range(100):
                armed = True
                try:
                    collectives.allreduce(np.ones(1000))
                except KeyboardInterrupt:
                    raised += 1
                armed = False
        finally:
            _work.Work.finish = finish
            signal.signal(signal.SIGINT, previous)
        self.assertEqual(raised, sent)
        self.assertEqual(collectives.allreduce([1.0], op=farandole.Sum).tolist(), [farandole.size()])

    def test_handlers_stay_as_they_were(self):
        arrived = []
        previous = signal.signal(signal.SIGUSR1, lambda *_: arrived.append("handler"))
        try:
            before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM)]
            collectives.allreduce([1.0])
            after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM)]
            self.assertEqual(after, before)
            os.kill(os.getpid(), signal.SIGUSR1)
        finally:
            signal.signal(signal.SIGUSR1, previous)
        self.assertEqual(arrived, ["handler"])


class ProcessSetTest(support.RankedTest):
    def test_each_rank_in_a_set_of_its_own(self):
        rank, size = farandole.rank(), farandole.size()
        if size < 2:
            self.skipTest("needs two ranks")
        sets = [farandole.add_process_set([each]) for each in range(size)]
        self.assertEqual([each.included() for each in sets], [each == rank for each in range(size)])
        mine = sets[rank]
        self.assertEqual((mine.rank(), mine.size(), mine.ranks), (0, 1, [rank]))
        total = collectives.allreduce([float(rank)], op=farandole.Sum, process_set=mine)
        self.assertEqual(total[0], rank)
        with self.assertRaises(errors.InvalidArgument):
            sets[(rank + 1) % size].rank()
        with self.assertRaisesRegex(ValueError, "already"):
            farandole.add_process_set([0])
        for each in sets:
            self.assertTrue(farandole.remove_process_set(each))
            self.assertIsNone(each.process_set_id)
            self.assertFalse(farandole.remove_process_set(each))
        self.assertFalse(farandole.remove_process_set(farandole.global_process_set))
        with self.assertRaisesRegex(errors.InvalidArgument, "not registered"):
            collectives.allreduce([1.0], process_set=mine)

    def test_set_of_all_ranks(self):
        everyone = farandole.global_process_set
        self.assertEqual(everyone.ranks, list(range(farandole.size())))
        self.assertEqual((everyone.size(), everyone.rank()), (farandole.size(), farandole.rank()))

    def test_invalid_process_sets_are_refused(self):
        for wrong in ("01", [0.5], [True], 3):
            with self.assertRaises((errors.InvalidArgument, TypeError)):
                farandole.ProcessSet(wrong)


class ErrorsTest(support.RankedTest):
    def test_refused_before_anything_is_sent(self):
        with self.assertRaisesRegex(errors.InvalidArgument, "complex64.*convert to one of: bool, .*uint64"):
            collectives.allreduce(np.zeros(3, np.complex64))
        with self.assertRaises(errors.InvalidArgument):
            collectives.allreduce(np.zeros(3, ">f4"))
        with self.assertRaisesRegex(errors.InvalidArgument, "mask"):
            collectives.allreduce(np.ma.array([1.0, 2.0], mask=[False, True]))
        with self.assertRaisesRegex(errors.InvalidArgument, "splits must be integers"):
            collectives.alltoall(np.zeros(farandole.size()), [1.5] * farandole.size())
        with self.assertRaisesRegex(errors.InvalidArgument, "out"):
            collectives.allreduce(np.zeros(3), out=np.zeros(4))
        with self.assertRaisesRegex(errors.InvalidArgument, "not both"):
            collectives.allreduce(np.zeros(3), average=True, op=farandole.Sum)
        with self.assertRaises(errors.InvalidArgument):
            collectives.broadcast(np.zeros(3), root_rank=farandole.size())
        with self.assertRaises(errors.InvalidArgument):
            collectives.allreduce(np.zeros(3, bool), op=farandole.Average)

    def test_mismatch_on_all_ranks_and_the_job_goes_on(self):
        if farandole.size() < 2:
            self.skipTest("needs two ranks")
        rank = farandole.rank()
        before = np.full(4 + rank, 1.0)
        with self.assertRaises(errors.Mismatch):
            collectives.allreduce(before, out=before, op=farandole.Sum, name="shapes")
        self.assertTrue((before == 1.0).all())
        with self.assertRaises(errors.Mismatch):
            collectives.allreduce(np.zeros(3, np.float32 if rank else np.float64), name="types")
        with self.assertRaises(errors.Mismatch):
            collectives.allreduce(np.zeros(3), op=farandole.Max if rank else farandole.Min, name="operations")
        with self.assertRaises(errors.Mismatch):
            collectives.broadcast(np.zeros(3), root_rank=min(rank, 1), name="roots")
        self.assertEqual(collectives.allreduce([1.0], op=farandole.Sum)[0], farandole.size())

    def test_overlapping_memory(self):
        """Is refused on the rank that passes it, and a Mismatch with the reason on the others; no data is touched."""
        rank, size = farandole.rank(), farandole.size()
        memory = np.arange(20, dtype=np.float64)
        apart = np.zeros((2, 10))
        odd = rank == size - 1
        calls = {
            "shifted": lambda: collectives.allreduce(
                memory[:10], op=farandole.Sum, out=memory[1:11] if odd else apart[0], name="shifted"
            ),
            "broadcast": lambda: collectives.broadcast(memory[5:15], 0, out=memory[:10] if odd else apart[0], name="broadcast"),
            "output twice": lambda: collectives.grouped_allreduce(
                [memory[:10], memory[10:]], op=farandole.Sum, out=[apart[0], apart[0 if odd else 1]], name="output twice"
            ),
        }
        for name, call in calls.items():
            with self.subTest(name):
                with self.assertRaisesRegex(errors.InvalidArgument if odd else errors.Mismatch, "overlaps the"):
                    call()
                np.testing.assert_array_equal(memory, np.arange(20))
                np.testing.assert_array_equal(apart, 0)
        collectives.allreduce(memory[1:11], op=farandole.Sum, out=memory[1:11])
        np.testing.assert_array_equal(memory, np.concatenate([[0], size * np.arange(1, 11), np.arange(11, 20)]))

    def test_duplicate_name(self):
        if farandole.size() < 2:
            self.skipTest("needs two ranks")
        if farandole.rank() == 0:
            work = collectives.allreduce_async([1.0], name="twice")
            with self.assertRaises(errors.DuplicateName):
                collectives.allreduce([1.0], name="twice")
            collectives.barrier()
            work.wait()
        else:
            collectives.barrier()
            collectives.allreduce([1.0], name="twice")

    def test_two_inits_and_counters(self):
        farandole.init()
        requests = farandole.counters()["requests"]
        collectives.allreduce([1.0])
        self.assertEqual(farandole.counters()["requests"], requests + 1)


if __name__ == "__main__":
    support.main()
