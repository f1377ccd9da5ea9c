# SPDX-License-Identifier: Apache-2.0
"""Process sets as in Horovod: static and dynamic sets, results on members and other ranks, ids, and removal."""

import threading
import time

import tensorflow_support
from tensorflow_support import OpTest, both_ways

import numpy as np
import tensorflow as tf

import farandole
import farandole.tensorflow as hvd
import farandole.tensorflow.keras as hvd_keras
from farandole import errors

class OfArrays(tf.compat.v1.train.Optimizer):
    def __init__(self, gradient):
        super().__init__(name="arrays", use_locking=False)
        self.gradient = gradient

    def compute_gradients(self, *_args, **_options):
        return [(self.gradient, None)]


def function_of(collective):
    return lambda process_set: tf.function(collective)(process_set)


def graph_of(collective):
    def run(process_set):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            session.run(collective(process_set))

    return run


def slices(process_set):
    reduced = hvd.allreduce(tf.IndexedSlices(tf.ones(2), tf.range(2)), process_set=process_set)
    return reduced.values


# Tensors have an even number of rows, as alltoall needs. The root, rank 0, is in no other rank's set of one rank.
USES = {
    "allreduce": lambda process_set: hvd.allreduce(tf.ones(2), process_set=process_set),
    "grouped_allreduce": lambda process_set: hvd.grouped_allreduce([tf.ones(2)], process_set=process_set),
    "slices": slices,
    "allgather": lambda process_set: hvd.allgather(tf.ones(2), process_set=process_set),
    "grouped_allgather": lambda process_set: hvd.grouped_allgather([tf.ones(2)], process_set=process_set),
    "broadcast": lambda process_set: hvd.broadcast(tf.ones(2), 0, process_set=process_set),
    "alltoall": lambda process_set: hvd.alltoall(tf.ones(2), process_set=process_set),
    "reducescatter": lambda process_set: hvd.reducescatter(tf.ones(2), process_set=process_set),
    "join": lambda process_set: hvd.mpi_ops.join(process_set),
}
FIRST = hvd.ProcessSet([0])
basics = hvd.mpi_ops._basics


class ProcessSetsTest(OpTest):
    def setUp(self):
        super().setUp()
        if self.size < 2:
            self.skipTest("needs two ranks")

    def test_static_sets(self):
        self.assertEqual(basics._get_process_set_ids_and_ranks()[FIRST.process_set_id], [0])
        self.assertEqual((FIRST.size(), FIRST.included()), (1, self.rank == 0))
        self.assertEqual(hvd.global_process_set.ranks, list(range(self.size)))
        self.assertEqual((hvd.global_process_set.size(), hvd.global_process_set.rank()), (self.size, self.rank))

    def test_members_and_others(self):
        last = hvd.add_process_set([self.size - 1])
        is_member = self.rank == self.size - 1
        self.assertEqual((last.size(), last.included()), (1, is_member))
        self.assertEqual(hvd.size_op(last.process_set_id).numpy(), 1)
        self.assertEqual(hvd.process_set_included_op(last.process_set_id).numpy(), int(is_member))
        if is_member:
            self.assertEqual(last.rank(), 0)
            for result in both_ways(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=last), tf.constant([2.0])):
                self.check(result, [2])
        else:
            with self.assertRaisesRegex(ValueError, "not in"):
                last.rank()
            with self.assertRaisesRegex(ValueError, "not part of"):
                basics._process_set_rank(last.process_set_id)
            with self.assertRaises((tf.errors.InvalidArgumentError, errors.InvalidArgument)):
                hvd.allreduce(tf.constant([2.0]), process_set=last)
        self.assertTrue(hvd.remove_process_set(last))

    def test_numbers(self):
        before = basics._get_process_set_ids_and_ranks()
        self.assertEqual(before[0], list(range(self.size)))
        made = hvd.add_process_set(range(1, self.size))
        self.assertEqual(basics._get_process_set_ids_and_ranks(), {**before, made.process_set_id: [*range(1, self.size)]})
        self.assertEqual(basics._process_set_size(made.process_set_id), self.size - 1)
        number = made.process_set_id
        self.assertEqual(basics._remove_process_set_impl(number), number)
        self.assertEqual(basics._get_process_set_ids_and_ranks(), before)
        self.assertEqual([basics._remove_process_set_impl(each) for each in (number, 0, 77)], [None] * 3)
        for query in (basics._process_set_rank, basics._process_set_size):
            with self.assertRaisesRegex(ValueError, "does not exist"):
                query(77)

    def test_duplicates(self):
        self.assertIsNone(basics._add_process_set_impl([0]))
        for ranks in ([0], list(range(self.size)), FIRST):
            with self.assertRaisesRegex(ValueError, "duplicate"):
                hvd.add_process_set(ranks)
        self.assertEqual(basics._get_process_set_ids_and_ranks()[FIRST.process_set_id], [0])

    def test_lists_of_ranks(self):
        self.assertEqual(hvd.ProcessSet([1, 0]).ranks, [0, 1])
        self.assertEqual(hvd.ProcessSet(range(2)).ranks, [0, 1])
        self.assertEqual(hvd.ProcessSet(iter([1, 0])).ranks, [0, 1])
        made = hvd.add_process_set(rank for rank in reversed(range(1, self.size)))
        self.assertEqual(made.ranks, [*range(1, self.size)])
        self.assertTrue(hvd.remove_process_set(made))
        with self.assertRaisesRegex(ValueError, "global_process_set"):
            hvd.add_process_set([])  # in Horovod another set of all ranks
        for ranks in ([0.5], "01", [None], 5):
            with self.assertRaisesRegex(ValueError, "list of"):
                hvd.ProcessSet(ranks)
        with self.assertRaises(ValueError):
            hvd.add_process_set([0, self.size])
        self.goes_on()

    def test_without_a_number(self):
        unknown = hvd.ProcessSet([0])
        self.assertEqual((unknown.size(), unknown.rank(), unknown.included()), (None, None, self.rank == 0))
        self.assertFalse(hvd.remove_process_set(unknown))
        with self.assertRaises(ValueError):
            hvd.allreduce(tf.constant([1.0]), process_set=unknown)

    def test_sets_that_cannot_be_used(self):
        """A number that there is not is a ValueError, in graphs when they are made; a set without this rank is not."""
        there_is_none = hvd.ProcessSet([0])
        there_is_none.process_set_id = 77
        alone = [hvd.add_process_set([rank]) if rank else FIRST for rank in range(self.size)]
        of_another = alone[(self.rank + 1) % self.size]
        for name, collective in USES.items():
            with self.subTest(name):
                for call in (collective, function_of(collective), graph_of(collective)):
                    with self.assertRaisesRegex(ValueError, "process set 77"):
                        call(there_is_none)
                    with self.assertRaises(tf.errors.InvalidArgumentError):
                        call(of_another)
        for made in alone[1:]:
            hvd.remove_process_set(made)
        self.goes_on()

    def test_an_unknown_set_on_one_rank_takes_its_turn(self):
        """Else the next call of the rank would meet this one of the others."""
        if self.size == 1:
            self.skipTest("needs several ranks")
        value = tf.constant([float(self.rank)])
        if self.rank == 0:
            with self.assertRaisesRegex(ValueError, "process set 88"):
                hvd.allreduce(value, op=hvd.Sum, process_set=88)
        else:
            with self.assertRaisesRegex(errors.Mismatch, "process set 88"):
                hvd.allreduce(value, op=hvd.Sum)
        self.goes_on()

    def test_text(self):
        self.assertEqual(str(FIRST), f"ProcessSet(process_set_id={FIRST.process_set_id}, ranks=[0], mpi_comm=None)")
        ranks = [*range(self.size)]
        self.assertEqual(repr(hvd.global_process_set), f"ProcessSet(process_set_id=0, ranks={ranks}, mpi_comm=None)")

    def test_removed_sets(self):
        self.assertFalse(hvd.remove_process_set(hvd.global_process_set))
        made = hvd.add_process_set([self.size - 1])

        @tf.function
        def reduce(x):
            return hvd.allreduce(x, op=hvd.Sum, process_set=made)

        if made.included():
            self.check(reduce(tf.constant([1.0])), [1])
        number = made.process_set_id
        self.assertTrue(hvd.remove_process_set(made))
        self.assertFalse(hvd.remove_process_set(made))
        self.assertEqual((made.process_set_id, made.size(), made.rank()), (None, None, None))
        self.assertEqual(made.included(), self.rank == self.size - 1)
        with self.assertRaises(ValueError):
            hvd.allreduce(tf.constant([1.0]), process_set=made)
        # Its graph has the number of the set; who traces it now finds none.
        with self.assertRaises((tf.errors.InvalidArgumentError, tf.errors.AbortedError, ValueError)):
            reduce(tf.constant([1.0]))
        self.assertNotIn(number, basics._get_process_set_ids_and_ranks())
        self.goes_on()

    def test_removal_while_in_use(self):
        """Requests that wait in the set fail, and the job goes on."""
        if self.size < 3:
            self.skipTest("needs three ranks: a set of two that is not that of all")
        both = hvd.add_process_set([0, 1])
        before = farandole.counters()["requests"]
        raised = []

        def wait():
            try:
                hvd.allreduce(tf.constant([1.0]), name="never", process_set=both)
            except (errors.Error, tf.errors.OpError) as error:
                raised.append(error)

        thread = threading.Thread(target=wait)
        if self.rank == 0:
            thread.start()
            while farandole.counters()["requests"] == before:
                time.sleep(0.001)
        hvd.remove_process_set(both)
        if self.rank == 0:
            thread.join()
            self.assertEqual(len(raised), 1)
        self.goes_on()

    def test_optimizers_make_tensors_of_arrays(self):
        """Also where nothing is reduced: on ranks that are not in the set, and in a set of one rank."""
        mine = np.array([self.rank + 1.0], np.float32)
        ranks = [*range(self.size)]
        for process_set, members in ((FIRST, [0]), (hvd.global_process_set, ranks)):
            expected = np.mean([rank + 1.0 for rank in members]) if self.rank in members else self.rank + 1.0
            keras_like = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(), process_set=process_set)
            (of_keras,) = keras_like._allreduce([mine], [tf.Variable([0.0])])
            older = hvd.DistributedOptimizer(OfArrays(mine), process_set=process_set)
            ((of_older, _),) = older.compute_gradients()
            for gradient in (of_keras, of_older):
                self.assertIsInstance(gradient, tf.Tensor)
                self.check(gradient, [expected])

    def test_gradients_stay_in_the_set(self):
        if FIRST.included():
            x = tf.Variable([3.0])
            with tf.GradientTape() as tape:
                y = hvd.allreduce(x * x, op=hvd.Sum, process_set=FIRST)
            np.testing.assert_array_equal(tape.gradient(y, x).numpy(), [6.0])
        self.goes_on()


if __name__ == "__main__":
    tensorflow_support.main([FIRST])
