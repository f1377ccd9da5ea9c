# SPDX-License-Identifier: Apache-2.0
"""Unnamed calls: automatic names are reused, and the calls of all ranks match, in whatever way the ranks wait."""

import resource
import time

import support

support.need("numpy")

import numpy as np

import farandole
import farandole.numpy as collectives
from farandole import _work, objects

CALLS = 65_536
CYCLE = _work.Names.COUNT


def resident_kib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


class NamesTest(support.RankedTest):
    def test_blocking_calls_for_a_long_time(self):
        """The number of names, the memory and the work per call stay bounded."""
        mine = np.ones(4, np.float32)
        times = []
        named = [farandole.counters()["named"]]
        memory = []
        for _ in range(CALLS // 1024):
            began = time.process_time()  # other programs of this machine do not count
            for _ in range(1024):
                collectives.allreduce(mine, op=farandole.Sum, out=mine)
                mine[:] = 1.0
            times.append(time.process_time() - began)
            named.append(farandole.counters()["named"])
            memory.append(resident_kib())
        if farandole.size() > 1:
            self.assertLessEqual(named[1] - named[0], CYCLE)
            self.assertEqual(named[-1], named[1], "every name has been told once")
        self.assertLess(memory[-1] - memory[0], 8 * 1024)
        # The first ones tell their names.
        self.assertLess(min(times[-8:]), 2 * times[0])

    def test_other_calls_for_some_time(self):
        """Names mean different things in turn, and ranks know them all the same."""
        calls = [
            lambda: collectives.broadcast(np.ones(1), 0),
            lambda: collectives.allgather(np.ones(1)),
            lambda: collectives.barrier(),
            lambda: objects.broadcast_object(0),
        ]
        self.assertEqual(CYCLE % len(calls), 0)
        collectives.join()  # counts from 0
        for turn in range(3):
            before = farandole.counters()["named"]
            for n in range(CYCLE):
                calls[n % len(calls)]()
            if turn > 0:
                self.assertEqual(farandole.counters()["named"], before)

    def test_calls_match_again_after_a_mismatch(self):
        rank, size = farandole.rank(), farandole.size()
        if size < 2:
            self.skipTest("needs two ranks")
        pairs = [
            (lambda: collectives.allreduce([1.0]), lambda: collectives.allgather([1.0])),
            (lambda: collectives.barrier(), lambda: collectives.broadcast([1.0], 0)),
            (lambda: objects.broadcast_object(1), lambda: objects.allgather_object(1)),
            (lambda: collectives.allgather(np.zeros(3, np.uint8)), lambda: objects.allgather_object(1)),
            (lambda: collectives.alltoall(np.ones(size)), lambda: collectives.reducescatter(np.ones(size))),
        ]
        for n, pair in enumerate(pairs):
            with self.assertRaisesRegex(farandole.errors.Mismatch, "ranks disagree"):
                pair[min(rank, 1)]()
            self.assertEqual(collectives.allreduce([float(n)], op=farandole.Sum)[0], n * size)
            np.testing.assert_array_equal(collectives.allgather([float(rank)]), np.arange(size))

    def test_more_than_all_names_at_once(self):
        """Those that find their name in use wait in the engine; ranks that wait in other orders meet all the same."""
        rank, size = farandole.rank(), farandole.size()
        count = 2 * CYCLE + 7
        works = []
        for n in range(count):
            works.append(collectives.allreduce_async(np.full(1 + n % 3, float(n)), op=farandole.Sum))
            if rank == 1 and n % 100 == 0:
                works[n // 2].wait()
        order = range(count) if rank % 2 == 0 else reversed(range(count))
        for n in order:
            np.testing.assert_array_equal(works[n].wait(), np.full(1 + n % 3, float(n * size)))

    def test_ranks_that_wait_in_different_orders(self):
        rank, size = farandole.rank(), farandole.size()
        for turn in range(3 * CYCLE // 4):
            works = [collectives.allreduce_async([float(turn + n)], op=farandole.Sum) for n in range(4)]
            if rank % 2:
                works[3].wait()
                # Rank 1 goes on before it has waited for the first ones.
                works.append(collectives.allreduce_async([float(turn + 4)], op=farandole.Sum))
                values = [work.wait()[0] for work in works]
            else:
                values = [work.wait()[0] for work in works]
                values.append(collectives.allreduce([float(turn + 4)], op=farandole.Sum)[0])
            self.assertEqual(values, [(turn + n) * size for n in range(5)])

    def test_named_call_does_not_block_unnamed_calls(self):
        """Rank 1 waits for "x" before it makes any of the calls that rank 0 makes first."""
        rank, size = farandole.rank(), farandole.size()
        count = CYCLE + 10
        works = []

        def submit():
            works.extend(collectives.allreduce_async([float(n)], op=farandole.Sum) for n in range(count))

        if rank == 0:
            submit()
        collectives.allreduce([1.0], name="x")
        if rank != 0:
            submit()
        for n, work in enumerate(works):
            self.assertEqual(work.wait()[0], n * size)

    def test_ranks_count_anew_when_all_have_joined(self):
        for _ in range(farandole.rank()):
            collectives.allreduce([1.0], op=farandole.Sum)
        collectives.join()
        for n in range(5):
            self.assertEqual(collectives.allreduce([float(n)], op=farandole.Sum)[0], n * farandole.size())

    def test_each_process_set_counts_by_itself(self):
        if farandole.size() < 2:
            self.skipTest("needs two ranks")
        own = farandole.add_process_set([0])
        if farandole.rank() == 0:
            for n in range(CYCLE + 3):
                self.assertEqual(collectives.allreduce([float(n)], op=farandole.Sum, process_set=own)[0], n)
        self.assertEqual(collectives.allreduce([1.0], op=farandole.Sum)[0], farandole.size())
        farandole.remove_process_set(own)


if __name__ == "__main__":
    support.main()
