# SPDX-License-Identifier: Apache-2.0
"""Signals belong to the program: no thread of the package takes a signal that the program waits for."""

import os
import signal
import threading

import support

support.need("numpy")
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's own threads block nothing

import numpy as np

import farandole
import farandole.numpy as collectives
from farandole import _waiting

AWAITED = {signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM}


def blocked_by(thread):
    with open(f"/proc/self/task/{thread.native_id}/status", encoding="ascii") as status:
        mask = next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk:"))
    return {number for number in range(1, 64) if mask >> (number - 1) & 1}


class SignalsTest(support.RankedTest):
    def test_threads_of_the_package_block_them(self):
        collectives.allreduce(np.ones(3))
        _waiting._get_listener()  # of a main thread that waits
        threads = [each for each in threading.enumerate() if each.name.startswith("farandole")]
        self.assertTrue(threads, threading.enumerate())
        for thread in threads:
            blocked = blocked_by(thread)
            self.assertLessEqual(AWAITED | {signal.SIGINT, signal.SIGCHLD}, blocked, thread.name)
            self.assertNotIn(signal.SIGSEGV, blocked, thread.name)

    def test_the_thread_that_waits_gets_them(self):
        collectives.allreduce(np.ones(3))
        former = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
        try:
            for number in sorted(AWAITED):
                os.kill(os.getpid(), number)
                came = signal.sigtimedwait(AWAITED, 20)
                self.assertEqual(came and came.si_signo, number)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)
        collectives.barrier()


if __name__ == "__main__":
    support.main()
