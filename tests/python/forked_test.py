# SPDX-License-Identifier: Apache-2.0
"""Ranks that fork processes: os.fork, multiprocessing, subprocess."""

import multiprocessing
import os
import subprocess
import sys
import threading

import support

support.need("numpy")

import numpy as np
from forking import SECONDS, expect_refused, in_child

import farandole
import farandole.numpy as collectives
from farandole import objects

FIRST = farandole.ProcessSet([0])


def square_as_no_rank(value: int) -> int:
    assert not farandole.is_initialized()
    expect_refused(farandole.rank)
    return value * value


class ForkedTest(support.RankedTest):
    def tearDown(self):
        # The rank itself goes on.
        for i in range(5):
            values = collectives.allreduce(np.full(20_000, farandole.rank() + i), op=farandole.Sum)
            size = farandole.size()
            self.assertEqual(set(values.tolist()), {size * (size - 1) // 2 + size * i})
        super().tearDown()

    def test_every_call_says_so(self):
        def body():
            assert not farandole.is_initialized()
            one = np.ones(1)
            for call in (
                farandole.rank,
                farandole.size,
                farandole.local_rank,
                farandole.cross_size,
                farandole.is_homogeneous,
                farandole.mpi_threads_supported,
                lambda: farandole.abort("a child aborts"),
                lambda: collectives.allreduce(one),
                lambda: collectives.allreduce_async(one),
                lambda: collectives.allgather(one),
                lambda: collectives.broadcast(one, 0),
                lambda: collectives.alltoall(one),
                lambda: collectives.barrier(),
                lambda: collectives.join(),
                lambda: objects.broadcast_object("text"),
                lambda: objects.allgather_object("text"),
                lambda: farandole.add_process_set([0]),
                lambda: farandole.remove_process_set(FIRST),
                lambda: collectives.allreduce(one, process_set=FIRST),
                FIRST.size,
                FIRST.included,
            ):
                expect_refused(call)
            assert farandole.info()["initialized"] is False
            farandole.shutdown()

        self.assertEqual(in_child(body), "")

    def test_a_child_of_a_child(self):
        def body():
            text = in_child(lambda: expect_refused(farandole.size))
            assert text == "", text
            expect_refused(farandole.size)

        self.assertEqual(in_child(body), "")

    def test_request_pending_in_the_parent(self):
        """The other ranks hold the request back until the first rank's child has ended."""
        values = np.ones(50_000)
        if farandole.rank() == 0:
            work = collectives.allreduce_async(values, op=farandole.Sum, name="pending")

            def body():
                expect_refused(work.wait)
                expect_refused(work.wait)
                assert collectives.poll(work)

            self.assertEqual(in_child(body), "")
        collectives.barrier()
        if farandole.rank() > 0:
            work = collectives.allreduce_async(values, op=farandole.Sum, name="pending")
        self.assertEqual(work.wait()[-1], farandole.size())

    def test_a_window_of_the_parent(self):
        window = collectives.window(1 << 18)
        window.fill(3)

        def body():
            nonlocal window
            assert float(window.sum()) == 3 * (1 << 18)
            other = collectives.window(1 << 18)
            other.fill(4)
            del window, other

        self.assertEqual(in_child(body), "")

    def test_from_another_thread(self):
        results = []
        thread = threading.Thread(target=lambda: results.append(in_child(lambda: expect_refused(farandole.rank))))
        thread.start()
        for _ in range(20):
            collectives.barrier()
        thread.join(SECONDS + 20)
        self.assertEqual(results, [""])

    def test_a_job_of_itself(self):
        def body():
            farandole.init()
            assert (farandole.rank(), farandole.size()) == (0, 1)
            assert collectives.allreduce([3.0]).tolist() == [3.0]
            assert FIRST.process_set_id is None
            farandole.shutdown()
            assert not farandole.is_initialized()

        self.assertEqual(in_child(body), "")

    def test_another_job(self):
        def join_as(rank, job):
            os.environ.update(FARANDOLE_RANK=str(rank), FARANDOLE_SIZE="2", FARANDOLE_JOB=job)
            farandole.init()
            assert (farandole.rank(), farandole.size()) == (rank, 2)
            assert collectives.allreduce([1.0], op=farandole.Sum).tolist() == [2.0]
            farandole.shutdown()

        def body():
            job = f"children-{os.getpid()}"
            partner = multiprocessing.get_context("fork").Process(target=join_as, args=(1, job))
            partner.start()
            join_as(0, job)
            partner.join(SECONDS)
            assert partner.exitcode == 0, partner.exitcode

        self.assertEqual(in_child(body), "")

    def test_multiprocessing(self):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            squares = pool.map_async(square_as_no_rank, range(8))
            for _ in range(20):
                collectives.barrier()
            self.assertEqual(squares.get(SECONDS), [value * value for value in range(8)])

    def test_subprocess(self):
        def before_exec():
            assert not farandole.is_initialized()
            expect_refused(lambda: collectives.allreduce([1.0]))

        program = "import farandole; farandole.init(); print(farandole.size(), flush=True)"
        run = subprocess.run(
            [sys.executable, "-c", program], preexec_fn=before_exec, stdout=subprocess.PIPE, timeout=SECONDS, check=True
        )
        self.assertEqual(run.stdout.decode().split(), ["1"], "a program that a rank starts is no part of the job")


if __name__ == "__main__":
    support.main([FIRST])
